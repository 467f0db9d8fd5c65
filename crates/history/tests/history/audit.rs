//! Whether the items of a dataset fit together: what no user sees at once, and all would in time.

use super::family::{Family, source};
use marram_format::record::{Counters, Entry, Inode, InodeKind, OwnerClass, OwnerId, Section};
use marram_store::{Key, Store, View, kind};
use marram_vfs::FileSystem;
use std::collections::BTreeMap;

#[derive(Default)]
struct Sums {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<u64, u32>,
    entries: BTreeMap<u64, u64>,
    subdirectories: BTreeMap<u64, u32>,
    data_bytes: BTreeMap<u64, u64>,
    reserved_bytes: BTreeMap<u64, u64>,
    next_inode: u64,
}

impl Family {
    /// Checks links, sizes, sums, counts and the places of names of the parent.
    pub(crate) fn check_usage(&self) {
        let view = self.store.open(&source("root")).unwrap();
        let sums = sums(&*view);
        let mut users: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
        for (ino, inode) in &sums.inodes {
            check_inode(*ino, inode, &sums, &*view);
            let used = (inode.data_bytes + inode.reserved_bytes).div_ceil(4096) * 4096;
            let user = users.entry(inode.uid).or_default();
            *user = (user.0 + used.cast_signed(), user.1 + 1);
        }
        let used = self.parent.0.space().unwrap().inodes_used;
        assert_eq!(used, sums.inodes.len() as u64, "inodes");
        for (id, (bytes, inodes)) in users {
            let owner = OwnerId { class: OwnerClass::User, id };
            let usage = self.parent.0.owner(owner).unwrap().usage;
            assert_eq!((usage.bytes, usage.inodes), (bytes, inodes), "user {id}");
        }
    }
}

fn check_inode(ino: u64, inode: &Inode, sums: &Sums, view: &dyn View) {
    let of = |map: &BTreeMap<u64, u64>| map.get(&ino).copied().unwrap_or(0);
    assert!(ino < sums.next_inode, "inode {ino} is past the counter");
    assert_eq!(inode.data_bytes, of(&sums.data_bytes), "data of {ino}");
    assert_eq!(inode.reserved_bytes, of(&sums.reserved_bytes), "reserved of {ino}");
    let names = sums.names.get(&ino).copied().unwrap_or(0);
    if inode.kind == InodeKind::Directory {
        assert_eq!(inode.size, of(&sums.entries), "entries of {ino}");
        let subdirectories = sums.subdirectories.get(&ino).copied().unwrap_or(0);
        assert_eq!(inode.links, 2 + subdirectories, "links of directory {ino}");
        assert_eq!(names, u32::from(ino != 1), "names of directory {ino}");
    } else {
        assert_eq!(inode.links, names, "links of {ino}");
    }
    if inode.kind == InodeKind::Directory && ino != 1 {
        let key = Key::new(inode.parent, kind::ENTRY, inode.name_place);
        let item = view.get(key).unwrap().expect("a directory's place of its name");
        assert_eq!(Entry::decode(&item.value).unwrap().ino, ino);
    }
}

fn sums(view: &dyn View) -> Sums {
    let mut sums = Sums::default();
    view.scan(Key::MIN, Key::MAX, &mut |key, item| {
        match key.kind {
            kind::INODE => {
                sums.inodes.insert(key.object, Inode::decode(&item.value).unwrap());
            }
            kind::ENTRY => {
                let entry = Entry::decode(&item.value).unwrap();
                *sums.names.entry(entry.ino).or_default() += 1;
                *sums.entries.entry(key.object).or_default() += 1;
                if entry.kind == InodeKind::Directory {
                    *sums.subdirectories.entry(key.object).or_default() += 1;
                }
            }
            kind::SECTION => {
                let block = item.block.as_ref().map(|block| block.len() as u64);
                let section = Section::decode(&item.value, key.offset, block).unwrap();
                let map = match block {
                    Some(_) => &mut sums.data_bytes,
                    None => &mut sums.reserved_bytes,
                };
                *map.entry(key.object).or_default() += section.len_bytes;
            }
            kind::COUNTERS if key.offset == 0 => {
                sums.next_inode = Counters::decode(&item.value).unwrap().next_inode;
            }
            _ => (),
        }
        true
    })
    .unwrap();
    sums
}
