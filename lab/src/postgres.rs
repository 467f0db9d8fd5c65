//! PostgreSQL: a cluster on a mount, its server, and pgbench.
//!
//! The server is the program of Debian's package, run as the package's own user. It is owned:
//! dropping it ends it. Page checksums are on.

use crate::failure::{Context, Result, fail};
use crate::hosts::Namespace;
use crate::process::{OwnedChild, check_status, command, run, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The user that Debian's package makes; the server refuses to run as root.
const USER: &str = "postgres";

/// How long a server may take to recover or to stop.
const SERVER_LIMIT: Duration = Duration::from_secs(120);

/// A cluster on the mount; socket and logs are on the host.
pub struct Database {
    programs: PathBuf,
    data: PathBuf,
    host: PathBuf,
    seed: u64,
}

impl Database {
    /// A cluster in a new folder of `root` with the tables of pgbench, its server stopped; `host`
    /// is made too.
    pub fn make(root: &Path, host: &Path, seed: u64, scale: u64) -> Result<Self> {
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
    pub fn bench(&self, seconds: u64) -> Result<String> {
        let server = self.start()?;
        let mut bench = self.command("pgbench");
        bench.args(["-c", "4", "-j", "2", "-n", "-T", &seconds.to_string()]);
        let said = text(bench.args(["--random-seed", &self.seed.to_string(), "postgres"]))?;
        self.stop(server)?;
        Ok(said)
    }

    /// Where the cluster is.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// A file with this content that the server alone may read.
    pub fn secret(&self, name: &str, content: &str) -> Result<PathBuf> {
        let file = self.data.join(name);
        std::fs::write(&file, content)?;
        run(command(&["chmod", "600"]).arg(&file))?;
        run(command(&["chown", USER]).arg(&file))?;
        Ok(file)
    }

    /// A program of PostgreSQL, as its user. `setpriv` becomes it, so a signal reaches it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = command(&["setpriv", "--reuid", USER, "--regid", USER]);
        command.arg("--init-groups").arg(self.programs.join(program));
        command.env("PGHOST", &self.host).env("PGUSER", USER).current_dir(&self.host);
        command
    }

    /// Starts the server, and waits until it answers.
    pub fn start(&self) -> Result<OwnedChild> {
        self.start_as(&["listen_addresses="], |server| server)
    }

    /// The same with its ports in a network, and with these settings.
    pub fn start_within(&self, network: &Namespace, settings: &[&str]) -> Result<OwnedChild> {
        self.start_as(settings, |server| network.around(&server))
    }

    fn start_as(
        &self,
        settings: &[&str],
        place: impl FnOnce(Command) -> Command,
    ) -> Result<OwnedChild> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.host.join("server.log"))?;
        let mut server = self.command("postgres");
        server.arg("-D").arg(&self.data);
        for setting in settings {
            server.args(["-c", setting]);
        }
        server.arg("-c").arg(format!("unix_socket_directories={}", self.host.display()));
        let mut server = place(server);
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

    /// A fast shutdown: the server ends its clients.
    pub fn stop(&self, mut server: OwnedChild) -> Result<()> {
        run(self.command("pg_ctl").args(["stop", "-s", "-m", "fast", "-D"]).arg(&self.data))?;
        check_status("postgres", server.wait(SERVER_LIMIT)?)
    }

    /// pgbench with four clients, which note each acknowledged transaction in a file.
    pub fn load(&self, name: &str) -> Result<OwnedChild> {
        let mut load = self.command("pgbench");
        load.args(["-c", "4", "-j", "2", "-T", "600", "-n", "--log", "--log-prefix", name]);
        load.args(["--random-seed", &self.seed.to_string(), "postgres"]);
        OwnedChild::start(load.stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// What the running server answers, as psql prints it without a frame.
    pub fn query(&self, query: &str) -> Result<String> {
        text(self.command("psql").args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", query]))
    }

    /// Rows of the history of pgbench, counted by a server of its own.
    pub fn history(&self) -> Result<u64> {
        let server = self.start()?;
        let rows = self.query("SELECT count(*) FROM pgbench_history")?;
        self.stop(server)?;
        rows.parse().context(|| format!("rows of history: {rows}"))
    }

    /// Lines in the logs of pgbench: a lower bound, because it buffers them.
    pub fn acknowledged(&self, name: &str) -> Result<u64> {
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
