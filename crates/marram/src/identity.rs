//! Which file or device a path leads to, whatever it is called, or which database of a server.
//!
//! A copy of a pool has the pool's id: the id alone does not tell which of the two a daemon serves.
//! What the kernel knows a file or device by does, in every mount namespace, through links, and
//! when it has got another name or none. A loop device without an offset is the file behind it.

use serde::{Deserialize, Serialize};
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Result;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Most loop devices on top of each other that are looked through.
const LOOPS_MAX: usize = 8;

/// With one of these a URL of a server begins.
const SERVER_SCHEMES: [&[u8]; 2] = [b"postgres://", b"mongodb://"];

/// What a pool lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Identity {
    /// A file.
    File {
        /// The device that its file system is on.
        device: u64,
        /// Its inode there.
        inode: u64,
    },
    /// A block device.
    BlockDevice {
        /// Its number.
        number: u64,
    },
    /// A database of a server, or a schema there.
    Url {
        /// A number of its URL that is the same for all processes of this version.
        number: u64,
    },
}

impl Identity {
    /// What is at `path`, or at a URL as the engines write it.
    ///
    /// # Errors
    /// Nothing is there, or it cannot be looked at.
    pub(crate) fn of(path: &Path) -> Result<Identity> {
        let text = path.as_os_str().as_bytes();
        match SERVER_SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            true => Ok(Identity::of_url(path)),
            false => fs::metadata(path).map(|found| Identity::from(&found)),
        }
    }

    fn of_url(url: &Path) -> Identity {
        let mut hasher = DefaultHasher::new();
        url.hash(&mut hasher);
        Identity::Url { number: hasher.finish() }
    }

    /// Whether both are the same bytes, also if one is the file behind the other.
    pub(crate) fn is_same(self, other: Identity) -> bool {
        self == other || self.at_bottom() == other.at_bottom()
    }

    fn at_bottom(self) -> Identity {
        let mut at = self;
        for _ in 0..LOOPS_MAX {
            let Identity::BlockDevice { number } = at else { break };
            let Some(below) = backing_file(number) else { break };
            at = below;
        }
        at
    }
}

impl From<&Metadata> for Identity {
    fn from(found: &Metadata) -> Identity {
        match found.file_type().is_block_device() {
            true => Identity::BlockDevice { number: found.rdev() },
            false => Identity::File { device: found.dev(), inode: found.ino() },
        }
    }
}

/// The file that a loop device shows from its beginning.
fn backing_file(number: u64) -> Option<Identity> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let told = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/loop"));
    let offset = fs::read_to_string(told.join("offset")).ok()?;
    let file = fs::read_to_string(told.join("backing_file")).ok()?;
    let is_whole = offset.trim() == "0";
    is_whole.then(|| Identity::of(Path::new(file.trim_end_matches('\n'))).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::Identity;

    #[test]
    fn names_and_links_do_not_matter_and_copies_are_others() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a"), "content").unwrap();
        let one = Identity::of(&at("a")).unwrap();
        std::fs::rename(at("a"), at("b")).unwrap();
        std::os::unix::fs::symlink("b", at("link")).unwrap();
        assert!(one.is_same(Identity::of(&at("b")).unwrap()));
        assert!(one.is_same(Identity::of(&at("link")).unwrap()));
        std::fs::copy(at("b"), at("a")).unwrap();
        assert!(!one.is_same(Identity::of(&at("a")).unwrap()));
        assert!(Identity::of(&at("none")).is_err());
        let url = |text: &str| Identity::of(std::path::Path::new(text)).unwrap();
        let said = url("postgres://fs@localhost/trees");
        assert!(said.is_same(url("postgres://fs@localhost/trees")));
        assert!(!said.is_same(url("postgres://fs@localhost/trees?schema=other")));
    }
}
