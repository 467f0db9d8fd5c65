//! A dataset whose names are folded, through the kernel and its cache of names.

use super::{GIB, Setting, step};
use marram_lab::failure::{Result, fail};
use marram_lab::process::{command, run};
use marram_lab::project;
use marram_lab::subject::{Making, make};

const PROGRAM: &str = include_str!("folding.py");

/// Makes, finds, renames and removes names by other spellings.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    let mut making = Making::sized(GIB);
    making.create_words = ["-O", "casefold=on"].map(String::from).into();
    let mut subject = make(setting.kind, &setting.folder.join("subject"), &making)?;
    let folder = subject.root().join("Folder");
    std::fs::create_dir(&folder)?;
    run(command(&["python3", "-c", PROGRAM]).current_dir(subject.root().join("FOLDER")))?;
    step("names by all their spellings");
    subject.remount()?;
    if std::fs::read(subject.root().join("fOLDER/kEPT"))? != b"over a remount" {
        return fail("a file is another after a remount");
    }
    let mut set = std::process::Command::new(project::release_binary()?);
    set.arg("set").arg(subject.root()).arg("casefold=off");
    let said = set.output()?;
    if said.status.success() || !String::from_utf8_lossy(&said.stderr).contains("is made") {
        return fail(format!("casefold can be changed: {said:?}"));
    }
    step("kept over a remount, and not to be changed");
    subject.unmount()?;
    subject.check()
}
