//! fio: files of random blocks with a checksum in each, written with `fsync` again and again.

use super::{Load, Place, names};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, require, run};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many of the last acknowledged files are verified.
const VERIFIED_MAX: usize = 4;

/// File after file.
pub(super) struct VerifiedFiles;

impl VerifiedFiles {
    /// Needs fio.
    pub(super) fn new() -> Result<Self> {
        require(&[("fio", "fio")])?;
        Ok(Self)
    }
}

impl Load for VerifiedFiles {
    fn name(&self) -> &'static str {
        "fio"
    }

    fn work(&self, place: &Place, is_over: &AtomicBool) -> Result<()> {
        for number in 1_u64.. {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            let name = file_name(number);
            run(job(&place.folder, &name, place.seed ^ number).args(["--do_verify=0"]))?;
            super::sync_folder(&place.folder)?;
            place.journal.note(&number.to_string())?;
        }
        Ok(())
    }

    /// The acknowledged files are whole; beside them is at most the one that was being written.
    fn judge(&self, place: &Place) -> Result<String> {
        let acknowledged = place.journal.last_number()?;
        let there = names(&place.folder)?;
        let survived = there.len() as u64;
        let in_order = there.iter().zip(1..).all(|(name, number)| *name == file_name(number));
        if !in_order || survived < acknowledged || survived > acknowledged + 1 {
            return fail(format!("{acknowledged} files were acknowledged, there are {there:?}"));
        }
        for number in (1..=acknowledged).rev().take(VERIFIED_MAX) {
            let name = file_name(number);
            run(job(&place.folder, &name, place.seed ^ number).arg("--verify_only"))
                .context(|| format!("{name}, of {acknowledged} acknowledged"))?;
        }
        Ok(format!("{survived} files, {acknowledged} acknowledged"))
    }
}

fn file_name(number: u64) -> String {
    format!("blocks-{number:06}")
}

fn job(folder: &Path, name: &str, seed: u64) -> Command {
    let mut fio = command(&["fio", "--rw=randwrite", "--bs=4k", "--size=1M", "--fsync=16"]);
    fio.args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--end_fsync=1"]);
    fio.args(["--output-format=terse", "--thread", "--name=blocks"]).current_dir(folder);
    fio.arg(format!("--filename={name}")).arg(format!("--randseed={}", seed >> 1));
    fio
}
