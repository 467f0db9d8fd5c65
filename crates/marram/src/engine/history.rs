//! The past of a store's datasets: going back to it, what differs from it, and forks that come
//! together again with what they began as.

mod directory;
mod merge;
mod patch;
mod selection;
mod versions;

pub(crate) use directory::{directory_alone, rollback_directory};
pub(crate) use merge::Merge;
pub(crate) use merge::conflict_row;
pub(crate) use versions::versions;

use super::rights::BothSights;
use crate::control::protocol::{Answer, CompareOrder, DifferenceRow};
use crate::error::{Error, Result};
use crate::names;
use crate::timestamps::format_exact;
use marram_history::{AttributeChange, Difference, StableSource, What, XattrChange};
use marram_posix::Posix;
use marram_store::{Source, Store};
use marram_vfs::{Ino, Kind, Timestamp};
use selection::Selection;
use std::cell::Cell;
use std::time::Instant;

/// Names that are tried for what a rollback keeps.
const NAMES_MAX: u32 = 1 << 20;

/// Lets the dataset of a snapshot go on from it. `with` runs the rollback proper, in the way that
/// a mount of the dataset needs.
///
/// # Errors
/// Whatever refuses it or fails; then nothing has changed.
pub(crate) fn rollback(
    store: &dyn Store,
    to: &Source,
    with: impl FnOnce(&mut dyn FnMut() -> Result<()>) -> Result<()>,
) -> Result<Answer> {
    let keep = free_name(store, to, "before-rollback-")?;
    let mut engine_nanoseconds = 0;
    let done = with(&mut || {
        let began = Instant::now();
        store.rollback(to, &keep)?;
        engine_nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(())
    });
    done.map_err(|error| gone_or(store, to, error))?;
    let kept = kept_as(to, keep);
    Ok(Answer::RolledBack { kept: kept.to_string(), engine_nanoseconds })
}

/// Why a rollback has failed: its state may have gone in the middle, and a failed read of that says
/// only that it cannot be read.
fn gone_or(store: &dyn Store, to: &Source, error: Error) -> Error {
    match store.report(to) {
        Err(gone @ marram_store::Error::NoDataset(_)) => Error::from(gone),
        _ => error,
    }
}

fn kept_as(dataset: &Source, name: String) -> Source {
    Source { dataset: dataset.dataset.clone(), snapshot: Some(name) }
}

/// A name with a number behind it that no snapshot of the dataset has.
fn free_name(store: &dyn Store, of: &Source, prefix: &str) -> Result<String> {
    first_free(prefix, |name| store.report(&kept_as(of, name)).map(|_| ()))
}

/// The first name with a number behind it under which there is nothing. A look-up that fails in
/// another way says nothing of the name.
fn first_free(
    prefix: &str,
    look_up: impl Fn(String) -> marram_store::Result<()>,
) -> Result<String> {
    for number in 1..NAMES_MAX {
        let name = format!("{prefix}{number}");
        match look_up(name.clone()) {
            Ok(()) => {}
            Err(marram_store::Error::NoDataset(_)) => return Ok(name),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::failed(format!("no free name that begins with {prefix}")))
}

/// Keeps a state so that it does not change while it is looked at, if it is live.
type Keep<'p> = fn(&'p dyn Store, &Source, &str) -> marram_vfs::Result<StableSource<'p>>;

/// Tells what differs between two states below a directory, one difference after the other.
///
/// # Errors
/// Whatever refuses it or fails; what `tell` fails with.
pub(crate) fn diff(
    store: &dyn Store,
    order: &CompareOrder,
    tell: &mut dyn FnMut(DifferenceRow) -> Result<()>,
) -> Result<()> {
    let is_told = Cell::new(false);
    let mut tell = |row| {
        is_told.set(true);
        tell(row)
    };
    match diff_kept(store, order, StableSource::of, &mut tell)? {
        Told::Overtaken(_) if !is_told.get() => {}
        Told::Overtaken(error) => return Err(error),
        Told::All => return Ok(()),
    }
    match diff_kept(store, order, StableSource::on_media, &mut tell)? {
        Told::Overtaken(error) => Err(error),
        Told::All => Ok(()),
    }
}

