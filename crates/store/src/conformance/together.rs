//! Two clients that have one store open at the same time.

use super::{bytes, content, fresh, live, root, section, value};
use crate::{Batch, Counter, DatasetName, Error, Item, Key, Moment, Result, Source, Store, View};
use std::sync::Arc;
use std::thread;

/// Makes an empty store, and opens it twice.
pub type OpenTwice<'a> = &'a dyn Fn() -> [Arc<dyn Store>; 2];

/// Additions of each of two threads.
const ADDITIONS: i64 = 40;

/// Runs every test of this module.
pub fn together(open: OpenTwice<'_>) {
    what_one_applies_the_other_sees(open);
    overtaken_batches_change_nothing(open);
    batches_that_name_no_moment_are_refused(open);
    own_changes_leave_the_moment(open);
    one_of_two_that_make_a_name_wins(open);
    counters_add_up_between_clients(open);
    datasets_are_made_by_one_and_seen_by_both(open);
}

/// Two clients of one store, and the view that each has of its one dataset.
type Both = ([Arc<dyn Store>; 2], [Arc<dyn View>; 2]);

fn views(open: OpenTwice<'_>) -> Both {
    let stores = open();
    let views = [root(&stores[0]), root(&stores[1])];
    (stores, views)
}

fn look(view: &dyn View) -> Moment {
    let together = view.capabilities().together.expect("others can have the store open");
    assert!(together.is_shared(), "another client has it open");
    together.look().expect("the log is read")
}

fn put_at(view: &dyn View, seen: Option<Moment>, key: Key, item: Item) -> Result<()> {
    let mut batch = Batch { seen, ..Batch::new() };
    batch.put(key, item);
    view.apply(batch)
}

/// A batch that has been applied is seen by every look that begins afterwards, with its blocks.
pub fn what_one_applies_the_other_sees(open: OpenTwice<'_>) {
    let (_stores, [here, there]) = views(open);
    let key = section(2, 0);
    for round in 0..4_u64 {
        let (by, other) = if round % 2 == 0 { (&here, &there) } else { (&there, &here) };
        let seen = look(&**by);
        let item = fresh(b"v", bytes(round, 5000));
        put_at(&**by, Some(seen), key, item).expect("nobody came between");
        look(&**other);
        assert_eq!(content(&**other, key), bytes(round, 5000));
        assert_eq!(content(&**by, key), bytes(round, 5000));
    }
    let mut batch = Batch { seen: Some(look(&*here)), ..Batch::new() };
    batch.remove(key);
    here.apply(batch).expect("nobody came between");
    look(&*there);
    assert_eq!(value(&*there, key), None);
}

/// What others have changed since the moment that a batch names makes it fail, wholly.
pub fn overtaken_batches_change_nothing(open: OpenTwice<'_>) {
    let (_stores, [here, there]) = views(open);
    let (old, seen) = (look(&*here), look(&*there));
    put_at(&*there, Some(seen), section(2, 0), Item::plain(b"there".as_slice())).expect("first");
    let mut batch = Batch { seen: Some(old), ..Batch::new() };
    batch.put(section(2, 0), Item::plain(b"here".as_slice()));
    batch.put(section(3, 0), Item::plain(b"here".as_slice()));
    assert_eq!(here.apply(batch), Err(Error::Overtaken));
    let seen = look(&*here);
    assert_ne!(seen, old, "others have changed it");
    assert_eq!(value(&*here, section(2, 0)).as_deref(), Some(&b"there"[..]));
    assert_eq!(value(&*here, section(3, 0)), None);
    put_at(&*here, Some(seen), section(2, 0), Item::plain(b"anew".as_slice())).expect("anew");
    look(&*there);
    assert_eq!(value(&*there, section(2, 0)).as_deref(), Some(&b"anew"[..]));
}

