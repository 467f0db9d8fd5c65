//! The race: everyday work on our mounts and on their peers, in one run.
//!
//! Every subject stands on a preallocated image of its own over a loop device that the host reads
//! and writes directly, so that nothing is cached twice. For each repetition every group of lines
//! runs on every subject before the next repetition begins: a machine that grows slower is slow for
//! all. Another subject begins each repetition: to the first, compilers and whatever else lies on
//! the host may be in no cache. Each group has a fresh file system, which is unmounted and verified
//! by its own checker afterwards; a subject that fails is reported as failed, and the others go on.
//! What it had measured until then counts if its file system is whole. The report is written after
//! each group, so that a race that is cut off has reported what it knew.

mod group;
mod line;
mod report;
mod stage;
mod targets;
mod usage;

use super::{Arguments, GIB, interruption, machine, plot, work_folder, write_files};
pub(super) use group::Group;
use line::{Line, Outcome, Samples};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, run};
use marram_lab::setup;
use marram_lab::subject::{self, Kind, Making};
use report::Report;
use stage::Stage;
use std::path::Path;

/// All subjects of a whole race. Ours come first.
const ALL: [Kind; 16] = [
    Kind::Marram,
    Kind::MarramUring,
    Kind::MarramWriteback,
    Kind::MarramOff,
    Kind::MarramZstd,
    Kind::Ext4,
    Kind::Xfs,
    Kind::Btrfs,
    Kind::BtrfsZstd,
    Kind::BtrfsLzo,
    Kind::ZfsFuse,
    Kind::ZfsFuseGzip,
    Kind::Passthrough,
    Kind::OwnPassthrough,
    Kind::OwnPassthroughUring,
    Kind::Tmpfs,
];

/// The subjects of a race of images.
const IMAGES: [Kind; 11] = [
    Kind::ImageSoft,
    Kind::ImageJournal,
    Kind::ImageJournalFull,
    Kind::ImageJournalWriteback,
    Kind::ImageAsync,
    Kind::Fuse2fs,
    Kind::Ext2,
    Kind::Ext3,
    Kind::Ext3Journal,
    Kind::Ext4,
    Kind::OwnPassthrough,
];

/// Repetitions of a race of images.
const IMAGE_REPETITIONS: usize = 1;

/// Says whether the kernel offers io_uring to FUSE servers.
const URING_PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Repetitions of a whole race: fewer say little of how far the numbers reach.
const REPETITIONS: usize = 5;

/// Races the groups and writes the report, after each group anew.
pub(super) fn run_all(arguments: &Arguments, groups: &[Group]) -> Result<()> {
    setup::install(&setup::RACE_PACKAGES)?;
    // What was just installed is written back now, and not beside the first line.
    run(&mut command(&["sync"]))?;
    let race = Race::prepare(arguments, groups)?;
    let mut samples = Samples::default();
    for repetition in 1..=race.repetitions {
        race.repeat(repetition, &mut samples)?;
    }
    let all = race.repetitions.to_string();
    race.write(&all, &samples)?;
    println!("{}", race.report(&all, &samples)?.page());
    match samples.failures.len() {
        0 => Ok(()),
        count => fail(format!("{count} failures, listed at the head of the report")),
    }
}

/// A race that is under way.
struct Race<'run> {
    arguments: &'run Arguments,
    groups: &'run [Group],
    kinds: Vec<Kind>,
    repetitions: usize,
}

impl<'run> Race<'run> {
    fn prepare(arguments: &'run Arguments, groups: &'run [Group]) -> Result<Self> {
        let is_of_images = groups == [Group::Images];
        if !is_of_images && groups.contains(&Group::Images) {
            return fail("images race against others: name them alone, `--workloads images`");
        }
        let (all, whole) = match is_of_images {
            true => (&IMAGES[..], IMAGE_REPETITIONS),
            false => (&ALL[..], REPETITIONS),
        };
        let kinds = if arguments.subjects.is_empty() { all } else { &arguments.subjects };
        let repetitions = arguments.repetitions.unwrap_or(if arguments.quick { 1 } else { whole });
        Ok(Self { arguments, groups, kinds: offered(kinds), repetitions })
    }

    /// Every group on every subject, once.
    fn repeat(&self, repetition: usize, samples: &mut Samples) -> Result<()> {
        for group in self.groups {
            let so_far = format!("{repetition} of {}, until {}", self.repetitions, group.name());
            for kind in &turned(&self.kinds, repetition) {
                let (name, kind_name) = (group.name(), kind.name());
                println!("{name} on {kind_name}: {repetition} of {}", self.repetitions);
                let ended = self.one(*group, *kind, samples);
                if interruption::is_asked() {
                    let reached = format!("ended in {repetition} of {}, {name}", self.repetitions);
                    self.write(&reached, samples)?;
                    return interruption::check();
                }
                if let Err(failure) = ended {
                    println!("  FAILED: {failure}");
                    let told = format!("{name} on {kind_name}, repetition {repetition}: {failure}");
                    samples.failures.push(told);
                }
            }
            self.write(&so_far, samples)?;
        }
        Ok(())
    }

