//! One directory or file, taken back to what it was in a snapshot; or a directory, made what it is
//! in a clone or fork.

use super::{free_name, gone_or, kept_as};
use crate::control::credentials::Credentials;
use crate::control::protocol::{Answer, DirectoryOrder};
use crate::engine::posix::open_files;
use crate::engine::rights::{check_reached, within};
use crate::error::{Error, Result};
use crate::names::PathText;
use marram_history::{ChangeSet, DirectoryRollback, Parent, StableSource};
use marram_posix::Posix;
use marram_store::{ROOT_OBJECT, Source, Store};
use marram_vfs::Ino;
use std::time::Instant;

/// Takes a directory back in the file system of its dataset; also tells what has changed there.
///
/// # Errors
/// Whatever refuses it or fails: nothing has changed.
pub(crate) fn rollback_directory(
    store: &dyn Store,
    order: &DirectoryOrder,
    (files, user): (&Posix, Option<&Credentials>),
) -> Result<(Answer, ChangeSet)> {
    let (live, to) = (Source::live(order.dataset.parse()?), order.to.parse::<Source>()?);
    let directory = directory_of(store, (&live, &to), order.directory)?;
    let names: Vec<Vec<u8>> = order.names.iter().map(PathText::bytes).collect();
    let keep = free_name(store, &live, "before-rollback-")?;
    check_reached(store, (&live, &to), (directory, &names), user)?;
    let began = Instant::now();
    let keep_as = (!order.discard).then_some(keep.as_str());
    let change_set = within(files, user, |files| {
        let gone = go_back(store, files, (&live, directory, &names), (&to, keep_as));
        gone.map_err(|error| gone_or(store, &to, refusal(error, &to, &order.names)))
    })?;
    let engine_nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let is_changed = change_set.is_some();
    let kept = (is_changed && !order.discard).then(|| kept_as(&live, keep).to_string());
    let answer = Answer::DirectoryRolledBack { kept, is_changed, engine_nanoseconds };
    Ok((answer, change_set.unwrap_or_default()))
}

fn go_back(
    store: &dyn Store,
    files: &dyn Parent,
    (live, directory, names): (&Source, Ino, &[Vec<u8>]),
    (to, keep): (&Source, Option<&str>),
) -> marram_vfs::Result<Option<ChangeSet>> {
    // The live state is pinned for as long as this takes, and programs go on meanwhile.
    let state = StableSource::on_media(store, to, "merge")?;
    let to = state.source();
    let rollback = DirectoryRollback { dataset: &live.dataset, to, directory, keep };
    marram_history::roll_back_below(files, store, rollback, names)
}

/// The directory that is meant. A fork of a directory shows that one: no other can become what the
/// fork is, though the fork's items are those of a whole dataset.
fn directory_of(
    store: &dyn Store,
    (live, to): (&Source, &Source),
    named: Option<u64>,
) -> Result<Ino> {
    let shown = store.report(to)?.root_object;
    let directory = match named {
        Some(named) => named,
        None => store.report(live)?.root_object,
    };
    if to.dataset != live.dataset && shown != ROOT_OBJECT && shown != directory {
        return Err(Error::usage(format!("{to} is a fork of another directory"))
            .hint("name the directory that it was forked from"));
    }
    Ok(Ino(directory))
}

/// Does that in a dataset that nobody has open.
///
/// # Errors
/// Whatever refuses it or fails: nothing has changed.
pub(crate) fn directory_alone(store: &dyn Store, order: &DirectoryOrder) -> Result<Answer> {
    let files = open_files(store, &order.dataset.parse()?)?;
    let (answer, _nobody_remembers) = rollback_directory(store, order, (&files, None))?;
    Ok(answer)
}

fn refusal(error: marram_vfs::Error, to: &Source, names: &[PathText]) -> Error {
    let path = || {
        let names: Vec<&str> = names.iter().map(|name| name.path.as_str()).collect();
        crate::names::quoted(names.join("/").as_bytes())
    };
    match error {
        marram_vfs::Error::NotFound if !names.is_empty() => {
            Error::not_found(format!("{} was not there in {to}", path()))
                .hint("`marram versions PATH` lists the snapshots that have it")
        }
        marram_vfs::Error::NotDirectory if !names.is_empty() => {
            Error::failed(format!("a file is now where a directory was on the way to {}", path()))
                .hint("move that file away first")
        }
        marram_vfs::Error::NotFound => Error::not_found(format!(
            "this directory was not there in {to}, nor another one of its path"
        ))
        .hint("name one above it, or remove it: it was made since"),
        other => other.into(),
    }
}