/// A batch of a caller that knows nothing of others could undo what they have done.
pub fn batches_that_name_no_moment_are_refused(open: OpenTwice<'_>) {
    let (_stores, [here, _there]) = views(open);
    let refused = put_at(&*here, None, section(2, 0), Item::plain(b"v".as_slice()));
    assert_eq!(refused, Err(Error::Overtaken));
    assert_eq!(value(&*here, section(2, 0)), None);
}

/// Operations of one client beside each other do not overtake each other.
pub fn own_changes_leave_the_moment(open: OpenTwice<'_>) {
    let (_stores, [here, _there]) = views(open);
    let seen = look(&*here);
    for object in 2..5 {
        put_at(&*here, Some(seen), section(object, 0), Item::plain(b"v".as_slice()))
            .expect("nobody else has changed it");
    }
    assert_eq!(look(&*here), seen);
}

/// Of two that put a name that was free exactly one puts it, and the other sees whose it is.
pub fn one_of_two_that_make_a_name_wins(open: OpenTwice<'_>) {
    let (_stores, views) = views(open);
    for object in 2..12_u64 {
        let make = |number: usize| {
            let view = &*views[number];
            loop {
                let seen = look(view);
                if let Some(owner) = value(view, section(object, 0)) {
                    return usize::from(owner[0]);
                }
                let item = Item::plain(vec![u8::try_from(number).expect("one of two")]);
                match put_at(view, Some(seen), section(object, 0), item) {
                    Ok(()) => return number,
                    Err(Error::Overtaken) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let owners = thread::scope(|scope| {
            let threads = [0, 1].map(|number| scope.spawn(move || make(number)));
            threads.map(|thread| thread.join().expect("it does not panic"))
        });
        assert_eq!(owners[0], owners[1], "both name the same owner of {object}");
    }
}

/// What both add to a counter is all in it.
pub fn counters_add_up_between_clients(open: OpenTwice<'_>) {
    let (_stores, views) = views(open);
    let key = Key::new(0, crate::kind::USAGE, 7);
    let add = |view: &dyn View| {
        for _ in 0..ADDITIONS {
            loop {
                let mut batch = Batch { seen: Some(look(view)), ..Batch::new() };
                batch.add(key, Counter([1, 2]), Counter::UNLIMITED);
                match view.apply(batch) {
                    Ok(()) => break,
                    Err(Error::Overtaken) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    thread::scope(|scope| views.iter().for_each(|view| drop(scope.spawn(|| add(&**view)))));
    for view in &views {
        look(&**view);
        let sums = value(&**view, key).expect("there is a counter");
        assert_eq!(Counter::decode(&sums), Some(Counter([2 * ADDITIONS, 4 * ADDITIONS])));
    }
}

/// Snapshots and forks of one client are there for the other, and keep their moment.
pub fn datasets_are_made_by_one_and_seen_by_both(open: OpenTwice<'_>) {
    let ([first, second], [here, there]) = views(open);
    put_at(&*here, Some(look(&*here)), section(2, 0), Item::plain(b"1".as_slice())).expect("put");
    second.snapshot(&DatasetName::root(), "s").expect("the snapshot is taken");
    put_at(&*here, Some(look(&*here)), section(2, 0), Item::plain(b"2".as_slice())).expect("put");
    let fork: DatasetName = "fork".parse().expect("a name");
    first.fork(&DatasetName::root(), &fork, 1).expect("the fork is made");
    put_at(&*there, Some(look(&*there)), section(2, 0), Item::plain(b"3".as_slice())).expect("put");
    let of = |store: &Arc<dyn Store>, source: &Source| {
        value(&*store.open(source).expect("it opens"), section(2, 0))
    };
    let sources: [(Source, &[u8]); 3] =
        [("root@s".parse().expect("a name"), b"1"), (live("fork"), b"2"), (live("root"), b"3")];
    for store in [&first, &second] {
        for (source, expected) in &sources {
            assert_eq!(of(store, source).as_deref(), Some(*expected), "{source}");
        }
    }
    let twice = first.snapshot(&DatasetName::root(), "s");
    assert!(matches!(twice, Err(Error::DatasetExists(_))), "{twice:?}");
}
