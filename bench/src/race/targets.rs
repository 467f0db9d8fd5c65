//! What the project wants of each line, held against what came out.

use super::line::Samples;
use marram_lab::subject::Kind;
use std::fmt::Write;

/// The subjects that a line is held against.
#[derive(Clone, Copy, Debug)]
enum Against {
    One(Kind),
    /// The best of the file systems of the kernel.
    BestOfKernel,
}

/// A line, a peer, and how many times the peer's figure is allowed.
struct Target<'k> {
    key: &'k str,
    /// Those of ours that the target is for; both transports if none is named.
    ours: &'static [Kind],
    against: Against,
    limit: f64,
}

const fn target(key: &str, against: Kind, limit: f64) -> Target<'_> {
    Target { key, ours: &USUAL, against: Against::One(against), limit }
}

/// A target for one of ours: the peer compresses in the same way.
const fn same<'k>(key: &'k str, ours: &'static [Kind], against: Kind, limit: f64) -> Target<'k> {
    Target { key, ours, against: Against::One(against), limit }
}

const fn best(key: &str) -> Target<'_> {
    Target { key, ours: &USUAL, against: Against::BestOfKernel, limit: 1.0 }
}

const USUAL: [Kind; 2] = [Kind::Marram, Kind::MarramUring];
const KERNEL: [Kind; 3] = [Kind::Ext4, Kind::Xfs, Kind::Btrfs];

const TARGETS: &[Target<'_>] = &[
    same("tree.unpack", &[Kind::MarramOff], Kind::Btrfs, 1.0),
    same("tree.unpack", &[Kind::MarramZstd], Kind::BtrfsZstd, 1.0),
    same("tree.unpack", &USUAL, Kind::BtrfsLzo, 1.0),
    target("tree.remove", Kind::Btrfs, 1.0),
    target("tree.read_warm", Kind::Ext4, 1.15),
    target("tree.grep_warm", Kind::Ext4, 1.15),
    target("tree.git_status", Kind::Ext4, 1.15),
    target("tree.read_cold", Kind::Btrfs, 1.0),
    target("small.create_10000_of_4096", Kind::Btrfs, 1.0),
    target("small.create_10000_of_4096", Kind::ZfsFuse, 0.15),
    target("builds.c", Kind::Ext4, 1.05),
    target("postmark.default", Kind::Ext4, 1.3),
    target("postmark.default", Kind::ZfsFuse, 0.3),
    target("postmark.to_4_mb", Kind::Ext4, 1.3),
    target("postmark.to_4_mb", Kind::ZfsFuse, 0.3),
    target("postmark.to_16_mb", Kind::Ext4, 1.3),
    target("postmark.to_16_mb", Kind::ZfsFuse, 0.3),
    target("blocks.write_1m_1", Kind::Btrfs, 1.1),
    target("blocks.read_1m_1", Kind::Btrfs, 1.1),
    target("blocks.randwrite_4k_1", Kind::Btrfs, 1.0),
    target("blocks.randread_4k_1", Kind::Btrfs, 1.0),
    best("databases.sqlite_wal"),
    best("databases.sqlite_delete"),
    best("databases.pgbench"),
    best("tools.fs_mark_synced"),
    target("log.append", Kind::Ext4, 1.2),
    target("log.read_back", Kind::Ext4, 1.1),
    same("slow.write_half", &[Kind::MarramZstd], Kind::BtrfsZstd, 0.9),
    same("slow.write_half", &[Kind::MarramZstd], Kind::ZfsFuseGzip, 0.9),
];

/// Those of images, most as ratios to no order (figure 2.11 of the thesis).
const IMAGE_TARGETS: &[Target<'_>] = &[
    same("images.unpack", SOFT, Kind::ImageAsync, 1.56),
    same("images.remove", SOFT, Kind::ImageAsync, 1.14),
    same("images.postmark", SOFT, Kind::ImageAsync, 1.03),
    same("images.andrew", SOFT, Kind::ImageAsync, 1.01),
    same("images.unpack", JOURNAL, Kind::ImageAsync, 1.41),
    same("images.remove", JOURNAL, Kind::ImageAsync, 2.0),
    same("images.postmark", JOURNAL, Kind::ImageAsync, 1.29),
    same("images.andrew", JOURNAL, Kind::ImageAsync, 1.01),
    same("images.unpack", FULL, Kind::ImageAsync, 2.8),
    same("images.remove", FULL, Kind::ImageAsync, 2.0),
    same("images.postmark", FULL, Kind::ImageAsync, 2.22),
    same("images.andrew", FULL, Kind::ImageAsync, 1.01),
    same("images.unpack", &OF_IMAGES, Kind::Fuse2fs, 1.0),
    same("images.remove", &OF_IMAGES, Kind::Fuse2fs, 1.0),
    same("images.postmark", &OF_IMAGES, Kind::Fuse2fs, 1.0),
    same("images.andrew", &OF_IMAGES, Kind::Fuse2fs, 1.0),
    same("images.unpack", SOFT, Kind::OwnPassthrough, 1.15),
];
const PMEM: &[Kind] = &[Kind::Pmem];
const SOFT: &[Kind] = &[Kind::ImageSoft];
const JOURNAL: &[Kind] = &[Kind::ImageJournal];
const FULL: &[Kind] = &[Kind::ImageJournalFull];
const OF_IMAGES: [Kind; 5] = [
    Kind::ImageSoft,
    Kind::ImageJournal,
    Kind::ImageJournalFull,
    Kind::ImageJournalWriteback,
    Kind::ImageAsync,
];
/// The most processor time of the daemon under soft updates, as a ratio to no order.
const SOFT_PROCESSOR_MAX: f64 = 1.7;

