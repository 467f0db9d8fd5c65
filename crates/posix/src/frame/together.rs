//! Operations beside those of other clients of the same dataset.
//!
//! An operation reads, and applies a batch that names the moment that was known. Where others have
//! changed the dataset since, the batch is refused, and the operation looks, and is **executed
//! anew**: what it answers, and what it changes, is as if it had been alone at one moment. So
//! `O_EXCL`, `mkdir`, `rename` and `link` are exact between hosts. One that has changed nothing, or
//! fails, looks before it answers. One that only reads looks at its beginning; and at its end too
//! if it has read what may be of another moment.
//!
//! What is kept in memory about the dataset is read anew when others have changed it, while no
//! operation is under way here.

use crate::volume::Volume;
use crate::volume::seen::{Seeing, seen};
use marram_records::failure::from_store;
use marram_store::{Error as StoreError, Moment, Together};
use marram_vfs::{Error, Result};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// How often an operation is executed anew before it fails.
const TRIES_MAX: u32 = 2000;
/// The same of an operation that reads much.
const SLOW_TRIES_MAX: u32 = 50;
/// How often content is read anew that others write all the time: then it is of several moments.
const READ_TRIES_MAX: u32 = 16;
/// The longest pause before an operation is executed anew, in microseconds.
const PAUSE_MICROSECONDS_MAX: u64 = 4096;
/// The longest first pause before an operation that reads much is executed anew, in microseconds.
const SLOW_PAUSE_MICROSECONDS: u64 = 2000;
/// The longest later one: about what such an operation takes beside a server.
const SLOW_PAUSE_MICROSECONDS_MAX: u64 = 250_000;

/// Runs an operation that changes something.
pub(crate) fn changing<T>(volume: &Volume, operation: impl FnMut() -> Result<T>) -> Result<T> {
    // What is known is mostly true, and costs no question.
    changing_at_most(volume, (TRIES_MAX, pause, false), operation)
}

/// The same of one that reads much: it looks first, gives up sooner where others change the dataset
/// all the time, and its pauses are longer. It may apply its batch in another way than
/// [`crate::volume::seen::apply`].
pub(crate) fn changing_slowly<T>(
    volume: &Volume,
    operation: impl FnMut() -> Result<T>,
) -> Result<T> {
    changing_at_most(volume, (SLOW_TRIES_MAX, pause_slowly, true), operation)
}

fn changing_at_most<T>(
    volume: &Volume,
    (tries_max, pause, looks_first): (u32, fn(u32), bool),
    mut operation: impl FnMut() -> Result<T>,
) -> Result<T> {
    let Some(together) = volume.view.capabilities().together else { return operation() };
    for tries in 0..tries_max {
        let has_looked = looks_first || tries > 0;
        let moment = if has_looked { look(volume, together)? } else { known(volume, together)? };
        let seeing = Seeing::since(moment);
        let done = operation();
        // One that has succeeded is never executed again unless it has changed nothing.
        let is_judged = has_looked || seeing.has_applied();
        drop(seeing);
        match done {
            Ok(done) if is_judged => return Ok(done),
            Err(Error::Overtaken) => pause(tries),
            done if look_again(together)? == moment => return done,
            Ok(_) | Err(_) => {}
        }
    }
    Err(Error::Overtaken)
}

/// Runs an operation that only reads; `undo` takes back what one has done that is run anew.
pub(crate) fn looking<T>(
    volume: &Volume,
    mut operation: impl FnMut() -> Result<T>,
    mut undo: impl FnMut(Option<T>),
) -> Result<T> {
    let Some(together) = volume.view.capabilities().together else { return operation() };
    for tries in 0..TRIES_MAX {
        let before = together.stirred();
        let moment = look(volume, together)?;
        let done = {
            let _seeing = Seeing::since(moment);
            operation()
        };
        // What is missing in a state may be there in the next one, and the other way round.
        let is_answer = matches!(done, Ok(_) | Err(Error::NotFound));
        if (is_answer && together.stirred() == before)
            || look_again(together)? == moment
            || (done.is_ok() && tries >= READ_TRIES_MAX)
        {
            return done;
        }
        undo(done.ok());
        pause(tries);
    }
    Err(Error::Overtaken)
}

/// Runs a part of an operation that has looked, until what it read is of one moment.
pub(crate) fn of_one_moment<T>(volume: &Volume, mut part: impl FnMut() -> Result<T>) -> Result<T> {
    let together = volume.view.capabilities().together;
    let Some(together) = together.filter(|together| together.is_shared()) else { return part() };
    for tries in 0..TRIES_MAX {
        let before = together.stirred();
        let moment = look_again(together)?;
        let done = part();
        if (done.is_ok() && together.stirred() == before) || look_again(together)? == moment {
            return done;
        }
        pause(tries);
    }
    Err(Error::Overtaken)
}

