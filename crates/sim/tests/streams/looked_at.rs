//! A dataset that somebody has only looked at, so that access times moved, receives as if nobody
//! had: what it is then is what was sent. Anything else that has changed is in the way.

use super::{
    SMALL_POOL_BYTES, assert_sound, block, empty_pool, names, open, pool, read, receive, send,
    source, try_receive,
};
use marram_device::MemoryDevice;
use marram_format::record::{Inode, InodeKind, Time};
use marram_pool::{Accessed, Author, Pool, ReceiveRequest};
use marram_sim::Random;
use marram_sim::device::{CrashState, RecordingDevice};
use marram_store::{Batch, Item, Key, SpaceUsage, Store, kind};
use std::sync::Arc;

/// Inodes of these pools: enough for many leaves.
const INODES: u64 = 600;

fn inode(accessed: i64) -> Inode {
    let time = |seconds| Time { seconds, nanoseconds: 1 };
    Inode {
        kind: InodeKind::Regular,
        permissions: 0o644,
        links: 1,
        uid: 1,
        gid: 1,
        device: 0,
        flags: 0,
        size: 9,
        data_bytes: 0,
        reserved_bytes: 0,
        generation: 1,
        parent: 1,
        state: 0,
        project: 0,
        accessed: time(accessed),
        modified: time(5),
        changed: time(6),
        created: time(4),
        name_place: 0,
    }
}

fn put(pool: &Pool, dataset: &str, number: u64, inode: &Inode) {
    let mut batch = Batch::new();
    batch.put(Key::new(number, kind::INODE, 0), Item::plain(inode.encode().to_vec()));
    pool.open(&source(dataset)).unwrap().apply(batch).unwrap();
}

/// Somebody reads files: every seventh inode has another access time.
fn look(pool: &Pool, dataset: &str, at: i64) -> Vec<u64> {
    let looked_at: Vec<u64> = (100..100 + INODES).step_by(7).collect();
    looked_at.iter().for_each(|number| put(pool, dataset, *number, &inode(at)));
    looked_at
}

/// A pool with the snapshots `a` and `b`, and both streams.
fn prepared() -> (Arc<Pool>, Vec<u8>, Vec<u8>) {
    let (_, from) = pool(1, &[]);
    (100..100 + INODES).for_each(|number| put(&from, "root", number, &inode(10)));
    let mut random = Random::new(3);
    let mut write = |offset| {
        let mut batch = Batch::new();
        let item = Item::with_block(vec![1], block(&mut random));
        batch.put(Key::new(100, kind::SECTION, offset), item);
        from.open(&source("root")).unwrap().apply(batch).unwrap();
    };
    write(0);
    from.snapshot(&"root".parse().unwrap(), "a").unwrap();
    write(4096);
    put(&from, "root", 101, &inode(20));
    from.snapshot(&"root".parse().unwrap(), "b").unwrap();
    let (full, increment) = (send(&from, "root@a", None), send(&from, "root@b", Some("root@a")));
    (from, full, increment)
}

fn allocated(pool: &Pool) -> u64 {
    while pool.reclaim_step().unwrap() {}
    pool.commit().unwrap();
    pool.usage(true).unwrap();
    pool.status().allocated_bytes
}

#[test]
fn access_times_that_have_moved_are_no_change_and_are_those_that_were_sent() {
    let (from, full, increment) = prepared();
    let (device, to) = pool(2, &[]);
    let (_, untouched) = pool(2, &[]);
    for to in [&to, &untouched] {
        receive(to, "copy", &full);
    }
    let looked_at = look(&to, "copy", 11);
    to.commit().unwrap();
    // Some of them are in no commit yet.
    put(&to, "copy", 101, &inode(12));
    let mut told = looked_at.clone();
    told.push(101);
    told.sort_unstable();

    let received = receive(&to, "copy", &increment);
    assert_eq!(received.kept, None);
    assert_eq!(received.accessed, Accessed::These(told));
    assert_eq!(receive(&untouched, "copy", &increment).accessed, Accessed::None);
    for state in ["copy", "copy@b"] {
        assert_eq!(read(&to, state), read(&from, "root@b"), "{state}");
    }
    assert_eq!(read(&to, "copy@a"), read(&from, "root@a"));
    assert_eq!(names(&to), names(&untouched));
    to.commit().unwrap();
    assert_sound(&*device, "received");
    // What the access times took is given back.
    let (taken, without) = (allocated(&to), allocated(&untouched));
    assert!(taken <= without + (64 << 10), "{taken} bytes, {without} where nobody looked");
    assert_sound(&*device, "given back");
    for snapshot in ["copy@a", "copy@b"] {
        to.destroy(&source(snapshot), false).unwrap();
        while to.reclaim_step().unwrap() {}
        to.commit().unwrap();
        assert_sound(&*device, snapshot);
    }
    assert_eq!(read(&to, "copy"), read(&from, "root@b"));
}

