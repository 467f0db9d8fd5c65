//! rsync with everything: `-aHAX --checksum` of a system's own `/usr`, in and back.

use super::tree::compare;
use super::{GIB, Setting, step};
use marram_lab::failure::{Result, fail};
use marram_lab::process::{command, require, run, text};
use marram_lab::subject::{Making, make};
use std::path::Path;

/// What the short form takes: programs with setuid, links, and many small files.
const SHORT: [&str; 2] = ["/usr/sbin", "/usr/share/perl"];

/// In; the same by the bytes of each file, and after a remount by rsync's checksums; back; the same
/// by checksums. Names, modes, owners, times, links, ACLs and attributes are compared each time.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    require(&[("rsync", "rsync")])?;
    let sources: &[&str] = if setting.is_short { &SHORT } else { &["/usr"] };
    let mut making = Making::sized(20 * GIB);
    if setting.kind.is_marram() {
        making.mount_words = ["-o", "suid,dev"].map(String::from).into();
    }
    let mut subject = make(setting.kind, &setting.folder.join("subject"), &making)?;
    let (there, back) = (subject.root().join("there"), setting.folder.join("back"));
    for source in sources {
        let (there, back) = (there.join(&source[1..]), back.join(&source[1..]));
        std::fs::create_dir_all(&there)?;
        std::fs::create_dir_all(&back)?;
        let source = Path::new(source);
        copy(source, &there)?;
        nothing_left(&[], source, &there)?;
        let compared = compare(source, &there)?;
        step(&format!("{}: there", source.display()));
        subject.remount()?;
        nothing_left(&["--checksum"], source, &there)?;
        step("the same after a remount");
        copy(&there, &back)?;
        nothing_left(&["--checksum"], source, &back)?;
        step(&format!(
            "{}: {} entries, {} MB there and back",
            source.display(),
            compared.entries,
            compared.bytes / 1_000_000
        ));
    }
    subject.unmount()?;
    subject.check()
}

fn rsync(words: &[&str], from: &Path, to: &Path) -> std::process::Command {
    let mut rsync = command(&["rsync", "-aHAX", "--numeric-ids"]);
    rsync.args(words);
    rsync.arg(format!("{}/", from.display())).arg(format!("{}/", to.display()));
    rsync
}

/// Into an empty folder, where `--checksum` would only read the source once more: rsync verifies a
/// whole file as it arrives in any case.
fn copy(from: &Path, to: &Path) -> Result<()> {
    run(&mut rsync(&[], from, to))
}

/// Fails if rsync, asked in this way, finds anything to do.
fn nothing_left(how: &[&str], from: &Path, to: &Path) -> Result<()> {
    let words = [how, &["--delete", "-ni"]].concat();
    let said = text(&mut rsync(&words, from, to))?;
    if said.is_empty() { Ok(()) } else { fail(format!("rsync would still copy:\n{said}")) }
}
