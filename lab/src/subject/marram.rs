//! A Marram pool in a file, served by a daemon in the foreground that we own.

use super::mounted::{LoopDevice, MountPoint};
use super::{Kind, Making, Subject, Traffic, image, make_image};
use crate::failure::{Context, Result, fail};
use crate::process::{OwnedChild, output, run, text};
use crate::project;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a mount may take to answer: it does not grow with the pool.
const MOUNT_LIMIT: Duration = Duration::from_secs(20);

/// How long the daemon may take to let go after `marram unmount`.
const UNMOUNT_LIMIT: Duration = Duration::from_secs(120);

/// What the daemon says, beside the pool.
pub const LOG: &str = "daemon.log";

/// A pool, its mount point and its daemon. The daemon drops first: SIGTERM unmounts. The device
/// goes last.
pub struct Marram {
    binary: PathBuf,
    daemon: Option<OwnedChild>,
    point: MountPoint,
    pool: PathBuf,
    log: PathBuf,
    mount_words: Vec<String>,
    device: Option<LoopDevice>,
    /// It is an ext2 or ext3 image, which `e2fsck` checks.
    is_image: bool,
}

impl Marram {
    /// Creates a pool in `folder` and mounts it.
    pub fn make(folder: &Path, making: &Making) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let pool = folder.join("work.pool");
        if making.preallocate {
            make_image(&pool, making)?;
        }
        Self::create(folder, making, pool, None)
    }

    /// Creates the home that `url` names and mounts it, with what else it takes in `folder`.
    pub fn make_home(folder: &Path, url: &str, mount_words: Vec<String>) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        run(Command::new(project::release_binary()?).args(["create", url]))?;
        Self::served(folder, mount_words, PathBuf::from(url), None)
    }

    /// The same on a loop device.
    pub fn make_on_loop_device(folder: &Path, making: &Making) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let image = folder.join("image");
        make_image(&image, making)?;
        let device = LoopDevice::attach(&image, making)?;
        Self::create(folder, making, device.path().to_owned(), Some(device))
    }

    /// A pmem home in a file of `folder`, which takes all of its space when it is created.
    pub fn make_pmem(folder: &Path, making: &Making) -> Result<Self> {
        let (mut making, file) = (making.clone(), folder.join("work.pmem"));
        making.create_words.extend(["--home", "pmem"].map(String::from));
        Self::create(folder, &making, file, None)
    }

    /// One of ours with what sets it apart. Over io_uring the mount is refused where the kernel
    /// has none.
    pub fn make_as(kind: Kind, folder: &Path, making: &Making) -> Result<Self> {
        let mut making = making.clone();
        let more = |words: &mut Vec<String>, new: [&str; 2]| words.extend(new.map(String::from));
        match kind {
            Kind::MarramUring => more(&mut making.mount_words, ["-o", "transport=io_uring"]),
            Kind::MarramWriteback => more(&mut making.mount_words, ["-o", "writeback"]),
            Kind::MarramOff => more(&mut making.create_words, ["-O", "compression=off"]),
            Kind::MarramZstd => more(&mut making.create_words, ["-O", "compression=zstd:1"]),
            _ => {}
        }
        if making.on_direct_loop {
            return Self::make_on_loop_device(folder, &making);
        }
        Self::make(folder, &making)
    }

    /// An ext2 or ext3 image on a loop device, served in the order of writes of its kind.
    pub fn make_image(kind: Kind, folder: &Path, making: &Making) -> Result<Self> {
        let Some((format, order)) = kind.image() else { return fail("that is no image") };
        std::fs::create_dir_all(folder)?;
        let file = folder.join("image");
        make_image(&file, making)?;
        let device = LoopDevice::attach(&file, making)?;
        image::make_on(&device, format, making)?;
        let mut mount_words = making.mount_words.clone();
        mount_words.extend(["-o".to_owned(), format!("consistency={order}")]);
        Self::served(folder, mount_words, device.path().to_owned(), Some(device))
    }

    fn create(
        folder: &Path,
        making: &Making,
        pool: PathBuf,
        device: Option<LoopDevice>,
    ) -> Result<Self> {
        let binary = project::release_binary()?;
        let mut create = Command::new(&binary);
        create.arg("create").arg(&pool);
        if pool.exists() {
            create.arg("--force");
        } else {
            create.arg("--size").arg(making.size_bytes.to_string());
        }
        run(create.args(&making.create_words))?;
        Self::served(folder, making.mount_words.clone(), pool, device)
    }

    fn served(
        folder: &Path,
        mount_words: Vec<String>,
        pool: PathBuf,
        device: Option<LoopDevice>,
    ) -> Result<Self> {
        let binary = project::release_binary()?;
        let point = MountPoint::make(folder.join("mount"))?;
        let log = folder.join(LOG);
        let is_image = mount_words.iter().any(|word| word.starts_with("consistency="));
        let mut made =
            Self { binary, daemon: None, point, pool, log, mount_words, device, is_image };
        made.mount()?;
        Ok(made)
    }

    /// The pool's file.
    pub fn pool(&self) -> &Path {
        &self.pool
    }

    /// `marram` with these words.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut marram = Command::new(&self.binary);
        marram.args(words).stdin(std::process::Stdio::null());
        marram
    }

    /// Waits for the daemon's end after another command has unmounted it or sent it a signal.
    pub fn unmount_has_happened(&mut self) -> Result<()> {
        let Some(mut daemon) = self.daemon.take() else { return Ok(()) };
        let status = daemon.wait(UNMOUNT_LIMIT)?;
        if !status.success() {
            return fail(format!("the daemon ended badly after the unmount ({status})"));
        }
        if self.point.is_mounted()? { fail("still mounted after the unmount") } else { Ok(()) }
    }

    /// Kills the daemon. The dead mount stays, for the next mount to clean up.
    pub fn kill(&mut self) -> Result<()> {
        match &mut self.daemon {
            None => return fail("no daemon to kill"),
            Some(daemon) => daemon.kill()?,
        }
        self.daemon = None;
        Ok(())
    }
}

