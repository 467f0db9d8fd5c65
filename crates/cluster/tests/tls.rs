//! Encrypted connections: only to the server that was named, and nothing in the clear.

use crate::certificates::{Proof, Root};
use crate::engines::wait_for;
use crate::mongo_server::{self, MongoServer};
use crate::server::{Server, access};
use crate::tunnel::Tunnel;
use marram_cluster::Database;
use marram_cluster::database::Table;
use marram_cluster::mongo::MongoDatabase;
use marram_cluster::postgres::PostgresDatabase;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The names of the servers of the tests.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];
/// With this a server of PostgreSQL is asked for TLS.
const REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// With these bytes TLS begins.
const HELLO: [u8; 2] = [0x16, 3];

/// Roots that a client trusts or not, in files.
struct Roots {
    folder: TempDir,
    good: Root,
    other: Root,
}

impl Roots {
    fn new() -> Roots {
        let roots =
            Roots { folder: tempfile::tempdir().unwrap(), good: Root::new(), other: Root::new() };
        roots.put("good.pem", &roots.good.pem());
        roots.put("other.pem", &roots.other.pem());
        roots
    }

    fn put(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|it| it == text.as_bytes())
}

/// Whether a home can be opened at a URL of PostgreSQL, and if not, why.
fn postgres(url: &str) -> Result<(), String> {
    let opened = PostgresDatabase::open(access(url.parse().unwrap()));
    opened.map(|_| ()).map_err(|error| error.to_string())
}

fn show(server: &Server, proof: &Proof) {
    server.put_file("server.pem", &proof.certificate);
    server.put_file("server.key", &proof.key);
    server.sql("postgres", "SELECT pg_reload_conf()");
}

fn encrypted_server(roots: &Roots) -> Option<(Server, u16)> {
    let port = free_port();
    let server = Server::start_on(Some(port))?;
    show(&server, &roots.good.proof(&NAMES, false));
    let folder = server.folder().display();
    for setting in [
        format!("ssl_cert_file = '{folder}/server.pem'"),
        format!("ssl_key_file = '{folder}/server.key'"),
        format!("ssl_ca_file = '{}'", server.put_file("roots.pem", &roots.good.pem()).display()),
        "ssl = on".to_owned(),
    ] {
        server.sql("postgres", &format!("ALTER SYSTEM SET {setting}"));
    }
    server.let_in("local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n");
    server.sql("trees", "CREATE ROLE kim LOGIN PASSWORD 'open sesame'");
    server.sql("trees", "GRANT CREATE ON DATABASE trees TO kim");
    Some((server, port))
}

#[test]
fn what_goes_to_postgresql_is_encrypted() {
    let roots = Roots::new();
    let Some((_server, port)) = encrypted_server(&roots) else { return };
    let tunnel = Tunnel::to_port(port);
    let (at, roots) = (tunnel.port(), roots.path("good.pem"));
    let url = format!("postgres://kim@localhost:{at}/trees?schema=own&tls-ca={roots}");
    let mut access = access(url.parse().unwrap());
    access.password = std::sync::Arc::new(|_| Ok(b"open sesame".to_vec()));
    // The server takes its settings up in its own time.
    wait_for(&|| PostgresDatabase::open(access.clone()).is_ok());
    tunnel.forget();
    let database = PostgresDatabase::create(access).unwrap();
    let long = vec![7; 3 << 20];
    assert!(database.insert(Table::Header, b"the-key", &long).unwrap());
    let rows = [marram_cluster::database::Range::one(Table::Header, *b"the-key")];
    assert!(database.read(&rows).unwrap()[0][0].1 == long);
    let said = tunnel.said();
    assert!(said.starts_with(&REQUEST) && said[8..].starts_with(&HELLO), "{said:?}");
    // What is shorter is found in so many random bytes now and then.
    for secret in ["user\0kim", "trees", "sesame", "SELECT", "the-key", "SCRAM"] {
        assert!(!contains(&said, secret), "{secret} was sent in the clear");
    }
}

