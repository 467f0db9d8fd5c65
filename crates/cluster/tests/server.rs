//! A PostgreSQL server of a test's own, in a temporary folder, reached by a socket there.
//!
//! It refuses to run as root, so root starts it as the user of Debian's package.

use marram_cluster::Database;
use marram_cluster::postgres::{Access, Place, PostgresDatabase};
use marram_cluster::server::PATIENCE as PATIENCE_OF_CLIENTS;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long it may take to start, to recover, or to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// Files that lie in memory.
const MEMORY: &str = "/dev/shm";

/// The port of a server that listens on none: its socket has the number.
const PORT: u16 = 5432;

/// A server. It is stopped when it is dropped.
pub(crate) struct Server {
    folder: TempDir,
    programs: PathBuf,
    running: Option<Child>,
    /// Its port on this host, where it listens on one.
    port: Option<u16>,
    schemas: AtomicUsize,
}

impl Server {
    /// A new one with an empty database `trees`; none, said aloud, where PostgreSQL is not
    /// installed.
    pub(crate) fn start() -> Option<Server> {
        Server::start_on(None)
    }

    /// The same on a port of this host too.
    pub(crate) fn start_on(port: Option<u16>) -> Option<Server> {
        let Some(programs) = programs() else {
            println!("SKIPPED, NOT TESTED: no PostgreSQL is installed");
            return None;
        };
        // In memory where there is some: what a killed server has written is there either way.
        let folder = tempfile::tempdir_in(MEMORY).or_else(|_| tempfile::tempdir()).unwrap();
        if let Some((uid, gid)) = other_user() {
            chown(folder.path(), Some(uid), Some(gid)).unwrap();
        }
        let schemas = AtomicUsize::new(0);
        let mut server = Server { folder, programs, running: None, port, schemas };
        let words = ["-U", "fs", "-A", "trust", "--no-locale", "-E", "UTF8", "--no-sync", "-D"];
        server.succeeds(server.command("initdb").args(words).arg(server.data()));
        server.run();
        server.sql("postgres", "CREATE DATABASE trees");
        Some(server)
    }

