//! How a daemon gets into the background: the command starts this program again as a process of
//! its own, hands it the work on standard input, and reads one line when the mount answers.
//!
//! No fork without exec is needed, so no state of the command's threads can leak into the daemon,
//! and an error of the daemon's comes back whole, with its exit status.

use super::heaps;
use super::log::Log;
use super::serving::run;
use crate::control::protocol::{MountReport, MountRequest};
use crate::error::{Error, Result};
use crate::paths;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Largest hand-over that a daemon reads, in bytes.
const LAUNCH_BYTES_MAX: u64 = 16 << 20;
/// Longest name of a log, in bytes, without its ending.
const LOG_NAME_BYTES_MAX: usize = 200;

/// What a daemon is to serve.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    /// Path of the pool, or of the last of the streams.
    pub(crate) pool: PathBuf,
    /// Files with streams that are to be shown instead of a pool: a full one, and those that go on
    /// from it.
    #[serde(default)]
    pub(crate) streams: Vec<PathBuf>,
    /// The first mount.
    pub(crate) mount: MountRequest,
    /// Where to log; `None` leaves it to the daemon.
    pub(crate) log: Option<PathBuf>,
}

/// What a daemon says when its first mount answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// The daemon's process id.
    pub(crate) pid: i32,
    /// What it has mounted.
    pub(crate) mounts: Vec<MountReport>,
    /// What is known to be damaged, in a few lines.
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
}

/// Starts a daemon in the background, and returns when its mount answers.
///
/// # Errors
/// What kept it from mounting.
pub(crate) fn start(launch: &Launch) -> Result<Ready> {
    let failed = |error: std::io::Error| Error::failed(format!("cannot start the daemon: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = heaps::few(&mut Command::new(program))
        // Not under a helper's name, under which it would not be a daemon.
        .arg0("marram")
        .arg("daemon")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let text = serde_json::to_vec(launch).map_err(|error| failed(error.into()))?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(&text).map_err(failed)?;
    }
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(failed)?;
    }
    let outcome: Result<Ready> =
        serde_json::from_str(&line).unwrap_or_else(|_| Err(died(&mut child)));
    if outcome.is_err() {
        // It ends by itself; waiting keeps the device locked no longer than this command runs.
        let _its_status_is_known = child.wait();
    }
    outcome
}

fn died(child: &mut Child) -> Error {
    let how = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    Error::failed(format!("the daemon died before the mount answered ({how})"))
        .hint("its log may say why; `marram mount --foreground` shows it")
}

/// The daemon's side of [`start`].
///
/// # Errors
/// Only when it cannot answer its starter; all other errors go there or into the log.
pub(crate) fn serve() -> Result<()> {
    let failed = |error: std::io::Error| Error::failed(format!("the daemon's start: {error}"));
    let mut text = String::new();
    std::io::stdin().take(LAUNCH_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    let launch: Launch = serde_json::from_str(&text).map_err(|error| {
        Error::usage(format!("no work for a daemon: {error}"))
            .hint("daemons are started by `marram mount`")
    })?;
    let mut told = false;
    let outcome = prepare(&launch).and_then(|log| {
        run(&launch, log, |ready| {
            tell(&Ok(ready.clone()));
            told = true;
            detach_output();
        })
    });
    match outcome {
        Err(error) if !told => {
            tell(&Err(error));
            Ok(())
        }
        other => other,
    }
}

/// Leaves the starter's session, folder and terminal.
fn prepare(launch: &Launch) -> Result<Log> {
    let failed = |error: rustix::io::Errno| Error::failed(format!("the daemon's start: {error}"));
    // Refused when it leads a group already: then it has a session's independence anyway.
    let _leader_already = rustix::process::setsid();
    rustix::process::chdir("/").map_err(failed)?;
    let log = match &launch.log {
        Some(path) => Log::to_file(path)?,
        None => default_log(&launch.pool)?,
    };
    if let Some(file) = log.duplicate_file() {
        rustix::stdio::dup2_stderr(&file).map_err(failed)?;
    }
    Ok(log)
}

/// The log of the pool at `pool`. Users without a home (services, `mount(8)` for `nobody`) have it
/// beside their control sockets, and so has everybody whose folder of logs cannot be written to: no
/// mount fails for want of a place for its log.
fn default_log(pool: &Path) -> Result<Log> {
    let usual = || {
        let folder = paths::log_folder()?;
        let made = std::fs::create_dir_all(&folder);
        made.map_err(|error| Error::system("make the folder", &folder, error))?;
        Log::to_file(&folder.join(log_name(pool)))
    };
    usual().or_else(|_| {
        let folder = paths::control_folder();
        paths::make_control_folder(&folder)?;
        Log::to_file(&folder.join(log_name(pool)))
    })
}

/// A name for the log of the pool at `pool` that no other pool's log has: its path with dashes,
/// cut at the front if it is long.
fn log_name(pool: &Path) -> String {
    let flat = pool.to_string_lossy().trim_start_matches('/').replace('/', "-");
    let spare = flat.len().saturating_sub(LOG_NAME_BYTES_MAX);
    let start = (spare..=flat.len()).find(|at| flat.is_char_boundary(*at)).unwrap_or(0);
    format!("{}.log", &flat[start..])
}

fn tell(outcome: &Result<Ready>) {
    let mut line = serde_json::to_string(outcome).expect("paths came in as text");
    line.push('\n');
    // A starter that is gone has given up; the mount stands all the same.
    let _starter_may_be_gone = std::io::stdout().write_all(line.as_bytes());
    let _starter_may_be_gone = std::io::stdout().flush();
}

/// Lets go of the starter's pipes, so that nobody waits for their end.
fn detach_output() {
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _held_open_at_worst = rustix::stdio::dup2_stdin(&null);
        let _held_open_at_worst = rustix::stdio::dup2_stdout(&null);
    }
}

#[cfg(test)]
mod tests {
    use super::{LOG_NAME_BYTES_MAX, log_name};
    use std::path::Path;

    #[test]
    fn logs_of_pools_with_one_name_are_told_apart() {
        assert_eq!(log_name(Path::new("/srv/a/work.pool")), "srv-a-work.pool.log");
        let long = format!("/{}\u{e4}/x", "d".repeat(400));
        let name = log_name(Path::new(&long));
        assert!(name.len() <= LOG_NAME_BYTES_MAX + 4 && name.ends_with("-x.log"), "{name}");
    }
}
