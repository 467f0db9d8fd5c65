//! What is done on each subject.

use super::Scale;
use super::sample::Measure;
use crate::failure::{Result, fail};
use crate::process::{command, output, run};
use crate::real::{LinuxTree, linux_tree};
use crate::subject::{Subject, peak_memory_bytes};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Instant;

type Measured = Vec<(Measure, f64)>;

const MIB: f64 = 1_048_576.0;

/// Everything, in an order in which each step finds what it needs.
pub(super) fn measure(subject: &mut dyn Subject, scale: &Scale) -> Result<Measured> {
    let linux = linux_tree(scale.is_quick)?;
    let mut measured = tree(subject, &linux)?;
    measured.extend(blocks(subject, scale)?);
    if let Some(daemon) = subject.daemon() {
        measured.push((Measure::PeakMemory, peak_memory_bytes(daemon)? as f64 / MIB));
    }
    Ok(measured)
}

fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// For work that leaves everything as it was.
fn median_of_three(work: impl Fn() -> Result<()>) -> Result<f64> {
    let mut times = [seconds(&work)?, seconds(&work)?, seconds(&work)?];
    times.sort_by(f64::total_cmp);
    Ok(times[1])
}

/// The Linux tree: unpack, read, `git status`, remove.
fn tree(subject: &mut dyn Subject, linux: &LinuxTree) -> Result<Measured> {
    let mut measured = Measured::new();
    subject.sync()?;
    let empty_bytes = subject.used_bytes()?;
    let place = subject.root().join("tree");
    std::fs::create_dir(&place)?;
    let unpack = || {
        run(command(&["tar", "-xPf"]).arg(&linux.archive).arg("-C").arg(&place))?;
        subject.sync()
    };
    measured.push((Measure::Unpack, seconds(unpack)?));
    let used_bytes = subject.used_bytes()?.saturating_sub(empty_bytes);
    measured.push((Measure::SpaceUsed, used_bytes as f64 / MIB));
    read_all(&place)?;
    measured.push((Measure::ReadWarm, median_of_three(|| read_all(&place))?));
    subject.remount()?;
    measured.push((Measure::ReadCold, seconds(|| read_all(&place))?));
    let top = place.join(linux.top);
    copy_repository(linux, &top)?;
    git_status(&top)?;
    measured.push((Measure::GitStatus, median_of_three(|| git_status(&top))?));
    let remove = || {
        run(command(&["rm", "-rf"]).arg(&place))?;
        subject.sync()
    };
    measured.push((Measure::Remove, seconds(remove)?));
    Ok(measured)
}

fn read_all(place: &Path) -> Result<()> {
    let script = "find . -type f -print0 | xargs -0 cat > /dev/null";
    run(command(&["bash", "-o", "pipefail", "-c", script]).current_dir(place))
}

/// Gives the tree the history that was made once on the host.
fn copy_repository(linux: &LinuxTree, top: &Path) -> Result<()> {
    let repository = repository(linux)?;
    run(command(&["cp", "-r"]).arg(repository).arg(top.join(".git")))
}

/// A repository with one commit of the whole reference tree, kept beside it.
fn repository(linux: &LinuxTree) -> Result<PathBuf> {
    let kept = linux.archive.with_file_name("repository.git");
    if kept.is_dir() {
        return Ok(kept);
    }
    let making = linux.archive.with_file_name("making.git");
    run(command(&["rm", "-rf"]).arg(&making))?;
    run(git(&linux.reference).env("GIT_DIR", &making).args(["init", "--quiet"]))?;
    let tree = |words: &[&str]| {
        let mut git = git(&linux.reference);
        run(git.env("GIT_DIR", &making).env("GIT_WORK_TREE", &linux.reference).args(words))
    };
    tree(&["add", "--all", "--force"])?;
    tree(&["commit", "--quiet", "-m", "Tree"])?;
    // It was made away from its tree, and will be used inside one.
    run(command(&["git", "config", "--file"])
        .arg(making.join("config"))
        .args(["core.bare", "false"]))?;
    std::fs::rename(&making, &kept)?;
    Ok(kept)
}

fn git(folder: &Path) -> std::process::Command {
    let mut git = command(&["git", "-c", "user.name=Marram", "-c", "user.email=marram@localhost"]);
    git.args(["-c", "gc.auto=0", "-c", "safe.directory=*"]);
    git.current_dir(folder);
    git
}

fn git_status(top: &Path) -> Result<()> {
    let said = output(git(top).args(["status", "--porcelain"]))?;
    if said.stdout.is_empty() { Ok(()) } else { fail("git status sees changes") }
}

/// One large file: sequential and random, write and read.
fn blocks(subject: &mut dyn Subject, scale: &Scale) -> Result<Measured> {
    let mut measured = Measured::new();
    let jobs = [
        (Measure::SequentialWrite, "write", "1M", "bw_bytes"),
        (Measure::SequentialRead, "read", "1M", "bw_bytes"),
        (Measure::RandomWrite, "randwrite", "4k", "iops"),
        (Measure::RandomRead, "randread", "4k", "iops"),
    ];
    for (measure, pattern, block, field) in jobs {
        let value = fio(subject.root(), scale, pattern, block, field)?;
        let divisor = if field == "bw_bytes" { MIB } else { 1.0 };
        measured.push((measure, value / divisor));
    }
    Ok(measured)
}

fn fio(folder: &Path, scale: &Scale, pattern: &str, block: &str, field: &str) -> Result<f64> {
    let mut fio = command(&["fio", "--name=file", "--filename=file.data", "--ioengine=psync"]);
    fio.current_dir(folder).args(["--output-format=json", "--end_fsync=1", "--randrepeat=1"]);
    // Half compressible, as files are; random data would only measure that it is not compressed.
    fio.args(["--buffer_compress_percentage=50", "--refill_buffers", "--invalidate=0"]);
    fio.arg(format!("--rw={pattern}")).arg(format!("--bs={block}"));
    fio.arg(format!("--size={}", scale.fio_bytes));
    if block == "4k" {
        fio.arg(format!("--io_size={}", scale.fio_bytes / 4));
    }
    let said = output(&mut fio)?;
    let words = String::from_utf8_lossy(&said.stdout);
    // fio may warn before the report.
    let report: Value = serde_json::from_str(words.trim_start_matches(|letter| letter != '{'))?;
    let direction = if pattern.ends_with("write") { "write" } else { "read" };
    match report["jobs"][0][direction][field].as_f64() {
        Some(value) if value > 0.0 => Ok(value),
        _ => fail(format!("fio told no {direction} {field}")),
    }
}
