//! What happens to the receiving dataset while a stream for it comes in, or while a part of one is
//! kept: snapshots of it are not in the way, changes take force, and nothing of either is lost.

use marram_check::{CheckOptions, check};
use marram_device::{Device, MemoryDevice};
use marram_pool::{
    Author, CreateOptions, Error, Incoming, OpenOptions, Pool, ReceiveRequest, Received,
    SendRequest, create,
};
use marram_store::{
    Batch, Block, DatasetName, Error as StoreError, Holds, Item, Key, Lineage, Properties, Source,
    SpaceUsage, Store, kind,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const POOL_BYTES: usize = 48 << 20;

/// What a dataset or snapshot has: content by object and offset.
type Contents = BTreeMap<(u64, u64), Vec<u8>>;

/// Numbers that depend on a seed alone.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

fn pool() -> (Arc<MemoryDevice>, Pool) {
    let memory = Arc::new(MemoryDevice::new(POOL_BYTES));
    let device: Arc<dyn Device> = memory.clone();
    let options = CreateOptions {
        label: "test".to_owned(),
        properties: Properties::default(),
        pool_id: [7; 16],
        secret: 7,
        now_seconds: 1,
    };
    create(std::slice::from_ref(&device), &options).unwrap();
    // What destroyed snapshots leave on dead lists is reclaimed in many steps.
    let options = OpenOptions { reclaim_pointers_max: 5, ..OpenOptions::new(|| 0) };
    let pool = Pool::open(vec![device], options).unwrap();
    let author = Author { user: Some(1000), command: "marram test".to_owned() };
    (memory, pool.acting_for(author))
}

fn source(text: &str) -> Source {
    text.parse().unwrap()
}

fn name(text: &str) -> DatasetName {
    text.parse().unwrap()
}

/// Puts some blocks into a dataset, some of them twice, and removes one.
fn change(dice: &mut Dice, pool: &Pool, dataset: &str, count: u64) {
    let view = pool.open(&source(dataset)).unwrap();
    for _ in 0..count {
        let key = Key::new(2 + dice.below(6), kind::SECTION, dice.below(16) * 4096);
        let len = 500 + dice.below(4000) as usize;
        let item = Item::with_block(vec![1], Block::fresh(dice.bytes(len)));
        let mut batch = Batch::new();
        if dice.below(3) == 0 {
            batch.put(Key { offset: key.offset + 4096 * 16, ..key }, item.clone());
        }
        batch.put(key, item);
        view.apply(batch).unwrap();
    }
    let mut batch = Batch::new();
    batch.remove(Key::new(2 + dice.below(6), kind::SECTION, dice.below(16) * 4096));
    view.apply(batch).unwrap();
}

fn read(pool: &Pool, of: &str) -> Contents {
    let view = pool.open(&source(of)).unwrap();
    let mut contents = Contents::new();
    let mut blocks = Vec::new();
    let (from, to) = (Key::new(2, kind::SECTION, 0), Key::new(20, kind::SECTION, 0));
    view.scan(from, to, &mut |key, item| {
        if key.kind == kind::SECTION {
            blocks.push((key, item.block.clone().unwrap()));
        }
        true
    })
    .unwrap();
    for (key, block) in blocks {
        contents.insert((key.object, key.offset), view.read_block(&block).unwrap().to_vec());
    }
    contents
}

/// The snapshots of `copy` and what is in them.
fn snapshots(pool: &Pool) -> BTreeMap<String, Contents> {
    let sources = pool.list().unwrap().into_iter().map(|report| report.source);
    let of_copy = sources.filter(|source| {
        source.dataset == name("copy") && source.snapshot.is_some() && !source.is_own()
    });
    of_copy.map(|source| (source.to_string(), read(pool, &source.to_string()))).collect()
}

fn send(pool: &Pool, snapshot: &str, base: Option<&str>) -> Vec<u8> {
    let mut stream = Vec::new();
    let request = SendRequest { snapshot: source(snapshot), base: base.map(source), resume: None };
    pool.send(&request, &mut stream, &mut |_| {}).unwrap();
    stream
}

fn receive<'p>(
    pool: &'p Pool,
    stream: &[u8],
    (force, resumable): (bool, bool),
) -> Result<Incoming<'p>, Error> {
    let request = ReceiveRequest { dataset: name("copy"), force, resumable };
    pool.receive(&request, &mut &stream[..], &mut |_| {})
}

