//! What a script or a benchmark runs on: a Marram pool, or a peer to compare with.
//!
//! A subject owns all that it needs (image, loop device, daemon, mount point) under one folder of
//! its own, and takes all of it away when it is dropped, in the order that the kernel wants:
//! mount, daemon, loop device, files. The scripts run on any subject, so that a failure on Marram
//! can be held against the same script on ext4.

mod image;
mod kernel;
mod marram;
mod mounted;
mod passthrough;
mod tmpfs;
mod zfs;

use crate::failure::{Result, fail};
use std::path::{Path, PathBuf};

pub use marram::{LOG, Marram, peak_memory_bytes};
pub use mounted::MountPoint;
pub use passthrough::Passthrough;
pub use zfs::POOL as ZFS_POOL;

/// The subjects that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// A Marram pool in a file, mounted by our release binary.
    Marram,
    /// The same on a loop device, so that it goes the way that the peers of the kernel go.
    MarramLoop,
    /// A Marram pool in a file, with requests over io_uring, where the kernel offers that.
    MarramUring,
    /// A Marram pool in a file, mounted with `-o writeback`: the kernel gathers writes, as it does
    /// for its own file systems.
    MarramWriteback,
    /// A Marram pool that compresses nothing: beside Btrfs as it is made.
    MarramOff,
    /// A Marram pool with zstd:1: beside Btrfs with the same.
    MarramZstd,
    /// A pmem home of ours in a file: on a tmpfs, if its folder is on one.
    Pmem,
    /// A cluster home of ours in a SQLite file.
    Sqlite,
    /// A plain folder: for trying a script itself.
    Plain,
    /// ext4 on a loop device.
    Ext4,
    /// XFS on a loop device.
    Xfs,
    /// Btrfs without compression on a loop device.
    Btrfs,
    /// Btrfs with zstd:1 on a loop device.
    BtrfsZstd,
    /// Btrfs with lzo on a loop device.
    BtrfsLzo,
    /// zfs-fuse on a loop device: the other copy-on-write file system in user space.
    ZfsFuse,
    /// zfs-fuse with gzip-1.
    ZfsFuseGzip,
    /// bindfs over ext4: what FUSE costs with the library that most others use.
    Passthrough,
    /// Our own transport over ext4: what FUSE costs us before we do anything.
    OwnPassthrough,
    /// The same over io_uring.
    OwnPassthroughUring,
    /// Memory, in the kernel: the ceiling of all.
    Tmpfs,
    /// An ext2 image that our binary serves under soft updates.
    ImageSoft,
    /// An ext3 image that our binary serves with a journal of metadata, data before it.
    ImageJournal,
    /// The same with content in the journal.
    ImageJournalFull,
    /// The same with content in no order.
    ImageJournalWriteback,
    /// An ext2 image that our binary serves in no order.
    ImageAsync,
    /// An ext2 image that fuse2fs serves.
    Fuse2fs,
    /// ext2 of the kernel.
    Ext2,
    /// ext3 of the kernel.
    Ext3,
    /// ext3 of the kernel with content in the journal.
    Ext3Journal,
}

/// The images that our binary serves: what they are made as, and the order of writes.
const IMAGES: [(Kind, &str, &str); 5] = [
    (Kind::ImageSoft, "ext2", "soft-updates"),
    (Kind::ImageJournal, "ext3", "journal"),
    (Kind::ImageJournalFull, "ext3", "journal-full"),
    (Kind::ImageJournalWriteback, "ext3", "journal-writeback"),
    (Kind::ImageAsync, "ext2", "async"),
];