#[test]
fn a_server_of_postgresql_that_does_not_prove_its_name_is_refused() {
    let roots = Roots::new();
    let Some((server, port)) = encrypted_server(&roots) else { return };
    let url =
        |name: &str| format!("postgres://kim@localhost:{port}/trees?tls-ca={}", roots.path(name));
    let is_refused = |name: &str, why: &str| {
        wait_for(&|| postgres(&url(name)).unwrap_err().contains(why));
    };
    is_refused("good.pem", "there is no password");
    is_refused("other.pem", "no root that is trusted has signed it");
    show(&server, &roots.good.proof(&["elsewhere.example"], false));
    is_refused("good.pem", "the certificate of localhost is refused: it is for another name");
    show(&server, &roots.good.proof(&NAMES, true));
    is_refused("good.pem", "it has expired");
    let error = postgres(&url("none.pem")).unwrap_err();
    assert!(error.contains("none.pem cannot be taken as a file of certificates"), "{error}");
    // A client proves itself where that is asked for.
    show(&server, &roots.good.proof(&NAMES, false));
    let users = "local all all trust\nhostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n";
    server.let_in(users);
    is_refused("good.pem", "client certificate");
    let own = roots.put("own.pem", &roots.good.proof(&["kim"], false).whole());
    wait_for(&|| postgres(&format!("{}&tls-cert={}", url("good.pem"), own.display())).is_ok());
}

/// What a client says to a server that answers so, and why it gives up.
fn said_to(answer: &'static [u8], ask: impl FnOnce(u16) -> String) -> (Vec<u8>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let speaker = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut said = vec![0; 4096];
        let count = stream.read(&mut said).unwrap();
        stream.write_all(answer).unwrap();
        said.truncate(count);
        let mut rest = Vec::new();
        // It may end in the middle.
        let _count = stream.read_to_end(&mut rest);
        [said, rest].concat()
    });
    let why = ask(port);
    (speaker.join().unwrap(), why)
}

#[test]
fn nothing_goes_to_a_server_without_tls() {
    let roots = Roots::new();
    let words = format!("tls-ca={}", roots.path("good.pem"));
    let asked = |port| postgres(&format!("postgres://kim@localhost:{port}/trees?{words}"));
    let (said, why) = said_to(b"N", |port| asked(port).unwrap_err());
    assert_eq!(said, REQUEST, "nothing but the question");
    assert!(why.contains("has no TLS") && why.contains("ssl = on"), "{why}");
    let (_, why) = said_to(b"HTTP/1.1 400 Bad Request\r\n\r\n", |port| asked(port).unwrap_err());
    assert!(why.contains("is no PostgreSQL server"), "{why}");
    let asked = |port| mongodb(&format!("mongodb://kim@localhost:{port}/trees?{words}"));
    let (said, why) = said_to(b"HTTP/1.1 400 Bad Request\r\n\r\n", |port| asked(port).unwrap_err());
    assert!(said.starts_with(&HELLO) && !contains(&said, "kim"), "{said:?}");
    assert!(why.contains("does not speak TLS"), "{why}");
}

/// Whether a home can be opened at a URL of MongoDB, and if not, why.
fn mongodb(url: &str) -> Result<(), String> {
    let opened = MongoDatabase::open(mongo_server::access(url.parse().unwrap()));
    opened.map(|_| ()).map_err(|error| error.to_string())
}

fn put_proof(folder: &Path, proof: &Proof) {
    std::fs::write(folder.join("server.pem"), &proof.certificate).unwrap();
    std::fs::write(folder.join("server.key"), &proof.key).unwrap();
}

#[test]
fn a_server_of_mongodb_proves_its_name_and_what_goes_to_it_is_encrypted() {
    let roots = Roots::new();
    let folder = tempfile::tempdir().unwrap();
    put_proof(folder.path(), &roots.good.proof(&NAMES, false));
    let file = |name: &str| folder.path().join(name).display().to_string();
    let words = ["--tls-cert-file", &file("server.pem"), "--tls-key-file", &file("server.key")];
    let Some(mut server) = MongoServer::start_with(&words) else { return };
    let port = server.port();
    let url = |name: &str| format!("mongodb://localhost:{port}/own?tls-ca={}", roots.path(name));
    let place = url("good.pem").parse().unwrap();
    let database = MongoDatabase::create(mongo_server::access(place)).unwrap();
    assert!(database.insert(Table::Header, b"k", b"v").unwrap());
    assert_eq!(mongodb(&url("good.pem")), Ok(()));
    let why = mongodb(&url("other.pem")).unwrap_err();
    assert!(why.contains("no root that is trusted has signed it"), "{why}");
    let why = mongodb(&format!("mongodb://localhost:{port}/own")).unwrap_err();
    assert!(why.contains("MongoDB"), "it is not spoken to in the clear: {why}");
    for (proof, reason) in [
        (roots.good.proof(&["elsewhere.example"], false), "it is for another name"),
        (roots.good.proof(&NAMES, true), "it has expired"),
    ] {
        server.kill();
        put_proof(folder.path(), &proof);
        server.run();
        let why = mongodb(&url("good.pem")).unwrap_err();
        assert!(why.contains(reason), "{why}");
    }
}