#[test]
fn snapshots_of_what_was_looked_at_stay_and_are_not_in_the_way() {
    let (from, full, increment) = prepared();
    let (device, to) = pool(2, &[]);
    receive(&to, "copy", &full);
    look(&to, "copy", 11);
    to.snapshot(&"copy".parse().unwrap(), "mine").unwrap();
    let mine = read(&to, "copy@mine");
    look(&to, "copy", 12);
    receive(&to, "copy", &increment);
    assert_eq!(read(&to, "copy"), read(&from, "root@b"));
    assert_eq!(read(&to, "copy@mine"), mine);
    assert_eq!(names(&to), ["copy", "copy@a", "copy@b", "copy@mine", "root"]);
    to.commit().unwrap();
    assert_sound(&*device, "received");
    to.destroy(&source("copy@mine"), false).unwrap();
    while to.reclaim_step().unwrap() {}
    to.commit().unwrap();
    assert_sound(&*device, "without the snapshot");
}

#[test]
fn access_times_that_move_while_a_stream_comes_in_are_no_change_either() {
    let (from, full, increment) = prepared();
    for is_looked_at_before in [false, true] {
        let (device, to) = pool(2, &[]);
        let author = Author { user: Some(1), command: "test".to_owned() };
        let to = to.acting_for(author);
        receive(&to, "copy", &full);
        if is_looked_at_before {
            look(&to, "copy", 11);
        }
        let before = read(&from, "root@a");
        let request =
            ReceiveRequest { dataset: "copy".parse().unwrap(), force: false, resumable: true };
        let cut = &increment[..increment.len() - 20];
        to.receive(&request, &mut &cut[..], &mut |_| {}).err().unwrap();
        look(&to, "copy", 13);
        let token = to.partials().unwrap().pop().unwrap().token();
        let mut rest = Vec::new();
        let base = Some(source("root@a"));
        let send = marram_pool::SendRequest { snapshot: source("root@b"), base, resume: token };
        from.send(&send, &mut rest, &mut |_| {}).unwrap();
        let incoming = to.receive(&request, &mut &rest[..], &mut |_| {}).unwrap();
        look(&to, "copy", 14);
        incoming.publish().unwrap();
        assert_eq!(read(&to, "copy"), read(&from, "root@b"));
        // It is taken back as any other, to the snapshot.
        to.undo(to.reversal(None).unwrap().0).unwrap();
        assert_eq!(read(&to, "copy"), before);
        to.commit().unwrap();
        assert_sound(&*device, "received, and taken back");
    }
}

