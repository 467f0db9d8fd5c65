//! A reader of images that shares no code with the engine: what an image shows, also if an
//! operation was interrupted. It follows `docs/format-pmem.md`.

use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

const PAGE: usize = 4096;

/// What an inode shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) ino: u64,
    pub(crate) mode: u64,
    pub(crate) links: u64,
    pub(crate) owner: u64,
    pub(crate) size: u64,
    pub(crate) device: u64,
    pub(crate) content: Content,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Seconds and nanoseconds: changed, modified, accessed, created.
    pub(crate) times: [(i64, u64); 4],
}

/// The pages of a file that are there, or the target of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Pages(BTreeMap<u64, Vec<u8>>),
    Target(Vec<u8>),
    Nothing,
}

/// All names, with what they lead to.
pub(crate) type Tree = BTreeMap<Vec<u8>, Seen>;
/// All datasets and snapshots, by their names.
pub(crate) type States = BTreeMap<String, Tree>;

type Read<T> = Result<T, String>;

/// A copy of an image, with what was interrupted finished.
struct Reader {
    bytes: Vec<u8>,
    /// Address of the root pointer of the inode table that is meant.
    root: u64,
}

/// Reads an image.
///
/// # Errors
/// What of it makes no sense.
pub(crate) fn read(image: &[u8]) -> Read<States> {
    let mut reader = Reader { bytes: image.to_vec(), root: 0 };
    if image[..8] != *b"MARRAMPM" {
        return Err("no image".to_owned());
    }
    reader.redo()?;
    reader.intent()?;
    let mut states = States::new();
    for (name, slot) in reader.slots()? {
        reader.root = slot + 8;
        let tree = reader.tree().map_err(|said| format!("{name}: {said}"))?;
        if states.insert(name, tree).is_some() {
            return Err("a dataset or snapshot twice".to_owned());
        }
    }
    Ok(states)
}

/// The times of an inode of a dataset, whether it has a name or not.
pub(crate) fn read_times(image: &[u8], state: &str, ino: u64) -> Option<[(i64, u64); 4]> {
    let mut reader = Reader { bytes: image.to_vec(), root: 0 };
    let (_, slot) = reader.slots().ok()?.into_iter().find(|(name, _)| name == state)?;
    reader.root = slot + 8;
    reader.place(ino).and_then(|at| reader.times(at)).ok()
}

/// Link counts are those of the names.
fn check_links(tree: &Tree) -> Read<()> {
    let mut names: BTreeMap<u64, u64> = BTreeMap::new();
    for (path, seen) in tree {
        *names.entry(seen.ino).or_insert(0) += 1;
        if seen.mode >> 12 == 4 && path != b"/" {
            let end = path[..path.len() - 1].iter().rposition(|byte| *byte == b'/').unwrap();
            let parent = &tree[&path[..=end]];
            if parent.ino != seen.size {
                return Err(format!("directory {} has parent {}", seen.ino, seen.size));
            }
            *names.entry(parent.ino).or_insert(0) += 1;
        }
    }
    for seen in tree.values() {
        let own = if seen.mode >> 12 == 4 { 1 } else { 0 };
        if names[&seen.ino] + own != seen.links {
            return Err(format!("inode {}: {} links", seen.ino, seen.links));
        }
    }
    Ok(())
}

impl Reader {
    /// Names of datasets and snapshots, and where their slots are.
    fn slots(&self) -> Read<Vec<(String, u64)>> {
        let (mut page, mut slots, mut datasets) = (12288, Vec::new(), BTreeMap::new());
        while page != 0 {
            for at in (1..16).map(|which| page + which * 256) {
                let head = self.word(at)?;
                if head & 0xff == 0 {
                    break;
                }
                if head & 0xff == 1 {
                    let name = self.slice(at + 48, head >> 16 & 0xff)?;
                    let name = String::from_utf8(name).map_err(|_| "a name of noise")?;
                    let (number, of) = (self.word(at + 16)?, self.word(at + 24)?);
                    if head >> 8 & 0xff == 0 {
                        datasets.insert(number, name.clone());
                        slots.push((0, name, at));
                    } else {
                        slots.push((of, name, at));
                    }
                }
            }
            page = self.word(page)?;
        }
        let named = |(of, name, at): (u64, String, u64)| match of {
            0 => Ok((name, at)),
            of => {
                let dataset = datasets.get(&of).ok_or("a snapshot of nothing")?;
                Ok((format!("{dataset}@{name}"), at))
            }
        };
        slots.into_iter().map(named).collect()
    }

