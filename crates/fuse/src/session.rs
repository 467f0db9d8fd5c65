//! A mount that is served: from the kernel's greeting to the last reply.
//!
//! Each serving thread has a lane of its own to the kernel, a buffer for requests and one for
//! replies, and shares nothing with the others that it would have to lock. A supervisor starts
//! them, waits until the mount has ended for all, and then makes everything durable and lets go of
//! all pins: a plain `fuse` mount ends without a word from the kernel.

mod handshake;
mod sync_lane;
mod wakefulness;
mod worker;

pub(crate) use handshake::Agreement;
pub use wakefulness::{can_be_wakeful, should_be_wakeful};

use crate::adapter::Adapter;
use crate::error::MountError;
use crate::mount::{Attached, Unmount, attach, detach, is_attached};
use crate::options::MountOptions;
use crate::protocol::{Encoder, NotifyCode, flags};
use crate::transport::{ClassicTransport, Transport};
use marram_vfs::{FileSystem, Ino, Name};
use std::io::IoSlice;
use std::path::Path;
use std::sync::{Arc, Weak, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use wakefulness::hold_processors;
use worker::Crew;

/// How often to look for callers that have been killed: one gets out of a slow request after once
/// to twice this time.
const CALLERS_TICK: Duration = Duration::from_millis(500);

/// Mounts `file_system` and serves it by threads of this process until it is unmounted.
///
/// The process must not use the mount itself while this function runs, nor from within the file
/// system at any time: it would wait for itself.
///
/// # Errors
/// Nothing is mounted when one is returned.
pub fn mount(
    file_system: Arc<dyn FileSystem>,
    options: MountOptions,
) -> Result<Session, MountError> {
    let mountpoint = options.mountpoint.canonicalize().map_err(|error| MountError::Mountpoint {
        mountpoint: options.mountpoint.clone(),
        reason: error.to_string(),
    })?;
    let options = options.with_rules(file_system.access_rules());
    let (transport, attached) = attach(mountpoint, &options)?;
    serve(file_system, &options, attached.clone(), transport).inspect_err(|_| {
        // The error that made mounting fail is the one to tell; the lane is closed by now, so
        // what could be left is a dead mount, which the next mount command clears.
        let _second_failure = detach(&attached, Unmount::Lazily);
    })
}

/// Greets the kernel and starts the threads.
fn serve(
    file_system: Arc<dyn FileSystem>,
    options: &MountOptions,
    attached: Attached,
    transport: ClassicTransport,
) -> Result<Session, MountError> {
    let agreement = handshake::shake_hands(&transport, options)?;
    attached.raise_read_ahead(options.read_ahead_bytes);
    let lanes = open_lanes(transport, options.threads);
    let handle = SessionHandle { attached, transport: Arc::downgrade(&lanes[0]) };
    let adapter = Adapter::new(file_system, options, agreement);
    let wakeful = options.wakeful;
    let crew = Crew::new(adapter, lanes.len(), wakeful);
    let supervisor = thread::Builder::new()
        .name("marram-fuse".into())
        .spawn(move || supervise(&crew, lanes, wakeful))
        .map_err(|error| MountError::Server { reason: error.to_string() })?;
    Ok(Session { handle, supervisor: Some(supervisor) })
}

/// One lane a thread. A user who may not open the device has only the descriptor that the mount
/// came with: all threads then share its lane, which is slower and nothing else.
fn open_lanes(transport: ClassicTransport, threads: usize) -> Vec<Arc<ClassicTransport>> {
    let first = Arc::new(transport);
    let mut lanes = vec![Arc::clone(&first)];
    while lanes.len() < threads {
        lanes.push(first.another_lane().map_or_else(|_| Arc::clone(&first), Arc::new));
    }
    lanes
}

/// Runs until the mount has ended; the lanes are closed when it returns. It serves the first lane
/// itself: where no more threads can be had, there is one that serves.
fn supervise(
    crew: &Crew,
    lanes: Vec<Arc<ClassicTransport>>,
    wakeful: bool,
) -> marram_vfs::Result<()> {
    // Handles tell by the first lane whether the mount is served: it must outlive all workers.
    let first_lane = Arc::clone(&lanes[0]);
    thread::scope(|scope| {
        if wakeful {
            let keeper = thread::Builder::new().name("marram-wake".into());
            let _slower_without =
                keeper.spawn_scoped(scope, || crew.wakefulness.keep(hold_processors));
        }
        let (over, is_over) = mpsc::channel::<()>();
        let watched = lanes.clone();
        let watcher = thread::Builder::new().name("marram-calls".into());
        let _nobody_is_let_go_without =
            watcher.spawn_scoped(scope, move || watch_callers(&watched, &is_over));
        let mut lanes = lanes.into_iter();
        let own = lanes.next();
        let workers: Vec<_> = lanes
            .filter_map(|lane| {
                let thread = thread::Builder::new().name("marram-fuse".into());
                thread.spawn_scoped(scope, || crew.work(lane, scope)).ok()
            })
            .collect();
        if let Some(lane) = own {
            crew.work(lane, scope);
        }
        for worker in workers {
            worker.join().expect("a worker catches the panics of what it serves");
        }
        crew.syncs.close();
        crew.wakefulness.close();
        drop(over);
    });
    drop(first_lane);
    crew.adapter.end()
}

/// Lets callers go that have been killed, until the other end of `is_over` goes.
fn watch_callers(lanes: &[Arc<ClassicTransport>], is_over: &mpsc::Receiver<()>) {
    while is_over.recv_timeout(CALLERS_TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
        for (at, lane) in lanes.iter().enumerate() {
            // Where threads share a lane it is looked at once.
            if !lanes[..at].iter().any(|earlier| Arc::ptr_eq(earlier, lane)) {
                lane.let_the_killed_go();
            }
        }
    }
}

/// A mount that is being served. Dropping it unmounts lazily and waits for the threads.
#[derive(Debug)]
pub struct Session {
    handle: SessionHandle,
    supervisor: Option<JoinHandle<marram_vfs::Result<()>>>,
}

impl Session {
    /// What other threads need to end the mount or to talk to the kernel.
    pub fn handle(&self) -> SessionHandle {
        self.handle.clone()
    }

    /// Unmounts; see [`SessionHandle::unmount`].
    ///
    /// # Errors
    /// The mount is in use, or the kernel refuses.
    pub fn unmount(&self, how: Unmount) -> Result<(), MountError> {
        self.handle.unmount(how)
    }

    /// Waits until somebody has unmounted, the last reply is sent and everything is durable.
    ///
    /// # Errors
    /// Making everything durable at the end failed, or a serving thread died.
    pub fn wait(mut self) -> Result<(), MountError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), MountError> {
        match self.supervisor.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => Err(MountError::Sync(error)),
            Some(Err(_)) => Err(MountError::Server { reason: "a thread panicked".into() }),
            Some(Ok(Ok(()))) | None => Ok(()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.supervisor.is_some() && self.unmount(Unmount::Lazily).is_ok() {
            let _nobody_to_tell = self.join();
        }
    }
}

/// A way to a served mount that can be copied and used from any thread.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    attached: Attached,
    transport: Weak<ClassicTransport>,
}

