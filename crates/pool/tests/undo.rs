//! The log of operations, and taking operations back: each kind, what stands in the way, what is
//! kept for how long, and that a crash leaves an operation with its entry or neither.

use crate::support::{
    acting, content, create_on, name, names, new_pool, noise, open, put, root, section, source,
    trash_names, view,
};
use bytes::Bytes;
use marram_device::{Device, MemoryDevice};
use marram_format::operation::{OPERATIONS_KEPT_MAX, OperationKind as Kind};
use marram_format::record::{Limit, OwnerClass, OwnerId};
use marram_pool::{OpenOptions, Operation, Pool, ReceiveRequest, Reversal, SendRequest};
use marram_store::{
    Batch, Block, DatasetName, EphemeralSnapshots, Error, Holds, Item, Key, Lineage, MergedFrom,
    OperationLog, Properties, Source, Store, View, kind,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

pub(crate) fn last(pool: &Pool) -> Operation {
    pool.operations().unwrap().pop().unwrap()
}

/// Takes the last operation back, and returns the number of the entry that says so.
fn undo_last(pool: &Pool) -> u64 {
    let (number, _) = pool.reversal(None).unwrap();
    let undone = pool.undo(number).unwrap();
    let entry = last(pool);
    assert_eq!((entry.number, entry.record.undoes), (undone, number));
    undone
}

fn refused(pool: &Pool, number: u64, words: &str) {
    let group = pool.status().group;
    let reason = pool.undo(number).unwrap_err().to_string();
    assert!(reason.contains(words), "{reason:?} does not say {words:?}");
    let told = pool.operations().unwrap().into_iter().find(|entry| entry.number == number);
    assert!(told.is_none_or(|entry| entry.obstacle.is_some()));
    assert_eq!(pool.status().group, group, "a refusal changes nothing");
}

/// What a crash leaves now is what there is.
fn checked(pool: &Pool, memory: &MemoryDevice) {
    pool.commit().unwrap();
    let again: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(memory.snapshot()));
    let again = open(&again);
    assert_eq!((names(&again), trash_names(&again)), (names(pool), trash_names(pool)));
    let entries = |pool: &Pool| -> Vec<_> {
        pool.operations().unwrap().into_iter().map(|entry| (entry.number, entry.record)).collect()
    };
    assert_eq!(entries(&again), entries(pool));
    while again.reclaim_step().unwrap() {}
}

/// A pool with a file, for somebody.
fn pool_with_a_file() -> (Arc<MemoryDevice>, Pool) {
    let (memory, pool) = new_pool(64, &[]);
    put(&*root(&pool), section(1, 0), noise(1, 5_000)).unwrap();
    (memory, acting(&pool))
}

#[test]
fn who_did_what_is_told_and_what_the_engine_does_for_itself_is_not() {
    let (memory, pool) = pool_with_a_file();
    pool.snapshot(&DatasetName::root(), "s").unwrap();
    pool.snapshot(&DatasetName::root(), "diff:1").unwrap();
    pool.destroy(&source("root@diff:1"), false).unwrap();
    pool.clone_snapshot(&source("root@s"), &name("c")).unwrap();
    pool.set_property(&name("c"), "compression", Some("zstd:3")).unwrap();
    let told: Vec<_> = pool
        .operations()
        .unwrap()
        .into_iter()
        .map(|entry| (entry.number, entry.record.kind, entry.record.texts))
        .collect();
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        told,
        [
            (1, Kind::Snapshot, texts(&["root@s"])),
            (2, Kind::Clone, texts(&["c", "root@s"])),
            (3, Kind::Set, texts(&["c", "compression", "", "zstd:3"])),
        ]
    );
    let entry = last(&pool).record;
    assert_eq!((entry.user, entry.command.as_str()), (1000, "marram test"));
    let again = open(&(memory as Arc<dyn Device>));
    assert_eq!(again.operations().unwrap().len(), 3);
}

