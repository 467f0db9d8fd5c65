//! `umount.marram DIRECTORY|SOURCE [-flnrv] [-t TYPE] [-N PATH]`, as `umount(8)` calls it. Comes
//! back when the daemon has let go of the device. Exit status: 0, 1 wrong usage, 32 failed.

use super::namespace;
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
    match parse(&texts(words)).and_then(|call| perform(&call)) {
        Ok(()) => 0,
        Err(error) => {
            print_error("unmount", &error);
            if error.kind == Kind::Usage { STATUS_USAGE } else { STATUS_FAILED }
        }
    }
}

/// What `umount(8)` asks for.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    target: String,
    lazy: bool,
    namespace: Option<String>,
}

fn perform(call: &Call) -> Result<()> {
    call.namespace.as_deref().map_or(Ok(()), namespace::enter)?;
    unmount(Path::new(&call.target), call.lazy).map(|_unmounted| ())
}

fn parse(words: &[String]) -> Result<Call> {
    let (mut targets, mut lazy, mut namespace) = (Vec::new(), false, None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix('-') {
            None => targets.push(word.clone()),
            Some("N") => {
                let value = words.next().cloned();
                namespace = Some(value.ok_or_else(|| usage("-N needs a value"))?);
            }
            Some("t" | "O") => {
                let _value_means_nothing_here = words.next();
            }
            Some(letters) if letters.chars().all(|letter| "flnrvdc".contains(letter)) => {
                lazy |= letters.contains('l');
            }
            Some(_) => return Err(usage(&format!("unknown option {word}"))),
        }
    }
    match targets.len() {
        1 => Ok(Call { target: targets.remove(0), lazy, namespace }),
        count => Err(usage(&format!("one directory is needed, not {count}"))),
    }
}

fn usage(what: &str) -> Error {
    Error::usage(what).hint("usage: umount.marram DIRECTORY [-flnrv]")
}

#[cfg(test)]
mod tests {
    use super::{Call, parse};

    #[test]
    fn calls_of_umount_are_understood() {
        let call = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            parse(&words)
        };
        let plain = Call { target: "/mnt".to_owned(), lazy: false, namespace: None };
        assert_eq!(call("/mnt").unwrap(), plain);
        assert_eq!(call("/mnt -nl -t fuse.marram").unwrap(), Call { lazy: true, ..plain });
        assert_eq!(
            call("/mnt -N /proc/7/fd/3").unwrap().namespace.as_deref(),
            Some("/proc/7/fd/3")
        );
        assert!(call("/mnt -N").is_err());
        assert!(call("-n").is_err() && call("/a /b").is_err() && call("/a -z").is_err());
    }
}
