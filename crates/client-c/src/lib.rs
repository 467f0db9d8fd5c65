//! `bindings/c/marram.h`, over the library in Rust.
//!
//! All of the interface's `unsafe` is here: pointers of C programs, which the header says to be
//! what they are. What the last call of a thread failed with is kept for that thread.

#![allow(unsafe_code, reason = "pointers come from C")]

mod last;

use last::Last;
use marram_client::{Error, Transaction};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// A transaction, as C holds it.
#[derive(Debug)]
pub struct MarramTx {
    transaction: Transaction,
    id: CString,
}

/// `marram_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// It is done.
    Ok = 0,
    /// Others have changed what the transaction has read or written.
    Refused = 1,
    /// It may have been committed.
    Unknown = 2,
    /// This process still has files of it mapped.
    Mapped = 3,
    /// None can begin there.
    Unsuitable = 4,
    /// The daemon refuses or fails.
    Daemon = 5,
    /// A system call failed.
    Failed = 6,
}

/// What the work of `marram_retry` is.
type Work = unsafe extern "C" fn(*mut MarramTx, *mut c_void) -> c_int;

impl From<Transaction> for MarramTx {
    fn from(transaction: Transaction) -> MarramTx {
        let id = CString::new(transaction.id()).unwrap_or_default();
        MarramTx { transaction, id }
    }
}

/// Begins a transaction on the directory of a path.
///
/// # Safety
/// `directory` is a string that ends with 0, and `tx` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marram_tx_begin(
    directory: *const c_char,
    tx: *mut *mut MarramTx,
) -> Status {
    // SAFETY: as the caller promises.
    let begun = unsafe { path_of(directory) }.and_then(Transaction::begin);
    // SAFETY: as the caller promises.
    unsafe { hand_out(begun, tx) }
}

/// The same on a descriptor.
///
/// # Safety
/// `directory` stays open during the call, and `tx` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marram_tx_begin_at(directory: c_int, tx: *mut *mut MarramTx) -> Status {
    let begun = match directory {
        // The one number that no borrowed descriptor can have; others are checked by the kernel.
        -1 => Err(Error::from(std::io::Error::from(ErrorKind::InvalidInput))),
        // SAFETY: as the caller promises.
        open => Transaction::begin_at(unsafe { BorrowedFd::borrow_raw(open) }),
    };
    // SAFETY: as the caller promises.
    unsafe { hand_out(begun, tx) }
}

/// Begins one on several directories.
///
/// # Safety
/// `directories` has `count` texts that end with a zero byte, and `tx` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marram_tx_begin_several(
    directories: *const *const c_char,
    count: usize,
    tx: *mut *mut MarramTx,
) -> Status {
    // SAFETY: as the caller promises.
    let paths = unsafe { paths_of(directories, count) };
    let begun = paths.and_then(|paths| Transaction::begin_several(&paths));
    // SAFETY: as the caller promises.
    unsafe { hand_out(begun, tx) }
}

/// Begins one inside of another.
///
/// # Safety
/// `outer` is null or a transaction that is open, and `tx` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marram_tx_begin_inside(
    outer: *const MarramTx,
    tx: *mut *mut MarramTx,
) -> Status {
    // SAFETY: as the caller promises.
    let begun = match unsafe { outer.as_ref() } {
        None => Err(Error::from(std::io::Error::from(ErrorKind::InvalidInput))),
        Some(outer) => outer.transaction.begin_inside(),
    };
    // SAFETY: as the caller promises.
    unsafe { hand_out(begun, tx) }
}

/// The directory in the view.
///
/// # Safety
/// `tx` is a transaction that is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marram_tx_fd(tx: *const MarramTx) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { tx.as_ref() }.map_or(-1, |tx| tx.transaction.directory().as_raw_fd())
}

/// One of several directories in the views, by its place from 0.
///
/// # Safety
/// `tx` is a transaction that is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marram_tx_fd_at(tx: *const MarramTx, number: usize) -> c_int {
    // SAFETY: as the caller promises.
    let tx = unsafe { tx.as_ref() };
    let directory = tx.and_then(|tx| tx.transaction.directories().nth(number));
    directory.map_or(-1, |directory| directory.as_raw_fd())
}

/// The id.
///
/// # Safety
/// `tx` is a transaction that is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marram_tx_id(tx: *const MarramTx) -> *const c_char {
    // SAFETY: as the caller promises.
    unsafe { tx.as_ref() }.map_or(ptr::null(), |tx| tx.id.as_ptr())
}

/// Commits.
///
/// # Safety
/// `tx` is a transaction that is open, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marram_tx_commit(tx: *mut MarramTx) -> Status {
    if tx.is_null() {
        return status_of(Err(std::io::Error::from(ErrorKind::InvalidInput).into()));
    }
    // SAFETY: `hand_out` has made it of a box, and the caller gives it back.
    let tx = unsafe { Box::from_raw(tx) };
    status_of(tx.transaction.commit().map(|_| ()))
}

/// Aborts.
///
/// # Safety
/// `tx` is null, or a transaction that is open, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marram_tx_abort(tx: *mut MarramTx) {
    if !tx.is_null() {
        // SAFETY: `hand_out` has made it of a box, and the caller gives it back.
        let tx = unsafe { Box::from_raw(tx) };
        tx.transaction.abort();
    }
}

