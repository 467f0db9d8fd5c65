//! What the last call of a thread failed with.

use marram_client::Error;
use std::cell::RefCell;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// An error, as C reads it.
#[derive(Default)]
pub(crate) struct Last {
    /// In words.
    pub(crate) message: CString,
    /// Paths that a commit was refused for.
    pub(crate) conflicts: Vec<CString>,
}

impl Last {
    /// That of an error.
    pub(crate) fn of(error: &Error) -> Last {
        let conflicts = match error {
            Error::Refused(conflicts) => conflicts.as_slice(),
            _ => &[],
        };
        let path = |path: &std::path::Path| CString::new(path.as_os_str().as_bytes());
        let conflicts = conflicts.iter().filter_map(|conflict| path(&conflict.path).ok());
        let message = CString::new(error.to_string()).unwrap_or_default();
        Last { message, conflicts: conflicts.collect() }
    }
}

/// Keeps it for this thread; what was kept before is no more.
pub(crate) fn keep(last: Last) {
    LAST.set(last);
}

/// Reads what is kept for this thread.
pub(crate) fn with<T>(read: impl FnOnce(&Last) -> T) -> T {
    LAST.with_borrow(read)
}