impl SessionHandle {
    /// Where it is mounted: an absolute path.
    pub fn mountpoint(&self) -> &Path {
        &self.attached.mountpoint
    }

    /// Whether the mount is still served.
    pub fn is_served(&self) -> bool {
        self.transport.strong_count() > 0
    }

    /// Whether it is still mounted anywhere that this process sees: a mount can be bound to other
    /// places, and lives until it is taken from all.
    pub fn is_mounted(&self) -> bool {
        is_attached(&self.attached)
    }

    /// Unmounts. Fine if that has happened already, also by other hands. With a `fuseblk` mount
    /// everything is durable when it returns; with others when [`Session::wait`] does.
    ///
    /// # Errors
    /// The mount is in use or covered by another, or the kernel refuses.
    pub fn unmount(&self, how: Unmount) -> Result<(), MountError> {
        detach(&self.attached, how)
    }

    /// Lets the kernel hold back no more written data (shared mappings, `writeback`) of this mount
    /// than `bytes`: what it holds back when the file system becomes full has to fit all the same.
    /// A limit is never raised. Without root, and before Linux 6.2, the kernel's own limit stays:
    /// a hundredth of the memory that may hold written data at all.
    pub fn limit_held_back(&self, bytes: u64) {
        self.attached.limit_held_back(bytes);
    }

    /// Tells the kernel that attributes and content of `ino` have changed behind its back. An
    /// inode that it does not know is fine. Never to be called from within an operation of the
    /// file system.
    pub fn notify_inode(&self, ino: Ino) {
        let mut payload = Vec::new();
        Encoder(&mut payload).u64(ino.0).i64(0).i64(0);
        self.notify(NotifyCode::Inode, &payload);
    }

    /// Tells the kernel that `name` in `parent` may mean something else than it remembers. Never
    /// to be called from within an operation of the file system: the kernel holds the directory's
    /// lock for that operation, and wants it for this.
    pub fn notify_entry(&self, parent: Ino, name: Name<'_>) {
        let name = name.as_bytes();
        let name_bytes = u32::try_from(name.len()).expect("names are short");
        let mut payload = Vec::new();
        Encoder(&mut payload)
            .u64(parent.0)
            .u32(name_bytes)
            .u32(flags::notify::EXPIRE_ONLY)
            .bytes(name)
            .zeros(1);
        self.notify(NotifyCode::Entry, &payload);
    }

    /// What the kernel does not know cannot be out of date, so its errors mean nothing here.
    fn notify(&self, code: NotifyCode, payload: &[u8]) {
        if let Some(transport) = self.transport.upgrade() {
            let header = code.header(payload.len());
            let _unknown = transport.send(&[IoSlice::new(&header), IoSlice::new(payload)]);
        }
    }
}
