//! What keeps versions in a repository, or sends them to a copy.

use super::{bytes_below, number};
use marram_lab::failure::{Failure, Result};
use marram_lab::process::{command, run, text};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A repository of borg, without encryption.
pub(super) struct Borg(PathBuf);

impl Borg {
    pub(super) fn begin(repository: &Path) -> Result<Borg> {
        let borg = Borg(repository.to_owned());
        run(borg.command(&["init", "--encryption", "none"]).arg(repository))?;
        Ok(borg)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut borg = command(&["borg"]);
        // What it keeps in a home is its own.
        borg.env("BORG_BASE_DIR", self.0.with_extension("base"));
        borg.args(words);
        borg
    }

    pub(super) fn take(&self, folder: &Path, name: &str) -> Result<()> {
        let archive = format!("{}::{name}", self.0.display());
        let mut create = self.command(&["create", "--compression", "zstd", &archive, "."]);
        run(create.current_dir(folder))
    }

    /// The bytes stored.
    pub(super) fn end(self) -> Result<u64> {
        run(self.command(&["compact"]).arg(&self.0))?;
        bytes_below(&self.0)
    }
}

/// A repository of restic.
pub(super) struct Restic(PathBuf);

impl Restic {
    pub(super) fn begin(repository: &Path) -> Result<Restic> {
        let restic = Restic(repository.to_owned());
        run(&mut restic.command(&["init", "--repository-version", "2"]))?;
        Ok(restic)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut restic = command(&["restic", "--no-cache", "--quiet"]);
        restic.env("RESTIC_PASSWORD", "versions").env("RESTIC_REPOSITORY", &self.0).args(words);
        restic
    }

    pub(super) fn take(&self, folder: &Path) -> Result<()> {
        run(self.command(&["backup", "."]).current_dir(folder))
    }

    /// The bytes stored.
    pub(super) fn end(self) -> Result<u64> {
        bytes_below(&self.0)
    }
}

/// A copy that rsync brings up to date.
pub(super) struct Rsync {
    copy: PathBuf,
    sent: u64,
}

impl Rsync {
    pub(super) fn begin(copy: &Path) -> Rsync {
        Rsync { copy: copy.to_owned(), sent: 0 }
    }

    /// The bytes that have gone both ways up to now.
    pub(super) fn take(&mut self, folder: &Path) -> Result<u64> {
        // Two processes, which send as if they were on two hosts.
        let words = ["rsync", "-a", "-z", "--no-whole-file", "--modify-window=-1", "--delete"];
        let mut rsync = command(&words);
        rsync.arg("--stats").arg(format!("{}/", folder.display())).arg(&self.copy);
        let said = text(&mut rsync)?;
        for total in ["Total bytes sent: ", "Total bytes received: "] {
            let line = said.lines().find_map(|line| line.strip_prefix(total));
            self.sent +=
                number(line.ok_or_else(|| Failure::new(format!("rsync does not say {total}")))?)?;
        }
        Ok(self.sent)
    }
}