/// How far a comparison has come.
enum Told {
    All,
    /// It failed, since a state that was compared has been overwritten.
    Overtaken(Error),
}

fn diff_kept<'p>(
    store: &'p dyn Store,
    order: &CompareOrder,
    keep: Keep<'p>,
    tell: &mut dyn FnMut(DifferenceRow) -> Result<()>,
) -> Result<Told> {
    let still = |source: &str| -> Result<StableSource<'p>> {
        let source: Source = source.parse()?;
        store.open(&source)?;
        Ok(keep(store, &source, "diff")?)
    };
    let (before, after) = (still(&order.before)?, still(&order.after)?);
    match compare(store, order, (before.source(), after.source()), tell) {
        Ok(()) => Ok(Told::All),
        Err(error) if before.is_overtaken() || after.is_overtaken() => Ok(Told::Overtaken(error)),
        Err(error) => Err(error),
    }
}

fn compare(
    store: &dyn Store,
    order: &CompareOrder,
    of: (&Source, &Source),
    tell: &mut dyn FnMut(DifferenceRow) -> Result<()>,
) -> Result<()> {
    let mut texts = order.patch.then(|| patch::Texts::open(store, of)).transpose()?;
    let mut selection = match order.selection.is_all() {
        true => None,
        false => Some(Selection::new(&order.selection, || {
            Ok(vec![state(store, of.1, order.root)?, state(store, of.0, order.root)?])
        })?),
    };
    let mut sight = match &order.bound {
        Some(user) => Some(BothSights::new(store, of, order.root, user)?),
        None => None,
    };
    let mut tell = |row: DifferenceRow| {
        let is_meant = match &mut selection {
            Some(selection) => is_selected(selection, &row)?,
            None => true,
        };
        let row = match &mut sight {
            Some(sight) if is_meant => sight.of(row)?,
            _ => Some(row).filter(|_| is_meant),
        };
        row.map_or(Ok(()), &mut *tell)
    };
    let tell: &mut dyn FnMut(DifferenceRow) -> Result<()> = &mut tell;
    let (mut place, mut told) = (Vec::new(), Ok(()));
    marram_history::diff(store, of.0, of.1, Ino(order.root), &mut |difference| {
        if place.last().is_some_and(|last: &Difference| last.path != difference.path) {
            told = tell_place(std::mem::take(&mut place), texts.as_mut(), tell);
        }
        place.push(difference);
        told.is_ok()
    })?;
    told.and_then(|()| tell_place(place, texts.as_mut(), tell))
}

/// A state in which ignore files are read, from a directory on.
fn state(store: &dyn Store, source: &Source, root: u64) -> Result<(Posix, Ino)> {
    Ok((patch::open(store, source)?, Ino(root)))
}

/// Whether one of the paths of a difference is meant.
fn is_selected(selection: &mut Selection, row: &DifferenceRow) -> Result<bool> {
    let is_directory = row.kind == "directory";
    if selection.has(&row.path_in_bytes(), is_directory)? {
        return Ok(true);
    }
    match row.old_path_in_bytes() {
        Some(old) => selection.has(&old, is_directory),
        None => Ok(false),
    }
}

/// Tells what has happened at one path: what went first, and then what came in its place.
fn tell_place(
    mut place: Vec<Difference>,
    texts: Option<&mut patch::Texts>,
    tell: &mut dyn FnMut(DifferenceRow) -> Result<()>,
) -> Result<()> {
    place.sort_by_key(|difference| !matches!(difference.what, What::Removed | What::Unlinked));
    let with_numbers = |difference: Difference| {
        let numbers = (difference.old_ino, difference.ino);
        (row(difference), numbers)
    };
    let mut rows: Vec<patch::Numbered> = place.into_iter().map(with_numbers).collect();
    texts.map_or(Ok(()), |texts| texts.add_to(&mut rows))?;
    rows.into_iter().try_for_each(|(row, _)| tell(row))
}

