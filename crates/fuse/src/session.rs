//! A mount that is served: from the kernel's greeting to the last reply.
//!
//! Requests come over io_uring or over `/dev/fuse`, as was chosen and as the kernel allows. Each
//! serving thread has a lane of its own to the kernel, a buffer for requests and one for
//! replies, and shares nothing with the others that it would have to lock; but the buffer of a long
//! write may stay with the file system, and then it takes another (`memory`). A supervisor starts
//! them, waits until the mount has ended for all, and then makes everything durable and lets go of
//! all pins: a plain `fuse` mount ends without a word from the kernel.

mod handshake;
mod lane;
mod late;
mod lock_lane;
mod memory;
mod notify;
mod page_lane;
mod reenact;
mod reply;
mod rings;
mod sync_lane;
mod wakefulness;
mod worker;

pub use reenact::{Reenactment, Reenactor, Shown};
pub use wakefulness::{can_be_wakeful, should_be_wakeful};

use crate::adapter::{Adapter, Reenacted};
use crate::error::MountError;
use crate::mount::{Attached, Unmount, attach, attach_again, detach, hide, is_attached, is_on};
use crate::options::MountOptions;
use crate::protocol::NotifyCode;
use crate::transport::{ClassicTransport, Transport};
use lane::Lane;
use late::{Change, LateNames};
use marram_vfs::FileSystem;
use rings::Rings;
use std::fmt;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread::{self, JoinHandle, Scope};
use std::time::Duration;
use wakefulness::hold_processors;
use worker::Crew;

/// How often to look for callers that have been killed, and for changes to notify the kernel of. A
/// killed caller gets out of a slow request after once to twice this time.
const CALLERS_TICK: Duration = Duration::from_millis(500);

/// Mounts `file_system` and serves it by threads of this process until it is unmounted.
///
/// The process must not use the mount itself while this function runs, nor from within the file
/// system at any time: it would wait for itself. Other threads may, as [`Reenactment`] does.
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
    let options = options
        .with_rules(file_system.access_rules())
        .with_locks(file_system.capabilities().locks.is_some());
    let (transport, attached) = attach(mountpoint, &options)?;
    serve(file_system, &options, attached.clone(), transport).inspect_err(|_| {
        // The error that made mounting fail is the one to tell; the lane is closed by now, so
        // what could be left is a dead mount, which the next mount command clears.
        let _second_failure = detach(&attached, &attached.mountpoint, Unmount::Lazily);
    })
}

/// Greets the kernel and starts the threads.
fn serve(
    file_system: Arc<dyn FileSystem>,
    options: &MountOptions,
    attached: Attached,
    transport: ClassicTransport,
) -> Result<Session, MountError> {
    let transport = Arc::new(transport);
    let rings = Rings::prepare(&transport, options, handshake::transfer_bytes_max(options))
        .map_err(|reason| MountError::IoUring { reason })?;
    let agreement = handshake::shake_hands(&*transport, options, rings.is_some())?;
    if rings.is_some() && !agreement.io_uring {
        let reason = "the kernel does not offer it to this mount".into();
        return Err(MountError::IoUring { reason });
    }
    attached.raise_read_ahead(options.read_ahead_bytes);
    let in_use = match &rings {
        Some(_) => TransportInUse::IoUring,
        None => TransportInUse::Classic,
    };
    let adapter = Adapter::new(file_system, options, agreement);
    let (wakeful, threads) = (options.wakeful, options.threads);
    let crew = Crew::new(adapter, threads, wakeful);
    let handle = SessionHandle {
        attached,
        transport: Arc::downgrade(&transport),
        in_use,
        destroyed: Arc::clone(&crew.adapter.destroyed),
        late_names: Arc::clone(&crew.late_names),
        reenacted: Arc::clone(&crew.adapter.reenacted),
    };
    let supervisor = thread::Builder::new()
        .name("marram-fuse".into())
        .spawn(move || supervise(&crew, transport, rings, wakeful))
        .map_err(|error| MountError::Server { reason: error.to_string() })?;
    Ok(Session { handle, supervisor: Some(supervisor) })
}