#[test]
fn simple_operations_are_taken_back_and_done_again() {
    let (memory, pool) = pool_with_a_file();
    pool.snapshot(&DatasetName::root(), "s").unwrap();
    undo_last(&pool);
    assert_eq!(names(&pool), ["root"]);
    undo_last(&pool);
    assert_eq!(names(&pool), ["root", "root@s"]);

    pool.rename(&source("root@s"), &source("root@t")).unwrap();
    undo_last(&pool);
    assert_eq!(names(&pool), ["root", "root@s"]);

    pool.hold(&source("root@s"), "tag").unwrap();
    undo_last(&pool);
    assert!(pool.list().unwrap()[1].holds.is_empty());
    undo_last(&pool);
    assert_eq!(pool.list().unwrap()[1].holds, ["tag"]);
    pool.release(&source("root@s"), "tag").unwrap();

    pool.set_property(&DatasetName::root(), "compression", Some("off")).unwrap();
    undo_last(&pool);
    assert_eq!(pool.properties(&DatasetName::root()).unwrap()["compression"].0, "lz4");
    undo_last(&pool);
    assert_eq!(pool.properties(&DatasetName::root()).unwrap()["compression"].0, "off");

    pool.create(&name("d"), &Properties::default()).unwrap();
    put(&*view(&pool, "d"), section(1, 0), noise(2, 5_000)).unwrap();
    pool.snapshot(&name("d"), "inner").unwrap();
    pool.rename(&source("d"), &source("e")).unwrap();
    undo_last(&pool);
    let number = pool.move_to_trash(&[source("d")]).map(|_| last(&pool).number).unwrap();
    assert_eq!(names(&pool), ["root", "root@s"]);
    assert_eq!(trash_names(&pool), [format!("undo:{number}"), format!("undo:{number}@inner")]);
    checked(&pool, &memory);
    undo_last(&pool);
    assert_eq!(names(&pool), ["d", "d@inner", "root", "root@s"]);
    assert_eq!(content(&*view(&pool, "d"), section(1, 0)), Some(noise(2, 5_000)));
    assert!(trash_names(&pool).is_empty());
    checked(&pool, &memory);
}

#[test]
fn rollbacks_and_promotions_are_taken_back() {
    let (memory, pool) = pool_with_a_file();
    let (live, file) = (root(&pool), section(1, 0));
    pool.snapshot(&DatasetName::root(), "s").unwrap();
    put(&*live, file, noise(2, 5_000)).unwrap();
    pool.rollback(&source("root@s"), "kept").unwrap();
    assert_eq!(content(&*live, file), Some(noise(1, 5_000)));
    put(&*live, section(9, 0), noise(9, 5_000)).unwrap();
    undo_last(&pool);
    assert_eq!(content(&*live, file), Some(noise(2, 5_000)));
    assert_eq!(content(&*live, section(9, 0)), None);
    undo_last(&pool);
    assert_eq!(content(&*live, file), Some(noise(1, 5_000)));
    assert_eq!(content(&*live, section(9, 0)), Some(noise(9, 5_000)));

    pool.clone_snapshot(&source("root@s"), &name("c")).unwrap();
    pool.promote(&name("c")).unwrap();
    assert!(names(&pool).contains(&"c@s".to_owned()));
    undo_last(&pool);
    assert!(names(&pool).contains(&"root@s".to_owned()));
    checked(&pool, &memory);
    undo_last(&pool);
    assert!(names(&pool).contains(&"c@s".to_owned()));
    checked(&pool, &memory);
}

#[test]
fn what_is_in_the_way_is_said_and_nothing_changes() {
    let (_memory, pool) = pool_with_a_file();
    let live = root(&pool);
    pool.snapshot(&DatasetName::root(), "s").unwrap(); // 1
    pool.rename(&source("root@s"), &source("root@t")).unwrap(); // 2
    pool.snapshot(&DatasetName::root(), "s").unwrap(); // 3
    refused(&pool, 2, "there is another root@s now");
    pool.rename(&source("root@t"), &source("root@u")).unwrap(); // 4
    refused(&pool, 2, "it has the name root@u since");
    refused(&pool, 77, "no operation 77");

    put(&*live, section(1, 0), noise(2, 5_000)).unwrap();
    pool.rollback(&source("root@s"), "kept").unwrap(); // 5
    pool.rollback(&source("root@u"), "kept2").unwrap(); // 6
    refused(&pool, 5, "operation 6, a rollback, came after it");
    pool.move_to_trash(&[source("root@kept2")]).unwrap(); // 7
    refused(&pool, 6, "was destroyed since");
    pool.undo(7).unwrap(); // 8
    refused(&pool, 7, "it was taken back by operation 8");
    pool.undo(6).unwrap(); // 9

    pool.clone_snapshot(&source("root@s"), &name("c")).unwrap(); // 10
    let open = view(&pool, "c");
    assert!(pool.undo(10).unwrap_err().to_string().contains("it is mounted"));
    drop(open);
    refused(&pool, 3, "began as it");
    pool.set_property(&DatasetName::root(), "undo", Some("off")).unwrap(); // 11
    pool.snapshot(&DatasetName::root(), "last").unwrap(); // 12
    refused(&pool, 12, "the property undo is off");
    pool.move_to_trash(&[source("root@last")]).unwrap(); // 13
    refused(&pool, 13, "gone for good");
    pool.set_property(&DatasetName::root(), "compression", Some("off")).unwrap(); // 14
    pool.set_property(&DatasetName::root(), "compression", Some("zstd:1")).unwrap(); // 15
    refused(&pool, 14, "was set to zstd:1 since");
}

