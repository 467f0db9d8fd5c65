//! MongoDB: what is asked of a server, and what it may do meanwhile.

use crate::engines::{self, Engine, Mortal, all, wait_for};
use crate::mongo_server::{MongoServer, Shared, access, store};
use crate::stores::made;
use crate::tunnel::{Flow, Tunnel};
use marram_cluster::Database;
use marram_cluster::database::{Change, Guard, Range, Table};
use marram_cluster::mongo::{Access, MongoDatabase, Place};
use marram_cluster::verify::verify;
use marram_store::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Engine for Shared {
    fn store(&self, clients: usize) -> Vec<Arc<dyn Database>> {
        Shared::store(self, clients)
    }
}

impl Engine for MongoServer {
    fn store(&self, clients: usize) -> Vec<Arc<dyn Database>> {
        store(&self.new_place(), clients)
    }
}

impl Mortal for MongoServer {
    fn kill(&mut self) {
        MongoServer::kill(self);
    }

    fn run(&mut self) {
        MongoServer::run(self);
    }
}

#[test]
fn it_answers_as_the_database_in_memory_does() {
    let Some(server) = Shared::find() else { return };
    engines::it_answers_as_the_database_in_memory_does(&server, 100);
}

#[test]
fn ranges_are_of_one_moment() {
    let Some(server) = Shared::find() else { return };
    engines::ranges_are_of_one_moment(&server);
}

#[test]
fn nothing_that_was_acknowledged_is_lost_when_the_server_is_killed() {
    let Some(mut server) = MongoServer::start() else { return };
    engines::nothing_that_was_acknowledged_is_lost(&mut server);
}

#[test]
fn an_insertion_that_is_asked_for_again_is_done_once() {
    let Some(mut server) = MongoServer::start() else { return };
    engines::an_insertion_that_is_asked_for_again_is_done_once(&mut server);
}

#[test]
fn an_entry_that_no_document_can_hold_lies_in_parts() {
    let Some(server) = Shared::find() else { return };
    let database = server.database();
    let long: Vec<u8> = (0..20_u32 << 20).map(|at| (at >> 12) as u8).collect();
    assert!(database.insert(Table::Log, b"1", &long).unwrap());
    assert!(!database.insert(Table::Log, b"1", b"short").unwrap());
    database.write(&[Change::put(Table::Log, *b"2", b"short".to_vec())]).unwrap();
    let both = Range::first(Table::Log, b"1".into(), b"2".into(), 9);
    let found = database.read(std::slice::from_ref(&both)).unwrap().concat();
    assert!(found[0].1 == long && found[1].1 == b"short"[..]);
    database.write(&[Change::put(Table::Log, *b"1", b"shorter".to_vec())]).unwrap();
    let found = database.read(&[both.clone(), Range::one(Table::Log, *b"1")]).unwrap();
    assert_eq!(found[0][0].1, b"shorter"[..]);
    assert_eq!(found[1][0].1, b"shorter"[..]);
    database.write(&[Change::put(Table::Log, *b"2", long.clone())]).unwrap();
    assert!(database.read(std::slice::from_ref(&both)).unwrap()[0][1].1 == long);
    database.write(&[Change::remove(Table::Log, *b"2")]).unwrap();
    assert_eq!(database.read(&[both]).unwrap()[0].len(), 1);
    let refused = database.write(&[Change::put(Table::Heads, *b"k", long)]).unwrap_err();
    assert!(refused.to_string().contains("more than a document can hold"), "{refused}");
}

#[test]
fn a_server_that_is_silent_is_awaited_for_as_long_as_there_is_patience() {
    let Some(server) = MongoServer::start() else { return };
    let patience = Duration::from_secs(1);
    let access = Access { patience, ..access(server.new_place()) };
    let database = MongoDatabase::create(access).unwrap();
    assert!(database.insert(Table::Heads, b"a", b"1").unwrap());
    server.stand_still(true);
    let began = Instant::now();
    let error = database.insert(Table::Heads, b"b", b"2").unwrap_err();
    let took = began.elapsed();
    server.stand_still(false);
    assert!(matches!(&error, Error::Io(_)), "{error}");
    assert!(took < Duration::from_secs(15), "it took {took:?}");
    // What was asked then is at an end, or done: it comes behind nothing.
    wait_for(&|| database.write(&[Change::remove(Table::Heads, *b"b")]).is_ok());
    assert!(database.insert(Table::Heads, b"b", b"3").unwrap());
}

/// A client that inserts behind a guard, through a tunnel in which the answer to its commit is
/// lost.
struct Cut {
    tunnel: Tunnel,
    near: MongoDatabase,
    far: MongoDatabase,
}