/// One lane a thread. A server without the right to open the device has only the descriptor that
/// the mount came with: all threads then share its lane, which is slower and nothing else.
fn open_lanes(first: &Arc<ClassicTransport>, threads: usize) -> Vec<Arc<ClassicTransport>> {
    let mut lanes = vec![Arc::clone(first)];
    while lanes.len() < threads {
        lanes.push(first.another_lane().map_or_else(|_| Arc::clone(first), Arc::new));
    }
    lanes
}

/// Runs until the mount has ended; the lanes are closed when it returns. It serves the first lane
/// itself: where no more threads can be had, there is one that serves.
fn supervise(
    crew: &Crew,
    device: Arc<ClassicTransport>,
    rings: Option<Rings>,
    wakeful: bool,
) -> marram_vfs::Result<()> {
    thread::scope(|scope| {
        if wakeful {
            let keeper = thread::Builder::new().name("marram-wake".into());
            let _slower_without =
                keeper.spawn_scoped(scope, || crew.wakefulness.keep(hold_processors));
        }
        let rings = rings.as_ref();
        let has_rings = rings.is_some_and(|rings| crew.start_rings(rings, scope));
        // Beside rings the device has only forgets to tell.
        let lanes = open_lanes(&device, if has_rings { 1 } else { crew.workers });
        let watched = lanes.clone();
        let mut spare = None;
        let watcher = every_tick(scope, "marram-calls", move || {
            for_each_once(&watched, ClassicTransport::let_the_killed_go);
            crew.memory.let_go();
            if let Some(rings) = rings {
                rings.let_the_killed_go(&mut spare);
                crew.start_fresh(rings, scope);
            }
        });
        // By a thread of its own: before the kernel takes a notification it may wait for a caller
        // that the other thread is to let go.
        let notified = lanes.clone();
        let teller = every_tick(scope, "marram-late", move || {
            for_each_once(&notified, ClassicTransport::tell_written_late);
            if let Some(rings) = rings {
                rings.tell_written_late();
            }
            crew.late_names.tell(&*notified[0]);
        });
        let workers: Vec<_> = lanes[1..]
            .iter()
            .filter_map(|lane| {
                let lane = Lane::Device(Arc::clone(lane));
                let thread = thread::Builder::new().name("marram-fuse".into());
                thread.spawn_scoped(scope, move || crew.work(lane, rings, scope)).ok()
            })
            .collect();
        crew.work(Lane::Device(Arc::clone(&device)), rings, scope);
        for worker in workers {
            worker.join().expect("a worker catches the panics of what it serves");
        }
        crew.locks.close(&crew.adapter);
        if let Some(rings) = rings {
            rings.wait_for_threads();
        }
        crew.syncs.close();
        crew.pages.close();
        crew.wakefulness.close();
        drop((watcher, teller));
    });
    drop(rings);
    // Handles tell by the device whether the mount is served.
    drop(device);
    crew.adapter.end()
}

/// Has a thread do `work` every now and then, until what comes back is dropped. Where no thread can
/// be had nobody does it.
fn every_tick<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    mut work: impl FnMut() + Send + 'scope,
) -> mpsc::Sender<()> {
    let (over, is_over) = mpsc::channel();
    let run = move || {
        while is_over.recv_timeout(CALLERS_TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
            work();
        }
    };
    let _goes_undone_without = thread::Builder::new().name(name.into()).spawn_scoped(scope, run);
    over
}

/// Calls `act` for each lane; once where threads share one.
fn for_each_once(lanes: &[Arc<ClassicTransport>], act: impl Fn(&ClassicTransport)) {
    for (at, lane) in lanes.iter().enumerate() {
        if !lanes[..at].iter().any(|earlier| Arc::ptr_eq(earlier, lane)) {
            act(lane);
        }
    }
}

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportInUse {
    /// By reading `/dev/fuse`.
    Classic,
    /// Over io_uring.
    IoUring,
}

