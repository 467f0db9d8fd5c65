//! A daemon from its first mount to its last.

use super::launch::{Launch, Ready};
use super::log::Log;
use super::mounts::mount;
use super::service::Shared;
use super::state::{Closed, Daemon};
use super::{background, image, transactions, two_pools};
use crate::control::protocol::VERSION;
use crate::control::server::{ControlSocket, clear_abandoned};
use crate::engine::source::{Asked, CACHE_BYTES_DEFAULT, Pace};
use crate::engine::{self, OpenMode};
use crate::error::{Error, Result};
use crate::paths;
use crate::process::own_pid;
use std::sync::Arc;

/// Most damage that the first mount reports, of what is in no file.
const WARNINGS_MAX: usize = 3;

/// Serves what `launch` says until the last mount is gone. Calls `ready` once the first mount
/// answers.
///
/// # Errors
/// When the pool cannot be opened or mounted (then `ready` was not called), or when something
/// could not be made durable at the end.
pub(crate) fn run(launch: &Launch, log: Log, ready: impl FnOnce(&Ready)) -> Result<()> {
    // A daemon that writes back for others must not wait for memory that waits for it.
    let _best_effort = rustix::process::configure_io_flusher_behavior(true);
    allow_many_open_files();
    let signals = background::Signals::catch()?;
    if !launch.streams.is_empty() {
        return image::run(launch, log, signals, ready);
    }
    let daemon = Arc::new(open(launch, log)?);
    let log = |line: &str| daemon.log.write(line);
    daemon.home.clear_left(&log);
    transactions::clear_places(&daemon);
    let close = |_: &Error| {
        let _first_error_counts = daemon.close_for_good();
    };
    let socket = serve_control(&daemon).inspect_err(close)?;
    two_pools::settle(&daemon);
    background::start(&daemon, signals).inspect_err(close)?;
    let mounted = mount(&daemon, &launch.mount);
    if mounted.is_ok() {
        announce(&daemon, ready);
        daemon.home.settle(&log);
        daemon.mounts.wait_until_empty();
    }
    daemon.mounts.shut();
    let closed = daemon.close_for_good();
    // First the name goes, then the lock: the next daemon makes a socket of the same name.
    let conversations = socket.withdraw();
    daemon.home.unlock();
    conversations.drain();
    match &closed {
        Ok(Closed::AsItWas) => daemon.log.write("left the pool as it was when it was shut down"),
        Ok(Closed::Durable) => daemon.log.write("closed the pool: everything is durable"),
        Err(error) => daemon.log.write(&format!("closing failed: {error}")),
    }
    mounted.and(closed.map(|_how| ()))
}

/// Each lane of a mount is an open file, and so is each caller of the control socket. The usual
/// soft limit is meant for programs that use `select`.
fn allow_many_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _fewer_lanes = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// The daemon of the home that `launch` names.
///
/// # Errors
/// It cannot be opened.
pub(super) fn open(launch: &Launch, log: Log) -> Result<Daemon> {
    let mode = mode(launch);
    Ok(Daemon::new(engine::open(&launch.pool, &mode)?, mode, log))
}

fn mode(launch: &Launch) -> OpenMode {
    let options = &launch.mount.options;
    let usual = Pace::default();
    OpenMode {
        read_only: options.read_only,
        skip_log: options.no_recovery,
        cache_bytes: options.cache_bytes.unwrap_or(CACHE_BYTES_DEFAULT),
        pace: Pace {
            commit_seconds: options.commit_seconds.unwrap_or(usual.commit_seconds),
            rewriting_seconds: options.defragment_seconds.unwrap_or(usual.rewriting_seconds),
        },
        asked: Asked {
            cache: options.cache_bytes.is_some(),
            commit: options.commit_seconds.is_some(),
            defragment: options.defragment_seconds.is_some_and(|seconds| seconds > 0),
        },
        consistency: options.consistency,
        offset_bytes: options.offset_bytes,
        fakeroot: options.fakeroot,
        casefold: options.casefold,
        durable: options.durable,
    }
}

fn serve_control(daemon: &Arc<Daemon>) -> Result<ControlSocket> {
    let folder = paths::control_folder();
    paths::make_control_folder(&folder)?;
    clear_abandoned(&folder);
    let path = folder.join(format!("{}.sock", daemon.id));
    ControlSocket::serve(&path, Arc::new(Shared(Arc::clone(daemon))))
}

/// What is known to be damaged: in files how much, and else what.
fn known_damage(daemon: &Daemon) -> Vec<String> {
    let damage = daemon.home.known_damage();
    let of_files = damage.iter().filter(|row| row.inode.is_some()).count();
    let others = damage.iter().filter(|row| row.inode.is_none()).take(WARNINGS_MAX);
    let mut lines: Vec<String> = others.map(|row| row.reason.clone()).collect();
    if of_files > 0 {
        lines.push(format!("damaged places in files are known: {of_files}"));
    }
    lines
}

fn announce(daemon: &Daemon, ready: impl FnOnce(&Ready)) {
    let reports = daemon.mounts.reports();
    for mount in &reports {
        daemon.log.write(&format!(
            "marram {VERSION}: mounted {} of {} at {}",
            mount.source,
            daemon.home.path().display(),
            mount.directory.display()
        ));
    }
    let warnings = known_damage(daemon);
    warnings.iter().for_each(|line| daemon.log.write(line));
    ready(&Ready { pid: own_pid(), mounts: reports, warnings });
}
