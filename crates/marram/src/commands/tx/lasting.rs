//! Transactions that stay open over several commands: begun, looked at, committed, aborted.

use super::command::write_back;
use super::find_open;
use super::joint::{begin_in_pool, commit as commit_by, connected};
use super::report::Report;
use super::view::{Datasets, Pools};
use crate::arguments::{TxBeginArguments, TxDiffArguments, TxNamedArguments};
use crate::commands::answers::unexpected;
use crate::commands::diff::{self, OpenFork};
use crate::control::protocol::{Answer, Request, TransactionRow};
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
    let datasets = Datasets::find(&arguments.directory, &arguments.with, Pools::One)?;
    let places: Vec<usize> = datasets.of_pools().concat();
    let (_client, begun) = begin_in_pool(&datasets, &places, (Some(idle_seconds), None))?;
    let also = begun.also.into_iter().map(|view| view.place).collect();
    let begun = Begun { id: begun.id, directory: begun.place, also };
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
/// No such transaction is open; then nothing was done.
pub(super) fn commit(arguments: &TxNamedArguments, output: &Output) -> Result<u8> {
    let target = Target::find_also_inside(&arguments.target)?;
    let row = find_open(&target, &arguments.id)?;
    write_back_all(&row)?;
    let client = connected(&target)?;
    let outcome = match commit_by(client, &row.id) {
        Ok(outcome) => outcome,
        Err(refusal) => {
            output.print_error(&refusal.error);
            return Ok(refusal.status);
        }
    };
    let mount = &arguments.target;
    Report { id: &row.id, outcome: &outcome, attempts: 1, mount }.print(output);
    Ok(outcome.status())
}

#[derive(Serialize)]
struct Aborted {
    id: String,
}

pub(super) fn abort(arguments: &TxNamedArguments, output: &Output) -> Result<()> {
    let target = Target::find_also_inside(&arguments.target)?;
    let id = find_open(&target, &arguments.id)?.id;
    match connected(&target)?.ask(&Request::Abort(id.clone()))? {
        Answer::Done => output.print(&Aborted { id }, String::new),
        other => return Err(unexpected(&other)),
    }
    Ok(())
}

pub(super) fn diff(arguments: &TxDiffArguments, output: &Output) -> Result<()> {
    let target = Target::find_also_inside(&arguments.named.target)?;
    let row = find_open(&target, &arguments.named.id)?;
    write_back_all(&row)?;
    let (parts, mut compared) = (row.parts(), Vec::new());
    for (at, part) in parts.iter().enumerate() {
        let fork = Source::live(DatasetName::of_transaction_at(&row.id, at)?);
        let seen_in = (parts.len() > 1).then(|| part.directory.clone());
        let (base, root) = (part.base.0.parse()?, part.base.1);
        compared.push(OpenFork { base, fork, root, seen_in });
    }
    diff::of_forks(&target, &compared, arguments.patch, output)
}

/// Has the kernel hand over what was written through mappings.
fn write_back_all(row: &TransactionRow) -> Result<()> {
    row.parts().iter().try_for_each(|part| write_back(&part.place))
}
