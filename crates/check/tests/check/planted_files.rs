//! One thing wrong with a file system for each test: exactly that is found.

use crate::base::base;
use crate::tamper::Items;
use bytes::Bytes;
use marram_check::FindingKind as Kind;
use marram_format::key::{Key, kind};
use marram_format::pointer::{Pointer, PointerFlags};
use marram_format::record::{
    Counters, Entry, Inode, InodeCount, InodeKind, Limit, NameRule, OrphanReason, OwnerClass,
    OwnerId, Section, Usage, XattrRecord, name_offset, state,
};

/// Tampers with the root dataset, and expects exactly these kinds of findings.
#[track_caller]
fn expect(expected: &[Kind], edit: impl FnOnce(&mut Items)) {
    let mut image = base().image();
    image.edit_root(edit);
    image.assert_found(expected);
}

fn inode_key(ino: u64) -> Key {
    Key::new(ino, kind::INODE, 0)
}

fn edit_inode(items: &mut Items, ino: u64, edit: impl FnOnce(&mut Inode)) {
    let item = items.get_mut(&inode_key(ino)).unwrap();
    let mut inode = Inode::decode(&item.0).unwrap();
    edit(&mut inode);
    item.0 = Bytes::copy_from_slice(&inode.encode());
}

fn put(items: &mut Items, key: Key, value: impl AsRef<[u8]>) {
    items.insert(key, (Bytes::copy_from_slice(value.as_ref()), None));
}

fn seed(items: &Items) -> u64 {
    Counters::decode(&items[&Key::new(0, kind::COUNTERS, 0)].0).unwrap().name_seed
}

/// Key and value of an entry.
fn find_entry(items: &Items, directory: u64, name: &str) -> (Key, Bytes) {
    let (from, to) = (Key::new(directory, kind::ENTRY, 0), Key::new(directory, kind::XATTR, 0));
    let mut entries = items.range(from..to);
    let found = entries.find(|(_, item)| Entry::decode(&item.0).unwrap().name == name.as_bytes());
    found.map(|(key, item)| (*key, item.0.clone())).unwrap()
}

fn put_entry(items: &mut Items, directory: u64, name: &[u8], ino: u64, inode_kind: InodeKind) {
    let offset = name_offset(seed(items), name);
    let entry = Entry { ino, kind: inode_kind, name };
    put(items, Key::new(directory, kind::ENTRY, offset), entry.encode());
}

/// The sections of a file.
fn sections(items: &Items, ino: u64) -> Vec<Key> {
    let range = Key::new(ino, kind::SECTION, 0)..Key::new(ino, kind::ORPHAN, 0);
    items.range(range).map(|(key, _)| *key).collect()
}

fn edit_pointer(items: &mut Items, key: Key, edit: impl FnOnce(&mut Pointer)) {
    let item = items.get_mut(&key).unwrap();
    let mut pointer = Pointer::decode(item.1.as_ref().unwrap()).unwrap();
    edit(&mut pointer);
    item.1 = Some(pointer.encode());
}

fn edit_section(items: &mut Items, key: Key, edit: impl FnOnce(&mut Section)) {
    let item = items.get_mut(&key).unwrap();
    let mut section = Section::decode(&item.0, 0, None)
        .or_else(|_| Section::decode(&item.0, 0, Some(1 << 24)))
        .unwrap();
    edit(&mut section);
    item.0 = Bytes::copy_from_slice(&section.encode());
}

fn references_key(items: &Items) -> Key {
    let range = Key::new(0, kind::REFERENCES, 0)..Key::new(1, 0, 0);
    *items.range(range).next().unwrap().0
}

#[test]
fn a_missing_root_directory() {
    expect(&[Kind::RootMissing, Kind::InodeMissing, Kind::InodeCount, Kind::OwnerUsage], |items| {
        items.remove(&inode_key(1));
    });
}

#[test]
fn missing_counters() {
    expect(&[Kind::CountersMissing], |items| {
        items.remove(&Key::new(0, kind::COUNTERS, 0));
    });
}

