//! `mkfs.marram [-fFqV] [-L LABEL] [-O NAME=VALUE] [-t TYPE] DEVICE [KIBIBYTES]`, as `mkfs(8)`
//! calls it. Exit status: 0 or 1.

use super::words::texts;
use crate::engine::properties::parse_settings;
use crate::engine::{CreateRequest, create};
use crate::error::{Error, Result};
use crate::output::print_error;
use crate::sizes::parse_size;
use std::ffi::OsString;
use std::path::Path;

/// Runs the helper.
pub(super) fn run(words: &[OsString]) -> u8 {
    let outcome = parse(&texts(words))
        .and_then(|(device, request)| create(Path::new(&device), &request).map(|_size| ()));
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            print_error("mkfs", &error);
            1
        }
    }
}

fn parse(words: &[String]) -> Result<(String, CreateRequest)> {
    let mut request = CreateRequest::default();
    let (mut places, mut settings) = (Vec::new(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value =
            || words.next().cloned().ok_or_else(|| usage(&format!("{word} needs a value")));
        match word.as_str() {
            "-f" | "-F" | "--force" => request.force = true,
            "-q" | "-v" | "-V" => {}
            "-L" => request.label = value()?,
            "-O" => settings.push(value()?),
            "-t" => drop(value()?),
            _ if word.starts_with('-') => return Err(usage(&format!("unknown option {word}"))),
            _ => places.push(word.clone()),
        }
    }
    request.properties = parse_settings(&settings)?;
    if places.len() == 2 {
        request.size_bytes = places.pop().as_deref().map(size_argument).transpose()?;
    }
    match places.len() {
        1 => Ok((places.remove(0), request)),
        count => Err(usage(&format!("one device is needed, not {count}"))),
    }
}

/// A size as `mkfs` has it: a plain number counts kibibytes.
fn size_argument(text: &str) -> Result<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    parse_size(&if plain { format!("{text}K") } else { text.to_owned() })
}

fn usage(what: &str) -> Error {
    Error::usage(what).hint("usage: mkfs.marram [-f] [-L LABEL] [-O NAME=VALUE] DEVICE [KIBIBYTES]")
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn calls_of_mkfs_are_understood() {
        let call = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            parse(&words)
        };
        let (device, request) = call("-f -L work -O compression=off /dev/loop0 1024").unwrap();
        assert_eq!((device.as_str(), request.size_bytes), ("/dev/loop0", Some(1 << 20)));
        assert!(request.force && request.label == "work");
        assert_eq!(call("/dev/loop0 512k").unwrap().1.size_bytes, Some(512 << 10));
        for line in ["-f", "-z a", "a b c", "a x", "-L", "-O colour=red a"] {
            assert!(call(line).is_err(), "{line}");
        }
    }
}
