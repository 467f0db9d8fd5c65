//! Streams between pools: what is received is what was sent, block by block, and a stream that is
//! cut or altered, or a power cut, leaves the receiving pool as it was.

mod image;
mod looked_at;
mod resumed;

use marram_check::{CheckOptions, check};
use marram_device::{Device, MemoryDevice};
use marram_format::stream::RecordHead;
use marram_pool::{
    CreateOptions, Error, OpenOptions, Pool, ReceiveRequest, Received, SendRequest, create,
};
use marram_sim::Random;
use marram_sim::device::{CrashState, RecordingDevice};
use marram_store::{Batch, Block, Item, Key, Properties, Source, Store, View, kind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const POOL_BYTES: usize = 64 << 20;
/// Of a pool of which many copies are made.
const SMALL_POOL_BYTES: usize = 32 << 20;

static NOW: AtomicI64 = AtomicI64::new(1);

fn empty_pool(id: u8, bytes: usize, properties: &[(&str, &str)]) -> Vec<u8> {
    let memory = Arc::new(MemoryDevice::new(bytes));
    let device: Arc<dyn Device> = memory.clone();
    let properties = properties.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    let options = CreateOptions {
        label: "streams".to_owned(),
        properties: Properties(properties.collect()),
        pool_id: [id; 16],
        secret: 7,
        now_seconds: 1,
    };
    create(&[device], &options).unwrap();
    memory.snapshot()
}

fn open(device: Arc<dyn Device>) -> Arc<Pool> {
    let options = OpenOptions {
        dirty_bytes_max: 1 << 20,
        ..OpenOptions::new(|| NOW.fetch_add(1, Ordering::Relaxed))
    };
    Pool::open(vec![device], options).unwrap()
}

/// A new pool on a device in memory.
fn pool(id: u8, properties: &[(&str, &str)]) -> (Arc<MemoryDevice>, Arc<Pool>) {
    let memory = Arc::new(MemoryDevice::from_bytes(empty_pool(id, POOL_BYTES, properties)));
    (memory.clone(), open(memory))
}

fn source(text: &str) -> Source {
    text.parse().unwrap()
}

fn send(pool: &Pool, snapshot: &str, base: Option<&str>) -> Vec<u8> {
    let mut stream = Vec::new();
    let (snapshot, base) = (source(snapshot), base.map(source));
    let request = SendRequest { snapshot, base, resume: None };
    let totals = pool.send(&request, &mut stream, &mut |_| {}).unwrap();
    assert_eq!(totals.stream_bytes, stream.len() as u64);
    let report = marram_pool::verify_stream(&mut &stream[..], &mut |_| {}).unwrap();
    assert_eq!(report.totals, totals);
    stream
}

fn try_receive(pool: &Pool, name: &str, stream: &[u8], force: bool) -> Result<Received, Error> {
    let request = ReceiveRequest { dataset: name.parse().unwrap(), force, resumable: false };
    pool.receive(&request, &mut &stream[..], &mut |_| {})?.publish()
}

fn receive(pool: &Pool, name: &str, stream: &[u8]) -> Received {
    try_receive(pool, name, stream, false).unwrap()
}

/// Items with their content, and which of them share a block.
#[derive(Debug, PartialEq, Eq)]
struct Contents {
    items: BTreeMap<Key, (Vec<u8>, Vec<u8>)>,
    shares: BTreeSet<BTreeSet<Key>>,
}

fn read(pool: &Pool, name: &str) -> Contents {
    let view = pool.open(&source(name)).unwrap();
    let mut found = Vec::new();
    view.scan(Key::MIN, Key::MAX, &mut |key, item| {
        if key.kind != kind::REFERENCES {
            found.push((key, item.clone()));
        }
        true
    })
    .unwrap();
    let mut by_place: BTreeMap<(u16, u64), BTreeSet<Key>> = BTreeMap::new();
    let mut items = BTreeMap::new();
    for (key, item) in found {
        let mut content = Vec::new();
        if let Some(block) = &item.block {
            content = view.read_block(block).unwrap().to_vec();
            if let Some(address) = view.place_of(block).address {
                by_place.entry(address).or_default().insert(key);
            }
        }
        items.insert(key, (item.value.to_vec(), content));
    }
    Contents { items, shares: by_place.into_values().collect() }
}

fn names(pool: &Pool) -> Vec<String> {
    pool.list().unwrap().iter().map(|report| report.source.to_string()).collect()
}

/// Nothing is said of references, owners, space or blocks. What lies in the items of these tests is
/// no file system.
fn assert_sound(device: &dyn Device, what: &str) {
    let options = CheckOptions { read_data: true, ..CheckOptions::default() };
    let mut findings = Vec::new();
    check(device, &options, &mut |finding| {
        if finding.place.object.is_none_or(|object| object == 0) {
            findings.push(finding.to_string());
        }
    })
    .unwrap();
    let is_of_items = |text: &str| text.contains("counters") || text.contains("[inode-count]");
    findings.retain(|text| !is_of_items(text) && !text.contains("root"));
    assert_eq!(findings, Vec::<String>::new(), "{what}");
}

fn key(random: &mut Random) -> Key {
    Key::new(random.below(12) + 2, kind::SECTION, random.below(40) * 4096)
}

fn block(random: &mut Random) -> Block {
    let len = [1, 900, 5000, 70_000][random.below(4) as usize];
    let range = [2, 256][random.below(2) as usize];
    Block::fresh((0..len).map(|_| random.below(range) as u8).collect())
}

/// One batch: something is written, shared, moved, cut or removed.
fn change(random: &mut Random, view: &dyn View) {
    let (one, other) = (key(random), key(random));
    let before = view.get(one).unwrap();
    let mut batch = Batch::new();
    match (random.below(8), before) {
        (0 | 1, Some(item)) if one != other => {
            batch.put(one, item.clone()).put(other, Item { value: vec![2].into(), ..item });
        }
        (2, Some(item)) if one != other => {
            batch.remove(one).put(other, item);
        }
        (3, Some(item)) => {
            batch.put(one, Item { value: random.below(99).to_le_bytes().to_vec().into(), ..item });
        }
        (4, _) => {
            batch.remove(one);
        }
        (5, _) => {
            batch.put(one, Item::plain(random.below(99).to_le_bytes().to_vec()));
        }
        _ => {
            batch.put(one, Item::with_block(vec![1], block(random)));
        }
    }
    view.apply(batch).unwrap();
}

fn changes(random: &mut Random, pool: &Pool, count: u64) {
    let view = pool.open(&source("root")).unwrap();
    for _ in 0..count {
        change(random, &*view);
        if random.below(20) == 0 {
            pool.commit().unwrap();
        }
    }
}

#[test]
fn what_is_received_is_what_was_sent_and_shares_what_it_shared() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let (_, from) = pool(1, &[("compression", "zstd"), ("checksum", "blake3")]);
        let (device, to) = pool(2, &[]);
        changes(&mut random, &from, 150);
        from.snapshot(&"root".parse().unwrap(), "s0").unwrap();
        receive(&to, "copy", &send(&from, "root@s0", None));
        for round in 1..8 {
            let count = [0, 3, 40, 200][random.below(4) as usize];
            changes(&mut random, &from, count);
            let snapshot = format!("s{round}");
            from.snapshot(&"root".parse().unwrap(), &snapshot).unwrap();
            let base = format!("root@s{}", round - 1);
            let stream = send(&from, &format!("root@{snapshot}"), Some(&base));
            let received = receive(&to, "copy", &stream);
            assert_eq!(received.kept, None);
            let sent = read(&from, &format!("root@{snapshot}"));
            assert_eq!(read(&to, &format!("copy@{snapshot}")), sent, "seed {seed} round {round}");
            assert_eq!(read(&to, "copy"), sent, "seed {seed} round {round}");
            to.commit().unwrap();
            assert_sound(&*device, &format!("seed {seed} round {round}"));
        }
        // What was received is sent on, to a third pool, and goes on there from the first one.
        let (_, third) = pool(3, &[]);
        receive(&third, "again", &send(&to, "copy@s3", None));
        receive(&third, "again", &send(&from, "root@s6", Some("root@s3")));
        assert_eq!(read(&third, "again"), read(&from, "root@s6"), "seed {seed}");
        // All of it goes again.
        to.destroy(&source("copy"), false).unwrap();
        while to.reclaim_step().unwrap() {}
        to.commit().unwrap();
        assert_sound(&*device, &format!("seed {seed}, destroyed"));
    }
}

