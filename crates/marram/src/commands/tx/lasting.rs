//! Transactions that stay open over several commands: begun, looked at, committed, aborted.

use super::command::write_back;
use super::joint::OpenTransaction;
use super::open::{Half, find_open};
use super::report::Report;
use super::view::Datasets;
use crate::arguments::{TxBeginArguments, TxDiffArguments, TxNamedArguments};
use crate::commands::diff::{self, OpenFork};
use crate::control::protocol::TransactionRow;
use crate::error::{Error, Result};
use crate::output::Output;
use crate::target::Target;
use jiff::SignedDuration;
use marram_store::{DatasetName, Source};
use serde::Serialize;
use std::path::PathBuf;

/// Least and most seconds without anything done, after which one ends: a second, and a week.
const IDLE_SECONDS: std::ops::RangeInclusive<i64> = 1..=7 * 86_400;

#[derive(Serialize)]
struct Begun {
    id: String,
    /// Where its files are, for programs that are not run by `tx run --id`.
    directory: PathBuf,
    /// The same of the other datasets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    also: Vec<PathBuf>,
}

pub(super) fn begin(arguments: &TxBeginArguments, output: &Output) -> Result<()> {
    let idle_seconds = idle_seconds(&arguments.idle)?;
    let datasets = Datasets::find(&arguments.directory, &arguments.with)?;
    let OpenTransaction { id, places, .. } = OpenTransaction::begin(&datasets, Some(idle_seconds))?;
    let mut places = places.into_iter();
    let directory = places.next().ok_or_else(|| Error::failed("there is no view"))?;
    let begun = Begun { id, directory, also: places.collect() };
    output.print(&begun, || format!("{}\n", begun.id));
    Ok(())
}

fn idle_seconds(text: &str) -> Result<u64> {
    let wrong = || {
        Error::usage(format!("{text:?} is no time from a second to a week: use 90s, 30m, 1h or 2d"))
    };
    let seconds = match text.strip_suffix('d') {
        Some(days) => days.parse::<i64>().ok().and_then(|days| days.checked_mul(86_400)),
        None => text.parse::<SignedDuration>().ok().map(|time| time.as_secs()),
    };
    let seconds = seconds.filter(|seconds| IDLE_SECONDS.contains(seconds)).ok_or_else(wrong)?;
    u64::try_from(seconds).map_err(|_| wrong())
}

/// Commits; the status is that of a transaction of one command.
///
/// # Errors
/// No such transaction is open, in both of two pools; then nothing was done.
pub(super) fn commit(arguments: &TxNamedArguments, output: &Output) -> Result<u8> {
    let target = Target::find_also_inside(&arguments.target)?;
    let row = find_open(&target, &arguments.id)?;
    let halves = Half::all_to_commit(target, row)?;
    halves.iter().try_for_each(|half| write_back_all(&half.row))?;
    let open = OpenTransaction::of_halves(&halves)?;
    let id = open.id.clone();
    let outcome = match open.commit() {
        Ok(outcome) => outcome,
        Err(refusal) => {
            output.print_error(&refusal.error);
            return Ok(refusal.status);
        }
    };
    let mount = &arguments.target;
    Report { id: &id, outcome: &outcome, attempts: 1, mount }.print(output);
    Ok(outcome.status())
}

#[derive(Serialize)]
struct Aborted {
    id: String,
}

pub(super) fn abort(arguments: &TxNamedArguments, output: &Output) -> Result<()> {
    let target = Target::find_also_inside(&arguments.target)?;
    let row = find_open(&target, &arguments.id)?;
    let id = row.id.clone();
    let half = Half { target, row };
    // Without this half the other one is never committed.
    half.abort()?;
    half.abort_other()?;
    output.print(&Aborted { id }, String::new);
    Ok(())
}

pub(super) fn diff(arguments: &TxDiffArguments, output: &Output) -> Result<()> {
    let target = Target::find_also_inside(&arguments.named.target)?;
    let row = find_open(&target, &arguments.named.id)?;
    let halves = Half::all_of(target, row)?;
    let are_several = halves.len() > 1 || halves.iter().any(|half| !half.row.also.is_empty());
    let mut compared = Vec::new();
    for Half { target, row } in &halves {
        write_back_all(row)?;
        for (at, part) in row.parts().into_iter().enumerate() {
            let fork = Source::live(DatasetName::of_transaction_at(&row.id, at)?);
            let seen_in = are_several.then_some(part.directory);
            let (base, root) = (part.base.0.parse()?, part.base.1);
            compared.push(OpenFork { target, base, fork, root, seen_in });
        }
    }
    diff::of_forks(&compared, arguments.patch, output)
}

/// Has the kernel hand over what was written through mappings.
fn write_back_all(row: &TransactionRow) -> Result<()> {
    row.parts().iter().try_for_each(|part| write_back(&part.place))
}
