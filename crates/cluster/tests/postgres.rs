//! PostgreSQL: what is asked of a server, and what it may do meanwhile.

use crate::engines::{self, Engine, Mortal, all, wait_for};
use crate::server::{Server, access};
use crate::tunnel::{Flow, Tunnel};
use marram_cluster::Database;
use marram_cluster::database::{Change, Guard, Table};
use marram_cluster::postgres::{Access, Place, PostgresDatabase};
use marram_store::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Engine for Server {
    fn store(&self, clients: usize) -> Vec<Arc<dyn Database>> {
        Server::store(self, clients)
    }
}

impl Mortal for Server {
    fn kill(&mut self) {
        Server::kill(self);
    }

    fn run(&mut self) {
        Server::run(self);
    }
}

#[test]
fn it_answers_as_the_database_in_memory_does() {
    let Some(server) = Server::start() else { return };
    engines::it_answers_as_the_database_in_memory_does(&server, 300);
}

#[test]
fn ranges_are_of_one_moment() {
    let Some(server) = Server::start() else { return };
    engines::ranges_are_of_one_moment(&server);
}

#[test]
fn nothing_that_was_acknowledged_is_lost_when_the_server_is_killed() {
    let Some(mut server) = Server::start() else { return };
    engines::nothing_that_was_acknowledged_is_lost(&mut server);
}

#[test]
fn an_insertion_that_is_asked_for_again_is_done_once() {
    let Some(mut server) = Server::start() else { return };
    engines::an_insertion_that_is_asked_for_again_is_done_once(&mut server);
}

#[test]
fn a_server_that_is_silent_is_awaited_for_as_long_as_there_is_patience() {
    let Some(server) = Server::start() else { return };
    let patience = Duration::from_secs(1);
    let access = Access { patience, ..access(server.new_place()) };
    let database = PostgresDatabase::create(access).unwrap();
    assert!(database.insert(Table::Heads, b"a", b"1").unwrap());
    server.stand_still(true);
    let began = Instant::now();
    let error = database.insert(Table::Heads, b"b", b"2").unwrap_err();
    let took = began.elapsed();
    server.stand_still(false);
    assert!(matches!(&error, Error::Io(_)), "{error}");
    assert!(took < Duration::from_secs(15), "it took {took:?}");
    // What was asked then is at an end, or done: it comes behind nothing.
    database.write(&[Change::remove(Table::Heads, *b"b")]).unwrap();
    assert!(database.insert(Table::Heads, b"b", b"3").unwrap());
}

/// What an insertion behind a guard comes to of which the answer is lost, while others change what
/// it has put.
fn lost_answer(server: &Server, others: &[Change]) -> marram_store::Result<bool> {
    let (tunnel, place) = (Tunnel::to(server), server.new_place());
    let near = PostgresDatabase::create(access(place.clone())).unwrap();
    let far = PostgresDatabase::open(access(tunnel.place(&place))).unwrap().unwrap();
    near.write(&[Change::put(Table::Header, *b"at", b"1".to_vec())]).unwrap();
    let guard = Guard { table: Table::Header, key: b"at".into(), value: Some(b"1".into()) };
    tunnel.let_through(Flow::Questions);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| far.insert_if(&guard, Table::Log, b"k", b"v"));
        wait_for(&|| near.has(Table::Log, &[b"k".into()]).unwrap() == [true]);
        near.write(others).unwrap();
        tunnel.let_through(Flow::Open);
        asked.join().unwrap()
    })
}

#[test]
fn a_lost_answer_to_a_guarded_insertion_is_found_or_known_not_to_be() {
    let Some(server) = Server::start() else { return };
    let further = || Change::put(Table::Header, *b"at", b"2".to_vec());
    assert_eq!(lost_answer(&server, &[]), Ok(true), "nobody has changed anything");
    assert_eq!(lost_answer(&server, &[further()]), Ok(true), "the row is there");
    let other = Change::put(Table::Log, *b"k", b"w".to_vec());
    assert_eq!(lost_answer(&server, &[further(), other]), Ok(false), "the row is another's");
    let trimmed = Change::remove(Table::Log, *b"k");
    let error = lost_answer(&server, &[further(), trimmed]).unwrap_err();
    assert!(matches!(&error, Error::Io(text) if text.contains("nobody knows")), "{error}");
}