#[test]
fn an_increment_costs_what_has_changed() {
    let (_, from) = pool(1, &[]);
    let view = from.open(&source("root")).unwrap();
    for object in 0..2000 {
        let mut batch = Batch::new();
        let content: Vec<u8> = (0..3000).map(|at: u32| (at % 251) as u8 ^ object as u8).collect();
        batch.put(
            Key::new(object, kind::SECTION, 0),
            Item::with_block(vec![], Block::fresh(content)),
        );
        view.apply(batch).unwrap();
    }
    from.snapshot(&"root".parse().unwrap(), "a").unwrap();
    let item = view.get(Key::new(7, kind::SECTION, 0)).unwrap().unwrap();
    let mut batch = Batch::new();
    batch.put(Key::new(7, kind::SECTION, 0), item.clone());
    batch.put(Key::new(9999, kind::SECTION, 0), item);
    batch.put(Key::new(8, kind::SECTION, 0), Item::plain(vec![1]));
    view.apply(batch).unwrap();
    from.snapshot(&"root".parse().unwrap(), "b").unwrap();
    let (full, increment) =
        (send(&from, "root@a", None).len(), send(&from, "root@b", Some("root@a")).len());
    assert!(increment < 1000 && full > 100_000, "{increment} bytes of {full}");
}

