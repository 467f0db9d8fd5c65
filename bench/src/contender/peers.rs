//! The ways that people have otherwise. None but zfs-fuse's rollback is one step that a crash
//! cannot cut, and none checks what is brought back for conflicts but git.

use super::{Contender, Measured, Way};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, require, run, text};
use marram_lab::subject::{self, Kind, Making, Subject};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A peer on a fresh file system of its own.
pub(super) fn make(way: Way, folder: &Path, making: &Making) -> Result<Box<dyn Contender>> {
    let kind = match way {
        Way::Marram => return fail("that is no peer"),
        Way::BtrfsSubvolume | Way::BtrfsReflink => Kind::Btrfs,
        Way::XfsReflink => Kind::Xfs,
        Way::Overlay | Way::GitWorktree => Kind::Ext4,
        Way::ZfsFuse => Kind::ZfsFuse,
    };
    let subject = subject::make(kind, folder, making)?;
    let tree = subject.root().join("tree");
    let place = Place { subject, tree };
    Ok(match way {
        Way::Marram | Way::BtrfsSubvolume => {
            run(command(&["btrfs", "subvolume", "create"]).arg(&place.tree))?;
            Box::new(Peer { place, means: Subvolumes })
        }
        Way::XfsReflink | Way::BtrfsReflink => {
            require(&[("rsync", "rsync")])?;
            Box::new(Peer { place: place.with_tree()?, means: Copies })
        }
        Way::Overlay => Box::new(Peer { place: place.with_tree()?, means: Overlays }),
        Way::GitWorktree => Box::new(Peer { place: place.with_tree()?, means: Worktrees }),
        Way::ZfsFuse => {
            run(&mut zfs(&["create", &dataset("tree")]))?;
            Box::new(Peer { place, means: Clones })
        }
    })
}

/// One of these ways, on its file system.
struct Peer<M> {
    place: Place,
    means: M,
}

/// How a second tree comes about, is compared and goes; the rest is the same for all.
trait Means {
    /// Everything is ready: the tree is there and durable.
    fn settle(&self, place: &Place) -> Result<()> {
        place.subject.sync()
    }

    /// Bytes that the file system has in use, after a sync.
    fn used_bytes(&self, place: &Place) -> Result<u64> {
        place.subject.used_bytes()
    }

    fn fork(&self, place: &Place, name: &str) -> Result<Measured>;

    fn forked(&self, place: &Place, name: &str) -> PathBuf {
        place.beside(name)
    }

    fn diff(&self, place: &Place, name: &str) -> Result<Option<(Measured, Option<u64>)>>;

    fn merge(&self, _place: &Place, _name: &str) -> Result<Option<Measured>> {
        Ok(None)
    }

    fn snapshot(&self, _place: &Place, _name: &str) -> Result<Option<Measured>> {
        Ok(None)
    }

    fn rollback(&self, _place: &Place, _name: &str) -> Result<Option<Measured>> {
        Ok(None)
    }

    fn drop_fork(&self, place: &Place, name: &str) -> Result<()>;
}

impl<M: Means> Contender for Peer<M> {
    fn origin(&self) -> &Path {
        &self.place.tree
    }

    fn settle(&self) -> Result<()> {
        self.means.settle(&self.place)
    }

    fn fork(&mut self, name: &str) -> Result<Measured> {
        self.means.fork(&self.place, name)
    }

    fn forked(&self, name: &str) -> PathBuf {
        self.means.forked(&self.place, name)
    }

    fn used_bytes(&self) -> Result<u64> {
        self.place.subject.sync()?;
        self.means.used_bytes(&self.place)
    }

    fn written_bytes(&self) -> Result<Option<u64>> {
        Ok(self.place.subject.traffic()?.written_bytes)
    }

    fn diff(&mut self, name: &str) -> Result<Option<(Measured, Option<u64>)>> {
        self.means.diff(&self.place, name)
    }

    fn merge(&mut self, name: &str) -> Result<Option<Measured>> {
        self.means.merge(&self.place, name)
    }

    fn snapshot(&mut self, name: &str) -> Result<Option<Measured>> {
        self.means.snapshot(&self.place, name)
    }

    fn rollback(&mut self, name: &str) -> Result<Option<Measured>> {
        self.means.rollback(&self.place, name)
    }

    fn drop_fork(&mut self, name: &str) -> Result<()> {
        self.means.drop_fork(&self.place, name)
    }

    fn end(&mut self) -> Result<()> {
        self.place.subject.unmount()?;
        self.place.subject.check()
    }
}

/// A mounted file system and the tree on it.
struct Place {
    subject: Box<dyn Subject>,
    tree: PathBuf,
}

impl Place {
    fn with_tree(self) -> Result<Self> {
        std::fs::create_dir(&self.tree)?;
        Ok(self)
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.subject.root().join(name)
    }
}

