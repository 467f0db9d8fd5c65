//! The Linux tree, unpacked by `tar` and compared file by file with the same tree on the host.

use super::tree::{compare, make_oddities};
use super::{GIB, LinuxTree, Setting, linux_tree, step};
use marram_lab::failure::{Result, fail};
use marram_lab::process::{OwnedChild, command, run};
use marram_lab::subject::Subject;
use std::path::Path;
use std::time::{Duration, Instant};

const UNPACK_LIMIT: Duration = Duration::from_secs(1800);

/// One `tar`; compared before and after a remount.
pub(super) fn run_once(setting: &Setting) -> Result<()> {
    let linux = linux_tree(setting.is_short)?;
    let mut subject = setting.subject(8 * GIB)?;
    let start = Instant::now();
    run(&mut unpack(&linux, subject.root()))?;
    subject.sync()?;
    step(&format!("unpacked and synced in {:.1} s", start.elapsed().as_secs_f64()));
    let odd = setting.folder.join("odd");
    make_oddities(&odd)?;
    run(command(&["cp", "-a"]).arg(&odd).arg(subject.root().join("odd")))?;
    let pairs = [(linux.reference, linux.top), (odd, "odd")];
    verify_everywhere(subject.as_mut(), &pairs)
}

/// Two `tar`s into two folders while two readers walk what is there.
pub(super) fn parallel(setting: &Setting) -> Result<()> {
    let linux = linux_tree(setting.is_short)?;
    let mut subject = setting.subject(8 * GIB)?;
    let folders = ["first", "second"].map(|name| subject.root().join(name));
    let mut writers = Vec::new();
    for folder in &folders {
        std::fs::create_dir(folder)?;
        writers.push(OwnedChild::start(&mut unpack(&linux, folder))?);
    }
    let stop = setting.folder.join("stop");
    let mut readers = [start_reader(&folders[0], &stop)?, start_reader(&folders[1], &stop)?];
    let mut ended = Vec::new();
    for writer in &mut writers {
        ended.push(writer.wait(UNPACK_LIMIT)?);
    }
    std::fs::write(&stop, "")?;
    for reader in &mut readers {
        ended.push(reader.wait(UNPACK_LIMIT)?);
    }
    if let Some(status) = ended.iter().find(|status| !status.success()) {
        return fail(format!("a parallel tar or reader failed ({status})"));
    }
    let first = format!("first/{}", linux.top);
    let second = format!("second/{}", linux.top);
    let pairs = [(linux.reference.clone(), first.as_str()), (linux.reference, second.as_str())];
    verify_everywhere(subject.as_mut(), &pairs)
}

/// Reads every file below `folder` again and again until the file `stop` is there.
fn start_reader(folder: &Path, stop: &Path) -> Result<OwnedChild> {
    let script =
        "until [ -e \"$1\" ]; do find . -type f -print0 | xargs -0 -r cat > /dev/null; done";
    OwnedChild::start(command(&["sh", "-c", script, "read"]).arg(stop).current_dir(folder))
}

/// `tar` unpacking the whole archive below `folder`.
pub(super) fn unpack(linux: &LinuxTree, folder: &Path) -> std::process::Command {
    let mut tar = command(&["tar", "-xPf"]);
    tar.arg(&linux.archive).arg("-C").arg(folder);
    tar
}

/// Compares each (reference, folder of the mount) now, after a remount, and checks the image.
pub(super) fn verify_everywhere(
    subject: &mut dyn Subject,
    pairs: &[(std::path::PathBuf, &str)],
) -> Result<()> {
    verify(subject, pairs)?;
    subject.unmount()?;
    subject.check()?;
    step("checked");
    subject.mount()?;
    verify(subject, pairs)?;
    subject.unmount()
}

fn verify(subject: &dyn Subject, pairs: &[(std::path::PathBuf, &str)]) -> Result<()> {
    for (reference, name) in pairs {
        let compared = compare(reference, &subject.root().join(name))?;
        step(&format!("{name}: {} entries, {} bytes the same", compared.entries, compared.bytes));
    }
    Ok(())
}