/// Two pools of which the second has the first snapshot of the first, and the two streams.
fn prepared() -> (Arc<Pool>, Vec<u8>, Vec<u8>) {
    let mut random = Random::new(5);
    let (_, from) = pool(1, &[]);
    changes(&mut random, &from, 40);
    from.snapshot(&"root".parse().unwrap(), "a").unwrap();
    changes(&mut random, &from, 25);
    from.snapshot(&"root".parse().unwrap(), "b").unwrap();
    let (full, increment) = (send(&from, "root@a", None), send(&from, "root@b", Some("root@a")));
    (from, full, increment)
}

/// Where the records of a stream begin, and its end.
fn boundaries(stream: &[u8]) -> Vec<usize> {
    let mut places = vec![0, 16];
    while let Some(head) = stream.get(places[places.len() - 1]..).and_then(|at| at.first_chunk()) {
        let len = RecordHead::decode(head).unwrap().payload_len;
        places.push(places[places.len() - 1] + 32 + len);
    }
    places
}

#[test]
fn a_stream_that_is_cut_or_altered_changes_nothing() {
    let (_, full, increment) = prepared();
    let (device, to) = pool(2, &[]);
    let refuses = |stream: &[u8], what: &str| {
        let before = names(&to);
        let error = try_receive(&to, "copy", stream, false).unwrap_err();
        assert!(matches!(error, Error::Stream(_)), "{what}: {error}");
        assert_eq!(names(&to), before, "{what}");
    };
    let attack = |stream: &[u8]| {
        let places = boundaries(stream);
        assert_eq!(places.last(), Some(&stream.len()));
        for at in &places[..places.len() - 1] {
            refuses(&stream[..*at], &format!("cut at {at}"));
            refuses(&stream[..*at + 7], &format!("cut behind {at}"));
        }
        for at in (0..stream.len()).step_by(stream.len() / 60) {
            let mut altered = stream.to_vec();
            altered[at] ^= 0x10;
            refuses(&altered, &format!("byte {at}"));
        }
        for pair in places[1..].windows(3) {
            let turned = [
                &stream[..pair[0]],
                &stream[pair[1]..pair[2]],
                &stream[pair[0]..pair[1]],
                &stream[pair[2]..],
            ];
            refuses(&turned.concat(), &format!("turned at {}", pair[0]));
        }
        refuses(&[stream, &[0]].concat(), "longer");
        refuses(&[stream, stream].concat(), "twice");
    };
    attack(&full);
    receive(&to, "copy", &full);
    let before = read(&to, "copy");
    attack(&increment);
    assert_eq!(read(&to, "copy"), before);
    receive(&to, "copy", &increment);
    while to.reclaim_step().unwrap() {}
    to.commit().unwrap();
    assert_sound(&*device, "after all that");
}

