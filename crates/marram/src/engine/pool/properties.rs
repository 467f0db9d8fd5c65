//! Properties of a dataset as the command line takes them: `name=value`.
//!
//! They are checked before a file is made or a device is opened, by the same code that the pool
//! itself relies on.

use crate::error::{Error, Result};
use marram_pool::check_property;
use std::collections::BTreeMap;

/// Reads `name=value` settings; of two for one name the later counts.
///
/// # Errors
/// Names the property that is not known, or what its value could be.
pub(crate) fn parse_settings(settings: &[String]) -> Result<BTreeMap<String, String>> {
    let mut properties = BTreeMap::new();
    for setting in settings {
        let Some((name, value)) = setting.split_once('=') else {
            return Err(Error::usage(format!(
                "{setting:?} is no setting: write NAME=VALUE, as in compression=zstd:3"
            )));
        };
        properties.insert(name.to_owned(), check_property(name, value)?);
    }
    Ok(properties)
}

#[cfg(test)]
mod tests {
    use super::parse_settings;

    #[test]
    fn settings_are_read_and_the_later_of_two_counts() {
        let settings = ["compression=zstd:3", "recordsize=1M", "compression=gzip:9"];
        let properties = parse_settings(&settings.map(str::to_owned)).unwrap();
        assert_eq!(properties["compression"], "gzip:9");
        assert_eq!(properties["recordsize"], "1048576");
    }

    #[test]
    fn a_wrong_setting_is_answered_with_what_would_be_right() {
        let bad = [
            ("compression", "NAME=VALUE"),
            ("colour=red", "compression"),
            ("compression=zip", "zstd"),
            ("checksum=md5", "blake3"),
            ("recordsize=5000", "power of two"),
            ("atime=on", "relative"),
        ];
        for (setting, named) in bad {
            let error = parse_settings(&[setting.to_owned()]).unwrap_err();
            assert!(error.message.contains(named), "{setting}: {error}");
        }
    }
}
