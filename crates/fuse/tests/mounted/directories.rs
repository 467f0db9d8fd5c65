//! Listings.

use crate::fixture::{Mounted, can_mount, drop_caches, mounted};
use crate::proxy::Proxy;
use rustix::fs::{Dir, Mode, OFlags, open};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;

const ENTRIES: usize = 10_000;

fn fill(directory: &Path) {
    for at in 0..ENTRIES {
        File::create_new(directory.join(format!("entry number {at}"))).unwrap();
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn ten_thousand_entries_are_each_seen_once() {
    let Some(mounted) = mounted() else { return };
    fs::create_dir(mounted.path("d")).unwrap();
    fill(&mounted.path("d"));
    for round in 0..2 {
        let listed = names(&mounted.path("d"));
        assert_eq!(listed.len(), ENTRIES, "round {round}");
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>().len(), ENTRIES);
        drop_caches();
    }
    mounted.end();
}

#[test]
fn entries_can_be_deleted_while_listing() {
    let Some(mounted) = mounted() else { return };
    fs::create_dir(mounted.path("d")).unwrap();
    fill(&mounted.path("d"));
    drop_caches();
    let mut seen = 0;
    for entry in fs::read_dir(mounted.path("d")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        seen += 1;
    }
    assert_eq!(seen, ENTRIES);
    fs::remove_dir(mounted.path("d")).unwrap();
    mounted.end();
}

#[test]
fn listings_tell_inode_and_kind_and_begin_with_the_dots() {
    let Some(mounted) = mounted() else { return };
    fs::create_dir_all(mounted.path("d/sub")).unwrap();
    fs::write(mounted.path("d/file"), b"x").unwrap();
    let open_directory = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        Dir::new(open(mounted.path("d"), flags, Mode::empty()).unwrap()).unwrap()
    };
    let entries: Vec<_> = open_directory().map(Result::unwrap).collect();
    let first: Vec<_> =
        entries.iter().take(2).map(|e| (e.file_name().to_bytes(), e.ino())).collect();
    let ino = |path: &str| fs::metadata(mounted.path(path)).unwrap().ino();
    assert_eq!(first, [(&b"."[..], ino("d")), (&b".."[..], ino("."))]);
    for entry in fs::read_dir(mounted.path("d")).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.ino(), entry.metadata().unwrap().ino());
        assert_eq!(entry.file_type().unwrap().is_dir(), entry.file_name() == "sub");
    }
    mounted.end();
}

#[test]
fn a_listing_goes_on_from_where_it_was() {
    let Some(mounted) = mounted() else { return };
    fs::create_dir(mounted.path("d")).unwrap();
    for at in 0..500 {
        File::create_new(mounted.path(&format!("d/{at}"))).unwrap();
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut listing = Dir::new(open(mounted.path("d"), flags, Mode::empty()).unwrap()).unwrap();
    let mut all = Vec::new();
    while let Some(entry) = listing.read() {
        let entry = entry.unwrap();
        all.push((entry.file_name().to_owned(), entry.offset()));
    }
    for at in [0, 1, 2, 250, 500] {
        listing.seek(all[at].1).unwrap();
        let next = listing.read().unwrap().unwrap();
        assert_eq!(next.file_name(), all[at + 1].0.as_c_str(), "after entry {at}");
    }
    drop(listing);
    mounted.end();
}

#[test]
fn the_kernel_remembers_listings_and_attributes() {
    if !can_mount() {
        return;
    }
    let proxy = Proxy::new();
    let mounted = Mounted::with(proxy.clone(), |_| ());
    fs::create_dir(mounted.path("d")).unwrap();
    for at in 0..100 {
        fs::write(mounted.path(&format!("d/{at}")), b"x").unwrap();
    }
    let walk = || {
        for entry in fs::read_dir(mounted.path("d")).unwrap() {
            entry.unwrap().metadata().unwrap();
        }
    };
    drop_caches();
    walk();
    walk();
    let (lookups, listings) = (proxy.lookups.load(SeqCst), proxy.listings.load(SeqCst));
    walk();
    assert_eq!(proxy.lookups.load(SeqCst), lookups, "names are remembered");
    assert_eq!(proxy.listings.load(SeqCst), listings, "listings are remembered");
    fs::write(mounted.path("d/new"), b"x").unwrap();
    assert_eq!(names(&mounted.path("d")).len(), 101, "until something changes");
    mounted.end();
}

#[test]
fn the_kernel_keeps_content_over_reopening() {
    if !can_mount() {
        return;
    }
    let proxy = Proxy::new();
    let mounted = Mounted::with(proxy.clone(), |_| ());
    fs::write(mounted.path("f"), vec![1; 100_000]).unwrap();
    drop_caches();
    fs::read(mounted.path("f")).unwrap();
    let reads = proxy.reads.load(SeqCst);
    for _ in 0..3 {
        fs::read(mounted.path("f")).unwrap();
    }
    assert_eq!(proxy.reads.load(SeqCst), reads);
    mounted.end();
}