/// What is still to be sent of the part that is kept of `root@b` from `root@a`.
fn rest(pool: &Pool, (snapshot, base): (&str, &str)) -> Vec<u8> {
    let partial = pool.partials().unwrap().pop().unwrap();
    let (snapshot, base) = (source(snapshot), Some(source(base)));
    let mut stream = Vec::new();
    let request = SendRequest { snapshot, base, resume: partial.token() };
    pool.send(&request, &mut stream, &mut |_| {}).unwrap();
    stream
}

/// What lies in the items of these tests is no file system: but for that, nothing is found.
fn assert_sound(pool: &Pool, device: &dyn Device, what: &str) {
    pool.commit().unwrap();
    let options = CheckOptions { read_data: true, snapshots: true };
    let mut findings = Vec::new();
    check(device, &options, &mut |finding| {
        if finding.place.object.is_none_or(|object| object == 0) {
            findings.push(finding.to_string());
        }
    })
    .unwrap();
    findings.retain(|text| !text.contains("counters") && !text.contains("root of"));
    assert_eq!(findings, Vec::<String>::new(), "{what}");
}

/// A pool with `root@a` and `root@b`, `copy@a`, and the stream from the one to the other.
fn prepared() -> (Arc<MemoryDevice>, Pool, Vec<u8>) {
    let (device, pool) = pool();
    let mut dice = Dice(5);
    change(&mut dice, &pool, "root", 60);
    pool.snapshot(&name("root"), "a").unwrap();
    change(&mut dice, &pool, "root", 400);
    pool.snapshot(&name("root"), "b").unwrap();
    receive(&pool, &send(&pool, "root@a", None), (false, false)).unwrap().publish().unwrap();
    let stream = send(&pool, "root@b", Some("root@a"));
    (device, pool, stream)
}

fn assert_arrived(pool: &Pool, received: &Received, kept: Option<&str>) {
    assert_eq!(received.kept.as_ref().map(ToString::to_string).as_deref(), kept);
    assert_eq!(received.snapshot, source("copy@b"));
    assert_eq!(read(pool, "copy"), read(pool, "root@b"));
    assert_eq!(read(pool, "copy@b"), read(pool, "root@b"));
}

#[test]
fn snapshots_that_are_taken_while_a_stream_comes_in_stay_and_are_not_in_the_way() {
    let (device, pool, stream) = prepared();
    let incoming = receive(&pool, &stream, (false, false)).unwrap();
    for snapshot in ["one", "two", "gone"] {
        pool.snapshot(&name("copy"), snapshot).unwrap();
    }
    pool.hold(&source("copy@two"), "mine").unwrap();
    pool.move_to_trash(&[source("copy@gone")]).unwrap();
    pool.fork(&name("copy"), &name("forked"), 1).unwrap();
    let refused = pool.destroy(&source("copy@a"), false).unwrap_err().to_string();
    assert!(refused.contains("is being received"), "{refused}");

    assert_arrived(&pool, &incoming.publish().unwrap(), None);
    let before = read(&pool, "root@a");
    for state in ["copy@a", "copy@one", "copy@two", "forked"] {
        assert_eq!(read(&pool, state), before, "{state}");
    }
    assert_eq!(pool.report(&source("copy@two")).unwrap().holds, ["mine"]);
    assert_sound(&pool, &*device, "received");

    // It is taken back as any other.
    let (number, _) = pool.reversal(None).unwrap();
    pool.undo(number).unwrap();
    assert_eq!(read(&pool, "copy"), before);
    let (number, _) = pool.reversal(None).unwrap();
    pool.undo(number).unwrap();
    assert_eq!(read(&pool, "copy"), read(&pool, "root@b"));
    assert_sound(&pool, &*device, "undone, and that undone");

    // What others began as goes after them, and all of it gives its space back.
    let refused = pool.destroy(&source("copy@a"), false).unwrap_err();
    assert!(matches!(refused, StoreError::InUse { .. }), "{refused}");
    pool.release(&source("copy@two"), "mine").unwrap();
    for state in ["forked", "copy"] {
        pool.destroy(&source(state), false).unwrap();
        while pool.reclaim_step().unwrap() {}
        assert_sound(&pool, &*device, state);
    }
    let usage = pool.usage(true).unwrap();
    assert_eq!((usage.leaving_bytes, usage.shared_bytes), (0, 0));
}

