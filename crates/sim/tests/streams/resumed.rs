//! Streams that are cut and go on: what has come is kept, what comes later is the rest of it, and
//! what arrives in the end is what was sent, with all that it shared.

use super::*;
use marram_pool::{Partial, ResumeToken};

/// Keys of a dataset whose stream has many batches.
const OBJECTS: u64 = 60;
const SECTIONS: u64 = 80;

/// States of a power cut that are looked at, of thousands.
const STATES: usize = 30;

fn many_changes(random: &mut Random, pool: &Pool, count: u64) {
    let view = pool.open(&source("root")).unwrap();
    let place = |random: &mut Random| {
        Key::new(random.below(OBJECTS) + 2, kind::SECTION, random.below(SECTIONS) * 4096)
    };
    for _ in 0..count {
        let mut batch = Batch::new();
        let keys: BTreeSet<Key> = (0..random.below(40) + 1).map(|_| place(random)).collect();
        for key in keys {
            match random.below(10) {
                0 => batch.remove(key),
                1 => batch.put(key, Item::plain(random.below(99).to_le_bytes().to_vec())),
                _ => {
                    let len = [20, 3000][random.below(2) as usize];
                    let content = (0..len).map(|_| random.below(9) as u8).collect();
                    batch.put(key, Item::with_block(vec![1], Block::fresh(content)))
                }
            };
        }
        view.apply(batch).unwrap();
        let (one, other) = (place(random), place(random));
        if let Some(item) = view.get(one).unwrap().filter(|_| one != other) {
            let mut batch = Batch::new();
            batch.put(one, item.clone()).put(other, Item { value: vec![2].into(), ..item });
            view.apply(batch).unwrap();
        }
    }
    pool.commit().unwrap();
}

/// A pool with the snapshots `a` and `b`, and the streams of both.
fn sender() -> (Arc<Pool>, Vec<u8>, Vec<u8>) {
    let mut random = Random::new(11);
    let (_, from) = pool(1, &[("compression", "zstd")]);
    many_changes(&mut random, &from, 400);
    from.snapshot(&"root".parse().unwrap(), "a").unwrap();
    many_changes(&mut random, &from, 150);
    from.snapshot(&"root".parse().unwrap(), "b").unwrap();
    let (full, increment) = (send(&from, "root@a", None), send(&from, "root@b", Some("root@a")));
    (from, full, increment)
}

fn receive_part(pool: &Pool, name: &str, stream: &[u8]) -> Result<Received, Error> {
    let dataset = name.parse().unwrap();
    let request = ReceiveRequest { dataset, force: false, resumable: true };
    pool.receive(&request, &mut &stream[..], &mut |_| {})?.publish()
}

fn part_of(pool: &Pool, name: &str) -> Option<Partial> {
    let partials = pool.partials().unwrap();
    partials.into_iter().find(|partial| partial.snapshot.dataset.as_str() == name)
}

fn send_rest(pool: &Pool, token: &ResumeToken) -> Result<Vec<u8>, Error> {
    // As people hand it on.
    let token = ResumeToken::parse(&token.text()).unwrap();
    let (snapshot, base) = pool.named_by(&token)?;
    let request = SendRequest { snapshot, base, resume: Some(token) };
    let mut stream = Vec::new();
    pool.send(&request, &mut stream, &mut |_| {})?;
    marram_pool::verify_stream(&mut &stream[..], &mut |_| {}).unwrap();
    Ok(stream)
}

/// Receives a stream that is cut after these shares of what there is still to come.
fn receive_in_parts(from: &Pool, to: &Pool, stream: &[u8], shares: &[f64]) -> Received {
    let (mut rest, mut before) = (stream.to_vec(), 0);
    for share in shares {
        let cut = (rest.len() as f64 * share) as usize;
        let error = receive_part(to, "copy", &rest[..cut]).unwrap_err();
        assert!(matches!(error, Error::Stream(_)), "{error}");
        let partial = part_of(to, "copy").unwrap();
        let token = partial.token().unwrap();
        assert!(!partial.is_running && token.received.puts >= before, "{partial:?}");
        before = token.received.puts;
        rest = send_rest(from, &token).unwrap();
        assert!(rest.len() < stream.len(), "nothing is sent twice");
    }
    let received = receive_part(to, "copy", &rest).unwrap();
    assert_eq!(to.partials().unwrap().len(), 0);
    received
}

