//! Threads that write objects: what takes long is the way to another host and back.

use marram_store::{Error, Result};
use std::thread::Builder;

/// Threads at once.
const WRITERS: usize = 8;

/// Does some work for each part of what there is, at once. All have ended when it returns.
///
/// # Errors
/// The first one of the parts.
pub(crate) fn at_once<T: Sync>(all: &[T], work: impl Fn(&[T]) -> Result<()> + Sync) -> Result<()> {
    let (work, part_len) = (&work, all.len().div_ceil(WRITERS).max(1));
    std::thread::scope(|threads| {
        let begun = |part| {
            let thread = Builder::new().spawn_scoped(threads, move || work(part));
            // Where no thread can be made, this one does it.
            thread.map_err(|_| work(part))
        };
        let writers: Vec<_> = all.chunks(part_len).map(begun).collect();
        let died = || Error::Io("a thread that writes blocks died".to_owned());
        let written = writers.into_iter().map(|it| match it {
            Ok(thread) => thread.join().map_err(|_| died())?,
            Err(written) => written,
        });
        // All have ended before the first error is returned.
        written.collect::<Vec<Result<()>>>().into_iter().collect()
    })
}
