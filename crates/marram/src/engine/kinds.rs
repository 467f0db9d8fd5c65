//! The kinds of homes, in the order in which a source is tried.

use super::cluster::{self, ClusterKind};
use super::ext2::Ext2Kind;
use super::home::Home;
use super::pmem::PmemKind;
use super::pool::{PoolKind, no_pool};
use super::source::{Kind, OpenMode, Probe, server_url};
use crate::error::{Error, Result};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

/// All kinds. The first one says what is wrong with a path at which there is no home.
static KINDS: [&dyn Kind; 4] = [&PoolKind, &PmemKind, &ClusterKind, &Ext2Kind];
/// The only one that lies on servers.
static ON_SERVERS: [&dyn Kind; 1] = [&ClusterKind];

/// The only one that lies on character devices, which can be memory.
static ON_CHARACTER_DEVICES: [&dyn Kind; 1] = [&PmemKind];

/// Those that can be at a path: of a server and of a character device only one.
fn kinds_at(path: &Path) -> Result<&'static [&'static dyn Kind]> {
    if server_url(path)?.is_some() {
        return Ok(&ON_SERVERS);
    }
    let found = std::fs::metadata(path);
    let is_device = found.is_ok_and(|found| found.file_type().is_char_device());
    Ok(if is_device { &ON_CHARACTER_DEVICES } else { &KINDS })
}

/// Looks which image is at a place in a file or device, without opening it.
///
/// # Errors
/// There is none.
pub(crate) fn probe_within(path: &Path, offset_bytes: u64) -> Result<Probe> {
    super::ext2::probe_at(path, offset_bytes)
}

/// Looks which home is at `path`, without opening it.
///
/// # Errors
/// It cannot be read, or is of a version that cannot be read.
pub(crate) fn probe(path: &Path) -> Result<Option<Probe>> {
    for kind in kinds_at(path)? {
        if let Some(found) = kind.probe(path)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The error for a path at which there is no home.
pub(crate) fn none_at(path: &Path) -> Error {
    match server_url(path) {
        Ok(Some(_)) => cluster::none_at(path),
        _ => no_pool(path),
    }
}

/// Opens the home at `path` and locks it.
///
/// # Errors
/// There is none, another process has it (named), or it cannot be read.
pub(crate) fn open(path: &Path, mode: &OpenMode) -> Result<Arc<dyn Home>> {
    let kind: &dyn Kind = match mode.offset_bytes {
        Some(_) => &Ext2Kind,
        None => {
            let is_there = |kind: &&&dyn Kind| matches!(kind.probe(path), Ok(Some(_)));
            let kinds = kinds_at(path)?;
            *kinds.iter().find(is_there).unwrap_or(&kinds[0])
        }
    };
    refuse_meaningless(mode, kind.takes())?;
    kind.open(path, mode)
}

/// Refuses what was asked for and means nothing to a home that takes only these.
fn refuse_meaningless(mode: &OpenMode, takes: &[&str]) -> Result<()> {
    let images = "ext2 and ext3 images";
    let asked = [
        (mode.consistency.is_some(), "consistency", images, "other homes have one order of writes"),
        (mode.fakeroot, "fakeroot", images, "mount as root to set owners"),
        (
            mode.casefold,
            "casefold",
            images,
            "a pool's datasets are made so, `marram create POOL -O casefold=on`",
        ),
        (mode.durable.is_some(), "durable", "pmem homes", "elsewhere an fsync makes durable"),
        (mode.asked.cache, "cache", "pools and databases", "the kernel's memory is the cache"),
        (mode.asked.commit, "commit", "pools, pmem homes and images", "changes wait a second"),
        (mode.asked.defragment, "defragment", "pools", "nothing is rewritten in the background"),
        (mode.skip_log, "norecovery", "pools", "with ro nothing is written, and a log is replayed"),
    ];
    for (is_asked, word, homes, hint) in asked {
        if is_asked && !takes.contains(&word) {
            let text = format!("mount option {word} goes with {homes} only");
            return Err(Error::usage(text).hint(format!("leave it out: {hint}")));
        }
    }
    Ok(())
}
