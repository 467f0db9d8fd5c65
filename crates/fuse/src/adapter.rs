//! Requests become calls of a [`FileSystem`], results become replies. It adapts and decides
//! nothing: what an operation means is the file system's to say.
//!
//! **Permissions.** Where the file system has rules of its own ([`AccessRules::Own`]), each
//! operation is preceded by the question whether its caller may: the kernel checks nothing then.
//! Elsewhere the kernel has checked, and nothing is asked.
//!
//! Handles do not exist here where the kernel checks permissions: OPEN and OPENDIR are answered "no
//! such operation". The kernel then stops sending them (and RELEASE and FLUSH), keeps its page
//! cache over reopening, and every request names its inode. CREATE, which would open too, is
//! answered so as well. The kernel then makes files by MKNOD, and knows itself that the maker of a
//! file may write to it whatever its mode says. Only TMPFILE makes and opens at once, and only its
//! files are released. A file that is removed while open lives by its pins: each reply that shows
//! the kernel an inode pins it once, FORGET takes pins back. Where permissions are asked for, OPEN,
//! OPENDIR and CREATE are served, as that is when they count; see `opening`. A strict mount has
//! OPEN served too, and so has one whose locks are kept here: each open file has a handle of its
//! own there; see `locks`.

mod agreement;
mod announced;
mod attributes;
mod cached;
mod caller;
mod closes;
mod directories;
mod dispatch;
mod files;
mod ioctl;
mod locks;
mod moved_appends;
mod names;
mod opening;
mod prepared;
mod reenacted;
mod reenacting;
mod seek;
mod xattrs;

use crate::errno::Errno;
use crate::event::{Event, EventSink};
use crate::options::{MountOptions, Offer};
use crate::protocol::{AttributesEncoding, Header, Operation, Request};
pub(crate) use agreement::Agreement;
use announced::Announced;
use cached::CachedReads;
pub(crate) use cached::OldPages;
use caller::Requester;
use closes::Closes;
use locks::LockOwners;
pub(crate) use locks::{WantedLock, may_let_go};
use marram_vfs::{
    AccessControl, AccessRules, Action, Caller, Error, FileSystem, Ino, Name, SyncScope,
};
use moved_appends::MovedAppends;
pub(crate) use reenacted::{Reenacted, Step, Turn};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How a request is answered; the payload of a reply is in the buffer that came with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Not at all.
    Silence,
    /// With an error or a payload.
    Reply(Result<(), Errno>),
    /// When its caller has a lock, or is interrupted.
    Wait(WantedLock),
}

/// Why an operation does not succeed.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The server does not do it.
    Server(Errno),
    /// The file system says no.
    FileSystem(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal::FileSystem(error)
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Refusal::Server(errno)
    }
}

/// Result of one operation.
type Outcome = Result<(), Refusal>;

/// A request that waits for the devices: it is served apart from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncJob {
    /// One inode.
    Inode(Ino, SyncScope),
    /// The whole file system.
    All,
    /// The same, of one that is neither mounted nor open anywhere.
    Last,
}

impl SyncJob {
    /// The job that a request is, if it is one.
    pub(crate) fn of(request: &Request<'_>) -> Option<SyncJob> {
        match request.operation {
            Operation::Sync { data_only } | Operation::SyncDirectory { data_only } => {
                let scope = if data_only { SyncScope::Data } else { SyncScope::All };
                Some(SyncJob::Inode(Ino(request.header.node), scope))
            }
            Operation::SyncAll => Some(SyncJob::All),
            Operation::Destroy => Some(SyncJob::Last),
            _ => None,
        }
    }

    fn inode(self) -> Option<(Ino, SyncScope)> {
        match self {
            SyncJob::Inode(ino, scope) => Some((ino, scope)),
            SyncJob::All | SyncJob::Last => None,
        }
    }
}

/// Calls a file system on behalf of the kernel.
pub(crate) struct Adapter {
    file_system: Arc<dyn FileSystem>,
    /// What the kernel remembers of one spelling of a name it does not revise when another is made
    /// or removed: so nothing may be remembered.
    folds_names: bool,
    /// How attributes are answered while nobody else changes them.
    alone: AttributesEncoding,
    shareable: bool,
    pub(crate) agreement: Agreement,
    pub(crate) on_event: EventSink,
    /// The file system has been shut down through this mount: that nothing works any more is no
    /// news.
    shut_down: AtomicBool,
    /// The kernel has destroyed the file system, as it says of mounts of block devices alone;
    /// whether everything was durable then.
    pub(crate) destroyed: Arc<OnceLock<Result<(), Error>>>,
    on_destroyed: Arc<dyn Fn() + Send + Sync>,
    /// Openings are asked for although the kernel checks permissions.
    strict_open: bool,
    /// Closes that wait for what was written.
    closes: Closes,
    /// The kernel stops asking for what is answered "no such operation": so what was declined is
    /// answered.
    declined: Vec<Offer>,
    /// What callers are about to do with ranges of files.
    announced: Announced,
    cached_reads: CachedReads,
    moved_appends: MovedAppends,
    lock_owners: LockOwners,
    /// Open files that have had a handle of their own.
    handles: AtomicU64,
    /// What a thread of this process shows watchers.
    pub(crate) reenacted: Arc<Reenacted>,
}

