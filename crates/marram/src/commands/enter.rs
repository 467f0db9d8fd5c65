//! `marram enter`: a shell, or a command, in a fork that was kept, seen at the path that the
//! directory has now which was forked.

use super::fork::{fork_name, shelf_of, shown_at};
use super::session::{self, Session, Workspace};
use crate::arguments::EnterArguments;
use crate::commands::answers::unexpected;
use crate::control::daemons::Daemon;
use crate::control::protocol::{Answer, ForkPlace, Operation};
use crate::error::{Error, Result};
use crate::mountinfo;
use crate::names::{bytes, quoted, shell_word};
use crate::output::Output;
use crate::private_view::{Caught, Covered, Inherited, Refusal, View, check_program};
use crate::target::Target;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The shell where the environment names none.
const USUAL_SHELL: &str = "/bin/sh";

pub(super) fn run(arguments: &EnterArguments, output: &Output) -> u8 {
    session::exit_status(in_kept_fork(arguments, output), output)
}

fn in_kept_fork(arguments: &EnterArguments, output: &Output) -> std::result::Result<u8, Refusal> {
    let words = match arguments.command.is_empty() {
        true => vec![shell()],
        false => arguments.command.clone(),
    };
    check_program(&words[0])?;
    let workspace = find(arguments)?;
    output.refuse_untold(&workspace.view.place)?;
    let mut inherited = Inherited::of_this_process(&workspace.view.place)?;
    // A shell begins where it is of use.
    let place = &workspace.view.place;
    inherited.workdir.get_or_insert_with(|| place.clone());
    Session {
        workspace: &workspace,
        inherited: &inherited,
        words: &words,
        wishes: arguments.session,
        is_new: false,
        is_named: true,
    }
    .conduct(output, Caught::begin()?)
}

fn shell() -> OsString {
    std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or(USUAL_SHELL.into())
}

fn find(arguments: &EnterArguments) -> Result<Workspace> {
    let name = fork_name(&arguments.name)?.to_string();
    let target = match &arguments.of {
        Some(target) => Target::find(target)?,
        None => mounted_with(&name)?,
    };
    let unmounted = || {
        let pool = shell_word(&target.pool);
        Error::usage(format!("{pool} is not mounted here"))
            .hint("mount it, and name a path inside the mount")
    };
    let shelf = shelf_of(&target).ok_or_else(unmounted)?;
    let mount = target.directory.clone().ok_or_else(unmounted)?;
    let is_roots = target.daemon.as_ref().is_some_and(Daemon::is_roots);
    let shown = shown_at(&mount, is_roots, &name).ok_or_else(|| {
        Error::not_found(format!("no fork {name} below {}", shelf.display()))
            .hint(format!("`marram forks {}` shows what there is", shell_word(&mount)))
    })?;
    let found = match target.perform(&Operation::ForkPlace { fork: name.clone() })? {
        Answer::ForkPlace(place) => place,
        other => return Err(unexpected(&other)),
    };
    let place = path_of(&target, &found, shown.parent().unwrap_or(&shelf))
        .ok_or_else(|| gone(&name, &shown))?;
    let covered = Covered::at(&place)?;
    let (also, further) = (Vec::new(), Vec::new());
    let view = View { shown, place, mount, covered, also, further, brought: None };
    Ok(Workspace { target, fork: name, parent: found.parent, view })
}

/// The mount whose forks have one of that name.
fn mounted_with(name: &str) -> Result<Target> {
    let mut found: BTreeMap<PathBuf, Target> = BTreeMap::new();
    for entry in mountinfo::mounts()? {
        let is_whole = entry.is_marram() && entry.root == Path::new("/");
        let is_roots = entry.owner_uid() == Some(0);
        if is_whole && shown_at(&entry.directory, is_roots, name).is_some() {
            let target = Target::find(&entry.directory)?;
            found.entry(target.pool.clone()).or_insert(target);
        }
    }
    let several = found.len() > 1;
    match found.pop_first() {
        Some((_, target)) if !several => Ok(target),
        Some((pool, _)) => Err(Error::usage(format!("forks of several pools are named {name}"))
            .hint(format!("name one: --of {}", shell_word(&pool)))),
        None => Err(Error::not_found(format!("no fork {name} is in sight"))
            .hint("`marram forks TARGET` shows those of a pool, which has to be mounted")),
    }
}

/// Where a directory of a dataset is seen, if it is still there.
fn path_of(target: &Target, found: &ForkPlace, shelf: &Path) -> Option<PathBuf> {
    let path = bytes(found.path.as_deref()?, found.path_bytes.as_ref());
    let below = path.strip_prefix(b"/").unwrap_or(&path);
    let is_base = target.mounted.as_ref().is_some_and(|it| it.to_string() == found.parent);
    let root = match (is_base, &target.directory) {
        (true, Some(directory)) => directory.clone(),
        _ => shelf.join(&found.parent),
    };
    match below.is_empty() {
        true => Some(root),
        false => Some(root.join(OsStr::from_bytes(below))),
    }
}

fn gone(name: &str, shown: &Path) -> Error {
    let shown = OsString::from_vec(shown.as_os_str().as_bytes().to_vec());
    Error::not_found(format!("the directory that {name} is a fork of is gone"))
        .hint(format!("what the fork has is at {}", quoted(shown.as_bytes())))
}
