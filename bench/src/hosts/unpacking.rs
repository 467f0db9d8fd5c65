//! A source tree is unpacked: with nobody else there, and beside another host.

use super::super::interruption;
use super::super::sheet::{Line, Sheet, Subject};
use super::Setting;
use super::contender::Contender;
use marram_lab::failure::{Result, fail};
use marram_lab::inputs::{LinuxTree, linux_tree, linux_tree_of_15_000_files};
use marram_lab::process::{command, run, text};
use marram_lab::subject::{Making, Marram, Subject as _};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const POOL: Subject = Subject { name: "pool", is_ours: true, durable: "all, by `syncfs`" };
const SQLITE: Subject = Subject { name: "sqlite", is_ours: true, durable: "all, by `syncfs`" };
const ALONE: Subject =
    Subject { name: "postgres, 1 ms", is_ours: true, durable: "all, by `syncfs`" };

/// A pool's image.
const POOL_BYTES: u64 = 4 << 30;
/// How much longer than on a pool it may take.
const BESIDE_POOL: f64 = 1.5;
/// How many times faster than JuiceFS it should be.
const BESIDE_JUICEFS: f64 = 3.0;

fn tar(tree: &LinuxTree, place: &Path) -> Command {
    let mut tar = command(&["tar", "-xPf"]);
    tar.arg(&tree.archive).arg("-C").arg(place);
    tar
}

fn sync(place: &Path) -> Command {
    let mut sync = command(&["sync", "-f"]);
    sync.arg(place);
    sync
}

/// Unpacks and syncs as the process that `place` makes of a command; seconds.
fn timed(tree: &LinuxTree, root: &Path, place: impl Fn(&Command) -> Command) -> Result<f64> {
    std::io::copy(&mut std::fs::File::open(&tree.archive)?, &mut std::io::sink())?;
    // What the run before has left is written back now.
    run(&mut command(&["sync"]))?;
    let began = Instant::now();
    run(&mut place(&tar(tree, root)))?;
    run(&mut place(&sync(root)))?;
    Ok(began.elapsed().as_secs_f64())
}

fn plain(inner: &Command) -> Command {
    let mut same = Command::new(inner.get_program());
    same.args(inner.get_args());
    same
}

/// The folders of a tree as an archive of their own.
fn packed(tree: &LinuxTree, folders: &[&str], archive: &Path) -> Result<()> {
    let mut pack = command(&["tar", "-cf"]);
    run(pack.arg(archive).arg("-C").arg(&tree.reference).args(folders))
}

/// A tree of some hundred files.
fn part(setting: &Setting<'_>) -> Result<LinuxTree> {
    let (whole, top) = (linux_tree(true)?, "kernel");
    let archive = setting.folder.join("part.tar");
    packed(&whole, &[top], &archive)?;
    Ok(LinuxTree { reference: whole.reference.join(top), archive, top })
}

/// A home that nobody shares beside our pool.
pub(super) fn alone(setting: &Setting<'_>, sheet: &mut Sheet) -> Result<()> {
    let tree = match setting.sizes.is_short_tree {
        true => part(setting)?,
        false => linux_tree_of_15_000_files()?,
    };
    let files =
        text(command(&["find", "-type", "f"]).current_dir(&tree.reference))?.lines().count();
    let title = format!("unpack {files} files of Linux, nobody else there, and sync");
    let line = Line::cost("unpack, alone", title, "s");
    let mut pool = Marram::make(&setting.folder.join("pool"), &Making::sized(POOL_BYTES))?;
    let seconds = timed(&tree, pool.root(), plain)?;
    sheet.add(&line, POOL, seconds);
    pool.unmount()?;
    interruption::check()?;
    let folder = setting.folder.join("sqlite");
    let url = format!("sqlite:{}", folder.join("home.db").display());
    let mut home = Marram::make_home(&folder, &url, Vec::new())?;
    sheet.add(&line, SQLITE, timed(&tree, home.root(), plain)?);
    home.unmount()?;
    interruption::check()?;
    let [host] = setting.hosts(1) else { return fail("there is no host") };
    let store = setting.store(Contender::Marram, "unpack_alone")?;
    let mounted = store.mount_with(host, "close=auto")?;
    let seconds = timed(&tree, mounted.place(), |inner| host.around(inner))?;
    sheet.add(&line, ALONE, seconds);
    mounted.unmount()?;
    let own = sheet.median(&line.key, POOL.name);
    for subject in [SQLITE, ALONE] {
        let ratio = sheet.median(&line.key, subject.name).zip(own).map(|(home, pool)| home / pool);
        sheet.at_most(
            format!("unpack alone, {}: to a pool", subject.name),
            ratio,
            BESIDE_POOL,
            "times",
        );
    }
    Ok(())
}

