//! A bound for what CI waits for.
//!
//! What waits for ever would end with the machine's own limit, and say nothing. Here it ends with
//! the programs that were running, and the threads of each: those of a test binary bear the names
//! of its tests.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How many threads of a program are named.
const THREADS_MAX: usize = 40;

/// Ends this process and what it has started if it is not dropped in time.
pub(crate) struct Watchdog {
    /// Closed by dropping.
    _alive: Sender<()>,
}

impl Watchdog {
    /// Begins to count `limit` for `what`.
    pub(crate) fn over(what: &str, limit: Duration) -> Watchdog {
        let (alive, watched) = channel();
        let what = what.to_owned();
        std::thread::spawn(move || watch(&what, limit, &watched));
        Watchdog { _alive: alive }
    }
}

fn watch(what: &str, limit: Duration, watched: &Receiver<()>) {
    if watched.recv_timeout(limit) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    println!("{what}: FAILED: not done after {} s; still running:", limit.as_secs());
    let running = started_by(std::process::id());
    for program in &running {
        println!("  {program}: {}", command_line(*program));
        for thread in threads(*program).iter().take(THREADS_MAX) {
            println!("    {thread}");
        }
    }
    for program in running.iter().filter_map(|id| i32::try_from(*id).ok()) {
        let program = rustix::process::Pid::from_raw(program);
        let killed =
            program.map(|id| rustix::process::kill_process(id, rustix::process::Signal::KILL));
        if let Some(Err(error)) = killed {
            println!("  cannot end {program:?}: {error}");
        }
    }
    println!("ci: 0 passed, 1 failed");
    std::process::exit(1);
}

/// All programs that `process` and those below it have started and that still run.
fn started_by(process: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|id| Some((id, parent(id)?)))
        .collect();
    let mut found = vec![process];
    let mut known = HashSet::from([process]);
    let mut next = 0;
    while let Some(above) = found.get(next).copied() {
        next += 1;
        found.extend(
            parents.iter().filter(|(id, of)| *of == above && known.insert(*id)).map(|(id, _)| *id),
        );
    }
    found.split_off(1)
}

/// The parent, which stands two words behind the name in brackets.
fn parent(process: u32) -> Option<u32> {
    let line = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    line.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn command_line(process: u32) -> String {
    let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ")
}

/// The name of each thread, and what of the kernel it waits in.
fn threads(process: u32) -> Vec<String> {
    let read = |thread: &Path, name: &str| {
        fs::read_to_string(thread.join(name)).unwrap_or_default().trim_end().to_owned()
    };
    fs::read_dir(format!("/proc/{process}/task"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|thread| {
            format!("{} in {}", read(&thread.path(), "comm"), read(&thread.path(), "wchan"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{command_line, started_by, threads};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn what_a_program_has_started_is_found_by_its_parent() {
        let shell = Command::new("sh")
            .args(["-c", "sleep 60 & echo started; wait"])
            .stdout(Stdio::piped())
            .spawn();
        let mut shell = shell.expect("a shell");
        let mut line = String::new();
        let output = shell.stdout.take().expect("its output");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line)
            .expect("a line");
        // The child has the shell's own command line until it is what it will be.
        let began = Instant::now();
        let below = loop {
            let below = started_by(shell.id());
            if below.iter().any(|id| command_line(*id).starts_with("sleep 60")) {
                break below;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{below:?}");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(started_by(std::process::id()).contains(&shell.id()));
        assert!(threads(shell.id()).iter().any(|thread| thread.starts_with("sh in ")));
        for id in below.into_iter().chain([shell.id()]) {
            let id = rustix::process::Pid::from_raw(i32::try_from(id).expect("a number"));
            rustix::process::kill_process(id.expect("an id"), rustix::process::Signal::KILL)
                .expect("ended");
        }
        shell.wait().expect("its end");
    }
}
