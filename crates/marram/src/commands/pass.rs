//! What the commands share that make a pass over the files below some directories: where it is
//! made, and what is said of what was left alone.

use crate::arguments::PassArguments;
use crate::commands::answers::write_back;
use crate::control::protocol::{Answer, PassDirectory, PassEnd, PassOrder, Request};
use crate::engine::OpenMode;
use crate::engine::home::{Pass, lacks};
use crate::error::{Error, Result};
use crate::names::{bytes, quoted};
use crate::output::{Output, Progress, say};
use crate::target::Target;
use marram_store::Source;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Has a pass made, by the daemon that has the pool or, if none has, on the pool itself.
///
/// # Errors
/// A directory is none, or they are in several pools; whatever refuses it or fails.
pub(super) fn make(
    arguments: &PassArguments,
    request: fn(PassOrder) -> Request,
    pass: Pass,
    output: &Output,
) -> Result<Answer> {
    let what = match pass {
        Pass::Dedup => "looking for equal content",
        Pass::Defragment => "looking for crumbs",
    };
    let _progress = Progress::begin(output, what);
    let (target, places) = places_of(arguments)?;
    let order = PassOrder { places, dry_run: arguments.dry_run };
    if let Some(client) = target.connect()? {
        return client.ask(&request(order));
    }
    let home = target.open(&OpenMode::for_command(order.dry_run))?;
    let passes = home.passes().ok_or_else(|| lacks(&*home, "passes over files"))?;
    let answer = passes.pass(pass, &order, None);
    home.close()?;
    answer
}

/// The pool that directories are in, and what they are there.
fn places_of(arguments: &PassArguments) -> Result<(Target, Vec<PassDirectory>)> {
    let mut found: Option<Target> = None;
    let mut places = Vec::new();
    for path in &arguments.directories {
        let target = Target::find(path)?;
        if found.as_ref().is_some_and(|first| first.pool != target.pool) {
            return Err(Error::usage(format!("{} is in another pool", path.display()))
                .hint("one command works in one pool: name directories of one at a time"));
        }
        write_back(&target, path)?;
        places.push(place(&target, path, arguments.dataset.as_deref())?);
        found = Some(target);
    }
    let target = found.ok_or_else(|| Error::usage("name a directory below a mount, or a pool"))?;
    Ok((target, places))
}

fn place(target: &Target, path: &Path, dataset: Option<&str>) -> Result<PassDirectory> {
    if target.ino == Some(0) {
        return Err(Error::usage(format!("{} is no directory", path.display())));
    }
    let own = match &target.mounted {
        Some(mounted) => mounted.clone(),
        None => Source::live(target.dataset(None)?),
    };
    match dataset {
        Some(name) if name != own.to_string() => {
            Ok(PassDirectory { source: Source::live(name.parse()?).to_string(), directory: None })
        }
        _ => Ok(PassDirectory { source: own.to_string(), directory: target.ino }),
    }
}

/// Says what was left alone.
pub(super) fn say_left_alone(arguments: &PassArguments, end: &PassEnd) {
    for row in &end.told {
        let directory = arguments.directories.get(row.place).map_or(Path::new(""), |it| it);
        let path = directory.join(OsStr::from_bytes(&bytes(&row.path, row.path_bytes.as_ref())));
        let path = quoted(path.as_os_str().as_bytes());
        say(&format!("left alone: {path}: {}", row.reason));
    }
}

/// Bytes that came back; none if the space has shrunk.
pub(super) fn given_back(end: &PassEnd) -> u64 {
    u64::try_from(end.freed_bytes).unwrap_or(0)
}

/// The exit status too says that something was not looked at. `done` says what stays done.
///
/// # Errors
/// Not everything was looked at.
pub(super) fn judge_end(end: &PassEnd, done: &str) -> Result<()> {
    if let Some(failure) = &end.failure {
        return Err(Error::partial(format!("not everything was looked at: {failure}"))
            .hint(format!("what has been {done} stays so; run it again when that is mended")));
    }
    if end.is_interrupted {
        return Err(Error::partial("not everything was looked at: a directory was unmounted"));
    }
    Ok(())
}

/// The exit status too says that something was left alone; `things` says what that was.
///
/// # Errors
/// Something was.
pub(super) fn judge_skipped(end: &PassEnd, things: &str) -> Result<()> {
    match end.skipped {
        0 => Ok(()),
        skipped => Err(Error::partial(format!("{skipped} {things} were left alone"))),
    }
}
