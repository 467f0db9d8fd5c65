//! The options of a mount, as the FUSE transport takes them and as users read them.

use crate::control::protocol::MountRequest;
use crate::daemon::log::Log;
use crate::daemon::state::Daemon;
use crate::options::{AccessTimes, Close, MountOptions, Transport};
use crate::paths;
use crate::process::threads;
use marram_fuse::SyncedCloses;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Fewest threads that serve a mount: one that waits for a device must not hold up all.
const SERVING_THREADS_MIN: usize = 4;

/// The options of a mount of a home.
pub(super) fn options_of(
    daemon: &Daemon,
    request: &MountRequest,
    read_only: bool,
    access_times: AccessTimes,
    block_device: Option<PathBuf>,
) -> marram_fuse::MountOptions {
    let source = daemon.home.path();
    let mut fuse = fuse_options(&daemon.log, source, request, (read_only, access_times));
    fuse.block_device = block_device;
    // What others cannot change stays as it is.
    let is_fixed = daemon.mode.read_only
        || request.options.source().is_ok_and(|source| source.snapshot.is_some());
    fuse.shareable = daemon.home.is_shareable() && !is_fixed;
    if (fuse.shareable || !daemon.home.names_what_changes()) && !forgets_all_names() {
        fuse.entry_timeout = Duration::ZERO;
        fuse.absence_timeout = Duration::ZERO;
    }
    fuse
}

/// The options of a mount that shows `source`.
pub(in crate::daemon) fn fuse_options(
    log: &Arc<Log>,
    source: &Path,
    request: &MountRequest,
    (read_only, access_times): (bool, AccessTimes),
) -> marram_fuse::MountOptions {
    let (options, root) = (&request.options, paths::is_root());
    let source = source.to_string_lossy().into_owned();
    let mut fuse = marram_fuse::MountOptions::new(&request.directory, source);
    fuse.read_only = read_only;
    fuse.allow_other = options.allow_other.unwrap_or(root && !options.fakeroot);
    fuse.allow_setuid = options.suid.unwrap_or(root);
    fuse.allow_devices = options.dev.unwrap_or(root);
    fuse.allow_programs = options.exec.unwrap_or(true);
    fuse.access_times = match access_times {
        AccessTimes::Never => marram_fuse::AccessTimes::Never,
        AccessTimes::Relative => marram_fuse::AccessTimes::Relative,
        AccessTimes::Strict => marram_fuse::AccessTimes::Strict,
    };
    fuse.writeback = options.writeback && !read_only;
    fuse.threads = threads().max(SERVING_THREADS_MIN);
    fuse.strict_open = options.strict_open;
    fuse.synced_closes = match options.close {
        _ if read_only => SyncedCloses::None,
        Close::Auto => SyncedCloses::BesideOthers,
        Close::Publish => SyncedCloses::All,
        Close::Later => SyncedCloses::None,
    };
    fuse.file_handles = !options.no_handles;
    fuse.wakeful = wakeful(options);
    fuse.transport = match options.transport {
        Transport::Auto => marram_fuse::TransportChoice::Auto,
        Transport::Classic => marram_fuse::TransportChoice::Classic,
        Transport::IoUring => marram_fuse::TransportChoice::IoUring,
    };
    let log = Arc::clone(log);
    fuse.on_event = Arc::new(move |event| log.write(&event.to_string()));
    fuse
}

/// Whether the kernel can be made to forget all names at once, as from Linux 6.16 on: also that
/// there is no such name. Else it may remember none where others may come.
fn forgets_all_names() -> bool {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy();
    let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(16))
}

/// Whether processors are to be kept from halting while requests flow.
fn wakeful(options: &MountOptions) -> bool {
    let worth_it = || marram_fuse::should_be_wakeful() && marram_fuse::can_be_wakeful();
    options.wakeful.unwrap_or_else(worth_it)
}

/// The options of a mount in words, as `/proc/mounts` would have them.
pub(in crate::daemon) fn describe(
    fuse: &marram_fuse::MountOptions,
    asked: &MountOptions,
    kernel_checks: bool,
) -> String {
    let words = [
        (true, if fuse.read_only { "ro" } else { "rw" }),
        (!fuse.allow_setuid, "nosuid"),
        (!fuse.allow_devices, "nodev"),
        (!fuse.allow_programs, "noexec"),
        (fuse.access_times == marram_fuse::AccessTimes::Never, "noatime"),
        (fuse.access_times == marram_fuse::AccessTimes::Relative, "relatime"),
        (fuse.access_times == marram_fuse::AccessTimes::Strict, "strictatime"),
        (fuse.allow_other, "allow_other"),
        (kernel_checks, "default_permissions"),
        (true, if fuse.writeback { "writeback" } else { "ordered" }),
        (fuse.strict_open, "strictopen"),
        (fuse.synced_closes == SyncedCloses::All, "close=publish"),
        (asked.close == Close::Later, "close=later"),
        (!fuse.file_handles, "nohandles"),
        (fuse.wakeful, "wakeful"),
    ];
    let said = words.into_iter().filter(|(said, _)| *said).map(|(_, word)| word.to_owned());
    let mut said: Vec<String> = said.collect();
    // A remount to writable mounts anew, and reads these here. Access times are those of the mount.
    let (_, asked) = asked.words_of_mount();
    let others: Vec<String> = asked.into_iter().filter(|word| !said.contains(word)).collect();
    said.extend(others);
    said.join(",")
}
