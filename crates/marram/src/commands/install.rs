//! `marram install`: this program, the links under which `mount(8)` and `fsck(8)` find it, manual
//! pages and completions.

use super::generated::{completion_script, write_manual};
use crate::arguments::InstallArguments;
use crate::error::{Error, Result};
use crate::output::Output;
use clap_complete::Shell;
use serde::Serialize;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Where `mount(8)` looks, whatever the prefix.
const SYSTEM_PROGRAMS: &str = "/usr/sbin";

/// All names that the program answers to besides its own.
pub(crate) const NAMES: &[&str] = &[
    "mount.marram",
    "mount.fuse.marram",
    "mount.fuseblk.marram",
    "umount.marram",
    "umount.fuse.marram",
    "umount.fuseblk.marram",
    "mkfs.marram",
    "mkfs.fuse.marram",
    "mkfs.fuseblk.marram",
    "fsck.marram",
    "fsck.fuse.marram",
    "fsck.fuseblk.marram",
];

#[derive(Serialize)]
struct Installed {
    files: Vec<PathBuf>,
}

pub(super) fn run(arguments: &InstallArguments, output: &Output) -> Result<()> {
    let prefix = below(&arguments.root, &arguments.prefix);
    output.refuse_untold(&prefix)?;
    let mut files = vec![install_program(&prefix.join("bin"))?];
    let program = Path::new("/").join(&arguments.prefix).join("bin/marram");
    let system = below(&arguments.root, Path::new(SYSTEM_PROGRAMS));
    make_folder(&system)?;
    for name in NAMES {
        files.push(link(&program, &system.join(name))?);
    }
    files.extend(write_manual(&prefix.join("share/man/man1"))?);
    files.extend(install_completions(&prefix.join("share"))?);
    let installed = Installed { files };
    output.print(&installed, || {
        let lines = installed.files.iter().map(|file| format!("installed {}\n", file.display()));
        lines.collect()
    });
    Ok(())
}

/// `path` as it lies below `root`, which stands for `/`.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| Error::system("make the folder", folder, error))
}

/// Copies this program beside its new place first, and then moves it there, so that a running
/// one is replaced whole.
fn install_program(folder: &Path) -> Result<PathBuf> {
    make_folder(folder)?;
    let (place, fresh) = (folder.join("marram"), folder.join(".marram.new"));
    let installed = std::env::current_exe()
        .and_then(|program| std::fs::copy(program, &fresh))
        .and_then(|_len| std::fs::set_permissions(&fresh, PermissionsExt::from_mode(0o755)))
        .and_then(|()| std::fs::rename(&fresh, &place));
    installed.map_err(|error| Error::system("install", &place, error))?;
    Ok(place)
}

fn link(program: &Path, name: &Path) -> Result<PathBuf> {
    let failed = |error| Error::system("make the link", name, error);
    match std::fs::symlink_metadata(name) {
        Ok(found) if !found.file_type().is_symlink() => {
            return Err(Error::failed(format!("{} is there and no link", name.display())));
        }
        Ok(_) => std::fs::remove_file(name).map_err(failed)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    symlink(program, name).map_err(failed)?;
    Ok(name.to_owned())
}

fn install_completions(share: &Path) -> Result<Vec<PathBuf>> {
    let places = [
        (Shell::Bash, "bash-completion/completions/marram"),
        (Shell::Zsh, "zsh/site-functions/_marram"),
        (Shell::Fish, "fish/vendor_completions.d/marram.fish"),
    ];
    let mut files = Vec::new();
    for (shell, place) in places {
        let path = share.join(place);
        make_folder(path.parent().unwrap_or(share))?;
        std::fs::write(&path, completion_script(shell))
            .map_err(|error| Error::system("write", &path, error))?;
        files.push(path);
    }
    Ok(files)
}
