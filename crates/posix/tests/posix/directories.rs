//! Directories: names, listings, link counts.

use crate::{Bench, USER, name};
use marram_vfs::{Error, FileSystem, Ino, Kind, NewNode};
use std::collections::BTreeSet;

/// Lists from a cookie, at most `max` entries.
fn list(bench: &Bench, ino: Ino, after: u64, max: usize) -> Vec<(String, u64)> {
    let mut entries = Vec::new();
    bench
        .files
        .read_directory(ino, after, false, &mut |entry| {
            let text = String::from_utf8(entry.name.to_vec()).unwrap();
            entries.push((text, entry.cookie));
            entries.len() < max
        })
        .unwrap();
    entries
}

#[test]
fn a_listing_goes_on_while_the_directory_changes() {
    let bench = Bench::new();
    let stays: BTreeSet<String> = (0..700).map(|number| format!("stays{number}")).collect();
    for text in &stays {
        bench.file(text);
    }
    let mut seen = Vec::new();
    let mut after = 0;
    for round in 0.. {
        let entries = list(&bench, Ino::ROOT, after, 50);
        let Some((_, cookie)) = entries.last() else {
            break;
        };
        assert!(entries[0].1 > after && entries.is_sorted_by_key(|entry| entry.1));
        assert!(*cookie < 1 << 63);
        after = *cookie;
        seen.extend(entries.into_iter().map(|(text, _)| text));
        bench.file(&format!("new{round}"));
        let gone = name("stays7");
        let _already_gone = bench.files.unlink(Ino::ROOT, gone);
    }
    let found: Vec<_> = seen.iter().filter(|text| stays.contains(*text)).collect();
    let distinct: BTreeSet<_> = found.iter().collect();
    assert_eq!(found.len(), distinct.len(), "nothing twice");
    assert!(distinct.len() >= 699, "nothing missed");
}

#[test]
fn entries_with_attributes_are_pinned_if_they_are_accepted() {
    let bench = Bench::new();
    let (a, b) = (bench.file("a"), bench.file("b"));
    bench.files.forget_all();
    let mut accepted = Vec::new();
    bench
        .files
        .read_directory(Ino::ROOT, 0, true, &mut |entry| {
            assert_eq!(entry.attributes.as_ref().unwrap().ino, entry.ino);
            accepted.push(entry.ino);
            accepted.len() < 2
        })
        .unwrap();
    bench.files.unlink(Ino::ROOT, name("a")).unwrap();
    bench.files.unlink(Ino::ROOT, name("b")).unwrap();
    let alive: Vec<bool> = [a, b].iter().map(|ino| bench.files.attributes(*ino).is_ok()).collect();
    assert_eq!(alive, [accepted[0] == a, accepted[0] == b]);
}

#[test]
fn a_removed_directory_takes_no_names() {
    let bench = Bench::new();
    let d = bench.directory(Ino::ROOT, "d");
    let inner = bench.directory(d, "inner");
    assert_eq!(bench.files.remove_directory(Ino::ROOT, name("d")), Err(Error::NotEmpty));
    assert_eq!(bench.files.unlink(d, name("inner")), Err(Error::IsDirectory));
    bench.files.remove_directory(d, name("inner")).unwrap();
    assert_eq!(bench.attributes(d).links, 2);
    assert_eq!(bench.attributes(inner).links, 0);
    assert_eq!(bench.files.parent(inner), Err(Error::NotFound));
    let node = NewNode::Directory { permissions: 0o755 };
    assert_eq!(bench.files.create(USER, inner, name("x"), node), Err(Error::NotFound));
    assert_eq!(list(&bench, inner, 0, 10), []);
}

#[test]
fn setgid_directories_pass_their_group_on() {
    let bench = Bench::new();
    let node = NewNode::Directory { permissions: 0o2775 };
    let owner = marram_vfs::Caller { uid: 1, gid: 42 };
    let shared = bench.files.create(owner, Ino::ROOT, name("shared"), node).unwrap().ino;
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let file = bench.files.create(USER, shared, name("f"), node).unwrap();
    assert_eq!((file.uid, file.gid, file.permissions), (1000, 42, 0o644));
    let below = bench.attributes(bench.directory(shared, "d"));
    assert_eq!((below.gid, below.permissions), (42, 0o2755));
}

#[test]
fn symlinks_and_nodes_are_what_they_were_made() {
    let bench = Bench::new();
    let long = [b'x'; 4095];
    let node = NewNode::Symlink { target: &long };
    let link = bench.files.create(USER, Ino::ROOT, name("l"), node).unwrap();
    assert_eq!((link.kind, link.size, link.permissions), (Kind::Symlink, 4095, 0o777));
    assert_eq!(bench.files.read_link(link.ino).unwrap(), long);
    let device = NewNode::Node { kind: Kind::BlockDevice, permissions: 0o600, device: 0x801 };
    let node = bench.files.create(USER, Ino::ROOT, name("sda1"), device).unwrap();
    assert_eq!((node.kind, node.device), (Kind::BlockDevice, 0x801));
    let too_long = NewNode::Symlink { target: &[b'x'; 4096] };
    let refused = bench.files.create(USER, Ino::ROOT, name("m"), too_long);
    assert_eq!(refused, Err(Error::NameTooLong));
}
