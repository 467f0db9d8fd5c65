//! `cargo xtask bench --workloads layout`: how files lie after a year of use, and what bringing
//! them together gives and costs.
//!
//! Every subject lives through the same [year] on a preallocated image, most of which is full. It
//! is looked at when the files have just been written one after the other, after the year, after
//! its own tool has brought files together while the snapshots are there, and after the same
//! without snapshots. Extents are counted by the kernel's map of each file; of ours by
//! `marram defragment --dry-run`.

mod report;
mod year;

use super::{Arguments, GIB, interruption, plot};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, run, text};
use marram_lab::subject::{self, Kind, Making, Marram, Subject};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use year::{SNAPSHOT_DAYS, SNAPSHOTS_KEPT, Year};

/// All subjects of a whole comparison.
const ALL: [Line; 5] = [
    Line { kind: Kind::Marram, name: "marram", nightly: false },
    Line { kind: Kind::Marram, name: "marram-nightly", nightly: true },
    Line { kind: Kind::Btrfs, name: "btrfs", nightly: false },
    Line { kind: Kind::Ext4, name: "ext4", nightly: false },
    Line { kind: Kind::Xfs, name: "xfs", nightly: false },
];
/// Files that are named to `filefrag` at once.
const FILES_AT_ONCE: usize = 256;
/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// Content takes so many hundredths of the image; with snapshots, fragments and metadata that is
/// about eighty after a year.
const FULL_PERCENT: u64 = 68;

/// A row of the comparison.
#[derive(Clone, Copy)]
struct Line {
    kind: Kind,
    name: &'static str,
    /// Files are brought together after every day.
    nightly: bool,
}

/// When it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Fresh,
    Aged,
    Together,
    WithoutSnapshots,
}

/// What is seen then.
#[derive(Clone, Copy, Debug)]
struct Seen {
    files: u64,
    extents: u64,
    content_bytes: u64,
    used_bytes: u64,
    total_bytes: u64,
    read_seconds: f64,
    /// The tool that came before.
    tool: Option<Tool>,
}

/// How a tool ran.
#[derive(Clone, Copy, Debug)]
struct Tool {
    took: Duration,
    is_to_the_end: bool,
}

/// A subject and what was seen of it.
struct Outcome {
    line: Line,
    seen: Vec<(Stage, Seen)>,
}

/// Runs the comparison and writes the report.
pub(super) fn run_all(arguments: &Arguments) -> Result<()> {
    let (image_bytes, days) = if arguments.quick { (GIB, 60) } else { (2 * GIB, 365) };
    let wanted =
        |line: &&Line| arguments.subjects.is_empty() || arguments.subjects.contains(&line.kind);
    let (mut outcomes, mut failures) = (Vec::new(), Vec::new());
    for line in ALL.iter().filter(wanted) {
        println!("layout {}", line.name);
        match one(*line, arguments, image_bytes, days) {
            Ok(seen) => outcomes.push(Outcome { line: *line, seen }),
            Err(failure) => failures.push((line.name, failure.to_string())),
        }
        write(arguments, &header(image_bytes, days, &failures)?, &outcomes)?;
        interruption::check()?;
    }
    println!("{}", report::page(&header(image_bytes, days, &failures)?, &outcomes));
    match failures.len() {
        0 => Ok(()),
        count => fail(format!("{count} failures, listed at the head of the report")),
    }
}

/// What the run was, and whose year did not come to its end.
fn header(
    image_bytes: u64,
    days: u64,
    failures: &[(&str, String)],
) -> Result<Vec<(String, String)>> {
    let mut header = super::machine()?;
    let image = format!("{} MiB, preallocated, loop device with direct I/O", image_bytes >> 20);
    header.push(("image".to_owned(), image));
    header.push(("days".to_owned(), days.to_string()));
    for (name, failure) in failures {
        let first = failure.lines().next().unwrap_or_default().to_owned();
        header.push((format!("FAILED {name}"), first));
    }
    Ok(header)
}

fn write(arguments: &Arguments, header: &[(String, String)], outcomes: &[Outcome]) -> Result<()> {
    if arguments.dry {
        return Ok(());
    }
    let (page, json) = (report::page(header, outcomes), report::json(header, outcomes)?);
    let svg = plot::draw(&report::panels(outcomes));
    super::write_files(&arguments.name_or("layout"), &page, &json, &svg)
}

