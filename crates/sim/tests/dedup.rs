//! Equal content is found and shared, and only the space shows it. That holds in random histories
//! against the model, beside writers, over a damaged copy, between datasets that are destroyed in
//! any order, and whatever a power cut leaves of a batch.

use crate::homes::{SHARED_BYTES, dedup_full_pool_home, dedup_pool_home, run_seeds};
use crate::root_files::{allocated, file, mount, open, read, write};
use crate::small_pool;
use crate::soundness::assert_sound;
use marram_device::{Device, MemoryDevice};
use marram_pool::{ReceiveRequest, SendRequest};
use marram_posix::{
    DedupOptions, DedupReport, Deduplicator, PassPlace, Posix, deduplicate, share_if_equal,
};
use marram_sim::device::{CrashState, RecordingDevice};
use marram_sim::{Random, pattern};
use marram_store::{DatasetName, Properties, Source, Store};
use marram_vfs::{Error, ExtentMap, FileSystem, Ino, Name};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Steps in a history.
const STEPS: usize = 600;
/// Torn states that are looked at, besides every prefix of the writes.
const TORN: usize = 60;
/// Seed of a pattern of noise.
const NOISE: u64 = 2;

fn run(files: &[&Arc<Posix>]) -> DedupReport {
    let place = |files: &&Arc<Posix>| PassPlace { files: Arc::clone(files), directory: Ino::ROOT };
    let places: Vec<PassPlace> = files.iter().map(place).collect();
    deduplicate(&places, DedupOptions::default(), &mut || Some(()))
}

#[test]
fn a_pool_that_shares_equal_content_does_what_the_model_does() {
    let sum = run_seeds(dedup_pool_home, 28..40, STEPS);
    assert!(sum.crashes > 5 && sum.snapshots > 10 && sum.clones > 1, "{sum:?}");
    let shared = SHARED_BYTES.load(Ordering::Relaxed);
    assert!(shared > 100 << 10, "{shared} bytes were shared");
}

#[test]
fn a_full_pool_shares_what_it_can_and_nothing_else_changes() {
    let sum = run_seeds(dedup_full_pool_home, 60..66, STEPS);
    assert!(sum.without_space > 20, "{sum:?}");
}

#[test]
fn datasets_that_share_are_destroyed_in_any_order_and_all_space_comes_back() {
    for seed in 0..12 {
        let memory = Arc::new(MemoryDevice::from_bytes(small_pool::empty("dedup")));
        let mut random = Random::new(seed);
        let pool = open(memory.clone());
        drop(mount(&pool, "root"));
        let empty = allocated(&pool);
        let names = ["a", "b", "c"];
        for name in names {
            pool.create(&name.parse().unwrap(), &Properties::default()).unwrap();
        }
        let content = pattern(NOISE, 1_000_000);
        let mounted: Vec<Arc<Posix>> = names.iter().map(|name| mount(&pool, name)).collect();
        for files in &mounted {
            for text in ["one", "two"] {
                write(files, file(files, text), 0, &content);
            }
        }
        pool.snapshot(&"b".parse().unwrap(), "before").unwrap();
        let before = allocated(&pool);
        let report = run(&mounted.iter().collect::<Vec<_>>());
        assert_eq!((report.shared_bytes, report.skipped), (5_000_000, 0), "{report:?}");
        assert!(allocated(&pool) < before - 2_900_000, "b's own stay with its snapshot");
        assert_eq!(run(&mounted.iter().collect::<Vec<_>>()).equal_bytes, 0);
        for files in &mounted {
            let ino = files.lookup(Ino::ROOT, Name::new(b"two").unwrap()).unwrap().ino;
            assert_eq!(read(files, ino), content);
            write(files, ino, random.below(900_000), b"changed");
        }
        drop(mounted);
        pool.commit().unwrap();
        assert_sound(&*memory, "shared");
        let mut sources = vec!["b@before", "a", "b", "c"];
        while !sources.is_empty() {
            let chosen = sources.remove(random.below(sources.len() as u64) as usize);
            if chosen == "b" {
                sources.retain(|source| *source != "b@before");
            }
            pool.destroy(&chosen.parse().unwrap(), false).unwrap();
            allocated(&pool);
            assert_sound(&*memory, chosen);
        }
        assert_eq!(allocated(&pool), empty, "seed {seed}");
    }
}

