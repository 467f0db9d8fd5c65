//! PostgreSQL: what is asked of a server, and what it may do meanwhile.

use crate::server::{Server, access};
use crate::stores::{StillClock, made, options};
use crate::tunnel::{Flow, Tunnel};
use marram_cluster::database::{Change, Guard, Range, Row, Table};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::postgres::{Access, Place, PostgresDatabase};
use marram_cluster::{Cluster, Database, verify};
use marram_store::{Batch, Error, Item, Key, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

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

fn all(database: &dyn Database) -> Vec<Vec<Row>> {
    let whole = |table| Range::first(table, Vec::new(), vec![0xff; 8], usize::MAX);
    database.read(&Table::ALL.map(whole)).unwrap()
}

#[test]
fn it_answers_as_the_database_in_memory_does() {
    let Some(server) = Server::start() else { return };
    let (memory, postgres) = (MemoryDatabase::default(), server.database());
    let mut numbers = Numbers(1);
    for round in 0..300 {
        let changes: Vec<Change> = (0..numbers.below(12)).map(|_| numbers.change()).collect();
        memory.write(&changes).unwrap();
        postgres.write(&changes).unwrap();
        let (table, key, value) = (numbers.table(), numbers.key(), numbers.value());
        let inserted = postgres.insert(table, &key, &value).unwrap();
        assert_eq!(inserted, memory.insert(table, &key, &value).unwrap(), "round {round}");
        let keys: Vec<Vec<u8>> = (0..9).map(|_| numbers.key()).collect();
        assert_eq!(postgres.has(table, &keys).unwrap(), memory.has(table, &keys).unwrap());
        let ranges: Vec<Range> = (0..numbers.below(8)).map(|_| numbers.range()).collect();
        let (found, wanted) = (postgres.read(&ranges).unwrap(), memory.read(&ranges).unwrap());
        assert_eq!(found, wanted, "round {round}: {ranges:?}");
    }
    assert_eq!(all(&postgres), all(&memory));
    assert!(postgres.bytes().unwrap() > 0);
}

#[test]
fn ranges_are_of_one_moment() {
    let Some(server) = Server::start() else { return };
    let place = server.new_place();
    let writer = PostgresDatabase::create(access(place.clone())).unwrap();
    let reader = PostgresDatabase::open(access(place)).unwrap().unwrap();
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

/// What is done between two deaths of a server.
const BETWEEN_KILLS: u64 = 12;

fn wait_for(is_done: &dyn Fn() -> bool) {
    let began = Instant::now();
    while !is_done() {
        assert!(began.elapsed() < Duration::from_secs(120), "nothing goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn nothing_that_was_acknowledged_is_lost_when_the_server_is_killed() {
    let Some(mut server) = Server::start() else { return };
    let place = server.new_place();
    let open = || -> Arc<dyn Database> {
        Arc::new(PostgresDatabase::open(access(place.clone())).unwrap().unwrap())
    };
    made(
        &(Arc::new(PostgresDatabase::create(access(place.clone())).unwrap()) as Arc<dyn Database>),
    );
    let cluster = Cluster::open(open(), options(1, None, &StillClock::new())).unwrap();
    let view = cluster.open(&"root".parse().unwrap()).unwrap();
    let (published, kills) = (AtomicU64::new(0), 4);
    let done = BETWEEN_KILLS * (kills + 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 1..=done {
                view.apply(numbered(value)).unwrap();
                view.sync().unwrap();
                published.store(value, Ordering::Relaxed);
            }
        });
        for round in 1..=kills {
            wait_for(&|| published.load(Ordering::Relaxed) >= BETWEEN_KILLS * round);
            server.kill();
            server.run();
        }
    });
    // The next client finds the home as one that died has left it.
    let cluster = Cluster::open(open(), options(2, Some(1), &StillClock::new())).unwrap();
    let view = cluster.open(&"root".parse().unwrap()).unwrap();
    for value in 1..=done {
        let item = view.get(Key::new(2, 1, value)).unwrap();
        assert_eq!(item.unwrap().value[..], value.to_le_bytes(), "of {done}");
    }
    assert_eq!(view.get(Key::new(3, 1, 0)).unwrap().unwrap().value[..], done.to_le_bytes());
    let verified = verify::verify(&*open()).unwrap();
    assert_eq!(verified.findings, Vec::<String>::new());
}

#[test]
fn an_insertion_that_is_asked_for_again_is_done_once() {
    let Some(mut server) = Server::start() else { return };
    let place = server.new_place();
    let first = PostgresDatabase::create(access(place.clone())).unwrap();
    let second = PostgresDatabase::open(access(place)).unwrap().unwrap();
    let (is_over, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    let put = |database: &PostgresDatabase, who: u8| {
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
        let (ours, theirs) = (scope.spawn(|| put(&first, 1)), scope.spawn(|| put(&second, 2)));
        for round in 1..=4 {
            wait_for(&|| asked.load(Ordering::Relaxed) >= BETWEEN_KILLS * round);
            server.kill();
            server.run();
        }
        is_over.store(true, Ordering::Relaxed);
        (ours.join().unwrap(), theirs.join().unwrap())
    });
    let rows = &all(&first)[Table::ALL.iter().position(|it| *it == Table::Log).unwrap()];
    let of = |who: u8| -> Vec<u64> {
        let rows = rows.iter().filter(|(_, value)| value.last() == Some(&who));
        rows.map(|(key, _)| u64::from_be_bytes(key[..].try_into().unwrap())).collect()
    };
    assert_eq!((of(1), of(2)), (ours, theirs));
    assert!(rows.len() as u64 >= BETWEEN_KILLS * 4);
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
    let far = "postgres://fs@192.0.2.1/trees".parse().unwrap();
    let error = refused(far);
    assert!(error.contains("192.0.2.1 is another host") && error.contains("ssh -N -L"), "{error}");
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