/// Undoing a destruction changes the entry of that destruction too, which is not the last one.
#[test]
fn a_destruction_that_is_taken_back_late_leaves_the_entries_after_it() {
    let (memory, pool) = pool_with_a_file();
    pool.snapshot(&DatasetName::root(), "s").unwrap(); // 1
    pool.move_to_trash(&[source("root@s")]).unwrap(); // 2
    pool.snapshot(&DatasetName::root(), "t").unwrap(); // 3
    pool.move_to_trash(&[source("root@t")]).unwrap(); // 4
    pool.snapshot(&DatasetName::root(), "u").unwrap(); // 5
    assert_eq!(pool.undo(2).unwrap(), 6);
    assert_eq!(pool.undo(4).unwrap(), 7);
    let kinds: Vec<_> =
        pool.operations().unwrap().iter().map(|entry| (entry.number, entry.record.kind)).collect();
    let [made, gone, back] = [Kind::Snapshot, Kind::Destroy, Kind::Restore];
    let expected = [(1, made), (2, gone), (3, made), (4, gone), (5, made), (6, back), (7, back)];
    assert_eq!(kinds, expected);
    assert_eq!(names(&pool), ["root", "root@s", "root@t", "root@u"]);
    checked(&pool, &memory);
}

#[test]
fn what_began_as_something_destroyed_waits_for_it() {
    let (memory, pool) = pool_with_a_file();
    pool.snapshot(&DatasetName::root(), "s").unwrap();
    pool.clone_snapshot(&source("root@s"), &name("c")).unwrap();
    pool.move_to_trash(&[source("c")]).unwrap();
    let clone = last(&pool).number;
    pool.move_to_trash(&[source("root@s")]).unwrap();
    let snapshot = last(&pool).number;
    assert_eq!(names(&pool), ["root"]);
    refused(&pool, clone, &format!("take operation {snapshot} back first"));
    pool.undo(snapshot).unwrap();
    pool.undo(clone).unwrap();
    assert_eq!(names(&pool), ["c", "root", "root@s"]);
    // What is kept is in nobody's way.
    pool.move_to_trash(&[source("c")]).unwrap();
    pool.destroy(&source("root@s"), false).unwrap();
    while pool.reclaim_step().unwrap() {}
    assert!(trash_names(&pool).is_empty());
    checked(&pool, &memory);
}

#[test]
fn the_log_is_bounded_and_lets_go_of_what_its_oldest_entry_kept() {
    let (memory, pool) = pool_with_a_file();
    pool.create(&name("d"), &Properties::default()).unwrap();
    pool.move_to_trash(&[source("d")]).unwrap();
    pool.snapshot(&DatasetName::root(), "s").unwrap();
    for _ in 0..OPERATIONS_KEPT_MAX / 2 {
        pool.hold(&source("root@s"), "tag").unwrap();
        pool.release(&source("root@s"), "tag").unwrap();
    }
    let entries = pool.operations().unwrap();
    assert_eq!(entries.len() as u64, OPERATIONS_KEPT_MAX);
    assert!(entries.is_sorted_by(|a, b| a.number + 1 == b.number));
    assert!(trash_names(&pool).is_empty());
    checked(&pool, &memory);
}