#[test]
fn a_part_that_is_kept_goes_on_beside_snapshots_that_were_taken_since() {
    let (device, pool, stream) = prepared();
    receive(&pool, &stream[..stream.len() / 2], (false, true)).err().unwrap();
    pool.snapshot(&name("copy"), "one").unwrap();
    pool.snapshot(&name("copy"), "two").unwrap();
    let incoming = receive(&pool, &rest(&pool, ("root@b", "root@a")), (false, false)).unwrap();
    pool.snapshot(&name("copy"), "three").unwrap();
    assert_arrived(&pool, &incoming.publish().unwrap(), None);
    assert!(pool.partials().unwrap().is_empty());
    assert_sound(&pool, &*device, "received");
    for snapshot in ["copy@two", "copy@three", "copy@one", "copy@a"] {
        assert_eq!(read(&pool, snapshot), read(&pool, "root@a"), "{snapshot}");
        pool.destroy(&source(snapshot), false).unwrap();
        while pool.reclaim_step().unwrap() {}
        assert_sound(&pool, &*device, snapshot);
    }
    assert_eq!(read(&pool, "copy"), read(&pool, "root@b"));
}

#[test]
fn force_goes_back_from_changes_that_were_made_since_and_destroys_nothing() {
    let (device, pool, stream) = prepared();
    // The part goes on from this one, and not from the base itself.
    pool.snapshot(&name("copy"), "zero").unwrap();
    receive(&pool, &stream[..stream.len() / 2], (false, true)).err().unwrap();
    pool.snapshot(&name("copy"), "one").unwrap();
    change(&mut Dice(9), &pool, "copy", 20);
    pool.snapshot(&name("copy"), "two").unwrap();
    pool.hold(&source("copy@two"), "mine").unwrap();
    change(&mut Dice(10), &pool, "copy", 5);
    let (now, there) = (read(&pool, "copy"), snapshots(&pool));

    let token = || pool.partials().unwrap().pop().unwrap().token();
    let kept = token();
    let rest = rest(&pool, ("root@b", "root@a"));
    let refused = receive(&pool, &rest, (false, false)).err().unwrap().to_string();
    assert!(refused.contains("snapshots with changes"), "{refused}");
    assert!(refused.contains("force it"), "{refused}");
    assert_eq!((read(&pool, "copy"), token()), (now.clone(), kept));

    let received = receive(&pool, &rest, (true, false)).unwrap().publish().unwrap();
    assert_arrived(&pool, &received, Some("copy@before-receive-1"));
    assert_eq!(read(&pool, "copy@before-receive-1"), now);
    let after = snapshots(&pool);
    assert!(there.iter().all(|(name, content)| after.get(name) == Some(content)));
    assert_eq!(pool.report(&source("copy@two")).unwrap().holds, ["mine"]);
    assert_sound(&pool, &*device, "forced");
}

#[test]
fn changes_at_the_end_of_a_stream_are_refused_and_its_part_stays() {
    let (device, pool, stream) = prepared();
    let incoming = receive(&pool, &stream, (false, true)).unwrap();
    change(&mut Dice(9), &pool, "copy", 5);
    pool.snapshot(&name("copy"), "b").unwrap();
    let refused = incoming.publish().unwrap_err().to_string();
    assert!(refused.contains("another copy@b") && refused.contains("rename"), "{refused}");
    pool.rename(&source("copy@b"), &source("copy@mine")).unwrap();
    let rest = rest(&pool, ("root@b", "root@a"));
    let refused = receive(&pool, &rest, (false, false)).err().unwrap().to_string();
    assert!(refused.contains("snapshots with changes"), "{refused}");
    // Going back by hand does as well.
    pool.rollback(&source("copy@a"), "was").unwrap();
    let received = receive(&pool, &rest, (false, false)).unwrap().publish().unwrap();
    assert_arrived(&pool, &received, None);
    assert_sound(&pool, &*device, "received");
}

/// Something that is done to the dataset while it receives. `base` is left alone.
fn meddle(dice: &mut Dice, pool: &Pool, base: &str, number: u64) {
    let there: Vec<String> = snapshots(pool).into_keys().collect();
    let some = there[dice.below(there.len() as u64) as usize].clone();
    match dice.below(8) {
        0..3 => pool.snapshot(&name("copy"), &format!("m{number}")).unwrap(),
        3 => change(dice, pool, "copy", 3),
        4 if some != base => drop(pool.destroy(&source(&some), false)),
        5 if some != base => drop(pool.move_to_trash(&[source(&some)])),
        6 => pool.rollback(&source(&some), &format!("r{number}")).unwrap(),
        7 => {
            let fork = name(&format!("f{number}"));
            pool.fork(&name("copy"), &fork, 1).unwrap();
            change(dice, pool, fork.as_str(), 2);
            if dice.below(2) == 0 {
                let _stays = pool.destroy(&Source::live(fork), false);
            }
        }
        _ => while pool.reclaim_step().unwrap() {},
    }
}

