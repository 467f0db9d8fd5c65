//! `marram check`: the offline verifier, which shares no tree or commit code with the engine.
//!
//! It only reads, and wants nobody to write meanwhile. Exits with 0 when nothing is wrong (there
//! may be warnings), with 3 when something is, and with 1 when the pool could not be checked.

use crate::arguments::CheckArguments;
use crate::engine::{self, VerifiedCluster, pool_lock};
use crate::error::{Error, Kind, Result};
use crate::names;
use crate::output::{Output, Progress, size_text};
use crate::paths::resolved;
use marram_check::{CheckOptions, Finding, Summary};
use marram_device::{Device, FileDevice, Lock};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct CheckReport {
    #[serde(serialize_with = "names::serialize")]
    pool: PathBuf,
    pool_id: String,
    label: String,
    clean: bool,
    group: u64,
    datasets: u64,
    snapshots: u64,
    files: u64,
    directories: u64,
    nodes: u64,
    blocks: u64,
    used_bytes: u64,
    verified_bytes: u64,
    log_frames: u64,
    log_changes: u64,
    warnings: u64,
    errors: u64,
    fatal: u64,
    codes: BTreeMap<&'static str, u64>,
    findings: Vec<FindingRow>,
}

#[derive(Serialize)]
struct FindingRow {
    severity: String,
    code: &'static str,
    meaning: &'static str,
    detail: String,
    place: String,
    dataset: Option<String>,
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    inode: Option<u64>,
    offset_bytes: Option<u64>,
    advice: &'static str,
    #[serde(skip)]
    text: String,
}

pub(super) fn run(arguments: &CheckArguments, output: &Output) -> Result<u8> {
    if super::stream::is_stream(&arguments.pool) {
        super::stream::check(&arguments.pool, output)?;
        return Ok(0);
    }
    if let Some(url) = engine::server_url(&arguments.pool)? {
        return cluster(&url, arguments, output);
    }
    let path = engine::path_of(&arguments.pool);
    if engine::is_cluster(path) || engine::sqlite_file(&arguments.pool).is_some() {
        return cluster_in_file(&resolved(path)?, arguments, output);
    }
    let options = CheckOptions { read_data: arguments.data, snapshots: !arguments.no_snapshots };
    let mut findings = Vec::new();
    let progress = Progress::begin(output, format!("checking {}", arguments.pool.display()));
    let summary = verify_counted(&arguments.pool, &options, &progress, &mut |finding| {
        findings.push(row(&finding));
    })?;
    drop(progress);
    let report = report(&arguments.pool, summary, findings);
    if report.clean && arguments.data && !arguments.no_snapshots {
        engine::forget_damage(&report.pool_id);
    }
    output.print(&report, || text(&report));
    let well = report.errors == 0 && report.fatal == 0;
    Ok(if well { 0 } else { Kind::Partial.exit_status() })
}

#[derive(Serialize)]
struct ClusterReport {
    #[serde(serialize_with = "names::serialize")]
    home: PathBuf,
    clean: bool,
    entries: u64,
    datasets: u64,
    items: u64,
    blocks: u64,
    verified_bytes: u64,
    errors: u64,
    findings: Vec<String>,
    notes: Vec<String>,
}

/// Checks a home in a file.
fn cluster_in_file(path: &Path, arguments: &CheckArguments, output: &Output) -> Result<u8> {
    if !engine::is_cluster(path) {
        return Err(Error::failed(format!("{} is no cluster home", path.display())));
    }
    cluster(path, arguments, output)
}

/// Checks a home in a database.
fn cluster(path: &Path, arguments: &CheckArguments, output: &Output) -> Result<u8> {
    let verified = engine::verify_cluster(path, !arguments.no_snapshots)?;
    let VerifiedCluster { findings, findings_count, notes, counts, .. } = verified;
    let report = ClusterReport {
        home: path.to_owned(),
        clean: findings_count == 0,
        entries: counts.entries,
        datasets: counts.datasets,
        items: counts.items,
        blocks: counts.blocks,
        verified_bytes: counts.content_bytes,
        errors: findings_count,
        findings,
        notes,
    };
    output.print(&report, || cluster_text(&report));
    Ok(if report.clean { 0 } else { Kind::Partial.exit_status() })
}

fn cluster_text(report: &ClusterReport) -> String {
    let mut text = String::new();
    for line in &report.findings {
        text.push_str(&format!("error: {}\n", names::printable(line.clone())));
    }
    for line in &report.notes {
        text.push_str(&format!("note: {}\n", names::printable(line.clone())));
    }
    let ClusterReport { entries, datasets, items, blocks, errors, .. } = report;
    let size = size_text(report.verified_bytes, false);
    text.push_str(&format!(
        "{datasets} datasets and snapshots, {items} items, {blocks} blocks ({size}), \
         {entries} entries of the log\n"
    ));
    text.push_str(&match errors {
        0 => "no errors\n".to_owned(),
        count => format!("{count} errors\n"),
    });
    text
}

/// What is checked, and nobody else's meanwhile.
struct Held {
    device: Box<dyn Device>,
    _lock: Option<Lock>,
}

impl Held {
    /// A DAX device has its own lock.
    fn take(path: &Path) -> Result<Held> {
        if let Some(image) = engine::on_dax_device(path)? {
            return Ok(Held { device: Box::new(image), _lock: None });
        }
        let device = FileDevice::open(path, true)?;
        let lock = pool_lock::take(&device)?;
        Ok(Held { device: Box::new(device), _lock: Some(lock) })
    }
}

