//! `marram mount`: a pool, or one of its datasets or snapshots, on a directory.
//!
//! Comes back when the mount answers. The first mount of a pool starts its daemon; further ones
//! are made by the daemon that is there. Mounts of the pool whose daemon has died are cleared away
//! first, wherever they are, and so is a dead mount of whatever is on the directory.

use super::mount_elsewhere::{bind, check_in_sight};
use super::stream;
use crate::arguments::MountArguments;
use crate::commands::answers::unexpected;
use crate::control::daemons::Daemon;
use crate::control::protocol::{
    Answer, ENDING, MountReport, MountRequest, Operation, Request, THERE_ALREADY,
};
use crate::daemon::{self, Launch, Log};
use crate::error::{Error, Kind, Result};
use crate::names::printable;
use crate::options::MountOptions;
use crate::output::{Output, say};
use crate::paths::absolute;
use crate::target::{Target, with_optional_snapshot};
use crate::{dead_mounts, engine, mountinfo};
use rustix::mount::MountFlags;
use serde::Serialize;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for a daemon that is just ending.
const ENDING_PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait for a daemon that may just be starting, as lines of `/etc/fstab` are mounted
/// side by side.
const STARTING_PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait for a process that has the pool locked and answers nothing: a daemon that is
/// just starting or a command that is at work, most likely.
const LOCKED_PATIENCE: Duration = Duration::from_millis(500);
/// What the device says then; the second when the kernel itself has it, for another mount; the
/// third of a pmem image, and the last of a home in a database, which has no lock.
const LOCKED: [&str; 4] =
    ["in use by", "is mounted or part of", "another process uses it", "another process serves"];
/// What the first of them says of a process that is one of ours: a daemon replays its log before it
/// answers.
const OURS: &str = "(marram)";
/// Mount options that are for homes alone.
const STREAMS_LACK: [&str; 8] =
    ["offset", "consistency", "durable", "cache", "commit", "defragment", "fakeroot", "casefold"];
/// How long to wait for an unmount that somebody else may just have begun.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(2);

/// What is to be mounted, where and how.
#[derive(Clone, Debug)]
pub(crate) struct MountPlan {
    /// The pool, or a path inside a mounted one, or a file with a full stream.
    pub(crate) target: PathBuf,
    /// Files with streams that go on from that one.
    pub(crate) then: Vec<PathBuf>,
    /// Where.
    pub(crate) directory: PathBuf,
    /// How.
    pub(crate) options: MountOptions,
    /// Serve it from this process.
    pub(crate) foreground: bool,
    /// Where the daemon logs.
    pub(crate) log: Option<PathBuf>,
}

#[derive(Serialize)]
struct MountedJson {
    pool: PathBuf,
    pid: i32,
    /// What the image of a pmem home lies on, and what that keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    medium: Option<String>,
    #[serde(flatten)]
    mount: MountReport,
}

pub(super) fn run(arguments: &MountArguments, output: &Output) -> Result<()> {
    if arguments.foreground {
        let _else_it_takes_more_memory = daemon::heaps::start_anew_with_few();
    }
    let plan = plan(arguments)?;
    let (pool, pid, mount) = mount(&plan)?;
    if !plan.foreground {
        let medium = engine::pmem_medium(&pool);
        let said = medium.as_ref().map_or_else(String::new, |medium| format!("medium: {medium}\n"));
        output.print(&MountedJson { pool, pid, medium, mount }, || said);
    }
    Ok(())
}

fn plan(arguments: &MountArguments) -> Result<MountPlan> {
    let (target, snapshot) = with_optional_snapshot(&arguments.target)?;
    let mut options = options_for(&target, &arguments.options)?;
    if let Some(name) = arguments.snapshot.clone().or(snapshot) {
        options.snapshot = Some(crate::options::snapshot_name(&name)?);
    }
    if let Some(name) = arguments.dataset.as_ref().or(arguments.fork.as_ref()) {
        options.dataset = Some(name.clone());
    }
    Ok(MountPlan {
        target,
        then: arguments.then.clone(),
        directory: arguments.directory.clone(),
        options,
        foreground: arguments.foreground,
        log: arguments.log.as_deref().map(std::path::absolute).transpose().map_err(|error| {
            Error::failed(format!("cannot tell where the log is to be: {error}"))
        })?,
    })
}

