//! What a database on a server is asked for, whatever its kind, and what may happen to the server
//! meanwhile.

use crate::stores::{StillClock, made, options};
use marram_cluster::database::{Change, Range, Row, Table};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::{Cluster, Database, verify};
use marram_store::{Batch, Item, Key, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What is done between two deaths of a server.
const BETWEEN_KILLS: u64 = 12;
/// How often one dies.
const KILLS: u64 = 4;

/// A server of some kind.
pub(crate) trait Engine {
    /// A new database with empty tables, which so many clients reach, each by connections of its
    /// own.
    fn store(&self, clients: usize) -> Vec<Arc<dyn Database>>;
}

/// A server that can be killed.
pub(crate) trait Mortal: Engine {
    /// SIGKILL.
    fn kill(&mut self);

    /// Starts it again, and waits until it answers.
    fn run(&mut self);
}

/// Numbers that look random, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % end
    }

    fn table(&mut self) -> Table {
        [Table::Heads, Table::Blocks, Table::Marks][self.below(3) as usize]
    }

    fn key(&mut self) -> Vec<u8> {
        let len = self.below(3) as usize + 1;
        (0..len).map(|_| [0, 1, 0x27, 0x5c, 0x80, 0xff][self.below(6) as usize]).collect()
    }

    fn value(&mut self) -> Vec<u8> {
        let len = [0, 1, 100, 9000][self.below(4) as usize];
        (0..len).map(|_| self.below(256) as u8).collect()
    }

    fn change(&mut self) -> Change {
        let value = (self.below(3) > 0).then(|| self.value());
        Change { table: self.table(), key: self.key(), value }
    }

    fn range(&mut self) -> Range {
        if self.below(2) == 0 {
            return Range::one(self.table(), self.key());
        }
        let (limit, descending) = (self.below(6) as usize, self.below(2) == 0);
        Range { table: self.table(), from: self.key(), to: self.key(), limit, descending }
    }
}

pub(crate) fn all(database: &dyn Database) -> Vec<Vec<Row>> {
    let whole = |table| Range::first(table, Vec::new(), vec![0xff; 8], usize::MAX);
    database.read(&Table::ALL.map(whole)).unwrap()
}

/// Random rows are the same as in a database in memory.
pub(crate) fn it_answers_as_the_database_in_memory_does(engine: &dyn Engine, rounds: u64) {
    let (memory, database) = (MemoryDatabase::default(), engine.store(1).remove(0));
    let mut numbers = Numbers(1);
    for round in 0..rounds {
        let changes: Vec<Change> = (0..numbers.below(12)).map(|_| numbers.change()).collect();
        memory.write(&changes).unwrap();
        database.write(&changes).unwrap();
        let (table, key, value) = (numbers.table(), numbers.key(), numbers.value());
        let inserted = database.insert(table, &key, &value).unwrap();
        assert_eq!(inserted, memory.insert(table, &key, &value).unwrap(), "round {round}");
        let keys: Vec<Vec<u8>> = (0..9).map(|_| numbers.key()).collect();
        assert_eq!(database.has(table, &keys).unwrap(), memory.has(table, &keys).unwrap());
        let ranges: Vec<Range> = (0..numbers.below(8)).map(|_| numbers.range()).collect();
        let (found, wanted) = (database.read(&ranges).unwrap(), memory.read(&ranges).unwrap());
        assert_eq!(found, wanted, "round {round}: {ranges:?}");
    }
    assert_eq!(all(&*database), all(&memory));
    assert!(database.bytes().unwrap() > 0);
}

/// Ranges of several tables are read as they are at one moment.
pub(crate) fn ranges_are_of_one_moment(engine: &dyn Engine) {
    let databases = engine.store(2);
    let [writer, reader] = &databases[..] else { panic!("they are two") };
    let both = |value: u32| {
        let row = |table| Change::put(table, *b"k", value.to_be_bytes().to_vec());
        [row(Table::Heads), row(Table::Lines)]
    };
    writer.write(&both(0)).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (1..400).for_each(|value| writer.write(&both(value)).unwrap());
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            let ranges = [Table::Heads, Table::Lines].map(|table| Range::one(table, *b"k"));
            let found = reader.read(&ranges).unwrap();
            assert_eq!(found[0][0].1, found[1][0].1);
        }
    });
}