/// Receives in one go, or in two with something in between. Nothing if it was refused.
fn receive_beside(
    dice: &mut Dice,
    pool: &Pool,
    (snapshot, base, number): (&str, &str, u64),
    force: bool,
) -> Option<()> {
    let stream = send(pool, &format!("root@{snapshot}"), Some(&format!("root@{base}")));
    let own_base = format!("copy@{base}");
    let is_unfit = |error: &Error| matches!(error, Error::Unfit(_)) && !force;
    let mut stream = stream;
    if dice.below(2) == 0 {
        match receive(pool, &stream[..stream.len() / 2], (force, true)) {
            Err(Error::Stream(_)) => {}
            Err(error) if is_unfit(&error) => return None,
            _ => panic!("a stream that is cut is refused"),
        }
        meddle(dice, pool, &own_base, number);
        if !pool.partials().unwrap().is_empty() {
            stream = rest(pool, (&format!("root@{snapshot}"), &format!("root@{base}")));
        }
    }
    let incoming = match receive(pool, &stream, (force, false)) {
        Err(error) => {
            assert!(is_unfit(&error), "{error}");
            return None;
        }
        Ok(incoming) => incoming,
    };
    for step in 0..dice.below(4) {
        meddle(dice, pool, &own_base, number + 1 + step);
    }
    let (now, there) = (read(pool, "copy"), snapshots(pool));
    match incoming.publish() {
        Ok(received) => {
            let kept = received.kept.map(|kept| read(pool, &kept.to_string()));
            assert!(kept.is_none_or(|kept| kept == now), "what it was is kept");
            assert!(kept_state(pool, &there, &now), "what it was is there");
        }
        Err(error) => {
            assert!(is_unfit(&error), "{error}");
            assert_eq!((read(pool, "copy"), snapshots(pool)), (now, there));
            return None;
        }
    }
    let after = snapshots(pool);
    assert!(there.iter().all(|(name, content)| after.get(name) == Some(content)));
    assert_eq!(read(pool, "copy"), read(pool, &format!("root@{snapshot}")));
    Some(())
}

fn kept_state(pool: &Pool, there: &BTreeMap<String, Contents>, now: &Contents) -> bool {
    there.values().any(|content| content == now)
        || snapshots(pool).values().any(|content| content == now)
}

#[test]
fn whatever_is_done_to_a_dataset_while_it_receives_nothing_is_lost() {
    for seed in 1..=12 {
        let mut dice = Dice(seed * 7919);
        let (device, pool) = pool();
        change(&mut dice, &pool, "root", 40);
        pool.snapshot(&name("root"), "s0").unwrap();
        receive(&pool, &send(&pool, "root@s0", None), (false, false)).unwrap().publish().unwrap();
        let mut refused = 0;
        for round in 1..=12_u64 {
            change(&mut dice, &pool, "root", 6);
            let (snapshot, base) = (format!("s{round}"), format!("s{}", round - 1));
            pool.snapshot(&name("root"), &snapshot).unwrap();
            let force = dice.below(2) == 0;
            let of = (snapshot.as_str(), base.as_str(), round * 100);
            if receive_beside(&mut dice, &pool, of, force).is_none() {
                refused += 1;
                if !pool.partials().unwrap().is_empty() {
                    pool.drop_partial(&name("copy")).unwrap();
                }
                let of = (of.0, of.1, round * 100 + 50);
                receive_beside(&mut dice, &pool, of, true).unwrap();
            }
            assert_sound(&pool, &*device, &format!("seed {seed}, round {round}"));
        }
        assert!(refused < 12, "seed {seed}: some streams are received without force");
        let forks = pool.list().unwrap().into_iter().map(|report| report.source);
        let forks: Vec<Source> =
            forks.filter(|it| it.snapshot.is_none() && it.dataset.as_str() != "root").collect();
        pool.destroy_together(&forks, false).unwrap();
        while pool.reclaim_step().unwrap() {}
        assert_sound(&pool, &*device, &format!("seed {seed}, destroyed"));
        assert_eq!(pool.usage(true).unwrap().leaving_bytes, 0);
    }
}
