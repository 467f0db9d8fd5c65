//! A directory with a million entries: made, listed, looked up, removed; and the daemon's memory
//! does not follow the number of files.

use super::{GIB, Setting, step};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::subject::{Subject, peak_memory_bytes};
use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::time::Instant;

/// More than the daemon may ever hold with its default cache.
const PEAK_BYTES_MAX: u64 = 600 << 20;

/// A prime, so that names are visited in an order that is not the one of their making.
const STRIDE: u64 = 7_919;

/// All of it, with a remount in between.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    let count = setting.scaled(1_000_000, 20_000);
    let mut subject = setting.subject(8 * GIB)?;
    let folder = subject.root().join("many");
    std::fs::create_dir(&folder)?;
    timed(&format!("made {count} files"), || {
        (0..count).try_for_each(|number| {
            let path = folder.join(name(number));
            File::create_new(&path).map(drop).context(|| path.display())
        })
    })?;
    expect_all(&folder, count)?;
    peak(subject.as_ref())?;
    timed("remounted", || subject.remount())?;
    expect_all(&folder, count)?;
    timed("looked up every file", || {
        (0..count).try_for_each(|number| {
            let path = folder.join(name(number.wrapping_mul(STRIDE) % count));
            std::fs::symlink_metadata(&path).map(|_| ()).context(|| path.display())
        })
    })?;
    timed("removed every file", || {
        (0..count).try_for_each(|number| Ok(std::fs::remove_file(folder.join(name(number)))?))
    })?;
    std::fs::remove_dir(&folder).context(|| "the empty directory")?;
    peak(subject.as_ref())?;
    timed("unmounted", || subject.unmount())?;
    subject.check()
}

fn name(number: u64) -> String {
    format!("entry number {number}")
}

fn timed(what: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    work()?;
    step(&format!("{what} in {:.1} s", start.elapsed().as_secs_f64()));
    Ok(())
}

/// The listing has every name once.
fn expect_all(folder: &Path, count: u64) -> Result<()> {
    let mut names = HashSet::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        if names.contains(&name) {
            return fail(format!("{name:?} is listed twice"));
        }
        names.insert(name);
    }
    let listed = names.len() as u64;
    if listed == count { Ok(()) } else { fail(format!("{listed} listed, {count} made")) }
}

fn peak(subject: &dyn Subject) -> Result<()> {
    let Some(daemon) = subject.daemon() else { return Ok(()) };
    let bytes = peak_memory_bytes(daemon)?;
    step(&format!("the daemon held at most {} MiB", bytes >> 20));
    if bytes < PEAK_BYTES_MAX { Ok(()) } else { fail("the daemon took too much memory") }
}
