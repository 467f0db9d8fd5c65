//! The options with which a file system is opened.

use marram_vfs::{Caller, Clock, Ino, SystemClock};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// When reading moves the access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Never (`noatime`).
    Never,
    /// When it is not after the last change, or a day old (`relatime`).
    #[default]
    Relative,
    /// Every time (`strictatime`).
    Strict,
}

/// A range of a file that cannot be read because its stored bytes are damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// The file.
    pub ino: Ino,
    /// Where it is, as far as that can be found: one of its names, from the root.
    pub path: Option<Vec<u8>>,
    /// First byte of the file that is affected.
    pub offset: u64,
    /// Bytes that are affected.
    pub len: u64,
    /// What was found.
    pub reason: String,
}

/// Takes note of damage; called once for each read that meets it, without any lock held.
pub type OnDamage = Arc<dyn Fn(DamagedRange) + Send + Sync>;

/// How a file system is opened.
#[derive(Clone)]
pub struct PosixOptions {
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// When reading moves the access time.
    pub access_times: AccessTimes,
    /// Whether reading moves the access time of directories too (`nodiratime` says no).
    pub directory_access_times: bool,
    /// Whether access times wait in memory to be written with something else (`lazytime`).
    pub lazy_times: bool,
    /// Takes the reports of damage.
    pub on_damage: OnDamage,
    /// Owner of the root directory, if it has to be made.
    pub root_owner: Caller,
    /// The directory that is the root of what is shown: of a fork of a directory that directory,
    /// else [`Ino::ROOT`]. It is its own parent, and what is not below it cannot be reached.
    pub root: Ino,
    /// How long an operation that finds no space waits for space that is just being freed.
    /// Without it no operation waits for another one, which repeatable tests need.
    pub patience: Duration,
}

impl Default for PosixOptions {
    /// The machine's clock, relative access times, damage unreported, root owned by user 0, all
    /// of the dataset, no patience.
    fn default() -> Self {
        PosixOptions {
            clock: Arc::new(SystemClock),
            access_times: AccessTimes::default(),
            directory_access_times: true,
            lazy_times: false,
            on_damage: Arc::new(|_| {}),
            root_owner: Caller { uid: 0, gid: 0 },
            root: Ino::ROOT,
            patience: Duration::ZERO,
        }
    }
}

impl fmt::Debug for PosixOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PosixOptions")
            .field("access_times", &self.access_times)
            .field("lazy_times", &self.lazy_times)
            .field("root_owner", &self.root_owner)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}
