//! Transaction groups.

use std::fmt;

/// Numbers of groups are below this: 35 years at a thousand commits a second.
pub const GROUPS_MAX: u64 = 1 << 40;

/// Number of a transaction group: all changes that one group commit made durable together. The
/// first is 1; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(pub u64);

impl fmt::Display for Group {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}
