//! The Linux tree of Debian's `linux-source-6.1`: once unpacked on the host as the reference, and
//! once as an uncompressed archive, so that a run does not measure `xz`. Both are kept under
//! `target/inputs`.

use crate::failure::{Result, fail};
use crate::process::{command, run};
use crate::project;
use std::path::{Path, PathBuf};

const SOURCE: &str = "/usr/src/linux-source-6.1.tar.xz";
const TOP: &str = "linux-source-6.1";

/// The folders of the short form: about 10,000 files of the 80,000.
const SHORT_FOLDERS: [&str; 5] = ["fs", "include", "kernel", "lib", "scripts"];

/// More folders, with which it is about 15,000 files.
const MORE_FOLDERS: [&str; 7] = ["block", "crypto", "mm", "net", "samples", "security", "sound"];

/// The tree and its archive.
pub struct LinuxTree {
    /// The tree on the host, with mtimes and modes as in the archive.
    pub reference: PathBuf,
    /// The archive, its members in a fixed order below one top folder.
    pub archive: PathBuf,
    /// The name of the top folder in the archive.
    pub top: &'static str,
}

/// The Linux tree, whole or in part; made on the first call.
pub fn linux_tree(is_short: bool) -> Result<LinuxTree> {
    let name = if is_short { "linux-part" } else { "linux-whole" };
    kept(name, if is_short { &SHORT_FOLDERS } else { &[] })
}

/// A part of it with about 15,000 files; made on the first call.
pub fn linux_tree_of_15_000_files() -> Result<LinuxTree> {
    kept("linux-15000", &[&SHORT_FOLDERS[..], &MORE_FOLDERS].concat())
}

/// These folders of the tree, or all if none is named.
fn kept(name: &str, folders: &[&str]) -> Result<LinuxTree> {
    let folder = project::target().join("inputs").join(name);
    if !folder.is_dir() {
        make(&folder, folders)?;
    }
    Ok(LinuxTree { reference: folder.join(TOP), archive: folder.join("archive.tar"), top: TOP })
}

fn make(folder: &Path, folders: &[&str]) -> Result<()> {
    if !Path::new(SOURCE).is_file() {
        return fail(format!("no {SOURCE}: apt-get install linux-source-6.1"));
    }
    let inputs = folder.parent().expect("a folder of target/inputs");
    std::fs::create_dir_all(inputs)?;
    let fresh = tempfile::Builder::new().prefix("making").tempdir_in(inputs)?;
    println!("unpacking {SOURCE} (once)");
    let mut unpack = command(&["tar", "-xJf", SOURCE, "-C"]);
    unpack.arg(fresh.path());
    unpack.args(folders.iter().map(|folder| format!("{TOP}/{folder}")));
    run(&mut unpack)?;
    let mut pack = command(&["tar", "--sort=name", "--format=posix", "--numeric-owner", "-cf"]);
    pack.arg(fresh.path().join("archive.tar")).arg("-C").arg(fresh.path()).arg(TOP);
    run(&mut pack)?;
    std::fs::rename(fresh.keep(), folder)?;
    Ok(())
}
