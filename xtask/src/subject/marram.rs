//! A Marram pool in a file, served by a daemon in the foreground that we own.

use super::mounted::MountPoint;
use super::{Making, Subject, make_image};
use crate::failure::{Context, Result, fail};
use crate::process::{OwnedChild, output, run};
use crate::project;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a mount may take to answer: it does not grow with the pool.
const MOUNT_LIMIT: Duration = Duration::from_secs(20);

/// How long the daemon may take to let go after `marram unmount`.
const UNMOUNT_LIMIT: Duration = Duration::from_secs(120);

/// What the daemon says, beside the pool.
pub(crate) const LOG: &str = "daemon.log";

/// A pool, its mount point and its daemon. The daemon drops first: SIGTERM unmounts.
pub(crate) struct Marram {
    binary: PathBuf,
    daemon: Option<OwnedChild>,
    point: MountPoint,
    pool: PathBuf,
    mount_words: Vec<String>,
}

impl Marram {
    /// Creates a pool in `folder` and mounts it.
    pub(crate) fn make(folder: &Path, making: &Making) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let binary = project::release_binary()?;
        let pool = folder.join("work.pool");
        let mut create = Command::new(&binary);
        create.arg("create").arg(&pool);
        if making.preallocate {
            make_image(&pool, making)?;
            create.arg("--force");
        } else {
            create.arg("--size").arg(making.size_bytes.to_string());
        }
        run(create.args(&making.create_words))?;
        let point = MountPoint::make(folder.join("mount"))?;
        let mount_words = making.mount_words.clone();
        let mut made = Self { binary, daemon: None, point, pool, mount_words };
        made.mount()?;
        Ok(made)
    }

    /// The pool's file.
    pub(crate) fn pool(&self) -> &Path {
        &self.pool
    }

    /// `marram` with these words.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut marram = Command::new(&self.binary);
        marram.args(words).stdin(std::process::Stdio::null());
        marram
    }

    /// Kills the daemon as a power cut would end it, and takes the dead mount away.
    pub(crate) fn kill(&mut self) -> Result<()> {
        match &mut self.daemon {
            None => return fail("no daemon to kill"),
            Some(daemon) => daemon.kill()?,
        }
        self.daemon = None;
        self.point.detach()
    }
}

impl Subject for Marram {
    fn root(&self) -> &Path {
        self.point.path()
    }

    fn mount(&mut self) -> Result<()> {
        let mut mount = self.command(&["mount", "--foreground"]);
        mount.args(&self.mount_words).arg(&self.pool).arg(self.point.path());
        let log = self.pool.with_file_name(LOG);
        let log = std::fs::File::options().create(true).append(true).open(log)?;
        mount.stdout(log.try_clone()?).stderr(log);
        let mut daemon = OwnedChild::start(&mut mount)?;
        let mounted = self.point.wait_until_mounted(MOUNT_LIMIT);
        if let Some(status) = daemon.ended()? {
            return fail(format!("the daemon ended at once ({status})"));
        }
        self.daemon = Some(daemon);
        mounted
    }

    fn unmount(&mut self) -> Result<()> {
        run(self.command(&["unmount"]).arg(self.point.path()))?;
        let Some(mut daemon) = self.daemon.take() else { return Ok(()) };
        let status = daemon.wait(UNMOUNT_LIMIT)?;
        if !status.success() {
            return fail(format!("the daemon ended badly after the unmount ({status})"));
        }
        if self.point.is_mounted()? { fail("still mounted after the unmount") } else { Ok(()) }
    }

    fn check(&self) -> Result<()> {
        output(self.command(&["check"]).arg(&self.pool)).map(|_| ())
    }

    fn daemon(&self) -> Option<u32> {
        self.daemon.as_ref().map(OwnedChild::id)
    }
}

/// The most memory that a process ever held, in bytes.
pub(crate) fn peak_memory_bytes(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))
        .context(|| format!("process {process}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    match kilobytes {
        Some(kilobytes) => Ok(kilobytes * 1024),
        None => fail(format!("process {process} tells no VmHWM")),
    }
}