impl Kind {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Marram => "marram",
            Kind::MarramLoop => "marram-loop",
            Kind::MarramUring => "marram-io_uring",
            Kind::MarramWriteback => "marram-writeback",
            Kind::MarramOff => "marram-off",
            Kind::MarramZstd => "marram-zstd:1",
            Kind::Pmem => "pmem",
            Kind::Sqlite => "sqlite",
            Kind::Plain => "plain",
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
            Kind::BtrfsZstd => "btrfs-zstd:1",
            Kind::BtrfsLzo => "btrfs-lzo",
            Kind::ZfsFuse => "zfs-fuse",
            Kind::ZfsFuseGzip => "zfs-fuse-gzip-1",
            Kind::Passthrough => "bindfs",
            Kind::OwnPassthrough => "pass-through",
            Kind::OwnPassthroughUring => "pass-io_uring",
            Kind::Tmpfs => "tmpfs",
            Kind::ImageSoft => "soft-updates",
            Kind::ImageJournal => "journal",
            Kind::ImageJournalFull => "journal-full",
            Kind::ImageJournalWriteback => "journal-wb",
            Kind::ImageAsync => "async",
            Kind::Fuse2fs => "fuse2fs",
            Kind::Ext2 => "ext2",
            Kind::Ext3 => "ext3",
            Kind::Ext3Journal => "ext3-journal",
        }
    }

    /// Whether it is ours, whatever it stands on.
    pub fn is_marram(self) -> bool {
        matches!(
            self,
            Kind::Marram
                | Kind::MarramLoop
                | Kind::MarramUring
                | Kind::MarramWriteback
                | Kind::MarramOff
                | Kind::MarramZstd
                | Kind::Pmem
                | Kind::Sqlite
        ) || self.image().is_some()
    }

    /// What an image that we serve is made as, and its order of writes.
    fn image(self) -> Option<(&'static str, &'static str)> {
        IMAGES.iter().find(|(kind, ..)| *kind == self).map(|(_, format, order)| (*format, *order))
    }

    /// Whether it is there to show a ceiling: it stores nothing itself, or nothing that lasts.
    pub fn is_ceiling(self) -> bool {
        matches!(
            self,
            Kind::Passthrough | Kind::OwnPassthrough | Kind::OwnPassthroughUring | Kind::Tmpfs
        )
    }

    /// Whether it takes its requests over io_uring.
    pub fn wants_io_uring(self) -> bool {
        matches!(self, Kind::MarramUring | Kind::OwnPassthroughUring)
    }

    /// What survives a power cut after `sync` on the mount came back.
    pub fn durability(self) -> &'static str {
        match self {
            Kind::Marram | Kind::MarramLoop | Kind::MarramUring => {
                "all, at one moment, lz4; data and metadata checksummed"
            }
            Kind::MarramWriteback => {
                "all, in the kernel's order before a sync, lz4; data and metadata checksummed"
            }
            Kind::MarramOff => "all, at one moment; data and metadata checksummed",
            Kind::MarramZstd => "all, at one moment, zstd:1; data and metadata checksummed",
            Kind::Pmem => "all as far as its medium keeps it; without a sync if the daemon dies",
            Kind::Sqlite => "all, at one moment, lz4; every row checksummed",
            Kind::Plain => "as the host",
            Kind::Ext4 => "metadata journal, data=ordered",
            Kind::Xfs => "metadata journal",
            Kind::Btrfs => "copy-on-write; data and metadata checksummed",
            Kind::BtrfsZstd => "copy-on-write, zstd:1; data and metadata checksummed",
            Kind::BtrfsLzo => "copy-on-write, lzo; data and metadata checksummed",
            Kind::ZfsFuse => "copy-on-write; data and metadata checksummed",
            Kind::ZfsFuseGzip => "copy-on-write, gzip-1; data and metadata checksummed",
            Kind::Passthrough | Kind::OwnPassthrough | Kind::OwnPassthroughUring => {
                "ext4 underneath"
            }
            Kind::Tmpfs => "none: it is memory",
            Kind::ImageSoft => "all; before a sync leaks only, and no name before its content",
            Kind::ImageJournal | Kind::Ext3 => "metadata journal, data=ordered",
            Kind::ImageJournalFull | Kind::Ext3Journal => "journal of metadata and data",
            Kind::ImageJournalWriteback => "metadata journal, data in any order",
            Kind::ImageAsync | Kind::Fuse2fs | Kind::Ext2 => {
                "all; before a sync nothing is promised: e2fsck has to mend the image"
            }
        }
    }
}

/// How a subject is made.
#[derive(Clone, Debug)]
pub struct Making {
    /// The size of the image.
    pub size_bytes: u64,
    /// Whether the image is written once before use, as a benchmark wants.
    pub preallocate: bool,
    /// Whether a pool is on a loop device as the peers are, and all of these are read and written
    /// directly: nothing is then cached twice.
    pub on_direct_loop: bool,
    /// More words for `marram create`.
    pub create_words: Vec<String>,
    /// More words for `marram mount`.
    pub mount_words: Vec<String>,
    /// How many files and directories there must be room for, where a file system decides that
    /// when it is made and would have fewer.
    pub files_max: Option<u64>,
}

impl Making {
    /// A sparse image of this size with the usual options.
    pub fn sized(size_bytes: u64) -> Self {
        Self {
            size_bytes,
            preallocate: false,
            on_direct_loop: false,
            create_words: Vec::new(),
            mount_words: Vec::new(),
            files_max: None,
        }
    }
}

/// What has reached a device since it was attached; `None` is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes written to it.
    pub written_bytes: Option<u64>,
    /// Flushes of its cache.
    pub flushes: Option<u64>,
}

/// A file system that can be mounted, unmounted and checked.
pub trait Subject {
    /// The root of the mounted file system.
    fn root(&self) -> &Path;

