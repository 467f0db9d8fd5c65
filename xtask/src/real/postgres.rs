//! PostgreSQL: initdb, pgbench, SIGKILL of the server, then of the daemon under it, recovery.
//!
//! pgbench keeps four sums equal in every transaction, and its log tells which transactions were
//! acknowledged: after each kill the sums are equal, no acknowledged row of the history is missing,
//! and `pg_amcheck` finds heap and indexes sound. Page checksums are on.

use super::{GIB, Setting, step};
use crate::failure::{Context, Result, fail};
use crate::process::{OwnedChild, check_status, command, require, run, text};
use crate::subject::{Kind, Making, Marram, Subject, make};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The user that Debian's package makes; the server refuses to run as root.
const USER: &str = "postgres";

/// How long a server may take to recover or to stop.
const SERVER_LIMIT: Duration = Duration::from_secs(120);

/// Kills and recoveries.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    require(&[("pg_ctlcluster", "postgresql"), ("setpriv", "util-linux")])?;
    let mut making = Making::sized(4 * GIB);
    if setting.kind.is_marram() {
        making.mount_words = ["-o", "allow_other"].map(String::from).into();
    }
    let folder = setting.folder.join("subject");
    let seconds = setting.scaled(30, 3);
    if setting.kind == Kind::Marram {
        let mut marram = Marram::make(&folder, &making)?;
        let database = make_database(setting, marram.root())?;
        database.survives_its_own_death(seconds)?;
        database.survives_the_daemon(&mut marram, seconds)?;
        marram.unmount()?;
        return marram.check();
    }
    let mut subject = make(setting.kind, &folder, &making)?;
    let database = make_database(setting, subject.root())?;
    database.survives_its_own_death(seconds)?;
    subject.unmount()?;
    subject.check()
}

fn make_database(setting: &Setting, root: &Path) -> Result<Database> {
    let scale = setting.scaled(20, 2);
    let database = Database::make(root, &setting.folder.join("host"), setting.seed, scale)?;
    step(&format!("initdb, and pgbench tables at scale {scale}"));
    Ok(database)
}

/// A cluster on the mount; socket and logs are on the host.
pub(crate) struct Database {
    programs: PathBuf,
    data: PathBuf,
    host: PathBuf,
    seed: u64,
}

impl Database {
    /// A cluster in a new folder of `root` with the tables of pgbench, its server stopped; `host`
    /// is made too.
    pub(crate) fn make(root: &Path, host: &Path, seed: u64, scale: u64) -> Result<Self> {
        let (data, host) = (root.join("data"), host.to_owned());
        for folder in [&data, &host] {
            std::fs::create_dir(folder)?;
            run(command(&["chown", USER]).arg(folder))?;
        }
        let database = Self { programs: programs()?, data, host, seed };
        let mut initdb = database.command("initdb");
        run(initdb.args(["--data-checksums", "--no-locale", "-D"]).arg(&database.data))?;
        let server = database.start()?;
        let scale = scale.to_string();
        run(database.command("pgbench").args(["-i", "-q", "-s", &scale, "postgres"]))?;
        database.stop(server)?;
        Ok(database)
    }

    /// Runs pgbench with four clients for so long, on a server of its own; what it said.
    pub(crate) fn bench(&self, seconds: u64) -> Result<String> {
        let server = self.start()?;
        let mut bench = self.command("pgbench");
        bench.args(["-c", "4", "-j", "2", "-n", "-T", &seconds.to_string()]);
        let said = text(bench.args(["--random-seed", &self.seed.to_string(), "postgres"]))?;
        self.stop(server)?;
        Ok(said)
    }

    /// A program of PostgreSQL, as its user. `setpriv` becomes it, so a signal reaches it.
    fn command(&self, program: &str) -> Command {
        let mut command = command(&["setpriv", "--reuid", USER, "--regid", USER]);
        command.arg("--init-groups").arg(self.programs.join(program));
        command.env("PGHOST", &self.host).env("PGUSER", USER).current_dir(&self.host);
        command
    }