impl fmt::Display for TransportInUse {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            TransportInUse::Classic => "classic",
            TransportInUse::IoUring => "io_uring",
        })
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
    in_use: TransportInUse,
    destroyed: Arc<OnceLock<marram_vfs::Result<()>>>,
    late_names: Arc<LateNames>,
    reenacted: Arc<Reenacted>,
}

impl SessionHandle {
    /// Where it is mounted: an absolute path.
    pub fn mountpoint(&self) -> &Path {
        &self.attached.mountpoint
    }

    /// Major and minor number of the device that its files show, in every mount namespace. No other
    /// mount has it as long as this one lives.
    pub fn device(&self) -> (u32, u32) {
        self.attached.device
    }

    /// How its requests come.
    pub fn transport(&self) -> TransportInUse {
        self.in_use
    }

    /// Whether the mount is still served.
    pub fn is_served(&self) -> bool {
        self.transport.strong_count() > 0
    }

    /// Whether the kernel still has the mount, which may end before the last answers are sent: its
    /// device number can be another mount's from then on.
    pub fn is_connected(&self) -> bool {
        self.transport.upgrade().is_some_and(|transport| transport.is_connected())
    }

    /// Whether nobody has it mounted or open any more, in whatever namespace, though its last
    /// answers may have still to be sent. The kernel says so of mounts of block devices alone.
    pub fn is_destroyed(&self) -> bool {
        self.destroyed.get().is_some()
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
        self.unmount_from(&self.attached.mountpoint, how)
    }

    /// The same for one of several places.
    ///
    /// # Errors
    /// As for [`SessionHandle::unmount`].
    pub fn unmount_from(&self, directory: &Path, how: Unmount) -> Result<(), MountError> {
        detach(&self.attached, directory, how)
    }

    /// Takes the mount away from a place where nobody has seen it, while `_held`, a descriptor of
    /// it, keeps it. So the kernel lets go of nothing, and asks this server nothing meanwhile.
    ///
    /// # Errors
    /// As for [`SessionHandle::unmount`].
    pub fn hide(&self, directory: &Path, _held: BorrowedFd<'_>) -> Result<(), MountError> {
        hide(&self.attached, directory)
    }

    /// Shows the mount, which must be one of a block device, in a second place: of equal right, and
    /// unmounted by itself. `options` are those of the second; of them `suid`, `dev`, programs and
    /// access times can differ from the first.
    ///
    /// # Errors
    /// The kernel refuses, or the first is just ending.
    pub fn mount_again(&self, options: &MountOptions) -> Result<(), MountError> {
        attach_again(&self.attached, &options.mountpoint, options)
    }

    /// Whether this mount is what is seen on `directory`.
    pub fn is_on(&self, directory: &Path) -> bool {
        is_on(&self.attached, directory)
    }

    /// Lets the kernel hold back no more written data (shared mappings, `writeback`) of this mount
    /// than `bytes`: what it holds back when the file system becomes full has to fit all the same.
    /// A limit is never raised. Without root, and before Linux 6.2, the kernel's own limit stays:
    /// a hundredth of the memory that may hold written data at all.
    pub fn limit_held_back(&self, bytes: u64) {
        self.attached.limit_held_back(bytes);
    }

    /// Has the notice of a change sent again, a moment later.
    fn tell_again(&self, change: Change) {
        self.late_names.note_notified(change);
    }

    /// Sends what answers no request; whether the kernel took it. What it does not know cannot be
    /// out of date, so mostly its refusals mean nothing.
    fn notify(&self, code: NotifyCode, payload: &[u8]) -> bool {
        self.transport.upgrade().is_some_and(|transport| {
            let header = code.header(payload.len());
            transport.send(&[IoSlice::new(&header), IoSlice::new(payload)]).is_ok()
        })
    }
}