/// One subject, made, aged, looked at, and taken away.
fn one(
    line: Line,
    arguments: &Arguments,
    image_bytes: u64,
    days: u64,
) -> Result<Vec<(Stage, Seen)>> {
    let work = super::work_folder(arguments)?;
    let folder = tempfile::Builder::new().prefix("layout").tempdir_in(&work)?;
    let mut making = Making {
        preallocate: true,
        on_direct_loop: true,
        create_words: arguments.create_words.clone(),
        mount_words: super::transport_words(line.kind),
        ..Making::sized(image_bytes)
    };
    // What the daemon does by itself would come at some moment of the year.
    making.mount_words.extend(["-o", "defragment=off"].map(String::from));
    let mut subject = Aged::make(line.kind, folder.path(), &making)?;
    if let FileSystem::Ours(marram) = &subject.file_system {
        // A snapshot that is dropped is gone, as on the peers.
        run(marram.command(&["set"]).arg(marram.root()).arg("undo=off"))?;
    }
    if line.kind == Kind::Btrfs {
        run(command(&["btrfs", "subvolume", "create"]).arg(subject.root().join("files")))?;
    } else {
        std::fs::create_dir(subject.root().join("files"))?;
    }
    let mut year = Year::begin(&subject.root().join("files"), image_bytes / 100 * FULL_PERCENT)?;
    let mut seen = Vec::new();
    seen.push((Stage::Fresh, subject.look(&year, None)?));
    for day in 1..=days {
        interruption::check()?;
        year.day().context(|| format!("day {day}"))?;
        subject.subject().sync()?;
        if line.nightly {
            subject.bring_together()?;
        }
        if day % SNAPSHOT_DAYS == 0 {
            subject.snapshot(day / SNAPSHOT_DAYS)?;
        }
    }
    seen.push((Stage::Aged, subject.look(&year, None)?));
    let tool = subject.bring_together()?;
    seen.push((Stage::Together, subject.look(&year, Some(tool))?));
    if subject.drop_snapshots(days / SNAPSHOT_DAYS)? {
        let tool = subject.bring_together()?;
        seen.push((Stage::WithoutSnapshots, subject.look(&year, Some(tool))?));
    }
    subject.subject().unmount()?;
    subject.subject().check()?;
    drop(subject);
    drop(folder);
    // The host writes the last image back now, and not while the next subject is measured.
    run(&mut command(&["sync"]))?;
    Ok(seen)
}

/// A file system with snapshots and a tool that brings files together, if it has them.
struct Aged {
    kind: Kind,
    file_system: FileSystem,
}

enum FileSystem {
    Ours(Marram),
    Peer(Box<dyn Subject>),
}

impl Aged {
    fn make(kind: Kind, folder: &Path, making: &Making) -> Result<Aged> {
        let file_system = match kind.is_marram() {
            true => FileSystem::Ours(Marram::make_as(kind, folder, making)?),
            false => FileSystem::Peer(subject::make(kind, folder, making)?),
        };
        Ok(Aged { kind, file_system })
    }

    fn subject(&mut self) -> &mut dyn Subject {
        match &mut self.file_system {
            FileSystem::Ours(marram) => marram,
            FileSystem::Peer(peer) => peer.as_mut(),
        }
    }

    fn root(&self) -> PathBuf {
        match &self.file_system {
            FileSystem::Ours(marram) => marram.root().to_owned(),
            FileSystem::Peer(peer) => peer.root().to_owned(),
        }
    }

    /// Takes a snapshot and drops one that is old enough, where there are any.
    fn snapshot(&mut self, number: u64) -> Result<()> {
        let root = self.root();
        if let FileSystem::Ours(marram) = &self.file_system {
            let at = |number| format!("{}@week-{number}", root.display());
            run(&mut marram.command(&["snapshot", &at(number)]))?;
            if number > SNAPSHOTS_KEPT {
                let old = at(number - SNAPSHOTS_KEPT);
                run(&mut marram.command(&["destroy", "snapshot", "--yes", &old]))?;
            }
        } else if self.kind == Kind::Btrfs {
            let place = |number: u64| root.join(format!("week-{number}"));
            let mut take = command(&["btrfs", "subvolume", "snapshot", "-r"]);
            run(take.arg(root.join("files")).arg(place(number)))?;
            if number > SNAPSHOTS_KEPT {
                drop_subvolume(&place(number - SNAPSHOTS_KEPT), &root)?;
            }
        }
        Ok(())
    }

