//! Requests become calls of a [`FileSystem`], results become replies. It adapts and decides
//! nothing: what an operation means is the file system's to say.
//!
//! Handles do not exist here: OPEN and OPENDIR are answered "no such operation", the kernel then
//! stops sending them (and RELEASE and FLUSH), keeps its page cache over reopening, and every
//! request names its inode. CREATE, which would open too, is answered so as well: the kernel then
//! makes files by MKNOD, and knows itself that who has just made a file may write to it whatever
//! its mode says. Only TMPFILE makes and opens at once, and only its files are released. A file
//! that is removed while open lives by its pins: each reply that tells the kernel of an inode pins
//! it once, FORGET takes pins back.

mod attributes;
mod caller;
mod directories;
mod files;
mod ioctl;
mod names;
mod xattrs;

use crate::errno::Errno;
use crate::event::{Event, EventSink};
use crate::options::MountOptions;
use crate::protocol::{AttributesEncoding, Encoder, Header, Operation, Request};
use marram_vfs::{Caller, Error, FileSystem, Ino, Name, SyncScope};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
}

impl SyncJob {
    /// The job that a request is, if it is one.
    pub(crate) fn of(request: &Request<'_>) -> Option<SyncJob> {
        match request.operation {
            Operation::Sync { data_only } | Operation::SyncDirectory { data_only } => {
                let scope = if data_only { SyncScope::Data } else { SyncScope::All };
                Some(SyncJob::Inode(Ino(request.header.node), scope))
            }
            Operation::SyncAll | Operation::Destroy => Some(SyncJob::All),
            _ => None,
        }
    }

    fn inode(self) -> Option<(Ino, SyncScope)> {
        match self {
            SyncJob::Inode(ino, scope) => Some((ino, scope)),
            SyncJob::All => None,
        }
    }
}

/// Calls a file system on behalf of the kernel.
pub(crate) struct Adapter {
    file_system: Arc<dyn FileSystem>,
    encoding: AttributesEncoding,
    /// The kernel holds written data back and owns the times of files while it does.
    writeback: bool,
    pub(crate) transfer_bytes_max: usize,
    pub(crate) on_event: EventSink,
    /// The file system has been shut down through this mount: that nothing works any more is no
    /// news.
    shut_down: AtomicBool,
}

impl Adapter {
    pub(crate) fn new(
        file_system: Arc<dyn FileSystem>,
        options: &MountOptions,
        writeback: bool,
        transfer_bytes_max: usize,
    ) -> Adapter {
        Adapter {
            file_system,
            encoding: AttributesEncoding {
                entry_timeout: options.entry_timeout,
                attributes_timeout: options.attributes_timeout,
                preferred_io_bytes: options.preferred_io_bytes,
            },
            writeback,
            transfer_bytes_max,
            on_event: options.on_event.clone(),
            shut_down: AtomicBool::new(false),
        }
    }

    /// The mount has ended: makes everything durable, unless it was shut down so that it is not,
    /// and lets go of all pins.
    pub(crate) fn end(&self) -> Result<(), Error> {
        let synced = match self.shut_down.load(Ordering::Acquire) {
            true => Ok(()),
            false => self.file_system.sync_all(),
        };
        self.file_system.forget_all();
        synced
    }

    /// Serves one request; `out` takes the payload and is empty after an error.
    pub(crate) fn serve(&self, request: &Request<'_>, out: &mut Vec<u8>) -> Answer {
        out.clear();
        if self.serve_forgets(request) {
            return Answer::Silence;
        }
        let outcome = self.dispatch(request, out);
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
            };
            self.conclude(header, outcome.map_err(Refusal::from), &mut Vec::new())
        };
        jobs.iter().map(outcome).collect()
    }

    /// Requests that have no reply. INTERRUPT is one: nothing here waits but syncs, which end by
    /// themselves, so the request that it names is answered as if it had not come.
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

    fn dispatch(&self, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
        let header = &request.header;
        let ino = Ino(header.node);
        let out = &mut Encoder(out);
        match &request.operation {
            Operation::Lookup { name } => self.lookup(ino, name, out),
            Operation::GetAttributes => self.attributes(ino, out),
            Operation::ExtendedAttributes => self.extended_attributes(ino, out),
            Operation::SetAttributes(set) => self.set_attributes(header, set, out),
            Operation::Space => self.space(out),
            Operation::ReadLink => self.read_link(ino, out),
            Operation::Symlink { name, target } => self.symlink(header, name, target, out),
            Operation::MakeNode(node) => self.make_node(header, node, out),
            Operation::MakeDirectory(node) => self.make_directory(header, node, out),
            Operation::CreateAnonymous(create) => self.create_anonymous(header, create, out),
            Operation::Link { node, new_name } => self.link(Ino(*node), ino, new_name, out),
            Operation::Unlink { name } => self.unlink(ino, name),
            Operation::RemoveDirectory { name } => self.remove_directory(ino, name),
            Operation::Rename(rename) => self.rename(header, rename),
            Operation::Read(transfer) => self.read(ino, *transfer, out),
            Operation::Write(write) => self.write(ino, write, out),
            Operation::Allocate { offset, len, mode } => {
                self.allocate(header, *offset, *len, *mode)
            }
            Operation::Seek { offset, whence } => self.seek(ino, *offset, *whence, out),
            Operation::CopyRange(copy) => self.copy_range(header, copy, out),
            Operation::ReadDirectory(transfer) => self.read_directory(ino, *transfer, false, out),
            Operation::ReadDirectoryPlus(transfer) => {
                self.read_directory(ino, *transfer, true, out)
            }
            Operation::GetXattr { name, size } => self.xattr(ino, name, *size, out),
            Operation::SetXattr { name, value, flags } => self.set_xattr(ino, name, value, *flags),
            Operation::ListXattrs { size } => self.list_xattrs(header, *size, out),
            Operation::RemoveXattr { name } => self.remove_xattr(ino, name),
            Operation::Ioctl(ioctl) => self.ioctl(header, ioctl, out),
            Operation::Release | Operation::ReleaseDirectory => Ok(()),
            Operation::Init(_) => Err(Errno::PROTOCOL.into()),
            _ => Err(Errno::NO_OPERATION.into()),
        }
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
