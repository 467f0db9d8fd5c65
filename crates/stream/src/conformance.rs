//! Tests of [`Transfers`], for any store that has it.
//!
//! Each takes a way to make an empty store by a number that no other one has, and panics where the
//! store breaks the contract. [`all`] runs every one of them.

use crate::send::resumed;
use crate::{
    Error, ReceiveRequest, Received, SendRequest, Since, StreamTotals, Transfers, receive, send,
    verify_stream,
};
use marram_format::record::{Inode, InodeKind, Time};
use marram_format::stream::{Received as Progress, ResumeToken};
use marram_store::{Batch, Block, DatasetName, Item, Key, Properties, Source, View, kind};
use std::sync::Arc;

/// Makes an empty store.
pub type MakeStore<'a> = &'a dyn Fn(u8) -> Arc<dyn Transfers>;

/// More than lines can begin on lines.
const INCREMENTS: u64 = 300;

/// Runs every test of this module.
pub fn all(make: MakeStore<'_>) {
    snapshots_arrive_as_they_were(make);
    what_is_shared_stays_shared(make);
    altered_and_cut_streams_leave_nothing(make);
    streams_that_do_not_fit_are_refused(make);
    changed_datasets_go_back_by_force_alone(make);
    moved_access_times_are_no_change(make);
    properties_come_with_a_full_stream(make);
    what_is_received_is_sent_on(make);
    rests_of_streams_are_sent(make);
    many_increments_stay_readable(make);
}

fn source(text: &str) -> Source {
    text.parse().expect("a valid name")
}

fn section(object: u64, offset: u64) -> Key {
    Key::new(object, kind::SECTION, offset)
}

/// Content that differs from byte to byte and from seed to seed.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(|_| next()).collect()
}