impl Adapter {
    pub(crate) fn new(
        file_system: Arc<dyn FileSystem>,
        options: &MountOptions,
        agreement: Agreement,
    ) -> Adapter {
        let folds_names = file_system.folds_names();
        let kept = |names: Duration| if folds_names { Duration::ZERO } else { names };
        Adapter {
            file_system,
            folds_names,
            alone: AttributesEncoding {
                entry_timeout: kept(options.entry_timeout),
                absence_timeout: kept(options.absence_timeout),
                attributes_timeout: options.attributes_timeout,
                preferred_io_bytes: options.preferred_io_bytes,
            },
            shareable: options.shareable,
            agreement,
            on_event: options.on_event.clone(),
            shut_down: AtomicBool::new(false),
            destroyed: Arc::default(),
            on_destroyed: Arc::clone(&options.on_destroyed),
            strict_open: options.strict_open,
            closes: Closes::of(options),
            declined: options.declined.clone(),
            announced: Announced::default(),
            cached_reads: CachedReads::default(),
            moved_appends: MovedAppends::default(),
            lock_owners: LockOwners::default(),
            handles: AtomicU64::new(0),
            reenacted: Arc::default(),
        }
    }

    /// How attributes are answered: beside others nothing holds for any time.
    fn encoding(&self) -> AttributesEncoding {
        match self.shareable && self.file_system.is_shared() {
            true => self.alone.for_no_time(),
            false => self.alone,
        }
    }

    /// The mount has ended: makes everything durable, unless that is so already or it was shut
    /// down so that it is not, and lets go of all pins.
    pub(crate) fn end(&self) -> Result<(), Error> {
        let synced = match (self.shut_down.load(Ordering::Acquire), self.destroyed.get()) {
            (true, _) => Ok(()),
            (false, Some(outcome)) => outcome.clone(),
            (false, None) => self.file_system.sync_all(),
        };
        self.release_all();
        self.file_system.forget_all();
        synced
    }

    /// Serves requests that wait for the devices, all at once; the outcomes are in their order.
    pub(crate) fn sync(&self, jobs: &[(&Header, SyncJob)]) -> Vec<Result<(), Errno>> {
        let inodes: Vec<_> = jobs.iter().filter_map(|(_, job)| job.inode()).collect();
        let mut synced = self.file_system.sync_many(&inodes).into_iter();
        let outcome = |(header, job): &(&Header, SyncJob)| {
            let outcome = match job {
                SyncJob::Inode(..) => synced.next().expect("an outcome for each inode"),
                SyncJob::All => self.file_system.sync_all(),
                SyncJob::Last => self.sync_for_good(),
            };
            self.conclude(header, outcome.map_err(Refusal::from), &mut Vec::new())
        };
        jobs.iter().map(outcome).collect()
    }

    /// The caller of `umount` goes on when this is answered, and may then do anything with the
    /// block device.
    fn sync_for_good(&self) -> Result<(), Error> {
        let synced = self.file_system.sync_all();
        (self.on_destroyed)();
        self.destroyed.get_or_init(|| synced).clone()
    }

    /// The range of a direct write that the kernel may have read before it was done.
    pub(crate) fn direct_write(&self, request: &Request<'_>) -> Option<OldPages> {
        self.cached_reads.direct_write(request)
    }

    /// What the kernel has in the wrong place after an append that went elsewhere than it thought.
    pub(crate) fn moved_append(&self, request: &Request<'_>) -> Option<OldPages> {
        match request.operation {
            Operation::Write(write) if write.is_append() => {
                self.moved_appends.take(&request.header)
            }
            _ => None,
        }
    }

    /// What of a request's umask is still to be taken off: nothing, if the kernel has done so.
    fn umask(&self, requested: u32) -> u32 {
        if self.agreement.umask { requested & 0o777 } else { 0 }
    }

    /// The checker of permissions, if it is not the kernel.
    fn control(&self) -> Option<&dyn AccessControl> {
        match self.file_system.access_rules() {
            AccessRules::Own(control) => Some(control),
            AccessRules::ModeBits | AccessRules::PosixLists => None,
        }
    }

    /// Whether an offer of the kernel's was left, to see what it saves.
    fn declines(&self, offer: Offer) -> bool {
        self.declined.contains(&offer)
    }

    /// Fails unless the caller may do `action`.
    fn authorize(&self, header: &Header, action: Action<'_>) -> Result<(), Error> {
        let ask = |control: &dyn AccessControl| control.authorize(&Requester::of(header), action);
        self.control().map_or(Ok(()), ask)
    }

    /// The errno of a refusal. Damage and failed devices have words that no caller sees: the log
    /// gets them.
    fn conclude(&self, header: &Header, outcome: Outcome, out: &mut Vec<u8>) -> Result<(), Errno> {
        let Err(refusal) = outcome else {
            return Ok(());
        };
        out.clear();
        match refusal {
            Refusal::Server(errno) => Err(errno),
            Refusal::FileSystem(error) => {
                let errno = Errno::from(&error);
                let news = !self.shut_down.load(Ordering::Relaxed);
                if news && matches!(error, Error::Io(_) | Error::Damaged(_)) {
                    let ino = Ino(header.node);
                    (self.on_event)(Event::Failed { opcode: header.opcode, ino, error });
                }
                Err(errno)
            }
        }
    }
}

fn caller(header: &Header) -> Caller {
    Caller { uid: header.uid, gid: header.gid }
}

fn name(bytes: &[u8]) -> Result<Name<'_>, Refusal> {
    Name::new(bytes).map_err(|error| Refusal::FileSystem(error.into()))
}