#[test]
fn a_full_log_makes_no_commits_of_its_own_for_most_operations() {
    let (memory, pool) = pool_with_a_file();
    let kept = source("root@s");
    let commits_of = |operations: u64| {
        let before = pool.status().group;
        for _ in 0..operations / 2 {
            pool.snapshot(&DatasetName::root(), "s").unwrap();
            pool.move_to_trash(std::slice::from_ref(&kept)).unwrap();
        }
        pool.status().group - before
    };
    let usual = commits_of(100);
    commits_of(OPERATIONS_KEPT_MAX);
    let full = commits_of(100);
    assert!(full <= usual + usual / 8, "{full} in place of {usual}");
    checked(&pool, &memory);
}

#[test]
fn what_is_kept_is_let_go_when_its_time_is_over() {
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    create_on(&memory, &[]);
    let now = Arc::new(AtomicI64::new(1_000));
    let clock = now.clone();
    let options = OpenOptions::new(move || clock.load(Ordering::Relaxed));
    let pool = acting(&Pool::open(vec![memory.clone()], options).unwrap());
    pool.create(&name("a"), &Properties([("undo".into(), "2h".into())].into())).unwrap();
    pool.create(&name("b"), &Properties::default()).unwrap();
    let hidden = pool.move_to_trash(&[source("a")]).unwrap();
    assert_eq!(hidden.kept_until_seconds, Some(1_000 + 7_200));
    let first = last(&pool).number;
    pool.move_to_trash(&[source("b")]).unwrap();
    while pool.reclaim_step().unwrap() {}
    assert_eq!(trash_names(&pool).len(), 2);
    now.store(1_000 + 3_600, Ordering::Relaxed);
    while pool.reclaim_step().unwrap() {}
    assert_eq!(trash_names(&pool), [format!("undo:{first}")]);
    refused(&pool, first + 1, "gone for good");
    now.store(1_000 + 7_200, Ordering::Relaxed);
    // Another run finds what is over as well.
    drop(pool);
    let options = OpenOptions::new(move || now.load(Ordering::Relaxed));
    let pool = Pool::open(vec![memory], options).unwrap();
    while pool.reclaim_step().unwrap() {}
    assert!(trash_names(&pool).is_empty());
}

#[test]
fn a_writer_gets_the_space_of_what_is_kept() {
    let (memory, pool) = pool_with_a_file();
    let fill = |dataset: &dyn View| {
        let mut written = 0;
        while put(dataset, section(100, written << 20), noise(written, 1 << 20)).is_ok() {
            written += 1;
        }
        written
    };
    for dataset in ["a", "b"] {
        pool.create(&name(dataset), &Properties::default()).unwrap();
        for part in 0..10 {
            put(&*view(&pool, dataset), section(1, part << 20), noise(part, 1 << 20)).unwrap();
        }
    }
    let first = fill(&*root(&pool));
    pool.commit().unwrap();
    pool.move_to_trash(&[source("a")]).unwrap();
    pool.move_to_trash(&[source("b")]).unwrap();
    assert_eq!(trash_names(&pool).len(), 2);
    put(&*root(&pool), section(7, 0), noise(7, 1 << 20)).unwrap();
    assert_eq!(trash_names(&pool).len(), 1, "the oldest one went, and that was enough");
    let mut more = 0;
    while put(&*root(&pool), section(200, more << 20), noise(more, 1 << 20)).is_ok() {
        more += 1;
    }
    assert!(trash_names(&pool).is_empty());
    assert!(more >= 17, "{first} MiB fitted first, {more} more after 20 were destroyed");
    checked(&pool, &memory);
}

/// A device that forgets all writes from a certain one on, as a power cut would.
struct Cut {
    memory: MemoryDevice,
    left: AtomicU64,
    is_cut: AtomicBool,
}

impl Device for Cut {
    fn name(&self) -> String {
        self.memory.name()
    }

