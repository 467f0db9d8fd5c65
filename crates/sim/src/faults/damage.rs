//! Comparison with the model where a fault may have damaged content.
//!
//! Names, attributes and the shape of the tree must be right: they lie in two copies. What is read
//! of a file is either right or an error. It is read page by page where a larger read fails, so
//! that damage is seen to reach no further than its block.

use crate::compare::{Agreement, InodeMap, compare_attributes, compare_entries, equal_bytes};
use crate::execute::read_directory;
use marram_vfs::{Attributes, Error, FileSystem, Ino, Kind};
use std::collections::BTreeSet;

/// What could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damaged {
    /// Bytes of files, in whole pages.
    pub content_bytes: u64,
    /// Values of extended attributes and targets of symbolic links.
    pub values: u64,
}

impl Damaged {
    /// Whether anything could not be read.
    pub fn is_any(&self) -> bool {
        *self != Damaged::default()
    }
}

/// Bytes that are read at once while all is well.
const READ_BYTES: u64 = 1 << 20;
/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

type Place<'a> = (&'a dyn FileSystem, Ino);

/// Compares everything that can be reached from the root, and adds to `damaged` what could not be
/// read.
///
/// # Errors
/// Says what is different, and at which path.
pub fn compare_with_damage(
    inodes: &mut InodeMap,
    real: &dyn FileSystem,
    model: &dyn FileSystem,
    damaged: &mut Damaged,
) -> Agreement {
    let mut seen = BTreeSet::new();
    let mut left = vec![(Ino::ROOT, Ino::ROOT, "/".to_owned())];
    while let Some((real_ino, model_ino, path)) = left.pop() {
        if !seen.insert(model_ino) {
            continue;
        }
        let at = |difference: String| format!("{path}: {difference}");
        let places = ((real, real_ino), (model, model_ino));
        let attributes = compare_inode(inodes, places.0, places.1, damaged).map_err(at)?;
        if attributes.kind != Kind::Directory {
            continue;
        }
        let list = |at: Place<'_>| read_directory(at.0, at.1, false, usize::MAX);
        let real_entries = list(places.0).map_err(|error| at(format!("entries: {error:?}")))?;
        let model_entries = list(places.1).map_err(|error| at(format!("the model: {error:?}")))?;
        compare_entries(inodes, &real_entries, &model_entries).map_err(at)?;
        for (real, model) in real_entries.iter().zip(&model_entries) {
            let name = String::from_utf8_lossy(&model.name);
            left.push((real.ino, model.ino, format!("{path}{name}/")));
        }
    }
    Ok(())
}

fn compare_inode(
    inodes: &mut InodeMap,
    real: Place<'_>,
    model: Place<'_>,
    damaged: &mut Damaged,
) -> Result<Attributes, String> {
    let attributes = |at: Place<'_>| at.0.attributes(at.1).map_err(|error| format!("{error:?}"));
    let (found, expected) = (attributes(real)?, attributes(model)?);
    compare_attributes(inodes, &found, &expected)?;
    match expected.kind {
        Kind::Regular => compare_content(real, model, expected.size, damaged)?,
        Kind::Symlink => {
            let target = |at: Place<'_>| at.0.read_link(at.1);
            compare_value("target", target(real), target(model), damaged)?;
        }
        _ => (),
    }
    let names = |at: Place<'_>| -> Result<BTreeSet<Vec<u8>>, String> {
        let names = at.0.list_xattrs(at.1).map_err(|error| format!("attributes: {error:?}"))?;
        Ok(names.into_iter().collect())
    };
    let (found, wanted) = (names(real)?, names(model)?);
    if found != wanted {
        return Err(format!("extended attributes {found:?}; the model has {wanted:?}"));
    }
    for name in wanted {
        let value = |at: Place<'_>| at.0.xattr(at.1, &name);
        compare_value("extended attribute", value(real), value(model), damaged)?;
    }
    Ok(expected)
}

fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Damaged(_) | Error::Io(_))
}

fn compare_value(
    what: &str,
    real: marram_vfs::Result<Vec<u8>>,
    model: marram_vfs::Result<Vec<u8>>,
    damaged: &mut Damaged,
) -> Agreement {
    match (real, model) {
        (Ok(real), Ok(model)) => equal_bytes(what, &real, &model),
        (Err(error), Ok(_)) if is_damage(&error) => {
            damaged.values += 1;
            Ok(())
        }
        (real, model) => Err(format!("{what}: {real:?}; the model says {model:?}")),
    }
}

/// Compares windows of a file, and the pages of those that cannot be read whole. A file of the
/// largest size with little in it is compared where the model has data.
fn compare_content(
    real: Place<'_>,
    model: Place<'_>,
    size: u64,
    damaged: &mut Damaged,
) -> Agreement {
    let mut offset = 0;
    while offset < size {
        let Ok(start) = model.0.seek(model.1, offset, marram_vfs::SeekTarget::Data) else {
            return Ok(());
        };
        offset = start / PAGE_BYTES * PAGE_BYTES;
        let end = (offset + READ_BYTES).min(size);
        if compare_range(real, model, offset, end)? {
            offset = end;
            continue;
        }
        while offset < end {
            let page_end = (offset + PAGE_BYTES).min(end);
            if !compare_range(real, model, offset, page_end)? {
                damaged.content_bytes += PAGE_BYTES;
            }
            offset = page_end;
        }
    }
    Ok(())
}

/// Compares a range; false if it is damaged.
fn compare_range(real: Place<'_>, model: Place<'_>, start: u64, end: u64) -> Result<bool, String> {
    let len = usize::try_from(end - start).expect("a window fits memory");
    let read = |at: Place<'_>| {
        let mut out = Vec::new();
        at.0.read(at.1, start, len, &mut out).map(|()| out)
    };
    match (read(real), read(model)) {
        (Ok(real), Ok(model)) => {
            equal_bytes(&format!("content from {start}"), &real, &model).map(|()| true)
        }
        (Err(error), Ok(_)) if is_damage(&error) => Ok(false),
        (real, model) => Err(format!("content: {real:?}; the model says {model:?}")),
    }
}
