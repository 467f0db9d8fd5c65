//! FUSE file systems over ext4 that store nothing themselves: bindfs, and our own transport behind
//! an example of the crate `fuse` that hands every call on. What that one costs over ext4 alone is
//! the least that a file system behind this transport can cost.

use super::mounted::MountPoint;
use super::{Kind, Making, Subject, Traffic, kernel::KernelFileSystem};
use crate::failure::{Result, fail};
use crate::process::{OwnedChild, command, require, run};
use crate::project;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// The server that hands calls on.
enum Server {
    Bindfs,
    Own { binary: PathBuf, transport: &'static str, without: &'static str },
}

impl Server {
    fn of(kind: Kind) -> Result<Server> {
        if kind == Kind::Passthrough {
            require(&[("bindfs", "bindfs")])?;
            return Ok(Server::Bindfs);
        }
        let binary = match project::built() {
            Some(built) => built.join("examples/passthrough"),
            None => {
                let words = ["build", "--release", "--quiet", "--package", "marram-fuse"];
                run(project::cargo(&words).args(["--example", "passthrough"]))?;
                project::target().join("release/examples/passthrough")
            }
        };
        let transport = if kind.wants_io_uring() { "io_uring" } else { "classic" };
        Ok(Server::Own { binary, transport, without: "" })
    }

    /// Words that come after the places.
    fn more_words(&self) -> Vec<&'static str> {
        match self {
            Server::Own { without, .. } if !without.is_empty() => vec!["--without", without],
            _ => Vec::new(),
        }
    }

    fn command(&self) -> Command {
        match self {
            Server::Bindfs => command(&["bindfs", "-f", "--multithreaded", "-o", "suid,dev"]),
            Server::Own { binary, transport, .. } => {
                let mut serve = Command::new(binary);
                serve.arg(transport);
                serve
            }
        }
    }
}

/// The mount above goes before the file system under it.
pub struct Passthrough {
    server: Server,
    daemon: Option<OwnedChild>,
    point: MountPoint,
    below: KernelFileSystem,
}

impl Passthrough {
    pub(super) fn make(kind: Kind, folder: &Path, making: &Making) -> Result<Self> {
        Self::serve(Server::of(kind)?, folder, making)
    }

    /// Our own over the classic device, without one of the kernel's caches.
    pub fn without(choice: &'static str, folder: &Path, making: &Making) -> Result<Self> {
        let mut server = Server::of(Kind::OwnPassthrough)?;
        if let Server::Own { without, .. } = &mut server {
            *without = choice;
        }
        Self::serve(server, folder, making)
    }

    fn serve(server: Server, folder: &Path, making: &Making) -> Result<Self> {
        let below = KernelFileSystem::make(Kind::Ext4, &folder.join("below"), making)?;
        let point = MountPoint::make(folder.join("over"))?;
        let mut made = Self { server, daemon: None, point, below };
        made.start()?;
        Ok(made)
    }

    fn start(&mut self) -> Result<()> {
        let mut serve = self.server.command();
        serve.arg(self.below.root()).arg(self.point.path()).args(self.server.more_words());
        let mut daemon = OwnedChild::start(&mut serve)?;
        let mounted = self.point.wait_until_mounted(LIMIT);
        if let Some(status) = daemon.ended()? {
            return fail(format!("the pass-through ended at once ({status})"));
        }
        self.daemon = Some(daemon);
        mounted
    }
}

impl Subject for Passthrough {
    fn root(&self) -> &Path {
        self.point.path()
    }

    fn mount(&mut self) -> Result<()> {
        self.below.mount()?;
        self.start()
    }

    fn unmount(&mut self) -> Result<()> {
        self.point.unmount()?;
        if let Some(mut daemon) = self.daemon.take() {
            daemon.wait(LIMIT)?;
        }
        self.below.unmount()
    }

    fn check(&self) -> Result<()> {
        self.below.check()
    }

    fn daemon(&self) -> Option<u32> {
        self.daemon.as_ref().map(OwnedChild::id)
    }

    fn device(&self) -> Option<&Path> {
        self.below.device()
    }

    fn traffic(&self) -> Result<Traffic> {
        self.below.traffic()
    }

    // FUSE does not pass `syncfs` on without a block device, so this syncs the file system below.
    fn sync(&self) -> Result<()> {
        self.below.sync()
    }
}
