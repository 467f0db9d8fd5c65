//! A dataset that is mounted in a second place, as the kernel's own file systems can be.
//!
//! The kernel has one file system for a block device, however often it is mounted: then there is
//! one cache, and all places show the same at every moment. So a second mount of a dataset becomes
//! another place of the first, of equal right: whichever is unmounted, the other stays. What is a
//! matter of one place (`suid`, `dev`, `exec`) may differ; what holds for the file system must be
//! as it is, or not be asked for. Without a block device (users, `blkdev=off`) the kernel offers
//! nothing of the kind, and a second mount is refused.

use super::checks::fuse_error;
use super::fuse::{describe, options_of};
use crate::control::protocol::{ENDING, MountReport, MountRequest, THERE_ALREADY};
use crate::daemon::state::Daemon;
use crate::error::{Error, Kind, Result};
use crate::options::{AccessTimes, BlockDevice, Close, MountOptions, Transport};
use marram_fuse::SyncedCloses;
use marram_store::Source;
use marram_vfs::{AccessRules, FileSystem};

/// Mounts in another place what is mounted already; `None` if there is no such mount.
pub(super) fn mount_again(
    daemon: &Daemon,
    request: &MountRequest,
    source: &Source,
) -> Result<Option<MountReport>> {
    let first = if source.snapshot.is_none() { daemon.mounts.first_of(source) } else { None };
    let Some(first) = first else { return Ok(None) };
    let asked = &request.options;
    if first.session.is_on(&request.directory) {
        return Err(Error::in_use(format!("{source} {THERE_ALREADY}"))
            .hint("unmount it first, or mount it in another place"));
    }
    if let Some(word) = contradiction(asked, &first.report) {
        let place = first.report.directory.display();
        return Err(Error::in_use(format!(
            "{source} is mounted at {place} already, with {}: {word} would hold there too",
            first.report.options
        ))
        .hint("leave the option out, or unmount the other first"));
    }
    let kernel_checks = !matches!(first.namespace.access_rules(), AccessRules::Own(_));
    let (read_only, device) = (first.report.read_only, first.report.block_device.clone());
    let mut fuse = options_of(daemon, request, read_only, first.access_times, device.clone());
    fuse.allow_devices &= kernel_checks;
    fuse.allow_other = has(&first.report, "allow_other");
    fuse.writeback = has(&first.report, "writeback");
    fuse.strict_open = has(&first.report, "strictopen");
    let closes = |word| has(&first.report, word);
    fuse.synced_closes = match (closes("close=publish"), closes("close=later")) {
        (true, _) => SyncedCloses::All,
        (false, true) => SyncedCloses::None,
        (false, false) => SyncedCloses::BesideOthers,
    };
    fuse.file_handles = !has(&first.report, "nohandles");
    fuse.wakeful = has(&first.report, "wakeful");
    first.session.mount_again(&fuse).map_err(|error| match first.session.is_mounted() {
        true => fuse_error(error),
        false => Error { kind: Kind::InUse, ..Error::failed(format!("{source} {ENDING}")) },
    })?;
    let asked = MountOptions {
        no_directory_access_times: has(&first.report, "nodiratime"),
        lazy_times: has(&first.report, "lazytime"),
        ..asked.clone()
    };
    let transport = first.session.transport();
    let report = MountReport {
        directory: request.directory.clone(),
        options: format!("{},transport={transport}", describe(&fuse, &asked, kernel_checks)),
        ..first.report.clone()
    };
    let mut elsewhere = first.elsewhere.lock();
    elsewhere.retain(|one| one.directory != report.directory);
    elsewhere.push(report.clone());
    drop(elsewhere);
    Ok(Some(report))
}

fn has(report: &MountReport, word: &str) -> bool {
    report.options.split(',').any(|one| one == word)
}

/// The first option that is asked for and is not as it is at `first`.
fn contradiction(asked: &MountOptions, first: &MountReport) -> Option<&'static str> {
    let times = asked.access_times.map(|times| match times {
        AccessTimes::Never => "noatime",
        AccessTimes::Relative => "relatime",
        AccessTimes::Strict => "strictatime",
    });
    let transport = match asked.transport {
        Transport::Auto => None,
        Transport::Classic => Some("transport=classic"),
        Transport::IoUring => Some("transport=io_uring"),
    };
    let wanted = [
        Some(if asked.read_only { "ro" } else { "rw" }),
        times,
        transport,
        asked.no_directory_access_times.then_some("nodiratime"),
        asked.lazy_times.then_some("lazytime"),
        asked.writeback.then_some("writeback"),
        asked.strict_open.then_some("strictopen"),
        (asked.close == Close::Publish).then_some("close=publish"),
        (asked.close == Close::Later).then_some("close=later"),
        asked.no_handles.then_some("nohandles"),
        (asked.allow_other == Some(true)).then_some("allow_other"),
        (asked.wakeful == Some(true)).then_some("wakeful"),
        asked.fakeroot.then_some("fakeroot"),
        asked.casefold.then_some("casefold"),
    ];
    let refused = [
        (asked.allow_other == Some(false) && has(first, "allow_other"), "noallow_other"),
        (asked.wakeful == Some(false) && has(first, "wakeful"), "nowakeful"),
        (asked.block_device == BlockDevice::Off, "blkdev=off"),
    ];
    let missing = wanted.into_iter().flatten().find(|word| !has(first, word));
    missing.or_else(|| refused.iter().find(|(is_so, _)| *is_so).map(|(_, word)| *word))
}
