//! `fsck.marram [-napyfvVMTRC] DEVICE`, as `fsck(8)` calls it. Exit status: 0 clean, 4 errors are
//! there, 8 it could not be checked, 16 wrong usage. A pool needs no repair after a crash, so
//! nothing is ever changed.

use super::words::texts;
use crate::commands::check::verify;
use crate::engine;
use crate::error::{Error, Result};
use crate::names::printable;
use crate::output::{print_error, write_out};
use marram_check::{CheckOptions, Finding, Severity};
use std::ffi::OsString;
use std::path::Path;

const STATUS_DAMAGED: u8 = 4;
const STATUS_FAILED: u8 = 8;
const STATUS_USAGE: u8 = 16;

/// Runs the helper.
pub(super) fn run(words: &[OsString]) -> u8 {
    let device = match parse(&texts(words)) {
        Ok(device) => device,
        Err(error) => {
            print_error("fsck", &error);
            return STATUS_USAGE;
        }
    };
    match check(Path::new(&device)) {
        Ok(status) => status,
        Err(error) => {
            print_error("fsck", &error);
            STATUS_FAILED
        }
    }
}

/// Checks, and says only what is wrong.
fn check(device: &Path) -> Result<u8> {
    if engine::is_cluster(device) {
        return Err(Error::usage(format!("{} is a cluster home", device.display()))
            .hint("`marram check sqlite:FILE` checks it"));
    }
    let mut tell = |finding: Finding| {
        if finding.severity() != Severity::Warning {
            let line = printable(format!("{}: {finding}", device.display()));
            write_out(&format!("{line}\n"));
        }
    };
    let summary = verify(device, &CheckOptions::default(), &mut tell)?;
    let well = summary.errors == 0 && summary.fatal == 0;
    Ok(if well { 0 } else { STATUS_DAMAGED })
}

fn parse(words: &[String]) -> Result<String> {
    let mut devices = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix('-') {
            None => devices.push(word.clone()),
            Some("t") => {
                let _value_means_nothing_here = words.next();
            }
            // -C may carry the descriptor for a progress bar.
            Some(letters) if letters.starts_with('C') => {}
            Some(letters) if letters.chars().all(|letter| "napyfvVMTR".contains(letter)) => {}
            Some(_) => return Err(usage(&format!("unknown option {word}"))),
        }
    }
    match devices.len() {
        1 => Ok(devices.remove(0)),
        count => Err(usage(&format!("one device is needed, not {count}"))),
    }
}

fn usage(what: &str) -> Error {
    Error::usage(what).hint("usage: fsck.marram [-n] DEVICE")
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn calls_of_fsck_are_understood() {
        let call = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            parse(&words)
        };
        assert_eq!(call("-n /dev/loop0").unwrap(), "/dev/loop0");
        assert_eq!(call("-T -C3 -a -t fuse.marram x").unwrap(), "x");
        assert!(call("-n").is_err() && call("-z x").is_err() && call("a b").is_err());
    }
}