/// What the client puts, and what it looks at.
const PUT: (&[u8], &[u8]) = (b"k", b"v");

fn guard() -> Guard {
    Guard { table: Table::Header, key: b"at".into(), value: Some(b"1".into()) }
}

impl Cut {
    fn new(server: &MongoServer) -> Cut {
        let (tunnel, place) = (Tunnel::to_port(server.port()), server.new_place());
        let near = MongoDatabase::create(access(place.clone())).unwrap();
        let [from, to] = [server.port(), tunnel.port()].map(|port| format!(":{port}/"));
        let through = place.to_string().replace(&from, &to).parse().unwrap();
        let far = MongoDatabase::open(access(through)).unwrap().unwrap();
        near.write(&[Change::put(Table::Header, *b"at", b"1".to_vec())]).unwrap();
        assert!(far.insert_if(&guard(), Table::Log, b"j", b"v").unwrap());
        tunnel.lose_answers_from("commitTransaction");
        Cut { tunnel, near, far }
    }

    fn insert(&self) -> marram_store::Result<bool> {
        self.far.insert_if(&guard(), Table::Log, PUT.0, PUT.1)
    }

    /// Waits until the row is there, and lets another client change what it does.
    fn change(&self, others: &[Change]) {
        wait_for(&|| self.near.has(Table::Log, &[PUT.0.into()]).unwrap() == [true]);
        self.near.write(others).unwrap();
    }
}

/// What others do meanwhile: nothing; the guard holds no more; the row is another one; it is gone.
fn meanwhile() -> [Vec<Change>; 4] {
    let further = || Change::put(Table::Header, *b"at", b"2".to_vec());
    let other = Change::put(Table::Log, PUT.0, b"w".to_vec());
    let trimmed = Change::remove(Table::Log, PUT.0);
    [vec![], vec![further()], vec![further(), other], vec![further(), trimmed]]
}

#[test]
fn a_server_that_goes_on_knows_what_it_has_committed() {
    let Some(server) = MongoServer::start() else { return };
    for others in meanwhile() {
        let cut = Cut::new(&server);
        let done = std::thread::scope(|scope| {
            let asked = scope.spawn(|| cut.insert());
            cut.change(&others);
            cut.tunnel.let_through(Flow::Open);
            asked.join().unwrap()
        });
        assert_eq!(done, Ok(true), "{others:?}");
    }
}

#[test]
fn where_a_server_has_forgotten_a_commit_the_content_says_whether_it_was_done() {
    let Some(mut server) = MongoServer::start() else { return };
    let cuts = meanwhile().map(|others| (Cut::new(&server), others));
    let done = std::thread::scope(|scope| {
        let asked = cuts.each_ref().map(|(cut, _)| scope.spawn(|| cut.insert()));
        cuts.iter().for_each(|(cut, others)| cut.change(others));
        server.kill();
        server.run();
        cuts.iter().for_each(|(cut, _)| cut.tunnel.let_through(Flow::Open));
        asked.map(|asked| asked.join().unwrap())
    });
    assert_eq!(done[0], Ok(true), "nobody has changed anything");
    assert_eq!(done[1], Ok(true), "the row is there");
    assert_eq!(done[2], Ok(false), "the row is another's");
    let error = done[3].as_ref().unwrap_err();
    assert!(matches!(error, Error::Io(text) if text.contains("nobody knows")), "{error}");
}

#[test]
fn guards_of_two_clients_hold_one_after_the_other() {
    let Some(server) = Shared::find() else { return };
    let databases = server.store(2);
    databases[0].write(&[Change::put(Table::Header, *b"at", vec![0])]).unwrap();
    let count = |database: &dyn Database| {
        let mut made = 0;
        for value in 0..40_u8 {
            let guard = Guard { table: Table::Header, key: b"at".into(), value: Some(vec![value]) };
            let next = [Change::put(Table::Header, *b"at", vec![value + 1])];
            made += usize::from(database.write_if(&guard, &next).unwrap());
        }
        made
    };
    let (here, there) = std::thread::scope(|scope| {
        let there = scope.spawn(|| count(&*databases[1]));
        (count(&*databases[0]), there.join().unwrap())
    });
    let at = databases[0].read(&[Range::one(Table::Header, *b"at")]).unwrap().concat();
    assert_eq!(usize::from(at[0].1[0]), here + there, "each step is made once");
    assert!(here + there > 0);
}

