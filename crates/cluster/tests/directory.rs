//! Blocks as files of a directory: the contract of a store, histories, and what may happen to
//! files.

use crate::crashes::{STEPS, check_reopened, clean, moments, put};
use crate::dying::Dying;
use crate::engines::Engine;
use crate::histories::run_made;
use crate::mongo_server::Shared;
use crate::server::Server;
use crate::stores::{StillClock, after_all, made_with, options};
use marram_cluster::database::{Range, Table};
use marram_cluster::directory::Directory;
use marram_cluster::format::ObjectName;
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::sqlite::SqliteDatabase;
use marram_cluster::verify::{Verified, verify};
use marram_cluster::{Cluster, Database, Objects};
use marram_store::{Error, Key, Store, conformance, kind};
use parking_lot::Mutex;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Histories, and the steps that each has are those of other stores.
const SEEDS: u64 = 12;
/// Histories on a server of PostgreSQL.
const SEEDS_ON_A_SERVER: u64 = 3;

/// A folder in memory where there is one: what syncs is not judged here.
pub(crate) fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let builder = || tempfile::Builder::new().prefix("marram-blocks-").to_owned();
    match memory.is_dir() {
        true => builder().tempdir_in(memory).unwrap(),
        false => builder().tempdir().unwrap(),
    }
}

/// Makes a store of that number in a database, with its blocks in a new directory.
pub(crate) fn made_in(database: &Arc<dyn Database>, blocks: &Path, number: u8) {
    let directory = Directory::create(blocks, &[number; 16]).unwrap();
    made_with(database, number, Some(Arc::new(directory)));
}

pub(crate) fn in_sqlite(folder: &Path, number: u8) -> Arc<dyn Database> {
    let database: Arc<dyn Database> =
        Arc::new(SqliteDatabase::create(&folder.join("store")).unwrap());
    made_in(&database, &folder.join("blocks"), number);
    database
}

/// The files with blocks below a directory.
pub(crate) fn files(blocks: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(blocks).unwrap().map(|it| it.unwrap().path());
    let folders = folders.filter(|path| path.is_dir());
    let files = folders.flat_map(|it| fs::read_dir(it).unwrap().map(|file| file.unwrap().path()));
    files.collect()
}

#[test]
fn a_store_with_blocks_in_a_directory_keeps_the_contract() {
    let folders = Mutex::new(Vec::new());
    conformance::all(&|| {
        let folder = folder();
        let database = in_sqlite(folder.path(), 7);
        folders.lock().push(folder);
        Arc::new(Cluster::open(database, options(1, None, &StillClock::new())).unwrap())
    });
}

#[test]
fn snapshots_go_between_stores_with_blocks_in_directories() {
    let folders = Mutex::new(Vec::new());
    marram_stream::conformance::all(&|number| {
        let folder = folder();
        let database = in_sqlite(folder.path(), number);
        folders.lock().push(folder);
        Arc::new(Cluster::open(database, options(1, None, &StillClock::new())).unwrap())
    });
}

#[test]
fn operations_of_clients_with_blocks_in_a_directory_are_each_at_one_moment() {
    for seed in 0..SEEDS {
        let folder = folder();
        let first = in_sqlite(folder.path(), 7);
        let second = SqliteDatabase::open(&folder.path().join("store")).unwrap();
        run_made(4000 + seed, &[first, Arc::new(second)], None).unwrap();
    }
}

#[test]
fn operations_of_clients_of_a_server_with_blocks_in_a_directory_are_each_at_one_moment() {
    let Some(server) = Server::start() else { return };
    (0..SEEDS_ON_A_SERVER).for_each(|seed| history_on(&server, 5000 + seed));
}

#[test]
fn operations_of_clients_of_mongodb_with_blocks_in_a_directory_are_each_at_one_moment() {
    Shared::find().iter().for_each(|server| history_on(server, 6000));
}

fn history_on(server: &dyn Engine, seed: u64) {
    let folder = folder();
    let databases = server.store(2);
    made_in(&databases[0], &folder.path().join("blocks"), 7);
    run_made(seed, &databases, None).unwrap();
}

#[test]
fn what_was_acknowledged_outside_of_a_server_is_there_when_a_client_dies() {
    Server::start().iter().for_each(|server| acknowledged_is_there_outside(server, 13));
}

#[test]
fn what_was_acknowledged_outside_of_mongodb_is_there_when_a_client_dies() {
    Shared::find().iter().for_each(|server| acknowledged_is_there_outside(server, 41));
}

