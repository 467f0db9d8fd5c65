//! A server of the MongoDB protocol for tests: SecantusDB, started by the test in a temporary
//! folder, or the one that `MARRAM_TEST_MONGODB` names.
//!
//! SecantusDB stores by WiredTiger, as mongod does, has transactions, and is a program of its own.
//! `cargo xtask ci` installs it.

use marram_cluster::Database;
use marram_cluster::mongo::{Access, MongoDatabase, Place};
use marram_cluster::server::PATIENCE;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long it may take to start or to stop.
const LIMIT: Duration = Duration::from_secs(60);
/// Whether each thread of a process has been stopped: one that is at work hears of it a little
/// later.
fn stands_still(id: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let mut stats = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("stat")));
    let is_stopped = |stat: std::io::Result<String>| {
        stat.is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T")))
    };
    stats.all(is_stopped)
}

/// Files that lie in memory.
const MEMORY: &str = "/dev/shm";
/// A server that runs already: `mongodb://USER@HOST:PORT`, with `?` and words behind it.
const NAMED: &str = "MARRAM_TEST_MONGODB";

/// A server of a test's own. It is stopped when it is dropped.
pub(crate) struct MongoServer {
    folder: TempDir,
    program: PathBuf,
    port: u16,
    words: Vec<String>,
    running: Option<Child>,
}

impl MongoServer {
    /// A new one; none, said aloud, where it is not installed.
    pub(crate) fn start() -> Option<MongoServer> {
        MongoServer::start_with(&[])
    }

    /// The same with more words on its command line. `FOLDER` in them is the server's.
    pub(crate) fn start_with(words: &[&str]) -> Option<MongoServer> {
        let Some(program) = program() else {
            println!("SKIPPED, NOT TESTED: no SecantusDB is installed");
            return None;
        };
        // In memory where there is some: what a killed server has written is there either way.
        let folder = tempfile::tempdir_in(MEMORY).or_else(|_| tempfile::tempdir()).unwrap();
        let path = folder.path().display().to_string();
        let words = words.iter().map(|word| word.replace("FOLDER", &path)).collect();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = MongoServer { folder, program, port, words, running: None };
        server.run();
        Some(server)
    }

    /// Other words on its command line, from the next start on.
    pub(crate) fn set_words(&mut self, words: &[&str]) {
        self.words = words.iter().map(|word| (*word).to_owned()).collect();
    }

