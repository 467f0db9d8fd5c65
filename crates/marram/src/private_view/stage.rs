//! The process that becomes a command in a view: the hidden command `view`.
//!
//! It has one thread, and its memory is its own, so it can make namespaces without any care for
//! others, and needs no code between a fork and an exec. What keeps it from becoming the command is
//! written into the report, which its starter reads when it has ended.

use super::brought::Taken;
use super::inherited::{Reopened, reopen};
use super::sight::Waiting;
use super::{Covered, Refusal, program};
use crate::arguments::ViewArguments;
use crate::error::{Error, Result};
use crate::names::quoted;
use marram_fuse::Separation;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::process::{getegid, geteuid};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// What to do where the kernel lets nobody but root have mounts of their own.
const REFUSED_HINT: &str = "run it as root, or let users have user namespaces: the sysctls \
    kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, \
    kernel.apparmor_restrict_unprivileged_userns=0, as far as this system has them";

/// Makes the view and becomes the command. Returns only if that fails, with the exit status.
pub(crate) fn become_command(arguments: &ViewArguments) -> u8 {
    let report = std::fs::OpenOptions::new().write(true).open(&arguments.report);
    let waiting = Waiting::at(&arguments.made, &arguments.going);
    let refusal = match waiting.and_then(|waiting| prepare(arguments, waiting)) {
        Ok(()) => execute(arguments),
        Err(error) => Refusal::from(error),
    };
    let text = serde_json::to_vec(&refusal).unwrap_or_default();
    let told = report.and_then(|mut report| report.write_all(&text));
    if told.is_err() {
        crate::output::print_error("view", &refusal.error);
    }
    refusal.status
}

/// Makes the view, and enters and opens in it what lies in it.
fn prepare(arguments: &ViewArguments, waiting: Waiting) -> Result<()> {
    let ids = (geteuid().as_raw(), getegid().as_raw());
    let brought = Taken::of(arguments)?;
    let separation = marram_fuse::separate_mounts().map_err(|error| no_namespace(&error))?;
    if separation == Separation::UserNamespace {
        map_own(ids)?;
    }
    keep_private(&arguments.mount)?;
    brought.map_or(Ok(()), Taken::put)?;
    bind(arguments)?;
    waiting.meet();
    if let Some(workdir) = &arguments.workdir {
        std::env::set_current_dir(workdir)
            .map_err(|error| Error::system("enter", workdir, error))?;
    }
    let files: Option<Vec<Reopened>> =
        arguments.reopen.iter().map(|word| Reopened::parse(word)).collect();
    reopen(&files.ok_or_else(|| Error::usage("no open file is described so"))?)?;
    if arguments.output_to_error {
        rustix::stdio::dup2_stdout(rustix::stdio::stderr())
            .map_err(|error| Error::failed(format!("cannot lead the output: {error}")))?;
    }
    Ok(())
}

fn no_namespace(error: &io::Error) -> Error {
    Error::failed(format!("the kernel refuses a mount namespace: {error}")).hint(REFUSED_HINT)
}

/// Lets the user and group of this process be in its user namespace what they are outside.
fn map_own((user, group): (u32, u32)) -> Result<()> {
    let maps = [
        // Else the kernel lets nobody without privileges map a group.
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{user} {user} 1")),
        ("/proc/self/gid_map", format!("{group} {group} 1")),
    ];
    for (path, map) in maps {
        std::fs::write(path, map)
            .map_err(|error| Error::system("write", Path::new(path), error).hint(REFUSED_HINT))?;
    }
    Ok(())
}

/// Keeps what is mounted from here on from being seen outside; what is unmounted outside goes here
/// too.
fn keep_private(mount: &Path) -> Result<()> {
    let how = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    // In a changed root, `/` need not be a mount: then that of the view's file system counts.
    mount_change("/", how).or_else(|_| mount_change(mount, how)).map_err(|error| {
        Error::system("keep private the mount of", mount, error).hint(REFUSED_HINT)
    })
}

/// What is to be seen where, and what must lie there before.
type Wanted<'a> = (&'a Path, &'a Path, &'a str);

/// Lets the directories be seen at their places, and looks whether they are. Nothing is bound if
/// something else has come to one of the places.
fn bind(arguments: &ViewArguments) -> Result<()> {
    let first = (&*arguments.shown, &*arguments.place, arguments.covered.as_str());
    let places = arguments.also_place.iter().zip(&arguments.also_covered);
    let others = arguments.also_shown.iter().zip(places);
    let others = others.map(|(shown, (place, covered))| (&**shown, &**place, covered.as_str()));
    let all: Vec<Wanted<'_>> = std::iter::once(first).chain(others).collect();
    for (_, place, covered) in &all {
        if Covered::parse(covered) != Some(Covered::at(place)?) {
            let place = quoted(place.as_os_str().as_bytes());
            return Err(Error::failed(format!("{place} was moved or removed meanwhile")));
        }
    }
    all.into_iter().try_for_each(|(shown, place, _)| bind_one(shown, place))
}

fn bind_one(shown: &Path, place: &Path) -> Result<()> {
    let wanted = Covered::at(shown)?;
    mount_bind(shown, place).map_err(|error| {
        let failed = Error::system("show the view at", place, error);
        if error == rustix::io::Errno::PERM { failed.hint(REFUSED_HINT) } else { failed }
    })?;
    if Covered::at(place)? != wanted {
        let place = quoted(place.as_os_str().as_bytes());
        return Err(Error::failed(format!("something else was mounted at {place} meanwhile")));
    }
    Ok(())
}

/// Becomes the command; returns why not.
fn execute(arguments: &ViewArguments) -> Refusal {
    let Some((name, words)) = arguments.command.split_first() else {
        return Refusal::from(Error::usage("there is no command"));
    };
    let error = Command::new(name).args(words).exec();
    program::cannot_run(name, error)
}
