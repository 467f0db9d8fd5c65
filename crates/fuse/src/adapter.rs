//! Requests become calls of a [`FileSystem`], results become replies. It adapts and decides
//! nothing: what an operation means is the file system's to say.
//!
//! **Permissions.** Where the file system has rules of its own ([`AccessRules::Own`]), each
//! operation is preceded by the question whether its caller may: the kernel checks nothing then.
//! Elsewhere the kernel has checked, and nothing is asked.
//!
//! Handles do not exist here where the kernel checks permissions: OPEN and OPENDIR are answered
//! "no such operation", the kernel then stops sending them (and RELEASE and FLUSH), keeps its page
//! cache over reopening, and every request names its inode. CREATE, which would open too, is
//! answered so as well: the kernel then makes files by MKNOD, and knows itself that who has just
//! made a file may write to it whatever its mode says. Only TMPFILE makes and opens at once, and
//! only its files are released. A file that is removed while open lives by its pins: each reply
//! that tells the kernel of an inode pins it once, FORGET takes pins back. Where permissions are
//! asked for, OPEN, OPENDIR and CREATE are served, as that is when they count; see `opening`. A
//! strict mount has OPEN served too.

mod attributes;
mod cached;
mod caller;
mod directories;
mod files;
mod ioctl;
mod names;
mod opening;
mod prepared;
mod seek;
mod xattrs;

use crate::errno::Errno;
use crate::event::{Event, EventSink};
use crate::options::{MountOptions, Offer};
use crate::protocol::{AttributesEncoding, Encoder, Header, Operation, Request};
use crate::session::Agreement;
use bytes::Bytes;
use cached::CachedReads;
pub(crate) use cached::DirectWrite;
use caller::Requester;
use marram_vfs::{
    AccessControl, AccessRules, Action, Caller, Error, FileSystem, Ino, Name, SyncScope,
};
use prepared::Announced;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How a request is answered; the payload of a reply is in the buffer that came with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Not at all.
    Silence,
    /// With an error or a payload.
    Reply(Result<(), Errno>),
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
    /// The same, and nobody has it mounted or open any more.
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
    /// or removed: so it is told to remember nothing.
    folds_names: bool,
    encoding: AttributesEncoding,
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
    /// The kernel stops asking for what is answered "no such operation": so what was declined is
    /// answered.
    declined: Vec<Offer>,
    /// What callers are about to do with ranges of files.
    announced: Announced,
    cached_reads: CachedReads,
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
            encoding: AttributesEncoding {
                entry_timeout: kept(options.entry_timeout),
                absence_timeout: kept(options.absence_timeout),
                attributes_timeout: options.attributes_timeout,
                preferred_io_bytes: options.preferred_io_bytes,
            },
            agreement,
            on_event: options.on_event.clone(),
            shut_down: AtomicBool::new(false),
            destroyed: Arc::default(),
            on_destroyed: Arc::clone(&options.on_destroyed),
            strict_open: options.strict_open,
            declined: options.declined.clone(),
            announced: Announced::default(),
            cached_reads: CachedReads::default(),
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
        self.file_system.forget_all();
        synced
    }

    /// Serves one request; `out` takes the payload and is empty after an error. `memory` is what
    /// the request lies in, if that may be kept.
    pub(crate) fn serve(
        &self,
        request: &Request<'_>,
        memory: Option<&Bytes>,
        out: &mut Vec<u8>,
    ) -> Answer {
        out.clear();
        if self.serve_forgets(request) {
            return Answer::Silence;
        }
        let outcome = self.dispatch(request, memory, out);
        Answer::Reply(self.conclude(&request.header, outcome, out))
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

    /// Whoever unmounts is let go when this is answered, and may do with the block device what he
    /// likes from then on.
    fn sync_for_good(&self) -> Result<(), Error> {
        let synced = self.file_system.sync_all();
        (self.on_destroyed)();
        self.destroyed.get_or_init(|| synced).clone()
    }

    /// Requests that have no reply. INTERRUPT is one, and says nothing new: callers that have been
    /// killed are found without it, and no other signal interrupts what is being done.
    fn serve_forgets(&self, request: &Request<'_>) -> bool {
        match &request.operation {
            Operation::Forget { count } => {
                self.file_system.forget(Ino(request.header.node), *count);
            }
            Operation::BatchForget(forgets) => {
                for (node, count) in forgets.iter() {
                    self.file_system.forget(Ino(node), count);
                }
            }
            Operation::Interrupt { .. } | Operation::NotifyReply => (),
            _ => return false,
        }
        true
    }

    fn dispatch(
        &self,
        request: &Request<'_>,
        memory: Option<&Bytes>,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let header = &request.header;
        let ino = Ino(header.node);
        let out = &mut Encoder(out);
        match &request.operation {
            Operation::Lookup { name } => self.lookup(header, name, out),
            Operation::GetAttributes { open } => self.attributes(header, *open, out),
            Operation::ExtendedAttributes { open } => self.extended_attributes(header, *open, out),
            Operation::SetAttributes(set) => self.set_attributes(header, set, out),
            Operation::Space => self.space(out),
            Operation::ReadLink => self.read_link(ino, out),
            Operation::Symlink { name, target } => self.symlink(header, name, target, out),
            Operation::MakeNode(node) => self.make_node(header, node, out),
            Operation::MakeDirectory(node) => self.make_directory(header, node, out),
            Operation::CreateAnonymous(create) => self.create_anonymous(header, create, out),
            Operation::Link { node, new_name } => self.link(header, Ino(*node), new_name, out),
            Operation::Unlink { name } => self.unlink(header, name),
            Operation::RemoveDirectory { name } => self.remove_directory(header, name),
            Operation::Rename(rename) => self.rename(header, rename),
            Operation::Read(transfer) => self.read(ino, *transfer, out),
            Operation::Write(write) => self.write(header, write, memory, out),
            Operation::Allocate { handle, offset, len, mode } => {
                self.allocate(header, *handle, (*offset, *len), *mode)
            }
            Operation::Seek { offset, whence } => self.seek(ino, *offset, *whence, out),
            Operation::CopyRange(copy) => self.copy_range(header, copy, out),
            Operation::ReadDirectory(transfer) => self.read_directory(ino, *transfer, false, out),
            Operation::ReadDirectoryPlus(transfer) => {
                self.read_directory(ino, *transfer, true, out)
            }
            Operation::GetXattr { name, size } => self.xattr(header, name, *size, out),
            Operation::SetXattr { name, value, flags, clear_setgid } => {
                self.set_xattr(header, name, value, *flags, *clear_setgid)
            }
            Operation::ListXattrs { size } => self.list_xattrs(header, *size, out),
            Operation::RemoveXattr { name } => self.remove_xattr(header, name),
            Operation::Ioctl(ioctl) => self.ioctl(header, ioctl, out),
            Operation::Open { caller_flags } => self.open(header, *caller_flags, out),
            Operation::OpenDirectory => self.open_directory(header, out),
            Operation::Create(create) => self.create(header, create, out),
            Operation::Access { mask } => self.access(header, *mask),
            Operation::Release | Operation::ReleaseDirectory => Ok(()),
            Operation::Init(_) => Err(Errno::PROTOCOL.into()),
            _ => Err(Errno::NO_OPERATION.into()),
        }
    }

    /// Who decides on permissions, if it is not the kernel.
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