#[test]
fn a_stream_that_is_cut_again_and_again_arrives_whole() {
    let (from, full, increment) = sender();
    for shares in [&[0.5][..], &[0.999], &[0.2, 0.3, 0.9], &[0.7, 0.0001, 0.5]] {
        let (device, to) = pool(2, &[]);
        let totals = receive_in_parts(&from, &to, &full, shares).totals;
        assert_eq!(read(&to, "copy@a"), read(&from, "root@a"), "{shares:?}");
        assert_eq!(totals.puts, read(&from, "root@a").items.len() as u64, "all parts count");
        receive_in_parts(&from, &to, &increment, shares);
        for name in ["copy@b", "copy"] {
            assert_eq!(read(&to, name), read(&from, "root@b"), "{shares:?}");
        }
        let properties = to.properties(&"copy".parse().unwrap()).unwrap();
        assert_eq!(properties["compression"].0, "zstd:3");
        while to.reclaim_step().unwrap() {}
        to.commit().unwrap();
        assert_sound(&*device, &format!("{shares:?}"));
        // Streams that go on from it still fit.
        many_changes(&mut Random::new(3), &from, 5);
        from.snapshot(&"root".parse().unwrap(), "c").unwrap();
        receive(&to, "copy", &send(&from, "root@c", Some("root@b")));
        assert_eq!(read(&to, "copy"), read(&from, "root@c"));
        from.destroy(&source("root@c"), false).unwrap();
    }
}

#[test]
fn another_pool_that_has_the_snapshot_sends_the_rest() {
    let (from, full, increment) = sender();
    let (_, second) = pool(2, &[]);
    receive(&second, "backup", &full);
    receive(&second, "backup", &increment);
    let (_, to) = pool(3, &[]);
    receive(&to, "copy", &full);
    receive_part(&to, "copy", &increment[..increment.len() / 2]).unwrap_err();
    let token = part_of(&to, "copy").unwrap().token().unwrap();
    receive_part(&to, "copy", &send_rest(&second, &token).unwrap()).unwrap();
    assert_eq!(read(&to, "copy"), read(&from, "root@b"));
}

#[test]
fn what_was_altered_is_not_kept_and_what_came_before_it_is() {
    let (from, full, _) = sender();
    let (_, to) = pool(2, &[]);
    let mut altered = full.clone();
    altered[full.len() / 2] ^= 1;
    receive_part(&to, "copy", &altered).unwrap_err();
    let token = part_of(&to, "copy").unwrap().token().unwrap();
    let mut rest = send_rest(&from, &token).unwrap();
    rest[full.len() / 4] ^= 1;
    receive_part(&to, "copy", &rest).unwrap_err();
    let later = part_of(&to, "copy").unwrap().token().unwrap();
    assert!(later.received.after > token.received.after);
    receive_part(&to, "copy", &send_rest(&from, &later).unwrap()).unwrap();
    assert_eq!(read(&to, "copy"), read(&from, "root@a"));
}

