//! Blocks outside of a database that loses answers, or what a power cut finds unsynced.

use crate::crashes::{clean, put};
use crate::outside::{Kept, found};
use crate::stores::{StillClock, made_with, options};
use marram_cluster::database::{Change, Guard, Range, Row, Table};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::{Cluster, Database, Objects};
use marram_store::Result;
use marram_store::{Error, Key, Store, kind};
use parking_lot::Mutex;
use std::sync::Arc;

/// What becomes of the step that names an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// It is made, and asked for again: then its guard holds no more.
    AskedAgain,
    /// It is made, and the call fails.
    Made,
    /// It is not made, and the call fails.
    NotMade,
}

/// A database in memory that loses an answer, and of which a power cut leaves what is synced.
struct Forgetful {
    inner: MemoryDatabase,
    /// What becomes of the next guarded step that sets rows of blocks.
    lost: Mutex<Option<Lost>>,
    /// What a power cut leaves.
    synced: Mutex<MemoryDatabase>,
    /// It never syncs when it is asked to settle: a planted bug.
    is_lazy: bool,
}

impl Forgetful {
    fn new(inner: MemoryDatabase, is_lazy: bool) -> Forgetful {
        let synced = Mutex::new(inner.copy());
        Forgetful { inner, lost: Mutex::default(), synced, is_lazy }
    }

    fn sync(&self) {
        *self.synced.lock() = self.inner.copy();
    }
}

impl Database for Forgetful {
    fn insert(&self, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.inner.insert(table, key, value).inspect(|_| self.sync())
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        self.inner.write(changes)
    }

    fn read(&self, ranges: &[Range]) -> Result<Vec<Vec<Row>>> {
        self.inner.read(ranges)
    }

    fn has(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<bool>> {
        self.inner.has(table, keys)
    }

    fn insert_if(&self, guard: &Guard, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.inner.insert_if(guard, table, key, value).inspect(|_| self.sync())
    }

    fn write_if(&self, guard: &Guard, changes: &[Change]) -> Result<bool> {
        let names = |it: &Change| it.table == Table::Blocks && it.value.is_some();
        let lost = changes.iter().any(names).then(|| self.lost.lock().take()).flatten();
        let away = || Err(Error::Io("the answer was lost".to_owned()));
        match lost {
            None => self.inner.write_if(guard, changes),
            Some(Lost::NotMade) => away(),
            Some(lost) => {
                assert!(self.inner.write_if(guard, changes)?);
                match lost {
                    Lost::AskedAgain => self.inner.write_if(guard, changes),
                    _ => away(),
                }
            }
        }
    }

    fn settle(&self) -> Result<()> {
        if !self.is_lazy {
            self.sync();
        }
        Ok(())
    }

    fn bytes(&self) -> Result<u64> {
        self.inner.bytes()
    }

    fn engine(&self) -> &'static str {
        "forgetful"
    }
}

fn begun(is_lazy: bool) -> (MemoryDatabase, Kept, Arc<Forgetful>, Cluster, StillClock) {
    let (memory, clock) = (MemoryDatabase::default(), StillClock::new());
    let kept = Kept::new(&memory, None);
    let plain: Arc<dyn Database> = Arc::new(memory.clone());
    made_with(&plain, 7, Some(Arc::new(kept.clone())));
    let forgetful = Arc::new(Forgetful::new(memory.clone(), is_lazy));
    let objects: Arc<dyn Objects> = Arc::new(kept.clone());
    let database = Arc::clone(&forgetful) as Arc<dyn Database>;
    let cluster = Cluster::open_with(database, objects, options(1, None, &clock)).unwrap();
    (memory, kept, forgetful, cluster, clock)
}

#[test]
fn an_upload_whose_answer_was_lost_is_named_once_and_leaves_nothing() {
    for lost in [Lost::AskedAgain, Lost::Made, Lost::NotMade] {
        let (memory, kept, forgetful, cluster, clock) = begun(false);
        *forgetful.lost.lock() = Some(lost);
        let done = put(&cluster, "root", 2, 1);
        assert!(forgetful.lost.lock().is_none(), "the step was made");
        match lost {
            Lost::AskedAgain => done.unwrap(),
            _ => drop(done.unwrap_err()),
        }
        // What waits is published with the next one.
        put(&cluster, "root", 3, 2).unwrap();
        let view = cluster.open(&"root".parse().unwrap()).unwrap();
        for object in [2, 3] {
            let item = view.get(Key::new(object, kind::SECTION, 0)).unwrap().unwrap();
            assert_eq!(view.read_block(&item.block.unwrap()).unwrap().len(), 3000, "{lost:?}");
        }
        (0..3).for_each(|_| clean(&cluster, &clock).unwrap());
        assert_eq!(kept.there.lock().len(), 2, "{lost:?}: nothing else stays");
        assert_eq!(found(&memory, &kept), [""; 0], "{lost:?}");
    }
}

/// What a power cut behind a sweep leaves: rows that came back name objects that have gone.
fn behind_a_sweep(is_lazy: bool) -> Vec<String> {
    let (_, kept, forgetful, cluster, clock) = begun(is_lazy);
    put(&cluster, "root", 2, 1).unwrap();
    put(&cluster, "root", 2, 2).unwrap();
    // The first takes the row of the block away, the second its object.
    (0..2).for_each(|_| clean(&cluster, &clock).unwrap());
    assert_eq!(kept.there.lock().len(), 1);
    let left = forgetful.synced.lock().copy();
    found(&left, &kept)
}

#[test]
fn a_power_cut_behind_a_sweep_brings_no_row_back_whose_object_has_gone() {
    assert_eq!(behind_a_sweep(false), [""; 0]);
}

#[test]
fn a_database_that_is_not_settled_before_objects_go_is_caught() {
    let found = behind_a_sweep(true);
    assert!(found.iter().any(|it| it.contains("is gone")), "{found:?}");
}
