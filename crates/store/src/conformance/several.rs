//! Several datasets at one moment: forks that begin together, and merges that are one step.

use super::{MakeStore, is_absent, live, put, section, value};
use crate::{
    Batch, Counter, DatasetName, Error, ForkBegin, Item, Key, MergeInto, MergedFrom, Properties,
    Result, Source, Store, View, kind,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Rounds beside another thread.
const ROUNDS: u8 = 40;
/// How often a merge is tried again that is refused because something has come between.
const TRIES_MAX: u32 = 1000;

/// Has the other thread of a test end, also where this one panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The two datasets of a test.
struct Pair {
    store: Arc<dyn Store>,
    names: [DatasetName; 2],
}

/// The forks of both, of the transaction of this id.
fn forks_of(id: &str) -> [DatasetName; 2] {
    [0, 1].map(|place| DatasetName::of_transaction_at(id, place).expect("a valid id"))
}

impl Pair {
    fn new(make: MakeStore<'_>) -> Pair {
        let (store, other) = (make(), "other".parse().expect("a valid name"));
        store.create(&other, &Properties::default()).expect("it is made");
        let pair = Pair { store, names: [DatasetName::root(), other] };
        pair.views().iter().for_each(|view| put(&**view, section(2, 0), number(0)));
        pair
    }

    fn open(&self, names: &[DatasetName; 2]) -> [Arc<dyn View>; 2] {
        names.each_ref().map(|name| self.store.open(&Source::live(name.clone())).expect("it opens"))
    }

    fn views(&self) -> [Arc<dyn View>; 2] {
        self.open(&self.names)
    }

    fn begin(&self, forks: &[DatasetName; 2]) -> Result<()> {
        let begin = |(dataset, name)| ForkBegin { dataset, name, root_object: 1 };
        let all: Vec<ForkBegin<'_>> = self.names.iter().zip(forks).map(begin).collect();
        self.store.begin_forks(&all)
    }

    fn end(&self, forks: &[DatasetName; 2]) {
        forks.iter().for_each(|fork| self.store.end_fork(fork).expect("it ends"));
    }

    /// Puts the item of both forks into both datasets, and adds to a counter of the second up to a
    /// limit.
    fn merge(&self, forks: &[DatasetName; 2], at_most: i64) -> Result<()> {
        let (into, from) = (self.views(), self.open(forks));
        let sources = forks.each_ref().map(|fork| Source::live(fork.clone()));
        let read = forks
            .each_ref()
            .map(|fork| self.store.ephemeral_snapshot(fork, "merge").expect("its state is kept"));
        let merged = [0, 1].map(|at: usize| MergedFrom {
            dataset: &self.names[at],
            fork: &sources[at],
            read: &read[at],
            keep: None,
            root_object: 1,
            base: None,
            moves_base: false,
            may_wait: false,
        });
        let merge = |at: usize| {
            let mut batch = Batch::new();
            let item = from[at].get(section(2, 0)).expect("it is read").expect("there is one");
            batch.put(section(2, 0), item);
            if at == 1 {
                let most = Counter([at_most, 0]);
                batch.add(Key::new(0, kind::USAGE, 1), Counter([1, 0]), most);
            }
            MergeInto { view: &*into[at], batch, merged: &merged[at] }
        };
        let done = self.store.apply_merges(vec![merge(0), merge(1)]);
        read.iter().for_each(|read| self.store.discard_snapshot(read));
        done
    }

    fn values(&self, names: &[DatasetName; 2]) -> [u8; 2] {
        self.open(names).each_ref().map(|view| value(&**view, section(2, 0)).expect("there is")[0])
    }
}

fn number(number: u8) -> Item {
    Item::plain(vec![number])
}

/// Without the capability what is asked for is refused, and nothing is changed.
pub fn several_datasets_are_refused_without_the_capability(make: MakeStore<'_>) {
    let pair = Pair::new(make);
    if pair.store.capabilities().several.is_some() {
        return;
    }
    let forks = forks_of("a");
    assert!(is_absent(pair.begin(&forks)));
    assert!(pair.store.report(&Source::live(forks[0].clone())).is_err(), "none has begun");
    let name: DatasetName = "fork".parse().expect("a valid name");
    pair.store.fork(&pair.names[0], &name, 1).expect("a fork is made");
    let view = pair.store.open(&live("fork")).expect("it opens");
    put(&*view, section(2, 0), number(7));
    assert!(is_absent(pair.merge(&[name.clone(), name], 9)));
    assert_eq!(pair.values(&pair.names), [0, 0]);
}

/// Forks of several datasets begin at one moment, all or none.
pub fn forks_of_several_datasets_begin_at_one_moment(make: MakeStore<'_>) {
    let pair = Pair::new(make);
    if pair.store.capabilities().several.is_none() {
        return;
    }
    let first = forks_of("a");
    pair.store.begin_fork(&pair.names[1], &first[1], 1).expect("one begins");
    let refused = pair.begin(&first);
    assert!(matches!(refused, Err(Error::DatasetExists(_))), "{refused:?}");
    assert!(pair.store.report(&Source::live(first[0].clone())).is_err(), "none has begun");
    pair.store.end_fork(&first[1]).expect("it ends");
    let twice = ForkBegin { dataset: &pair.names[0], name: &first[0], root_object: 1 };
    let refused = pair.store.begin_forks(&[twice, ForkBegin { name: &first[1], ..twice }]);
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    // The first dataset is always written before the second.
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (views, mut round) = (pair.views(), 0_u8);
            while !is_over.load(Ordering::Acquire) {
                round = round % 100 + 1;
                views.iter().for_each(|view| put(&**view, section(2, 0), number(round)));
            }
        });
        let _over = Over(&is_over);
        for round in 0..ROUNDS {
            let forks = forks_of(&round.to_string());
            pair.begin(&forks).expect("both begin");
            let [first, second] = pair.values(&forks);
            let is_one_moment = first == second || first == second % 100 + 1;
            if round % 8 == 0 {
                pair.store.sync().expect("the store syncs");
            }
            assert_eq!(pair.values(&forks), [first, second], "both stay as they are");
            pair.end(&forks);
            assert!(is_one_moment, "{first} in the one, {second} in the other");
        }
    });
}

