//! This process, and the processors that it runs on.

use std::num::NonZeroUsize;

/// The number of this process.
pub(crate) fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// How many threads to use for work that can be done side by side.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, NonZeroUsize::get).clamp(1, 16)
}
