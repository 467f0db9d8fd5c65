//! What commands do before they ask, and with the answers.

use crate::control::protocol::{Answer, Operation};
use crate::error::{Error, Result};
use crate::target::Target;
use std::fs::File;
use std::path::Path;

/// Has an operation done that tells how long the engine took; returns nanoseconds.
///
/// # Errors
/// Whatever refuses it or fails.
pub(super) fn timed(target: &Target, operation: &Operation) -> Result<u64> {
    match target.perform(operation)? {
        Answer::Timed { engine_nanoseconds } => Ok(engine_nanoseconds),
        other => Err(unexpected(&other)),
    }
}

/// Has the kernel hand over what it holds back of a mount with `writeback`, so that what is kept,
/// forked or compared is what programs see.
///
/// # Errors
/// The kernel cannot write it back.
pub(super) fn write_back(target: &Target, path: &Path) -> Result<()> {
    let Some(mount) = &target.mount else { return Ok(()) };
    if !mount.options.split(',').any(|word| word == "writeback") {
        return Ok(());
    }
    let failed = |error: std::io::Error| Error::system("write back", path, error);
    let directory = File::open(path).map_err(failed)?;
    rustix::fs::syncfs(directory).map_err(|error| failed(error.into()))
}

/// The error for an answer that does not fit the question: a daemon of ours never gives one.
pub(super) fn unexpected(answer: &Answer) -> Error {
    Error::failed(format!("the daemon answered something else: {answer:?}"))
}