#[test]
fn a_stream_that_does_not_fit_is_refused_with_the_reason() {
    let (from, full, increment) = prepared();
    let (_, to) = pool(2, &[]);
    let refuses = |stream: &[u8], name: &str, words: &str| {
        let before = names(&to);
        let error = try_receive(&to, name, stream, false).unwrap_err();
        assert!(matches!(error, Error::Unfit(_)), "{error}");
        assert!(error.to_string().contains(words), "{words:?} is not in: {error}");
        assert_eq!(names(&to), before);
    };
    refuses(&increment, "copy", "receive the full stream first");
    refuses(&full, "root", "exists");
    refuses(&full, "receive:9", "pool's own");
    receive(&to, "copy", &full);
    refuses(&full, "copy", "received before: it is copy@a");
    to.create(&"other".parse().unwrap(), &Properties::default()).unwrap();
    refuses(&increment, "other", "has not the snapshot");
    // A pool of the same history that has another snapshot of the same name.
    let (stranger, _, foreign) = prepared();
    refuses(&foreign, "copy", "has not the snapshot");
    drop(stranger);

    changes(&mut Random::new(1), &from, 30);
    from.snapshot(&"root".parse().unwrap(), "c").unwrap();
    let later = send(&from, "root@c", Some("root@b"));
    refuses(&later, "copy", "has not the snapshot");
    receive(&to, "copy", &increment);
    refuses(&increment, "copy", "received before");
    receive(&to, "copy", &later);
    let error = from.send(
        &SendRequest { snapshot: source("root@a"), base: Some(source("root@b")), resume: None },
        &mut Vec::new(),
        &mut |_| {},
    );
    assert!(error.unwrap_err().to_string().contains("not older"));
}

#[test]
fn a_dataset_that_has_changed_is_set_back_only_by_force() {
    let (from, full, increment) = prepared();
    let (device, to) = pool(2, &[]);
    receive(&to, "copy", &full);
    let view = to.open(&source("copy")).unwrap();
    let mut batch = Batch::new();
    batch.put(
        Key::new(99, kind::SECTION, 0),
        Item::with_block(vec![9], Block::fresh(vec![9; 9999])),
    );
    view.apply(batch).unwrap();
    let changed = read(&to, "copy");
    let error = try_receive(&to, "copy", &increment, false).unwrap_err();
    assert!(error.to_string().contains("changed since copy@a"), "{error}");
    to.snapshot(&"copy".parse().unwrap(), "mine").unwrap();
    let error = try_receive(&to, "copy", &increment, false).unwrap_err();
    assert!(error.to_string().contains("snapshots with changes"), "{error}");
    assert_eq!(read(&to, "copy"), changed);

    let received = try_receive(&to, "copy", &increment, true).unwrap();
    let kept = received.kept.unwrap().to_string();
    assert_eq!(read(&to, "copy"), read(&from, "root@b"), "views that are open see it too");
    assert_eq!((read(&to, &kept), read(&to, "copy@mine")), (changed, read(&to, &kept)));
    drop(view);
    to.commit().unwrap();
    assert_sound(&*device, "after force");
    for name in [kept.as_str(), "copy@mine", "copy@a"] {
        to.destroy(&source(name), false).unwrap();
        while to.reclaim_step().unwrap() {}
        to.commit().unwrap();
        assert_sound(&*device, name);
    }
    assert_eq!(read(&to, "copy"), read(&from, "root@b"));
}

#[test]
fn a_snapshot_without_a_change_is_not_in_the_way() {
    let (from, full, increment) = prepared();
    let (device, to) = pool(2, &[]);
    receive(&to, "copy", &full);
    to.snapshot(&"copy".parse().unwrap(), "mine").unwrap();
    receive(&to, "copy", &increment);
    assert_eq!(read(&to, "copy"), read(&from, "root@b"));
    to.destroy(&source("copy@mine"), false).unwrap();
    to.commit().unwrap();
    assert_sound(&*device, "a snapshot between");
}

