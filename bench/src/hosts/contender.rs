//! File systems that hosts share: ours, and its peers behind the same links.

use super::super::sheet::Subject;
use super::clusters::{Gluster, Moose};
use super::servers::{PASSWORD, Servers, USER};
use marram_lab::failure::{Result, fail};
use marram_lab::hosts::{Host, SERVER_ADDRESS};
use marram_lab::process::{OwnedChild, command, run, text};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a mount may take, and how long its end.
const MOUNT_LIMIT: Duration = Duration::from_secs(60);
const END_LIMIT: Duration = Duration::from_secs(120);

/// What is durable when a file has been closed.
const CLOSED_FILES: &str = "each file that was closed, with its name";
const NOTHING: &str = "nothing: the server's memory";

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    /// Ours on PostgreSQL, with `-o close=publish`.
    Marram,
    Sshfs,
    /// JuiceFS with all that it has in PostgreSQL.
    JuicePostgres,
    /// JuiceFS with all that it has in Redis.
    JuiceRedis,
    /// MooseFS with a master and a chunk server.
    MooseFs,
    /// GlusterFS with one brick.
    GlusterFs,
}

impl Contender {
    pub(super) const ALL: [Contender; 6] = [
        Contender::Marram,
        Contender::Sshfs,
        Contender::JuicePostgres,
        Contender::JuiceRedis,
        Contender::MooseFs,
        Contender::GlusterFs,
    ];

    /// Whether it is a JuiceFS.
    pub(super) fn is_juicefs(self) -> bool {
        matches!(self, Contender::JuicePostgres | Contender::JuiceRedis)
    }

    /// What it is in a report, for programs that sync nothing.
    pub(super) fn subject(self) -> Subject {
        let (name, durable) = match self {
            Contender::Marram => ("marram", CLOSED_FILES),
            Contender::Sshfs => ("sshfs", NOTHING),
            Contender::JuicePostgres => ("juicefs-pg", CLOSED_FILES),
            Contender::JuiceRedis => ("juicefs-redis", CLOSED_FILES),
            Contender::MooseFs => ("moosefs", CLOSED_FILES),
            Contender::GlusterFs => ("glusterfs", NOTHING),
        };
        Subject { name, is_ours: self == Contender::Marram, durable }
    }
}

/// A store of a contender, empty at first, which any host can mount.
pub(super) struct Store<'run> {
    contender: Contender,
    servers: &'run Servers,
    programs: &'run Programs,
    name: String,
}

/// What is started.
pub(super) struct Programs {
    pub(super) marram: PathBuf,
    pub(super) juicefs: PathBuf,
}

impl<'run> Store<'run> {
    /// The store of a contender. One of ours is made now, with this name; a peer was made before,
    /// and has one for all.
    pub(super) fn make(
        contender: Contender,
        name: &str,
        (servers, programs): (&'run Servers, &'run Programs),
        host: &Host,
    ) -> Result<Self> {
        let made = Self { contender, servers, programs, name: name.to_owned() };
        if contender == Contender::Marram {
            run(made.marram(host, &["create"]).arg(servers.home(name)))?;
        }
        Ok(made)
    }

    /// Makes the store of a peer, from a host.
    pub(super) fn format(
        contender: Contender,
        (servers, programs): (&Servers, &Programs),
        host: &Host,
    ) -> Result<()> {
        if let Some((_, reason)) = servers.absent.iter().find(|(absent, _)| *absent == contender) {
            return fail(reason.clone());
        }
        if !contender.is_juicefs() {
            return Ok(());
        }
        Store { contender, servers, programs, name: String::new() }.format_juicefs(host)
    }

    /// `marram` on a host.
    pub(super) fn marram(&self, host: &Host, words: &[&str]) -> Command {
        let mut marram = Command::new(&self.programs.marram);
        marram.args(words).env("PGPASSWORD", PASSWORD);
        marram.env("XDG_STATE_HOME", host.folder().join("state"));
        host.around(&marram)
    }

    /// Where a JuiceFS has its names.
    fn names(&self) -> String {
        match self.contender {
            Contender::JuiceRedis => format!("redis://{SERVER_ADDRESS}/1"),
            _ => format!("postgres://{USER}@{SERVER_ADDRESS}/juice?sslmode=require"),
        }
    }

    fn juicefs(&self, host: &Host, words: &[&str]) -> Command {
        let mut juicefs = Command::new(&self.programs.juicefs);
        juicefs.args(words).env("META_PASSWORD", PASSWORD).env("HOME", host.folder());
        host.around(&juicefs)
    }

    /// What is in files lies in the same server as their names: both are behind the link.
    fn format_juicefs(&self, host: &Host) -> Result<()> {
        let (storage, bucket) = match self.contender {
            Contender::JuiceRedis => ("redis", format!("redis://{SERVER_ADDRESS}/2")),
            _ => ("postgres", format!("{SERVER_ADDRESS}:5432/juicedata?sslmode=require")),
        };
        let mut format = self.juicefs(host, &["format", "--no-update", "--storage", storage]);
        format.args(["--bucket", &bucket, "--trash-days", "0"]);
        if self.contender == Contender::JuicePostgres {
            format.args(["--access-key", USER, "--secret-key", PASSWORD]);
        }
        run(format.args([&self.names(), "race"]))
    }

