//! Images that are copied while the kernel has them mounted and at work: each copy is one moment,
//! as a power cut leaves it, with a journal to be replayed. What we read of it is what the kernel
//! reads.
//!
//! A clone of a file on XFS is one moment of it: the host holds writes to it back meanwhile.

use super::super::tree::compare;
use super::super::{Setting, step};
use super::load::Load;
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, output, require, run};
use marram_lab::project;
use marram_lab::seed::Seed;
use marram_lab::subject::MountPoint;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The least that XFS takes, and the images on it.
const HOST_BYTES: u64 = 1 << 30;
const IMAGE_BYTES: u64 = 128 << 20;
/// Copies are made so long after one another, in milliseconds.
const DELAY_MS: (u64, u64) = (50, 400);
/// Calls of the load, which ends with the last copy.
const CALLS: u64 = 100_000_000;

/// What the kernel mounts, and the words of our mount of a copy.
const FORMATS: [(&str, &str); 3] =
    [("ext3", "ro"), ("ext3", "consistency=journal"), ("ext4", "ro")];

/// All of them.
pub(crate) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    require(&[("mkfs.xfs", "xfsprogs"), ("mke2fs", "e2fsprogs"), ("e2fsck", "e2fsprogs")])?;
    let file = setting.folder.join("xfs");
    std::fs::File::create_new(&file)?.set_len(HOST_BYTES)?;
    run(command(&["mkfs.xfs", "-q", "-m", "reflink=1"]).arg(&file))?;
    let host = MountPoint::make(setting.folder.join("host"))?;
    run(command(&["mount", "-o", "loop"]).arg(&file).arg(host.path()))?;
    let mut seed = Seed::new(setting.seed);
    for (number, (format, words)) in FORMATS.into_iter().enumerate() {
        let folder = host.path().join(number.to_string());
        std::fs::create_dir(&folder)?;
        let image = Copied { setting, format, words, folder };
        image.run(seed.draw()).context(|| format!("{format}, `-o {words}`"))?;
        std::fs::remove_dir_all(&image.folder)?;
    }
    Ok(())
}

/// An image that is copied.
struct Copied<'s> {
    setting: &'s Setting,
    format: &'static str,
    words: &'static str,
    /// On XFS.
    folder: PathBuf,
}

impl Copied<'_> {
    fn run(&self, seed: u64) -> Result<()> {
        let image = self.folder.join("image");
        std::fs::File::create_new(&image)?.set_len(IMAGE_BYTES)?;
        run(command(&["mke2fs", "-q", "-F", "-t", self.format]).arg(&image))?;
        let copies = self.copies(&image, seed)?;
        let (mut entries, mut replayed) = (0, 0);
        for copy in &copies {
            replayed += u64::from(needs_replay(copy)?);
            entries += self.compare(copy).context(|| copy.display())?;
        }
        let count = copies.len();
        if replayed == 0 || entries == 0 {
            return fail(format!("{replayed} of {count} copies had a journal to be replayed"));
        }
        step(&format!(
            "{}, `-o {}`: {count} copies, {replayed} with a journal to be replayed, {entries} \
             entries the same",
            self.format, self.words
        ));
        Ok(())
    }

    /// Copies the image while the kernel works in it.
    fn copies(&self, image: &Path, seed: u64) -> Result<Vec<PathBuf>> {
        let point = MountPoint::make(self.setting.folder.join("kernel"))?;
        let mut mount = command(&["mount", "-t", self.format, "-o", "loop,commit=1"]);
        run(mount.arg(image).arg(point.path()))?;
        let load = Load { root: point.path().to_owned(), seed, calls: CALLS };
        let (is_over, mut seed) = (AtomicBool::new(false), Seed::new(seed));
        let copies = std::thread::scope(|threads| {
            let working = threads.spawn(|| load.run(&is_over));
            let copies = (0..self.setting.scaled(30, 3)).map(|number| {
                std::thread::sleep(Duration::from_millis(seed.between(DELAY_MS.0, DELAY_MS.1)));
                let copy = self.folder.join(format!("copy-{number}"));
                clone(image, &copy)?;
                Ok(copy)
            });
            let copies: Result<Vec<PathBuf>> = copies.collect();
            is_over.store(true, Ordering::SeqCst);
            let worked = working.join().unwrap_or_else(|_| fail("the load panicked"));
            worked.and(copies)
        })?;
        point.unmount()?;
        Ok(copies)
    }

    /// What we read of a copy, beside what the kernel reads of another copy of it.
    fn compare(&self, copy: &Path) -> Result<u64> {
        let theirs = self.folder.join("theirs");
        clone(copy, &theirs)?;
        let kernel = MountPoint::make(self.setting.folder.join("kernel"))?;
        run(command(&["mount", "-t", self.format, "-o", "loop"]).arg(&theirs).arg(kernel.path()))?;
        let before = std::fs::read(copy)?;
        let ours = MountPoint::make(self.setting.folder.join("ours"))?;
        let mut mount = marram("mount")?;
        run(mount.args(["-o", self.words]).arg(copy).arg(ours.path()))?;
        let compared = compare(kernel.path(), ours.path());
        run(marram("unmount")?.arg(ours.path()))?;
        kernel.unmount()?;
        std::fs::remove_file(&theirs)?;
        if self.words == "ro" && std::fs::read(copy)? != before {
            return fail("a mount that only reads has written");
        }
        if self.words != "ro" {
            output(command(&["e2fsck", "-fn"]).arg(copy))?;
        }
        compared.map(|compared| compared.entries)
    }
}

fn marram(verb: &str) -> Result<Command> {
    let mut marram = Command::new(project::release_binary()?);
    marram.arg(verb).stdin(std::process::Stdio::null());
    Ok(marram)
}

/// One moment of a file.
fn clone(from: &Path, to: &Path) -> Result<()> {
    run(command(&["cp", "--reflink=always"]).arg(from).arg(to))
}

/// Whether an image says that its journal is to be replayed.
fn needs_replay(image: &Path) -> Result<bool> {
    const INCOMPAT_AT: u64 = 1024 + 96;
    const RECOVER: u8 = 4;
    let mut byte = [0];
    std::os::unix::fs::FileExt::read_exact_at(
        &std::fs::File::open(image)?,
        &mut byte,
        INCOMPAT_AT,
    )?;
    Ok(byte[0] & RECOVER != 0)
}