fn apply(view: &dyn View, fill: impl FnOnce(&mut Batch<'_>)) {
    let mut batch = Batch::new();
    fill(&mut batch);
    view.apply(batch).expect("the batch applies");
}

fn put(view: &dyn View, key: Key, seed: u64, len: usize) {
    apply(view, |batch| {
        batch.put(key, Item::with_block(&b"value"[..], Block::fresh(bytes(seed, len))));
    });
}

fn open(store: &dyn Transfers, text: &str) -> Arc<dyn View> {
    store.open(&source(text)).expect("it opens")
}

/// The item of a file that was looked at then.
fn inode(accessed_seconds: i64, permissions: u16) -> Item {
    let none = Time::default();
    let inode = Inode {
        kind: InodeKind::Regular,
        permissions,
        links: 1,
        uid: 0,
        gid: 0,
        device: 0,
        flags: 0,
        size: 0,
        data_bytes: 0,
        reserved_bytes: 0,
        generation: 1,
        parent: 1,
        state: 0,
        project: 0,
        accessed: Time { seconds: accessed_seconds, ..none },
        modified: none,
        changed: none,
        created: none,
        name_place: 0,
    };
    Item::plain(inode.encode().to_vec())
}

/// Everything in a dataset or snapshot that streams speak of.
fn state(store: &dyn Transfers, text: &str) -> Vec<(Key, Vec<u8>, Option<Vec<u8>>)> {
    let view = open(store, text);
    let (mut items, mut found) = (Vec::new(), Vec::new());
    view.scan(Key::MIN, Key::MAX, &mut |key, item| {
        items.push((key, item.clone()));
        true
    })
    .expect("it is read");
    for (key, item) in items.into_iter().filter(|(key, _)| crate::reader::is_sent(key.kind)) {
        let block = item.block.map(|block| view.read_block(&block).expect("it is read").to_vec());
        found.push((key, item.value.to_vec(), block));
    }
    found
}

fn names(store: &dyn Transfers) -> Vec<String> {
    store.list().expect("listed").iter().map(|report| report.source.to_string()).collect()
}

fn sent(store: &dyn Transfers, snapshot: &str, base: Option<&str>) -> (Vec<u8>, StreamTotals) {
    let request = SendRequest { snapshot: source(snapshot), base: base.map(source), resume: None };
    let mut stream = Vec::new();
    let totals = send::send(store, &request, &mut stream, &mut |_| {}).expect("it is sent");
    let report = verify_stream(&mut &stream[..], &mut |_| {}).expect("it is whole");
    assert_eq!((report.totals, totals.stream_bytes), (totals, stream.len() as u64));
    (stream, totals)
}

fn take(store: &dyn Transfers, stream: &[u8], force: bool) -> Result<Received, Error> {
    let dataset: DatasetName = "copy".parse()?;
    let request = ReceiveRequest { dataset, force, resumable: false };
    receive::receive(store, &request, &mut &stream[..], &mut |_| {})?.publish()
}

/// Two stores, the first with a dataset `data` of two snapshots, and the streams of both.
fn prepared(make: MakeStore<'_>) -> ([Arc<dyn Transfers>; 2], [Vec<u8>; 2]) {
    let (from, to) = (make(1), make(2));
    let name: DatasetName = "data".parse().expect("valid");
    from.create(&name, &Properties::default()).expect("a dataset is made");
    let view = open(&*from, "data");
    for object in 2..40 {
        put(&*view, section(object, 0), object, 3000 + 500 * object as usize);
    }
    apply(&*view, |batch| {
        batch.put(Key::new(2, kind::XATTR, 7), Item::plain(&b"an attribute"[..]));
    });
    from.snapshot(&name, "a").expect("a snapshot is made");
    put(&*view, section(3, 0), 100, 70_000);
    put(&*view, section(50, 0), 101, 5);
    apply(&*view, |batch| {
        batch.remove(section(4, 0)).remove(section(5, 0));
    });
    from.snapshot(&name, "b").expect("a snapshot is made");
    let streams = [sent(&*from, "data@a", None).0, sent(&*from, "data@b", Some("data@a")).0];
    ([from, to], streams)
}

/// A full stream and one that goes on from it bring what was sent.
pub fn snapshots_arrive_as_they_were(make: MakeStore<'_>) {
    let ([from, to], [full, rest]) = prepared(make);
    let received = take(&*to, &full, false).expect("it is received");
    assert_eq!((received.snapshot, received.base), (source("copy@a"), None));
    assert_eq!(state(&*to, "copy@a"), state(&*from, "data@a"));
    assert_eq!(state(&*to, "copy"), state(&*from, "data@a"));
    let kept_open = open(&*to, "copy");
    let received = take(&*to, &rest, false).expect("it is received");
    assert_eq!((received.base, received.kept), (Some(source("copy@a")), None));
    assert_eq!((received.since, received.totals.removals), (Since::Nothing, 2));
    assert_eq!(state(&*to, "copy@b"), state(&*from, "data@b"));
    assert_eq!(state(&*to, "copy@a"), state(&*from, "data@a"), "the base stays");
    let item = kept_open.get(section(50, 0)).expect("it is read").expect("there is an item");
    let block = item.block.expect("it has a block");
    assert_eq!(kept_open.read_block(&block).expect("it is read")[..], bytes(101, 5)[..]);
    assert_eq!(names(&*to), ["copy", "copy@a", "copy@b", "root"]);
    put(&*kept_open, section(60, 0), 9, 10);
    assert_eq!(state(&*to, "copy@b"), state(&*from, "data@b"), "it goes on behind the snapshot");
}

/// A block that several items have comes once, and what the base has does not come again.
pub fn what_is_shared_stays_shared(make: MakeStore<'_>) {
    let (from, to) = (make(1), make(2));
    let name: DatasetName = "data".parse().expect("valid");
    from.create(&name, &Properties::default()).expect("a dataset is made");
    let view = open(&*from, "data");
    put(&*view, section(2, 0), 1, 50_000);
    from.sync().expect("the store syncs");
    let share = |key: Key| {
        let first = view.get(section(2, 0)).expect("it is read").expect("there is an item");
        apply(&*view, |batch| {
            batch.put(section(2, 0), first.clone()).put(key, first.clone());
        });
        from.sync().expect("the store syncs");
    };
    share(section(3, 0));
    from.snapshot(&name, "a").expect("a snapshot is made");
    share(section(4, 0));
    from.snapshot(&name, "b").expect("a snapshot is made");
    let (full, totals) = sent(&*from, "data@a", None);
    assert_eq!((totals.puts, totals.blocks), (2, 1), "the second names the first");
    let (rest, totals) = sent(&*from, "data@b", Some("data@a"));
    assert_eq!(totals.blocks, 0, "the base has the block");
    take(&*to, &full, false).expect("it is received");
    take(&*to, &rest, false).expect("it is received");
    assert_eq!(state(&*to, "copy@b"), state(&*from, "data@b"));
    to.sync().expect("the store syncs");
    let copy = open(&*to, "copy@b");
    let block = |object: u64| {
        let item = copy.get(section(object, 0)).expect("it is read").expect("there is an item");
        item.block.expect("it has a block")
    };
    assert!(block(2).same(&block(3)) && block(2).same(&block(4)));
}

/// Whatever is changed in a stream, or cut off, is found, and nothing is left.
pub fn altered_and_cut_streams_leave_nothing(make: MakeStore<'_>) {
    let ([_, to], [full, rest]) = prepared(make);
    let refuses = |stream: &[u8], what: String| {
        let before = names(&*to);
        let error = take(&*to, stream, false).expect_err("it is refused");
        assert!(matches!(error, Error::Stream(_)), "{what}: {error}");
        assert_eq!(names(&*to), before, "{what}");
    };
    let attack = |stream: &[u8]| {
        for eighth in 0..8 {
            let at = stream.len() * eighth / 8 + 17;
            let mut altered = stream.to_vec();
            altered[at] ^= 4;
            refuses(&altered, format!("a bit of byte {at} is another"));
            refuses(&stream[..at], format!("it is cut at {at}"));
        }
        refuses(&stream[..stream.len() - 1], "its last byte is missing".to_owned());
        refuses(&[stream, &[0]].concat(), "a byte follows".to_owned());
    };
    attack(&full);
    take(&*to, &full, false).expect("it is received");
    let before = state(&*to, "copy");
    attack(&rest);
    assert_eq!(state(&*to, "copy"), before);
    take(&*to, &rest, false).expect("it is received after all");
}

/// What is repeated, left out, or of another dataset is refused.
pub fn streams_that_do_not_fit_are_refused(make: MakeStore<'_>) {
    let ([from, to], [full, rest]) = prepared(make);
    let unfit = |stream: &[u8], word: &str| {
        let error = take(&*to, stream, true).expect_err("it is refused");
        assert!(matches!(&error, Error::Unfit(why) if why.contains(word)), "{error}");
    };
    unfit(&rest, "receive the full stream first");
    take(&*to, &full, false).expect("it is received");
    unfit(&full, "received before");
    to.destroy(&source("copy@a"), false).expect("it goes");
    unfit(&full, "exists");
    unfit(&rest, "has not the snapshot");
    let live = SendRequest { snapshot: source("data"), base: None, resume: None };
    let refused = send::send(&*from, &live, &mut Vec::new(), &mut |_| {});
    assert!(matches!(refused, Err(Error::Unfit(_))), "a dataset that changes is not sent");
    let base = Some(source("data@b"));
    let back = SendRequest { snapshot: source("data@a"), base, resume: None };
    let refused = send::send(&*from, &back, &mut Vec::new(), &mut |_| {});
    assert!(matches!(refused, Err(Error::Unfit(_))), "a base is older");
    assert_eq!(names(&*to), ["copy", "root"]);
}

/// A dataset that was changed since the base keeps its changes, or goes back by force and keeps
/// them as a snapshot.
pub fn changed_datasets_go_back_by_force_alone(make: MakeStore<'_>) {
    let ([from, to], [full, rest]) = prepared(make);
    take(&*to, &full, false).expect("it is received");
    let view = open(&*to, "copy");
    put(&*view, section(9, 0), 77, 900);
    put(&*view, section(70, 0), 78, 900);
    to.snapshot(&"copy".parse().expect("valid"), "own").expect("a snapshot is made");
    put(&*view, section(71, 0), 79, 900);
    let before = state(&*to, "copy");
    let error = take(&*to, &rest, false).expect_err("it is refused");
    assert!(matches!(&error, Error::Unfit(why) if why.contains("changed since")), "{error}");
    assert_eq!(names(&*to), ["copy", "copy@a", "copy@own", "root"]);
    let received = take(&*to, &rest, true).expect("it is received");
    assert_eq!(received.since, Since::Changed);
    let kept = received.kept.expect("what it was is kept").to_string();
    assert_eq!(state(&*to, &kept), before);
    assert_eq!(state(&*to, "copy"), state(&*from, "data@b"));
    assert_eq!(state(&*to, "copy@b"), state(&*from, "data@b"));
}

/// Reads on the receiver are in nobody's way, and what is received is what was sent.
pub fn moved_access_times_are_no_change(make: MakeStore<'_>) {
    let ([from, to], _) = prepared(make);
    let key = Key::new(2, kind::INODE, 0);
    let view = open(&*from, "data");
    apply(&*view, |batch| {
        batch.put(key, inode(1, 0o644));
    });
    let name = "data".parse().expect("valid");
    from.snapshot(&name, "c").expect("a snapshot is made");
    put(&*view, section(6, 0), 200, 4000);
    from.snapshot(&name, "d").expect("a snapshot is made");
    take(&*to, &sent(&*from, "data@c", None).0, false).expect("it is received");
    apply(&*open(&*to, "copy"), |batch| {
        batch.put(key, inode(5, 0o644));
    });
    let rest = sent(&*from, "data@d", Some("data@c")).0;
    let received = take(&*to, &rest, false).expect("it is received");
    assert_eq!((received.since, received.kept), (Since::Accessed, None));
    assert_eq!(state(&*to, "copy"), state(&*from, "data@d"));
    apply(&*open(&*to, "copy"), |batch| {
        batch.put(key, inode(5, 0o600));
    });
    assert_eq!(to.since(&source("copy@d")), Ok(Since::Changed), "rights are more than that");
}

/// The size of blocks goes with a dataset.
pub fn properties_come_with_a_full_stream(make: MakeStore<'_>) {
    let (from, to) = (make(1), make(2));
    let name: DatasetName = "data".parse().expect("valid");
    let small = Properties([("recordsize".to_owned(), "8192".to_owned())].into());
    from.create(&name, &small).expect("a dataset is made");
    from.snapshot(&name, "a").expect("a snapshot is made");
    take(&*to, &sent(&*from, "data@a", None).0, false).expect("it is received");
    let properties = to.properties(&"copy".parse().expect("valid")).expect("they are read");
    assert_eq!(properties["recordsize"].0, "8192");
}

/// What was received is the same snapshot as before: it can be sent on, and what comes straight
/// from its source goes on from it.
pub fn what_is_received_is_sent_on(make: MakeStore<'_>) {
    let ([from, middle], [full, rest]) = prepared(make);
    let to = make(3);
    take(&*middle, &full, false).expect("it is received");
    take(&*to, &sent(&*middle, "copy@a", None).0, false).expect("it is received");
    take(&*to, &rest, false).expect("what comes from the source goes on from it");
    assert_eq!(state(&*to, "copy@b"), state(&*from, "data@b"));
    middle.clone_snapshot(&source("copy@a"), &"other".parse().expect("valid")).expect("a clone");
    middle.snapshot(&"other".parse().expect("valid"), "mine").expect("a snapshot is made");
    let identity = |text: &str| middle.begin_of(&source(text)).expect("it is known").snapshot;
    assert_ne!(identity("other@mine"), identity("copy@a"), "a new snapshot is another");
    assert_eq!(middle.identified(identity("copy@a"), None), Ok(Some(source("copy@a"))));
}

/// A receiver of another kind that was cut gets the rest.
pub fn rests_of_streams_are_sent(make: MakeStore<'_>) {
    let ([from, to], _) = prepared(make);
    let snapshot = from.begin_of(&source("data@a")).expect("it is known").snapshot;
    let received = Progress::up_to(section(20, 0));
    let token = ResumeToken { snapshot, base: None, received };
    let request = resumed(&*from, token).expect("it is here");
    let mut rest = Vec::new();
    let totals = send::send(&*from, &request, &mut rest, &mut |_| {}).expect("it is sent");
    assert_eq!(totals.puts, 19, "those behind the last that has come");
    let report = verify_stream(&mut &rest[..], &mut |_| {}).expect("it is whole");
    assert_eq!(report.begin.after, Some(section(20, 0)));
    let error = take(&*to, &rest, false).expect_err("it is refused");
    assert!(matches!(&error, Error::Unfit(why) if why.contains("from its beginning")), "{error}");
    assert!(resumed(&*to, token).is_err(), "the snapshot is not there");
}

/// A dataset that receives for years is as quick to read as at first.
pub fn many_increments_stay_readable(make: MakeStore<'_>) {
    let ([from, to], [full, _]) = prepared(make);
    take(&*to, &full, false).expect("it is received");
    let (view, name) = (open(&*from, "data"), "data".parse().expect("valid"));
    let mut before = "data@a".to_owned();
    for round in 0..INCREMENTS {
        put(&*view, section(2, round % 7), round, 100);
        let after = format!("day-{round}");
        from.snapshot(&name, &after).expect("a snapshot is made");
        let after = format!("data@{after}");
        take(&*to, &sent(&*from, &after, Some(&before)).0, false).expect("it is received");
        before = after;
    }
    assert_eq!(state(&*to, "copy"), state(&*from, &before));
}
