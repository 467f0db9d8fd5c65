//! `marram install` and `marram uninstall`: this program, the links under which `mount(8)` and
//! `fsck(8)` find it, manual pages and completions.

use super::completion;
use super::generated::{Page, pages};
use crate::arguments::InstallArguments;
use crate::error::{Error, Result};
use crate::output::Output;
use clap_complete::Shell;
use serde::Serialize;
use std::fs;
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

/// Where completions belong, below the folder of shared data.
const COMPLETIONS: &[(Shell, &str)] = &[
    (Shell::Bash, "bash-completion/completions/marram"),
    (Shell::Zsh, "zsh/site-functions/_marram"),
    (Shell::Fish, "fish/vendor_completions.d/marram.fish"),
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
    for page in pages() {
        let place = page_place(&prefix, &page);
        make_folder(&place)?;
        files.push(page.write(&place)?);
    }
    files.extend(install_completions(&prefix.join("share"))?);
    let installed = Installed { files };
    output.print(&installed, || {
        let lines = installed.files.iter().map(|file| format!("installed {}\n", file.display()));
        lines.collect()
    });
    Ok(())
}

#[derive(Serialize)]
struct Removed {
    files: Vec<PathBuf>,
}

/// Removes what [`run`] has installed with the same words, and nothing else: of the links only
/// those that lead to that program.
pub(super) fn remove(arguments: &InstallArguments, output: &Output) -> Result<()> {
    let prefix = below(&arguments.root, &arguments.prefix);
    output.refuse_untold(&prefix)?;
    let program = Path::new("/").join(&arguments.prefix).join("bin/marram");
    let system = below(&arguments.root, Path::new(SYSTEM_PROGRAMS));
    let is_ours = |link: &PathBuf| fs::read_link(link).is_ok_and(|to| to == program);
    let mut places: Vec<PathBuf> =
        NAMES.iter().map(|name| system.join(name)).filter(is_ours).collect();
    places.extend(pages().iter().map(|page| page_place(&prefix, page).join(&page.file)));
    places.extend(COMPLETIONS.iter().map(|(_, place)| prefix.join("share").join(place)));
    // The program goes last: until then the command can be given again.
    places.push(prefix.join("bin/marram"));
    let mut removed = Removed { files: Vec::new() };
    for place in places {
        match fs::remove_file(&place) {
            Ok(()) => removed.files.push(place),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::system("remove", &place, error)),
        }
    }
    if removed.files.is_empty() {
        return Err(Error::not_found(format!("nothing is installed below {}", prefix.display()))
            .hint("give the same --root and --prefix as to `marram install`"));
    }
    output.print(&removed, || {
        let lines = removed.files.iter().map(|file| format!("removed {}\n", file.display()));
        lines.collect()
    });
    Ok(())
}

/// `path` as it lies below `root`, which stands for `/`.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The folder that a manual page belongs into.
fn page_place(prefix: &Path, page: &Page) -> PathBuf {
    prefix.join(format!("share/man/man{}", page.section))
}

fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| Error::system("make the folder", folder, error))
}

/// Copies this program beside its new place first, and then moves it there, so that a running
/// one is replaced whole.
fn install_program(folder: &Path) -> Result<PathBuf> {
    make_folder(folder)?;
    let (place, fresh) = (folder.join("marram"), folder.join(".marram.new"));
    let installed = std::env::current_exe()
        .and_then(|program| fs::copy(program, &fresh))
        .and_then(|_len| fs::set_permissions(&fresh, PermissionsExt::from_mode(0o755)))
        .and_then(|()| fs::rename(&fresh, &place));
    installed.map_err(|error| Error::system("install", &place, error))?;
    Ok(place)
}

fn link(program: &Path, name: &Path) -> Result<PathBuf> {
    let failed = |error| Error::system("make the link", name, error);
    match fs::symlink_metadata(name) {
        Ok(found) if !found.file_type().is_symlink() => {
            return Err(Error::failed(format!("{} is there and no link", name.display())));
        }
        Ok(_) => fs::remove_file(name).map_err(failed)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    symlink(program, name).map_err(failed)?;
    Ok(name.to_owned())
}

fn install_completions(share: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for &(shell, place) in COMPLETIONS {
        let path = share.join(place);
        make_folder(path.parent().unwrap_or(share))?;
        fs::write(&path, completion::script(shell))
            .map_err(|error| Error::system("write", &path, error))?;
        files.push(path);
    }
    Ok(files)
}
