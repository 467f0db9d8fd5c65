//! A database that was copied, and the directory of blocks that one of the two holds.

use crate::crashes::{clean, put};
use crate::directory::{files, folder, in_sqlite, made_in};
use crate::engines::{Engine, all};
use crate::mongo_server::Shared;
use crate::outside::{Kept, found};
use crate::server::Server;
use crate::stores::{StillClock, after_all, made_with, options, together_in};
use marram_cluster::database::{Change, Table};
use marram_cluster::format::{BlocksPlace, Holder, HolderRow, TOKENS_MAX};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::sqlite::SqliteDatabase;
use marram_cluster::{Cluster, Database, Objects};
use marram_store::{Batch, Block, Error, Item, Key, Result, Store, kind};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn opened(database: &Arc<dyn Database>) -> Result<Cluster> {
    Cluster::open(Arc::clone(database), after_all(3, &StillClock::new()))
}

/// The words of the refusal, which names the file to remove.
fn refused(database: &Arc<dyn Database>, why: &str) {
    let Err(Error::Io(text)) = opened(database) else { panic!("it was not refused") };
    assert!(text.contains("another database holds the blocks in /"), "{text}");
    assert!(text.contains(why) && text.contains("/marram-blocks-holder"), "{text}");
}

fn content(cluster: &Cluster, object: u64) -> Result<usize> {
    let view = cluster.open(&"root".parse()?)?;
    let item = view.get(Key::new(object, kind::SECTION, 0))?.unwrap();
    view.read_block(&item.block.unwrap()).map(|content| content.len())
}

/// Puts content beside other clients.
fn put_beside(cluster: &Cluster, object: u64, content: u8) -> Result<()> {
    let view = cluster.open(&"root".parse()?)?;
    let seen = view.capabilities().together.map(|together| together.look()).transpose()?;
    let mut batch = Batch { seen, ..Batch::new() };
    let block = Block::fresh(vec![content; 3000]);
    batch.put(Key::new(object, kind::SECTION, 0), Item::with_block(vec![content], block));
    view.apply(batch)
}

/// The file of a database and its log, as `cp` copies them.
fn copy_database(from: &Path, to: &Path) {
    for end in ["", "-wal"] {
        let [from, to] = [from, to].map(|path| format!("{}{end}", path.display()));
        // The log is there as long as SQLite has not taken it into the file.
        match fs::read(&from) {
            Ok(bytes) => fs::write(&to, bytes).unwrap(),
            Err(_) => drop(fs::remove_file(&to)),
        }
    }
    let _made_anew = fs::remove_file(format!("{}-shm", to.display()));
}

#[test]
fn a_copied_sqlite_file_is_refused_and_nothing_goes() {
    let folder = folder();
    let (store, copy) = (folder.path().join("store"), folder.path().join("copy"));
    let database = in_sqlite(folder.path(), 7);
    let first = opened(&database).unwrap();
    put(&first, "root", 2, 1).unwrap();
    first.close().unwrap();
    drop((first, database));
    // Neither has done anything since: only the file is another one.
    copy_database(&store, &copy);
    let before = files(&folder.path().join("blocks"));
    let copied: Arc<dyn Database> = Arc::new(SqliteDatabase::open(&copy).unwrap());
    refused(&copied, "is a copy of it, or was moved");
    assert_eq!(files(&folder.path().join("blocks")), before);
    // To look at it is no harm.
    let looked = marram_cluster::verify::verify(&*copied).unwrap();
    assert_eq!(looked.findings, [""; 0]);
    let database: Arc<dyn Database> = Arc::new(SqliteDatabase::open(&store).unwrap());
    let first = opened(&database).unwrap();
    assert_eq!(content(&first, 2), Ok(3000));
    first.close().unwrap();
    drop((first, database, copied));
    // A file that was moved on its file system is the same one.
    let moved = folder.path().join("moved");
    fs::rename(&store, &moved).unwrap();
    opened(&(Arc::new(SqliteDatabase::open(&moved).unwrap()) as Arc<dyn Database>)).unwrap();
}

