//! New content of a file as slices of what it replaces: rsync-enhanced copy-on-write.
//!
//! A program that inserts a byte writes all that comes behind it once more. What waits for its
//! publication is therefore searched for slices of blocks that the file has had, at any offset.
//! What is found is published as a reference to the old block, and only the rest as new blocks.
//! Sections are byte-exact slices, so slices of blocks that were cut long ago are found too.
//!
//! Nothing is shared on a sum: the old bytes are here, verified, and compared. An old block goes
//! along as content that is stored already. Whether the database still has it is asked as of any
//! block, in the same question; where it has gone meanwhile, it is sent whole.
//!
//! See `docs/decisions/0078-old-slices-and-what-is-new.md`.

mod recut;
mod replaced;

pub(crate) use recut::{OldSlice, Run, is_same, recut, runs};
pub(crate) use replaced::{Replaced, Slice};

use std::collections::BTreeMap;

/// The property that says when old slices are searched for.
pub(crate) const DELTA: &str = "delta";
/// Its value where nobody has set another one.
pub(crate) const DELTA_DEFAULT: &str = "auto";

/// When old slices are searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delta {
    /// Where it is likely to cost less than it saves.
    Auto,
    /// Whenever content of a file is replaced.
    On,
    /// Never.
    Off,
}

impl Delta {
    /// Reads a value.
    pub(crate) fn parse(value: &str) -> Option<Delta> {
        match value {
            "auto" => Some(Delta::Auto),
            "on" => Some(Delta::On),
            "off" => Some(Delta::Off),
            _ => None,
        }
    }

    /// By the properties of a dataset.
    pub(crate) fn of(properties: &BTreeMap<String, String>) -> Delta {
        properties.get(DELTA).and_then(|value| Delta::parse(value)).unwrap_or(Delta::Auto)
    }
}
