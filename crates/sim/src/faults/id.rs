//! Names of single runs of the campaign.

use crate::device::Fault;
use std::fmt;
use std::str::FromStr;

/// One fault in one workload: written as `small/read:17:flip:5023` or `wide/flush:2:fail`, and
/// read again from that to replay it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultId {
    /// Which setting of the workload.
    pub setting: String,
    /// The fault, with its position.
    pub fault: Fault,
}

/// The text does not name a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAFaultId(String);

impl std::error::Error for NotAFaultId {}

impl fmt::Display for NotAFaultId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0;
        write!(out, "{text:?} is not the id of a fault like small/read:17:flip:5023")
    }
}

impl fmt::Display for FaultId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/", self.setting)?;
        match self.fault {
            Fault::FailRead { nth } => write!(out, "read:{nth}:fail"),
            Fault::FlipBit { nth, bit } => write!(out, "read:{nth}:flip:{bit}"),
            Fault::RotBit { nth, bit } => write!(out, "read:{nth}:rot:{bit}"),
            Fault::FailWrite { nth } => write!(out, "write:{nth}:fail"),
            Fault::TearWrite { nth, kept_bytes } => write!(out, "write:{nth}:tear:{kept_bytes}"),
            Fault::CutWrite { nth, kept_bytes } => write!(out, "write:{nth}:cut:{kept_bytes}"),
            Fault::LoseWrite { nth } => write!(out, "write:{nth}:lose"),
            Fault::MisdirectWrite { nth, offset } => write!(out, "write:{nth}:stray:{offset}"),
            Fault::FailFlush { nth } => write!(out, "flush:{nth}:fail"),
        }
    }
}

impl FromStr for FaultId {
    type Err = NotAFaultId;

    fn from_str(text: &str) -> Result<FaultId, NotAFaultId> {
        parse(text).ok_or_else(|| NotAFaultId(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<FaultId> {
    let (setting, rest) = text.split_once('/')?;
    let parts: Vec<&str> = rest.split(':').collect();
    let number = |at: usize| parts.get(at)?.parse::<u64>().ok();
    let nth = number(1)?;
    let kept = || usize::try_from(number(3)?).ok();
    let fault = match (parts[0], *parts.get(2)?, parts.len()) {
        ("read", "fail", 3) => Fault::FailRead { nth },
        ("read", "flip", 4) => Fault::FlipBit { nth, bit: number(3)? },
        ("read", "rot", 4) => Fault::RotBit { nth, bit: number(3)? },
        ("write", "fail", 3) => Fault::FailWrite { nth },
        ("write", "tear", 4) => Fault::TearWrite { nth, kept_bytes: kept()? },
        ("write", "cut", 4) => Fault::CutWrite { nth, kept_bytes: kept()? },
        ("write", "lose", 3) => Fault::LoseWrite { nth },
        ("write", "stray", 4) => Fault::MisdirectWrite { nth, offset: number(3)? },
        ("flush", "fail", 3) => Fault::FailFlush { nth },
        _ => return None,
    };
    Some(FaultId { setting: setting.to_owned(), fault })
}

#[cfg(test)]
mod tests {
    use super::FaultId;

    #[test]
    fn an_id_names_the_same_fault_again() {
        for text in [
            "small/read:0:fail",
            "small/read:17:flip:5023",
            "wide/read:1:rot:9",
            "wide/write:3:fail",
            "wide/write:3:tear:512",
            "wide/write:3:cut:0",
            "wide/write:4:lose",
            "wide/write:4:stray:65536",
            "a-b/flush:2:fail",
        ] {
            assert_eq!(text.parse::<FaultId>().map(|id| id.to_string()).as_deref(), Ok(text));
        }
        for text in
            ["", "small", "small/read", "small/read:x:fail", "small/flush:1:lose", "a/read:1"]
        {
            assert!(text.parse::<FaultId>().is_err(), "{text}");
        }
    }
}
