//! The groups of work that race, each in a module of its own.

mod blocks;
mod builds;
mod databases;
mod files;
mod fio;
mod images;
mod log;
mod postmark;
mod records;
mod slow;
mod small;
mod throttle;
mod tools;
mod tree;

use super::stage::Stage;
use marram_lab::failure::Result;

const GIB: u64 = 1 << 30;

/// Work that is done on one fresh file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Group {
    Tree,
    Small,
    Files,
    Postmark,
    Tools,
    Blocks,
    Log,
    Databases,
    Builds,
    Records,
    Slow,
    /// What is served of ext2 and ext3 images: a race of its own.
    Images,
}

impl Group {
    /// All of the whole race, in the order in which they race.
    pub(in super::super) const ALL: [Group; 11] = [
        Group::Tree,
        Group::Small,
        Group::Files,
        Group::Postmark,
        Group::Tools,
        Group::Blocks,
        Group::Log,
        Group::Databases,
        Group::Builds,
        Group::Records,
        Group::Slow,
    ];

    /// The name in reports, before the dot of a line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Group::Tree => "tree",
            Group::Small => "small",
            Group::Files => "files",
            Group::Postmark => "postmark",
            Group::Tools => "tools",
            Group::Blocks => "blocks",
            Group::Log => "log",
            Group::Databases => "databases",
            Group::Builds => "builds",
            Group::Records => "records",
            Group::Slow => "slow",
            Group::Images => "images",
        }
    }

    /// How large a file system it wants: at least twice of what it writes, so that the space for
    /// copies on write is never scarce, nor that for metadata: on 1 GiB Btrfs commits dozens of
    /// times while it makes small files, and takes twice as long.
    pub(super) fn image_bytes(self, is_quick: bool) -> u64 {
        let (whole, quick) = match self {
            Group::Tree => (8, 2),
            Group::Postmark => (12, 1),
            Group::Tools | Group::Databases | Group::Records | Group::Slow => (6, 2),
            Group::Small | Group::Files | Group::Blocks => (6, 1),
            Group::Builds => (6, 3),
            Group::Log => (1, 1),
            Group::Images => (3, 1),
        };
        GIB * if is_quick { quick } else { whole }
    }

    /// How many files it makes, where that is more than a peer has room for by itself.
    pub(super) fn files_max(self, is_quick: bool) -> Option<u64> {
        (self == Group::Files && !is_quick).then_some(files::FILES_MAX)
    }

    /// Does the work.
    pub(super) fn run(self, stage: &mut Stage<'_>) -> Result<()> {
        match self {
            Group::Tree => tree::run_all(stage),
            Group::Small => small::run_all(stage),
            Group::Files => files::run_all(stage),
            Group::Postmark => postmark::run_all(stage),
            Group::Tools => tools::run_all(stage),
            Group::Blocks => blocks::run_all(stage),
            Group::Log => log::run_all(stage),
            Group::Databases => databases::run_all(stage),
            Group::Builds => builds::run_all(stage),
            Group::Records => records::run_all(stage),
            Group::Slow => slow::run_all(stage),
            Group::Images => images::run_all(stage),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_groups_share_a_name() {
        let names: std::collections::BTreeSet<&str> =
            Group::ALL.iter().map(|group| group.name()).collect();
        assert_eq!(names.len(), Group::ALL.len());
    }
}