fn numbered(value: u64) -> Batch<'static> {
    let mut batch = Batch::new();
    batch.put(Key::new(2, 1, value), Item::plain(value.to_le_bytes().to_vec()));
    batch.put(Key::new(3, 1, 0), Item::plain(value.to_le_bytes().to_vec()));
    batch
}

/// Waits until something is done, for two minutes at most.
pub(crate) fn wait_for(is_done: &dyn Fn() -> bool) {
    let began = Instant::now();
    while !is_done() {
        assert!(began.elapsed() < Duration::from_secs(120), "nothing goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a client has synced is there, however often the server died meanwhile.
pub(crate) fn nothing_that_was_acknowledged_is_lost(server: &mut dyn Mortal) {
    let databases = server.store(2);
    made(&databases[0]);
    let first = Arc::clone(&databases[0]);
    let cluster = Cluster::open(first, options(1, None, &StillClock::new())).unwrap();
    let view = cluster.open(&"root".parse().unwrap()).unwrap();
    let published = AtomicU64::new(0);
    let done = BETWEEN_KILLS * (KILLS + 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 1..=done {
                view.apply(numbered(value)).unwrap();
                view.sync().unwrap();
                published.store(value, Ordering::Relaxed);
            }
        });
        for round in 1..=KILLS {
            wait_for(&|| published.load(Ordering::Relaxed) >= BETWEEN_KILLS * round);
            server.kill();
            server.run();
        }
    });
    // The next client finds the home as one that died has left it.
    let second = Arc::clone(&databases[1]);
    let cluster = Cluster::open(second, options(2, Some(1), &StillClock::new())).unwrap();
    let view = cluster.open(&"root".parse().unwrap()).unwrap();
    for value in 1..=done {
        let item = view.get(Key::new(2, 1, value)).unwrap();
        assert_eq!(item.unwrap().value[..], value.to_le_bytes(), "of {done}");
    }
    assert_eq!(view.get(Key::new(3, 1, 0)).unwrap().unwrap().value[..], done.to_le_bytes());
    let verified = verify::verify(&*databases[1]).unwrap();
    assert_eq!(verified.findings, Vec::<String>::new());
}

/// Of two clients that insert the same rows while the server dies, each knows which are its own.
pub(crate) fn an_insertion_that_is_asked_for_again_is_done_once(server: &mut dyn Mortal) {
    let databases = server.store(2);
    let [first, second] = &databases[..] else { panic!("they are two") };
    let (is_over, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    let put = |database: &dyn Database, who: u8| {
        let (mut number, mut won) = (0_u64, Vec::new());
        while !is_over.load(Ordering::Relaxed) {
            number += 1;
            asked.fetch_max(number, Ordering::Relaxed);
            let (key, value) = (number.to_be_bytes(), [&number.to_be_bytes()[..], &[who]].concat());
            if database.insert(Table::Log, &key, &value).unwrap() {
                won.push(number);
            }
        }
        won
    };
    let (ours, theirs) = std::thread::scope(|scope| {
        let (ours, theirs) = (scope.spawn(|| put(&**first, 1)), scope.spawn(|| put(&**second, 2)));
        for round in 1..=KILLS {
            wait_for(&|| asked.load(Ordering::Relaxed) >= BETWEEN_KILLS * round);
            server.kill();
            server.run();
        }
        is_over.store(true, Ordering::Relaxed);
        (ours.join().unwrap(), theirs.join().unwrap())
    });
    let rows = &all(&**first)[Table::ALL.iter().position(|it| *it == Table::Log).unwrap()];
    let of = |who: u8| -> Vec<u64> {
        let rows = rows.iter().filter(|(_, value)| value.last() == Some(&who));
        rows.map(|(key, _)| u64::from_be_bytes(key[..].try_into().unwrap())).collect()
    };
    assert_eq!((of(1), of(2)), (ours, theirs));
    assert!(rows.len() as u64 >= BETWEEN_KILLS * KILLS);
}
