//! `marram tx run`: a command whose effect is one atomic, isolated step.
//!
//! The invariant: nothing is committed unless the command has exited with status 0 and none of its
//! processes is left.

use super::joint::OpenTransaction;
use super::open::{Half, connected, find_open};
use super::report::{Outcome, Report};
use super::view::{Dataset, Datasets};
use crate::arguments::TxRunArguments;
use crate::error::{Error, Result};
use crate::output::Output;
use crate::private_view::{
    Begun, Caught, End, Inherited, Leftovers, Refusal, begin, check_program,
};
use marram_client::control::pause;
use std::fs::File;
use std::path::{Path, PathBuf};

pub(super) fn run(arguments: &TxRunArguments, output: &Output) -> u8 {
    let ended = match &arguments.id {
        Some(id) => in_open(arguments, id, output),
        None => attempts(arguments, output),
    };
    ended.unwrap_or_else(|refusal| {
        output.print_error(&refusal.error);
        refusal.status
    })
}

/// Runs the command until its commit is not refused, or it was tried often enough.
fn attempts(arguments: &TxRunArguments, output: &Output) -> std::result::Result<u8, Refusal> {
    check_program(&arguments.command[0])?;
    let directory = arguments.directory.clone().unwrap_or_else(|| PathBuf::from("."));
    let mut attempts = 0;
    let mut caught = Caught::begin()?;
    loop {
        let datasets = Datasets::find(&directory, &arguments.with)?;
        output.refuse_untold(&datasets.first.mount)?;
        let inherited = datasets.inherited()?;
        let attempt = attempt(arguments, output, (&datasets, &inherited), caught)?;
        let Attempt { id, outcome, is_interrupted } = attempt;
        attempts += 1;
        inherited.move_to_ends();
        caught = Caught::begin()?;
        if matches!(outcome, Outcome::Refused(_)) && attempts <= arguments.retry {
            std::thread::sleep(pause(&id, attempts));
            if !is_interrupted && caught.interruption().is_none() {
                continue;
            }
        }
        let mount = &datasets.first.mount;
        Report { id: &id, outcome: &outcome, attempts, mount }.print(output);
        return Ok(outcome.status());
    }
}

/// Runs the command in a transaction that is open, and leaves that so.
fn in_open(
    arguments: &TxRunArguments,
    id: &str,
    output: &Output,
) -> std::result::Result<u8, Refusal> {
    check_program(&arguments.command[0])?;
    let caught = Caught::begin()?;
    let directory = arguments.directory.as_deref().unwrap_or(Path::new("."));
    let dataset = Dataset::find(directory)?;
    output.refuse_untold(&dataset.mount)?;
    let row = find_open(&dataset.target, id)?;
    let halves = Half::all_of(Dataset::find(directory)?.target, row.clone())?;
    let (client, mount) = (connected(&dataset.target)?, dataset.mount.clone());
    let datasets = Datasets::of_open(dataset, &halves)?;
    let inherited = datasets.inherited()?;
    let parts = halves.iter().flat_map(|half| half.row.parts());
    let places: Vec<PathBuf> = parts.map(|part| part.place).collect();
    let view = datasets.view(&client, &places)?;
    let command = Begun {
        view: &view,
        inherited: &inherited,
        words: &arguments.command,
        variables: &[("MARRAM_TRANSACTION", &row.id)],
        output_to_error: output.json,
    };
    let mut running = begin(command, caught)?;
    let end = running.wait()?;
    let survivors = running.settle(leftovers(arguments));
    let outcome = match survivors.is_empty() {
        true => Outcome::Failed(end),
        false => Outcome::Left(survivors),
    };
    if running.has_lost_view()? {
        return Err(lost_view().into());
    }
    if view.brought.is_some() {
        running.write_back()?;
    }
    inherited.move_to_ends();
    if let Outcome::Left(_) = outcome {
        Report { id: &row.id, outcome: &outcome, attempts: 1, mount: &mount }.print(output);
    }
    Ok(outcome.status())
}

fn leftovers(arguments: &TxRunArguments) -> Leftovers {
    match (arguments.wait, arguments.kill) {
        (true, _) => Leftovers::Wait,
        (_, true) => Leftovers::Kill,
        _ => Leftovers::Tell,
    }
}

/// What one attempt has come to.
struct Attempt {
    id: String,
    outcome: Outcome,
    /// A signal has come that means the end.
    is_interrupted: bool,
}

/// Runs the command once, in a transaction of its own.
fn attempt(
    arguments: &TxRunArguments,
    output: &Output,
    (datasets, inherited): (&Datasets, &Inherited),
    mut caught: Caught,
) -> std::result::Result<Attempt, Refusal> {
    let open = OpenTransaction::begin(datasets, None)?;
    let (id, places) = (open.id.clone(), open.places.clone());
    let view = datasets.view(open.client(), &places)?;
    let ended = |outcome| Attempt { id: id.clone(), outcome, is_interrupted: false };
    if let Some(signal) = caught.interruption() {
        open.abort();
        return Ok(ended(Outcome::Failed(End::Killed(signal))));
    }
    let command = Begun {
        view: &view,
        inherited,
        words: &arguments.command,
        variables: &[("MARRAM_TRANSACTION", &id)],
        output_to_error: output.json,
    };
    let mut running = begin(command, caught)?;
    let end = running.wait()?;
    if end.status() != 0 {
        open.abort();
        return Ok(ended(Outcome::Failed(end)));
    }
    let survivors = running.settle(leftovers(arguments));
    if !survivors.is_empty() {
        open.abort();
        return Ok(ended(Outcome::Left(survivors)));
    }
    if running.has_lost_view()? {
        open.abort();
        return Err(lost_view().into());
    }
    match view.brought {
        Some(_) => running.write_back()?,
        None => places.iter().try_for_each(|place| write_back(place))?,
    }
    let committed = ended(open.commit()?);
    Ok(Attempt { is_interrupted: running.is_interrupted(), ..committed })
}

fn lost_view() -> Error {
    Error::failed("the command has lost its view: nothing was committed")
        .hint("what it wrote afterwards by the paths of the dataset is there, as of any program")
}

/// Has the kernel hand over what was written through mappings.
///
/// # Errors
/// It cannot; the transaction is gone.
pub(super) fn write_back(place: &Path) -> Result<()> {
    let failed = |error: std::io::Error| Error::system("write back", place, error);
    let view = File::open(place).map_err(failed)?;
    rustix::fs::syncfs(view).map_err(|error| failed(error.into()))
}
