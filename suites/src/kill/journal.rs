//! What was acknowledged to a load as durable, kept outside of the mount.

use marram_lab::failure::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A text file on the host, a line for each acknowledgement. The host does not crash, so nothing
/// here is synced.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// A new, empty one.
    pub(super) fn make(path: PathBuf) -> Result<Self> {
        let file = File::options().create_new(true).append(true).open(&path)?;
        Ok(Self { path, file })
    }

    /// Where it is, for a program that writes it itself.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds what was acknowledged just now.
    pub(super) fn note(&self, acknowledged: &str) -> Result<()> {
        Ok((&self.file).write_all(format!("{acknowledged}\n").as_bytes())?)
    }

    /// All whole lines: a program that was killed may have begun another.
    pub(super) fn lines(&self) -> Result<Vec<String>> {
        let text = std::fs::read_to_string(&self.path)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        Ok(whole.lines().map(str::to_owned).collect())
    }

    /// The number in the last whole line; 0 where there is none.
    pub(super) fn last_number(&self) -> Result<u64> {
        let lines = self.lines()?;
        let Some(last) = lines.last() else { return Ok(0) };
        last.parse().context(|| format!("{last} in {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_only_begun_is_not_acknowledged() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = Journal::make(folder.path().join("journal")).expect("a journal");
        assert_eq!(journal.last_number().expect("no line"), 0);
        journal.note("41").expect("written");
        (&journal.file).write_all(b"4").expect("written");
        assert_eq!(journal.last_number().expect("a line"), 41);
        assert_eq!(journal.lines().expect("a line"), ["41"]);
    }
}
