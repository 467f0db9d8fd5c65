//! OverlayFS with its layers on the mount, as container runtimes use it.
//!
//! The kernel wants of an upper layer: kinds in listings, `trusted.overlay.*` attributes, and
//! whiteouts (`RENAME_WHITEOUT`, character devices 0:0). The same script changes the merged view
//! and a plain copy of the lower layer; both must come out the same, again after a remount.

use super::tree::{compare, make_oddities};
use super::{GIB, Setting, step};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, require, run, text};
use marram_lab::subject::{Making, MountPoint, make};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Copy up, whiteout, opaque folder, renames of files and folders, modes, attributes. No hard link
/// to a file of the lower layer: where OverlayFS follows no handles, its names have inode numbers
/// of their own at first, see `docs/conformance.md`. The times at the end are set, since those of
/// the two trees cannot be the same by themselves.
const CHANGES: &str = "set -e; umask 022; echo more >> one; rm dangling; rm -r sticky; \
    mkdir sticky; echo new > sticky/new; mv deep/er moved; mkdir deep/er; mv 'hole' deep/hole; \
    mv full renamed; echo late >> renamed/7; chmod 4755 empty; \
    ln -s renamed/9 soft2; rm renamed/1*; setfattr -n user.kind -v x renamed/9; mkfifo pipe; \
    : > deep/er/again; rm deep/er/again; truncate -s 3 renamed/5; chown 1001:1002 renamed/6; \
    find . -exec touch -h -d '2001-02-03 04:05:06.789Z' {} +";

const READS: &str = "set -e; for round in 1 2 3; do \
    cat one empty renamed/5 renamed/6 renamed/7 renamed/9 > /dev/null; done";

/// Makes, changes, compares, remounts, compares.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    require(&[("setfattr", "attr"), ("mount", "mount")])?;
    let mut making = Making::sized(GIB);
    if setting.kind.is_marram() {
        making.mount_words =
            ["-o", "suid,dev,allow_other,default_permissions,nohandles"].map(String::from).into();
    }
    let mut subject = make(setting.kind, &setting.folder.join("subject"), &making)?;
    let root = subject.root().to_owned();
    let expected = setting.folder.join("expected");
    lower(&expected)?;
    for layer in ["upper", "work"] {
        std::fs::create_dir(root.join(layer))?;
    }
    run(command(&["cp", "-a"]).arg(&expected).arg(root.join("lower")))?;
    let merged = MountPoint::make(setting.folder.join("merged"))?;
    mount(&root, &merged)?;
    compare(&expected, merged.path()).context(|| "before any change")?;
    for tree in [&expected, merged.path()] {
        run(command(&["sh", "-c", CHANGES]).current_dir(tree))?;
    }
    compare(&expected, merged.path()).context(|| "after the changes")?;
    judge_upper(&root.join("upper"))?;
    step("copied up, whited out, made opaque, renamed: the same as a plain folder");
    merged.unmount()?;
    subject.remount()?;
    mount(&root, &merged)?;
    // What was copied up, before the kernel knows a name of the layer below.
    run(command(&["sh", "-c", READS]).current_dir(merged.path()))?;
    compare(&expected, merged.path()).context(|| "after a remount")?;
    run(command(&["sh", "-c", "rm -r -- * && test -z \"$(ls -A)\""]).current_dir(merged.path()))?;
    step("the same after a remount; emptied");
    merged.unmount()?;
    let lower = text(command(&["ls", "-A"]).arg(root.join("lower")))?;
    if !lower.contains("dangling") {
        return fail(format!("the lower layer was changed:\n{lower}"));
    }
    subject.unmount()?;
    subject.check()
}

/// Odd files, and a folder with some plain ones. No hard links: OverlayFS breaks them when it
/// copies one of their names up.
fn lower(folder: &Path) -> Result<()> {
    make_oddities(folder)?;
    run(command(&["rm", "deep/two", "deep/er/three"]).current_dir(folder))?;
    std::fs::create_dir(folder.join("full"))?;
    for number in 0..30 {
        std::fs::write(folder.join(format!("full/{number}")), format!("{number}\n").repeat(99))?;
    }
    Ok(())
}

fn mount(root: &Path, merged: &MountPoint) -> Result<()> {
    let layer = |name: &str| format!("{name}dir={}", root.join(name).display());
    let options = [layer("lower"), layer("upper"), layer("work"), "redirect_dir=on".into()];
    let mut mount = command(&["mount", "-t", "overlay", "overlay", "-o", &options.join(",")]);
    run(mount.arg(merged.path()))
}

/// The upper layer holds what the kernel's document says that it holds.
fn judge_upper(upper: &Path) -> Result<()> {
    let whiteout = upper.join("dangling").symlink_metadata()?;
    if !whiteout.file_type().is_char_device() || whiteout.rdev() != 0 {
        return fail("a removed name has left no whiteout");
    }
    for (folder, attribute) in [("sticky", "opaque"), ("renamed", "redirect")] {
        let name = format!("trusted.overlay.{attribute}");
        let mut get = command(&["getfattr", "--absolute-names", "--only-values", "-n", &name]);
        text(get.arg(upper.join(folder))).context(|| format!("{folder} of the upper layer"))?;
    }
    Ok(())
}
