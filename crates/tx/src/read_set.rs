//! What a transaction has read, by inode and by kind of what it saw, and never by byte.
//!
//! The invariant: a set may say that more was read than was, and never less. So what grows too
//! large is noted more coarsely: a directory as a whole in place of its names, and in the end the
//! whole dataset.

use marram_history::{Overlap, Touched};
use marram_vfs::Ino;
use std::collections::{BTreeMap, BTreeSet};

/// Most names of one directory that are noted one by one.
const NAMES_MAX: usize = 16_384;
/// Most inodes of which anything is noted.
const INODES_MAX: usize = 4 << 20;

/// What can be seen of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aspect {
    /// What a name in a directory leads to, or that there is none.
    Name,
    /// Which names there are in a directory.
    Listing,
    /// Mode, owner, flags and access control lists.
    Rights,
    /// All that `stat` tells, but the access time.
    Attributes,
    /// The bytes of a file and how many they are.
    Content,
    /// The value of an extended attribute, or that there is none.
    Xattr,
    /// Which extended attributes there are.
    Xattrs,
}

/// What was seen of one inode.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Of all but names and extended attributes.
    aspects: BTreeSet<Aspect>,
    names: BTreeSet<Vec<u8>>,
    xattrs: BTreeSet<Vec<u8>>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct ReadSet {
    inodes: BTreeMap<u64, Seen>,
    /// More was read than is noted.
    is_everything: bool,
    omitted: Option<Aspect>,
}

impl ReadSet {
    /// A set that takes no note of one kind of reads: for tests, which must find that out.
    pub fn omitting(aspect: Aspect) -> ReadSet {
        ReadSet { omitted: Some(aspect), ..ReadSet::default() }
    }

    /// How many inodes anything was read of.
    pub fn inodes(&self) -> usize {
        self.inodes.len()
    }

    /// Takes note of what is no name.
    pub(crate) fn note(&mut self, ino: Ino, aspect: Aspect) {
        if let Some(seen) = self.seen(ino, aspect) {
            seen.aspects.insert(aspect);
        }
    }

    /// Takes note of a name in a directory.
    pub(crate) fn note_name(&mut self, directory: Ino, name: &[u8]) {
        let Some(seen) = self.seen(directory, Aspect::Name) else { return };
        if seen.aspects.contains(&Aspect::Listing) || seen.names.contains(name) {
            return;
        }
        if seen.names.len() < NAMES_MAX {
            seen.names.insert(name.to_owned());
        } else {
            seen.aspects.insert(Aspect::Listing);
            seen.names.clear();
        }
    }

    /// Takes note of an extended attribute.
    pub(crate) fn note_xattr(&mut self, ino: Ino, name: &[u8]) {
        if let Some(seen) = self.seen(ino, Aspect::Xattr)
            && !seen.xattrs.contains(name)
        {
            seen.xattrs.insert(name.to_owned());
        }
    }

    /// Takes over what another set has, of the same dataset.
    pub(crate) fn take_over(&mut self, other: &ReadSet) {
        if other.is_everything {
            self.is_everything = true;
            self.inodes.clear();
        }
        for (ino, seen) in &other.inodes {
            let ino = Ino(*ino);
            seen.aspects.iter().for_each(|aspect| self.note(ino, *aspect));
            seen.names.iter().for_each(|name| self.note_name(ino, name));
            seen.xattrs.iter().for_each(|name| self.note_xattr(ino, name));
        }
    }

    fn seen(&mut self, ino: Ino, aspect: Aspect) -> Option<&mut Seen> {
        if self.is_everything || self.omitted == Some(aspect) {
            return None;
        }
        if self.inodes.len() >= INODES_MAX && !self.inodes.contains_key(&ino.0) {
            self.is_everything = true;
            self.inodes.clear();
            return None;
        }
        Some(self.inodes.entry(ino.0).or_default())
    }

    /// What of a change by others was read.
    pub fn overlaps(&self, touched: &Touched) -> Vec<Overlap> {
        if self.is_everything {
            let what = "more was read than can be noted, and something changed";
            return vec![Overlap { name: None, what }];
        }
        let Some(seen) = self.inodes.get(&touched.ino.0) else { return Vec::new() };
        let has = |aspect| seen.aspects.contains(&aspect);
        let xattrs = !touched.xattrs.is_disjoint(&seen.xattrs);
        let whole = [
            (touched.rights && has(Aspect::Rights), "rights changed"),
            (touched.attributes && has(Aspect::Attributes), "attributes changed"),
            (touched.content && has(Aspect::Content), "content changed"),
            (!touched.names.is_empty() && has(Aspect::Listing), "names in it changed"),
            (!touched.xattrs.is_empty() && has(Aspect::Xattrs), "extended attributes changed"),
            (xattrs, "extended attribute changed"),
        ];
        let whole = whole.into_iter().filter(|(is_so, _)| *is_so);
        let whole = whole.map(|(_, what)| Overlap { name: None, what });
        let names = touched.names.intersection(&seen.names);
        let names = names.map(|name| Overlap { name: Some(name.clone()), what: "name changed" });
        whole.chain(names).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Aspect, NAMES_MAX, ReadSet};
    use marram_history::Touched;
    use marram_vfs::Ino;
    use std::collections::BTreeSet;

    fn touched(ino: u64) -> Touched {
        Touched {
            ino: Ino(ino),
            is_directory: true,
            rights: false,
            attributes: true,
            content: false,
            names: BTreeSet::from([b"other".to_vec()]),
            xattrs: BTreeSet::new(),
        }
    }

    #[test]
    fn names_do_not_speak_of_each_other_and_a_listing_speaks_of_all() {
        let mut reads = ReadSet::default();
        reads.note_name(Ino(1), b"one");
        reads.note(Ino(1), Aspect::Rights);
        assert!(reads.overlaps(&touched(1)).is_empty());
        reads.note_name(Ino(1), b"other");
        assert_eq!(reads.overlaps(&touched(1)).len(), 1);
        reads.note(Ino(2), Aspect::Listing);
        assert_eq!(reads.overlaps(&touched(2)).len(), 1);
        assert!(reads.overlaps(&touched(3)).is_empty());
    }

    #[test]
    fn what_is_taken_over_is_noted_as_if_it_was_read() {
        let (mut inner, mut outer) = (ReadSet::default(), ReadSet::default());
        inner.note_name(Ino(1), b"other");
        inner.note(Ino(2), Aspect::Attributes);
        inner.note_xattr(Ino(3), b"user.x");
        outer.note_name(Ino(1), b"one");
        outer.take_over(&inner);
        assert_eq!(outer.overlaps(&touched(1)).len(), 1);
        assert_eq!(outer.overlaps(&touched(2)).len(), 1);
        let changed = Touched { xattrs: BTreeSet::from([b"user.x".to_vec()]), ..touched(3) };
        assert_eq!(outer.overlaps(&changed).len(), 1);
        assert_eq!(outer.inodes(), 3);
        let everything = ReadSet { is_everything: true, ..ReadSet::default() };
        outer.take_over(&everything);
        assert_eq!(outer.overlaps(&touched(77)).len(), 1, "more was read than is noted");
    }

    #[test]
    fn too_many_names_are_the_whole_directory() {
        let mut reads = ReadSet::default();
        for number in 0..NAMES_MAX {
            reads.note_name(Ino(1), format!("name-{number}").as_bytes());
        }
        assert!(reads.overlaps(&touched(1)).is_empty());
        reads.note_name(Ino(1), b"one more");
        assert_eq!(reads.overlaps(&touched(1)).len(), 1);
    }
}
