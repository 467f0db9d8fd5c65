//! The number of a device, by which the kernel tells file systems apart in every mount namespace.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The number that all files of a file system show as their device, written `MAJOR:MINOR`. No other
/// file system has it as long as that one lives, wherever it is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceNumber {
    major: u32,
    minor: u32,
}

impl DeviceNumber {
    /// As files tell it.
    pub fn encoded(self) -> u64 {
        rustix::fs::makedev(self.major, self.minor)
    }
}

impl From<(u32, u32)> for DeviceNumber {
    fn from((major, minor): (u32, u32)) -> DeviceNumber {
        DeviceNumber { major, minor }
    }
}

impl From<DeviceNumber> for (u32, u32) {
    fn from(number: DeviceNumber) -> (u32, u32) {
        (number.major, number.minor)
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.major, self.minor)
    }
}

impl From<DeviceNumber> for String {
    fn from(number: DeviceNumber) -> String {
        number.to_string()
    }
}

impl FromStr for DeviceNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceNumber, String> {
        let numbers = text.split_once(':');
        let parsed =
            numbers.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        parsed.map(DeviceNumber::from).ok_or_else(|| format!("{text:?} is no MAJOR:MINOR"))
    }
}

impl TryFrom<String> for DeviceNumber {
    type Error = String;

    fn try_from(text: String) -> Result<DeviceNumber, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::DeviceNumber;

    #[test]
    fn a_number_is_read_as_it_is_written() {
        let number: DeviceNumber = "0:42".parse().unwrap();
        assert_eq!(number, DeviceNumber::from((0, 42)));
        assert_eq!(serde_json::to_string(&number).unwrap(), "\"0:42\"");
        assert_eq!(serde_json::from_str::<DeviceNumber>("\"0:42\"").unwrap(), number);
        for text in ["", "0", "0:", ":1", "0:1:2", "a:b", "-1:0", "4294967296:0"] {
            assert!(text.parse::<DeviceNumber>().is_err(), "{text}");
        }
    }
}