/// The options of a mount. A device that can only be read is mounted for reading, with the warning
/// of `mount(8)`, which does the same with file systems of the kernel.
///
/// # Errors
/// An option is not known or makes no sense.
pub(crate) fn options_for(target: &Path, lists: &[String]) -> Result<MountOptions> {
    let mut words = lists.iter().flat_map(|list| list.split(','));
    if words.any(|word| matches!(word, "ro" | "remount")) || !is_write_protected(target) {
        return MountOptions::parse(lists);
    }
    let lists: Vec<String> = lists.iter().cloned().chain(["ro".to_owned()]).collect();
    let options = MountOptions::parse(&lists)?;
    let device = target.display();
    say(&format!("mount: {device}: WARNING: source write-protected, mounted read-only."));
    Ok(options)
}

/// Whether this is a block device that the kernel lets nobody write to.
fn is_write_protected(target: &Path) -> bool {
    let Ok(found) = std::fs::metadata(target) else { return false };
    if !found.file_type().is_block_device() {
        return false;
    }
    let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
    let told = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    told.is_ok_and(|told| told.trim() == "1")
}

/// Mounts, and returns when the mount answers (in the foreground, when it has ended): the pool,
/// the daemon's process id, and what is mounted.
///
/// # Errors
/// What kept it from being mounted; then nothing is.
pub(crate) fn mount(plan: &MountPlan) -> Result<(PathBuf, i32, MountReport)> {
    if marram_fuse::is_dead_mount(&plan.directory) {
        dead_mounts::clear_to_mount(&plan.directory, &plan.target)?;
    }
    let directory = absolute(&plan.directory).map_err(|error| error.during("the mount point"))?;
    if !directory.is_dir() {
        let place = directory.display();
        return Err(Error::failed(format!("cannot mount on {place}: it is no directory")));
    }
    if plan.options.remount {
        return remount(&directory, &plan.options);
    }
    if stream::is_stream(&plan.target) {
        return show_streams(directory, plan);
    }
    if !plan.then.is_empty() {
        return Err(Error::usage(format!("{} is no stream", plan.target.display()))
            .hint("--then goes with a stream that `marram send --to-file` has written"));
    }
    let began = Instant::now();
    loop {
        match mount_now(&directory, plan) {
            // A daemon that is just ending lets go of the pool soon; one that is just starting
            // will answer.
            Err(error) if worth_waiting(&error, began) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            other => return other,
        }
    }
}

fn mount_now(directory: &Path, plan: &MountPlan) -> Result<(PathBuf, i32, MountReport)> {
    let target = match plan.options.offset_bytes {
        Some(offset_bytes) => Target::of_partition(&plan.target, offset_bytes)?,
        None => Target::find(&plan.target)?,
    };
    let mut request =
        MountRequest { directory: directory.to_owned(), options: plan.options.clone() };
    if request.options.dataset.is_none() {
        request.options.dataset = Some(target.dataset(None)?.to_string());
    }
    match target.daemon {
        Some(_) if plan.foreground => Err(served_already(&target)),
        Some(daemon) if daemon.is_in_another_namespace() => bind(&daemon, &request),
        Some(_) => ask_daemon(&target, &request),
        None => start_daemon(&target, request, plan),
    }
}

/// Whether the pool is held by a process that may give or take it within moments.
fn worth_waiting(error: &Error, began: Instant) -> bool {
    let ending = error.message.contains(ENDING);
    let patience = match error.kind {
        Kind::InUse if ending => ENDING_PATIENCE,
        Kind::InUse if error.message.contains(THERE_ALREADY) => UNMOUNT_PATIENCE,
        Kind::InUse if error.message.contains(OURS) => STARTING_PATIENCE,
        Kind::InUse if LOCKED.iter().any(|words| error.message.contains(words)) => LOCKED_PATIENCE,
        _ => Duration::ZERO,
    };
    began.elapsed() < patience
}

fn ask_daemon(target: &Target, request: &MountRequest) -> Result<(PathBuf, i32, MountReport)> {
    let Some(client) = target.connect()? else {
        return Err(Error::in_use(format!("the pool {ENDING}")));
    };
    let pid = client.greeting().pid;
    match client.ask(&Request::Mount(request.clone()))? {
        Answer::Mounted(report) => {
            check_in_sight(&report)?;
            Ok((target.pool.clone(), pid, report))
        }
        other => Err(unexpected(&other)),
    }
}

