//! Scattered content is written anew, and only the space shows it. That holds in random histories
//! against the model, beside writers, over damage, with snapshots, forks and shared blocks, and
//! whatever a power cut leaves of a step.

use crate::homes::{
    REWRITTEN_BYTES, defragmenting_full_pool_home, defragmenting_pool_home, run_seeds,
};
use crate::root_files::{allocated, file, mount, open, read, write};
use crate::small_pool;
use crate::soundness::assert_sound;
use marram_device::{Device, MemoryDevice};
use marram_history::diff;
use marram_pool::Pool;
use marram_posix::{
    DefragmentOptions, DefragmentReport, Defragmenter, Limit, OwnerClass, OwnerId, PassPlace,
    Posix, PosixOptions, defragment,
};
use marram_sim::device::{CrashState, RecordingDevice};
use marram_sim::{Random, pattern};
use marram_store::{DatasetName, Holder, Source, SpaceUsage, Store};
use marram_vfs::{
    Attributes, Caller, Clock, Error, ExtentMap, FileSystem, Ino, InodeFlags, Marked, Name,
    SetAttributes, SetMarks, Sharing, SyncScope, Timestamp,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Steps in a history.
const STEPS: usize = 600;
/// Torn states that are looked at, besides every prefix of the writes.
const TORN: usize = 60;
const ROOT_USER: Caller = Caller { uid: 0, gid: 0 };
const RECORD: u64 = 128 << 10;
const PAGE: u64 = 4096;

fn new_pool() -> (Arc<MemoryDevice>, Arc<Pool>, Arc<Posix>) {
    let memory = Arc::new(MemoryDevice::from_bytes(small_pool::empty("rewriting")));
    let pool = open(memory.clone());
    let files = mount(&pool, "root");
    (memory, pool, files)
}

/// Content that does not compress, and differs for each seed.
fn noise(seed: u64, len: u64) -> Vec<u8> {
    pattern(3 * seed + 2, len as usize)
}

fn run(files: &Arc<Posix>) -> DefragmentReport {
    let place = PassPlace { files: Arc::clone(files), directory: Ino::ROOT };
    let report = defragment(&[place], DefragmentOptions::default(), &mut || Some(()));
    assert!(report.failure.is_none(), "{report:?}");
    report
}

fn look(files: &Arc<Posix>) -> DefragmentReport {
    let place = PassPlace { files: Arc::clone(files), directory: Ino::ROOT };
    defragment(&[place], DefragmentOptions { dry_run: true }, &mut || Some(()))
}

fn holders(pool: &Pool) -> Vec<Holder> {
    pool.commit().unwrap();
    pool.usage(true).unwrap().holders
}

fn sections(files: &Posix, ino: Ino) -> usize {
    files.extents(ino, 0, usize::MAX).unwrap().len()
}

/// A file of whole records, each written and committed, of which every other page has then been
/// written anew in an order that is not theirs.
fn fragmented(pool: &Pool, files: &Posix, name: &str, records: u64) -> (Ino, Vec<u8>) {
    let ino = file(files, name);
    let mut content = noise(records, records * RECORD);
    write(files, ino, 0, &content);
    pool.commit().unwrap();
    let pages = records * RECORD / PAGE;
    for page in (0..pages).rev().filter(|page| page % 2 == 1) {
        let data = noise(page + 1000, PAGE);
        write(files, ino, page * PAGE, &data);
        content[(page * PAGE) as usize..][..data.len()].copy_from_slice(&data);
        if page % 16 == 1 {
            pool.commit().unwrap();
        }
    }
    pool.commit().unwrap();
    (ino, content)
}

#[test]
fn a_pool_that_rewrites_does_what_the_model_does() {
    let sum = run_seeds(defragmenting_pool_home, 400..414, STEPS);
    assert!(sum.crashes > 5 && sum.snapshots > 10 && sum.clones > 1, "{sum:?}");
    let rewritten = REWRITTEN_BYTES.load(Ordering::Relaxed);
    assert!(rewritten > 100 << 10, "{rewritten} bytes were rewritten");
}

#[test]
fn a_full_pool_rewrites_nothing_and_nothing_else_changes() {
    let sum = run_seeds(defragmenting_full_pool_home, 460..464, STEPS);
    assert!(sum.without_space > 10, "{sum:?}");
}

#[test]
fn fragments_become_records_and_all_that_stat_shows_stays() {
    let (memory, pool, files) = new_pool();
    let (ino, content) = fragmented(&pool, &files, "crumbs", 8);
    let flags = Some(InodeFlags::IMMUTABLE);
    files.set_marks(ino, SetMarks { flags, project: None }).unwrap();
    pool.commit().unwrap();
    let before: Attributes = files.attributes(ino).unwrap();
    let owner = OwnerId { class: OwnerClass::User, id: 0 };
    let used = files.owner(owner).unwrap().usage;
    let taken = allocated(&pool);
    let seen = look(&files);
    assert!(seen.extents > 100 && seen.totals.rewritten_bytes == 8 * RECORD, "{seen:?}");
    assert_eq!(sections(&files, ino), 256, "a look changes nothing");

    let report = run(&files);
    assert_eq!(report.totals.rewritten_bytes, 8 * RECORD, "{report:?}");
    assert_eq!((sections(&files, ino), look(&files).extents), (8, 1));
    assert_eq!(files.attributes(ino).unwrap(), before);
    assert_eq!(files.owner(owner).unwrap().usage, used);
    assert!(read(&files, ino) == content);
    assert!(allocated(&pool) + 4 * RECORD <= taken, "half of each old block is given back");
    let again = run(&files);
    assert_eq!((again.totals.rewritten_bytes, again.totals.held_bytes), (0, 0), "{again:?}");
    drop(files);
    pool.close().unwrap();
    drop(pool);
    assert_sound(&*memory, "rewritten");
    let pool = open(memory);
    assert!(read(&mount(&pool, "root"), ino) == content);
}

#[test]
fn a_block_of_which_little_is_used_comes_back() {
    let (memory, pool, files) = new_pool();
    let inos: Vec<Ino> = (0..16).map(|number| file(&files, &format!("f{number}"))).collect();
    for (number, ino) in inos.iter().enumerate() {
        write(&files, *ino, 0, &noise(number as u64, RECORD));
    }
    pool.commit().unwrap();
    let cut = SetAttributes { size: Some(5000), ..SetAttributes::default() };
    for ino in &inos {
        files.set_attributes(ROOT_USER, *ino, &cut).unwrap();
    }
    while files.reclaim_step(1000).unwrap() {}
    let before = allocated(&pool);
    let report = run(&files);
    assert_eq!(report.totals.rewritten_bytes, 16 * 5000, "{report:?}");
    let freed = before - allocated(&pool);
    assert!(freed >= 16 * (RECORD - 3 * PAGE), "{freed} bytes came back");
    for (number, ino) in inos.iter().enumerate() {
        assert!(read(&files, *ino) == noise(number as u64, RECORD)[..5000]);
    }
    assert_sound(&*memory, "cut");
}

#[test]
fn what_snapshots_forks_and_other_files_have_too_is_left_alone() {
    let (memory, pool, files) = new_pool();
    let root = DatasetName::root();
    let (old, _) = fragmented(&pool, &files, "in a snapshot", 2);
    pool.snapshot(&root, "kept").unwrap();
    let (forked, _) = fragmented(&pool, &files, "in a fork", 2);
    pool.fork(&root, &"branch".parse().unwrap(), 1).unwrap();
    let branch = mount(&pool, "branch");
    let (linked, content) = fragmented(&pool, &files, "linked", 2);
    let copy = file(&files, "copy");
    files.share_range(linked, 0, copy, 0, 2 * RECORD).unwrap();
    let before = holders(&pool);
    let cut = [old, forked, linked].map(|ino| sections(&files, ino));

    for files in [&files, &branch] {
        let report = run(files);
        assert_eq!(report.totals.rewritten_bytes, 0, "{report:?}");
        assert!(report.totals.held_bytes >= 4 * RECORD, "{report:?}");
    }
    assert_eq!(holders(&pool), before, "each holder has what it had, to the byte");
    assert_eq!([old, forked, linked].map(|ino| sections(&files, ino)), cut);

    // Once they are gone, what is left is rewritten.
    drop(branch);
    files.unlink(Ino::ROOT, Name::new(b"copy").unwrap()).unwrap();
    files.forget_all();
    while files.reclaim_step(1000).unwrap() {}
    pool.destroy(&"branch".parse().unwrap(), false).unwrap();
    pool.destroy(&"root@kept".parse().unwrap(), false).unwrap();
    allocated(&pool);
    let report = run(&files);
    assert_eq!(report.totals.rewritten_bytes, 6 * RECORD, "{report:?}");
    assert!(read(&files, linked) == content);
    assert_sound(&*memory, "alone at last");
}

#[test]
fn what_a_merge_has_adopted_is_left_alone_as_long_as_the_fork_has_it() {
    let (memory, pool, files) = new_pool();
    let (one, content) = fragmented(&pool, &files, "one", 2);
    pool.create(&"other".parse().unwrap(), &marram_store::Properties::default()).unwrap();
    let other = mount(&pool, "other");
    let copy = file(&other, "copy");
    write(&other, copy, 0, &content);
    pool.commit().unwrap();
    let shared =
        marram_posix::share_if_equal(&other, &files, (one, 0), (copy, 0), 2 * RECORD, false)
            .unwrap();
    assert!(shared.shared_bytes > 0, "{shared:?}");
    let before = holders(&pool);
    for files in [&files, &other] {
        let report = run(files);
        assert_eq!(report.totals.rewritten_bytes, 0, "{report:?}");
    }
    assert_eq!(holders(&pool), before);
    drop(files);
    files_gone(&pool, &other);
    assert_sound(&*memory, "adopted");
}

/// The first owner lets go: the second can have its content rewritten.
fn files_gone(pool: &Arc<Pool>, other: &Arc<Posix>) {
    let files = mount(pool, "root");
    files.unlink(Ino::ROOT, Name::new(b"one").unwrap()).unwrap();
    while files.reclaim_step(1000).unwrap() {}
    allocated(pool);
    let report = run(other);
    assert_eq!(report.totals.rewritten_bytes, 2 * RECORD, "{report:?}");
    pool.commit().unwrap();
}

#[test]
fn a_comparison_with_the_last_snapshot_finds_no_more_than_before() {
    let (_memory, pool, files) = new_pool();
    let root = DatasetName::root();
    let (_, _) = fragmented(&pool, &files, "old", 1);
    pool.snapshot(&root, "base").unwrap();
    fragmented(&pool, &files, "new", 1);
    let paths = |name: &str| {
        pool.snapshot(&root, name).unwrap();
        let mut paths = Vec::new();
        let after: Source = format!("root@{name}").parse().unwrap();
        diff(&*pool, &"root@base".parse().unwrap(), &after, Ino::ROOT, &mut |difference| {
            paths.push(difference.path.clone());
            true
        })
        .unwrap();
        pool.destroy(&after, false).unwrap();
        paths
    };
    let before = paths("before");
    assert_eq!(run(&files).totals.rewritten_bytes, RECORD);
    assert_eq!(paths("after"), before);
}

#[test]
fn a_quota_is_kept_and_limits_of_owners_do_not_matter() {
    let (_memory, pool, files) = new_pool();
    let (ino, content) = fragmented(&pool, &files, "crumbs", 8);
    let root = DatasetName::root();
    let referenced = pool.report(&Source::live(root.clone())).unwrap().referenced_bytes;
    let quota = (referenced + (64 << 10)).to_string();
    pool.set_property(&root, "quota", Some(&quota)).unwrap();
    let owner = OwnerId { class: OwnerClass::Group, id: 7 };
    let group = SetAttributes { gid: Some(7), ..SetAttributes::default() };
    files.set_attributes(ROOT_USER, ino, &group).unwrap();
    files.set_limit(owner, Limit { bytes: 1, inodes: 1 }).unwrap();
    pool.commit().unwrap();
    let report = run(&files);
    assert!(report.is_short_of_space && report.totals.rewritten_bytes == 0, "{report:?}");
    pool.set_property(&root, "quota", None).unwrap();
    let report = run(&files);
    assert_eq!(report.totals.rewritten_bytes, content.len() as u64, "{report:?}");
}

#[test]
fn damage_is_told_and_left_where_it_is() {
    let (memory, pool, files) = new_pool();
    let (ino, content) = fragmented(&pool, &files, "crumbs", 2);
    let extent = files.extents(ino, 0, 1).unwrap()[0];
    let marram_vfs::ExtentPlace::Stored { address, .. } = extent.place else {
        panic!("{extent:?}");
    };
    memory.write(address + 100, b"not what was there").unwrap();
    drop((files, pool));
    let pool = open(memory.clone());
    let files = mount(&pool, "root");
    let report = run(&files);
    assert_eq!((report.totals.unreadable, report.skipped), (1, 1), "{report:?}");
    assert_eq!(report.listed[0].path, b"crumbs");
    assert_eq!(report.totals.rewritten_bytes, RECORD, "the other record");
    let mut out = Vec::new();
    assert!(matches!(files.read(ino, 0, 4096, &mut out), Err(Error::Damaged(_))));
    files.read(ino, PAGE, 4096, &mut out).unwrap();
    files.read(ino, RECORD, RECORD as usize, &mut out).unwrap();
    assert!(out[4096..] == content[RECORD as usize..]);
}

/// A clock that moves when the test moves it.
#[derive(Default)]
struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp { seconds: self.0.load(Ordering::Acquire), nanoseconds: 0 }
    }
}