/// A client dies at each so many calls; another one finds all that was acknowledged, and leaves a
/// file for each block.
fn acknowledged_is_there_outside(server: &dyn Engine, step: usize) {
    let moments = moments().0;
    let until = |at: Option<(u64, bool)>| {
        let (folder, clock, databases) = (folder(), StillClock::new(), server.store(2));
        made_in(&databases[0], &folder.path().join("blocks"), 7);
        let dying = Arc::new(Dying::new(Arc::clone(&databases[0]), at));
        let database = Arc::clone(&dying) as Arc<dyn Database>;
        let opened = Cluster::open(database, options(1, None, &clock));
        let steps =
            |cluster| STEPS.iter().take_while(|step| step(&cluster, &clock).is_ok()).count();
        (opened.map_or(0, steps), dying.written(), folder, clock, databases)
    };
    let (done, calls, ..) = until(None);
    assert_eq!(done, STEPS.len());
    for at in (0..calls).step_by(step) {
        let is_made = at % 2 == 0;
        let (done, _, folder, clock, databases) = until(Some((at, is_made)));
        let found = check_reopened(&databases[1], &clock, &moments[done..]);
        found.unwrap_or_else(|what| panic!("dead at call {at}, made: {is_made}: {what}"));
        let rows = Range::first(Table::Blocks, Vec::new(), vec![u8::MAX; 33], usize::MAX);
        let rows = databases[1].read(&[rows]).unwrap().concat().len();
        assert_eq!(files(&folder.path().join("blocks")).len(), rows, "dead at call {at}");
    }
}

/// A store with one block in a file.
fn with_a_block() -> (TempDir, MemoryDatabase, PathBuf) {
    let (folder, memory) = (folder(), MemoryDatabase::default());
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made_in(&database, &folder.path().join("blocks"), 7);
    let cluster = Cluster::open(database, options(1, None, &StillClock::new())).unwrap();
    put(&cluster, "root", 2, 1).unwrap();
    cluster.close().unwrap();
    let mut files = files(&folder.path().join("blocks"));
    assert_eq!(files.len(), 1);
    let file = files.remove(0);
    let name: ObjectName = file.file_name().unwrap().to_str().unwrap().parse().unwrap();
    assert!(file.parent().unwrap().ends_with(format!("{:02x}", name.block[0])));
    (folder, memory, file)
}

fn opened(memory: &MemoryDatabase) -> marram_store::Result<Cluster> {
    Cluster::open(Arc::new(memory.clone()), after_all(2, &StillClock::new()))
}

/// Reads the block.
fn content(memory: &MemoryDatabase) -> marram_store::Result<usize> {
    let view = opened(memory)?.open(&"root".parse().unwrap())?;
    let item = view.get(Key::new(2, kind::SECTION, 0))?.unwrap();
    Ok(view.read_block(&item.block.unwrap())?.len())
}

fn verified(memory: &MemoryDatabase) -> Verified {
    verify(memory).unwrap()
}

#[test]
fn a_block_that_is_gone_or_changed_is_named() {
    let (_folder, memory, file) = with_a_block();
    assert_eq!(content(&memory), Ok(3000));
    assert_eq!(verified(&memory).findings, [""; 0]);
    let whole = fs::read(&file).unwrap();
    let name = file.display().to_string();
    let is_named = |words: &str| {
        let Err(Error::Damaged(damage)) = content(&memory) else { panic!("it was read") };
        assert_eq!(damage.place, name);
        assert!(damage.reason.contains("bring"), "{damage}");
        let found = verified(&memory).findings;
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(&name) && found[0].contains(words), "{found:?}");
    };
    fs::remove_file(&file).unwrap();
    is_named("is gone");
    for at in [0, 1, 5, whole.len() - 1] {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(&file, changed).unwrap();
        is_named("another content");
    }
    for len in [0, 4, whole.len() - 1] {
        fs::write(&file, &whole[..len]).unwrap();
        is_named("another content");
    }
    fs::write(&file, [&whole[..], &[0; 4096]].concat()).unwrap();
    is_named("another content");
    fs::write(&file, &whole).unwrap();
    assert_eq!(content(&memory), Ok(3000), "it was brought back");
}

#[test]
fn what_is_no_file_is_an_error_and_nobody_waits() {
    let (_folder, memory, file) = with_a_block();
    fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &file,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let failed = content(&memory).unwrap_err().to_string();
    assert!(failed.contains(&file.display().to_string()), "{failed}");
    let found = verified(&memory).findings;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains(&file.display().to_string()), "{found:?}");
}

#[test]
fn a_folder_that_is_missing_is_made_again_and_a_lost_block_is_written_anew() {
    let (_folder, memory, file) = with_a_block();
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
    let cluster = opened(&memory).unwrap();
    assert!(file.parent().unwrap().is_dir());
    let view = cluster.open(&"root".parse().unwrap()).unwrap();
    let block = view.get(Key::new(2, kind::SECTION, 0)).unwrap().unwrap().block.unwrap();
    view.read_block(&block).unwrap_err();
    put(&cluster, "root", 3, 1).unwrap();
    assert_eq!(view.read_block(&block).unwrap().len(), 3000);
    cluster.close().unwrap();
    assert_eq!(content(&memory), Ok(3000));
    assert_eq!(verified(&memory).findings, [""; 0]);
}