    fn size(&self) -> marram_device::Result<u64> {
        self.memory.size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> marram_device::Result<()> {
        self.memory.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> marram_device::Result<()> {
        if self.left.load(Ordering::Relaxed) == 0 {
            self.is_cut.store(true, Ordering::Relaxed);
            let (device, reason) = (self.name(), "the power is cut".to_owned());
            return Err(marram_device::Error::Unusable { device, reason });
        }
        self.left.fetch_sub(1, Ordering::Relaxed);
        self.memory.write(offset, buffer)
    }

    fn flush(&self) -> marram_device::Result<()> {
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> marram_device::Result<()> {
        self.memory.discard(offset, len)
    }
}

/// Does `work` on copies of a pool, cutting the power before each of its writes in turn; `judge`
/// looks at what is left. Returns how many cuts there were.
pub(crate) fn cut_everywhere(
    base: &MemoryDevice,
    work: &dyn Fn(&Pool),
    judge: &dyn Fn(&Pool),
) -> u64 {
    for writes in 0..1000 {
        let memory = MemoryDevice::from_bytes(base.snapshot());
        let (left, is_cut) = (AtomicU64::new(writes), AtomicBool::new(false));
        let cut = Arc::new(Cut { memory, left, is_cut });
        let device: Arc<dyn Device> = cut.clone();
        work(&acting(&open(&device)));
        let memory = Arc::new(MemoryDevice::from_bytes(cut.memory.snapshot()));
        let after = open(&(memory.clone() as Arc<dyn Device>));
        judge(&after);
        checked(&after, &memory);
        if !cut.is_cut.load(Ordering::Relaxed) {
            return writes;
        }
    }
    panic!("an operation writes less than a thousand times");
}

#[test]
fn a_crash_leaves_an_operation_with_its_entry_or_neither() {
    let (memory, pool) = pool_with_a_file();
    pool.create(&name("d"), &Properties::default()).unwrap();
    pool.commit().unwrap();
    drop(pool);
    let destroy = |pool: &Pool| {
        let _may_be_cut = pool.move_to_trash(&[source("d")]);
    };
    let cuts = cut_everywhere(&memory, &destroy, &|pool| {
        let entry = last(pool);
        let destroyed = !names(pool).contains(&"d".to_owned());
        assert_eq!(entry.record.kind == Kind::Destroy, destroyed);
        assert_eq!(trash_names(pool).len(), usize::from(destroyed));
        assert_eq!(entry.obstacle, None);
    });
    assert!(cuts > 2, "{cuts}");

    let pool = acting(&open(&(memory.clone() as Arc<dyn Device>)));
    pool.move_to_trash(&[source("d")]).unwrap();
    let number = last(&pool).number;
    drop(pool);
    let undo = |pool: &Pool| {
        let _may_be_cut = pool.undo(number);
    };
    cut_everywhere(&memory, &undo, &|pool| {
        let restored = names(pool).contains(&"d".to_owned());
        assert_eq!(last(pool).record.kind == Kind::Restore, restored);
        assert_eq!(trash_names(pool).is_empty(), restored);
    });
}

/// Merges by hand: what posix does with the store.
fn merge(pool: &Pool, number: u64) -> Result<(), Error> {
    let (dataset, fork) = (DatasetName::root(), source("f"));
    let read = pool.ephemeral_snapshot(&fork.dataset, "merge")?;
    let done = merge_of(pool, number, (&dataset, &fork, &read), None);
    pool.discard_ephemeral(&read);
    done
}

fn merge_of(
    pool: &Pool,
    number: u64,
    (dataset, fork, read): (&DatasetName, &Source, &Source),
    keep: Option<&str>,
) -> Result<(), Error> {
    let live = root(pool);
    let merged = MergedFrom {
        dataset,
        fork,
        read,
        keep,
        root_object: 1,
        base: None,
        moves_base: false,
        may_wait: false,
    };
    let mut batch = Batch::new();
    let block = Block::fresh(noise(number, 6_000));
    batch.put(section(1, 0), Item::with_block("6000", block));
    pool.apply_merge(&*live, batch, &merged).map(|_| ())
}

#[test]
fn a_merge_and_its_entry_are_one_step() {
    let (memory, pool) = pool_with_a_file();
    pool.fork(&DatasetName::root(), &name("f"), 1).unwrap();
    pool.commit().unwrap();
    drop(pool);
    let work = |pool: &Pool| {
        let _may_be_cut = merge(pool, 5);
    };
    cut_everywhere(&memory, &work, &|pool| {
        let merged = content(&*root(pool), section(1, 0)) == Some(noise(5, 6_000));
        assert_eq!(last(pool).record.kind == Kind::Merge, merged);
        assert_eq!(trash_names(pool).len(), if merged { 2 } else { 0 });
    });
    let pool = acting(&open(&(memory.clone() as Arc<dyn Device>)));
    merge(&pool, 5).unwrap();
    let number = last(&pool).number;
    let expected = Reversal::Merge {
        dataset: DatasetName::root(),
        base: source(&format!("root@undo:{number}:after")),
        back_to: source(&format!("root@undo:{number}:before")),
        root_object: 1,
        moved_base: false,
        rest: None,
    };
    assert_eq!(pool.reversal(None).unwrap(), (number, expected));
    let state = |which: &str| view(&pool, &format!("root@undo:{number}:{which}"));
    assert_eq!(content(&*state("before"), section(1, 0)), Some(noise(1, 5_000)));
    assert_eq!(content(&*state("after"), section(1, 0)), Some(noise(5, 6_000)));
    let by_hand = pool.taking_back(number);
    merge(&by_hand, 1).unwrap();
    assert_eq!(last(&pool).record.undoes, number);
    refused(&pool, number, "it was taken back by operation");
    checked(&pool, &memory);
}

#[test]
fn what_a_merge_keeps_is_not_in_the_way_of_destroying_what_its_line_began_as() {
    let (memory, pool) = pool_with_a_file();
    pool.snapshot(&DatasetName::root(), "s").unwrap();
    pool.fork(&DatasetName::root(), &name("f"), 1).unwrap();
    merge(&pool, 5).unwrap();
    assert_eq!(trash_names(&pool).len(), 2);
    pool.rollback(&source("root@s"), "was").unwrap();
    let refused = pool.destroy(&source("root@s"), false).unwrap_err();
    assert!(refused.to_string().contains("began as it"), "somebody sees that line: {refused}");
    pool.destroy(&source("f"), false).unwrap();
    pool.destroy(&source("root@was"), false).unwrap();
    assert_eq!(trash_names(&pool).len(), 2);
    pool.destroy(&source("root@s"), false).unwrap();
    assert!(trash_names(&pool).is_empty(), "{:?}", trash_names(&pool));
    assert_eq!(names(&pool), ["root"]);
    assert_eq!(content(&*root(&pool), section(1, 0)), Some(noise(1, 5_000)));
    checked(&pool, &memory);
}

#[test]
fn a_merge_that_cannot_be_committed_is_not_there() {
    let (_memory, pool) = pool_with_a_file();
    pool.fork(&DatasetName::root(), &name("f"), 1).unwrap();
    let (dataset, fork) = (DatasetName::root(), source("f"));
    let read = source("root@none");
    assert!(merge_of(&pool, 5, (&dataset, &fork, &read), None).is_err());
    assert_eq!(content(&*root(&pool), section(1, 0)), Some(noise(1, 5_000)));
    pool.commit().unwrap();
    assert_eq!(content(&*root(&pool), section(1, 0)), Some(noise(1, 5_000)));
    assert_eq!(last(&pool).record.kind, Kind::Fork);
}

const OWNER: OwnerId = OwnerId { class: OwnerClass::Group, id: 100 };

fn bytes(bytes: i64) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(&Limit { bytes, ..Limit::NONE }.encode()))
}

fn set_limit(pool: &Pool, limit: Option<Bytes>) -> Result<(), Error> {
    pool.set_owner_limit(&DatasetName::root(), OWNER.to_offset(), limit)
}

fn limit(pool: &Pool) -> Option<Bytes> {
    let key = Key::new(0, kind::LIMIT, OWNER.to_offset());
    root(pool).get(key).unwrap().map(|item| item.value)
}

/// A stream that is cut before its end, received into `copy`.
fn receive_a_part(pool: &Pool) {
    pool.snapshot(&DatasetName::root(), "sent").unwrap();
    let request = SendRequest { snapshot: source("root@sent"), base: None, resume: None };
    let mut stream = Vec::new();
    pool.send(&request, &mut stream, &mut |_| {}).unwrap();
    let request = ReceiveRequest { dataset: name("copy"), force: false, resumable: true };
    let mut cut = &stream[..stream.len() - 8];
    assert!(pool.receive(&request, &mut cut, &mut |_| {}).is_err());
    assert_eq!(pool.partials().unwrap().len(), 1);
}

#[test]
fn labels_and_limits_are_taken_back_unless_they_were_set_again() {
    let (memory, pool) = pool_with_a_file();
    pool.set_label("first").unwrap(); // 1
    root(&pool).capabilities().label.unwrap().set_label("second", 1001).unwrap(); // 2
    let entry = last(&pool);
    assert_eq!(
        (entry.user(), entry.record.texts),
        (Some(1001), vec!["first".into(), "second".into()])
    );
    refused(&pool, 1, "the pool has the label \"second\" since");
    undo_last(&pool); // 3
    assert_eq!(pool.status().label, "first");
    undo_last(&pool); // 4
    assert_eq!(pool.status().label, "second");
    checked(&pool, &memory);

    set_limit(&pool, bytes(7_000)).unwrap(); // 5
    set_limit(&pool, bytes(9_000)).unwrap(); // 6
    let entry = last(&pool).record;
    assert_eq!(
        (entry.detail, entry.text(1), entry.text(2)),
        (1 << 32 | 100, "7000 none", "9000 none")
    );
    refused(&pool, 5, "the limit in root is 9000 none (bytes, inodes) since");
    undo_last(&pool); // 7
    assert_eq!(limit(&pool), bytes(7_000));
    refused(&pool, 6, "it was taken back by operation 7");
    pool.undo(5).unwrap(); // 8
    assert_eq!(limit(&pool), None);
    undo_last(&pool); // 9
    assert_eq!(limit(&pool), bytes(7_000));
    checked(&pool, &memory);
    assert!(pool.set_owner_limit(&name("none"), 7, None).is_err());
    assert!(pool.set_owner_limit(&DatasetName::root(), 3 << 32, None).is_err());
    assert_eq!(last(&pool).number, 9, "what is refused is not entered");
}

#[test]
fn growth_and_dropped_streams_are_entered_and_it_is_said_why_they_stay() {
    let (memory, pool) = pool_with_a_file();
    assert_eq!(pool.grow().unwrap(), 64 << 20);
    assert!(pool.operations().unwrap().is_empty(), "nothing has grown");
    memory.grow(80 << 20);
    assert_eq!(pool.grow().unwrap(), 80 << 20);
    let entry = last(&pool);
    let sizes = [64_u64 << 20, 80 << 20].map(|bytes| bytes.to_string());
    assert_eq!((entry.record.kind, entry.record.texts), (Kind::Grow, sizes.to_vec()));
    refused(&pool, entry.number, "a pool cannot shrink");

    receive_a_part(&pool);
    pool.drop_partial(&name("copy")).unwrap();
    let entry = last(&pool);
    assert_eq!((entry.record.kind, entry.record.text(0)), (Kind::Abort, "copy@sent"));
    refused(&pool, entry.number, "what had come of copy@sent is not kept: receive it again");
    assert!(pool.partials().unwrap().is_empty());
    while pool.reclaim_step().unwrap() {}
    checked(&pool, &memory);
}

#[test]
fn a_crash_leaves_what_is_done_to_a_pool_with_its_entry_or_neither() {
    let (memory, pool) = pool_with_a_file();
    receive_a_part(&pool);
    set_limit(&pool, bytes(5_000)).unwrap();
    drop(pool);
    memory.grow(80 << 20);
    type Step<'s> = (Kind, &'s dyn Fn(&Pool) -> bool, &'s dyn Fn(&Pool));
    let steps: [Step<'_>; 4] = [
        (Kind::Label, &|pool| pool.status().label == "new", &|pool| {
            let _may_be_cut = pool.set_label("new");
        }),
        (Kind::Limit, &|pool| limit(pool) == bytes(6_000), &|pool| {
            let _may_be_cut = set_limit(pool, bytes(6_000));
        }),
        (Kind::Grow, &|pool| pool.status().total_bytes > 70 << 20, &|pool| {
            let _may_be_cut = pool.grow();
        }),
        (Kind::Abort, &|pool| pool.partials().unwrap().is_empty(), &|pool| {
            let _may_be_cut = pool.drop_partial(&name("copy"));
        }),
    ];
    let before = last(&acting(&open(&(memory.clone() as Arc<dyn Device>)))).number;
    for (kind, is_done, work) in steps {
        let cuts = cut_everywhere(&memory, work, &|pool| {
            let entry = last(pool);
            let is_entered = entry.number > before && entry.record.kind == kind;
            assert_eq!(is_entered, is_done(pool), "{kind:?}");
            assert_eq!(entry.number > before, is_entered, "{kind:?}");
        });
        assert!(cuts > 2, "{kind:?}: {cuts}");
    }
    let undo = |pool: &Pool| {
        let _may_be_cut = pool.undo(before);
    };
    cut_everywhere(&memory, &undo, &|pool| {
        assert_eq!(last(pool).record.undoes == before, limit(pool).is_none());
    });
}
