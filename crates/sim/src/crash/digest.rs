//! One number for everything that a file system holds.

use crate::execute::read_directory;
use marram_vfs::{Attributes, Error, FileSystem, Ino, Kind, SeekTarget, Timestamp};
use std::collections::HashMap;
use xxhash_rust::xxh3::Xxh3;

/// Equal for equal content, and for no other: collisions of 128 bits are not reckoned with.
pub type Digest = u128;

/// Most bytes read at once.
const READ_BYTES_MAX: u64 = 1 << 20;

/// The digest of all that can be reached from the root: names, kinds, sizes, content, holes,
/// links, owners, permissions, times, extended attributes. Inode numbers do not enter it.
///
/// # Errors
/// Says what cannot be read, and at which path.
pub fn tree_digest(files: &dyn FileSystem) -> Result<Digest, String> {
    let mut walk = Walk { files, hash: Xxh3::new(), numbers: HashMap::new() };
    let mut left = vec![(Ino::ROOT, String::new())];
    while let Some((ino, path)) = left.pop() {
        if walk.meet(ino) {
            walk.inode(ino, &path, &mut left).map_err(|reason| format!("{path}/: {reason}"))?;
        }
    }
    Ok(walk.hash.digest128())
}

struct Walk<'a> {
    files: &'a dyn FileSystem,
    hash: Xxh3,
    /// The order in which inodes were met stands for their numbers.
    numbers: HashMap<Ino, u64>,
}

impl Walk<'_> {
    /// Notes an inode; returns whether it is new.
    fn meet(&mut self, ino: Ino) -> bool {
        let next = self.numbers.len() as u64;
        let number = *self.numbers.entry(ino).or_insert(next);
        self.number(number);
        number == next
    }

    fn number(&mut self, number: u64) {
        self.hash.update(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.hash.update(bytes);
    }

    fn time(&mut self, time: Timestamp) {
        self.hash.update(&time.seconds.to_le_bytes());
        self.number(u64::from(time.nanoseconds));
    }

    fn inode(&mut self, ino: Ino, path: &str, left: &mut Vec<(Ino, String)>) -> Result<(), String> {
        let attributes = self.files.attributes(ino).map_err(text)?;
        self.attributes(&attributes);
        self.xattrs(ino).map_err(text)?;
        match attributes.kind {
            Kind::Regular => self.content(ino).map_err(text),
            Kind::Symlink => {
                let target = self.files.read_link(ino).map_err(text)?;
                self.bytes(&target);
                Ok(())
            }
            Kind::Directory => {
                let entries = read_directory(self.files, ino, false, usize::MAX).map_err(text)?;
                self.number(entries.len() as u64);
                for entry in &entries {
                    self.bytes(&entry.name);
                    self.number(u64::from(entry.kind.mode_bits()));
                }
                for entry in entries.into_iter().rev() {
                    let name = String::from_utf8_lossy(&entry.name);
                    left.push((entry.ino, format!("{path}/{name}")));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn attributes(&mut self, attributes: &Attributes) {
        let is_directory = attributes.kind == Kind::Directory;
        for number in [
            attributes.kind.mode_bits() | attributes.permissions,
            attributes.links,
            attributes.uid,
            attributes.gid,
            attributes.device,
        ] {
            self.number(u64::from(number));
        }
        self.number(if is_directory { 0 } else { attributes.size });
        self.time(attributes.accessed);
        self.time(attributes.modified);
        self.time(attributes.changed);
        self.time(attributes.created);
    }

    fn xattrs(&mut self, ino: Ino) -> marram_vfs::Result<()> {
        let mut names = self.files.list_xattrs(ino)?;
        names.sort();
        self.number(names.len() as u64);
        for name in names {
            self.bytes(&name);
            let value = self.files.xattr(ino, &name)?;
            self.bytes(&value);
        }
        Ok(())
    }

    /// Every stretch of data with its place and bytes.
    fn content(&mut self, ino: Ino) -> marram_vfs::Result<()> {
        let mut offset = 0;
        loop {
            let start = match self.files.seek(ino, offset, SeekTarget::Data) {
                Err(Error::NoSuchOffset) => return Ok(()),
                found => found?,
            };
            let end = self.files.seek(ino, start, SeekTarget::Hole)?;
            self.number(start);
            self.number(end);
            offset = start;
            while offset < end {
                let len = (end - offset).min(READ_BYTES_MAX);
                let mut bytes = Vec::new();
                self.files.read(ino, offset, len as usize, &mut bytes)?;
                self.hash.update(&bytes);
                offset += len;
            }
        }
    }
}

fn text(error: Error) -> String {
    format!("{error:?}")
}

#[cfg(test)]
mod tests {
    use super::tree_digest;
    use crate::HistoryClock;
    use marram_model::Model;
    use marram_vfs::{Caller, FileSystem, Ino, Kind, Name, NewNode, WriteOptions};
    use std::sync::Arc;

    #[test]
    fn every_difference_changes_it() {
        let clock = Arc::new(HistoryClock::default());
        let model = Model::new(clock.clone());
        let nobody = Caller { uid: 0, gid: 0 };
        let name = |text: &'static str| Name::new(text.as_bytes()).unwrap();
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o600, device: 0 };
        let mut seen = vec![tree_digest(&model).unwrap()];
        let ino = model.create(nobody, Ino::ROOT, name("a"), node).unwrap().ino;
        seen.push(tree_digest(&model).unwrap());
        model.write(ino, 5, b"bytes", WriteOptions::default()).unwrap();
        seen.push(tree_digest(&model).unwrap());
        model.write(ino, 0, &[0; 5], WriteOptions::default()).unwrap();
        seen.push(tree_digest(&model).unwrap());
        model.link(ino, Ino::ROOT, name("b")).unwrap();
        seen.push(tree_digest(&model).unwrap());
        clock.set(9);
        model.set_xattr(ino, b"user.a", b"", marram_vfs::XattrMode::Any).unwrap();
        seen.push(tree_digest(&model).unwrap());
        assert_eq!(tree_digest(&model.snapshot()).unwrap(), seen[5], "a copy is equal");
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
