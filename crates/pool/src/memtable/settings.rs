//! Properties of datasets: their names, values and defaults.

use marram_codec::{ChecksumKind, Compression};
use marram_store::{
    Error, Grants, Properties, Result, SnapshotRule, UNDO_DEFAULT, check_undo_time,
};
use std::collections::BTreeMap;

/// The properties of a dataset, as the engine uses them.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) compression: Compression,
    pub(crate) checksum: ChecksumKind,
    /// Most bytes that the dataset may refer to.
    pub(crate) quota_bytes: Option<u64>,
    /// Bytes that it can grow to whatever others write.
    pub(crate) reservation_bytes: Option<u64>,
    /// All properties in force, as text.
    pub(crate) all: Properties,
}

/// The property that says how much a dataset may refer to.
pub(crate) const QUOTA: &str = "quota";
/// The property that says up to where space is kept free for a dataset.
pub(crate) const RESERVATION: &str = "reservation";
/// The property that says whether names differ when only their case does. It holds for good from
/// the moment that the dataset is made.
pub(crate) const CASE_FOLDING: &str = "casefold";
/// The property that says what users and groups may do beside root.
pub(crate) const ALLOW: &str = "allow";
/// The property that says how many forks a user other than root may have.
pub(crate) const USER_FORKS: &str = "userforks";
/// The property that says how long what is destroyed or merged over is kept for an undo.
const UNDO: &str = "undo";
/// The property that says how often snapshots are taken by themselves, and how many stay.
const SNAPSHOTS: &str = "snapshots";
/// Nothing of it.
const OFF: &str = "off";
/// No quota, and no reservation.
const NO_BYTES: &str = "none";

/// Checks a value and brings it into its usual form.
type CheckValue = fn(&str) -> Result<String>;