/// What another host does that has the same mounted.
#[derive(Clone, Copy)]
enum Other {
    /// It looks at it four times a second.
    Looks,
    /// Nothing, for some seconds before and all the while.
    Rests,
}

/// Between two looks of the other host.
const LOOK: Duration = Duration::from_millis(250);
/// How long one that does nothing has done nothing before the clock runs.
const REST: Duration = Duration::from_secs(5);

/// A small part of it, while another host looks at it.
pub(super) fn beside_looks(setting: &Setting<'_>, sheet: &mut Sheet) -> Result<()> {
    shared(setting, Other::Looks, sheet)
}

/// The same, while another host has it mounted and does nothing.
pub(super) fn beside_rest(setting: &Setting<'_>, sheet: &mut Sheet) -> Result<()> {
    shared(setting, Other::Rests, sheet)
}

fn shared(setting: &Setting<'_>, other: Other, sheet: &mut Sheet) -> Result<()> {
    let whole = linux_tree(true)?;
    let archive = setting.folder.join("shared.tar");
    packed(&whole, setting.sizes.shared_folders, &archive)?;
    let files = text(command(&["tar", "-tf"]).arg(&archive))?;
    let files = files.lines().filter(|line| !line.ends_with('/')).count();
    let (key, does, name) = match other {
        Other::Looks => ("unpack, another looks", "looks at it four times a second", "looks"),
        Other::Rests => ("unpack, another rests", "has it mounted and does nothing", "rests"),
    };
    let name = format!("unpack_{name}");
    let title = format!("unpack {files} files at 1 ms while another host {does}");
    let line = Line::rate(key, format!("{title}: files a second"));
    let [first, second] = setting.hosts(2) else { return fail("there are no two hosts") };
    for contender in &setting.contenders {
        interruption::check()?;
        let store = setting.store(*contender, &name)?;
        let (here, there) = (store.mount(first)?, store.mount(second)?);
        let place = here.place().join(&name);
        std::fs::create_dir(first.seen(&place))?;
        std::fs::read_dir(there.seen())?.for_each(drop);
        let seconds = beside(&there.seen(), other, || {
            let mut unpack = command(&["tar", "-xf"]);
            let began = Instant::now();
            run(&mut first.around(unpack.arg(&archive).arg("-C").arg(&place)))?;
            Ok(began.elapsed().as_secs_f64())
        })?;
        sheet.add(&line, contender.subject(), files as f64 / seconds);
        there.unmount()?;
        here.unmount()?;
    }
    let ours = sheet.median(&line.key, Contender::Marram.subject().name);
    for contender in setting.contenders.iter().filter(|contender| contender.is_juicefs()) {
        let peer = contender.subject().name;
        let ratio = ours.zip(sheet.median(&line.key, peer)).map(|(ours, peer)| ours / peer);
        sheet.at_least(format!("{key}: to {peer}"), ratio, BESIDE_JUICEFS, "times");
    }
    Ok(())
}

/// Does something while another host, which sees the same at `place`, looks at it or does nothing.
fn beside<T>(place: &Path, other: Other, work: impl FnOnce() -> Result<T>) -> Result<T> {
    if matches!(other, Other::Rests) {
        std::thread::sleep(REST);
        return work();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                // What it sees is of no interest.
                let _seen = std::fs::read_dir(place).map(Iterator::count);
                std::thread::sleep(LOOK);
            }
        });
        let done = work();
        is_over.store(true, Ordering::Release);
        done
    })
}
