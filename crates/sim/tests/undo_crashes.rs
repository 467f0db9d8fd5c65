//! Power cuts across operations and their undos: whatever state is left, what there is and what the
//! log of operations says belong together, and nothing that was acknowledged is missing.

use crate::small_pool;
use marram_check::{CheckOptions, check};
use marram_device::{Device, MemoryDevice};
use marram_pool::{Author, OpenOptions, Pool};
use marram_sim::device::{CrashState, RecordingDevice};
use marram_store::{DatasetName, Lineage, Source, Store};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Torn states that are looked at, besides every prefix of the writes.
const TORN: usize = 60;

fn open(device: Arc<dyn Device>) -> Pool {
    let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).expect("it opens");
    pool.acting_for(Author { user: Some(1), command: "test".to_owned() })
}

/// All that there is, out of sight or not.
fn names(pool: &Pool) -> Vec<String> {
    let (seen, kept) = (pool.list().expect("a list"), pool.list_trash().expect("a list"));
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
    let together =
        |names: &[&str]| names.iter().map(|name| source(name).dataset).collect::<Vec<_>>();
    let mut did = |done: marram_store::Result<()>| {
        done.expect("nothing is in the way");
        after_each(pool);
    };
    did(pool.snapshot(&root, "s"));
    did(pool.clone_snapshot(&source("root@s"), &"c".parse().expect("a name")));
    did(pool.move_to_trash(&[source("c")]).map(|_| ()));
    did(pool.undo(last()).map(|_| ()));
    did(pool.rename(&source("c"), &source("d")));
    did(pool.undo(last()).map(|_| ()));
    did(pool.rollback(&source("root@s"), "kept"));
    did(pool.undo(last()).map(|_| ()));
    did(pool.undo(last()).map(|_| ()));
    did(pool.promote(&"c".parse().expect("a name")));
    did(pool.undo(last()).map(|_| ()));
    // Of many, each as one step.
    did(pool.snapshot_together(&together(&["root", "c"]), "both"));
    did(pool.undo(last()).map(|_| ()));
    did(pool.undo(last() - 1).map(|_| ()));
    did(pool.destroy(&source("c"), false).map(|_| ()));
}

#[test]
fn an_operation_and_its_entry_survive_together_or_not_at_all() {
    let device = Arc::new(RecordingDevice::in_memory(small_pool::empty("undo")));
    let pool = open(device.clone());
    // By the number of entries: no other one is ever seen.
    let mut states = BTreeMap::from([(0, names(&pool))]);
    device.mark(0);
    work(&pool, &mut |pool| {
        let before = states.insert(entries(pool), names(pool));
        assert!(before.is_none(), "each operation is entered");
        device.mark(entries(pool) as u64);
    });
    assert_eq!(states.len(), 16, "each operation is one step");
    drop(pool);
    let trace = device.trace();
    let all: Vec<CrashState> = trace.prefixes().chain(trace.seeded(7, TORN)).collect();
    assert!(all.len() > 100, "{} states", all.len());
    for state in all {
        let memory = Arc::new(MemoryDevice::from_bytes(trace.image(state)));
        let pool = open(memory.clone());
        let count = entries(&pool);
        assert_eq!(Some(&names(&pool)), states.get(&count), "state {state}, {count} entries");
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