#[test]
fn an_older_state_in_the_place_of_the_file_is_refused() {
    let folder = folder();
    let store = folder.path().join("store");
    let with = |content: u8| {
        let database: Arc<dyn Database> = Arc::new(SqliteDatabase::open(&store).unwrap());
        // No two clients have the same number.
        let options = after_all(10 + content, &StillClock::new());
        let cluster = Cluster::open(database, options).unwrap();
        put(&cluster, "root", 2, content).unwrap();
        cluster.close().unwrap();
    };
    drop(in_sqlite(folder.path(), 7));
    with(1);
    let older = folder.path().join("older");
    copy_database(&store, &older);
    with(2);
    // Into the same file, as `cat` or a snapshot of its file system puts it.
    copy_database(&older, &store);
    let database: Arc<dyn Database> = Arc::new(SqliteDatabase::open(&store).unwrap());
    refused(&database, "is a copy or an older state of it");
}

#[test]
fn copies_on_servers_are_refused() {
    Server::start().iter().for_each(|server| a_copy_is_refused(server));
    Shared::find().iter().for_each(|server| a_copy_is_refused(server));
}

/// All rows are copied into another place of the server, as a dump that is restored there.
fn a_copy_is_refused(server: &dyn Engine) {
    let folder = folder();
    let [database, copied] = [server.store(1), server.store(1)].map(|mut it| it.remove(0));
    made_in(&database, &folder.path().join("blocks"), 7);
    let first = opened(&database).unwrap();
    put(&first, "root", 2, 1).unwrap();
    first.close().unwrap();
    let rows = Table::ALL.into_iter().zip(all(&*database));
    let row = |table| {
        move |(key, value): (bytes::Bytes, bytes::Bytes)| Change::put(table, key, value.to_vec())
    };
    let rows: Vec<Change> =
        rows.flat_map(|(table, rows)| rows.into_iter().map(row(table))).collect();
    copied.write(&rows).unwrap();
    refused(&copied, "is a copy of it, or was moved");
    let again = opened(&database).unwrap();
    assert_eq!(content(&again, 2), Ok(3000));
    again.close().unwrap();
}

/// A store of which the database, in memory, and the directory can be looked at.
fn in_memory(folder: &Path) -> (MemoryDatabase, Arc<dyn Database>) {
    let memory = MemoryDatabase::default();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made_in(&database, &folder.join("blocks"), 7);
    (memory, database)
}

#[test]
fn a_copy_from_the_middle_of_work_is_refused_once_the_original_has_swept_or_closed() {
    for sweeps in [true, false] {
        let (folder, clock) = (folder(), StillClock::new());
        let (memory, database) = in_memory(folder.path());
        let first = Cluster::open(database, options(1, None, &clock)).unwrap();
        put(&first, "root", 2, 1).unwrap();
        let copied: Arc<dyn Database> = Arc::new(memory.copy());
        put(&first, "root", 3, 2).unwrap();
        match sweeps {
            true => clean(&first, &clock).unwrap(),
            false => first.close().unwrap(),
        }
        refused(&copied, "is a copy or an older state of it");
    }
}

#[test]
fn a_copy_that_was_made_beside_two_hosts_is_refused_once_they_have_uploaded() {
    let (folder, clock) = (folder(), StillClock::new());
    let (memory, database) = in_memory(folder.path());
    let clients = together_in(&[Arc::clone(&database), database], &clock);
    let (first, second) = (&*clients[0], &*clients[1]);
    put_beside(first, 2, 1).unwrap();
    first.sweep_step(Vec::new()).unwrap();
    let copied: Arc<dyn Database> = Arc::new(memory.copy());
    put_beside(second, 3, 2).unwrap();
    second.sweep_step(Vec::new()).unwrap();
    refused(&copied, "is a copy or an older state of it");
}

