//! The commands, one file each; what they share is in [`crate::target`] and [`crate::output`].

mod allow;
mod answers;
mod bench;
pub(crate) mod check;
mod clients;
pub(crate) mod completion;
mod create;
mod dedup;
mod defragment;
mod destroy;
mod diff;
mod differences;
mod doctor;
mod enter;
mod extents;
mod fork;
mod generated;
mod grow;
mod hold;
pub(crate) mod install;
mod label;
mod list;
mod merge;
pub(crate) mod mount;
mod mount_elsewhere;
mod pass;
mod property;
mod quickstart;
mod quota;
mod range;
mod reflink;
mod rename;
mod rollback;
mod run;
mod selection;
mod session;
mod sight;
mod snapshot;
mod space;
mod status;
mod stream;
mod sync;
mod tx;
mod undo;
pub(crate) mod unmount;
mod versions;
pub(crate) mod wrong_usage;

use crate::arguments::Command;
use crate::control::protocol::VERSION;
use crate::daemon;
use crate::error::Result;
use crate::output::Output;
use crate::private_view;
use serde::Serialize;

/// Runs a command; returns its exit status.
///
/// # Errors
/// Whatever kept it from doing what was asked.
pub(crate) fn run(command: Command, output: &Output) -> Result<u8> {
    match command {
        Command::Create(arguments) => create::run(&arguments, output),
        Command::Mount(arguments) => mount::run(&arguments, output),
        Command::Unmount(arguments) => unmount::run(&arguments, output),
        Command::Status(arguments) => return status::run(&arguments, output),
        Command::List(arguments) => return list::run(&arguments, output),
        Command::Snapshot(arguments) => snapshot::run(&arguments, output),
        Command::Space(arguments) => space::run(&arguments, output),
        Command::Clone(arguments) => snapshot::run_clone(&arguments, output),
        Command::Fork(arguments) => fork::run(&arguments, output),
        Command::Run(arguments) => return Ok(run::run(&arguments, output)),
        Command::Tx(arguments) => return tx::run(&arguments.kind, output),
        Command::Enter(arguments) => return Ok(enter::run(&arguments, output)),
        Command::Forks(arguments) => fork::list(&arguments, output),
        Command::Diff(arguments) => return diff::run(&arguments, output),
        Command::Merge(arguments) => return merge::run(&arguments, output),
        Command::Update(arguments) => return merge::update(&arguments, output),
        Command::Rollback(arguments) => rollback::run(&arguments, output),
        Command::Versions(arguments) => versions::run(&arguments, output),
        Command::Send(arguments) => stream::send(&arguments, output),
        Command::Receive(arguments) => stream::receive(&arguments, output),
        Command::Log(arguments) => undo::log(&arguments, output),
        Command::Undo(arguments) => undo::undo(&arguments, output),
        Command::Rename(arguments) => rename::rename(&arguments, output),
        Command::Promote(arguments) => rename::promote(&arguments, output),
        Command::Hold(arguments) => hold::hold(&arguments, output),
        Command::Release(arguments) => hold::release(&arguments, output),
        Command::Destroy(arguments) => destroy::run(&arguments.kind, output),
        Command::Get(arguments) => property::get(&arguments, output),
        Command::Set(arguments) => property::set(&arguments, output),
        Command::Allow(arguments) => allow::allow(&arguments, output),
        Command::Disallow(arguments) => allow::disallow(&arguments, output),
        Command::Quota(arguments) => quota::run(&arguments, output),
        Command::Range(arguments) => range::run(&arguments.kind, output),
        Command::Reflink(arguments) => reflink::run(&arguments, output),
        Command::Dedup(arguments) => dedup::run(&arguments, output),
        Command::Defragment(arguments) => defragment::run(&arguments, output),
        Command::Extents(arguments) => extents::run(&arguments, output),
        Command::Check(arguments) => return check::run(&arguments, output),
        Command::Grow(arguments) => grow::run(&arguments, output),
        Command::Label(arguments) => label::run(&arguments, output),
        Command::Sync(arguments) => sync::run(&arguments, output),
        Command::Clients(arguments) => clients::run(&arguments, output),
        Command::Expel(arguments) => clients::expel(&arguments, output),
        Command::Quickstart(arguments) => quickstart::run(&arguments, output),
        Command::Doctor => return doctor::run(output),
        Command::Bench(arguments) => bench::run(&arguments, output),
        Command::Completions { shell } => generated::completions(shell, output),
        Command::Manual { folder } => generated::manual(&folder, output),
        Command::Install(arguments) => install::run(&arguments, output),
        Command::Uninstall(arguments) => install::remove(&arguments, output),
        Command::Version => version(output),
        Command::Daemon => daemon::launch::serve(),
        Command::View(arguments) => return Ok(private_view::become_command(&arguments)),
    }?;
    Ok(0)
}

fn version(output: &Output) -> Result<()> {
    #[derive(Serialize)]
    struct Version {
        marram: &'static str,
    }
    output.print(&Version { marram: VERSION }, || format!("marram {VERSION}\n"));
    Ok(())
}