    /// Mounts it on a host, in a folder of its own there.
    pub(super) fn mount<'host>(&self, host: &'host Host) -> Result<Mounted<'host>> {
        self.mount_with(host, "close=publish")
    }

    /// The same; ours with these options.
    pub(super) fn mount_with<'host>(
        &self,
        host: &'host Host,
        options: &str,
    ) -> Result<Mounted<'host>> {
        let place = host.folder().join("mount");
        std::fs::create_dir_all(&place)?;
        let mut serve = match self.contender {
            Contender::Marram => {
                let mut mount = self.marram(host, &["mount", "--foreground"]);
                mount.args(["-o", options]).arg(self.servers.home(&self.name)).arg(&place);
                mount
            }
            Contender::Sshfs => host.around(&self.sshfs(&place)),
            Contender::MooseFs => host.around(&Moose::mount(&place)),
            Contender::GlusterFs => {
                host.around(&Gluster::mount(&place, &host.folder().join("glusterfs-client.log")))
            }
            Contender::JuicePostgres | Contender::JuiceRedis => {
                let mut mount = self.juicefs(host, &["mount", "--no-usage-report"]);
                mount.args(["--backup-meta", "0", "--log"]).arg(host.folder().join("juicefs.log"));
                mount.arg("--cache-dir").arg(host.folder().join("cache"));
                mount.arg(self.names()).arg(&place);
                mount
            }
        };
        let log = File::options()
            .create(true)
            .append(true)
            .open(host.folder().join(format!("{}.log", self.contender.subject().name)))?;
        let daemon = OwnedChild::start(serve.stdout(log.try_clone()?).stderr(log))?;
        let mut mounted = Mounted { host, daemon: Some(daemon), place };
        mounted.wait()?;
        Ok(mounted)
    }

    fn sshfs(&self, place: &Path) -> Command {
        let mut sshfs = command(&["sshfs", "-f", "-o"]);
        sshfs.arg(format!(
            "IdentityFile={},StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null,LogLevel=ERROR",
            self.servers.key.display()
        ));
        sshfs.arg(format!("root@{SERVER_ADDRESS}:{}", self.servers.shown.display())).arg(place);
        sshfs
    }

    /// What a command of ours answers on the host of a mount, and how long it takes: of the engine
    /// where that is known, or else of the whole command.
    pub(super) fn ask(
        &self,
        mounted: &Mounted<'_>,
        words: &[&str],
    ) -> Result<(serde_json::Value, Duration)> {
        let mut asking = self.marram(mounted.host, &[&["--json"][..], words].concat());
        let began = Instant::now();
        let said = text(&mut asking)?;
        let whole = began.elapsed();
        let mut said: serde_json::Value = serde_json::from_str(&said)?;
        let result = said["result"].take();
        let engine = result["engine_nanoseconds"].as_u64().map(Duration::from_nanos);
        Ok((result, engine.unwrap_or(whole)))
    }

    /// What the daemon of a mount of ours has asked its server, so far.
    pub(super) fn round_trips(&self, mounted: &Mounted<'_>) -> Result<u64> {
        let place = mounted.place.to_string_lossy();
        let (said, _) = self.ask(mounted, &["status", &place])?;
        let medium = said[0]["medium"].as_str().unwrap_or_default();
        let before = medium.split(" round trips").next().unwrap_or_default();
        match before.rsplit(' ').next().and_then(|number| number.parse().ok()) {
            Some(count) if medium.contains(" round trips") => Ok(count),
            _ => fail(format!("no round trips in what is said of the medium: {medium}")),
        }
    }
}

/// A mount on a host. It ends with this.
pub(super) struct Mounted<'host> {
    pub(super) host: &'host Host,
    daemon: Option<OwnedChild>,
    place: PathBuf,
}

impl Mounted<'_> {
    /// Where it is on its host.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Where it is for this process.
    pub(super) fn seen(&self) -> PathBuf {
        self.host.seen(&self.place)
    }

    fn wait(&mut self) -> Result<()> {
        let began = Instant::now();
        loop {
            if self.answers()? {
                return Ok(());
            }
            if let Some(daemon) = &mut self.daemon
                && let Some(status) = daemon.ended()?
            {
                return fail(format!("a mount ended at once ({status}): {}", self.log()));
            }
            if began.elapsed() > MOUNT_LIMIT {
                return fail(format!("no mount in {MOUNT_LIMIT:?}: {}", self.log()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The ends of the logs of its host.
    fn log(&self) -> String {
        let line = "tail -n 5 \"$1\"/*.log";
        let mut tail = command(&["sh", "-c", line, "tail"]);
        text(tail.arg(self.host.folder())).unwrap_or_default()
    }

    fn answers(&self) -> Result<bool> {
        let outside = std::fs::metadata(self.host.folder())?.dev();
        let Ok(root) = File::open(self.seen()) else { return Ok(false) };
        let is_it = root.metadata().is_ok_and(|root| root.dev() != outside);
        Ok(is_it && rustix::fs::fstatvfs(&root).is_ok())
    }

    /// Unmounts it, and waits for its daemon.
    pub(super) fn unmount(mut self) -> Result<()> {
        run(&mut self.host.around(command(&["umount"]).arg(&self.place)))?;
        if let Some(mut daemon) = self.daemon.take() {
            daemon.wait(END_LIMIT)?;
        }
        Ok(())
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.daemon.is_some() {
            let lazy = self.host.around(command(&["umount", "--lazy"]).arg(&self.place)).status();
            if !lazy.is_ok_and(|status| status.success()) {
                eprintln!("warning: {} was not mounted any more", self.place.display());
            }
        }
    }
}
