//! `mount.marram SOURCE DIRECTORY [-sfnvrw] [-N PATH] [-t TYPE] [-o OPTIONS]`, as `mount(8)` calls
//! it. Exit status: 0, 1 wrong usage or no permission, 2 the system failed, 32 the mount failed.

use super::namespace;
use super::words::texts;
use crate::commands::mount::{MountPlan, mount, options_for};
use crate::error::{Error, Kind, Result};
use crate::output::print_error;
use std::ffi::OsString;
use std::path::PathBuf;

const STATUS_USAGE: u8 = 1;
const STATUS_FAILED: u8 = 32;

/// What `mount(8)` asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Call {
    source: String,
    directory: String,
    options: Vec<String>,
    /// `-f`: go through everything but the mount.
    fake: bool,
    /// `-N`: the mount namespace that is meant.
    namespace: Option<String>,
}

/// Runs the helper.
pub(super) fn run(words: &[OsString]) -> u8 {
    let outcome = parse(&texts(words)).and_then(|call| perform(&call));
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            print_error("mount", &error);
            if error.kind == Kind::Usage { STATUS_USAGE } else { STATUS_FAILED }
        }
    }
}

fn parse(words: &[String]) -> Result<Call> {
    let mut call = Call::default();
    let mut places = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            places.push(word.clone());
            continue;
        };
        for (at, letter) in letters.char_indices() {
            if matches!(letter, 'o' | 't' | 'N') {
                let rest = &word[1 + at + 1..];
                let value = if rest.is_empty() { words.next().cloned() } else { Some(rest.into()) };
                let value = value.ok_or_else(|| usage(&format!("-{letter} needs a value")))?;
                match letter {
                    'o' => call.options.push(value),
                    'N' => call.namespace = Some(value),
                    _ => {}
                }
                break;
            }
            call.set_letter(letter)?;
        }
    }
    let count = places.len();
    let [source, directory]: [String; 2] = places
        .try_into()
        .map_err(|_| usage(&format!("a source and a directory are needed, not {count} names")))?;
    call.source = source;
    call.directory = directory;
    Ok(call)
}

impl Call {
    fn set_letter(&mut self, letter: char) -> Result<()> {
        match letter {
            'f' => self.fake = true,
            'r' => self.options.push("ro".to_owned()),
            'w' => self.options.push("rw".to_owned()),
            // Sloppy, no mtab, verbose: nothing to do for us.
            's' | 'n' | 'v' => {}
            _ => return Err(usage(&format!("unknown option -{letter}"))),
        }
        Ok(())
    }
}

fn usage(what: &str) -> Error {
    Error::usage(what).hint("usage: mount.marram SOURCE DIRECTORY [-sfnvrw] [-o OPTIONS]")
}

fn perform(call: &Call) -> Result<()> {
    call.namespace.as_deref().map_or(Ok(()), namespace::enter)?;
    let target = PathBuf::from(&call.source);
    let plan = MountPlan {
        options: options_for(&target, &call.options)?,
        target,
        then: Vec::new(),
        directory: PathBuf::from(&call.directory),
        foreground: false,
        log: None,
    };
    if call.fake {
        return Ok(());
    }
    mount(&plan).map(|_mounted| ())
}

#[cfg(test)]
mod tests {
    use super::{Call, parse};

    fn call(line: &str) -> crate::error::Result<Call> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn calls_of_mount_are_understood() {
        let found = call("work.pool /mnt -o rw,nofail,_netdev").unwrap();
        assert_eq!((found.source.as_str(), found.directory.as_str()), ("work.pool", "/mnt"));
        assert_eq!(found.options, ["rw,nofail,_netdev"]);
        let found = call("/dev/loop0 /mnt -sfnv -oro -t fuse.marram -N /proc/1/ns/mnt -r").unwrap();
        assert!(found.fake && found.namespace.as_deref() == Some("/proc/1/ns/mnt"));
        assert_eq!(found.options, ["ro", "ro"]);
        let found = call("-n -o noatime a b").unwrap();
        assert_eq!((found.options.as_slice(), found.fake), (&["noatime".to_owned()][..], false));
    }

    #[test]
    fn wrong_calls_are_refused() {
        for line in ["a", "a b c", "a b -o", "a b -x", "-o ro"] {
            assert!(call(line).is_err(), "{line}");
        }
    }
}