fn start_daemon(
    target: &Target,
    request: MountRequest,
    plan: &MountPlan,
) -> Result<(PathBuf, i32, MountReport)> {
    for directory in dead_mounts::of_pool(&target.pool)? {
        // One that stays may belong to another user; if it holds the device, an error below says
        // so.
        let _others_may_not_be_ours = dead_mounts::clear_to_mount(&directory, &target.pool);
    }
    launch(
        Launch {
            pool: target.pool.clone(),
            streams: Vec::new(),
            mount: request,
            log: plan.log.clone(),
        },
        plan,
    )
}

/// Mounts streams in files, for reading.
fn show_streams(directory: PathBuf, plan: &MountPlan) -> Result<(PathBuf, i32, MountReport)> {
    let options = &plan.options;
    if options.dataset.is_some() || options.snapshot.is_some() || options.writeback {
        return Err(Error::usage(format!(
            "{} is a stream: it has one snapshot, which cannot be changed",
            plan.target.display()
        ))
        .hint("leave out what names a dataset or snapshot, and writeback"));
    }
    let (_, asked) = options.words_of_mount();
    let of_homes = |word: &&String| {
        STREAMS_LACK.iter().any(|lacking| word.split('=').next() == Some(*lacking))
    };
    if let Some(word) = asked.iter().find(of_homes) {
        return Err(Error::usage(format!("mount option {word} means nothing to a stream"))
            .hint("leave it out"));
    }
    let paths = std::iter::once(&plan.target).chain(&plan.then);
    let streams: Vec<PathBuf> = paths.map(|path| absolute(path)).collect::<Result<_>>()?;
    let last = streams.last().cloned().unwrap_or_default();
    let mount = MountRequest { directory, options: options.clone() };
    launch(Launch { pool: last, streams, mount, log: plan.log.clone() }, plan)
}

/// Starts a daemon, or is one.
fn launch(launch: Launch, plan: &MountPlan) -> Result<(PathBuf, i32, MountReport)> {
    let mut ready = None;
    if plan.foreground {
        daemon::run(&launch, Log::to_standard_error(), |told| ready = Some(told.clone()))?;
    } else {
        ready = Some(daemon::launch::start(&launch)?);
    }
    let ready = ready.ok_or_else(|| Error::failed("the daemon ended before it mounted"))?;
    for warning in ready.warnings.iter().filter(|_| !plan.foreground) {
        let pool = launch.pool.display();
        let told = format!("{pool}: {warning}; `marram status` and `marram check` tell more");
        say(&format!("marram: warning: {}", printable(told)));
    }
    let report = ready.mounts.into_iter().next();
    let report = report.ok_or_else(|| Error::failed("the mount ended at once"))?;
    Ok((launch.pool, ready.pid, report))
}

fn served_already(target: &Target) -> Error {
    let pid = target.daemon.as_ref().map_or(0, |daemon| daemon.greeting.pid);
    Error::in_use(format!("{} is served by process {pid} already", target.pool.display()))
        .hint("leave --foreground out: that process will make the mount")
}

/// Changes what the kernel alone decides: whether changes, setuid, devices and programs are let
/// through. Everything else needs a new mount.
fn remount(directory: &Path, options: &MountOptions) -> Result<(PathBuf, i32, MountReport)> {
    let target = Target::find(directory)?;
    let nothing = || Error::not_found(format!("nothing is mounted at {}", directory.display()));
    let daemon = target.daemon.as_ref().ok_or_else(nothing)?;
    let greeting = &daemon.greeting;
    let here = greeting.mounts.iter().rev().find(|mount| mount.directory == directory);
    let report = here.cloned().ok_or_else(nothing)?;
    let stays_read_only = is_read_only(directory, &report)? && !options.says_writable;
    let read_only = options.read_only || stays_read_only;
    let options = &MountOptions { read_only, ..options.clone() };
    if let Some(user) = daemon.other_user().filter(|_| report.read_only && !options.read_only) {
        return Err(Error::usage(format!("{} is a mount of user {user}", directory.display()))
            .hint("he alone can make it writable"));
    }
    if report.read_only && !options.read_only {
        return make_writable(&target, &report, greeting.mounts.len(), options);
    }
    check_remount(&report, options)?;
    let mut flags = remount_flags(&report, options);
    if daemon.other_user().is_some() {
        refuse_to_trust(directory, options)?;
        // The daemon of another user may say of its mount what it likes.
        flags |= MountFlags::NOSUID | MountFlags::NODEV;
    }
    rustix::mount::mount_remount(directory, flags, "")
        .map_err(|error| Error::system("remount", directory, error))?;
    let pid = greeting.pid;
    if options.read_only {
        target.perform(&Operation::Sync)?;
    }
    Ok((target.pool, pid, report))
}

