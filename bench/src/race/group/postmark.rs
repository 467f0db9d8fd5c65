//! PostMark: the mail server of the papers, in their three configurations.

use super::super::line::{Ending, Line};
use super::super::stage::Stage;
use marram_lab::failure::{Result, fail};
use marram_lab::process::{command, require, text};
use std::path::Path;

/// One configuration.
struct Configuration {
    key: &'static str,
    files: u64,
    transactions: u64,
    /// Sizes of the files, in bytes.
    least_bytes: u64,
    most_bytes: u64,
}

/// Its own default, and those of the papers.
const CONFIGURATIONS: [Configuration; 3] = [
    Configuration {
        key: "default",
        files: 500,
        transactions: 500,
        least_bytes: 500,
        most_bytes: 10_000,
    },
    Configuration {
        key: "to_4_mb",
        files: 500,
        transactions: 500,
        least_bytes: 500,
        most_bytes: 4_000_000,
    },
    Configuration {
        key: "to_16_mb",
        files: 500,
        transactions: 500,
        least_bytes: 512,
        most_bytes: 16_000_000,
    },
];

/// In the short form the large configurations have fewer files.
const QUICK_DIVISOR: u64 = 25;

pub(super) fn run_all(stage: &mut Stage<'_>) -> Result<()> {
    require(&[("postmark", "postmark")])?;
    CONFIGURATIONS.iter().try_for_each(|configuration| one(stage, configuration, configuration.key))
}

/// The one that the thesis on Featherstitch has.
pub(super) fn of_the_thesis(stage: &mut Stage<'_>) -> Result<()> {
    one(stage, &CONFIGURATIONS[1], "postmark")
}

fn one(stage: &mut Stage<'_>, configuration: &Configuration, key: &str) -> Result<()> {
    let is_large = configuration.most_bytes > 1_000_000;
    let divisor = if stage.is_quick() && is_large { QUICK_DIVISOR } else { 1 };
    let (files, transactions) =
        (configuration.files / divisor, configuration.transactions / divisor);
    let (least, most) = (configuration.least_bytes, configuration.most_bytes);
    let folder = stage.folder(key)?;
    let script = stage.host().join(key);
    std::fs::write(&script, commands(&folder, (files, transactions), (least, most)))?;
    let title =
        format!("PostMark: {files} files of {least} to {most} bytes, {transactions} changes");
    stage.time(Line::seconds(key, title, Ending::Syncfs), || {
        let said = text(command(&["postmark"]).arg(&script))?;
        judge(&said, files)
    })
}

fn commands(folder: &Path, (files, transactions): (u64, u64), (least, most): (u64, u64)) -> String {
    format!(
        "set location {}\nset number {files}\nset transactions {transactions}\n\
         set size {least} {most}\nset seed 42\nrun\nquit\n",
        folder.display()
    )
}

/// It ends with status 0 whatever happens, so what it says must be looked at: all files were made,
/// and as many were deleted.
fn judge(said: &str, files: u64) -> Result<()> {
    let count = |word: &str| {
        let line = said.lines().map(str::trim).find(|line| line.contains(word))?;
        line.split(' ').next()?.parse::<u64>().ok()
    };
    match (count(" created ("), count(" deleted (")) {
        (Some(created), Some(deleted)) if created >= files && created == deleted => Ok(()),
        _ => fail(format!("PostMark did not come to its end:\n{said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "PostMark v1.51 : 8/14/01\nCreating files...Done\n\
        Performing transactions..........Done\nDeleting files...Done\nTime:\n\
        \t1 seconds total\n\t1 seconds of transactions (50 per second)\n\nFiles:\n\
        \t72 created (72 per second)\n\t\tCreation alone: 50 files (50 per second)\n\
        \t21 read (21 per second)\n\t29 appended (29 per second)\n\
        \t72 deleted (72 per second)\n\t\tDeletion alone: 44 files (44 per second)\n";

    #[test]
    fn a_run_that_deletes_what_it_made_is_good_and_any_other_is_not() {
        judge(SAID, 50).expect("all of it was done");
        assert!(judge(SAID, 100).is_err());
        assert!(judge(&SAID.replace("72 deleted", "70 deleted"), 50).is_err());
        assert!(judge("Error: cannot open file\n", 50).is_err());
    }
}
