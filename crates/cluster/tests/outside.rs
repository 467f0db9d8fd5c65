//! Blocks outside of the database: each call is a crash point, and clients sleep in the middle.

use crate::crashes::{STEPS, check_reopened_with, clean, moments, put};
use crate::interrupted::{Bug as Lie, Interrupted};
use crate::stores::{StillClock, after_all, made_with, options};
use marram_cluster::database::Table;
use marram_cluster::format::{BlocksPlace, ObjectName, UploadId};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::verify::verify_with;
use marram_cluster::{Cluster, Database, Objects, glance};
use marram_store::{Error, Result, Space};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

type Event = Box<dyn FnOnce() + Send>;
type Contents = BTreeMap<ObjectName, Vec<u8>>;

/// Objects in memory, of a host that dies when its database is cut off.
#[derive(Clone)]
pub(crate) struct Kept {
    database: MemoryDatabase,
    /// What is durable.
    pub(crate) there: Arc<Mutex<Contents>>,
    /// What is not, and is lost in a crash.
    waiting: Arc<Mutex<Contents>>,
    holder: Arc<Mutex<Option<Vec<u8>>>>,
    bug: Option<Bug>,
    after_write: Arc<Mutex<Option<Event>>>,
    before_removal: Arc<Mutex<Option<Event>>>,
}

/// What a place for objects does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// It answers before an object is durable.
    Early,
    /// An object is named by its block alone.
    SameNames,
}

/// Lets something happen, as another process would.
fn happen(event: &Mutex<Option<Event>>) {
    let event = event.lock().take();
    event.into_iter().for_each(|event| std::thread::spawn(event).join().unwrap());
}

impl Kept {
    pub(crate) fn new(database: &MemoryDatabase, bug: Option<Bug>) -> Kept {
        Kept {
            database: database.clone(),
            there: Arc::default(),
            waiting: Arc::default(),
            holder: Arc::default(),
            bug,
            after_write: Arc::default(),
            before_removal: Arc::default(),
        }
    }

    /// What a crash leaves beside a copy of the database.
    pub(crate) fn left(&self, database: &MemoryDatabase) -> Kept {
        let there = Arc::new(Mutex::new(self.there.lock().clone()));
        let holder = Arc::new(Mutex::new(self.holder.lock().clone()));
        Kept { there, holder, ..Kept::new(database, None) }
    }

    fn name(&self, name: &ObjectName) -> ObjectName {
        match self.bug {
            Some(Bug::SameNames) => ObjectName { upload: UploadId::default(), ..*name },
            _ => *name,
        }
    }
}

impl Objects for Kept {
    fn write(&self, objects: &[(ObjectName, Vec<u8>)]) -> Result<()> {
        let dead = self.database.read(&[]).err();
        // One that dies leaves a first part.
        let count = if dead.is_some() { objects.len() / 2 } else { objects.len() };
        let new = objects.iter().take(count).map(|(name, bytes)| (self.name(name), bytes.clone()));
        let durable = std::mem::take(&mut *self.waiting.lock());
        self.there.lock().extend(durable);
        match self.bug {
            Some(Bug::Early) => self.waiting.lock().extend(new),
            _ => self.there.lock().extend(new),
        }
        happen(&self.after_write);
        dead.map_or(Ok(()), Err)
    }

    fn read(&self, name: &ObjectName) -> Result<Option<Vec<u8>>> {
        let name = self.name(name);
        let waiting = self.waiting.lock().get(&name).cloned();
        Ok(waiting.or_else(|| self.there.lock().get(&name).cloned()))
    }

    fn remove(&self, name: &ObjectName) -> Result<()> {
        happen(&self.before_removal);
        self.database.read(&[])?;
        self.there.lock().remove(&self.name(name));
        Ok(())
    }

    fn list(&self, first: u8) -> Result<Vec<ObjectName>> {
        Ok(self.there.lock().keys().filter(|name| name.block[0] == first).copied().collect())
    }

