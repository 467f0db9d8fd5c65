//! `marram reflink`: a file, or a range of one, that shares the blocks of another; or a refusal.

use super::range::size_of;
use crate::arguments::ReflinkArguments;
use crate::error::{Error, Result};
use crate::names;
use crate::output::Output;
use crate::sizes::parse_size;
use marram_fuse::{FileCallError, share_range};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct Shared {
    #[serde(serialize_with = "names::serialize")]
    source: PathBuf,
    #[serde(serialize_with = "names::serialize")]
    target: PathBuf,
    shared_bytes: u64,
}

/// What of the source goes where.
struct Part {
    source_offset: u64,
    target_offset: u64,
    len: u64,
}

pub(super) fn run(arguments: &ReflinkArguments, output: &Output) -> Result<()> {
    let (source_path, target_path) = (&arguments.source, &arguments.target);
    let opened = File::open(source_path);
    let source = opened.map_err(|error| Error::system("open", source_path, error))?;
    let size = size_of(&source, source_path)?;
    let part = match &arguments.range {
        Some(text) => part(text)?,
        None => Part { source_offset: 0, target_offset: 0, len: size },
    };
    if part.source_offset.checked_add(part.len).is_none_or(|end| end > size) {
        let path = source_path.display();
        return Err(Error::usage(format!("the range ends after {path}, which has {size} bytes")));
    }
    let (target, made) = open_target(&source, target_path)?;
    let shared = share(&source, &target, &part)
        .map_err(|error| told(source_path, target_path, &error))
        .and_then(|()| match arguments.range {
            Some(_) => Ok(()),
            None => target.set_len(size).map_err(|error| Error::system("cut", target_path, error)),
        });
    if made && shared.is_err() {
        // It was made for what did not come about; the first error is the one to tell.
        let _second_failure = std::fs::remove_file(target_path);
    }
    shared?;
    let (source, target) = (source_path.clone(), target_path.clone());
    output.print(&Shared { source, target, shared_bytes: part.len }, String::new);
    Ok(())
}

fn share(source: &File, target: &File, part: &Part) -> std::result::Result<(), FileCallError> {
    share_range(source, part.source_offset, target, part.target_offset, part.len)
}

/// Opens what is to be changed, or makes it with the source's permissions; says whether it has been
/// made.
fn open_target(source: &File, path: &Path) -> Result<(File, bool)> {
    let failed = |error| Error::system("open for writing", path, error);
    let mode = source.metadata().map_err(failed)?.permissions().mode() & 0o777;
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(mode);
    match options.clone().create_new(true).open(path) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let file = options.open(path).map_err(failed)?;
            size_of(&file, path)?;
            Ok((file, false))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Reads `OFFSET:LENGTH` or `OFFSET:LENGTH:TARGET_OFFSET`.
fn part(text: &str) -> Result<Part> {
    let numbers: Vec<u64> = text.split(':').map(parse_size).collect::<Result<_>>()?;
    match numbers[..] {
        [source_offset, len] => Ok(Part { source_offset, target_offset: source_offset, len }),
        [source_offset, len, target_offset] => Ok(Part { source_offset, target_offset, len }),
        _ => Err(Error::usage(format!(
            "{text:?} is no range: write OFFSET:LENGTH, or OFFSET:LENGTH:TARGET_OFFSET"
        ))),
    }
}

fn told(source: &Path, target: &Path, error: &FileCallError) -> Error {
    let (source, target) = (source.display(), target.display());
    let told = match error {
        FileCallError::Copied { .. } => Error::partial,
        _ => Error::failed,
    };
    let hint = match error {
        FileCallError::Apart => {
            Some("of one pool: go by .marram/snapshots or .marram/forks of one mount; else use cp")
        }
        FileCallError::NotOurs => Some("use cp to copy"),
        FileCallError::Copied { .. } => Some("the target may be kept as a copy, or removed"),
        FileCallError::Refused(_) => None,
    };
    let error = told(format!("cannot share the blocks of {source} with {target}: {error}"));
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn a_range_names_two_or_three_numbers() {
        let found = part("4K:1M").unwrap();
        assert_eq!((found.source_offset, found.len, found.target_offset), (4096, 1 << 20, 4096));
        assert_eq!(part("0:1:2G").unwrap().target_offset, 2 << 30);
        for text in ["", "1", "1:", "1:2:3:4", "-1:2", "a:b"] {
            assert!(part(text).is_err(), "{text}");
        }
    }
}