    /// All that can be reached from a root directory.
    fn tree(&self) -> Read<Tree> {
        let mut tree = Tree::new();
        let mut left = vec![(b"/".to_vec(), 1, 4)];
        while let Some((path, ino, kind)) = left.pop() {
            let seen = self.inode(ino)?;
            if seen.mode >> 12 != kind {
                return Err(format!("inode {ino} is no {kind}"));
            }
            if kind == 4 {
                for (name, ino, kind) in self.entries(ino)? {
                    let below = [&path[..], &name, b"/"].concat();
                    left.push((below, ino, kind));
                }
            }
            if tree.insert(path, seen).is_some() {
                return Err("a name twice".to_owned());
            }
        }
        check_links(&tree)?;
        Ok(tree)
    }

    fn number(&self, at: u64, width: usize) -> Read<u64> {
        let at = usize::try_from(at).map_err(|_| "a wild address".to_owned())?;
        let bytes = self.bytes.get(at..at + width).ok_or_else(|| format!("address {at:#x}"))?;
        Ok(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn word(&self, at: u64) -> Read<u64> {
        self.number(at, 8)
    }

    fn put(&mut self, at: u64, width: usize, value: u64) -> Read<()> {
        let at = usize::try_from(at).map_err(|_| "a wild address".to_owned())?;
        let bytes = self.bytes.get_mut(at..at + width).ok_or_else(|| format!("put {at:#x}"))?;
        bytes.copy_from_slice(&value.to_le_bytes()[..width]);
        Ok(())
    }

    fn redo(&mut self) -> Read<()> {
        if self.bytes[PAGE] == 0 {
            return Ok(());
        }
        let mut at = PAGE as u64 + 8;
        let end = at + self.number(PAGE as u64 + 2, 2)? * 8;
        let checksum = xxh3_64(&self.slice(at, end - at)?) & 0xffff_ffff;
        if checksum != self.number(PAGE as u64 + 4, 4)? {
            return Err("the redo record does not match its checksum".to_owned());
        }
        while at < end {
            let head = self.word(at)?;
            let (address, count) = (head & 0xffff_ffff_ffff, head >> 48);
            for which in 0..count {
                at += 8;
                let value = self.word(at)?;
                self.put(address + which * 8, 8, value)?;
            }
            at += 8;
        }
        Ok(())
    }

    fn intent(&mut self) -> Read<()> {
        let word = self.word(576)?;
        if word & 0xff == 0 {
            return Ok(());
        }
        let entry = self.word(word >> 24 << 3)?;
        let is_there = entry & 0xff != 0 && entry >> 20 & 0xf == 1;
        if is_there != (word & 0xff == 1) {
            return Ok(());
        }
        self.root = self.word(584)? + 8;
        let mut at = self.place(entry >> 24)?;
        if entry >> 16 & 0xf == 4 {
            at = self.place(self.word(at + 16)?)?;
        }
        self.put(at + 4, 4, word >> 8 & 0xffff)
    }

    /// The page of a tree at a place, 0 if there is none.
    fn page(&self, root: u64, place: u64) -> Read<u64> {
        let (mut at, height) = (root & !0xfff, root & 7);
        if place >> (9 * height) != 0 {
            return Ok(0);
        }
        for level in (0..height).rev() {
            if at != 0 {
                at = self.word(at + (place >> (9 * level) & 511) * 8)?;
            }
        }
        Ok(at)
    }

    /// The pages of a tree that count.
    fn pages(&self, root: u64, count: u64) -> Read<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        self.pages_below((root & !0xfff, root & 7), 0, count, &mut found)?;
        Ok(found)
    }

    fn pages_below(
        &self,
        (at, height): (u64, u64),
        first: u64,
        count: u64,
        found: &mut Vec<(u64, u64)>,
    ) -> Read<()> {
        if at == 0 || first >= count {
            return Ok(());
        }
        if !at.is_multiple_of(PAGE as u64) || at < 4 * PAGE as u64 {
            return Err(format!("a pointer to {at:#x}"));
        }
        if height == 0 {
            found.push((first, at));
            return Ok(());
        }
        for slot in 0..512 {
            let below = first + (slot << (9 * (height - 1)));
            if below < count {
                self.pages_below((self.word(at + slot * 8)?, height - 1), below, count, found)?;
            }
        }
        Ok(())
    }

    fn place(&self, ino: u64) -> Read<u64> {
        match self.page(self.word(self.root)?, ino / 32)? {
            0 => Err(format!("inode {ino} has no place")),
            page => Ok(page + ino % 32 * 128),
        }
    }

    fn slice(&self, at: u64, len: u64) -> Read<Vec<u8>> {
        let at = usize::try_from(at).map_err(|_| "a wild address".to_owned())?;
        let found = self.bytes.get(at..at + len as usize);
        found.map(<[u8]>::to_vec).ok_or_else(|| format!("bytes at {at:#x}"))
    }

    fn inode(&self, ino: u64) -> Read<Seen> {
        let at = self.place(ino)?;
        let mode = self.number(at, 2)?;
        let flags = self.number(at + 2, 2)?;
        let size = self.word(at + 16)?;
        let root = self.word(at + 24)?;
        let content = match mode >> 12 {
            8 => Content::Pages(self.content(root, size)?),
            10 if flags & 2 != 0 => Content::Target(self.slice(at + 96, size)?),
            10 => Content::Target(self.slice(root & !0xfff, size)?),
            _ => Content::Nothing,
        };
        let device = matches!(mode >> 12, 2 | 6);
        Ok(Seen {
            ino,
            mode,
            links: self.number(at + 4, 4)?,
            owner: self.word(at + 8)?,
            size,
            device: if device { self.number(at + 88, 4)? } else { 0 },
            content,
            xattrs: if flags & 1 == 0 { BTreeMap::new() } else { self.xattrs(at)? },
            times: self.times(at)?,
        })
    }

    fn content(&self, root: u64, size: u64) -> Read<BTreeMap<u64, Vec<u8>>> {
        let pages = self.pages(root, size.div_ceil(PAGE as u64))?;
        let shown = |(place, at): (u64, u64)| {
            let len = (size - place * PAGE as u64).min(PAGE as u64);
            Ok((place, self.slice(at, len)?))
        };
        pages.into_iter().map(shown).collect()
    }

    fn xattrs(&self, inode: u64) -> Read<BTreeMap<Vec<u8>, Vec<u8>>> {
        let root = self.word(inode + 64)?;
        let len = self.word(self.page(root, 0)?)? as usize;
        let mut bytes = Vec::new();
        for (_, at) in self.pages(root, ((len + 8).div_ceil(PAGE)) as u64)? {
            bytes.extend(self.slice(at, PAGE as u64)?);
        }
        let all = bytes.get(8..8 + len).ok_or("short attributes")?;
        let (mut rest, mut xattrs) = (all, BTreeMap::new());
        while rest.len() >= 8 {
            let number = |at: usize| {
                rest[at..at + 4].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
            };
            let (name, value) = (number(0), number(4));
            let pair = rest.get(8..8 + name + value).ok_or("a long attribute")?;
            xattrs.insert(pair[..name].to_vec(), pair[name..].to_vec());
            rest = &rest[8 + name + value..];
        }
        Ok(xattrs)
    }

    fn times(&self, inode: u64) -> Read<[(i64, u64); 4]> {
        let mut times = [(0, 0); 4];
        for (which, time) in (0..).zip(&mut times) {
            let word = self.word(inode + 32 + which * 8)?;
            let high = if word >> 63 == 1 { self.number(inode + 72 + which * 4, 4)? } else { 0 };
            let seconds = word & 0xffff | (word >> 46 & 0xffff) << 16 | high << 32;
            let nanoseconds = (word >> 16 & 0xffff) << 14 | word >> 32 & 0x3fff;
            *time = (seconds as i64, nanoseconds);
        }
        let is_set = self.word(inode + 40)? >> 62 & 1 == 1;
        if !is_set {
            times[0] = times[0].max(times[1]);
        }
        Ok(times)
    }

    /// Names, inodes and kinds.
    fn entries(&self, ino: u64) -> Read<Vec<(Vec<u8>, u64, u64)>> {
        let root = self.word(self.place(ino)? + 24)?;
        let mut entries = Vec::new();
        for (_, page) in self.pages(root, u64::MAX)? {
            let mut at = page;
            while at < page + PAGE as u64 {
                let word = self.word(at)?;
                let units = word & 0xff;
                if units == 0 {
                    break;
                }
                if word >> 20 & 0xf == 1 {
                    let name = self.slice(at + 8, word >> 8 & 0xff)?;
                    entries.push((name, word >> 24, word >> 16 & 0xf));
                }
                at += units * 8;
            }
        }
        Ok(entries)
    }
}