#[test]
fn a_wrong_number_of_inodes() {
    expect(&[Kind::InodeCount], |items| {
        put(items, Key::new(0, kind::COUNTERS, 1000), InodeCount(-3).encode());
    });
}

#[test]
fn a_wrong_sum_of_what_an_owner_uses() {
    let owner = OwnerId { class: OwnerClass::User, id: 1 };
    let key = Key::new(0, kind::USAGE, owner.to_offset());
    expect(&[Kind::OwnerUsage], |items| {
        let usage = Usage::decode(&items[&key].0).unwrap();
        put(items, key, Usage { bytes: usage.bytes + 4096, ..usage }.encode());
    });
    expect(&[Kind::OwnerUsage], |items| drop(items.remove(&key)));
    let nobody = OwnerId { class: OwnerClass::Project, id: 77 };
    expect(&[Kind::OwnerUsage], |items| {
        let key = Key::new(0, kind::USAGE, nobody.to_offset());
        put(items, key, Usage { bytes: 0, inodes: 1 }.encode());
    });
}

#[test]
fn an_inode_number_that_comes_again() {
    expect(&[Kind::InodeNumber], |items| {
        let counters =
            Counters { next_inode: base().plain, name_seed: seed(items), names: NameRule::Exact };
        put(items, Key::new(0, kind::COUNTERS, 0), counters.encode());
    });
}

#[test]
fn items_without_an_inode_and_a_name_that_leads_to_it() {
    let base = base();
    let lost = [Kind::InodeMissing, Kind::EntryDangling, Kind::InodeCount, Kind::OwnerUsage];
    expect(&lost, |items| {
        items.remove(&inode_key(base.plain));
    });
}

#[test]
fn a_name_that_leads_nowhere() {
    expect(&[Kind::EntryDangling], |items| {
        put_entry(items, 1, b"nowhere", 999, InodeKind::Regular);
        edit_inode(items, 1, |inode| inode.size += 1);
    });
}

#[test]
fn an_inode_that_has_no_name_and_does_not_wait_to_be_freed() {
    let base = base();
    let lose_name = |items: &mut Items, links: u32| {
        let (key, _) = find_entry(items, 1, "plain");
        items.remove(&key);
        edit_inode(items, 1, |inode| inode.size -= 1);
        edit_inode(items, base.plain, |inode| inode.links = links);
    };
    expect(&[Kind::InodeUnreachable], |items| lose_name(items, 0));
    expect(&[Kind::LinkCount], |items| lose_name(items, 1));
    expect(&[], |items| {
        lose_name(items, 0);
        put(items, Key::new(0, kind::ORPHAN, base.plain), OrphanReason::Nameless.encode());
    });
}

#[test]
fn items_that_a_kind_of_inode_cannot_have() {
    let base = base();
    expect(&[Kind::ItemForeign], |items| {
        put(items, Key::new(base.plain, kind::TARGET, 0), b"target");
    });
    expect(&[Kind::ItemForeign, Kind::LinkCount], |items| {
        put_entry(items, base.plain, b"child", base.small, InodeKind::Regular);
    });
    expect(&[Kind::ItemForeign, Kind::FileUsage], |items| {
        let section = Section { len_bytes: 5, block_start: 0 };
        put(items, Key::new(base.link, kind::SECTION, 0), section.encode());
    });
}

#[test]
fn a_wrong_number_of_links() {
    let base = base();
    expect(&[Kind::LinkCount], |items| edit_inode(items, base.small, |inode| inode.links = 2));
    expect(&[Kind::LinkCount], |items| edit_inode(items, 1, |inode| inode.links = 2));
}

#[test]
fn a_name_with_another_kind_than_its_inode() {
    let base = base();
    expect(&[Kind::EntryKind], |items| {
        let (key, _) = find_entry(items, 1, "plain");
        let entry = Entry { ino: base.plain, kind: InodeKind::Fifo, name: b"plain" };
        put(items, key, entry.encode());
    });
}