#[test]
fn the_background_leaves_alone_what_was_just_changed_and_does_the_rest() {
    let memory = Arc::new(MemoryDevice::from_bytes(small_pool::empty("rewriting")));
    let pool = open(memory.clone());
    let clock = Arc::new(SetClock::default());
    let options =
        PosixOptions { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..PosixOptions::default() };
    let view = pool.open(&Source::live(DatasetName::root())).unwrap();
    let files = Arc::new(Posix::new(view, options).unwrap());
    let (cold, content) = fragmented(&pool, &files, "cold", 4);
    clock.0.store(10_000, Ordering::Release);
    let (hot, _) = fragmented(&pool, &files, "hot", 4);
    let mut defragmenter = Defragmenter::new();
    while defragmenter.step(&files).unwrap() {}
    assert_eq!(defragmenter.totals().rewritten_bytes, 4 * RECORD);
    assert_eq!((sections(&files, cold), sections(&files, hot)), (4, 128));
    assert!(read(&files, cold) == content);
    clock.0.store(20_000, Ordering::Release);
    let mut defragmenter = Defragmenter::new();
    while defragmenter.step(&files).unwrap() {}
    assert_eq!(defragmenter.totals().rewritten_bytes, 4 * RECORD);
    assert_eq!((sections(&files, cold), sections(&files, hot)), (4, 4));
    let mut defragmenter = Defragmenter::new();
    while defragmenter.step(&files).unwrap() {}
    assert_eq!(defragmenter.totals().rewritten_bytes, 0, "there is an end to it");
    assert_sound(&*memory, "in the background");
}

