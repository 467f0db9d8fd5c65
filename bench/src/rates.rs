//! The five rates of PostMark, as in table 5.1 of the thesis Kabi.
//!
//! PostMark counts whole seconds, which is too coarse for its default. So its output is read as it
//! comes, unbuffered, and the times between its phases are taken here; the rates are its own
//! otherwise. Of deletions it counts those of the whole run over the time of the whole run.

use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{OwnedChild, check_status, command, shown};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The names of the rates, and Kabi's beside ext4 and beside NFS in the thesis.
pub(super) const RATES: [(&str, f64, f64); 5] = [
    ("creation alone", 0.86, 1.22),
    ("creation among transactions", 0.67, 1.12),
    ("read", 0.57, 1.13),
    ("append", 0.70, 1.12),
    ("delete", 0.53, 1.00),
];

/// How long PostMark may take to end once it has reported.
const END_LIMIT: Duration = Duration::from_secs(30);

/// What PostMark is asked for; sizes of files are its default, 500 to 10,000 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Configuration {
    pub(super) files: u64,
    pub(super) transactions: u64,
}

impl Configuration {
    /// PostMark's own.
    pub(super) const DEFAULT: Self = Self { files: 500, transactions: 500 };

    fn script(self, folder: &Path) -> String {
        let Self { files, transactions } = self;
        let place = folder.display();
        format!(
            "set location {place}\nset number {files}\nset transactions {transactions}\n\
             set seed 42\nrun\nquit\n"
        )
    }
}

/// Operations a second, in the order of [`RATES`].
pub(super) type Rates = [f64; 5];

/// Runs it in `folder`, as the process that `place` makes of a command: where the folder is. The
/// script is a file that both reach.
pub(super) fn measure(
    configuration: Configuration,
    folder: &Path,
    script: &Path,
    place: impl Fn(&Command) -> Command,
) -> Result<Rates> {
    std::fs::write(script, configuration.script(folder))?;
    let mut postmark = command(&["stdbuf", "-o0", "postmark"]);
    let mut postmark = place(postmark.arg(script));
    let line = shown(&postmark);
    let mut child = OwnedChild::start(postmark.stdout(Stdio::piped()))?;
    let Some(output) = child.take_output() else { return fail("no output of PostMark") };
    let (said, phases) = listen(output)?;
    check_status(&line, child.wait(END_LIMIT)?)?;
    rates(&said, &phases, configuration)
        .context(|| format!("PostMark did not come to its end, and said:\n{said}"))
}

/// All that is said, and when each phase began and the last one ended.
fn listen(mut output: impl Read) -> Result<(String, Vec<Instant>)> {
    const BEGINNING: &str = "Creating files...";
    const ENDING: &str = "Done\n";
    let (mut said, mut moments) = (String::new(), Vec::new());
    let mut buffer = [0; 4096];
    loop {
        let length = output.read(&mut buffer)?;
        if length == 0 {
            return Ok((said, moments));
        }
        said.push_str(&String::from_utf8_lossy(&buffer[..length]));
        let passed = usize::from(said.contains(BEGINNING)) + said.matches(ENDING).count();
        moments.resize(passed.max(moments.len()), Instant::now());
    }
}

fn rates(said: &str, moments: &[Instant], configuration: Configuration) -> Result<Rates> {
    let count = |words: &str| -> Result<f64> {
        let line = said.lines().map(str::trim).find(|line| line.contains(words));
        let number = line.and_then(|line| line.split([' ', ':']).find_map(|w| w.parse().ok()));
        match number {
            Some(number) => Ok(number),
            None => fail(format!("no line has {words:?}")),
        }
    };
    let [begun, made, worked, removed] = moments[..] else {
        return fail(format!("{} moments of its phases, and not four", moments.len()));
    };
    let (created, deleted) = (count(" created (")?, count(" deleted (")?);
    if created < configuration.files as f64 || (created - deleted).abs() > 0.5 {
        return fail(format!("{created} files were made, and {deleted} removed"));
    }
    let seconds = |from: Instant, to: Instant| (to - from).as_secs_f64().max(1e-6);
    let transactions = seconds(made, worked);
    Ok([
        count("Creation alone:")? / seconds(begun, made),
        count("Mixed with transactions:")? / transactions,
        count(" read (")? / transactions,
        count(" appended (")? / transactions,
        deleted / seconds(begun, removed),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "PostMark v1.51 : 8/14/01\nCreating files...Done\n\
        Performing transactions..........Done\nDeleting files...Done\nTime:\n\
        \t1 seconds total\n\t1 seconds of transactions (50 per second)\n\nFiles:\n\
        \t72 created (72 per second)\n\t\tCreation alone: 50 files (50 per second)\n\
        \t\tMixed with transactions: 22 files (22 per second)\n\
        \t21 read (21 per second)\n\t29 appended (29 per second)\n\
        \t72 deleted (72 per second)\n\t\tDeletion alone: 44 files (44 per second)\n\
        \t\tMixed with transactions: 28 files (28 per second)\n";

    fn of(said: &str) -> Result<Rates> {
        let now = Instant::now();
        let moments = [0, 500, 1500, 2000].map(|time| now + Duration::from_millis(time));
        rates(said, &moments, Configuration { files: 50, transactions: 50 })
    }

    #[test]
    fn rates_are_those_of_postmark_over_times_taken_outside() {
        assert_eq!(of(SAID).expect("a whole report"), [100.0, 22.0, 21.0, 29.0, 36.0]);
        assert!(of(&SAID.replace("72 deleted", "70 deleted")).is_err());
        assert!(of("Error: cannot open file\n").is_err());
    }

    #[test]
    fn phases_are_seen_as_they_end() {
        let (said, moments) = listen(SAID.as_bytes()).expect("it is read");
        assert_eq!((said.as_str(), moments.len()), (SAID, 4));
    }
}