#[test]
fn names_that_no_entry_can_have() {
    for name in [&b"a/b"[..], b"..", b"nul\0"] {
        expect(&[Kind::EntryName], |items| {
            put_entry(items, 1, name, base().small, InodeKind::Regular);
            edit_inode(items, 1, |inode| inode.size += 1);
            edit_inode(items, base().small, |inode| inode.links += 1);
        });
    }
}

#[test]
fn a_name_where_nobody_looks_for_it() {
    expect(&[Kind::NamePlace], |items| {
        let (key, value) = find_entry(items, 1, "plain");
        items.remove(&key);
        put(items, Key { offset: key.offset ^ 1 << 20, ..key }, value);
    });
    expect(&[Kind::NamePlace], |items| {
        let record = XattrRecord { name: b"user.other", value: b"" };
        put(items, Key::new(1, kind::XATTR, 77), record.encode());
    });
}

#[test]
fn a_name_that_is_there_twice() {
    expect(&[Kind::NameDuplicate], |items| {
        let (key, value) = find_entry(items, 1, "plain");
        put(items, Key { offset: key.offset + 3, ..key }, value);
        edit_inode(items, 1, |inode| inode.size += 1);
        edit_inode(items, base().plain, |inode| inode.links += 1);
    });
}

#[test]
fn names_that_fold_where_they_lie_exactly() {
    let fold = |items: &mut Items| {
        let counters = Counters::decode(&items[&Key::new(0, kind::COUNTERS, 0)].0).unwrap();
        let folded = Counters { names: NameRule::Folded, ..counters };
        put(items, Key::new(0, kind::COUNTERS, 0), folded.encode());
    };
    expect(&[], fold);
    expect(&[Kind::NameDuplicate], |items| {
        fold(items);
        let (key, value) = find_entry(items, 1, "plain");
        let plain = Entry::decode(&value).unwrap();
        let other = Entry { name: b"PLAIN", ..plain };
        put(items, Key { offset: key.offset + 1, ..key }, other.encode());
        edit_inode(items, 1, |inode| inode.size += 1);
        edit_inode(items, base().plain, |inode| inode.links += 1);
    });
    expect(&[Kind::NamePlace], |items| {
        fold(items);
        put_entry(items, 1, b"Other", base().plain, InodeKind::Regular);
        edit_inode(items, 1, |inode| inode.size += 1);
        edit_inode(items, base().plain, |inode| inode.links += 1);
    });
}

#[test]
fn a_directory_that_does_not_know_its_parent() {
    let base = base();
    expect(&[Kind::DirectoryParent], |items| {
        edit_inode(items, base.nested, |inode| inode.parent = 1);
    });
    expect(&[Kind::DirectoryParent], |items| {
        put_entry(items, 1, b"again", base.nested, InodeKind::Directory);
        edit_inode(items, 1, |inode| (inode.size, inode.links) = (inode.size + 1, inode.links + 1));
        edit_inode(items, base.nested, |inode| inode.parent = 1);
    });
}

#[test]
fn a_wrong_number_of_entries() {
    expect(&[Kind::DirectorySize], |items| {
        edit_inode(items, base().directory, |inode| inode.size += 1);
    });
}

#[test]
fn a_directory_below_itself() {
    let base = base();
    expect(&[Kind::DirectoryLoop], |items| {
        let (key, value) = find_entry(items, 1, "directory");
        items.remove(&key);
        edit_inode(items, 1, |inode| (inode.size, inode.links) = (inode.size - 1, inode.links - 1));
        put(items, Key { object: base.nested, ..key }, value);
        edit_inode(items, base.nested, |inode| {
            (inode.size, inode.links) = (inode.size + 1, inode.links + 1);
        });
        edit_inode(items, base.directory, |inode| inode.parent = base.nested);
    });
}

#[test]
fn sections_that_overlap() {
    let base = base();
    expect(&[Kind::SectionOverlap, Kind::FileUsage], |items| {
        let first = sections(items, base.large)[0];
        edit_section(items, first, |section| section.len_bytes += 1);
    });
}

