//! A study of the patches of four workloads: how many there are, what is kept to take them back,
//! and what the graph takes of memory, with each way to have fewer of them.
//!
//! `patches [--quick]`
//!
//! Prints a line a run, with tabs between its parts: the workload, the way, whether what can be
//! written is known, bytes of a unit, changes, hard patches, soft patches, bytes kept, most memory
//! of the graph, memory of changed blocks at that moment, patches taken back, flushes, bytes
//! written, bytes written twice, seconds. All but the seconds are the same in every run.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

#[path = "../../tests/images/mod.rs"]
#[allow(dead_code, reason = "tests of crashes use the rest")]
mod images;
mod workloads;

use images::{Shape, make};
use marram_device::MemoryDevice;
use marram_ext2::{AccessTimes, Consistency, Counters, Ext2, Ext2Options, Merging, Study};
use marram_vfs::{FileSystem, SteppedClock};
use std::sync::Arc;
use std::time::Instant;
use workloads::{Running, WORKLOADS, Workload};

/// Bytes of a block, and of the image.
const BLOCK_BYTES: u32 = 4096;
const IMAGE_KIB: u32 = 3 << 20;
const QUICK_IMAGE_KIB: u32 = 512 << 10;

fn study(merging: Merging) -> Study {
    Study { merging, ..Study::default() }
}

/// The ways that are compared: each with both units, then without lists of what can be written.
fn studies() -> Vec<(&'static str, Study)> {
    let ways = [
        ("none", Merging::None),
        ("hard", Merging::Hard),
        ("overlap", Merging::Overlap),
        ("both", Merging::Both),
        ("ours", Merging::Owned),
    ];
    let of = |has_whole_blocks| {
        ways.map(|(name, merging)| (name, Study { has_whole_blocks, ..study(merging) }))
    };
    let mut all = [of(false), of(true)].concat();
    let unlisted = |merging| Study { has_ready_lists: false, ..study(merging) };
    all.extend([("none", unlisted(Merging::None)), ("ours", unlisted(Merging::Owned))]);
    all
}

/// What a run has done, and how long it took.
fn run(workload: &Workload, study: Study, image: &[u8], divisor: u64) -> (Counters, Counters, f64) {
    let options = Ext2Options {
        clock: Arc::new(SteppedClock::default()),
        access_times: AccessTimes::Never,
        consistency: Some(Consistency::SoftUpdates),
        study,
        ..Ext2Options::default()
    };
    let device = Arc::new(MemoryDevice::from_bytes(image.to_vec()));
    let files = Ext2::open(device, options).unwrap();
    let mut running = Running::new(&files);
    (workload.prepare)(&mut running, divisor);
    files.sync_all().unwrap();
    let mut running = Running::new(&files);
    let (before, began) = (files.counters(), Instant::now());
    (workload.act)(&mut running, divisor);
    let peak = running.peak();
    files.sync_all().unwrap();
    let (seconds, after) = (began.elapsed().as_secs_f64(), files.counters());
    (since(before, after), peak, seconds)
}

/// What was done between two moments.
fn since(before: Counters, after: Counters) -> Counters {
    Counters {
        hard: after.hard - before.hard,
        soft: after.soft - before.soft,
        into_hard: after.into_hard - before.into_hard,
        into_overlapped: after.into_overlapped - before.into_overlapped,
        into_near: after.into_near - before.into_near,
        kept_bytes: after.kept_bytes - before.kept_bytes,
        rollbacks: after.rollbacks - before.rollbacks,
        flushes: after.flushes - before.flushes,
        written_bytes: after.written_bytes - before.written_bytes,
        twice_bytes: after.twice_bytes - before.twice_bytes,
        ..after
    }
}

fn main() {
    let is_quick = std::env::args().any(|word| word == "--quick");
    let (divisor, kib) = if is_quick { (20, QUICK_IMAGE_KIB) } else { (1, IMAGE_KIB) };
    let image = make(Shape { kind: "ext2", block_bytes: BLOCK_BYTES, inode_bytes: 256, kib });
    for workload in &WORKLOADS {
        for (way, study) in studies() {
            let (done, peak, seconds) = run(workload, study, &image, divisor);
            let unit_bytes = if study.has_whole_blocks { BLOCK_BYTES } else { 512 };
            let figures = [
                done.patches() + done.joined(),
                done.hard,
                done.soft,
                done.kept_bytes,
                peak.graph_bytes,
                peak.dirty_bytes,
                done.rollbacks,
                done.flushes,
                done.written_bytes,
                done.twice_bytes,
            ];
            let figures = figures.map(|figure| figure.to_string()).join("\t");
            let is_listed = study.has_ready_lists;
            println!(
                "{}\t{way}\t{is_listed}\t{unit_bytes}\t{figures}\t{seconds:.3}",
                workload.name
            );
        }
    }
}
