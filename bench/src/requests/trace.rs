//! The kernel's own trace of the requests to one mount.
//!
//! It has an instance of its own, so that nobody else's tracing is disturbed, and a filter on the
//! connection, so that other mounts are not counted.

use super::Counts;
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, run};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/kernel/tracing";
const EVENT: &str = "events/fuse/fuse_request_send";
/// Room for the requests of one work, for each processor.
const BUFFER_KB: &str = "32768";

/// A trace that is under way; dropped, it is gone.
pub(super) struct Trace {
    instance: PathBuf,
}

impl Trace {
    /// Begins to count the requests to the FUSE mount at `root`.
    pub(super) fn of_mount(root: &Path) -> Result<Self> {
        if !Path::new(ROOT).join("instances").is_dir() {
            run(&mut command(&["mount", "-t", "tracefs", "none", ROOT]))?;
        }
        let name = format!("marram-{}", std::process::id());
        let instance = Path::new(ROOT).join("instances").join(name);
        fs::create_dir(&instance).context(|| instance.display())?;
        let trace = Self { instance };
        trace.set("buffer_size_kb", BUFFER_KB)?;
        let connection = rustix::fs::minor(fs::metadata(root)?.dev());
        trace.set(&format!("{EVENT}/filter"), &format!("connection == {connection}"))?;
        trace.set(&format!("{EVENT}/enable"), "1")?;
        Ok(trace)
    }

    fn set(&self, file: &str, value: &str) -> Result<()> {
        fs::write(self.instance.join(file), value).context(|| file)
    }

    /// How many requests of each kind there were.
    pub(super) fn counts(self) -> Result<Counts> {
        self.set(&format!("{EVENT}/enable"), "0")?;
        let text = fs::read_to_string(self.instance.join("trace"))?;
        if lost(&text) {
            return fail("the trace was longer than its buffer");
        }
        Ok(count(&text))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.instance) {
            eprintln!("warning: {} stays: {error}", self.instance.display());
        }
    }
}

/// `# entries-in-buffer/entries-written: 5/9   #P:2`
fn lost(text: &str) -> bool {
    let line = text.lines().find_map(|line| line.split_once("entries-written: "));
    let words = line.and_then(|(_, rest)| rest.split_whitespace().next());
    words.and_then(|words| words.split_once('/')).is_some_and(|(kept, all)| kept != all)
}

/// `... fuse_request_send: connection 52 req 8 opcode 1 (FUSE_LOOKUP) len 47`
fn count(text: &str) -> Counts {
    let mut counts = Counts::new();
    let kinds = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once("fuse_request_send: ")?;
        let (_, rest) = rest.split_once('(')?;
        Some(rest.split_once(')')?.0.trim_start_matches("FUSE_"))
    });
    for kind in kinds {
        *counts.entry(kind.to_owned()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "# entries-in-buffer/entries-written: 2/2   #P:2\n#\n\
        tar-7 [000] ..... 1.0: fuse_request_send: connection 52 req 2 opcode 1 (FUSE_LOOKUP) \
        len 47\ntar-7 [001] ..... 1.1: fuse_request_send: connection 52 req 4 opcode 1 \
        (FUSE_LOOKUP) len 47\n";

    #[test]
    fn requests_are_counted_by_kind_and_a_cut_trace_is_known() {
        assert_eq!(count(TRACE), Counts::from([("LOOKUP".to_owned(), 2)]));
        assert!(!lost(TRACE));
        assert!(lost(&TRACE.replace("2/2", "2/900")));
    }
}