    fn holder(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.holder.lock().clone())
    }

    fn set_holder(&self, said: &[u8]) -> Result<()> {
        self.database.read(&[])?;
        *self.holder.lock() = Some(said.to_owned());
        Ok(())
    }

    fn holder_place(&self) -> String {
        "/kept/holder".to_owned()
    }

    fn place(&self) -> BlocksPlace {
        BlocksPlace::Directory("/kept".to_owned())
    }

    fn locate(&self, name: &ObjectName) -> String {
        format!("/kept/{name}")
    }

    fn space(&self) -> Option<Space> {
        None
    }
}

/// A store whose blocks lie outside, open as client 1.
fn begun(bug: Option<Bug>, lie: Option<Lie>) -> (MemoryDatabase, Kept, Cluster, StillClock) {
    let (memory, kept, cluster, clock, lying) = begun_through(bug);
    lying.plant(lie);
    (memory, kept, cluster, clock)
}

/// The same, and the handle through which that client works.
fn begun_through(bug: Option<Bug>) -> (MemoryDatabase, Kept, Cluster, StillClock, Interrupted) {
    let (memory, clock) = (MemoryDatabase::default(), StillClock::new());
    let kept = Kept::new(&memory, bug);
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made_with(&database, 7, Some(Arc::new(kept.clone())));
    let lying = Interrupted::new(database);
    let objects = Arc::new(kept.clone());
    let cluster = Cluster::open_with(Arc::new(lying.clone()), objects, options(1, None, &clock));
    (memory, kept, cluster.unwrap(), clock, lying)
}

/// What the verifier finds, and blocks of which the rows or the objects are alone.
pub(crate) fn found(memory: &MemoryDatabase, kept: &Kept) -> Vec<String> {
    verify_with(memory, Arc::new(kept.left(memory))).unwrap().findings
}

/// The steps of the crash tests up to a change of the database; what is wrong is the error.
fn cut(at: u64, bug: Option<Bug>) -> std::result::Result<(), String> {
    let (moments, _) = moments();
    let (memory, kept, cluster, clock) = begun(bug, None);
    memory.cut_after(Some(at));
    let done = STEPS.iter().take_while(|step| step(&cluster, &clock).is_ok()).count();
    let left = memory.copy();
    let kept = kept.left(&left);
    let found = verify_with(&left, Arc::new(kept.clone())).unwrap().findings;
    if !found.is_empty() {
        return Err(format!("before a mount: {found:?}"));
    }
    let database: Arc<dyn Database> = Arc::new(left.clone());
    let objects: Arc<dyn Objects> = Arc::new(kept.clone());
    check_reopened_with((&database, Some(&objects)), &clock, &moments[done..])?;
    let rows = left.rows().iter().filter(|(table, _)| *table == Table::Blocks).count();
    match kept.there.lock().len() {
        objects if objects == rows => Ok(()),
        objects => Err(format!("{rows} rows of blocks, and {objects} objects")),
    }
}

/// The changes of the database from the first step to the last.
fn changes() -> std::ops::Range<u64> {
    let (memory, _, cluster, clock) = begun(None, None);
    let begin = memory.changes_made();
    STEPS.iter().for_each(|step| step(&cluster, &clock).unwrap());
    begin..memory.changes_made()
}

#[test]
fn what_was_acknowledged_is_there_after_each_crash_and_nothing_else_stays() {
    let changes = changes();
    assert!(changes.end - changes.start > 100);
    for at in changes {
        cut(at, None).unwrap_or_else(|what| panic!("cut after {at}: {what}"));
    }
}

#[test]
fn an_entry_before_its_block_is_durable_is_caught() {
    assert!(changes().any(|at| cut(at, Some(Bug::Early)).is_err()));
}

