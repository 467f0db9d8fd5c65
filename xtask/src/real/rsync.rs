//! rsync with everything: `-aHAX --checksum` of a system's own `/usr`, in and back.

use super::tree::compare;
use super::{GIB, Setting, step};
use crate::failure::{Result, fail};
use crate::process::{command, require, run, text};
use crate::subject::{Making, make};
use std::path::Path;

/// What the short form takes: programs with setuid, links, and many small files.
const SHORT: [&str; 2] = ["/usr/sbin", "/usr/share/perl"];

/// In; nothing to do by checksum, also after a remount; back; the same.
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
        nothing_left(source, &there)?;
        subject.remount()?;
        nothing_left(source, &there)?;
        copy(&there, &back)?;
        nothing_left(source, &back)?;
        let compared = compare(source, &there)?;
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

fn copy(from: &Path, to: &Path) -> Result<()> {
    run(&mut rsync(&["--checksum"], from, to))
}

fn nothing_left(from: &Path, to: &Path) -> Result<()> {
    let said = text(&mut rsync(&["--checksum", "--delete", "-ni"], from, to))?;
    if said.is_empty() { Ok(()) } else { fail(format!("rsync would still copy:\n{said}")) }
}