#[test]
fn what_is_shared_is_sent_and_received() {
    let memory = Arc::new(MemoryDevice::from_bytes(small_pool::empty("dedup")));
    let pool = open(memory.clone());
    let files = mount(&pool, "root");
    let content = pattern(NOISE, 700_000);
    let inos = ["one", "two"].map(|text| file(&files, text));
    inos.iter().for_each(|ino| write(&files, *ino, 0, &content));
    pool.snapshot(&DatasetName::root(), "apart").unwrap();
    assert_eq!(run(&[&files]).shared_bytes, 700_000);
    pool.snapshot(&DatasetName::root(), "shared").unwrap();
    let mut base = None;
    for snapshot in ["apart", "shared"] {
        let snapshot: Source = format!("root@{snapshot}").parse().unwrap();
        let mut stream = Vec::new();
        let request = SendRequest { snapshot: snapshot.clone(), base, resume: None };
        pool.send(&request, &mut stream, &mut |_| {}).unwrap();
        let request =
            ReceiveRequest { dataset: "copy".parse().unwrap(), force: false, resumable: false };
        let incoming = pool.receive(&request, &mut &stream[..], &mut |_| {}).unwrap();
        incoming.publish().unwrap();
        let received = Source { dataset: "copy".parse().unwrap(), ..snapshot.clone() };
        base = Some(snapshot);
        let copy = mount(&pool, &received.to_string());
        inos.iter().for_each(|ino| assert_eq!(read(&copy, *ino), content));
    }
    pool.commit().unwrap();
    assert_sound(&*memory, "received");
}

#[test]
fn a_copy_that_has_gone_bad_is_found_though_the_cache_has_it_and_the_good_one_stays() {
    let memory = Arc::new(MemoryDevice::from_bytes(small_pool::empty("dedup")));
    let pool = open(memory.clone());
    let files = mount(&pool, "root");
    let content = pattern(NOISE, 100_000);
    let (bad, good) = (file(&files, "bad"), file(&files, "good"));
    write(&files, bad, 0, &content);
    write(&files, good, 0, &content);
    pool.commit().unwrap();
    assert_eq!(read(&files, bad), content, "it is in the cache now");
    let extent = files.extents(bad, 0, 1).unwrap()[0];
    let marram_vfs::ExtentPlace::Stored { address, .. } = extent.place else {
        panic!("{extent:?}");
    };
    memory.write(address + 100, b"not what was there").unwrap();
    let shared = share_if_equal(&files, &files, (bad, 0), (good, 0), 100_000, false).unwrap();
    assert_eq!((shared.shared_bytes, shared.unreadable), (0, 1), "{shared:?}");
    assert!(matches!(shared.reason, Some(Error::Damaged(_))), "{shared:?}");
    drop(files);
    drop(pool);
    let pool = open(memory);
    let files = mount(&pool, "root");
    let report = run(&[&files]);
    assert_eq!((report.shared_bytes, report.skipped), (0, 1), "{report:?}");
    assert_eq!(report.listed[0].path, b"bad");
    assert_eq!(read(&files, good), content);
    let mut out = Vec::new();
    assert!(matches!(files.read(bad, 0, 100_000, &mut out), Err(Error::Damaged(_))));
}

