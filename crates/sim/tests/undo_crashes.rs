//! Power cuts across operations and their undos: whatever state is left, what there is and what the
//! log of operations says belong together, and nothing that was acknowledged is missing.

use marram_check::{CheckOptions, check};
use marram_device::{Device, MemoryDevice};
use marram_pool::{Author, CreateOptions, OpenOptions, Pool, create};
use marram_sim::device::{CrashState, RecordingDevice};
use marram_store::{DatasetName, Properties, Source, Store};
use std::sync::Arc;

const POOL_BYTES: usize = 32 << 20;
/// Torn states that are looked at, besides every prefix of the writes.
const TORN: usize = 60;

fn empty_pool() -> Vec<u8> {
    let memory = Arc::new(MemoryDevice::new(POOL_BYTES));
    let device: Arc<dyn Device> = memory.clone();
    let options = CreateOptions {
        label: "undo".to_owned(),
        properties: Properties::default(),
        pool_id: [9; 16],
        secret: 7,
        now_seconds: 1,
    };
    create(&[device], &options).expect("memory makes a pool");
    memory.snapshot()
}

fn open(device: Arc<dyn Device>) -> Pool {
    let pool = Pool::open(vec![device], OpenOptions::default()).expect("it opens");
    pool.acting_for(Author { user: Some(1), command: "test".to_owned() })
}

/// All that there is, out of sight or not.
fn names(pool: &Pool) -> Vec<String> {
    let (seen, kept) = (pool.list().expect("a list"), pool.list_kept().expect("a list"));
    seen.iter().chain(&kept).map(|report| report.source.to_string()).collect()
}

fn entries(pool: &Pool) -> usize {
    pool.operations().expect("the log is read").len()
}

/// Does each operation, and takes it back; some undos are taken back too.
fn work(pool: &Pool, after_each: &mut dyn FnMut(&Pool)) {
    let (root, source) =
        (DatasetName::root(), |text: &str| -> Source { text.parse().expect("a name") });
    let last = || pool.reversal(None).expect("it can be taken back").0;
    let mut did = |done: marram_store::Result<()>| {
        done.expect("nothing is in the way");
        after_each(pool);
    };
    did(pool.snapshot(&root, "s"));
    did(pool.clone_snapshot(&source("root@s"), &"c".parse().expect("a name")));
    did(pool.destroy_kept(&[source("c")]).map(|_| ()));
    did(pool.undo(last()).map(|_| ()));
    did(pool.rename(&source("c"), &source("d")));
    did(pool.undo(last()).map(|_| ()));
    did(pool.rollback(&source("root@s"), "kept"));
    did(pool.undo(last()).map(|_| ()));
    did(pool.undo(last()).map(|_| ()));
    did(pool.promote(&"c".parse().expect("a name")));
    did(pool.undo(last()).map(|_| ()));
    did(pool.destroy(&source("c"), false).map(|_| ()));
}

#[test]
fn an_operation_and_its_entry_survive_together_or_not_at_all() {
    let device = Arc::new(RecordingDevice::in_memory(empty_pool()));
    let pool = open(device.clone());
    let mut states = vec![names(&pool)];
    device.mark(0);
    work(&pool, &mut |pool| {
        states.push(names(pool));
        assert_eq!(entries(pool), states.len() - 1);
        device.mark(states.len() as u64 - 1);
    });
    drop(pool);
    let trace = device.trace();
    let all: Vec<CrashState> = trace.prefixes().chain(trace.seeded(7, TORN)).collect();
    assert!(all.len() > 100, "{} states", all.len());
    for state in all {
        let memory = Arc::new(MemoryDevice::from_bytes(trace.image(state)));
        let pool = open(memory.clone());
        let count = entries(&pool);
        assert_eq!(names(&pool), states[count], "state {state}");
        let acknowledged = trace.last_mark(state.cut).unwrap_or(0) as usize;
        assert!(count >= acknowledged, "state {state}: {count} of {acknowledged} operations");
        drop(pool);
        let mut wrong = Vec::new();
        check(&*memory, &CheckOptions::default(), &mut |finding| wrong.push(finding.to_string()))
            .expect("the pool is found");
        wrong.retain(|text| {
            !text.contains("[root-missing]") && !text.contains("[counters-missing]")
        });
        assert!(wrong.is_empty(), "state {state}: {wrong:#?}");
    }
}