#[test]
fn a_change_while_a_stream_is_received_is_not_lost() {
    let (_, full, increment) = prepared();
    let (device, to) = pool(2, &[]);
    receive(&to, "copy", &full);
    let before = names(&to);
    let request =
        ReceiveRequest { dataset: "copy".parse().unwrap(), force: false, resumable: false };
    let incoming = to.receive(&request, &mut &increment[..], &mut |_| {}).unwrap();
    let view = to.open(&source("copy")).unwrap();
    let mut batch = Batch::new();
    batch.put(Key::new(99, kind::SECTION, 0), Item::plain(vec![1]));
    view.apply(batch).unwrap();
    let changed = read(&to, "copy");
    let error = incoming.publish().unwrap_err();
    assert!(error.to_string().contains("changed"), "{error}");
    assert_eq!((read(&to, "copy"), names(&to)), (changed, before));
    while to.reclaim_step().unwrap() {}
    to.commit().unwrap();
    assert_sound(&*device, "refused at the end");
}

#[test]
fn properties_and_the_root_of_a_fork_go_with_a_full_stream() {
    let (_, from) = pool(1, &[("recordsize", "16K"), ("quota", "10M")]);
    changes(&mut Random::new(3), &from, 20);
    from.fork(&"root".parse().unwrap(), &"work".parse().unwrap(), 5).unwrap();
    from.snapshot(&"work".parse().unwrap(), "a").unwrap();
    let (_, to) = pool(2, &[]);
    receive(&to, "copy", &send(&from, "work@a", None));
    let properties = to.properties(&"copy".parse().unwrap()).unwrap();
    assert_eq!(properties["recordsize"].0, "16384");
    assert_eq!(properties["quota"].0, "none", "what a pool gives is its own to say");
    let reports = to.list().unwrap();
    let copies = reports.iter().filter(|report| report.source.dataset.as_str() == "copy");
    assert_eq!(copies.map(|report| report.root_object).collect::<Vec<_>>(), [5, 5]);
}

/// What a power cut leaves is the state before the stream or the one after it, and what else it
/// leaves goes when the pool is served.
#[test]
fn a_power_cut_leaves_all_of_a_stream_or_nothing() {
    let (from, full, increment) = prepared();
    let device = Arc::new(RecordingDevice::in_memory(empty_pool(2, SMALL_POOL_BYTES, &[])));
    let to = open(device.clone());
    receive(&to, "copy", &full);
    device.mark(1);
    receive(&to, "copy", &increment);
    device.mark(2);
    let expected = [read(&from, "root@a"), read(&from, "root@b")];
    let trace = device.trace();
    let states: Vec<CrashState> =
        trace.prefixes().chain(trace.subsets(2)).chain(trace.seeded(1, 40)).collect();
    assert!(states.len() > 60, "{} states", states.len());
    let mut seen = [0; 3];
    for state in states {
        let memory = Arc::new(MemoryDevice::from_bytes(trace.image(state)));
        let pool = open(memory.clone());
        marram_history::destroy_leftovers(&*pool).unwrap();
        let there = names(&pool);
        let copies: Vec<&str> = there.iter().map(String::as_str).filter(|n| *n != "root").collect();
        let received = match copies[..] {
            [] => 0,
            ["copy", "copy@a"] => 1,
            ["copy", "copy@a", "copy@b"] => 2,
            _ => panic!("{state}: {there:?}"),
        };
        assert!(received >= trace.last_mark(state.cut).unwrap_or(0), "{state}: {received}");
        for (name, content) in ["copy@a", "copy@b"].iter().zip(&expected).take(received as usize) {
            assert_eq!(&read(&pool, name), content, "{state}");
        }
        if received > 0 {
            assert_eq!(read(&pool, "copy"), expected[received as usize - 1], "{state}");
        }
        seen[received as usize] += 1;
        while pool.reclaim_step().unwrap() {}
        pool.commit().unwrap();
        assert_sound(&*memory, &state.to_string());
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}
