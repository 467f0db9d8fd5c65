//! Mount points and loop devices that go with their owners.

use super::{Making, Traffic};
use crate::failure::{Context, Result, fail};
use crate::process::{command, run, text};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Whether something is mounted on `point`, by the kernel's own list.
fn is_mounted(point: &Path) -> Result<bool> {
    let list = std::fs::read_to_string("/proc/self/mounts").context(|| "the list of mounts")?;
    let escaped = escape(point);
    Ok(list.lines().any(|line| line.split(' ').nth(1) == Some(&escaped)))
}

/// A path as `/proc/self/mounts` spells it.
fn escape(path: &Path) -> String {
    let mut escaped = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.push_str(&format!("\\{byte:03o}")),
            byte => escaped.push(char::from(*byte)),
        }
    }
    escaped
}

/// A folder to mount on; whatever is mounted there goes when it is dropped.
pub struct MountPoint {
    path: PathBuf,
}

impl MountPoint {
    /// Makes the folder.
    pub fn make(path: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&path)?;
        Ok(Self { path: path.canonicalize()? })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether something is mounted here.
    pub fn is_mounted(&self) -> Result<bool> {
        is_mounted(&self.path)
    }

    /// Waits until something is mounted here and answers. What a dead daemon has left does not.
    pub fn wait_until_mounted(&self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        while !self.answers()? {
            if start.elapsed() > limit {
                return fail(format!("nothing mounted on {} in {limit:?}", self.path.display()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Whether a mounted file system answers here. The list of mounts does not tell: it has dead
    /// mounts too, and they may go between a look at the list and one at the folder. Neither does
    /// opening the folder, which the kernel may do without asking; `statfs` it always passes on.
    fn answers(&self) -> Result<bool> {
        let parent = self.path.parent().expect("a mount point below the root");
        let host = std::fs::metadata(parent)?.dev();
        let Ok(root) = std::fs::File::open(&self.path) else { return Ok(false) };
        let is_ours = root.metadata().is_ok_and(|root| root.dev() != host);
        Ok(is_ours && rustix::fs::fstatvfs(&root).is_ok())
    }

    /// Unmounts with the system's own command.
    pub fn unmount(&self) -> Result<()> {
        run(command(&["umount"]).arg(&self.path))
    }

    /// Takes the mount off the tree at once, dead or busy.
    pub fn detach(&self) -> Result<()> {
        while self.is_mounted()? {
            run(command(&["umount", "--internal-only", "--lazy"]).arg(&self.path))?;
        }
        Ok(())
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        let gone = match self.is_mounted() {
            Ok(true) => self.unmount().or_else(|_| self.detach()),
            Ok(false) => Ok(()),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = gone {
            eprintln!("warning: {} stays mounted: {failure}", self.path.display());
        }
    }
}

/// A loop device over a file.
pub(crate) struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches `image`, directly if that is how it is made.
    pub(crate) fn attach(image: &Path, making: &Making) -> Result<Self> {
        let mut attach = command(&["losetup", "--find", "--show"]);
        if making.on_direct_loop {
            attach.arg("--direct-io=on");
        }
        let made = Self { path: PathBuf::from(text(attach.arg(image))?) };
        if making.on_direct_loop && !made.is_direct()? {
            let path = made.path.display();
            return fail(format!("{path} is not direct: the host cannot read its image so"));
        }
        Ok(made)
    }

    /// Whether the host keeps no copies of what goes through.
    fn is_direct(&self) -> Result<bool> {
        let place = format!("/sys/block/{}/loop/dio", self.name());
        Ok(std::fs::read_to_string(&place).context(|| &place)?.trim() == "1")
    }

    fn name(&self) -> std::borrow::Cow<'_, str> {
        self.path.file_name().expect("a device has a name").to_string_lossy()
    }

    /// `/dev/loopN`.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What the kernel counts, by its `Documentation/block/stat.rst`.
    pub(crate) fn traffic(&self) -> Result<Traffic> {
        const SECTORS_WRITTEN: usize = 6;
        const FLUSHES: usize = 15;
        const SECTOR_BYTES: u64 = 512;
        let words = std::fs::read_to_string(format!("/sys/block/{}/stat", self.name()))?;
        let numbers: Vec<u64> =
            words.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let written_bytes = numbers.get(SECTORS_WRITTEN).map(|sectors| sectors * SECTOR_BYTES);
        Ok(Traffic { written_bytes, flushes: numbers.get(FLUSHES).copied() })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(failure) = run(command(&["losetup", "--detach"]).arg(&self.path)) {
            eprintln!("warning: {failure}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_mounted_and_a_plain_folder_is_not() {
        assert!(is_mounted(Path::new("/proc")).expect("the list of mounts is there"));
        let folder = tempfile::tempdir().expect("a folder");
        assert!(!is_mounted(folder.path()).expect("the list of mounts is there"));
    }

    #[test]
    fn spaces_are_written_as_the_kernel_writes_them() {
        assert_eq!(escape(Path::new("/a b\\c")), "/a\\040b\\134c");
    }
}