#[test]
fn writers_beside_it_lose_nothing() {
    const FILES: usize = 5;
    const PAGES: u64 = 64;
    let (memory, pool, files) = new_pool();
    let inos: Vec<Ino> = (0..FILES).map(|number| file(&files, &format!("f{number}"))).collect();
    let done = AtomicBool::new(false);
    let (rewritten, contents) = std::thread::scope(|scope| {
        let rewriting = scope.spawn(|| {
            let mut rewritten = 0;
            loop {
                let is_last = done.load(Ordering::Acquire);
                pool.commit().unwrap();
                let report = run(&files);
                assert_eq!((report.skipped, report.totals.unreadable), (0, 0), "{report:?}");
                rewritten += report.totals.rewritten_bytes;
                if is_last {
                    return rewritten;
                }
            }
        });
        let writers: Vec<_> = inos
            .iter()
            .enumerate()
            .map(|(number, ino)| {
                let files = &files;
                scope.spawn(move || {
                    let mut random = Random::new(number as u64);
                    let mut content = noise(7, PAGE * PAGES);
                    write(files, *ino, 0, &content);
                    for round in 0..1200 {
                        let data = noise(round, PAGE);
                        let odd = u64::from(random.below(4) == 0) * 700;
                        let offset = random.below(PAGES - 1) * PAGE + odd;
                        write(files, *ino, offset, &data);
                        content[offset as usize..][..data.len()].copy_from_slice(&data);
                        if round % 100 == 0 {
                            assert!(read(files, *ino) == content, "in the middle");
                        }
                    }
                    content
                })
            })
            .collect();
        let contents: Vec<Vec<u8>> = writers.into_iter().map(|it| it.join().unwrap()).collect();
        done.store(true, Ordering::Release);
        (rewriting.join().unwrap(), contents)
    });
    assert!(rewritten > 0);
    let matches = |files: &Posix| {
        let pairs = inos.iter().zip(&contents);
        pairs.for_each(|(ino, content)| assert!(read(files, *ino) == *content));
    };
    matches(&files);
    pool.commit().unwrap();
    assert_sound(&*memory, "written beside it");
    drop((files, pool));
    let pool = open(memory);
    matches(&mount(&pool, "root"));
}