#[test]
fn a_rest_that_does_not_fit_is_refused_and_changes_nothing() {
    let (from, full, increment) = sender();
    let (_, to) = pool(2, &[]);
    let nothing = to.partials().unwrap().len();
    receive_part(&to, "copy", &full[..20]).unwrap_err();
    assert_eq!((names(&to), nothing), (vec!["root".to_owned()], 0), "nothing has come");
    receive_part(&to, "copy", &full[..full.len() / 3]).unwrap_err();
    let early = part_of(&to, "copy").unwrap().token().unwrap();
    let refuses = |name: &str, stream: &[u8], words: &str| {
        let before = (names(&to), part_of(&to, "copy").map(|partial| partial.token()));
        let error = receive_part(&to, name, stream).unwrap_err();
        assert!(matches!(error, Error::Unfit(_)), "{error}");
        assert!(error.to_string().contains(words), "{words:?} is not in: {error}");
        let after = (names(&to), part_of(&to, "copy").map(|partial| partial.token()));
        assert_eq!(before, after);
    };
    refuses("copy", &full, "a part of copy@a has been received");
    let rest = send_rest(&from, &early).unwrap();
    refuses("other", &rest, "nothing of other@a has been received");
    receive_part(&to, "copy", &rest[..rest.len() / 3]).unwrap_err();
    refuses("copy", &rest, "does not go on where copy@a was cut");
    let (_, stranger) = pool(7, &[]);
    many_changes(&mut Random::new(8), &stranger, 3);
    stranger.snapshot(&"root".parse().unwrap(), "a").unwrap();
    let begun = part_of(&to, "copy").unwrap().token().unwrap();
    assert!(matches!(send_rest(&stranger, &begun), Err(Error::Unfit(_))));
    let identity = send_identity(&stranger, "root@a");
    let foreign = ResumeToken { snapshot: identity, ..begun };
    refuses("copy", &send_rest(&stranger, &foreign).unwrap(), "the rest of another one");

    // The base of an incremental one is needed until it is whole.
    let other = receive_in_parts(&from, &to, &full_of_other(&to, &full), &[]);
    assert_eq!(other.snapshot.to_string(), "copy@a");
    receive_part(&to, "copy", &increment[..increment.len() / 2]).unwrap_err();
    assert!(to.destroy(&source("copy@a"), false).is_err());
    let token = part_of(&to, "copy").unwrap().token().unwrap();
    from.destroy(&source("root@a"), false).unwrap();
    let error = send_rest(&from, &token).unwrap_err();
    assert!(error.to_string().contains("goes on from: it was destroyed"), "{error}");
    to.drop_partial(&"copy".parse().unwrap()).unwrap();
    to.destroy(&source("copy@a"), false).unwrap();
}

/// The identity of a snapshot, as its stream has it.
fn send_identity(pool: &Pool, name: &str) -> marram_format::stream::SnapshotIdentity {
    let stream = send(pool, name, None);
    marram_pool::verify_stream(&mut &stream[..], &mut |_| {}).unwrap().begin.snapshot
}

/// Drops what is there of `copy`, so that a stream begins anew.
fn full_of_other(to: &Pool, full: &[u8]) -> Vec<u8> {
    to.drop_partial(&"copy".parse().unwrap()).unwrap();
    full.to_vec()
}

#[test]
fn what_is_dropped_gives_its_space_back() {
    let (_, full, increment) = sender();
    let (device, to) = pool(2, &[]);
    let settle = || {
        while to.reclaim_step().unwrap() {}
        to.commit().unwrap();
        to.status().allocated_bytes
    };
    let rounds = [("first", &full), ("second", &increment)];
    for (round, stream) in rounds {
        if round == "second" {
            receive(&to, "copy", &full);
        }
        let before = settle();
        receive_part(&to, "copy", &stream[..stream.len() - 40]).unwrap_err();
        let partial = part_of(&to, "copy").unwrap();
        assert!(partial.referenced_bytes > 100_000, "{partial:?}");
        let during = settle();
        assert!(during > before + 100_000, "{before} to {during} bytes");
        let error = to.drop_partial(&"other".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("nothing of a stream"), "{error}");
        to.drop_partial(&"copy".parse().unwrap()).unwrap();
        let after = settle();
        // But for a few nodes of the pool's own tree.
        assert!(after < before + (64 << 10), "{before} to {after} bytes");
        assert_sound(&*device, round);
    }
}

