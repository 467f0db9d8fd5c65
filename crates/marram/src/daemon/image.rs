//! The daemon of a mount that shows streams in files: for reading, and with no pool behind it.
//!
//! It has one mount and ends with it. The mounting command opens the files once, so they may get
//! other names while they are shown. All of them has been verified before the mount answers. Later
//! damage is reported as damage of the file that it hits.

use super::background::Signals;
use super::damage::DamageList;
use super::launch::{Launch, Ready};
use super::log::Log;
use super::mounts::{check_directory, check_wakeful, describe, fuse_error, fuse_options, is_used};
use super::namespace::{Namespace, Resolved};
use crate::control::protocol::{
    Answer, CompareOrder, DamageRow, Greeting, MountReport, Operation, PassOrder, ReceiveOrder,
    Request, SendOrder, ShownFile, ShownReport, UnmountedPlace, VERSION,
};
use crate::control::server::{ControlSocket, Service, clear_abandoned};
use crate::engine::{ShownStreams, show_streams};
use crate::error::{Error, Result};
use crate::mountinfo;
use crate::options::AccessTimes;
use crate::paths;
use crate::process::own_pid;
use marram_fuse::{SessionHandle, Unmount};
use marram_vfs::{AccessRules, FileSystem, Ino, Kind};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often an unmount looks whether the last request has been answered.
const END_TICK: Duration = Duration::from_millis(20);

/// What the control socket answers from.
struct ImageService {
    file: PathBuf,
    shown: Vec<ShownFile>,
    damage: Arc<DamageList>,
    report: MountReport,
    session: SessionHandle,
    namespace: Arc<Namespace>,
    is_over: AtomicBool,
}

/// Shows what `launch` says until it is unmounted. Calls `ready` once it answers.
///
/// # Errors
/// A stream that is not whole, or cannot be mounted; then `ready` was not called.
pub(super) fn run(
    launch: &Launch,
    log: Log,
    signals: Signals,
    ready: impl FnOnce(&Ready),
) -> Result<()> {
    let (request, log) = (&launch.mount, Arc::new(log));
    check_directory(&request.directory)?;
    check_wakeful(&request.options)?;
    let shown = launch.streams.iter().map(|path| identify(path)).collect::<Result<Vec<_>>>()?;
    let damage = Arc::<DamageList>::default();
    let ShownStreams { source, volume, root, items, memory_bytes } =
        show_streams(&launch.streams, note_in(&log, &damage))?;
    log.write(&format!("{source}: {items} items, all verified; {memory_bytes} bytes of memory"));
    let namespace = Arc::new(Namespace::new(volume, root, None));
    let kernel_checks = !matches!(namespace.access_rules(), AccessRules::Own(_));
    let mut fuse = fuse_options(&log, &launch.pool, request, (true, AccessTimes::Never));
    fuse.allow_devices &= kernel_checks;
    let mut report = MountReport {
        directory: request.directory.clone(),
        source,
        read_only: true,
        options: describe(&fuse, &request.options, kernel_checks),
        block_device: None,
        has_ended: false,
        device: None,
        in_sight: None,
        elsewhere: Vec::new(),
    };
    let files: Arc<dyn FileSystem> = namespace.clone();
    let session = marram_fuse::mount(files, fuse).map_err(fuse_error)?;
    report.options += &format!(",transport={}", session.handle().transport());
    report.device = Some(session.handle().device().into());
    let service = Arc::new(ImageService {
        file: launch.pool.clone(),
        shown,
        damage,
        report: report.clone(),
        session: session.handle(),
        namespace,
        is_over: AtomicBool::new(false),
    });
    let socket = serve_control(&service).and_then(|socket| {
        end_at_signal(signals, session.handle(), &log)?;
        Ok(socket)
    });
    let socket = socket.inspect_err(|_| {
        let _told_already = session.unmount(Unmount::Lazily);
    })?;
    log.write(&format!("marram {VERSION}: shows it at {}", report.directory.display()));
    ready(&Ready { pid: own_pid(), mounts: vec![report], warnings: Vec::new() });
    let ended = session.wait().map_err(fuse_error);
    service.is_over.store(true, Ordering::Release);
    socket.withdraw().drain();
    log.write("the mount has ended");
    ended
}

fn identify(path: &Path) -> Result<ShownFile> {
    let found = std::fs::metadata(path).map_err(|error| Error::system("look at", path, error))?;
    Ok(ShownFile { path: path.to_owned(), identity: (found.dev(), found.ino()) })
}

