//! `cargo xtask bench --workloads growth`: what work on some files costs while there are ten
//! thousand of them, and up to ten million, in directories of a thousand.
//!
//! The files are spread over all that there are, so nothing is near by chance; cold is after a
//! fresh mount with the machine's caches dropped. Among few files one read of the device brings
//! many of those that are asked for, so what is cold grows faster than the tree is deep.

use super::stages::Stages;
use super::{Arguments, GIB, interruption, machine, work_folder, write_files};
use marram_lab::failure::{Context, Result};
use marram_lab::subject::{Making, Marram, Subject, peak_memory_bytes};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SIZES: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];
const QUICK_SIZES: [u64; 2] = [1_000, 10_000];

/// Files in each directory.
const FILES_EACH: u64 = 1_000;
/// Files that are worked on at each size, and a prime by which they are chosen.
const SAMPLE: u32 = 1_000;
const STRIDE: u64 = 1_000_003;

/// The most memory that the daemon may hold.
const PEAK_MEBIBYTES_MAX: f64 = 600.0;

/// What the target is for.
const FLAT: [&str; 5] = ["mount", "stat, cold", "create", "rename", "unlink"];

/// Makes the files, measures at each size, and writes the report.
pub(super) fn run_all(arguments: &Arguments) -> Result<()> {
    let sizes: &[u64] = if arguments.quick { &QUICK_SIZES } else { &SIZES };
    let folder = tempfile::Builder::new().prefix("growth").tempdir_in(work_folder(arguments)?)?;
    let image_bytes = if arguments.quick { GIB } else { 6 * GIB };
    let making = Making { preallocate: true, on_direct_loop: true, ..Making::sized(image_bytes) };
    let mut marram = Marram::make_on_loop_device(folder.path(), &making)?;
    let mut stages = Stages::new("Work on a file beside many others", "files", &FLAT);
    let (mut made, mut peak) = (0, 0.0_f64);
    for size in sizes {
        stages.begin_at(*size);
        let began = Instant::now();
        fill(marram.root(), made..*size)?;
        marram.sync()?;
        let each = began.elapsed().as_secs_f64() * 1e6 / (*size - made) as f64;
        stages.note("made since the size before, sync included, each", each, "us");
        if let Some(daemon) = marram.daemon() {
            let mebibytes = peak_memory_bytes(daemon)? as f64 / f64::from(1 << 20);
            stages.note("the daemon's peak of memory meanwhile", mebibytes, "MiB");
            peak = peak.max(mebibytes);
        }
        made = *size;
        measure(&mut marram, &mut stages, made)?;
    }
    stages.bound("the daemon's peak of memory, MiB", peak, PEAK_MEBIBYTES_MAX);
    marram.unmount()?;
    marram.check()?;
    let header = machine()?;
    let page = stages.page(&header);
    println!("\n{page}");
    if arguments.dry {
        return Ok(());
    }
    write_files(&arguments.name_or("growth"), &page, &stages.json(&header)?, &stages.plots())
}

fn path(root: &Path, number: u64) -> PathBuf {
    root.join(format!("{}/file-{number}", number / FILES_EACH))
}

fn fill(root: &Path, numbers: std::ops::Range<u64>) -> Result<()> {
    for number in numbers {
        if number % FILES_EACH == 0 {
            interruption::check()?;
            std::fs::create_dir(root.join((number / FILES_EACH).to_string()))?;
        }
        let path = path(root, number);
        File::create_new(&path).context(|| path.display())?;
    }
    Ok(())
}

/// Some of the files, spread over all: mounted anew, asked for, renamed and back, joined by others.
fn measure(marram: &mut Marram, stages: &mut Stages, files: u64) -> Result<()> {
    marram.unmount()?;
    std::fs::write("/proc/sys/vm/drop_caches", "3").context(|| "cannot drop the caches")?;
    let began = Instant::now();
    marram.mount()?;
    stages.tell("mount", began.elapsed());
    let root = marram.root().to_owned();
    let sample = |index: u64| path(&root, index.wrapping_mul(STRIDE) % files);
    let beside = |index: u64, word: &str| sample(index).with_extension(word);
    let stat = |index| Ok(std::fs::symlink_metadata(sample(index)).map(drop)?);
    stages.tell("stat, cold", each(stat)?);
    stages.tell("stat, warm", each(stat)?);
    let create = |index| Ok(File::create_new(beside(index, "new")).map(drop)?);
    stages.tell("create", each(create)?);
    let rename = |index| Ok(std::fs::rename(beside(index, "new"), beside(index, "renamed"))?);
    stages.tell("rename", each(rename)?);
    let unlink = |index| Ok(std::fs::remove_file(beside(index, "renamed"))?);
    stages.tell("unlink", each(unlink)?);
    let began = Instant::now();
    marram.sync()?;
    stages.tell("sync of these", began.elapsed());
    Ok(())
}

/// How long it takes for each of the sample.
fn each(work: impl Fn(u64) -> Result<()>) -> Result<Duration> {
    let began = Instant::now();
    (0..u64::from(SAMPLE)).try_for_each(work)?;
    Ok(began.elapsed() / SAMPLE)
}