    /// Where its socket is.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Starts it, and waits until it answers.
    pub(crate) fn run(&mut self) {
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let mut postgres = self.command("postgres");
        postgres.arg("-D").arg(self.data()).args([
            "-c",
            if self.port.is_some() { "listen_addresses=127.0.0.1" } else { "listen_addresses=" },
            "-c",
            "max_wal_size=64MB",
            "-c",
            "dynamic_shared_memory_type=mmap",
            "-k",
        ]);
        postgres.arg(self.folder.path()).stdout(log.try_clone().unwrap()).stderr(log);
        self.running = Some(postgres.spawn().unwrap());
        let began = Instant::now();
        let mut ready = self.command("pg_isready");
        ready.arg("-q").arg("-h").arg(self.folder.path());
        while !ready.status().unwrap().success() {
            assert!(began.elapsed() < PATIENCE, "{}", fs::read_to_string(self.log()).unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// SIGKILL for it and all of its processes.
    pub(crate) fn kill(&mut self) {
        let mut running = self.running.take().unwrap();
        let id = running.id().to_string();
        signal(&id, Signal::STOP); // It starts no more.
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        running.kill().unwrap();
        running.wait().unwrap();
        children.split_whitespace().for_each(|child| signal(child, Signal::KILL));
        let is_there = |child: &&str| Path::new(&format!("/proc/{child}")).exists();
        let began = Instant::now();
        while children.split_whitespace().any(|child| is_there(&child)) {
            assert!(began.elapsed() < PATIENCE, "processes of the server do not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Lets it and all of its processes stand still, or go on.
    pub(crate) fn stand_still(&self, is_still: bool) {
        let id = self.running.as_ref().unwrap().id().to_string();
        let which = if is_still { Signal::STOP } else { Signal::CONT };
        signal(&id, which);
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        children.split_whitespace().for_each(|child| signal(child, which));
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(self.folder.path()).stdin(Stdio::null()).env_remove("PGPASSWORD");
        command.env("PGPORT", self.port.unwrap_or(PORT).to_string());
        if let Some((uid, gid)) = other_user() {
            command.uid(uid).gid(gid);
        }
        command
    }

    fn succeeds(&self, command: &mut Command) {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {said}");
    }

    /// Runs statements in a database as its owner.
    pub(crate) fn sql(&self, database: &str, text: &str) {
        let mut psql = self.command("psql");
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "fs", "-d", database, "-h"]);
        self.succeeds(psql.arg(self.folder.path()).args(["-c", text]));
    }

    /// Writes the users that may log in, and how.
    pub(crate) fn let_in(&self, lines: &str) {
        fs::write(self.data().join("pg_hba.conf"), lines).unwrap();
        self.sql("postgres", "SELECT pg_reload_conf()");
    }

    /// Writes a file that its user alone may read.
    pub(crate) fn put_file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        // A new file: the old one may be read at the moment.
        let new = self.folder.path().join(format!("{name}.new"));
        fs::write(&new, content).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
        if let Some((uid, gid)) = other_user() {
            chown(&new, Some(uid), Some(gid)).unwrap();
        }
        fs::rename(&new, &path).unwrap();
        path
    }

    /// The schema `name` of its database, for a user.
    pub(crate) fn place(&self, user: &str, name: &str) -> Place {
        let folder = self.folder().display();
        format!("postgres://{user}@/trees?host={folder}&schema={name}").parse().unwrap()
    }

    /// A schema that nobody has used.
    pub(crate) fn new_place(&self) -> Place {
        let number = self.schemas.fetch_add(1, Ordering::Relaxed);
        self.place("fs", &format!("home{number}"))
    }

    /// A database with empty tables.
    pub(crate) fn database(&self) -> PostgresDatabase {
        PostgresDatabase::create(access(self.new_place())).unwrap()
    }

    /// A new one with a store, which so many clients reach, each by connections of its own.
    pub(crate) fn store(&self, clients: usize) -> Vec<Arc<dyn Database>> {
        let place = self.new_place();
        let first: Arc<dyn Database> =
            Arc::new(PostgresDatabase::create(access(place.clone())).unwrap());
        let open = || PostgresDatabase::open(access(place.clone())).unwrap().unwrap();
        let others = (1..clients).map(|_| Arc::new(open()) as Arc<dyn Database>);
        std::iter::once(first).chain(others).collect()
    }
}

/// How a place is reached without a password.
pub(crate) fn access(place: Place) -> Access {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let refused = |_: &Place| Err(marram_store::Error::Invalid("there is no password".into()));
    let name = format!("test-{}-{number}", std::process::id());
    let (patience, begin) = (PATIENCE_OF_CLIENTS, Instant::now());
    let elapsed = Arc::new(move || begin.elapsed());
    Access { place, password: Arc::new(refused), name, patience, elapsed }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            // It ends its processes at once, and takes its shared memory away.
            signal(&running.id().to_string(), Signal::QUIT);
            let _has_ended = running.wait();
        }
    }
}

fn signal(id: &str, signal: Signal) {
    let process = id.parse().ok().and_then(Pid::from_raw);
    let _has_ended_itself = process.map(|process| kill_process(process, signal));
}

/// The user that root starts it as.
fn other_user() -> Option<(u32, u32)> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0);
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = users.lines().find_map(|line| line.strip_prefix("postgres:"));
    let mut fields = line.filter(|_| is_root)?.split(':').skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Where the newest version's programs are: Debian keeps them off the path.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let number = |folder: &PathBuf| folder.file_name()?.to_str()?.parse::<u32>().ok();
    let folders = versions.filter_map(|it| Some(it.ok()?.path()));
    let newest = folders.filter(|it| it.join("bin/initdb").exists()).max_by_key(number);
    Some(newest?.join("bin"))
}