#[test]
fn a_change_while_it_was_cut_is_found_and_set_aside_only_by_force() {
    let (from, full, increment) = sender();
    let (device, to) = pool(2, &[]);
    receive(&to, "copy", &full);
    receive_part(&to, "copy", &increment[..increment.len() / 2]).unwrap_err();
    let view = to.open(&source("copy")).unwrap();
    let mut batch = Batch::new();
    batch.put(Key::new(999, kind::SECTION, 0), Item::plain(vec![1]));
    view.apply(batch).unwrap();
    let token = part_of(&to, "copy").unwrap().token().unwrap();
    let rest = send_rest(&from, &token).unwrap();
    let error = receive_part(&to, "copy", &rest).unwrap_err();
    assert!(error.to_string().contains("has been changed since copy@a"), "{error}");
    let request =
        ReceiveRequest { dataset: "copy".parse().unwrap(), force: true, resumable: false };
    let incoming = to.receive(&request, &mut &rest[..], &mut |_| {}).unwrap();
    let received = incoming.publish().unwrap();
    assert!(received.kept.is_some());
    assert_eq!(read(&to, "copy"), read(&from, "root@b"));
    drop(view);
    to.commit().unwrap();
    assert_sound(&*device, "after force");
}

/// Whenever the power goes, there is a part to go on from, or all of it, or nothing yet.
#[test]
fn a_power_cut_leaves_a_part_that_goes_on_or_the_whole() {
    let (from, full, increment) = sender();
    let device = Arc::new(RecordingDevice::in_memory(empty_pool(2, SMALL_POOL_BYTES, &[])));
    let to = open(device.clone());
    receive_part(&to, "copy", &full).unwrap();
    device.mark(1);
    receive_part(&to, "copy", &increment[..increment.len() * 2 / 3]).unwrap_err();
    let cut = part_of(&to, "copy").unwrap().token().unwrap();
    device.mark(2);
    receive_part(&to, "copy", &send_rest(&from, &cut).unwrap()).unwrap();
    device.mark(3);
    let expected = [read(&from, "root@a"), read(&from, "root@b")];
    let trace = device.trace();
    let every: Vec<CrashState> = trace.prefixes().chain(trace.subsets(1)).collect();
    let step = (every.len() / STATES).max(1);
    let states: Vec<CrashState> =
        every.into_iter().step_by(step).chain(trace.seeded(1, 10)).collect();
    let mut went_on = [0; 2];
    for state in states {
        let memory = Arc::new(MemoryDevice::from_bytes(trace.image(state)));
        let pool = open(memory.clone());
        marram_history::destroy_leftovers(&*pool).unwrap();
        pool.drop_empty_partials().unwrap();
        let mark = trace.last_mark(state.cut).unwrap_or(0);
        let there = |name: &str| names(&pool).iter().any(|one| one == name);
        let part = part_of(&pool, "copy").map(|partial| partial.token().unwrap());
        assert!(mark < 1 || there("copy@a"), "{state}");
        assert!(mark < 3 || there("copy@b"), "{state}");
        if mark == 2 && !there("copy@b") {
            let part = part.as_ref().unwrap_or_else(|| panic!("{state}: nothing is kept"));
            assert!(part.received.after >= cut.received.after, "{state}");
        }
        for stream in [&full, &increment].into_iter().enumerate() {
            let (at, name) = (stream.0, ["copy@a", "copy@b"][stream.0]);
            let rest = part_of(&pool, "copy").filter(|part| part.snapshot == source(name));
            match rest.map(|part| send_rest(&from, &part.token().unwrap()).unwrap()) {
                Some(rest) => {
                    went_on[at] += 1;
                    receive_part(&pool, "copy", &rest).unwrap();
                }
                None if !there(name) => drop(receive_part(&pool, "copy", stream.1).unwrap()),
                None => (),
            }
            assert_eq!(read(&pool, name), expected[at], "{state}");
        }
        while pool.reclaim_step().unwrap() {}
        pool.commit().unwrap();
        assert_eq!(pool.partials().unwrap().len(), 0, "{state}");
        assert_sound(&*memory, &state.to_string());
    }
    assert!(went_on.iter().all(|count| *count > 3), "{went_on:?}");
}