/// Merges into several datasets are applied at one moment, all or none.
pub fn merges_into_several_datasets_are_one_step(make: MakeStore<'_>) {
    let pair = Pair::new(make);
    if pair.store.capabilities().several.is_none() {
        return;
    }
    let merge = |id: &str, round: u8, at_most: i64| {
        let forks = forks_of(id);
        pair.begin(&forks).expect("both begin");
        for view in pair.open(&forks) {
            put(&*view, section(2, 0), number(round));
        }
        let done = pair.merge(&forks, at_most);
        pair.end(&forks);
        done
    };
    let refused = merge("a", 1, 0);
    assert!(matches!(refused, Err(Error::LimitExceeded(_))), "{refused:?}");
    assert_eq!(pair.values(&pair.names), [0, 0], "what is refused in one is in none");
    pair.store.sync().expect("the store syncs");
    assert_eq!(pair.values(&pair.names), [0, 0], "nor is it later");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let mut looks = 0_u32;
            while !is_over.load(Ordering::Acquire) {
                let forks = forks_of(&format!("look-{looks}"));
                pair.begin(&forks).expect("both begin");
                let [first, second] = pair.values(&forks);
                pair.end(&forks);
                looks += 1;
                assert_eq!(first, second, "one moment has the one without the other");
            }
        });
        let over = Over(&is_over);
        for round in 1..=ROUNDS {
            // Forks that come and go may be in the way of one.
            let mut tries = (0..TRIES_MAX).map(|_| merge(&round.to_string(), round, i64::MAX));
            let done = tries.find(|done| !matches!(done, Err(Error::InUse { .. })));
            done.expect("it is not refused for ever").expect("both are merged");
        }
        drop(over);
        looker.join().expect("each look was of one moment");
    });
    assert_eq!(pair.values(&pair.names), [ROUNDS, ROUNDS]);
}