/// Lines of which each call is synced: the pmem home is held against the kernel there, and against
/// the pool everywhere else.
const SYNCED: [&str; 5] = [
    "databases.sqlite_wal",
    "databases.sqlite_delete",
    "databases.pgbench",
    "tools.fs_mark_synced",
    "log.append",
];

/// The daemon's memory with the default cache.
const PEAK_MEMORY_MIB_MAX: f64 = 600.0;

/// Costs that may grow with the logarithm of the size at most: the line at the small size and at
/// the large one, and the ratio of the logarithms of the sizes.
const FLAT: &[(&str, &str, f64)] = &[
    ("files.create_empty_10000", "files.create_empty_1000000", 1.5),
    ("files.stat_10000", "files.stat_1000000", 1.5),
    ("files.unlink_10000", "files.unlink_1000000", 1.5),
];

/// A target as a row of a table.
#[derive(Debug, PartialEq)]
pub(super) struct Verdict {
    pub(super) target: String,
    pub(super) ours: Kind,
    pub(super) figure: f64,
    pub(super) limit: f64,
    /// The word behind the figure, if it is no ratio.
    pub(super) unit: &'static str,
}

impl Verdict {
    pub(super) fn is_met(&self) -> bool {
        self.figure <= self.limit
    }
}

/// Every target of which both sides were measured.
pub(super) fn verdicts(samples: &Samples) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for target in TARGETS.iter().chain(IMAGE_TARGETS) {
        verdicts.extend(target.ours.iter().filter_map(|ours| target.judge(*ours, samples)));
    }
    verdicts.extend(samples.lines().iter().filter_map(|line| processor(&line.key, samples)));
    let of_pmem = samples.lines().iter().filter_map(|line| pmem(&line.key, samples));
    verdicts.extend(of_pmem);
    for ours in USUAL {
        verdicts.extend(FLAT.iter().filter_map(|(small, large, limit)| {
            let (few, many) = (samples.spread(ours, small)?, samples.spread(ours, large)?);
            let target = format!("{large}: within {limit} times {small} (the logarithm)");
            let figure = many.median / few.median;
            Some(Verdict { target, ours, figure, limit: *limit, unit: "" })
        }));
        verdicts.extend(memory(ours, samples));
    }
    verdicts
}

/// The pmem home in a line.
fn pmem(key: &str, samples: &Samples) -> Option<Verdict> {
    let target = match SYNCED.contains(&key) {
        true => Target { key, ours: PMEM, against: Against::BestOfKernel, limit: 0.3 },
        false => same(key, PMEM, Kind::Marram, 1.0),
    };
    target.judge(Kind::Pmem, samples)
}

impl Target<'_> {
    fn judge(&self, ours: Kind, samples: &Samples) -> Option<Verdict> {
        let line = samples.line(self.key)?;
        let our_median = samples.spread(ours, self.key)?.median;
        let ratio = |peer: Kind| {
            let theirs = samples.spread(peer, self.key)?.median;
            Some((peer, line.unit.times_worse(our_median, theirs)))
        };
        let (peer, figure) = match self.against {
            Against::One(peer) => ratio(peer)?,
            Against::BestOfKernel => {
                let ratios = KERNEL.into_iter().filter_map(ratio);
                ratios.max_by(|one, other| one.1.total_cmp(&other.1))?
            }
        };
        let word = match self.against {
            Against::One(_) => "",
            Against::BestOfKernel => ", the best of the kernel's",
        };
        let mut told = String::new();
        write!(told, "{}: within {} times {}{word}", self.key, self.limit, peer.name())
            .expect("a string takes all that is written");
        Some(Verdict { target: told, ours, figure, limit: self.limit, unit: "" })
    }
}