    /// Drops the snapshots that are left; false where there are none.
    fn drop_snapshots(&mut self, last: u64) -> Result<bool> {
        let root = self.root();
        for number in (last + 1).saturating_sub(SNAPSHOTS_KEPT)..=last {
            match &self.file_system {
                FileSystem::Ours(marram) => {
                    let old = format!("{}@week-{number}", root.display());
                    run(&mut marram.command(&["destroy", "snapshot", "--yes", &old]))?;
                }
                FileSystem::Peer(_) if self.kind == Kind::Btrfs => {
                    drop_subvolume(&root.join(format!("week-{number}")), &root)?;
                }
                FileSystem::Peer(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Has the file system's own tool bring files together. One that does not come to its end, as
    /// it finds no space for what it stores twice, leaves the rest as it is.
    fn bring_together(&mut self) -> Result<Tool> {
        let root = self.root();
        let files = root.join("files");
        let began = Instant::now();
        let mut tool = match (&self.file_system, self.kind) {
            (FileSystem::Ours(marram), _) => marram.command(&["defragment"]),
            (_, Kind::Btrfs) => command(&["btrfs", "filesystem", "defragment", "-r"]),
            (_, Kind::Xfs) => command(&["xfs_fsr"]),
            _ => command(&["e4defrag"]),
        };
        let place = if self.kind == Kind::Xfs { &root } else { &files };
        let status = tool.arg(place).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        self.subject().sync()?;
        Ok(Tool { took: began.elapsed(), is_to_the_end: status.success() })
    }

    /// Counts extents, and reads everything after a fresh mount.
    fn look(&mut self, year: &Year, tool: Option<Tool>) -> Result<Seen> {
        interruption::check()?;
        self.subject().sync()?;
        let paths = year.paths();
        let extents = match &self.file_system {
            FileSystem::Ours(marram) => extents_of_ours(marram)?,
            FileSystem::Peer(_) => extents_of_peer(&paths)?,
        };
        self.subject().remount()?;
        std::fs::write("/proc/sys/vm/drop_caches", "3")?;
        let began = Instant::now();
        let read = read_all(&paths)?;
        let read_seconds = began.elapsed().as_secs_f64();
        if read != year.content_bytes() {
            return fail(format!("{read} bytes of {} are there", year.content_bytes()));
        }
        let space = rustix::fs::statvfs(self.root())?;
        let seen = Seen {
            files: paths.len() as u64,
            extents,
            content_bytes: read,
            used_bytes: (space.f_blocks - space.f_bfree) * space.f_frsize,
            total_bytes: space.f_blocks * space.f_frsize,
            read_seconds,
            tool,
        };
        println!("  {}", seen.shown());
        Ok(seen)
    }
}

/// Drops a snapshot and waits until its space is free. Asking for a sync wakes the thread that
/// frees it, which comes by itself only with the commit of each 30 s.
fn drop_subvolume(place: &Path, root: &Path) -> Result<()> {
    run(command(&["btrfs", "subvolume", "delete"]).arg(place))?;
    run(command(&["btrfs", "filesystem", "sync"]).arg(root))?;
    run(command(&["btrfs", "subvolume", "sync"]).arg(root))
}

fn extents_of_ours(marram: &Marram) -> Result<u64> {
    let mut look = marram.command(&["defragment", "--dry-run", "--json"]);
    let told: serde_json::Value =
        serde_json::from_str(&text(look.arg(marram.root().join("files")))?)?;
    let extents = told["result"]["extents_before"].as_u64();
    extents.ok_or_else(|| marram_lab::failure::Failure::new("marram defragment tells no extents"))
}

/// `filefrag` says `PATH: N extents found` of each file.
fn extents_of_peer(paths: &[PathBuf]) -> Result<u64> {
    let mut extents = 0;
    for some in paths.chunks(FILES_AT_ONCE) {
        let told = text(command(&["filefrag"]).args(some))?;
        let counts = told.lines().filter_map(|line| line.rsplit_once(": "));
        let counts = counts.filter_map(|(_, said)| said.split(' ').next()?.parse::<u64>().ok());
        extents += counts.sum::<u64>();
    }
    Ok(extents)
}

fn read_all(paths: &[PathBuf]) -> Result<u64> {
    let mut buffer = vec![0; READ_BYTES];
    let mut all = 0;
    for path in paths {
        let mut file = File::open(path).context(|| path.display())?;
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                read => all += read as u64,
            }
        }
    }
    Ok(all)
}

impl Seen {
    fn extents_a_file(&self) -> f64 {
        self.extents as f64 / self.files.max(1) as f64
    }

    fn extents_of_100_mib(&self) -> f64 {
        self.extents as f64 / (self.content_bytes as f64 / f64::from(100 << 20))
    }

    fn read_megabytes_a_second(&self) -> f64 {
        self.content_bytes as f64 / 1e6 / self.read_seconds
    }

    fn used_percent(&self) -> f64 {
        self.used_bytes as f64 / self.total_bytes as f64 * 100.0
    }

    fn shown(&self) -> String {
        format!(
            "{:.2} extents a file, {:.0} in 100 MiB, read {:.0} MB/s, {:.1} % in use",
            self.extents_a_file(),
            self.extents_of_100_mib(),
            self.read_megabytes_a_second(),
            self.used_percent()
        )
    }
}