/// The same of an insertion with changes behind it, by which its guard holds no more.
fn lost_answer_to_both(server: &Server, others: &[Change]) -> marram_store::Result<bool> {
    let (tunnel, place) = (Tunnel::to(server), server.new_place());
    let near = PostgresDatabase::create(access(place.clone())).unwrap();
    let far = PostgresDatabase::open(access(tunnel.place(&place))).unwrap().unwrap();
    near.write(&[Change::put(Table::Header, *b"at", b"1".to_vec())]).unwrap();
    let guard = Guard { table: Table::Header, key: b"at".into(), value: Some(b"1".into()) };
    let row = Change::put(Table::Log, *b"k", b"v".to_vec());
    let changes = [
        Change::put(Table::Heads, *b"h", b"v".to_vec()),
        Change::put(Table::Header, *b"at", b"2".to_vec()),
    ];
    tunnel.let_through(Flow::Questions);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| far.insert_with(&guard, &row, &changes).unwrap());
        wait_for(&|| near.has(Table::Log, &[b"k".into()]).unwrap() == [true]);
        assert_eq!(near.has(Table::Heads, &[b"h".into()]).unwrap(), [true], "it is one step");
        near.write(others).unwrap();
        tunnel.let_through(Flow::Open);
        asked.join().unwrap()
    })
}

#[test]
fn a_lost_answer_to_an_insertion_with_changes_is_found_or_known_not_to_be() {
    let Some(server) = Server::start() else { return };
    assert_eq!(lost_answer_to_both(&server, &[]), Ok(true), "it was made before");
    let other = Change::put(Table::Log, *b"k", b"w".to_vec());
    assert_eq!(lost_answer_to_both(&server, &[other]), Ok(false), "the row is another's");
    let trimmed = Change::remove(Table::Log, *b"k");
    let error = lost_answer_to_both(&server, &[trimmed]).unwrap_err();
    assert!(matches!(&error, Error::Io(text) if text.contains("nobody knows")), "{error}");
}

#[test]
fn an_insertion_and_the_changes_behind_it_are_one_step() {
    let Some(server) = Server::start() else { return };
    let database = PostgresDatabase::create(access(server.new_place())).unwrap();
    database.write(&[Change::put(Table::Header, *b"at", b"1".to_vec())]).unwrap();
    let step = |at: &[u8], key: &[u8]| {
        let guard = Guard { table: Table::Header, key: b"at".into(), value: Some(at.into()) };
        let row = Change::put(Table::Log, key, b"v".to_vec());
        let changes =
            [Change::put(Table::Heads, key, at.to_vec()), Change::remove(Table::Uses, key)];
        database.insert_with(&guard, &row, &changes).unwrap().unwrap()
    };
    let before = database.round_trips();
    assert!(step(b"1", b"a"));
    assert_eq!(database.round_trips() - before, 1);
    let there = all(&database);
    assert!(!step(b"0", b"b"), "the guard does not hold");
    assert!(!step(b"1", b"a"), "the key is taken");
    assert_eq!(all(&database), there, "nothing has changed");
    assert!(step(b"1", b"b"));
}

#[test]
fn a_guard_that_does_not_hold_costs_no_connection() {
    let Some(server) = Server::start() else { return };
    let (tunnel, place) = (Tunnel::to(&server), server.new_place());
    drop(PostgresDatabase::create(access(place.clone())).unwrap());
    let database = PostgresDatabase::open(access(tunnel.place(&place))).unwrap().unwrap();
    let at =
        |value: &[u8]| Guard { table: Table::Header, key: b"at".into(), value: Some(value.into()) };
    for round in 0..4_u8 {
        let changes =
            [Change::put(Table::Marks, [round], vec![]), Change::remove(Table::Uses, *b"k")];
        for _ in 0..3 {
            assert!(!database.insert_if(&at(b"none"), Table::Log, &[round], b"v").unwrap());
            assert!(!database.write_if(&at(b"none"), &changes).unwrap());
        }
        database.write(&[Change::put(Table::Header, *b"at", vec![round])]).unwrap();
        assert!(database.insert_if(&at(&[round]), Table::Log, &[round], b"v").unwrap());
        assert!(database.write_if(&at(&[round]), &changes).unwrap());
        assert_eq!(database.has(Table::Marks, &[vec![round]]).unwrap(), [true]);
    }
    assert_eq!(tunnel.connections(), 1);
}

#[test]
fn a_server_that_has_lost_entries_is_not_written_to() {
    let Some(mut server) = Server::start() else { return };
    let place = server.new_place();
    let database = PostgresDatabase::create(access(place.clone())).unwrap();
    assert!(database.insert(Table::Log, b"1", b"entry").unwrap());
    server.sql("trees", &format!("DELETE FROM {}.log", schema_of(&place)));
    server.kill();
    server.run();
    let error = database.insert(Table::Log, b"2", b"entry").unwrap_err().to_string();
    assert!(error.contains("lost entries"), "{error}");
    assert!(database.write(&[Change::put(Table::Heads, *b"k", Vec::new())]).is_err());
    let again = PostgresDatabase::open(access(place)).unwrap().unwrap();
    assert!(all(&again).concat().is_empty());
}