/// A client sleeps before it removes an object; another one takes it for lost, and writes the same
/// content.
fn slept_before_a_removal(bug: Option<Bug>) -> Vec<String> {
    let (memory, kept, first, clock) = begun(bug, None);
    put(&first, "root", 2, 1).unwrap();
    put(&first, "root", 2, 2).unwrap();
    clean(&first, &clock).unwrap();
    clock.advance(100);
    let event = {
        let (memory, kept, clock) = (memory.clone(), kept.clone(), clock.clone());
        move || {
            let objects = Arc::new(kept);
            let second =
                Cluster::open_with(Arc::new(memory), objects, after_all(2, &clock)).unwrap();
            put(&second, "root", 3, 1).unwrap();
            second.close().unwrap();
        }
    };
    *kept.before_removal.lock() = Some(Box::new(event));
    first.sweep_step(Vec::new()).unwrap();
    assert!(kept.before_removal.lock().is_none(), "an object was removed");
    found(&memory, &kept)
}

#[test]
fn a_client_that_slept_before_a_removal_takes_nothing_of_others() {
    assert_eq!(slept_before_a_removal(None), [""; 0]);
}

#[test]
fn names_that_come_again_are_caught() {
    let found = slept_before_a_removal(Some(Bug::SameNames));
    assert!(found.iter().any(|it| it.contains("is gone")), "{found:?}");
}

/// A client sleeps behind an upload; another one takes it for lost, and gives its space back.
fn slept_behind_an_upload(lie: Option<Lie>) -> Vec<String> {
    let (memory, kept, first, clock) = begun(None, lie);
    let event = {
        let (memory, kept, clock) = (memory.clone(), kept.clone(), clock.clone());
        move || {
            let objects = Arc::new(kept.clone());
            let second =
                Cluster::open_with(Arc::new(memory), objects, after_all(2, &clock)).unwrap();
            (0..3).for_each(|_| {
                clock.advance(100);
                clean(&second, &clock).unwrap();
            });
            assert!(kept.there.lock().is_empty(), "the upload was given up");
            second.close().unwrap();
        }
    };
    *kept.after_write.lock() = Some(Box::new(event));
    put(&first, "root", 2, 1).unwrap_err();
    assert!(kept.after_write.lock().is_none(), "an object was written");
    found(&memory, &kept)
}

#[test]
fn a_client_that_slept_behind_an_upload_puts_no_rows() {
    assert_eq!(slept_behind_an_upload(None), [""; 0]);
}

#[test]
fn rows_of_an_upload_that_was_given_up_are_caught() {
    let found = slept_behind_an_upload(Some(Lie::NoGuard));
    assert!(found.iter().any(|it| it.contains("is gone")), "{found:?}");
}

/// The first answer of an upload is lost. Before it is begun again another client takes this one
/// for lost, and gives the upload up; it removes the objects only when they are there.
fn an_answer_lost_before_an_upload(lie: Option<Lie>) -> Vec<String> {
    let (memory, kept, first, clock, lying) = begun_through(None);
    lying.plant(lie);
    let (reached, is_reached) = mpsc::channel::<()>();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let removal = move || {
        reached.send(()).unwrap();
        goes_on.recv().unwrap();
    };
    *kept.before_removal.lock() = Some(Box::new(removal));
    let (other, others) = (memory.clone(), kept.clone());
    let second = move || {
        let objects = Arc::new(others);
        let second = Cluster::open_with(Arc::new(other), objects, after_all(2, &clock)).unwrap();
        (0..2).for_each(|_| clean(&second, &clock).unwrap());
        second.close().unwrap();
    };
    let running = Arc::new(Mutex::new(None));
    let begun = Arc::clone(&running);
    lying.lose_answer(Box::new(move || {
        *begun.lock() = Some(std::thread::spawn(second));
        is_reached.recv().unwrap();
    }));
    put(&first, "root", 2, 1).unwrap_err();
    go_on.send(()).unwrap();
    running.lock().take().expect("an answer was lost").join().unwrap();
    found(&memory, &kept)
}

#[test]
fn a_client_whose_answer_was_lost_does_not_revive_an_upload() {
    assert_eq!(an_answer_lost_before_an_upload(None), [""; 0]);
}

