//! What is reported as changed is enough for a cache of pages that drops only what is reported, as
//! the kernel does; and not much more than that.

use super::family::{Family, Tree, open, source};
use super::random::Random;
use marram_history::{
    ChangeSet, ChangedInode, Choice, DirectoryRollback, MergeOptions, change_set as difference,
};
use marram_store::{DatasetName, Store};
use marram_vfs::{Allocate, Copying, Ino, Ranges};
use std::collections::BTreeMap;

const RUNS: u64 = 300;
const PAGE_BYTES: usize = 4096;
const FILES: [&str; 4] = ["/a", "/b", "/d/a", "/d/b"];

/// The content of files by their numbers, as a cache of pages has it.
type Pages = BTreeMap<Ino, Vec<Option<Vec<u8>>>>;

fn contents(tree: &Tree) -> BTreeMap<Ino, Vec<u8>> {
    let files = FILES.into_iter().filter_map(|path| Some((tree.find(path).ok()?.ino, path)));
    files.map(|(ino, path)| (ino, tree.read(path))).collect()
}

fn cached(contents: &BTreeMap<Ino, Vec<u8>>) -> Pages {
    let page = |bytes: &[u8]| {
        let mut page = bytes.to_vec();
        page.resize(PAGE_BYTES, 0);
        Some(page)
    };
    let pages = |content: &Vec<u8>| content.chunks(PAGE_BYTES).map(page).collect();
    contents.iter().map(|(ino, content)| (*ino, pages(content))).collect()
}

fn drop_pages(pages: &mut Pages, change_set: &ChangeSet) {
    for ChangedInode { ino, content } in &change_set.inodes {
        if let Some(pages) = pages.get_mut(ino).filter(|_| !content.is_empty()) {
            let first = content.start / PAGE_BYTES as u64;
            let last = (content.end - 1) / PAGE_BYTES as u64;
            let is_dropped = |index: usize| (first..=last).contains(&(index as u64));
            pages.iter_mut().enumerate().filter(|(at, _)| is_dropped(*at)).for_each(|(_, page)| {
                *page = None;
            });
        }
    }
}

/// What a program reads then: what is not in the cache comes from the file, and what is past its
/// end is cut off.
fn read(pages: &[Option<Vec<u8>>], content: &[u8]) -> Vec<u8> {
    let part = |(index, chunk): (usize, &[u8])| match pages.get(index) {
        Some(Some(page)) => page[..chunk.len()].to_vec(),
        _ => chunk.to_vec(),
    };
    content.chunks(PAGE_BYTES).enumerate().flat_map(part).collect()
}

/// A cache that had all pages before reads what is there; returns how many pages stayed.
fn check(
    before: &BTreeMap<Ino, Vec<u8>>,
    after: &Tree,
    change_set: &ChangeSet,
    told: &str,
) -> usize {
    let mut pages = cached(before);
    drop_pages(&mut pages, change_set);
    for (ino, content) in contents(after) {
        let kept = pages.get(&ino).map_or(&[][..], Vec::as_slice);
        assert!(read(kept, &content) == content, "old content of {ino:?} is read: {told}");
    }
    pages.values().flatten().flatten().count()
}

fn change(random: &mut Random, tree: &Tree) -> String {
    let path = random.pick(&FILES);
    let Ok(found) = tree.find(path) else { return String::new() };
    let offset = random.below(found.size + 10_000);
    let len_max = random.pick(&[10, 5000, 200_000]);
    let len = 1 + random.below(len_max);
    let how = random.below(8);
    match how {
        0 => tree.truncate(path, offset),
        1 => tree.mode(path, 0o600 + u32::try_from(random.below(64)).unwrap()),
        2 => tree.0.allocate(found.ino, Allocate::PunchHole, offset, len).unwrap(),
        3 => tree.0.allocate(found.ino, Allocate::ZeroKeepSize, offset, len).unwrap(),
        4 => {
            let from = tree.find(FILES[0]).unwrap().ino;
            if from != found.ino {
                tree.0.copy_range(from, offset / 2, found.ino, offset, len).unwrap();
            }
        }
        _ => {
            let byte = u8::try_from(random.below(256)).unwrap();
            tree.write(path, offset, &vec![byte; usize::try_from(len).unwrap()]);
        }
    }
    format!("{how} {path} {offset} {len}\n")
}