    /// Its port on this host.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Starts it, and waits until it listens.
    pub(crate) fn run(&mut self) {
        let log = self.folder.path().join("log");
        let out = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = Command::new(&self.program);
        command.args(["--host", "127.0.0.1", "--sync-on-commit", "--log-level", "WARNING"]);
        command.args(["--port", &self.port.to_string(), "--storage-path"]);
        command.arg(self.folder.path().join("data")).args(&self.words);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command.stdout(out.try_clone().unwrap()).stderr(out);
        let mut running = command.spawn().unwrap();
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let said = || fs::read_to_string(&log).unwrap();
            assert!(running.try_wait().unwrap().is_none(), "it has ended: {}", said());
            assert!(began.elapsed() < LIMIT, "it does not listen: {}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.running = Some(running);
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        let mut running = self.running.take().unwrap();
        running.kill().unwrap();
        running.wait().unwrap();
    }

    /// Adds a user that may do everything. It counts once `--auth` is among the words.
    pub(crate) fn add_user(&self, name: &str, password: &str) {
        let text = "import sys, pymongo\n\
                    client = pymongo.MongoClient('127.0.0.1', int(sys.argv[1]))\n\
                    name, password = sys.argv[2:]\n\
                    client.admin.command('createUser', name, pwd=password, roles=['root'])";
        // SecantusDB brings the library along.
        let mut python = Command::new(self.program.with_file_name("python3"));
        python.args(["-c", text, &self.port.to_string(), name, password]);
        let output = python.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Lets it stand still, or go on.
    pub(crate) fn stand_still(&self, is_still: bool) {
        let id = i32::try_from(self.running.as_ref().unwrap().id()).unwrap();
        let signal = if is_still { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
        let began = Instant::now();
        while is_still && !stands_still(id) {
            assert!(began.elapsed() < LIMIT, "the server goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A database of it, for a user if one is named.
    pub(crate) fn place(&self, user: &str, name: &str) -> Place {
        format!("mongodb://{user}127.0.0.1:{}/{name}", self.port).parse().unwrap()
    }

    /// A database that nobody has used.
    pub(crate) fn new_place(&self) -> Place {
        self.place("", &new_name())
    }
}

impl Drop for MongoServer {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            // Its files go too, so nothing is left to be done in order.
            let _has_ended = running.kill();
            let _has_ended = running.wait();
        }
    }
}

/// A server that tests share which do nothing to it.
pub(crate) enum Shared {
    /// Started by the first of them, and stopped with the last.
    Own(Arc<MongoServer>),
    /// The one that runs already.
    Named(String),
}

impl Shared {
    /// One of the two; none, said aloud, where there is none.
    pub(crate) fn find() -> Option<Shared> {
        static ONE: Mutex<Weak<MongoServer>> = Mutex::new(Weak::new());
        if let Ok(url) = std::env::var(NAMED) {
            return Some(Shared::Named(url));
        }
        let mut one = ONE.lock();
        let server = match one.upgrade() {
            Some(server) => server,
            None => Arc::new(MongoServer::start()?),
        };
        *one = Arc::downgrade(&server);
        Some(Shared::Own(server))
    }

    /// A database that nobody has used.
    pub(crate) fn new_place(&self) -> Place {
        match self {
            Shared::Own(server) => server.new_place(),
            Shared::Named(url) => {
                let (host, words) = url.split_once('?').unwrap_or((url, ""));
                let host = host.trim_end_matches('/');
                format!("{host}/{}?{words}", new_name()).parse().unwrap()
            }
        }
    }

    /// A database with empty tables.
    pub(crate) fn database(&self) -> MongoDatabase {
        MongoDatabase::create(access(self.new_place())).unwrap()
    }

    /// A new one with a store, which so many clients reach, each by connections of its own.
    pub(crate) fn store(&self, clients: usize) -> Vec<Arc<dyn Database>> {
        store(&self.new_place(), clients)
    }
}

/// A new store at a place, which so many clients reach, each by connections of its own.
pub(crate) fn store(place: &Place, clients: usize) -> Vec<Arc<dyn Database>> {
    let first: Arc<dyn Database> = Arc::new(MongoDatabase::create(access(place.clone())).unwrap());
    let open = || MongoDatabase::open(access(place.clone())).unwrap().unwrap();
    let others = (1..clients).map(|_| Arc::new(open()) as Arc<dyn Database>);
    std::iter::once(first).chain(others).collect()
}

fn new_name() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("marram_test_{}_{number}", std::process::id())
}

/// How a place is reached; the password is that of the environment, if one is asked for.
pub(crate) fn access(place: Place) -> Access {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let none = || marram_store::Error::Invalid("there is no password".into());
    let password = move |_: &Place| {
        std::env::var("MONGODB_PASSWORD").map(String::into_bytes).map_err(|_| none())
    };
    let name = format!("test-{}-{number}", std::process::id());
    let begin = Instant::now();
    let elapsed = Arc::new(move || begin.elapsed());
    Access { place, password: Arc::new(password), name, patience: PATIENCE, elapsed }
}

/// Where the program is: in the folder of tools beside what is built, or on the path.
fn program() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let ours = target.join("tools/secantusdb/bin/secantusd-py");
    let folders = std::env::var_os("PATH")?;
    let others = std::env::split_paths(&folders).map(|folder| folder.join("secantusd-py"));
    std::iter::once(ours).chain(others).find(|program| program.exists())
}