/// Has work done in a transaction, again if its commit is refused.
///
/// # Safety
/// `directory` is a string that ends with 0. `work` may be called with a transaction and `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marram_retry(
    directory: *const c_char,
    retries: c_uint,
    work: Option<Work>,
    data: *mut c_void,
) -> Status {
    // SAFETY: as the caller promises.
    unsafe { marram_retry_several(&raw const directory, 1, retries, work, data) }
}

/// The same on several directories.
///
/// # Safety
/// `directories` has `count` strings that end with 0. `work` may be called with a transaction and
/// `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marram_retry_several(
    directories: *const *const c_char,
    count: usize,
    retries: c_uint,
    work: Option<Work>,
    data: *mut c_void,
) -> Status {
    let gave_up = || Error::from(std::io::Error::other("the work in the transaction gave up"));
    // SAFETY: as the caller promises.
    let done = unsafe { paths_of(directories, count) }.and_then(|directories| {
        let work = work.ok_or_else(|| std::io::Error::from(ErrorKind::InvalidInput))?;
        let mut attempts = 0;
        loop {
            let mut tx = MarramTx::from(Transaction::begin_several(&directories)?);
            // SAFETY: as the caller promises; the work does not end the transaction.
            if unsafe { work(&raw mut tx, data) } != 0 {
                return Err(gave_up());
            }
            let wait = marram_client::control::pause(tx.transaction.id(), attempts);
            match tx.transaction.commit() {
                Err(error) if error.is_refused() && attempts < retries => {
                    std::thread::sleep(wait);
                    attempts += 1;
                }
                done => return done.map(|_| ()),
            }
        }
    });
    status_of(done)
}

/// What the last call of this thread that failed has to say.
#[unsafe(no_mangle)]
pub extern "C" fn marram_message() -> *const c_char {
    last::with(|last| last.message.as_ptr())
}

/// A path that its commit was refused for.
#[unsafe(no_mangle)]
pub extern "C" fn marram_conflict(number: usize) -> *const c_char {
    last::with(|last| last.conflicts.get(number).map_or(ptr::null(), |path| path.as_ptr()))
}

/// # Safety
/// `path` is null or a string that ends with 0 and lives as long as the result.
unsafe fn path_of<'p>(path: *const c_char) -> Result<&'p Path, Error> {
    if path.is_null() {
        return Err(std::io::Error::from(ErrorKind::InvalidInput).into());
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(path) };
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// # Safety
/// `paths` is null or has `count` pointers, each as [`path_of`] wants it.
unsafe fn paths_of<'p>(paths: *const *const c_char, count: usize) -> Result<Vec<&'p Path>, Error> {
    if paths.is_null() || count == 0 {
        return Err(std::io::Error::from(ErrorKind::InvalidInput).into());
    }
    // SAFETY: as the caller promises.
    let texts = unsafe { std::slice::from_raw_parts(paths, count) };
    // SAFETY: as the caller promises.
    texts.iter().map(|text| unsafe { path_of(*text) }).collect()
}

/// # Safety
/// `to` is null or can be written.
unsafe fn hand_out(begun: Result<Transaction, Error>, to: *mut *mut MarramTx) -> Status {
    let made = begun.and_then(|transaction| match to.is_null() {
        true => Err(std::io::Error::from(ErrorKind::InvalidInput).into()),
        false => Ok(Box::into_raw(Box::new(MarramTx::from(transaction)))),
    });
    let handed = *made.as_ref().unwrap_or(&ptr::null_mut());
    if !to.is_null() {
        // SAFETY: as the caller promises.
        unsafe { to.write(handed) };
    }
    status_of(made.map(|_| ()))
}

/// The status of a result, of which an error is kept.
fn status_of(done: Result<(), Error>) -> Status {
    let Err(error) = done else { return Status::Ok };
    let status = match &error {
        Error::Refused(_) => Status::Refused,
        Error::Unknown { .. } => Status::Unknown,
        Error::Mapped(_) => Status::Mapped,
        Error::Unsuitable { .. } => Status::Unsuitable,
        Error::Daemon { .. } => Status::Daemon,
        _ => Status::Failed,
    };
    last::keep(Last::of(&error));
    status
}

#[cfg(test)]
mod tests {
    use super::{
        MarramTx, Status, marram_conflict, marram_message, marram_tx_abort, marram_tx_begin,
        marram_tx_begin_at, marram_tx_commit, marram_tx_fd,
    };
    use std::ffi::CStr;
    use std::ptr;

    #[test]
    fn what_is_no_transaction_is_refused_and_said() {
        let mut tx: *mut MarramTx = ptr::dangling_mut();
        // SAFETY: the pointers are what the calls want, or null.
        unsafe {
            assert_eq!(marram_tx_begin(c"/proc".as_ptr(), &raw mut tx), Status::Unsuitable);
            assert!(tx.is_null());
            let message = CStr::from_ptr(marram_message()).to_str().unwrap();
            assert!(message.contains("/proc"), "{message}");
            assert_eq!(marram_tx_begin(ptr::null(), &raw mut tx), Status::Failed);
            assert_eq!(marram_tx_begin(c"/proc".as_ptr(), ptr::null_mut()), Status::Unsuitable);
            assert_eq!(marram_tx_begin_at(-1, &raw mut tx), Status::Failed);
            assert_eq!(marram_tx_commit(ptr::null_mut()), Status::Failed);
            assert_eq!(marram_tx_fd(ptr::null()), -1);
            marram_tx_abort(ptr::null_mut());
        }
        assert!(marram_conflict(0).is_null());
    }
}
