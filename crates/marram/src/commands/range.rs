//! `marram range`: takes ranges out of files, puts holes into them, and gives them blocks of their
//! own: kinds of `fallocate` that FUSE does not carry.

use crate::arguments::{RangeArguments, RangeKind};
use crate::error::{Error, Result};
use crate::names;
use crate::output::Output;
use crate::sizes::parse_size;
use marram_fuse::{FileCallError, change_range};
use marram_vfs::Allocate;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct Changed {
    #[serde(serialize_with = "names::serialize")]
    file: PathBuf,
    size: u64,
}

pub(super) fn run(kind: &RangeKind, output: &Output) -> Result<()> {
    let (how, arguments) = match kind {
        RangeKind::Collapse(arguments) => (Allocate::Collapse, arguments),
        RangeKind::Insert(arguments) => (Allocate::Insert, arguments),
        RangeKind::Unshare(arguments) => (Allocate::UnshareKeepSize, arguments),
    };
    let RangeArguments { file: path, offset, length } = arguments;
    let (offset, len) = (parse_size(offset)?, parse_size(length)?);
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let file = opened.map_err(|error| Error::system("open for writing", path, error))?;
    change_range(&file, how, offset, len).map_err(|error| told(path, how, error))?;
    let changed = Changed { file: path.clone(), size: size_of(&file, path)? };
    output.print(&changed, String::new);
    Ok(())
}

/// The size of an open file.
pub(super) fn size_of(file: &File, path: &Path) -> Result<u64> {
    let found = file.metadata().map_err(|error| Error::system("look at", path, error))?;
    if !found.is_file() {
        return Err(Error::usage(format!("{} is no regular file", path.display())));
    }
    Ok(found.len())
}

fn told(path: &Path, how: Allocate, error: FileCallError) -> Error {
    let hint = match (&error, how) {
        (FileCallError::Refused(error), Allocate::Collapse) if is_invalid(error) => Some(
            "the range must have bytes, and end before the file does: to cut a file at its \
                  end, use truncate",
        ),
        (FileCallError::Refused(error), Allocate::Insert) if is_invalid(error) => Some(
            "the hole must have bytes, and begin inside the file: to make a file longer, use \
                  truncate",
        ),
        _ => None,
    };
    let error = Error::failed(format!("cannot change {}: {error}", path.display()));
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

fn is_invalid(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::InvalidInput
}