/// Runs some commands one after the other; how long they took together.
fn timed(commands: &mut [Command]) -> Result<Measured> {
    let began = Instant::now();
    commands.iter_mut().try_for_each(run)?;
    Ok(Measured::command(began.elapsed()))
}

/// Runs a command that names a file on each line; how long it took, and how many there were.
fn counted(asking: &mut Command, is_file: fn(&str) -> bool) -> Result<(Measured, Option<u64>)> {
    let began = Instant::now();
    let told = text(asking)?;
    let measured = Measured::command(began.elapsed());
    Ok((measured, Some(told.lines().filter(|line| is_file(line)).count() as u64)))
}

fn with<S: AsRef<OsStr>>(words: &[&str], more: &[S]) -> Command {
    let mut made = command(words);
    made.args(more);
    made
}

/// Writable and read-only snapshots of a Btrfs subvolume.
struct Subvolumes;

impl Means for Subvolumes {
    fn fork(&self, place: &Place, name: &str) -> Result<Measured> {
        let words = ["btrfs", "subvolume", "snapshot"];
        timed(&mut [with(&words, &[&place.tree, &self.forked(place, name)])])
    }

    fn diff(&self, place: &Place, name: &str) -> Result<Option<(Measured, Option<u64>)>> {
        let keep = ["btrfs", "subvolume", "snapshot", "-r"];
        let (base, state) = (place.beside("base"), place.beside("state"));
        run(&mut with(&keep, &[&place.tree, &base]))?;
        let began = Instant::now();
        run(&mut with(&keep, &[&self.forked(place, name), &state]))?;
        let mut send = command(&["btrfs", "send", "-q", "--no-data", "-p"]);
        run(send.args([&base, &state]).args(["-f", "/dev/null"]))?;
        let measured = Measured::command(began.elapsed());
        run(&mut with(&["btrfs", "subvolume", "delete"], &[&base, &state]))?;
        Ok(Some((measured, None)))
    }

    fn snapshot(&self, place: &Place, name: &str) -> Result<Option<Measured>> {
        let words = ["btrfs", "subvolume", "snapshot", "-r"];
        timed(&mut [with(&words, &[&place.tree, &self.forked(place, name)])]).map(Some)
    }

    fn drop_fork(&self, place: &Place, name: &str) -> Result<()> {
        run(&mut with(&["btrfs", "subvolume", "delete"], &[self.forked(place, name)]))
    }
}

/// Copies of each file that share its blocks.
struct Copies;

impl Copies {
    fn rsync(&self, place: &Place, words: &[&str], name: &str) -> Command {
        let mut rsync = with(&["rsync", "-a", "--delete"], words);
        rsync.arg(format!("{}/", self.forked(place, name).display()));
        rsync.arg(format!("{}/", place.tree.display()));
        rsync
    }
}

impl Means for Copies {
    fn fork(&self, place: &Place, name: &str) -> Result<Measured> {
        let words = ["cp", "-a", "--reflink=always"];
        timed(&mut [with(&words, &[&place.tree, &self.forked(place, name)])])
    }

    fn diff(&self, place: &Place, name: &str) -> Result<Option<(Measured, Option<u64>)>> {
        let mut asking = self.rsync(place, &["-n", "--out-format=%n"], name);
        counted(&mut asking, |line| !line.ends_with('/')).map(Some)
    }

    fn merge(&self, place: &Place, name: &str) -> Result<Option<Measured>> {
        timed(&mut [self.rsync(place, &[], name)]).map(Some)
    }

    fn drop_fork(&self, place: &Place, name: &str) -> Result<()> {
        run(&mut with(&["rm", "-rf"], &[self.forked(place, name)]))
    }
}

/// Overlays over one tree. What was changed lies in the upper directory.
struct Overlays;

impl Overlays {
    fn upper(&self, place: &Place, name: &str) -> PathBuf {
        place.beside(name).join("upper")
    }
}

impl Means for Overlays {
    fn fork(&self, place: &Place, name: &str) -> Result<Measured> {
        let folder = place.beside(name);
        let (upper, work, merged) =
            (self.upper(place, name), folder.join("work"), self.forked(place, name));
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            place.tree.display(),
            upper.display(),
            work.display()
        );
        let mut mount = command(&["mount", "-t", "overlay", "overlay", "-o", &options]);
        mount.arg(&merged);
        timed(&mut [with(&["mkdir", "-p"], &[&upper, &work, &merged]), mount])
    }

    fn forked(&self, place: &Place, name: &str) -> PathBuf {
        place.beside(name).join("merged")
    }

    fn diff(&self, place: &Place, name: &str) -> Result<Option<(Measured, Option<u64>)>> {
        let mut find = command(&["find"]);
        counted(find.arg(self.upper(place, name)).args(["-type", "f"]), |_| true).map(Some)
    }

    fn drop_fork(&self, place: &Place, name: &str) -> Result<()> {
        run(&mut with(&["umount"], &[self.forked(place, name)]))?;
        run(&mut with(&["rm", "-rf"], &[place.beside(name)]))
    }
}