#[test]
fn content_past_the_size() {
    expect(&[Kind::SectionPastSize], |items| {
        edit_inode(items, base().plain, |inode| inode.size = 10_000);
    });
    expect(&[], |items| {
        edit_inode(items, base().plain, |inode| {
            (inode.size, inode.state) = (10_000, state::TAIL);
        });
        put(items, Key::new(0, kind::ORPHAN, base().plain), OrphanReason::Tail.encode());
    });
}

#[test]
fn a_wrong_number_of_bytes_in_use() {
    expect(&[Kind::FileUsage], |items| {
        edit_inode(items, base().plain, |inode| inode.data_bytes += 1);
    });
    expect(&[Kind::FileUsage, Kind::OwnerUsage], |items| {
        edit_inode(items, base().directory, |inode| inode.reserved_bytes += 1);
    });
}

#[test]
fn a_symbolic_link_without_its_target() {
    let base = base();
    expect(&[Kind::SymlinkTarget], |items| {
        items.remove(&Key::new(base.link, kind::TARGET, 0));
    });
    expect(&[Kind::SymlinkTarget], |items| {
        edit_inode(items, base.link, |inode| inode.size -= 1);
    });
}

#[test]
fn file_capabilities_that_are_hidden_or_missing() {
    let base = base();
    expect(&[Kind::CapabilityFlag], |items| {
        edit_inode(items, base.small, |inode| inode.state = 0);
    });
    expect(&[Kind::CapabilityFlag], |items| {
        edit_inode(items, base.plain, |inode| inode.state = state::CAPABILITY);
    });
    expect(&[Kind::CapabilityFlag], |items| {
        edit_inode(items, base.plain, |inode| inode.state = state::NFS4_LIST);
    });
}

#[test]
fn orphan_items_that_do_not_fit_their_inodes() {
    let base = base();
    let orphan = |items: &mut Items, ino: u64, reason: OrphanReason| {
        put(items, Key::new(0, kind::ORPHAN, ino), reason.encode());
    };
    expect(&[Kind::OrphanRecord], |items| orphan(items, base.plain, OrphanReason::Nameless));
    expect(&[Kind::OrphanRecord], |items| orphan(items, base.plain, OrphanReason::Tail));
    expect(&[Kind::OrphanRecord], |items| orphan(items, 999, OrphanReason::Nameless));
    expect(&[Kind::OrphanRecord], |items| {
        edit_inode(items, base.plain, |inode| inode.state = state::TAIL);
    });
}

#[test]
fn a_wrong_count_of_references() {
    for delta in [-1_i64, 1] {
        expect(&[Kind::ReferencesCount], |items| {
            let key = references_key(items);
            let item = items.get_mut(&key).unwrap();
            let mut record = marram_format::space::ReferenceRecord::decode(&item.0).unwrap();
            record.count = record.count.checked_add_signed(delta).unwrap();
            item.0 = record.encode();
        });
    }
}

#[test]
fn a_shared_block_that_is_not_counted() {
    let expected = [Kind::ReferencesFlag, Kind::SpaceLeak, Kind::DatasetGrains];
    expect(&expected, |items| {
        let key = references_key(items);
        items.remove(&key);
    });
}

#[test]
fn a_shared_block_that_looks_unshared() {
    let expected = [Kind::ReferencesFlag, Kind::SpaceDouble, Kind::DatasetGrains];
    expect(&expected, |items| {
        let key = sections(items, base().large)[0];
        edit_pointer(items, key, |pointer| pointer.flags = PointerFlags::default());
    });
}

#[test]
fn a_block_that_two_items_refer_to_as_their_own() {
    expect(&[Kind::SpaceDouble, Kind::FileUsage, Kind::DatasetGrains], |items| {
        let item = items[&Key::new(base().plain, kind::SECTION, 0)].clone();
        items.insert(Key::new(base().plain, kind::SECTION, 50_000), item);
        edit_inode(items, base().plain, |inode| inode.size = 100_000);
    });
}