/// Name, default and check of each property.
const KNOWN: [(&str, &str, CheckValue); 13] = [
    ("acl", "posix", |text| one_of("acl", text, &["posix", "nfsv4", "off"])),
    (ALLOW, "none", |text| Ok(text.parse::<Grants>()?.to_string())),
    ("atime", "relative", |text| one_of("atime", text, &["off", "relative", "strict"])),
    (CASE_FOLDING, "off", |text| one_of(CASE_FOLDING, text, &["off", "on"])),
    ("checksum", "xxh3", |text| one_of("checksum", text, &["xxh3", "blake3"])),
    ("compression", "lz4", |text| Ok(compression(text)?.to_string())),
    ("dedup", "off", |text| one_of("dedup", text, &["off", "on"])),
    (QUOTA, NO_BYTES, |text| space_text(QUOTA, text)),
    ("recordsize", "131072", |text| Ok(record_bytes(text)?.to_string())),
    (RESERVATION, NO_BYTES, |text| space_text(RESERVATION, text)),
    (SNAPSHOTS, OFF, |text| snapshots_text(text)),
    (UNDO, UNDO_DEFAULT, |text| check_undo_time(text)),
    (USER_FORKS, "256", |text| fork_count_text(text)),
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

/// A number of bytes, in units of 1024 with a letter behind it.
fn bytes_of(text: &str) -> Option<u64> {
    const UNITS: [&str; 5] = ["kK", "mM", "gG", "tT", "pP"];
    let unit = UNITS.iter().position(|letters| text.ends_with(|end| letters.contains(end)));
    let digits = if unit.is_some() { &text[..text.len() - 1] } else { text };
    let factor = unit.map_or(1, |unit| 1_u64 << (10 * (unit + 1)));
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

fn space_text(name: &str, text: &str) -> Result<String> {
    match bytes_of(text) {
        _ if text == NO_BYTES => Ok(text.to_owned()),
        Some(bytes) if bytes > 0 => Ok(bytes.to_string()),
        _ => Err(Error::Invalid(format!(
            "{name}={text} makes no sense: use a size as in 10G, or none"
        ))),
    }
}

/// How many forks one user may have at a time.
fn fork_count_text(text: &str) -> Result<String> {
    match text.parse::<u32>() {
        Ok(count) => Ok(count.to_string()),
        Err(_) => Err(Error::Invalid(format!(
            "userforks={text} makes no sense: use a number of forks, 0 for none"
        ))),
    }
}

/// What a dataset with these properties hands out.
pub(crate) fn grants(local: &[(String, String)]) -> Result<Grants> {
    let set = local.iter().find(|(name, _)| name == ALLOW);
    set.map_or_else(|| Ok(Grants::default()), |(_, value)| value.parse())
}

/// How long what is destroyed of a dataset with these properties is kept for an undo, in seconds;
/// 0 is not at all.
pub(crate) fn undo_seconds(local: &[(String, String)]) -> i64 {
    let set = local.iter().find(|(name, _)| name == UNDO);
    marram_store::undo_seconds(set.map(|(_, value)| value.as_str()))
}

/// A rule of automatic snapshots, or none.
fn snapshots_text(text: &str) -> Result<String> {
    match text {
        OFF => Ok(text.to_owned()),
        rule => Ok(rule.parse::<SnapshotRule>()?.to_string()),
    }
}

/// The rule of automatic snapshots of a dataset with these properties, if it has one.
pub(crate) fn snapshot_rule(local: &[(String, String)]) -> Option<SnapshotRule> {
    let set = local.iter().find(|(name, _)| name == SNAPSHOTS);
    set.and_then(|(_, value)| value.parse().ok())
}

fn record_bytes(text: &str) -> Result<u32> {
    match bytes_of(text).and_then(|bytes| u32::try_from(bytes).ok()) {
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
        // Names that begin with a dot are the pool's own business, not settings.
        for (name, value) in local.iter().filter(|(name, _)| !name.starts_with('.')) {
            all.insert(name.clone(), check_property(name, value)?);
        }
        let checksum = match all["checksum"].as_str() {
            "blake3" => ChecksumKind::Blake3,
            _ => ChecksumKind::Xxh3,
        };
        let compression = compression(&all["compression"])?;
        let (quota_bytes, reservation_bytes) = (bytes_of(&all[QUOTA]), bytes_of(&all[RESERVATION]));
        Ok(Settings { compression, checksum, quota_bytes, reservation_bytes, all: Properties(all) })
    }
}

#[cfg(test)]
mod tests {
    use super::{Settings, check_property};

    #[test]
    fn values_are_checked_and_brought_into_form() {
        assert_eq!(check_property("recordsize", "64K").unwrap(), "65536");
        assert_eq!(check_property("compression", "zstd:3").unwrap(), "zstd:3");
        assert_eq!(check_property("quota", "10g").unwrap(), (10_u64 << 30).to_string());
        assert_eq!(check_property("reservation", "none").unwrap(), "none");
        assert_eq!(check_property("undo", "90m").unwrap(), "90m");
        for (name, value) in [
            ("recordsize", "100"),
            ("recordsize", "2M"),
            ("quota", "0"),
            ("quota", "18446744073709551615K"),
            ("quota", "-1"),
            ("reservation", "much"),
            ("reservation", "1\u{fc}"),
            ("recordsize", ""),
            ("compression", "best"),
            ("checksum", "crc"),
            ("acl", "richacl"),
            ("atime", "yes"),
            ("colour", "red"),
            ("undo", "0h"),
            ("undo", "h"),
            ("undo", "400d"),
            ("undo", "for good"),
            ("snapshots", "hourly"),
            ("snapshots", ""),
            ("snapshots", "15m"),
            ("snapshots", "15m:0"),
            ("snapshots", "1h:3,60m:2"),
            ("snapshots", "on"),
            ("allow", "ann:send"),
            ("userforks", "-1"),
        ] {
            let error = check_property(name, value).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        assert_eq!(Settings::new(&[]).unwrap().all.0["recordsize"], "131072");
    }
}
