//! Counters: what is added to them, from several threads, and up to where.

use super::{MakeStore, put, root, value};
use crate::{Batch, Counter, Error, Item, Key, Result, Store, View, kind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn counter(offset: u64) -> Key {
    Key::new(0, kind::USAGE, offset)
}

fn add(view: &dyn View, key: Key, by: [i64; 2], at_most: [i64; 2]) -> Result<()> {
    let mut batch = Batch::new();
    batch.add(key, Counter(by), Counter(at_most));
    view.apply(batch)
}

fn sums(view: &dyn View, key: Key) -> Option<[i64; 2]> {
    value(view, key).map(|value| Counter::decode(&value).expect("a counter").0)
}

/// Counters begin as zeros, add up over syncs, and go when they are zeros again.
pub fn counters_add_up(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    let none = Counter::UNLIMITED.0;
    let mut expected = [0, 0];
    for round in 0..20 {
        let by = [4096 * (round - 3), round % 2];
        add(&*view, counter(1), by, none).expect("it is added");
        expected = [expected[0] + by[0], expected[1] + by[1]];
        let shown = (expected != [0, 0]).then_some(expected);
        assert_eq!(sums(&*view, counter(1)), shown);
        if round % 5 == 4 {
            view.sync().expect("the view syncs");
            assert_eq!(sums(&*view, counter(1)), shown);
        }
    }
    add(&*view, counter(1), expected.map(|sum| -sum), none).expect("it is taken away");
    assert_eq!(sums(&*view, counter(1)), None, "a counter of zeros is no item");
    view.sync().expect("the view syncs");
    assert_eq!(sums(&*view, counter(1)), None);
    put(&*view, counter(2), Item::plain(Counter([7, 8]).encode().expect("not zeros")));
    add(&*view, counter(2), [1, -8], none).expect("it is added to what was put");
    assert_eq!(sums(&*view, counter(2)), Some([8, 0]));
}

/// A counter that would grow past its limit refuses the whole batch; one that shrinks does not.
pub fn counters_keep_their_limits(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    for synced in [false, true] {
        add(&*view, counter(1), [100, 1], [100, 1]).expect("up to the limit");
        if synced {
            view.sync().expect("the view syncs");
        }
        let mut batch = Batch::new();
        batch.put(counter(3), Item::plain(&b"beside"[..]));
        batch.add(counter(2), Counter([5, 5]), Counter::UNLIMITED);
        batch.add(counter(1), Counter([0, 1]), Counter([100, 1]));
        let refused = view.apply(batch);
        assert!(matches!(refused, Err(Error::LimitExceeded(_))), "{refused:?}");
        assert_eq!(value(&*view, counter(3)), None, "nothing of the batch was applied");
        assert_eq!(sums(&*view, counter(2)), None);
        add(&*view, counter(1), [-10, 0], [50, 0]).expect("above the limit it may shrink");
        let grown = add(&*view, counter(1), [1, 0], [50, 5]);
        assert!(matches!(grown, Err(Error::LimitExceeded(_))), "{grown:?}");
        let beyond = add(&*view, counter(1), [i64::MAX, 0], Counter::UNLIMITED.0);
        assert!(matches!(beyond, Err(Error::LimitExceeded(_))), "{beyond:?}");
        assert_eq!(sums(&*view, counter(1)), Some([90, 1]));
        add(&*view, counter(1), [-90, -1], [0, 0]).expect("it is taken away");
    }
}

const ADDITIONS: i64 = 300;

/// What threads add at the same time, also while others sync, is all there in the end.
pub fn counters_lose_nothing_to_threads(make: MakeStore<'_>) {
    let store: Arc<dyn Store> = make();
    let view = root(&store);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let adding: Vec<_> = (0..3)
            .map(|thread| {
                let view = Arc::clone(&view);
                scope.spawn(move || {
                    for _ in 0..ADDITIONS {
                        add(&*view, counter(1), [thread, 1], Counter::UNLIMITED.0)
                            .expect("it is added");
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                view.sync().expect("the view syncs");
            }
        });
        adding.into_iter().for_each(|thread| thread.join().expect("the thread ends well"));
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(sums(&*view, counter(1)), Some([3 * ADDITIONS, 3 * ADDITIONS]));
}