/// Notes damage in the list, and each place once in the log.
fn note_in(log: &Arc<Log>, damage: &Arc<DamageList>) -> Arc<dyn Fn(DamageRow) + Send + Sync> {
    let (log, damage) = (Arc::clone(log), Arc::clone(damage));
    Arc::new(move |row: DamageRow| {
        let line = format!("damaged: {}: {}", row.place, row.reason);
        if damage.add(row) {
            log.write(&line);
        }
    })
}

fn serve_control(service: &Arc<ImageService>) -> Result<ControlSocket> {
    let folder = paths::control_folder();
    paths::make_control_folder(&folder)?;
    clear_abandoned(&folder);
    let path = folder.join(format!("stream-{}.sock", own_pid()));
    ControlSocket::serve(&path, Arc::clone(service) as Arc<dyn Service>)
}

fn end_at_signal(signals: Signals, session: SessionHandle, log: &Arc<Log>) -> Result<()> {
    let log = Arc::clone(log);
    signals.at_first(move |signal| {
        log.write(&format!("signal {signal}: unmounting"));
        let unmounted = session.unmount(Unmount::WhenUnused);
        if let Err(error) = unmounted.or_else(|_| session.unmount(Unmount::Lazily)) {
            log.write(&error.to_string());
        }
    })
}

impl ImageService {
    /// Returns when the mount is gone of which a place is, or is known to be used elsewhere.
    fn unmounted(&self, place: &UnmountedPlace) -> Answer {
        let is_served = || self.session.is_served();
        let began = Instant::now();
        while !place.detached && is_served() && !is_used(&self.session, began.elapsed()) {
            std::thread::sleep(END_TICK);
        }
        let is_own = place.directory == self.report.directory
            && place.namespace == mountinfo::own_namespace();
        Answer::Unmounted {
            mounts_left: usize::from(is_served()),
            not_durable: None,
            used_elsewhere: is_own && !place.detached && is_served(),
        }
    }

    fn locate(&self, ino: u64) -> Result<Answer> {
        let gone = |error: marram_vfs::Error| Error::not_found(error.to_string());
        let Resolved { root, volume, ino: inner, .. } =
            self.namespace.resolve(Ino(ino)).map_err(gone)?;
        let is_directory = volume.attributes(inner).map_err(gone)?.kind == Kind::Directory;
        let ino = if is_directory { inner.0 } else { 0 };
        Ok(Answer::Located { source: self.report.source.clone(), ino, root: root.0 })
    }

    fn status(&self) -> Answer {
        let damage = self.damage.rows();
        let health = if damage.is_empty() { "online" } else { "damaged" };
        Answer::ShownStatus(Box::new(ShownReport {
            streams: self.shown.iter().map(|shown| shown.path.clone()).collect(),
            health: health.to_owned(),
            damage,
            mounts: vec![self.report.clone()],
            pid: own_pid(),
            version: VERSION.to_owned(),
        }))
    }

    fn no_pool(&self) -> Error {
        let place = self.report.directory.display();
        Error::failed(format!("{place} shows the stream {}, which is no pool", self.file.display()))
            .hint("receive it into a pool with `marram receive POOL NAME --from-file FILE`")
    }
}

impl Service for ImageService {
    fn greeting(&self) -> Greeting {
        Greeting {
            version: VERSION.to_owned(),
            pid: own_pid(),
            pool_id: String::new(),
            pool: self.file.clone(),
            served: None,
            namespace: mountinfo::own_namespace(),
            // The device number of a mount that has ended may be another's.
            mounts: Vec::from_iter(self.session.is_connected().then(|| self.report.clone())),
            shows_streams: true,
            shown: self.shown.clone(),
            transactions: 0,
        }
    }

    fn handle(&self, request: Request) -> Result<Answer> {
        match request {
            Request::Unmounting => Ok(Answer::Done),
            Request::Unmounted(place) => Ok(self.unmounted(&place)),
            Request::Locate { ino, .. } => self.locate(ino),
            Request::Perform(Operation::Status)
            | Request::PerformFor { operation: Operation::Status, .. } => Ok(self.status()),
            _ => Err(self.no_pool()),
        }
    }

    fn compare(&self, _order: &CompareOrder, _out: &mut dyn Write) -> Result<Answer> {
        Err(self.no_pool())
    }

    fn send(&self, _order: &SendOrder, _out: &mut dyn Write) -> Result<Answer> {
        Err(self.no_pool())
    }

    fn receive(&self, _order: &ReceiveOrder, _input: &mut dyn Read) -> Result<Answer> {
        Err(self.no_pool())
    }

    fn deduplicate(
        &self,
        _order: &PassOrder,
        _is_wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Answer> {
        Err(self.no_pool())
    }

    fn defragment(
        &self,
        _order: &PassOrder,
        _is_wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Answer> {
        Err(self.no_pool())
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}