fn family(random: &mut Random) -> Family {
    Family::new(|tree| {
        tree.directory("/d");
        for path in FILES {
            let len = usize::try_from(random.below(600_000)).unwrap();
            tree.file(path, &vec![b'a' + path.len() as u8; len]);
        }
    })
}

fn changes(random: &mut Random, tree: &Tree) -> String {
    let count = 1 + random.below(4);
    (0..count).map(|_| change(random, tree)).collect()
}

#[test]
fn pages_that_a_merge_does_not_tell_of_stay_right() {
    let mut kept = 0;
    for seed in 0..RUNS {
        let mut random = Random(seed);
        let family = family(&mut random);
        let mut told = format!("seed {seed}\nin the fork:\n{}", changes(&mut random, &family.fork));
        family.store.commit_some(seed % 4);
        if seed % 2 == 0 {
            told += &format!("in the parent:\n{}", changes(&mut random, &family.parent));
        }
        let before = contents(&family.parent);
        let choose = |_: &_| Choice::Theirs;
        let ranges = seed % 3 == 0;
        let options = MergeOptions { choose: &choose, ranges, ..MergeOptions::default() };
        let report = family.merge_with(&options).unwrap();
        kept += check(&before, &family.parent, &report.change_set, &told);
    }
    assert!(kept > 10_000, "only {kept} pages of files of 75 pages stay");
}

#[test]
fn pages_that_a_way_back_does_not_tell_of_stay_right() {
    let mut kept = 0;
    for seed in 0..RUNS {
        let mut random = Random(seed);
        let family = family(&mut random);
        family.store.snapshot(&DatasetName::root(), "past").unwrap();
        let told = format!("seed {seed}\n{}", changes(&mut random, &family.parent));
        family.store.commit_some(seed % 4);
        family.store.snapshot(&DatasetName::root(), "now").unwrap();
        let before = contents(&family.parent);
        let (past, now) = (source("root@past"), source("root@now"));
        let change_set = difference(&family.store, &now, &past).unwrap();
        let was = open(&family.store, "root@past", Ino::ROOT, &family.clock);
        kept += check(&before, &was, &change_set, &told);
        let (dataset, directory) = (DatasetName::root(), family.parent.find("/d").unwrap().ino);
        let rollback = DirectoryRollback { dataset: &dataset, to: &past, directory, keep: None };
        let change_set =
            marram_history::roll_back_directory(&*family.parent.0, &family.store, rollback)
                .unwrap();
        check(&before, &family.parent, &change_set.unwrap_or_default(), &told);
    }
    assert!(kept > 10_000, "only {kept} pages of files of 75 pages stay");
}

#[test]
fn one_page_of_a_large_file_is_told_alone() {
    let family = Family::new(|tree| {
        tree.file("/large", &vec![7; 4 << 20]);
        tree.file("/mode", b"content");
    });
    family.fork.write("/large", 2 << 20, &[8; 4096]);
    family.fork.mode("/mode", 0o600);
    let report = family.merge();
    let of = |path: &str| {
        let ino = family.parent.find(path).unwrap().ino;
        let mut inodes = report.change_set.inodes.iter();
        inodes.find(|inode| inode.ino == ino).unwrap().content.clone()
    };
    let large = of("/large");
    assert!(large.start <= 2 << 20 && large.end >= (2 << 20) + 4096, "{large:?}");
    assert!(large.end - large.start <= 256 << 10, "{large:?}");
    assert_eq!(of("/mode"), ChangedInode::ATTRIBUTES);
}