/// Whether a mount is read-only, from the start or by a remount.
fn is_read_only(directory: &Path, report: &MountReport) -> Result<bool> {
    let entry = mountinfo::mount_on(directory)?;
    let is_now = entry.is_some_and(|it| it.options.split(',').any(|word| word == "ro"));
    Ok(report.read_only || is_now)
}

/// Mounts anew what was read-only from the start: its daemon has the pool open for reading only. If
/// that cannot be done it is read-only again.
fn make_writable(
    target: &Target,
    report: &MountReport,
    mounts: usize,
    options: &MountOptions,
) -> Result<(PathBuf, i32, MountReport)> {
    let place = report.directory.display();
    let source: marram_store::Source = report.source.parse()?;
    if source.snapshot.is_some() {
        return Err(Error::usage(format!("{place} shows a snapshot, which never changes"))
            .hint("`marram clone` makes a writable dataset of it"));
    }
    if target.daemon.as_ref().is_some_and(Daemon::is_in_another_namespace) {
        return Err(Error::in_use(format!("{place} was mounted in another mount namespace"))
            .hint("make it writable there"));
    }
    if mounts > 1 {
        return Err(Error::in_use(format!(
            "{place} was mounted read-only from the start, and so were other mounts of the pool"
        ))
        .hint("unmount the pool and mount it again"));
    }
    target.check_still_there()?;
    // What is not asked for anew stays as it was mounted.
    let shown = MountOptions::parse(std::slice::from_ref(&report.options))?;
    let again = MountPlan {
        target: target.pool.clone(),
        then: Vec::new(),
        directory: report.directory.clone(),
        options: MountOptions {
            dataset: Some(source.dataset.to_string()),
            ..options.made_writable(&shown)
        },
        foreground: false,
        log: None,
    };
    super::unmount::unmount(&report.directory, false)
        .map_err(|error| error.during("was mounted read-only from the start"))?;
    mount(&again).inspect_err(|_| {
        let no_recovery = shown.no_recovery;
        let as_before = MountOptions { read_only: true, no_recovery, ..again.options.clone() };
        let _told_already = mount(&MountPlan { options: as_before, ..again.clone() });
    })
}

fn check_remount(report: &MountReport, options: &MountOptions) -> Result<()> {
    let refused = |why: &str| {
        let place = report.directory.display();
        Err(Error::failed(format!("{place} {why}")).hint("unmount it and mount it again"))
    };
    let words: Vec<&str> = report.options.split(',').collect();
    let has = |asked: &&String| words.contains(&asked.as_str());
    let (times, others) = options.words_of_mount();
    if !times.iter().all(|asked| has(&asked)) {
        return refused("keeps the access times as it was mounted; a remount cannot change that");
    }
    match others.iter().find(|asked| !has(asked)) {
        Some(asked) => refused(&format!("was mounted without {asked}; a remount cannot change it")),
        None => Ok(()),
    }
}

/// Refuses setuid programs and device nodes on the mount of a user, which can have any content.
fn refuse_to_trust(directory: &Path, options: &MountOptions) -> Result<()> {
    if options.suid != Some(true) && options.dev != Some(true) {
        return Ok(());
    }
    let place = directory.display();
    Err(Error::usage(format!("{place} is a user's mount: suid and dev are for root's alone")))
}

fn remount_flags(report: &MountReport, options: &MountOptions) -> MountFlags {
    let has = |word: &str| report.options.split(',').any(|one| one == word);
    let mut flags = MountFlags::empty();
    let wanted = [
        (options.read_only, MountFlags::RDONLY),
        (options.suid.map_or(has("nosuid"), |on| !on), MountFlags::NOSUID),
        (options.dev.map_or(has("nodev"), |on| !on), MountFlags::NODEV),
        (options.exec.map_or(has("noexec"), |on| !on), MountFlags::NOEXEC),
        (has("noatime"), MountFlags::NOATIME),
        (has("relatime"), MountFlags::RELATIME),
        (has("strictatime"), MountFlags::STRICTATIME),
    ];
    for (on, flag) in wanted {
        flags.set(flag, on);
    }
    flags
}