    /// Mounts it; it was unmounted.
    fn mount(&mut self) -> Result<()>;

    /// Unmounts it; everything is durable and its device is free afterwards.
    fn unmount(&mut self) -> Result<()>;

    /// Verifies the unmounted image with the file system's own checker.
    fn check(&self) -> Result<()>;

    /// The daemon that serves the mount, if there is one.
    fn daemon(&self) -> Option<u32> {
        None
    }

    /// The device that it alone is on, if there is one.
    fn device(&self) -> Option<&Path> {
        None
    }

    /// What was written to its device so far.
    fn traffic(&self) -> Result<Traffic> {
        Ok(Traffic::default())
    }

    /// Unmounts and mounts again: nothing stays in a cache.
    fn remount(&mut self) -> Result<()> {
        self.unmount()?;
        self.mount()
    }

    /// Bytes in use, as `df` shows.
    fn used_bytes(&self) -> Result<u64> {
        let space = rustix::fs::statvfs(self.root())?;
        Ok((space.f_blocks - space.f_bfree) * space.f_frsize)
    }

    /// Makes everything written so far durable.
    fn sync(&self) -> Result<()> {
        let root = std::fs::File::open(self.root())?;
        Ok(rustix::fs::syncfs(root)?)
    }
}

/// Makes a subject of this kind in `folder`, and mounts it.
pub fn make(kind: Kind, folder: &Path, making: &Making) -> Result<Box<dyn Subject>> {
    std::fs::create_dir_all(folder)?;
    Ok(match kind {
        Kind::Marram
        | Kind::MarramUring
        | Kind::MarramWriteback
        | Kind::MarramOff
        | Kind::MarramZstd => Box::new(Marram::make_as(kind, folder, making)?),
        Kind::MarramLoop => Box::new(Marram::make_on_loop_device(folder, making)?),
        Kind::Pmem => Box::new(Marram::make_pmem(folder, making)?),
        Kind::Sqlite => {
            let url = format!("sqlite:{}", folder.join("work.db").display());
            Box::new(Marram::make_home(folder, &url, making.mount_words.clone())?)
        }
        Kind::Plain => Box::new(Plain::make(folder)?),
        Kind::ImageSoft
        | Kind::ImageJournal
        | Kind::ImageJournalFull
        | Kind::ImageJournalWriteback
        | Kind::ImageAsync => Box::new(Marram::make_image(kind, folder, making)?),
        Kind::Fuse2fs => Box::new(image::Fuse2fs::make(folder, making)?),
        Kind::Ext4
        | Kind::Ext2
        | Kind::Ext3
        | Kind::Ext3Journal
        | Kind::Xfs
        | Kind::Btrfs
        | Kind::BtrfsZstd
        | Kind::BtrfsLzo => Box::new(kernel::KernelFileSystem::make(kind, folder, making)?),
        Kind::ZfsFuse => Box::new(zfs::ZfsFuse::make(folder, making, "off")?),
        Kind::ZfsFuseGzip => Box::new(zfs::ZfsFuse::make(folder, making, "gzip-1")?),
        Kind::Passthrough | Kind::OwnPassthrough | Kind::OwnPassthroughUring => {
            Box::new(passthrough::Passthrough::make(kind, folder, making)?)
        }
        Kind::Tmpfs => Box::new(tmpfs::Tmpfs::make(folder, making)?),
    })
}

/// Makes the file of an image.
fn make_image(file: &Path, making: &Making) -> Result<()> {
    let image = std::fs::File::create_new(file)?;
    image.set_len(making.size_bytes)?;
    if making.preallocate {
        write_once(&image, making.size_bytes)?;
    }
    Ok(())
}

/// Writes every byte once: a sparse image would measure the host's allocator too.
fn write_once(mut image: &std::fs::File, size_bytes: u64) -> Result<()> {
    use std::io::Write;
    const CHUNK_BYTES: usize = 1 << 20;
    let zeros = vec![0_u8; CHUNK_BYTES];
    let mut left = size_bytes;
    while left > 0 {
        let chunk = usize::try_from(left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        image.write_all(&zeros[..chunk])?;
        left -= chunk as u64;
    }
    Ok(image.sync_all()?)
}

/// A plain folder.
struct Plain {
    root: PathBuf,
}

impl Plain {
    fn make(folder: &Path) -> Result<Self> {
        let root = folder.join("plain");
        std::fs::create_dir(&root)?;
        Ok(Self { root })
    }
}

impl Subject for Plain {
    fn root(&self) -> &Path {
        &self.root
    }

    fn mount(&mut self) -> Result<()> {
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.root.is_dir() { Ok(()) } else { fail("the folder is gone") }
    }
}
