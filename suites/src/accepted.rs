//! What the kernel has accepted without asking, through shared mappings or under `writeback`, still
//! fits a pool that is full by then. More than fits is reported, once, and harms nothing else.
//!
//! What happens in which order is one program's business, so it is one in Python, which Debian has
//! anyway: Rust maps a file only by `unsafe`.

use super::{Setting, step};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, text};
use marram_lab::subject::{Making, Marram, Subject};
use std::io::Write;
use std::path::Path;

/// The program that fills and changes.
const PROGRAM: &str = include_str!("mount/accepted.py");

/// The smallest pool whose kept-back space is at its least, 8 MiB.
const POOL_BYTES: u64 = 128 << 20;

/// More than the pool keeps back for what was accepted, three times over.
const MUCH_MIB: &str = "12";

/// What was accepted is accepted before the pool is full or after, and is within what
/// `docs/semantics.md` promises or beyond.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    for (how, options) in [("map", "rw"), ("write", "writeback")] {
        fits(setting, how, options, MUCH_MIB, "before")?;
        if !setting.is_short {
            // What fills the pool under `writeback` has taken some of the room by then.
            fits(setting, how, options, if how == "map" { "3.5" } else { "2" }, "after")?;
        }
        is_told(setting, how, options)?;
    }
    Ok(())
}

fn subject(setting: &Setting, options: &str) -> Result<Marram> {
    let folder = setting.folder.join("subject");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let mut making = Making::sized(POOL_BYTES);
    making.mount_words = vec!["-o".to_owned(), options.to_owned()];
    Marram::make(&folder, &making)
}

fn fits(setting: &Setting, how: &str, options: &str, mib: &str, when: &str) -> Result<()> {
    let mut marram = subject(setting, options)?;
    let digests = change(marram.root(), &[how, mib, when, "fits"])?;
    marram.remount()?;
    for line in digests.lines() {
        let Some((name, digest)) = line.split_once(' ') else { return fail("no digest") };
        let found = text(command(&["sha256sum"]).arg(marram.root().join(name)))?;
        if !found.starts_with(digest) {
            return fail(format!("{name}: not what was accepted and synced"));
        }
    }
    step(&format!("{how} -o {options}: {mib} MiB accepted {when} the pool was full were synced"));
    marram.unmount()?;
    marram.check()
}

/// The kernel is allowed to hold back far more than has room.
fn is_told(setting: &Setting, how: &str, options: &str) -> Result<()> {
    let mut marram = subject(setting, options)?;
    let root = marram.root().to_owned();
    std::fs::write(root.join("bystander"), "untouched")?;
    allow_all(&root)?;
    change(&root, &[how, MUCH_MIB, "after", "too-much"])?;
    if std::fs::read(root.join("bystander"))? != b"untouched" {
        return fail("another file was harmed");
    }
    for entry in std::fs::read_dir(&root)? {
        let path = entry?.path();
        if path.file_name() != Some("bystander".as_ref()) {
            std::fs::remove_file(&path).context(|| path.display())?;
        }
    }
    let later = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(root.join("later"))?;
        file.write_all(&[7; 1 << 20])?;
        file.sync_all()
    };
    later().context(|| "writing after making room")?;
    step(&format!("{how} -o {options}: what had no room was told by ENOSPC, nothing else harmed"));
    marram.unmount()?;
    marram.check()
}

fn change(root: &Path, words: &[&str]) -> Result<String> {
    text(command(&["python3", "-c", PROGRAM]).arg(root).args(words))
}

/// Takes away the limit that the daemon has set on what the kernel holds back.
fn allow_all(root: &Path) -> Result<()> {
    let device = text(command(&["findmnt", "-n", "-o", "MAJ:MIN"]).arg(root))?;
    for suffix in ["", "-fuseblk"] {
        let knob = format!("/sys/class/bdi/{}{suffix}/max_ratio", device.trim());
        if Path::new(&knob).exists() {
            return Ok(std::fs::write(knob, "100")?);
        }
    }
    fail(format!("the kernel has no setting for the cache of {}", root.display()))
}
