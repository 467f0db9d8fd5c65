//! Work that is done again when others were in the way.

use crate::error::Error;
use crate::transaction::Transaction;
use std::path::Path;
use std::time::Duration;

/// The pause before work is done again: at least, and at most at first.
const PAUSE_MILLISECONDS: [u64; 2] = [5, 20];
/// How often the longest pause becomes twice as long.
const DOUBLINGS_MAX: u32 = 6;

/// Does `work` in a transaction on a directory and commits. If the commit is refused, the work is
/// done again in a new transaction after a pause, `retries` times at most. What the work leads to
/// besides the transaction happens each time.
///
/// # Errors
/// That of the work, which aborts; that of the last commit.
pub fn retry<T, E: From<Error>>(
    directory: impl AsRef<Path>,
    retries: u32,
    work: impl FnMut(&Transaction) -> Result<T, E>,
) -> Result<T, E> {
    retry_several(&[directory], retries, work)
}

/// The same in a transaction on several directories: see [`Transaction::begin_several`].
///
/// # Errors
/// As for [`retry`].
pub fn retry_several<P: AsRef<Path>, T, E: From<Error>>(
    directories: &[P],
    retries: u32,
    mut work: impl FnMut(&Transaction) -> Result<T, E>,
) -> Result<T, E> {
    let mut attempts = 0;
    loop {
        let transaction = Transaction::begin_several(directories)?;
        let wait = pause(transaction.id(), attempts);
        let done = work(&transaction)?;
        match transaction.commit() {
            Ok(_) => return Ok(done),
            Err(error) if error.is_refused() && attempts < retries => {
                std::thread::sleep(wait);
                attempts += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A pause that grows with each attempt, and that no other program makes of the same length: part
/// of it comes from the id of the transaction, which is random.
pub fn pause(id: &str, attempts: u32) -> Duration {
    let [least, most] = PAUSE_MILLISECONDS;
    let most = most << attempts.min(DOUBLINGS_MAX);
    let random = u64::from_str_radix(id.get(..8).unwrap_or_default(), 16).unwrap_or_default();
    Duration::from_millis(least + random % most)
}