#[test]
fn an_upload_that_was_revived_is_caught() {
    let found = an_answer_lost_before_an_upload(Some(Lie::NoGuard));
    assert!(found.iter().any(|it| it.contains("is gone")), "{found:?}");
}

#[test]
fn an_upload_that_takes_long_keeps_no_sign_of_life_back() {
    let (memory, kept, first, _) = begun(None, None);
    let beat = || glance(Arc::new(memory.clone())).unwrap().clients[0].beat;
    let (before, first) = (beat(), Arc::new(first));
    let living = Arc::clone(&first);
    *kept.after_write.lock() = Some(Box::new(move || living.beat().unwrap()));
    put(&first, "root", 2, 1).unwrap();
    assert!(kept.after_write.lock().is_none(), "an object was written");
    assert_eq!(beat(), before + 1);
}

#[test]
fn nothing_waits_for_a_removal() {
    let (memory, kept, first, clock) = begun(None, None);
    put(&first, "root", 2, 1).unwrap();
    put(&first, "root", 2, 2).unwrap();
    clean(&first, &clock).unwrap();
    clock.advance(100);
    let first = Arc::new(first);
    let writing = Arc::clone(&first);
    *kept.before_removal.lock() = Some(Box::new(move || put(&writing, "root", 3, 1).unwrap()));
    first.sweep_step(Vec::new()).unwrap();
    assert!(kept.before_removal.lock().is_none(), "an object was removed");
    assert_eq!(found(&memory, &kept), [""; 0]);
}

#[test]
fn a_block_that_goes_while_a_row_refers_to_it_is_caught() {
    for lie in [None, Some(Lie::NoUses)] {
        let (memory, kept, first, clock) = begun(None, lie);
        put(&first, "root", 2, 1).unwrap();
        (0..3).for_each(|_| clean(&first, &clock).unwrap());
        let (found, objects) = (found(&memory, &kept), kept.there.lock().len());
        match lie {
            None => assert_eq!((&found[..], objects), (&[][..], 1)),
            _ => assert!(found.iter().any(|it| it.contains("is missing")), "{found:?}"),
        }
    }
}

#[test]
fn objects_that_no_row_knows_go() {
    let (memory, kept, first, clock) = begun(None, None);
    put(&first, "root", 2, 1).unwrap();
    let stray = ObjectName { block: [0xfe; 32], upload: [9; 8] };
    kept.there.lock().insert(stray, vec![1]);
    let notes = verify_with(&memory, Arc::new(kept.clone())).unwrap().notes;
    assert!(
        notes.iter().any(|note| note.starts_with("1 blocks in /kept have no row")),
        "{notes:?}"
    );
    (0..260).for_each(|_| clean(&first, &clock).unwrap());
    assert_eq!(kept.there.lock().len(), 1);
    assert!(!kept.there.lock().contains_key(&stray));
    assert_eq!(found(&memory, &kept), [""; 0]);
}

#[test]
fn a_place_that_fails_fails_the_sync_and_what_waits_is_kept() {
    let (memory, kept, first, _) = begun(None, None);
    let event = |memory: &MemoryDatabase| {
        let memory = memory.clone();
        move || memory.cut_after(Some(0))
    };
    *kept.after_write.lock() = Some(Box::new(event(&memory)));
    let failed = put(&first, "root", 2, 1).unwrap_err();
    assert!(matches!(failed, Error::Io(_)), "{failed}");
    memory.cut_after(None);
    put(&first, "root", 3, 2).unwrap();
    let view = marram_store::Store::open(&first, &"root".parse().unwrap()).unwrap();
    for object in [2, 3] {
        let key = marram_store::Key::new(object, marram_store::kind::SECTION, 0);
        let block = view.get(key).unwrap().unwrap().block.unwrap();
        assert_eq!(view.read_block(&block).unwrap().len(), 3000);
    }
    assert_eq!(found(&memory, &kept), [""; 0]);
}