    /// One group on one subject: made, raced, verified, and taken away.
    fn one(&self, group: Group, kind: Kind, samples: &mut Samples) -> Result<()> {
        let work = work_folder(self.arguments)?;
        let folder = reachable_folder(&work)?;
        let host = reachable_folder(&work)?;
        let mut mount_words: Vec<String> = ["-o", "allow_other"].map(String::from).into();
        mount_words.extend(super::transport_words(kind));
        let making = Making {
            preallocate: kind != Kind::Tmpfs,
            on_direct_loop: true,
            create_words: self.arguments.create_words.clone(),
            mount_words,
            files_max: group.files_max(self.arguments.quick),
            ..Making::sized(group.image_bytes(self.arguments.quick))
        };
        let mut subject = subject::make(kind, folder.path(), &making)?;
        let scale = (group.name(), self.arguments.quick);
        let mut stage = Stage::new(subject.as_mut(), scale, host.path());
        let raced = group.run(&mut stage);
        let outcomes: Vec<(Line, Outcome)> = stage.into_outcomes();
        let ended = subject.unmount();
        let ended = ended.and_then(|()| subject.check().context(|| "not whole afterwards"));
        if ended.is_ok() {
            for (line, outcome) in outcomes {
                samples.add(kind, line, outcome);
            }
        }
        raced.and(ended)?;
        drop(subject);
        drop(folder);
        // The host writes the last image back now, and not while the next subject is measured.
        run(&mut command(&["sync"]))
    }

    fn report<'samples>(
        &'samples self,
        repetitions: &str,
        samples: &'samples Samples,
    ) -> Result<Report<'samples>> {
        Ok(Report { header: self.header(repetitions)?, kinds: &self.kinds, samples })
    }

    fn write(&self, repetitions: &str, samples: &Samples) -> Result<()> {
        let report = self.report(repetitions, samples)?;
        if self.arguments.dry {
            return Ok(());
        }
        let svg = plot::draw(&report.panels());
        let usual = if self.groups == [Group::Images] { "race-images" } else { "race" };
        let name = self.arguments.name_or(usual);
        write_files(&name, &report.page(), &report.json()?, &svg)
    }

    /// What the run was: machine, kernel, commit, groups.
    fn header(&self, repetitions: &str) -> Result<Vec<(String, String)>> {
        let names: Vec<&str> = self.groups.iter().map(|group| group.name()).collect();
        let scale = if self.arguments.quick { "quick: too small to judge by" } else { "whole" };
        let mut rows = machine()?;
        let more = [
            ("groups", names.join(", ")),
            ("scale", scale.to_owned()),
            ("repetitions", format!("{repetitions}, interleaved")),
            ("image", format!("{}, preallocated, fresh for each group", self.sizes())),
            ("device", "a loop device with direct I/O under every subject but tmpfs".to_owned()),
            ("host of the images", super::sync::host()?),
        ];
        rows.extend(more.map(|(name, value)| (name.to_owned(), value)));
        Ok(rows)
    }

    fn sizes(&self) -> String {
        let sizes = self.groups.iter().map(|group| group.image_bytes(self.arguments.quick) / GIB);
        let (least, most) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
        if least == most { format!("{most} GiB") } else { format!("{least} to {most} GiB") }
    }
}

/// The same in the same circle, begun by another in each repetition (from 1 on). Which is first is
/// spread over all of them however few repetitions there are.
fn turned(kinds: &[Kind], repetition: usize) -> Vec<Kind> {
    let step = (kinds.len() / REPETITIONS).max(1);
    let mut turned = kinds.to_vec();
    turned.rotate_left((repetition - 1) * step % kinds.len().max(1));
    turned
}

/// The subjects that this kernel can have; which it cannot is said.
fn offered(kinds: &[Kind]) -> Vec<Kind> {
    let has_io_uring =
        std::fs::read_to_string(URING_PARAMETER).is_ok_and(|value| value.trim() == "Y");
    if !has_io_uring && kinds.iter().any(|kind| kind.wants_io_uring()) {
        println!("io_uring does not race: the kernel offers it with Y in {URING_PARAMETER}");
    }
    kinds.iter().copied().filter(|kind| has_io_uring || !kind.wants_io_uring()).collect()
}

/// An empty folder that other users get through: a database server runs as one.
fn reachable_folder(work: &Path) -> Result<tempfile::TempDir> {
    let reachable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    Ok(tempfile::Builder::new().prefix("race").permissions(reachable).tempdir_in(work)?)
}

#[cfg(test)]
mod tests {
    use super::{ALL, REPETITIONS, turned};

    #[test]
    fn every_repetition_is_begun_by_another_and_has_all() {
        let firsts: Vec<&str> = (1..=REPETITIONS).map(|at| turned(&ALL, at)[0].name()).collect();
        let distinct: std::collections::BTreeSet<&&str> = firsts.iter().collect();
        assert_eq!((firsts[0], distinct.len()), (ALL[0].name(), REPETITIONS));
        let two = &ALL[..2];
        assert_eq!(turned(two, 1), two);
        assert_eq!(turned(two, 2), [ALL[1], ALL[0]]);
        assert!(turned(&[], 3).is_empty());
    }
}