#[test]
fn values_that_cannot_be_decoded() {
    let base = base();
    let keys = [
        Key::new(0, kind::COUNTERS, 1000),
        Key::new(0, kind::ORPHAN, 1),
        Key::new(0, kind::USAGE, 1),
        Key::new(0, kind::LIMIT, 1),
        Key::new(base.plain, kind::XATTR, 1),
        Key::new(base.directory, kind::ENTRY, 1),
    ];
    for key in keys {
        expect(&[Kind::ItemMalformed], |items| put(items, key, b""));
    }
    expect(&[Kind::ItemMalformed], |items| put(items, inode_key(base.plain), b"inode"));
    expect(&[Kind::ItemMalformed, Kind::FileUsage], |items| {
        let key = Key::new(base.plain, kind::SECTION, 0);
        edit_section(items, key, |section| section.len_bytes += 1);
    });
}

#[test]
fn items_where_none_can_be() {
    let base = base();
    let keys = [
        Key::new(0, kind::SECTION, 0),
        Key::new(0, kind::COUNTERS, 2000),
        Key::new(0, kind::USAGE, 3 << 32),
        Key::new(0, kind::LIMIT, 0),
        Key::new(base.plain, kind::USAGE, 1),
        Key::new(base.plain, kind::ORPHAN, 0),
        Key::new(base.plain, kind::REFERENCES, 0),
        Key::new(base.link, kind::TARGET, 1),
    ];
    for key in keys {
        let limit = Limit::NONE.encode();
        let value = if key.kind == kind::LIMIT { &limit[..] } else { b"target" };
        expect(&[Kind::ItemMisplaced], |items| put(items, key, value));
    }
}

#[test]
fn items_of_no_known_kind() {
    for object in [0, 1] {
        expect(&[Kind::ItemUnknown], |items| put(items, Key::new(object, 99, 0), b""));
    }
}

#[test]
fn blocks_where_none_belong() {
    let base = base();
    let plain = Key::new(base.plain, kind::SECTION, 0);
    expect(&[Kind::ItemBlock], |items| {
        let section = items.get_mut(&plain).unwrap();
        let pointer = section.1.take();
        items.get_mut(&inode_key(base.plain)).unwrap().1 = pointer;
        edit_inode(items, base.plain, |inode| {
            (inode.data_bytes, inode.reserved_bytes) = (0, inode.data_bytes);
        });
    });
    expect(
        &[Kind::ItemBlock, Kind::ReferencesFlag, Kind::SpaceLeak, Kind::DatasetGrains],
        |items| {
            let key = references_key(items);
            items.get_mut(&key).unwrap().1 = None;
        },
    );
}

#[test]
fn pointers_with_flags_that_do_not_fit() {
    expect(&[Kind::PointerFlags], |items| {
        let key = Key::new(base().plain, kind::SECTION, 0);
        edit_pointer(items, key, |pointer| pointer.flags = PointerFlags::METADATA);
    });
}

#[test]
fn pointers_that_cannot_be_decoded() {
    let expected = [Kind::PointerMalformed, Kind::Unchecked];
    expect(&expected, |items| {
        let key = Key::new(base().plain, kind::SECTION, 0);
        items.get_mut(&key).unwrap().1 = Some(Bytes::from_static(b"no pointer"));
    });
}

#[test]
fn a_path_tells_where_it_is() {
    let mut image = base().image();
    image.edit_root(|items| edit_inode(items, base().small, |inode| inode.links = 7));
    let findings = image.assert_found(&[Kind::LinkCount]);
    let place = &findings[0].place;
    assert_eq!(place.path.as_deref(), Some(&b"/directory/nested/small"[..]));
    assert_eq!((place.dataset.as_deref(), place.object), (Some("root"), Some(base().small)));
    let text = findings[0].to_string();
    assert!(text.starts_with("error[link-count]: "), "{text}");
}
