//! Properties of datasets: their names, values and defaults.

use marram_codec::{ChecksumKind, Compression};
use marram_store::{Error, Properties, Result};
use std::collections::BTreeMap;

/// The properties of a dataset, as the engine uses them.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) compression: Compression,
    pub(crate) checksum: ChecksumKind,
    /// All properties in force, as text.
    pub(crate) all: Properties,
}

/// Checks a value and brings it into its usual form.
type CheckValue = fn(&str) -> Result<String>;

/// Name, default and check of each property.
const KNOWN: [(&str, &str, CheckValue); 4] = [
    ("atime", "relative", |text| one_of("atime", text, &["off", "relative", "strict"])),
    ("checksum", "xxh3", |text| one_of("checksum", text, &["xxh3", "blake3"])),
    ("compression", "lz4", |text| Ok(compression(text)?.to_string())),
    ("recordsize", "131072", |text| Ok(record_bytes(text)?.to_string())),
];

fn one_of(name: &str, text: &str, values: &[&str]) -> Result<String> {
    if values.contains(&text) {
        return Ok(text.to_owned());
    }
    let values = values.join(", ");
    Err(Error::Invalid(format!("{name}={text} makes no sense: use one of {values}")))
}

fn compression(text: &str) -> Result<Compression> {
    text.parse().map_err(|error| Error::Invalid(format!("compression={text}: {error}")))
}

fn record_bytes(text: &str) -> Result<u32> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let bytes = digits.parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
    match bytes {
        Some(bytes) if bytes.is_power_of_two() && (4096..=1 << 20).contains(&bytes) => Ok(bytes),
        _ => Err(Error::Invalid(format!(
            "recordsize={text} makes no sense: use a power of two from 4K to 1M"
        ))),
    }
}

/// Checks one property and brings its value into its usual form.
pub fn check_property(name: &str, value: &str) -> Result<String> {
    match KNOWN.iter().find(|(known, ..)| *known == name) {
        Some((_, _, check)) => check(value),
        None => {
            let names: Vec<&str> = KNOWN.iter().map(|(known, ..)| *known).collect();
            let names = names.join(", ");
            Err(Error::Invalid(format!("no property is named {name}: there are {names}")))
        }
    }
}

impl Settings {
    /// The settings that result from what was set locally.
    pub(crate) fn new(local: &[(String, String)]) -> Result<Settings> {
        let mut all: BTreeMap<String, String> = KNOWN
            .iter()
            .map(|(name, default, _)| ((*name).to_owned(), (*default).to_owned()))
            .collect();
        for (name, value) in local {
            all.insert(name.clone(), check_property(name, value)?);
        }
        let checksum = match all["checksum"].as_str() {
            "blake3" => ChecksumKind::Blake3,
            _ => ChecksumKind::Xxh3,
        };
        let compression = compression(&all["compression"])?;
        Ok(Settings { compression, checksum, all: Properties(all) })
    }
}

#[cfg(test)]
mod tests {
    use super::{Settings, check_property};

    #[test]
    fn values_are_checked_and_brought_into_form() {
        assert_eq!(check_property("recordsize", "64K").unwrap(), "65536");
        assert_eq!(check_property("compression", "zstd:3").unwrap(), "zstd:3");
        for (name, value) in [
            ("recordsize", "100"),
            ("recordsize", "2M"),
            ("recordsize", ""),
            ("compression", "best"),
            ("checksum", "crc"),
            ("atime", "yes"),
            ("colour", "red"),
        ] {
            let error = check_property(name, value).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        assert_eq!(Settings::new(&[]).unwrap().all.0["recordsize"], "131072");
    }
}
