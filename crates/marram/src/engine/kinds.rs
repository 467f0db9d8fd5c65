//! The kinds of homes, in the order in which a source is tried.

use super::cluster::ClusterKind;
use super::ext2::Ext2Kind;
use super::home::Home;
use super::pmem::PmemKind;
use super::pool::PoolKind;
use super::source::{Kind, OpenMode, Probe};
use crate::error::{Error, Result};
use std::path::Path;
use std::sync::Arc;

/// All kinds. The first one says what is wrong with a path at which there is no home.
const KINDS: [&dyn Kind; 4] = [&PoolKind, &PmemKind, &ClusterKind, &Ext2Kind];

/// Looks which home is at `path`, without opening it.
///
/// # Errors
/// It cannot be read, or is of a version that cannot be read.
pub(crate) fn probe(path: &Path) -> Result<Option<Probe>> {
    for kind in KINDS {
        if let Some(found) = kind.probe(path)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Opens the home at `path` and locks it.
///
/// # Errors
/// There is none, another process has it (named), or it cannot be read.
pub(crate) fn open(path: &Path, mode: &OpenMode) -> Result<Arc<dyn Home>> {
    let is_there = |kind: &&&dyn Kind| matches!(kind.probe(path), Ok(Some(_)));
    let kind = KINDS.iter().find(is_there).unwrap_or(&KINDS[0]);
    if mode.consistency.is_some() && !kind.orders_writes() {
        let what = "mount option consistency goes with ext2 and ext3 images only";
        return Err(Error::usage(what).hint("leave it out: other homes have one order of writes"));
    }
    if mode.durable.is_some() && !kind.has_modes() {
        let what = "mount option durable goes with pmem homes only";
        return Err(Error::usage(what).hint("leave it out: elsewhere an fsync makes durable"));
    }
    kind.open(path, mode)
}