fn schema_of(place: &Place) -> String {
    let text = place.to_string();
    text.rsplit_once("schema=").unwrap().1.to_owned()
}

fn refused(place: Place) -> String {
    PostgresDatabase::create(access(place)).err().expect("it is refused").to_string()
}

#[test]
fn a_place_that_is_not_fit_is_refused_by_name() {
    let Some(mut server) = Server::start() else { return };
    let error = refused("postgres://fs@192.0.2.1/trees?tls=off".parse().unwrap());
    assert!(error.contains("192.0.2.1 is another host") && error.contains("tls=off"), "{error}");
    let text = server.place("fs", "a").to_string().replace("/trees", "/none");
    assert!(refused(text.parse().unwrap()).contains("createdb"));
    server.sql("trees", "CREATE SCHEMA theirs; CREATE VIEW theirs.header AS SELECT 1 AS key");
    let error = refused(server.place("fs", "theirs"));
    assert!(error.contains("has tables already") && error.contains("?schema=NAME"), "{error}");
    assert!(PostgresDatabase::open(access(server.place("fs", "nothing"))).unwrap().is_none());
    server.sql("trees", "CREATE ROLE guest LOGIN PASSWORD 'open sesame'");
    assert!(refused(server.place("guest", "b")).contains("GRANT"), "no right to make a schema");
    drop(PostgresDatabase::create(access(server.place("fs", "b"))).unwrap());
    server.sql("trees", "GRANT USAGE ON SCHEMA b TO guest; GRANT SELECT ON b.header TO guest");
    let guest = PostgresDatabase::open(access(server.place("guest", "b"))).unwrap().unwrap();
    let error = guest.insert(Table::Header, b"k", b"v").unwrap_err().to_string();
    assert!(error.contains("permission denied") && error.contains("GRANT"), "{error}");
    server.sql("trees", "ALTER DATABASE trees SET default_transaction_read_only = on");
    let database = PostgresDatabase::open(access(server.place("fs", "b"))).unwrap().unwrap();
    let error = database.insert(Table::Header, b"k", b"v").unwrap_err();
    assert!(matches!(&error, Error::ReadOnly(_)), "{error}");
    server.sql("postgres", "ALTER SYSTEM SET fsync = off");
    server.sql("postgres", "SELECT pg_reload_conf()");
    std::thread::sleep(Duration::from_millis(300));
    assert!(refused(server.place("fs", "c")).contains("fsync=off"));
    server.kill();
    assert!(refused(server.place("fs", "c")).contains("no connection to the server"));
}

#[test]
fn passwords_are_proved_in_the_ways_of_servers() {
    let Some(server) = Server::start() else { return };
    server.sql("trees", "CREATE ROLE scram LOGIN PASSWORD 'open sesame'");
    server.sql(
        "trees",
        "SET password_encryption = md5; CREATE ROLE old LOGIN PASSWORD 'open sesame'",
    );
    server.sql("trees", "CREATE SCHEMA a AUTHORIZATION scram; CREATE SCHEMA b AUTHORIZATION old");
    server.let_in("local all fs trust\nlocal all scram scram-sha-256\nlocal all old md5\n");
    for (user, schema) in [("scram", "a"), ("old", "b")] {
        let with = |password: &'static str| {
            let password = Arc::new(|_: &Place| Ok(password.as_bytes().to_vec()));
            Access { password, ..access(server.place(user, schema)) }
        };
        assert!(refused(server.place(user, schema)).contains("there is no password"));
        let error = PostgresDatabase::create(with("wrong")).err().unwrap().to_string();
        assert!(error.contains("28P01") && error.contains("PGPASSWORD"), "{error}");
        let database = PostgresDatabase::create(with("open sesame")).unwrap();
        assert!(database.insert(Table::Header, b"k", b"v").unwrap());
    }
    server.let_in("local all fs trust\nlocal all scram reject\n");
    assert!(refused(server.place("scram", "a")).contains("28000"));
}

#[test]
fn what_is_no_server_is_refused_whatever_it_says() {
    use std::io::{Read, Write};
    let answers: [&[u8]; 8] = [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"R\x7f\xff\xff\xff",
        b"R\0\0\0\x02",
        b"R\0\0\0\x08\0\0\0\x07",
        b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I",
        b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05ID\0\0\0\x06\0\x01C\0\0\0\x09S 1\xff\0Z\0\0\0\x05I",
        b"E\0\0\0\x05\0",
    ];
    for answer in answers {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let speaker = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let _greeting = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(answer).unwrap();
        });
        let place = format!("postgres://fs@127.0.0.1:{port}/trees").parse().unwrap();
        let refused = PostgresDatabase::open(access(place));
        assert!(refused.is_err(), "{answer:?}");
        speaker.join().unwrap();
    }
}