fn row(difference: Difference) -> DifferenceRow {
    let old_path = difference.old_path.as_deref();
    let size = (difference.kind == Kind::Regular).then_some(difference.size);
    let mut row = DifferenceRow {
        change: String::new(),
        path: names::text(&difference.path),
        path_bytes: names::lost_bytes(&difference.path),
        old_path: old_path.map(names::text),
        old_path_bytes: old_path.and_then(names::lost_bytes),
        kind: kind(difference.kind).to_owned(),
        ranges: Vec::new(),
        sizes: None,
        values: Vec::new(),
        patch: None,
    };
    row.change = match difference.what {
        What::Created => {
            row.sizes = size.map(|size| (0, size));
            "created"
        }
        What::Removed => {
            row.sizes = size.map(|size| (size, 0));
            "removed"
        }
        What::Renamed => "renamed",
        What::Linked => "linked",
        What::Unlinked => "unlinked",
        What::Content { ranges, old_size, new_size } => {
            row.ranges = ranges.into_iter().map(|range| (range.start, range.end)).collect();
            row.sizes = Some((old_size, new_size));
            "content"
        }
        What::Attributes(changes) => {
            row.values = changes.into_iter().map(attribute).collect();
            "attributes"
        }
        What::Xattrs(changes) => {
            row.values = changes.into_iter().map(xattr).collect();
            "xattrs"
        }
    }
    .to_owned();
    row
}

const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Regular => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharDevice | Kind::BlockDevice => "device",
    }
}

fn attribute(change: AttributeChange) -> (String, Option<String>, Option<String>) {
    let time = |at: Timestamp| format_exact(at.seconds, at.nanoseconds);
    let (name, old, new) = match change {
        AttributeChange::Permissions(old, new) => {
            ("mode", format!("{old:04o}"), format!("{new:04o}"))
        }
        AttributeChange::User(old, new) => ("user", old.to_string(), new.to_string()),
        AttributeChange::Group(old, new) => ("group", old.to_string(), new.to_string()),
        AttributeChange::Flags(old, new) => ("flags", format!("{old:#x}"), format!("{new:#x}")),
        AttributeChange::Project(old, new) => ("project", old.to_string(), new.to_string()),
        AttributeChange::Modified(old, new) => ("modified", time(old), time(new)),
    };
    (name.to_owned(), Some(old), Some(new))
}

fn xattr(change: XattrChange) -> (String, Option<String>, Option<String>) {
    let value = |bytes: Vec<u8>| match names::lost_bytes(&bytes) {
        Some(lost) => format!("0x{lost}"),
        None => names::text(&bytes),
    };
    (names::text(&change.name), change.old.map(value), change.new.map(value))
}

#[cfg(test)]
mod tests {
    use super::first_free;
    use marram_store::Error;

    #[test]
    fn the_first_name_under_which_nothing_is_found_is_free() {
        let look_up = |name: String| match name.as_str() {
            "before-1" | "before-2" => Ok(()),
            _ => Err(Error::NoDataset(name)),
        };
        assert_eq!(first_free("before-", look_up).expect("the third"), "before-3");
    }

    #[test]
    fn a_look_up_that_fails_frees_no_name() {
        let look_up = |name: String| match name.as_str() {
            "before-1" => Err(Error::Io("the device is gone".to_owned())),
            _ => Err(Error::NoDataset(name)),
        };
        let refused = first_free("before-", look_up).expect_err("it may be taken");
        assert!(refused.message.contains("the device is gone"), "{refused}");
    }
}