#[test]
fn a_server_that_has_lost_entries_is_not_written_to() {
    let Some(mut server) = MongoServer::start() else { return };
    let place = server.new_place();
    let database = MongoDatabase::create(access(place.clone())).unwrap();
    assert!(database.insert(Table::Log, b"1", b"entry").unwrap());
    let other = MongoDatabase::open(access(place.clone())).unwrap().unwrap();
    other.write(&[Change::remove(Table::Log, *b"1")]).unwrap();
    server.kill();
    server.run();
    let error = database.insert(Table::Log, b"2", b"entry").unwrap_err().to_string();
    assert!(error.contains("lost entries"), "{error}");
    assert!(database.write(&[Change::put(Table::Heads, *b"k", Vec::new())]).is_err());
    let again = MongoDatabase::open(access(place)).unwrap().unwrap();
    assert!(all(&again).concat().is_empty());
}

fn refused(place: Place) -> String {
    MongoDatabase::create(access(place)).err().expect("it is refused").to_string()
}

#[test]
fn a_place_that_is_not_fit_is_refused_by_name() {
    let Some(mut server) = MongoServer::start() else { return };
    let place = server.new_place();
    assert!(MongoDatabase::open(access(place.clone())).unwrap().is_none());
    let home = Arc::new(MongoDatabase::create(access(place.clone())).unwrap());
    made(&(Arc::clone(&home) as Arc<dyn Database>));
    let error = refused(place.clone());
    assert!(error.contains("has collections already") && error.contains("dropDatabase"), "{error}");
    home.remove().unwrap();
    assert!(MongoDatabase::open(access(place.clone())).unwrap().is_none());
    let error = refused("mongodb://192.0.2.1/trees?tls=off".parse().unwrap());
    assert!(error.contains("192.0.2.1 is another host"), "{error}");
    server.kill();
    server.set_words(&["--standalone"]);
    server.run();
    let error = refused(place.clone());
    assert!(error.contains("no transactions") && error.contains("--replSet"), "{error}");
    server.kill();
    assert!(refused(place).contains("no connection to the server"));
}

#[test]
fn a_making_goes_on_after_lost_answers_and_one_that_was_cut_off_is_done_anew() {
    let Some(server) = MongoServer::start() else { return };
    for word in ["create", "insert", "commitTransaction"] {
        let (tunnel, place) = (Tunnel::to_port(server.port()), server.new_place());
        let [from, to] = [server.port(), tunnel.port()].map(|port| format!(":{port}/"));
        let through: Place = place.to_string().replace(&from, &to).parse().unwrap();
        tunnel.lose_answers_from(word);
        let first = std::thread::scope(|scope| {
            let first = scope.spawn(|| MongoDatabase::create(access(through)));
            std::thread::sleep(Duration::from_millis(400));
            tunnel.let_through(Flow::Open);
            first.join().unwrap().unwrap_or_else(|error| panic!("{word}: {error}"))
        });
        // It gets no header: so it is no home, and the next one that is made takes its place.
        let second: Arc<dyn Database> =
            Arc::new(MongoDatabase::create(access(place.clone())).unwrap());
        let error = first.write(&[Change::put(Table::Heads, *b"k", Vec::new())]).unwrap_err();
        assert!(error.to_string().contains("another one makes a home there"), "{error}");
        made(&second);
        first.remove().unwrap();
        assert_eq!(verify(&*second).unwrap().findings, [""; 0], "{word}");
        let error = refused(place.clone());
        assert!(error.contains("has collections already"), "{error}");
        second.write(&[Change::put(Table::Heads, *b"k", Vec::new())]).unwrap();
    }
    let place = server.new_place();
    MongoDatabase::create(access(place.clone())).unwrap().remove().unwrap();
    assert!(MongoDatabase::open(access(place.clone())).unwrap().is_none());
    MongoDatabase::create(access(place)).unwrap();
}

#[test]
fn passwords_are_proved_and_asked_for() {
    let Some(mut server) = MongoServer::start() else { return };
    server.add_user("kim", "open sesame");
    server.kill();
    server.set_words(&["--auth"]);
    server.run();
    let place = server.place("kim@", "hers");
    let with = |password: &'static str| {
        let password = Arc::new(|_: &Place| Ok(password.as_bytes().to_vec()));
        Access { password, ..access(place.clone()) }
    };
    let error = MongoDatabase::create(with("wrong")).err().unwrap().to_string();
    assert!(error.contains("MONGODB_PASSWORD"), "{error}");
    let database = MongoDatabase::create(with("open sesame")).unwrap();
    assert!(database.insert(Table::Header, b"k", b"v").unwrap());
    let error = refused(server.place("", "hers"));
    assert!(error.contains("readWrite"), "{error}");
}