/// Checks the pool at `path`, and hands out what is wrong with it.
///
/// # Errors
/// When it is none, somebody has it, or it cannot be read at all.
pub(crate) fn verify(
    path: &Path,
    options: &CheckOptions,
    report: &mut dyn FnMut(Finding),
) -> Result<Summary> {
    let held = Held::take(path)?;
    judged(path, looked_at(path, &*held.device, options, report))
}

/// The same, with the bytes that are read counted.
fn verify_counted(
    path: &Path,
    options: &CheckOptions,
    progress: &Progress,
    report: &mut dyn FnMut(Finding),
) -> Result<Summary> {
    let held = Held::take(path)?;
    let counted = Counted { device: &*held.device, progress };
    judged(path, looked_at(path, &counted, options, report))
}

/// What a check of a pool or of a pmem image has found.
fn looked_at(
    path: &Path,
    device: &dyn Device,
    options: &CheckOptions,
    report: &mut dyn FnMut(Finding),
) -> std::result::Result<Summary, marram_check::Error> {
    match engine::pmem_host(path) {
        Some(host) => marram_check::check_image(device, options, Some(host), report),
        None => marram_check::check(device, options, report),
    }
}

fn judged(
    path: &Path,
    checked: std::result::Result<Summary, marram_check::Error>,
) -> Result<Summary> {
    checked.map_err(|error| match error {
        marram_check::Error::NoPool { .. } => match engine::probe(path) {
            Err(error) => error,
            Ok(None) => engine::no_pool(path),
            Ok(Some(_)) if engine::is_ext2_image(path) => {
                Error::usage(format!("{} is an ext2 or ext3 image", path.display()))
                    .hint(format!("check it with `e2fsck -fn {}`", path.display()))
            }
            Ok(Some(_)) => {
                Error::failed(format!("{}: the end of the pool is cut off", path.display()))
                    .hint("bring back the whole file or device")
            }
        },
        other => Error::failed(other.to_string()),
    })
}

/// A device of which the bytes that are read are counted.
struct Counted<'d> {
    device: &'d dyn Device,
    progress: &'d Progress,
}

impl Device for Counted<'_> {
    fn name(&self) -> String {
        self.device.name()
    }

    fn size(&self) -> marram_device::Result<u64> {
        self.device.size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> marram_device::Result<()> {
        self.device.read(offset, buffer)?;
        self.progress.advance(buffer.len() as u64);
        Ok(())
    }

    fn expect_read(&self, offset: u64, len: u64) {
        self.device.expect_read(offset, len);
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> marram_device::Result<()> {
        self.device.write(offset, buffer)
    }

    fn flush(&self) -> marram_device::Result<()> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> marram_device::Result<()> {
        self.device.discard(offset, len)
    }
}

fn row(finding: &Finding) -> FindingRow {
    let place = &finding.place;
    FindingRow {
        severity: finding.severity().to_string(),
        code: finding.code(),
        meaning: finding.kind.meaning(),
        detail: finding.detail.clone(),
        place: place.to_string(),
        dataset: place.dataset.clone(),
        path: place.path.as_deref().map(names::text),
        path_bytes: place.path.as_deref().and_then(names::lost_bytes),
        inode: place.object,
        offset_bytes: place.offset_bytes,
        advice: finding.advice(),
        text: names::printable(finding.to_string()),
    }
}

fn report(pool: &Path, summary: Summary, findings: Vec<FindingRow>) -> CheckReport {
    CheckReport {
        pool: pool.to_owned(),
        pool_id: names::hexadecimal(&summary.pool_id),
        clean: summary.is_clean(),
        label: summary.label,
        group: summary.group,
        datasets: summary.datasets,
        snapshots: summary.snapshots,
        files: summary.files,
        directories: summary.directories,
        nodes: summary.nodes,
        blocks: summary.blocks,
        used_bytes: summary.used_bytes,
        verified_bytes: summary.verified_bytes,
        log_frames: summary.log_frames,
        log_changes: summary.log_changes,
        warnings: summary.warnings,
        errors: summary.errors,
        fatal: summary.fatal,
        codes: summary.codes,
        findings,
    }
}

fn text(report: &CheckReport) -> String {
    let mut text: String =
        report.findings.iter().map(|finding| finding.text.clone() + "\n").collect();
    let verdict = match (report.clean, report.errors + report.fatal) {
        (true, _) => "clean",
        (false, 0) => "clean, with warnings",
        (false, _) => "not clean",
    };
    // The image of a pmem home has no group commits.
    let commit = match report.group {
        0 => String::new(),
        group => format!("commit {group}, "),
    };
    text.push_str(&format!(
        "{}: {verdict}\n  {commit}{} datasets, {} snapshots, {} files, {} directories\n  \
         {} nodes and {} blocks take {}; {} of content verified\n  \
         {} warnings, {} errors, {} fatal\n",
        report.pool.display(),
        report.datasets,
        report.snapshots,
        report.files,
        report.directories,
        report.nodes,
        report.blocks,
        size_text(report.used_bytes, false),
        size_text(report.verified_bytes, false),
        report.warnings,
        report.errors,
        report.fatal
    ));
    if report.log_changes > 0 {
        text.push_str(&format!(
            "  {} changes in {} frames of the intent log wait for the next mount\n",
            report.log_changes, report.log_frames
        ));
    }
    text
}