#[test]
fn anything_but_access_times_is_a_change() {
    let (from, full, increment) = prepared();
    let other = |change: &dyn Fn(&mut Inode)| {
        let mut changed = inode(11);
        change(&mut changed);
        changed
    };
    let later = Time { seconds: 99, nanoseconds: 0 };
    let changed = [
        other(&|inode| inode.permissions = 0o600),
        other(&|inode| inode.links = 2),
        other(&|inode| inode.uid = 2),
        other(&|inode| inode.gid = 2),
        other(&|inode| inode.flags = 0x10),
        other(&|inode| inode.size = 8),
        other(&|inode| inode.data_bytes = 8),
        other(&|inode| inode.reserved_bytes = 8),
        other(&|inode| inode.generation = 2),
        other(&|inode| inode.parent = 2),
        other(&|inode| inode.state = 1),
        other(&|inode| inode.project = 2),
        other(&|inode| inode.modified = later),
        other(&|inode| inode.changed = later),
        other(&|inode| inode.created = later),
        other(&|inode| inode.name_place = 7),
    ];
    let refused = |to: &Pool, what: &str| {
        let before = (names(to), read(to, "copy"));
        let error = try_receive(to, "copy", &increment, false).unwrap_err().to_string();
        assert!(error.contains("has been changed since copy@a"), "{what}: {error}");
        assert_eq!((names(to), read(to, "copy")), before, "{what}");
    };
    let (device, to) = pool(2, &[]);
    receive(&to, "copy", &full);
    look(&to, "copy", 11);
    for (number, changed) in changed.iter().enumerate() {
        // Beside access times of others, and in the last leaf.
        put(&to, "copy", 99 + INODES, changed);
        refused(&to, &format!("field {number}"));
        put(&to, "copy", 99 + INODES, &inode(10));
    }
    let apply = |batch| to.open(&source("copy")).unwrap().apply(batch).unwrap();
    let mut batch = Batch::new();
    batch.put(Key::new(99, kind::XATTR, 1), Item::plain(vec![1]));
    apply(batch);
    refused(&to, "something new");
    let mut batch = Batch::new();
    batch.remove(Key::new(99, kind::XATTR, 1)).remove(Key::new(200, kind::INODE, 0));
    apply(batch);
    refused(&to, "an inode less");
    put(&to, "copy", 200, &inode(10));
    let mut batch = Batch::new();
    batch.put(Key::new(300, kind::INODE, 0), Item::plain(vec![1, 2, 3]));
    apply(batch);
    refused(&to, "what is no inode");
    put(&to, "copy", 300, &inode(10));
    // A snapshot with a change is in the way also where only access times moved after it.
    put(&to, "copy", 301, &changed[0]);
    to.snapshot(&"copy".parse().unwrap(), "mine").unwrap();
    look(&to, "copy", 15);
    let error = try_receive(&to, "copy", &increment, false).unwrap_err().to_string();
    assert!(error.contains("snapshots with changes"), "{error}");
    let received = try_receive(&to, "copy", &increment, true).unwrap();
    assert_eq!(received.kept, Some(source("copy@before-receive-1")));
    assert_eq!(read(&to, "copy"), read(&from, "root@b"));
    to.commit().unwrap();
    assert_sound(&*device, "forced");
}

#[test]
fn a_power_cut_leaves_what_was_looked_at_or_what_was_received() {
    let (from, full, increment) = prepared();
    let device = Arc::new(RecordingDevice::in_memory(empty_pool(2, SMALL_POOL_BYTES, &[])));
    let to = open(device.clone());
    receive(&to, "copy", &full);
    look(&to, "copy", 11);
    to.commit().unwrap();
    let looked_at = read(&to, "copy");
    device.mark(1);
    receive(&to, "copy", &increment);
    device.mark(2);
    while to.reclaim_step().unwrap() {}
    let (sent, base) = (read(&from, "root@b"), read(&from, "root@a"));
    let trace = device.trace();
    let states = trace.prefixes().chain(trace.subsets(1)).chain(trace.seeded(1, 40));
    let states: Vec<CrashState> =
        states.filter(|state| trace.last_mark(state.cut).is_some()).collect();
    let mut seen = [0; 2];
    for state in states {
        let memory = Arc::new(MemoryDevice::from_bytes(trace.image(state)));
        let pool = open(memory.clone());
        marram_history::destroy_leftovers(&*pool).unwrap();
        let has_come = match names(&pool)[..] {
            ref names if *names == ["copy", "copy@a", "root"] => false,
            ref names if *names == ["copy", "copy@a", "copy@b", "root"] => true,
            ref names => panic!("{state}: {names:?}"),
        };
        assert!(has_come || trace.last_mark(state.cut) != Some(2), "{state}");
        assert_eq!(read(&pool, "copy"), *if has_come { &sent } else { &looked_at }, "{state}");
        assert_eq!(read(&pool, "copy@a"), base, "{state}");
        seen[usize::from(has_come)] += 1;
        while pool.reclaim_step().unwrap() {}
        pool.commit().unwrap();
        assert_sound(&*memory, &state.to_string());
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}
