//! A pool that is full, on a real mount.

use crate::workbench::{Workbench, can_mount};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long freeing may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Writes what does not compress until there is no space; how much that was.
fn fill(path: &Path) -> u64 {
    let mut file = File::create(path).expect("an empty file fits");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = vec![0; 1 << 20];
    loop {
        for word in block.chunks_exact_mut(8) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            word.copy_from_slice(&(state ^ (state >> 29)).to_le_bytes());
        }
        if let Err(error) = file.write_all(&block) {
            assert_eq!(error.kind(), ErrorKind::StorageFull);
            return file.metadata().expect("it is open").len();
        }
    }
}

/// The same when `wanted` bytes are free: space comes back in the background, once the kernel has
/// let go of what was removed.
fn fill_when_free(path: &Path, wanted: u64) -> u64 {
    let began = Instant::now();
    loop {
        let filled = fill(path);
        if filled > wanted || began.elapsed() > PATIENCE {
            return filled;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_pool_that_one_file_fills_is_empty_when_that_is_removed() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    bench.make_folder("mnt");
    bench.run("mount work.pool mnt").good();
    let file = bench.path("mnt/file");
    let first = fill(&file);
    for _ in 0..2 {
        fs::remove_file(&file).expect("removing works on a full pool");
        let again = fill_when_free(&file, first - first / 20);
        assert!(again > first - first / 20, "{again} of {first} bytes fit the second time");
    }
    // Not all of its blocks go, and a part of one.
    File::options().write(true).open(&file).expect("it is there").set_len(100_000).expect("cut");
    assert!(fill_when_free(&bench.path("mnt/other"), first / 2) > first / 2);
    bench.run("unmount mnt").good();
    bench.run("check work.pool").good();
}

#[test]
fn what_was_removed_goes_back_to_the_host_by_fstrim() {
    if !can_mount() || !["/usr/sbin/fstrim", "/sbin/fstrim"].iter().any(|at| Path::new(at).exists())
    {
        eprintln!("skipped: fstrim is needed");
        return;
    }
    let bench = Workbench::with_pool();
    bench.make_folder("mnt");
    bench.run("mount work.pool mnt").good();
    let filled = fill(&bench.path("mnt/file"));
    bench.run("sync mnt").good();
    let held = || fs::metadata(bench.path("work.pool")).expect("it is there").blocks() * 512;
    let before = held();
    assert!(before > filled);
    fs::remove_file(bench.path("mnt/file")).expect("removing works on a full pool");
    // The kernel lets go of the file some time later.
    let began = Instant::now();
    while held() > before - filled / 2 {
        assert!(began.elapsed() < PATIENCE, "{} of {before} bytes are held", held());
        bench.host(&["fstrim", "mnt"]).good();
    }
    fs::write(bench.path("mnt/kept"), "kept").expect("there is space");
    bench.run("unmount mnt").good();
    bench.run("check work.pool").good();
}

#[test]
fn a_dataset_that_does_not_fit_is_not_made() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    bench.make_folder("mnt");
    bench.run("mount work.pool mnt").good();
    fill(&bench.path("mnt/file"));
    let fits = |number: &u32| fs::write(bench.path(&format!("mnt/{number}")), [7; 5000]).is_ok();
    let small = (0..10_000).take_while(fits).count();
    let refused = (0..1000).find(|number| {
        let made = bench.run(&format!("create mnt --dataset d{number}"));
        if made.status != 0 {
            made.refused(1, &["no space"]);
            return true;
        }
        false
    });
    let refused = refused.unwrap_or_else(|| panic!("after {small} small files all fit"));
    let list = bench.run("list mnt -H").good().out;
    assert!(!list.contains(&format!("d{refused}\t")), "{list}");
    bench.run("unmount mnt").good();
    bench.run("check work.pool").good();
}