#[test]
fn a_file_that_cannot_be_removed_keeps_no_other_from_going() {
    let (folder, clock) = (folder(), StillClock::new());
    let blocks = folder.path().join("blocks");
    let database = in_sqlite(folder.path(), 7);
    let cluster = Cluster::open(database, options(1, None, &clock)).unwrap();
    [(2, 1), (3, 2)].iter().for_each(|it| put(&cluster, "root", it.0, it.1).unwrap());
    let old = files(&blocks);
    [(2, 3), (3, 4)].iter().for_each(|it| put(&cluster, "root", it.0, it.1).unwrap());
    assert_eq!((old.len(), files(&blocks).len()), (2, 4));
    clean(&cluster, &clock).unwrap();
    fs::remove_file(&old[0]).unwrap();
    fs::create_dir(&old[0]).unwrap();
    let failed = clean(&cluster, &clock).unwrap_err().to_string();
    assert!(failed.contains(&old[0].display().to_string()), "{failed}");
    assert!(!old[1].exists());
    fs::remove_dir(&old[0]).unwrap();
    clean(&cluster, &clock).unwrap();
    assert_eq!(files(&blocks).len(), 2);
}

#[test]
fn a_directory_that_is_not_that_of_the_store_is_refused() {
    let (folder, memory, file) = with_a_block();
    let (blocks, away) = (folder.path().join("blocks"), folder.path().join("away"));
    let refused = |words: &str| {
        for error in [opened(&memory).map(|_| ()).unwrap_err(), verify(&memory).unwrap_err()] {
            let text = error.to_string();
            assert!(text.contains(words) && text.contains("/blocks"), "{text}");
        }
    };
    fs::rename(&blocks, &away).unwrap();
    refused("no directory");
    // A mount point without its file system.
    fs::create_dir(&blocks).unwrap();
    refused("mount its file system");
    assert_eq!(fs::read_dir(&blocks).unwrap().count(), 0, "nothing was written");
    fs::remove_dir(&blocks).unwrap();
    Directory::create(&blocks, &[8; 16]).unwrap();
    refused("another home");
    fs::remove_dir_all(&blocks).unwrap();
    fs::rename(&away, &blocks).unwrap();
    assert_eq!(content(&memory), Ok(3000));
    // One that goes away while it is open has lost nothing.
    let open = opened(&memory).unwrap();
    fs::rename(blocks.join("marram-blocks"), blocks.join("hidden")).unwrap();
    fs::remove_file(&file).unwrap();
    let view = open.open(&"root".parse().unwrap()).unwrap();
    let item = view.get(Key::new(2, kind::SECTION, 0)).unwrap().unwrap();
    let failed = view.read_block(&item.block.unwrap()).unwrap_err();
    assert!(matches!(failed, Error::Io(_)), "{failed}");
}

#[test]
fn a_directory_with_something_in_it_is_not_taken() {
    let folder = folder();
    let blocks = folder.path().join("blocks");
    fs::create_dir(&blocks).unwrap();
    fs::write(blocks.join("letter"), "mine").unwrap();
    let refused = Directory::create(&blocks, &[7; 16]).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("letter"), "{refused}");
    assert_eq!(fs::read_dir(&blocks).unwrap().count(), 1);
    fs::remove_file(blocks.join("letter")).unwrap();
    let first = Directory::create(&blocks, &[7; 16]).unwrap();
    let second = Directory::create(&blocks, &[8; 16]).map(|_| ()).unwrap_err();
    assert!(second.to_string().contains("not empty"), "{second}");
    Directory::open(&blocks, &[7; 16]).unwrap();
    first.discard();
    assert_eq!(fs::read_dir(&blocks).unwrap().count(), 0, "it is as it was");
}

#[test]
fn half_a_file_goes_with_its_object() {
    let folder = folder();
    let directory = Directory::create(&folder.path().join("blocks"), &[7; 16]).unwrap();
    let name = ObjectName { block: [3; 32], upload: [1; 8] };
    let half = folder.path().join(format!("blocks/03/{name}.part"));
    fs::write(&half, "half").unwrap();
    assert_eq!(directory.read(&name), Ok(None));
    assert_eq!(directory.list(3), Ok(vec![name]));
    directory.remove(&name).unwrap();
    assert!(!half.exists());
    directory.write(&[(name, b"whole".to_vec())]).unwrap();
    assert_eq!(directory.read(&name), Ok(Some(b"whole".to_vec())));
}
