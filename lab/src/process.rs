//! Running other programs.
//!
//! Every failure names the command line, its exit status and the end of what it printed. A child
//! that runs beside us is owned: dropping its owner ends it, by its own process id.

use crate::failure::{Context, Failure, Result, fail};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// How much of a failed program's output goes into the failure.
const TAIL_LINES_MAX: usize = 25;

/// How long a child has to end after SIGTERM before it gets SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(20);

/// A command from its words.
pub fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command
}

/// The command line as a person would type it.
pub fn shown(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for word in command.get_args() {
        line.push(' ');
        line.push_str(&word.to_string_lossy());
    }
    line
}

/// Runs to the end, good or bad, with output kept.
pub fn ended(command: &mut Command) -> Result<Output> {
    let line = shown(command);
    command.output().context(|| format!("cannot start `{line}`"))
}

/// Runs to the end with output kept; a failure quotes the end of it.
pub fn output(command: &mut Command) -> Result<Output> {
    let line = shown(command);
    let output = ended(command)?;
    if output.status.success() {
        return Ok(output);
    }
    fail(format!("`{line}` failed ({}):\n{}", output.status, tail(&output)))
}

/// Runs quietly to the end.
pub fn run(command: &mut Command) -> Result<()> {
    output(command).map(|_| ())
}

/// What the program printed, without the last line end.
pub fn text(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// Runs with output going to ours.
pub fn run_shown(command: &mut Command) -> Result<()> {
    let line = shown(command);
    let status = command.status().context(|| format!("cannot start `{line}`"))?;
    check_status(&line, status)
}

/// Fails unless the program ended well.
pub fn check_status(line: &str, status: ExitStatus) -> Result<()> {
    if status.success() { Ok(()) } else { fail(format!("`{line}` failed ({status})")) }
}

/// Whether `program` can be found on the path (also in sbin, which a user's path may lack).
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin", "/sbin"])
        .any(|folder| std::path::Path::new(folder).join(program).is_file())
}

/// Fails with what to install unless every program is there.
pub fn require(programs: &[(&str, &str)]) -> Result<()> {
    for (program, package) in programs {
        if !is_installed(program) {
            return fail(format!("`{program}` is missing: apt-get install {package}"));
        }
    }
    Ok(())
}

/// The last lines of what the program printed.
pub fn tail(output: &Output) -> String {
    let mut all = String::from_utf8_lossy(&output.stdout).into_owned();
    all.push_str(&String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = all.lines().collect();
    let first = lines.len().saturating_sub(TAIL_LINES_MAX);
    lines[first..].join("\n")
}

/// A child that is ended when its owner goes.
pub struct OwnedChild {
    child: Child,
    line: String,
}

impl OwnedChild {
    /// Starts `command`.
    pub fn start(command: &mut Command) -> Result<Self> {
        let line = shown(command);
        let child = command.spawn().context(|| format!("cannot start `{line}`"))?;
        Ok(Self { child, line })
    }

    /// The child's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the child prints, if that was piped and nobody has taken it before.
    pub fn take_output(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// The exit status if the child has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) -> Result<()> {
        if self.ended()?.is_none() {
            self.child.kill()?;
        }
        self.child.wait()?;
        Ok(())
    }

    /// Waits for the end, at most `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if start.elapsed() > limit {
                let line = &self.line;
                return fail(format!("`{line}` did not end within {limit:?}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// SIGTERM, and after a while SIGKILL.
    fn terminate(&mut self) -> Result<()> {
        if self.ended()?.is_some() {
            return Ok(());
        }
        let id = i32::try_from(self.id()).map_err(|_| Failure::new("process id out of range"))?;
        if let Some(id) = rustix::process::Pid::from_raw(id) {
            rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        }
        if self.wait(TERM_GRACE).is_err() {
            self.kill()?;
        }
        Ok(())
    }
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        if let Err(failure) = self.terminate() {
            eprintln!("warning: cannot end `{}`: {failure}", self.line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_quotes_what_the_program_said() {
        let failure = run(&mut command(&["sh", "-c", "echo no such pool >&2; exit 3"]))
            .expect_err("exit 3 is a failure");
        let said = failure.to_string();
        assert!(said.contains("no such pool") && said.contains("exit status: 3"), "{said}");
    }

    #[test]
    fn an_owned_child_ends_with_its_owner() {
        let child = OwnedChild::start(&mut command(&["sleep", "600"])).expect("sleep starts");
        let place = format!("/proc/{}", child.id());
        assert!(std::path::Path::new(&place).exists());
        drop(child);
        assert!(!std::path::Path::new(&place).exists());
    }
}