/// What soft updates cost the daemon in a line.
fn processor(key: &str, samples: &Samples) -> Option<Verdict> {
    let seconds = |kind| samples.median(kind, key, |outcome| outcome.cost.daemon_seconds);
    let figure = seconds(Kind::ImageSoft)? / seconds(Kind::ImageAsync)?;
    let target = format!("{key}: processor time within {SOFT_PROCESSOR_MAX} times async");
    let (ours, limit) = (Kind::ImageSoft, SOFT_PROCESSOR_MAX);
    Some(Verdict { target, ours, figure, limit, unit: "" })
}

/// The largest peak of any line.
fn memory(ours: Kind, samples: &Samples) -> Option<Verdict> {
    const MIB: f64 = 1_048_576.0;
    let peaks = samples.lines().iter().flat_map(|line| samples.all(ours, &line.key));
    let figure = peaks
        .filter_map(|outcome| outcome.cost.daemon_peak_bytes)
        .max()
        .map(|bytes| bytes as f64 / MIB)?;
    let target = "peak memory of the daemon in any line".to_owned();
    Some(Verdict { target, ours, figure, limit: PEAK_MEMORY_MIB_MAX, unit: " MiB" })
}

#[cfg(test)]
mod tests {
    use super::super::line::{Ending, Line, Outcome, Unit};
    use super::super::usage::Cost;
    use super::*;

    fn add(samples: &mut Samples, kind: Kind, (key, unit): (&str, Unit), value: f64) {
        let cost = Cost { daemon_peak_bytes: Some(700 << 20), ..Cost::default() };
        let line = Line::new(key, "work", unit, Ending::Syncfs);
        samples.add(kind, line, Outcome { value, wall_seconds: value, cost });
    }

    fn told(samples: &Samples) -> Vec<(String, bool)> {
        let verdicts = verdicts(samples);
        verdicts.iter().map(|v| (format!("{} {:.2}", v.target, v.figure), v.is_met())).collect()
    }

    #[test]
    fn the_best_of_the_kernel_is_the_one_that_is_hardest_to_reach() {
        let mut samples = Samples::default();
        let line = ("databases.pgbench", Unit::PerSecond);
        add(&mut samples, Kind::Marram, line, 90.0);
        add(&mut samples, Kind::Ext4, line, 60.0);
        add(&mut samples, Kind::Xfs, line, 100.0);
        let told = told(&samples);
        let (target, is_met) = &told[0];
        assert!(target.ends_with("xfs, the best of the kernel's 1.11") && !is_met, "{told:?}");
    }

    #[test]
    fn seconds_and_rates_are_judged_each_in_its_direction() {
        let mut samples = Samples::default();
        for (kind, seconds, rate) in [(Kind::Marram, 2.0, 200.0), (Kind::Btrfs, 4.0, 100.0)] {
            add(&mut samples, kind, ("tree.remove", Unit::Seconds), seconds);
            add(&mut samples, kind, ("blocks.randread_4k_1", Unit::PerSecond), rate);
        }
        let told = told(&samples);
        assert_eq!(told[0], ("tree.remove: within 1 times btrfs 0.50".to_owned(), true));
        assert_eq!(told[1], ("blocks.randread_4k_1: within 1 times btrfs 0.50".to_owned(), true));
    }

    #[test]
    fn synced_calls_of_the_pmem_home_are_held_against_the_kernel_and_others_against_the_pool() {
        let mut samples = Samples::default();
        for (kind, seconds, rate) in
            [(Kind::Pmem, 2.0, 200.0), (Kind::Marram, 1.0, 40.0), (Kind::Ext4, 8.0, 50.0)]
        {
            add(&mut samples, kind, ("tree.unpack", Unit::Seconds), seconds);
            add(&mut samples, kind, ("log.append", Unit::PerSecond), rate);
        }
        let told = told(&samples);
        let of = |begin: &str| {
            let found = told.iter().find(|(target, _)| target.starts_with(begin)).cloned();
            found.expect("it is judged")
        };
        let unpack = ("tree.unpack: within 1 times marram 2.00".to_owned(), false);
        assert_eq!(of("tree.unpack: within 1 times marram"), unpack);
        let append = of("log.append: within 0.3 times ext4");
        assert!(append.0.ends_with(" 0.25") && append.1, "{append:?}");
    }

    #[test]
    fn memory_counts_in_every_line_and_growth_against_the_logarithm() {
        let mut samples = Samples::default();
        let unit = Unit::MicrosecondsEach;
        add(&mut samples, Kind::Marram, ("files.stat_10000", unit), 10.0);
        add(&mut samples, Kind::Marram, ("files.stat_1000000", unit), 14.0);
        let told = told(&samples);
        assert!(told[0].0.ends_with("1.40") && told[0].1, "{told:?}");
        assert!(told[1].0.starts_with("peak memory") && !told[1].1, "{told:?}");
    }
}