#[test]
fn writers_beside_it_lose_nothing() {
    const FILES: usize = 6;
    const WINDOW: u64 = 4096;
    const WINDOWS: u64 = 24;
    let memory = Arc::new(MemoryDevice::from_bytes(small_pool::empty("dedup")));
    let pool = open(memory.clone());
    let root = DatasetName::root();
    pool.set_property(&root, "recordsize", Some("4K")).unwrap();
    pool.set_property(&root, "dedup", Some("on")).unwrap();
    let files = mount(&pool, "root");
    let inos: Vec<Ino> = (0..FILES).map(|number| file(&files, &format!("f{number}"))).collect();
    let done = AtomicBool::new(false);
    let (shared, contents) = std::thread::scope(|scope| {
        let sharing = scope.spawn(|| {
            let mut deduplicator = Deduplicator::new(16);
            let mut shared = 0;
            loop {
                let is_last = done.load(Ordering::Acquire);
                while deduplicator.step(&files, 5) {}
                let report = run(&[&files]);
                assert!(report.failure.is_none() && report.skipped == 0, "{report:?}");
                shared += report.shared_bytes;
                pool.commit().unwrap();
                if is_last {
                    return shared + deduplicator.totals().shared_bytes;
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
                    let mut content = vec![0; (WINDOW * WINDOWS) as usize];
                    write(files, *ino, 0, &content);
                    for _ in 0..1500 {
                        // Few contents, so that there is much to share; now and then at odd places.
                        let data = pattern(3 * random.below(4) + NOISE, WINDOW as usize);
                        let odd = u64::from(random.below(5) == 0) * 100;
                        let offset = random.below(WINDOWS - 1) * WINDOW + odd;
                        write(files, *ino, offset, &data);
                        content[offset as usize..][..data.len()].copy_from_slice(&data);
                    }
                    content
                })
            })
            .collect();
        let contents: Vec<Vec<u8>> = writers.into_iter().map(|it| it.join().unwrap()).collect();
        done.store(true, Ordering::Release);
        (sharing.join().unwrap(), contents)
    });
    assert!(shared > 0);
    let matches = |files: &Posix| {
        inos.iter()
            .zip(&contents)
            .for_each(|(ino, content)| assert!(read(files, *ino) == *content));
    };
    matches(&files);
    pool.commit().unwrap();
    assert_sound(&*memory, "written beside it");
    drop(files);
    drop(pool);
    let pool = open(memory);
    matches(&mount(&pool, "root"));
}

#[test]
fn a_power_cut_in_a_batch_leaves_the_same_content_and_sound_counts() {
    let memory = Arc::new(MemoryDevice::from_bytes(small_pool::empty("dedup")));
    let pool = open(memory.clone());
    pool.create(&"other".parse().unwrap(), &Properties::default()).unwrap();
    let sources = ["root", "other"];
    let content = pattern(NOISE, 300_000);
    for source in &sources {
        let files = mount(&pool, source);
        for text in ["one", "two"] {
            write(&files, file(&files, text), 0, &content);
        }
    }
    pool.close().unwrap();
    drop(pool);
    let device = Arc::new(RecordingDevice::in_memory(memory.snapshot()));
    let pool = open(device.clone());
    let mounted: Vec<Arc<Posix>> = sources.iter().map(|source| mount(&pool, source)).collect();
    let report = run(&mounted.iter().collect::<Vec<_>>());
    assert_eq!(report.shared_bytes, 900_000);
    let two = mounted[1].lookup(Ino::ROOT, Name::new(b"two").unwrap()).unwrap().ino;
    // Into the intent log, then into the trees.
    mounted[1].sync(two, marram_vfs::SyncScope::All).unwrap();
    pool.commit().unwrap();
    let one = mounted[0].lookup(Ino::ROOT, Name::new(b"one").unwrap()).unwrap().ino;
    mounted[0].unlink(Ino::ROOT, Name::new(b"two").unwrap()).unwrap();
    write(&mounted[0], one, 0, &content[..1]);
    mounted[0].sync(one, marram_vfs::SyncScope::All).unwrap();
    pool.commit().unwrap();
    drop(mounted);
    drop(pool);
    let trace = device.trace();
    let states: Vec<CrashState> = trace.prefixes().chain(trace.seeded(3, TORN)).collect();
    assert!(states.len() > 70, "{} states", states.len());
    for state in states {
        let memory = Arc::new(MemoryDevice::from_bytes(trace.image(state)));
        let pool = open(memory.clone());
        for source in &sources {
            let files = mount(&pool, source);
            for text in [&b"one"[..], b"two"] {
                match files.lookup(Ino::ROOT, Name::new(text).unwrap()) {
                    Ok(found) => assert!(read(&files, found.ino) == content, "state {state}"),
                    Err(error) => assert!(text == b"two", "state {state}: {error}"),
                }
            }
        }
        pool.close().unwrap();
        assert_sound(&*memory, &format!("state {state}"));
    }
}