#[test]
fn the_one_that_was_held_by_removes_nothing_and_names_nothing_once_another_has_taken_over() {
    let (folder, clock) = (folder(), StillClock::new());
    let blocks = folder.path().join("blocks");
    let (memory, database) = in_memory(folder.path());
    let first = Cluster::open(database, options(1, None, &clock)).unwrap();
    put(&first, "root", 2, 1).unwrap();
    put(&first, "root", 3, 2).unwrap();
    let copied: Arc<dyn Database> = Arc::new(memory.copy());
    put(&first, "root", 3, 3).unwrap();
    clean(&first, &clock).unwrap();
    refused(&copied, "older state");
    // The way that the refusal names.
    fs::remove_file(blocks.join("marram-blocks-holder")).unwrap();
    let second = opened(&copied).unwrap();
    let before = files(&blocks);
    for _ in 0..3 {
        let failed = clean(&first, &clock).unwrap_err().to_string();
        assert!(failed.contains("another database holds"), "{failed}");
    }
    let failed = put(&first, "root", 4, 4).unwrap_err().to_string();
    assert!(failed.contains("another database holds"), "{failed}");
    assert!(before.iter().all(|file| file.exists()), "nothing has gone");
    assert_eq!(content(&second, 3), Ok(3000));
    put(&second, "root", 5, 5).unwrap();
    second.close().unwrap();
}

#[test]
fn what_says_nothing_that_is_understood_holds_it() {
    let folder = folder();
    let (_, database) = in_memory(folder.path());
    opened(&database).unwrap().close().unwrap();
    let file = folder.path().join("blocks/marram-blocks-holder");
    for said in ["", "mine", "holder of the blocks of a Marram cluster home\nversion 2\n"] {
        fs::write(&file, said).unwrap();
        refused(&database, "not understood");
    }
    fs::remove_file(&file).unwrap();
    opened(&database).unwrap();
}

#[test]
fn one_that_dies_at_any_change_while_it_takes_hold_finds_itself_again() {
    let memory = MemoryDatabase::default();
    let kept = Kept::new(&memory, None);
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made_with(&database, 7, Some(Arc::new(kept.clone())));
    let with = |memory: &MemoryDatabase, kept: &Kept, client: u8| {
        let (database, objects) = (Arc::new(memory.clone()), Arc::new(kept.clone()));
        Cluster::open_with(database, objects, after_all(client, &StillClock::new()))
    };
    let begin = memory.changes_made();
    drop(with(&memory, &kept, 1).unwrap());
    let changes = memory.changes_made() - begin;
    assert!(changes > 3, "{changes}");
    // Also time and again: the directory stays behind by one token each time.
    for cut in 0..changes {
        for round in 0..TOKENS_MAX + 2 {
            memory.cut_after(Some(memory.changes_made() + cut));
            let _dies = with(&memory, &kept, 2);
            memory.cut_after(None);
            let (memory, kept) = (memory.copy(), kept.left(&memory));
            let cluster = with(&memory, &kept, 3);
            let cluster = cluster.unwrap_or_else(|error| panic!("{cut}, {round}: {error}"));
            put(&cluster, "root", 2, 1).unwrap();
            cluster.close().unwrap();
            assert_eq!(found(&memory, &kept), [""; 0]);
        }
    }
}

/// How a place says something new.
type Says = Box<dyn Fn(&Kept, &[u8]) -> Result<()> + Send + Sync>;

/// A place to which nothing can be written, and that says something new in a way of its own.
struct Saying(Kept, Says);

impl Saying {
    fn full(kept: &Kept) -> Saying {
        Saying(kept.clone(), Box::new(|_, _| Err(Error::NoSpace)))
    }
}

impl Objects for Saying {
    fn write(&self, _: &[(marram_cluster::format::ObjectName, Vec<u8>)]) -> Result<()> {
        Err(Error::NoSpace)
    }