#[test]
fn a_power_cut_in_a_step_leaves_the_same_content_and_all_space_counted() {
    let (memory, pool, files) = new_pool();
    let (ino, content) = fragmented(&pool, &files, "crumbs", 12);
    pool.snapshot(&DatasetName::root(), "kept").unwrap();
    let (late, other) = fragmented(&pool, &files, "late", 40);
    drop(files);
    pool.close().unwrap();
    drop(pool);
    let device = Arc::new(RecordingDevice::in_memory(memory.snapshot()));
    let pool = open(device.clone());
    let files = mount(&pool, "root");
    assert_eq!(run(&files).totals.rewritten_bytes, 40 * RECORD);
    // Into the intent log, over what has just been rewritten; then into the trees.
    write(&files, late, 3, b"late");
    files.sync(late, SyncScope::All).unwrap();
    pool.commit().unwrap();
    drop((files, pool));
    let trace = device.trace();
    let states: Vec<CrashState> = trace.prefixes().chain(trace.seeded(3, TORN)).collect();
    assert!(states.len() > 70, "{} states", states.len());
    for state in states {
        let memory = Arc::new(MemoryDevice::from_bytes(trace.image(state)));
        let pool = open(memory.clone());
        let files = mount(&pool, "root");
        assert!(read(&files, ino) == content, "state {state}");
        let found = read(&files, late);
        assert!(found[7..] == other[7..], "state {state}");
        assert!(found[..7] == other[..7] || found[3..7] == *b"late", "state {state}");
        drop(files);
        pool.close().unwrap();
        assert_sound(&*memory, &format!("state {state}"));
    }
}
