//! Passes over the files below directories that are in sight. They work in steps: no volume is
//! opened or closed within one.

use crate::control::protocol::{Answer, PassDirectory, PassOrder};
use crate::engine::home::{Pass, Watched};
use crate::engine::mounts::{Mounts, Step};
use crate::engine::pool::{dedup, defragment, pass};
use crate::engine::posix::posix;
use crate::error::{Error, Result};
use marram_pool::Pool;
use marram_posix::PassPlace;
use marram_store::Source;
use std::sync::Arc;

/// Makes a pass below directories of what is mounted, for as long as it is wanted.
///
/// # Errors
/// A directory is of nothing that is mounted; a commit failed.
pub(in crate::engine::pool) fn run(
    pool: &Pool,
    pass: Pass,
    order: &PassOrder,
    watched: Watched<'_>,
) -> Result<Answer> {
    let Watched { mounts, is_wanted } = watched;
    let (names, places) = places_in_sight(pool, mounts, order)?;
    let only_places: Vec<PassPlace> = places.iter().map(|(_, place)| place.clone()).collect();
    let mut admit = || admit(mounts, &places, is_wanted);
    let (name, answer) = match pass {
        Pass::Dedup => ("dedup", dedup::run(pool, &only_places, order.dry_run, &mut admit)),
        Pass::Defragment => {
            ("defragment", defragment::run(pool, &only_places, order.dry_run, &mut admit))
        }
    };
    mounts.log(&format!("{name} {names}: {}", outcome(&answer)));
    answer
}

/// Directories of what is mounted, and the names of what they are in.
fn places_in_sight(
    pool: &Pool,
    mounts: &dyn Mounts,
    order: &PassOrder,
) -> Result<(String, Vec<(Source, PassPlace)>)> {
    let mut places = Vec::new();
    for place in &order.places {
        let source = pass::source_of(place, order.dry_run)?;
        places.push((source.clone(), place_in_sight(pool, mounts, place, &source)?));
    }
    let names: Vec<String> = places.iter().map(|(source, _)| source.to_string()).collect();
    Ok((names.join(" "), places))
}

fn place_in_sight(
    pool: &Pool,
    mounts: &dyn Mounts,
    place: &PassDirectory,
    source: &Source,
) -> Result<PassPlace> {
    let open = mounts.volume_of(source).ok_or_else(|| {
        Error::in_use(format!("the pool is mounted, but {source} is not"))
            .hint("name a directory below a mount, or unmount the pool first")
    })?;
    pass::place_in(pool, place, source, posix(open)?)
}

/// Lets a step begin if all file systems are still the ones that are open.
fn admit<'m>(
    mounts: &'m dyn Mounts,
    places: &[(Source, PassPlace)],
    is_wanted: &mut dyn FnMut() -> bool,
) -> Option<Step<'m>> {
    if mounts.is_shut() || !is_wanted() {
        return None;
    }
    let step = mounts.step();
    let is_open = |(source, place): &(Source, PassPlace)| {
        let open = mounts.volume_of(source).and_then(|open| posix(open).ok());
        open.is_some_and(|files| Arc::ptr_eq(&files, &place.files))
    };
    places.iter().all(is_open).then_some(step)
}

/// What has come of a pass, for the log.
fn outcome(answer: &Result<Answer>) -> String {
    match answer {
        Ok(Answer::Deduplicated(summary)) => format!("{} bytes shared", summary.shared_bytes),
        Ok(Answer::Defragmented(summary)) => {
            format!("{} bytes rewritten", summary.rewriting.rewritten_bytes)
        }
        Ok(_) => "done".to_owned(),
        Err(error) => error.to_string(),
    }
}
