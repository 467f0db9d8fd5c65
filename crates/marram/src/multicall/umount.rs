//! `umount.marram DIRECTORY|SOURCE [-flnrv] [-t TYPE] [-N PATH]`, as `umount(8)` calls it. Comes
//! back when the daemon has let go of the device. Exit status: 0, 1 wrong usage, 32 failed.

use super::words::texts;
use crate::commands::unmount::unmount;
use crate::error::{Error, Kind, Result};
use crate::output::print_error;
use std::ffi::OsString;
use std::path::Path;

const STATUS_USAGE: u8 = 1;
const STATUS_FAILED: u8 = 32;

/// Runs the helper.
pub(super) fn run(words: &[OsString]) -> u8 {
    let outcome = parse(&texts(words))
        .and_then(|(target, lazy)| unmount(Path::new(&target), lazy).map(|_unmounted| ()));
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            print_error("unmount", &error);
            if error.kind == Kind::Usage { STATUS_USAGE } else { STATUS_FAILED }
        }
    }
}

/// What to unmount, and whether lazily.
fn parse(words: &[String]) -> Result<(String, bool)> {
    let (mut targets, mut lazy) = (Vec::new(), false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix('-') {
            None => targets.push(word.clone()),
            Some("t" | "N" | "O") => {
                let _value_means_nothing_here = words.next();
            }
            Some(letters) if letters.chars().all(|letter| "flnrvdc".contains(letter)) => {
                lazy |= letters.contains('l');
            }
            Some(_) => return Err(usage(&format!("unknown option {word}"))),
        }
    }
    match targets.len() {
        1 => Ok((targets.remove(0), lazy)),
        count => Err(usage(&format!("one directory is needed, not {count}"))),
    }
}

fn usage(what: &str) -> Error {
    Error::usage(what).hint("usage: umount.marram DIRECTORY [-flnrv]")
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn calls_of_umount_are_understood() {
        let call = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            parse(&words)
        };
        assert_eq!(call("/mnt").unwrap(), ("/mnt".to_owned(), false));
        assert_eq!(call("/mnt -nl -t fuse.marram").unwrap(), ("/mnt".to_owned(), true));
        assert!(call("-n").is_err() && call("/a /b").is_err() && call("/a -z").is_err());
    }
}
