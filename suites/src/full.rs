//! A full pool says so, keeps what it has, and takes new files once something is removed; a pool
//! that grows has the new room at once.

use super::{Setting, step};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::run;
use marram_lab::seed::Seed;
use marram_lab::subject::{Making, Marram, Subject};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
const FILE_BYTES: usize = 1 << 20;

/// Fill, delete half, fill again, twice; everything that was synced is still there.
pub(super) fn fill(setting: &Setting) -> Result<()> {
    let mut subject = setting.subject(setting.scaled(512 * MIB, 256 * MIB))?;
    let mut seed = Seed::new(setting.seed);
    let mut kept: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for round in 0..3 {
        let before = kept.len();
        fill_up(subject.root(), round, &mut seed, &mut kept)?;
        step(&format!("full with {} files of 1 MiB", kept.len()));
        if kept.len() < before + 32 {
            return fail(format!("room for only {} files more", kept.len() - before));
        }
        verify(&kept)?;
        subject.sync().context(|| "sync of a full file system")?;
        make_room(&mut kept)?;
        subject.sync().context(|| "sync after removing files")?;
    }
    subject.remount()?;
    verify(&kept)?;
    subject.unmount()?;
    subject.check()
}

/// Writes files until one fails for want of space; that one is removed.
fn fill_up(
    folder: &Path,
    round: u32,
    seed: &mut Seed,
    kept: &mut Vec<(PathBuf, Vec<u8>)>,
) -> Result<()> {
    const FILES_MAX: usize = 10_000;
    for number in 0..FILES_MAX {
        let path = folder.join(format!("{round}-{number}"));
        let content = seed.bytes(FILE_BYTES);
        match write_synced(&path, &content) {
            Ok(()) => kept.push((path, content)),
            Err(error) if error.kind() == ErrorKind::StorageFull => {
                return std::fs::remove_file(&path)
                    .or_else(|gone| match gone.kind() {
                        ErrorKind::NotFound => Ok(()),
                        _ => Err(gone),
                    })
                    .context(|| "removing a file from a full file system");
            }
            Err(error) => return fail(format!("{}: {error}, wanted ENOSPC", path.display())),
        }
    }
    fail("the file system never became full")
}

fn write_synced(path: &Path, content: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    let mut file = std::fs::File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Removes every second file. With freed space pending, the next fill starts after a moment.
fn make_room(kept: &mut Vec<(PathBuf, Vec<u8>)>) -> Result<()> {
    let mut number = 0;
    let mut failed = Ok(());
    kept.retain(|(path, _)| {
        number += 1;
        if number % 2 == 0 || failed.is_err() {
            return true;
        }
        failed = std::fs::remove_file(path).context(|| "removing a file");
        false
    });
    failed
}

fn verify(kept: &[(PathBuf, Vec<u8>)]) -> Result<()> {
    for (path, content) in kept {
        let found = std::fs::read(path).context(|| path.display())?;
        if &found != content {
            return fail(format!("{} has other content than was written", path.display()));
        }
    }
    Ok(())
}

/// A pool is filled, grown while mounted, and goes on.
pub(super) fn grow(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    let folder = setting.folder.join("subject");
    let mut marram = Marram::make(&folder, &Making::sized(256 * MIB))?;
    let mut seed = Seed::new(setting.seed);
    let mut kept = Vec::new();
    fill_up(marram.root(), 0, &mut seed, &mut kept)?;
    let before = kept.len();
    let size = (1024 * MIB).to_string();
    run(marram.command(&["grow"]).arg(marram.pool()).args(["--size", &size]))?;
    step(&format!("{before} files filled 256 MiB; grown to 1 GiB"));
    fill_up(marram.root(), 1, &mut seed, &mut kept)?;
    if kept.len() < before * 3 {
        return fail(format!("{before} files before and {} after growing", kept.len()));
    }
    verify(&kept)?;
    marram.remount()?;
    verify(&kept)?;
    marram.unmount()?;
    marram.check()
}