/// Runs one of the batches of an operation that must not be executed anew as a whole, again if only
/// the cut of content has changed since the operation looked. Its lock is held, so it reads the
/// same content.
pub(crate) fn piece<T>(volume: &Volume, mut part: impl FnMut() -> Result<T>) -> Result<T> {
    let Some(since) = seen() else { return part() };
    let mut done = part();
    for tries in 0..TRIES_MAX {
        if !matches!(done, Err(Error::Overtaken)) {
            break;
        }
        let Some(now) = moment_of(volume)?.filter(|now| now.changed == since.changed) else {
            break;
        };
        pause(tries);
        let _seeing = Seeing::since(now);
        done = part();
    }
    done
}

/// The moment of a file system that an operation of another one reads.
pub(crate) fn moment_of(volume: &Volume) -> Result<Option<Moment>> {
    volume.view.capabilities().together.map(look_again).transpose()
}

/// Sees the dataset as it is now, for background work: where it is part of an operation, that has
/// seen it.
pub(crate) fn seeing(volume: &Volume) -> Result<Option<Seeing>> {
    match (volume.view.capabilities().together, seen()) {
        (Some(together), None) => look(volume, together).map(|moment| Some(Seeing::since(moment))),
        _ => Ok(None),
    }
}

/// Whether others may read the dataset.
pub(crate) fn is_shared(volume: &Volume) -> bool {
    volume.view.capabilities().together.is_some_and(|together| together.is_shared())
}

/// Whether others may have something of the dataset open.
pub(crate) fn has_company(volume: &Volume) -> bool {
    volume.view.capabilities().together.is_some_and(|together| together.has_company())
}

/// Takes in what others have changed, outside of operations.
pub(crate) fn catch_up(volume: &Volume) -> Result<()> {
    let together = volume.view.capabilities().together;
    together.map_or(Ok(()), |together| look(volume, together).map(|_| ()))
}

fn look_again(together: &dyn Together) -> Result<Moment> {
    together.look().map_err(|error| match error {
        // A client that was taken for lost knows nothing of the dataset any more.
        StoreError::ReadOnly(reason) => Error::Io(reason),
        other => from_store(other),
    })
}

/// Looks, and reads anew what is kept in memory about an older moment.
fn look(volume: &Volume, together: &dyn Together) -> Result<Moment> {
    let moment = look_again(together)?;
    renew(volume, &moment)?;
    Ok(moment)
}

/// The same by what is known, without a look.
fn known(volume: &Volume, together: &dyn Together) -> Result<Moment> {
    let moment = together.known_moment();
    renew(volume, &moment)?;
    Ok(moment)
}

/// Reads anew what is kept in memory about an older moment.
fn renew(volume: &Volume, moment: &Moment) -> Result<()> {
    let is_older = || {
        volume.moment.load(Ordering::Acquire) < moment.changed
            || volume.history.load(Ordering::Acquire) != moment.history
    };
    if is_older() {
        let _all_waits = volume.locks.all();
        if is_older() {
            volume.lazy_times.clear();
            volume.orphans.search_again();
            // Numbers that were taken on another history may be others' on this one.
            match volume.history.load(Ordering::Acquire) == moment.history {
                true => volume.counters.read_counts(&*volume.view)?,
                false => volume.counters.read_again(&*volume.view)?,
            }
            volume.limits.reload(&*volume.view)?;
            volume.history.store(moment.history, Ordering::Release);
            volume.moment.store(moment.changed, Ordering::Release);
        }
    }
    Ok(())
}

/// Lets others come first for a moment, a longer one each time.
fn pause(tries: u32) {
    if tries > 0 {
        let spread = u64::from(std::process::id() ^ tries.wrapping_mul(0x9e37_79b9)) % 64;
        let micros = (32_u64 << tries.min(7)).min(PAUSE_MICROSECONDS_MAX) + spread;
        thread::sleep(Duration::from_micros(micros));
    }
}

/// The same for one that reads much: two of those overtake each other for as long as they go in
/// step, so each waits for a time of its own.
fn pause_slowly(tries: u32) {
    let most = (SLOW_PAUSE_MICROSECONDS << tries.min(7)).min(SLOW_PAUSE_MICROSECONDS_MAX);
    let random = RandomState::new().build_hasher().finish();
    thread::sleep(Duration::from_micros(random % most));
}
