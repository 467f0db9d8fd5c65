//! rsync, cp, find and rm over the Linux tree; snapshots and clones of a tree at work.

use super::linux_tree::unpack;
use super::tree::compare;
use super::{GIB, Setting, linux_tree, step};
use marram_lab::failure::{Result, fail};
use marram_lab::process::{command, output, require, run, text};
use marram_lab::subject::{Making, Marram, MountPoint, Subject};
use std::path::Path;

/// Copies in, copies inside, finds, removes; nothing is left, and the space comes back.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    require(&[("rsync", "rsync")])?;
    let linux = linux_tree(setting.is_short)?;
    let mut subject = setting.subject(8 * GIB)?;
    let empty_bytes = used_after_sync(subject.as_ref())?;
    let (first, second) = (subject.root().join("rsync"), subject.root().join("cp"));
    rsync(&linux.reference, &first)?;
    run(command(&["cp", "-a", "--reflink=auto"]).arg(&first).arg(&second))?;
    step("rsync -a in, cp -a inside");
    compare(&linux.reference, &first)?;
    compare(&linux.reference, &second)?;
    nothing_to_sync(&linux.reference, &first)?;
    subject.remount()?;
    nothing_to_sync(&linux.reference, &second)?;
    step("compared, and rsync finds nothing to do after a remount");
    find_agrees(&linux.reference, &second)?;
    run(command(&["rm", "-rf"]).arg(&first).arg(&second))?;
    if let Some(left) =
        std::fs::read_dir(subject.root())?.flatten().find(|e| e.file_name() != "lost+found")
    {
        return fail(format!("{} is left after rm -rf", left.path().display()));
    }
    space_comes_back(subject.as_ref(), empty_bytes)?;
    subject.unmount()?;
    subject.check()
}

fn rsync(from: &Path, to: &Path) -> Result<()> {
    let mut rsync = command(&["rsync", "-aH"]);
    run(rsync.arg(format!("{}/", from.display())).arg(format!("{}/", to.display())))
}

/// A second rsync, by checksum, would copy nothing.
fn nothing_to_sync(from: &Path, to: &Path) -> Result<()> {
    let mut rsync = command(&["rsync", "-aHnic", "--delete"]);
    let said = text(rsync.arg(format!("{}/", from.display())).arg(format!("{}/", to.display())))?;
    if said.is_empty() { Ok(()) } else { fail(format!("rsync would still copy:\n{said}")) }
}

fn find_agrees(left: &Path, right: &Path) -> Result<()> {
    let find = |folder: &Path| {
        let script = "find . -printf '%y %m %s %T@ %p\\n' | grep -v '^d' | LC_ALL=C sort";
        output(command(&["bash", "-o", "pipefail", "-c", script]).current_dir(folder))
    };
    if find(left)?.stdout == find(right)?.stdout {
        Ok(())
    } else {
        fail(format!("find sees another tree in {}", right.display()))
    }
}

fn used_after_sync(subject: &dyn Subject) -> Result<u64> {
    subject.sync()?;
    subject.used_bytes()
}

/// Freed space may take a few group commits to be counted as free.
fn space_comes_back(subject: &dyn Subject, empty_bytes: u64) -> Result<()> {
    const SLACK_BYTES: u64 = 64 << 20;
    let mut used = 0;
    for _ in 0..60 {
        used = used_after_sync(subject)?;
        if used <= empty_bytes + SLACK_BYTES {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    fail(format!("{used} bytes used after rm -rf, {empty_bytes} when it was empty"))
}

/// A snapshot stays as it was and a clone goes its own way while the live tree changes.
pub(super) fn snapshots(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    let linux = linux_tree(true)?;
    let mut marram = Marram::make(&setting.folder.join("subject"), &Making::sized(4 * GIB))?;
    run(&mut unpack(&linux, marram.root()))?;
    let live = marram.root().join(linux.top);
    let point = marram.root().to_string_lossy().into_owned();
    run(&mut marram.command(&["snapshot", &format!("{point}@before")]))?;
    run(command(&["rm", "-rf"]).arg(live.join("fs")))?;
    std::fs::write(live.join("kernel/note"), "live\n")?;
    let listed = text(&mut marram.command(&["list", &point]))?;
    if !listed.contains("before") {
        return fail(format!("`marram list` does not show the snapshot:\n{listed}"));
    }
    let view = MountPoint::make(setting.folder.join("view"))?;
    run(marram
        .command(&["mount", "-o", "ro,snapshot=before"])
        .arg(marram.pool())
        .arg(view.path()))?;
    compare(&linux.reference, &view.path().join(linux.top))?;
    step("the snapshot is the tree as it was");
    if std::fs::write(view.path().join("note"), "no").is_ok() {
        return fail("a snapshot took a write");
    }
    run(marram.command(&["unmount"]).arg(view.path()))?;
    clone_goes_its_own_way(setting, &marram, &format!("{point}@before"), linux.top)?;
    run(&mut marram.command(&["destroy", "dataset", "--yes", "--dataset", "again", &point]))?;
    run(&mut marram.command(&["destroy", "snapshot", "--yes", &format!("{point}@before")]))?;
    if live.join("fs").exists() || !live.join("kernel/note").is_file() {
        return fail("the live tree changed with the snapshot or the clone");
    }
    step("snapshot and clone destroyed; the live tree is as it was");
    marram.unmount()?;
    marram.check()
}

/// A writable clone begins as the snapshot; neither it nor the live tree sees the other's changes.
fn clone_goes_its_own_way(
    setting: &Setting,
    marram: &Marram,
    snapshot: &str,
    top: &str,
) -> Result<()> {
    run(&mut marram.command(&["clone", snapshot, "again"]))?;
    let view = MountPoint::make(setting.folder.join("clone"))?;
    let mut mount = marram.command(&["mount", "--dataset", "again"]);
    run(mount.arg(marram.pool()).arg(view.path()))?;
    let tree = view.path().join(top);
    if !tree.join("fs").is_dir() || tree.join("kernel/note").exists() {
        return fail("the clone does not begin as its snapshot");
    }
    run(command(&["rm", "-rf"]).arg(tree.join("lib")))?;
    std::fs::write(tree.join("note"), "clone\n")?;
    let live = marram.root().join(top);
    if !live.join("lib").is_dir() || live.join("note").exists() {
        return fail("a change of the clone shows in the live tree");
    }
    step("the clone is written beside the live tree");
    run(marram.command(&["unmount"]).arg(view.path()))
}