impl Subject for Marram {
    fn root(&self) -> &Path {
        self.point.path()
    }

    fn mount(&mut self) -> Result<()> {
        let mut mount = self.command(&["mount", "--foreground"]);
        mount.args(&self.mount_words).arg(&self.pool).arg(self.point.path());
        let log = std::fs::File::options().create(true).append(true).open(&self.log)?;
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
        self.unmount_has_happened()
    }

    fn device(&self) -> Option<&Path> {
        self.device.as_ref().map(LoopDevice::path)
    }

    /// What the daemon counts, or on a loop device the kernel. `/proc/PID/io` is of no use: a write
    /// into a large folio of the host's cache counts there as the whole folio.
    fn traffic(&self) -> Result<Traffic> {
        if let Some(device) = &self.device {
            return device.traffic();
        }
        let told = text(self.command(&["status", "--json"]).arg(self.point.path()))?;
        let told: serde_json::Value = serde_json::from_str(&told)?;
        let device = &told["result"][0]["devices"][0];
        let written_bytes = device["written_bytes"].as_u64();
        Ok(Traffic { written_bytes, flushes: device["flushes"].as_u64() })
    }

    fn check(&self) -> Result<()> {
        match &self.device {
            Some(device) if self.is_image => image::check(device),
            _ => output(self.command(&["check"]).arg(&self.pool)).map(|_| ()),
        }
    }

    fn daemon(&self) -> Option<u32> {
        self.daemon.as_ref().map(OwnedChild::id)
    }
}

/// The most memory that a process ever held, in bytes.
pub fn peak_memory_bytes(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))
        .context(|| format!("process {process}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    match kilobytes {
        Some(kilobytes) => Ok(kilobytes * 1024),
        None => fail(format!("process {process} tells no VmHWM")),
    }
}