/// Worktrees of a git repository of the tree.
struct Worktrees;

impl Worktrees {
    fn git(at: &Path, words: &[&str]) -> Command {
        let who = ["-c", "user.name=Marram", "-c", "user.email=marram@localhost"];
        let mut git = command(&["git", "-c", "gc.auto=0", "-c", "safe.directory=*"]);
        git.args(who).arg("-C").arg(at).args(words);
        git
    }

    fn commit(at: &Path) -> [Command; 2] {
        [Self::git(at, &["add", "--all"]), Self::git(at, &["commit", "-q", "-m", "State"])]
    }
}

impl Means for Worktrees {
    fn settle(&self, place: &Place) -> Result<()> {
        if !place.tree.join(".git").exists() {
            run(&mut Self::git(&place.tree, &["init", "-q"]))?;
            timed(&mut Self::commit(&place.tree))?;
        }
        place.subject.sync()
    }

    fn fork(&self, place: &Place, name: &str) -> Result<Measured> {
        let mut add = Self::git(&place.tree, &["worktree", "add", "--detach"]);
        add.arg(self.forked(place, name));
        timed(&mut [add])
    }

    fn diff(&self, place: &Place, name: &str) -> Result<Option<(Measured, Option<u64>)>> {
        let mut status = Self::git(&self.forked(place, name), &["status", "--porcelain"]);
        counted(&mut status, |_| true).map(Some)
    }

    fn merge(&self, place: &Place, name: &str) -> Result<Option<Measured>> {
        let fork = self.forked(place, name);
        let committed = timed(&mut Self::commit(&fork))?;
        let head = text(&mut Self::git(&fork, &["rev-parse", "HEAD"]))?;
        let merged = timed(&mut [Self::git(&place.tree, &["merge", "-q", &head])])?;
        Ok(Some(Measured::command(committed.command + merged.command)))
    }

    fn drop_fork(&self, place: &Place, name: &str) -> Result<()> {
        let mut remove = Self::git(&place.tree, &["worktree", "remove", "--force"]);
        run(remove.arg(self.forked(place, name)))
    }
}

/// Clones of snapshots of a zfs-fuse dataset.
struct Clones;

fn zfs(words: &[&str]) -> Command {
    with(&["zfs"], words)
}

/// zfs-fuse lets go of what was mounted a while after it was used.
fn when_it_is_idle(words: &[&str]) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(30);
    let began = Instant::now();
    while let Err(failure) = run(&mut zfs(words)) {
        if began.elapsed() > LIMIT {
            return Err(failure);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn dataset(name: &str) -> String {
    format!("{}/{name}", subject::ZFS_POOL)
}

fn state(name: &str) -> String {
    format!("{}@{name}", dataset("tree"))
}

impl Means for Clones {
    /// `df` tells of one dataset alone, without its snapshots and clones.
    fn used_bytes(&self, _place: &Place) -> Result<u64> {
        let words = ["get", "-H", "-p", "-o", "value", "used", subject::ZFS_POOL];
        let told = text(&mut zfs(&words))?;
        told.parse::<u64>().context(|| format!("zfs tells {told} bytes in use"))
    }

    fn fork(&self, _place: &Place, name: &str) -> Result<Measured> {
        let (base, fork) = (state(name), dataset(name));
        timed(&mut [zfs(&["snapshot", &base]), zfs(&["clone", &base, &fork])])
    }

    /// It has no diff: an incremental stream has what differs, and no way to count it.
    fn diff(&self, _place: &Place, name: &str) -> Result<Option<(Measured, Option<u64>)>> {
        let now = format!("{}@now", dataset(name));
        let began = Instant::now();
        run(&mut zfs(&["snapshot", &now]))?;
        let mut send = zfs(&["send", "-i", &state(name), &now]);
        run(send.stdout(std::process::Stdio::null()))?;
        let measured = Measured::command(began.elapsed());
        run(&mut zfs(&["destroy", &now]))?;
        Ok(Some((measured, None)))
    }

    fn snapshot(&self, _place: &Place, name: &str) -> Result<Option<Measured>> {
        timed(&mut [zfs(&["snapshot", &state(name)])]).map(Some)
    }

    fn rollback(&self, _place: &Place, name: &str) -> Result<Option<Measured>> {
        timed(&mut [zfs(&["rollback", &state(name)])]).map(Some)
    }

    fn drop_fork(&self, _place: &Place, name: &str) -> Result<()> {
        when_it_is_idle(&["destroy", "-f", &dataset(name)])?;
        when_it_is_idle(&["destroy", &state(name)])
    }
}