    fn read(&self, name: &marram_cluster::format::ObjectName) -> Result<Option<Vec<u8>>> {
        self.0.read(name)
    }

    fn remove(&self, name: &marram_cluster::format::ObjectName) -> Result<()> {
        self.0.remove(name)
    }

    fn list(&self, first: u8) -> Result<Vec<marram_cluster::format::ObjectName>> {
        self.0.list(first)
    }

    fn holder(&self) -> Result<Option<Vec<u8>>> {
        self.0.holder()
    }

    fn set_holder(&self, said: &[u8]) -> Result<()> {
        (self.1)(&self.0, said)
    }

    fn holder_place(&self) -> String {
        self.0.holder_place()
    }

    fn place(&self) -> BlocksPlace {
        self.0.place()
    }

    fn locate(&self, name: &marram_cluster::format::ObjectName) -> String {
        self.0.locate(name)
    }

    fn space(&self) -> Option<marram_store::Space> {
        None
    }
}

#[test]
fn a_full_place_is_opened_as_often_as_it_takes_to_empty_it() {
    let memory = MemoryDatabase::default();
    let kept = Kept::new(&memory, None);
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made_with(&database, 7, Some(Arc::new(kept.clone())));
    let with = |objects: Arc<dyn Objects>| {
        Cluster::open_with(Arc::clone(&database), objects, after_all(1, &StillClock::new()))
    };
    with(Arc::new(kept.clone())).unwrap().close().unwrap();
    for _ in 0..3 * TOKENS_MAX {
        with(Arc::new(Saying::full(&kept))).unwrap().close().unwrap();
    }
    with(Arc::new(kept)).unwrap().close().unwrap();
}

#[test]
fn a_token_that_comes_when_the_row_has_let_go_of_it_is_followed_by_another() {
    let memory = MemoryDatabase::default();
    let kept = Kept::new(&memory, None);
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made_with(&database, 7, Some(Arc::new(kept.clone())));
    let clock = StillClock::new();
    let with = {
        let (database, clock) = (Arc::clone(&database), clock.clone());
        move |client: u8, objects: Arc<dyn Objects>| {
            Cluster::open_with(Arc::clone(&database), objects, after_all(client, &clock))
        }
    };
    let others = with.clone();
    let is_late = AtomicBool::new(true);
    let late: Says = Box::new(move |kept, said| {
        if is_late.swap(false, Ordering::Relaxed) {
            for client in 0..=TOKENS_MAX as u8 {
                others(10 + client, Arc::new(kept.clone())).unwrap().close().unwrap();
            }
        }
        kept.set_holder(said)
    });
    // The others have taken it for lost meanwhile.
    let _lost = with(1, Arc::new(Saying(kept.clone(), late)));
    with(2, Arc::new(kept)).unwrap().close().unwrap();
}

#[test]
fn tokens_and_texts_are_read_as_they_were_written() {
    let row = HolderRow::default();
    let row = (0..20).fold(row, |row, number| row.with([number; 16], Some([77; 16])));
    assert_eq!(row.0.len(), TOKENS_MAX);
    assert_eq!((row.0[0], row.0[1]), ([19; 16], [77; 16]));
    assert_eq!(HolderRow::decode(&row.encode()), Ok(row.clone()));
    let mut long = row.encode();
    long.push(0);
    assert!(HolderRow::decode(&long).is_err());
    assert!(HolderRow::decode(&[255, 255, 255, 255]).is_err());
    let holder = Holder { token: [1; 16], database: [0xab; 16] };
    assert_eq!(Holder::decode(holder.encode().as_bytes()), Some(holder));
    assert_eq!(Holder::decode(&holder.encode().as_bytes()[1..]), None);
    assert_eq!(Holder::decode(format!("{}x", holder.encode()).as_bytes()), None);
}