    fn start(&self) -> Result<OwnedChild> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.host.join("server.log"))?;
        let mut server = self.command("postgres");
        server.arg("-D").arg(&self.data).args(["-c", "listen_addresses="]);
        server.arg("-c").arg(format!("unix_socket_directories={}", self.host.display()));
        server.stdout(log.try_clone()?).stderr(log);
        let mut server = OwnedChild::start(&mut server)?;
        let start = Instant::now();
        while text(self.command("pg_isready").arg("-q")).is_err() {
            if let Some(status) = server.ended()? {
                return fail(format!("the server ended ({status}):\n{}", self.said()));
            }
            if start.elapsed() > SERVER_LIMIT {
                return fail(format!("no server in {SERVER_LIMIT:?}:\n{}", self.said()));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }

    /// The end of the server's log.
    fn said(&self) -> String {
        text(command(&["tail", "-n", "20"]).arg(self.host.join("server.log"))).unwrap_or_default()
    }

    /// A fast shutdown: clients are told to go.
    fn stop(&self, mut server: OwnedChild) -> Result<()> {
        run(self.command("pg_ctl").args(["stop", "-s", "-m", "fast", "-D"]).arg(&self.data))?;
        check_status("postgres", server.wait(SERVER_LIMIT)?)
    }

    /// pgbench with four clients, which note each acknowledged transaction in a file.
    fn load(&self, name: &str) -> Result<OwnedChild> {
        let mut load = self.command("pgbench");
        load.args(["-c", "4", "-j", "2", "-T", "600", "-n", "--log", "--log-prefix", name]);
        load.args(["--random-seed", &self.seed.to_string(), "postgres"]);
        OwnedChild::start(load.stdout(Stdio::null()).stderr(Stdio::null()))
    }

    fn survives_its_own_death(&self, seconds: u64) -> Result<()> {
        let before = self.history()?;
        let server = self.start()?;
        let load = self.load("first")?;
        std::thread::sleep(Duration::from_secs(seconds));
        kill(server)?;
        drop(load);
        let rows = self.judge(before, "first")?;
        step(&format!("the server killed: recovered, sound, {rows} rows of history"));
        Ok(())
    }

    fn survives_the_daemon(&self, marram: &mut Marram, seconds: u64) -> Result<()> {
        let before = self.history()?;
        let server = self.start()?;
        let load = self.load("second")?;
        std::thread::sleep(Duration::from_secs(seconds));
        marram.kill()?;
        kill(server)?;
        drop(load);
        marram.mount()?;
        let rows = self.judge(before, "second")?;
        step(&format!("the daemon killed: recovered, sound, {rows} rows of history"));
        Ok(())
    }

    fn query(&self, query: &str) -> Result<String> {
        text(self.command("psql").args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", query]))
    }

    fn history(&self) -> Result<u64> {
        let server = self.start()?;
        let rows = self.query("SELECT count(*) FROM pgbench_history")?;
        self.stop(server)?;
        rows.parse().context(|| format!("rows of history: {rows}"))
    }

    /// Starts the server, which recovers, and checks all; returns the rows of the history.
    fn judge(&self, before: u64, name: &str) -> Result<u64> {
        let server = self.start()?;
        let sums = self.query(
            "SELECT (SELECT sum(abalance) FROM pgbench_accounts),
                    (SELECT sum(bbalance) FROM pgbench_branches),
                    (SELECT sum(tbalance) FROM pgbench_tellers),
                    (SELECT coalesce(sum(delta), 0) FROM pgbench_history)",
        )?;
        let mut parts = sums.split('|');
        let first = parts.next();
        if !parts.all(|sum| Some(sum) == first) {
            return fail(format!("the sums differ: {sums}"));
        }
        let rows = self.query("SELECT count(*) FROM pgbench_history")?;
        let rows: u64 = rows.parse().context(|| format!("rows of history: {rows}"))?;
        let acknowledged = self.acknowledged(name)?;
        if rows < before + acknowledged {
            let wanted = before + acknowledged;
            return fail(format!("{rows} rows of history, {wanted} were acknowledged"));
        }
        let mut amcheck = self.command("pg_amcheck");
        amcheck.args(["--install-missing", "--heapallindexed", "--parent-check"]);
        run(amcheck.args(["-d", "postgres"]))?;
        self.stop(server)?;
        Ok(rows)
    }

    /// Lines in the logs of pgbench: a lower bound, because it buffers them.
    fn acknowledged(&self, name: &str) -> Result<u64> {
        let mut lines = 0;
        for entry in std::fs::read_dir(&self.host)? {
            let path = entry?.path();
            let is_log =
                path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name));
            if is_log {
                let log = std::fs::read(&path)?;
                lines += log.iter().filter(|byte| **byte == b'\n').count() as u64;
            }
        }
        Ok(lines)
    }
}

/// SIGKILL for the server and all of its processes. One that waits for a lock of another would wait
/// for ever if only some were killed, and hold the mount under it.
fn kill(mut server: OwnedChild) -> Result<()> {
    let process = |id: &str| id.parse().ok().and_then(Pid::from_raw);
    let id = server.id().to_string();
    if let Some(server) = process(&id) {
        kill_process(server, Signal::STOP)?; // It starts no more.
    }
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
    server.kill()?;
    for child in children.split_whitespace().filter_map(process) {
        let _has_ended_itself = kill_process(child, Signal::KILL);
    }
    Ok(())
}

/// Where the newest version's programs are: Debian keeps them off the path.
fn programs() -> Result<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir("/usr/lib/postgresql").context(|| "no PostgreSQL")? {
        let folder = entry?.path();
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        if let Some(version) = name.and_then(|name| name.parse().ok()) {
            versions.push((version, folder.join("bin")));
        }
    }
    match versions.into_iter().max() {
        Some((_, programs)) => Ok(programs),
        None => fail("no version of PostgreSQL in /usr/lib/postgresql"),
    }
}
