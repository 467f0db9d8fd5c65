//! Moving names.
//!
//! A rename looks up both names, takes the locks of both directories and of what the names lead to,
//! and looks again. When a directory changes its parent (or could be the ancestor of the other
//! side), the lock of moves is taken first. No other rename can then change ancestors, so walking
//! up from a directory is safe without locks.
//!
//! The order of the checks is Linux's.

use crate::frame::change::Change;
use crate::frame::flags::{check_not_frozen, check_not_immutable, check_project};
use crate::frame::{lookup, reclaim};
use crate::operations::create;
use crate::operations::create::check_links;
use crate::volume::Volume;
use marram_format::record::{Entry, InodeKind};
use marram_records::directory::{FoundEntry, Probe, is_empty_directory};
use marram_records::inode::{check_living_directory, touch_content};
use marram_vfs::{Caller, Error, Name, RenameMode, Result};

/// Deepest nesting of directories that is followed upwards: a longer way up is damage.
const ANCESTORS_MAX: usize = 1 << 20;

/// From where to where a name moves.
#[derive(Clone, Copy)]
pub(crate) struct Move<'a> {
    pub(crate) parent: u64,
    pub(crate) name: Name<'a>,
    pub(crate) new_parent: u64,
    pub(crate) new_name: Name<'a>,
}

/// What both names of a move lead to.
struct Sides {
    source: FoundEntry,
    target: Probe<FoundEntry>,
}

impl Sides {
    fn target_ino(&self) -> Option<u64> {
        self.target.found.map(|entry| entry.ino)
    }

    fn has_directory(&self) -> bool {
        let target = self.target.found.map(|entry| entry.kind);
        [Some(self.source.kind), target].contains(&Some(InodeKind::Directory))
    }
}

pub(crate) fn move_name(
    volume: &Volume,
    caller: Caller,
    way: Move<'_>,
    mode: RenameMode,
) -> Result<()> {
    volume.check_writable()?;
    loop {
        let seen = sides(volume, way)?;
        let crosses = way.parent != way.new_parent && seen.has_directory();
        let _moves = crosses.then(|| volume.locks.moves());
        let target = seen.target_ino().unwrap_or(way.new_parent);
        let _held = volume.locks.write(&[way.parent, way.new_parent, seen.source.ino, target]);
        let sides = sides(volume, way)?;
        if sides.source.ino == seen.source.ino && sides.target_ino() == seen.target_ino() {
            return move_locked(volume, caller, way, mode, &sides);
        }
    }
}

fn sides(volume: &Volume, way: Move<'_>) -> Result<Sides> {
    let source = lookup::entry(volume, way.parent, way.name)?;
    let target = lookup::probe_entry(volume, way.new_parent, way.new_name)?;
    Ok(Sides { source, target })
}

fn move_locked(
    volume: &Volume,
    caller: Caller,
    way: Move<'_>,
    mode: RenameMode,
    sides: &Sides,
) -> Result<()> {
    let mut change = Change::begin(volume)?;
    check_living_directory(change.inode(way.new_parent)?)?;
    let (source, target) = (sides.source, sides.target.found);
    if is_spelling(way, sides) && mode != RenameMode::Exchange {
        respell(&mut change, way, source)?;
        return change.commit();
    }
    match (mode, target) {
        (mode, Some(_)) if mode.refuses_to_replace() => return Err(Error::Exists),
        (RenameMode::Exchange, None) => return Err(Error::NotFound),
        _ => (),
    }
    if target.is_some_and(|target| target.ino == source.ino) {
        return Ok(());
    }
    check_marks(&mut change, way, mode, sides)?;
    check_loops(volume, way, mode, source, target)?;
    let mut orphan = None;
    if let (RenameMode::Exchange, Some(target)) = (mode, target) {
        exchange(&mut change, way, source, target)?;
    } else {
        orphan = replace(volume, &mut change, way, sides)?;
        if mode.leaves_whiteout() {
            leave_whiteout(volume, &mut change, caller, way, source)?;
        } else {
            change.remove_entry(way.parent, source)?;
        }
    }
    change.commit()?;
    reclaim::settle(volume, orphan);
    Ok(())
}

/// Whether both names are spellings of one: it can only be spelt anew. Where names are exact
/// it never is.
fn is_spelling(way: Move<'_>, sides: &Sides) -> bool {
    let target = sides.target.found.filter(|_| way.parent == way.new_parent);
    way.name.as_bytes() != way.new_name.as_bytes() && target == Some(sides.source)
}

/// Refuses to move a directory into itself, and to replace one that the source lies in.
fn check_loops(
    volume: &Volume,
    way: Move<'_>,
    mode: RenameMode,
    source: FoundEntry,
    target: Option<FoundEntry>,
) -> Result<()> {
    if way.parent == way.new_parent {
        return Ok(());
    }
    let into_itself = || Error::InvalidArgument("a directory cannot go into itself");
    let is_directory = |entry: &FoundEntry| entry.kind == InodeKind::Directory;
    if is_directory(&source) && is_within(volume, way.new_parent, source.ino)? {
        return Err(into_itself());
    }
    match target.filter(is_directory) {
        Some(target) if is_within(volume, way.parent, target.ino)? => match mode {
            RenameMode::Exchange => Err(into_itself()),
            _ => Err(Error::NotEmpty),
        },
        _ => Ok(()),
    }
}

/// Whether the directory `ino` is `top` or lies below it. The lock of moves is held.
fn is_within(volume: &Volume, ino: u64, top: u64) -> Result<bool> {
    let mut at = ino;
    for _ in 0..ANCESTORS_MAX {
        if at == top {
            return Ok(true);
        }
        if at == volume.root() {
            return Ok(false);
        }
        at = volume.load_inode(at)?.parent;
    }
    Err(Error::Damaged(format!("directory {ino} is not below the root")))
}

/// Puts the source under its new name and takes what was there away. The old name stays for
/// the caller to remove. Returns what has become an orphan.
fn replace(
    volume: &Volume,
    change: &mut Change<'_, '_>,
    way: Move<'_>,
    sides: &Sides,
) -> Result<Option<u64>> {
    let source = sides.source;
    let moves_directory = source.kind == InodeKind::Directory;
    let entry = Entry { ino: source.ino, kind: source.kind, name: way.new_name.as_bytes() };
    let mut orphan = None;
    let place = match sides.target.found {
        Some(target) => target.offset,
        None => sides.target.free()?,
    };
    if let Some(target) = sides.target.found {
        check_replaced(volume, source, target)?;
        change.batch.admission = marram_store::Admission::Freeing;
        orphan = reclaim::lose_name(volume, change, target.ino, way.new_parent)?;
        change.put_entry(way.new_parent, place, &entry);
        let now = change.now;
        touch_content(change.inode_mut(way.new_parent)?, now);
    } else {
        if moves_directory && way.parent != way.new_parent {
            check_links(change.inode(way.new_parent)?)?;
        }
        change.add_entry(way.new_parent, place, &entry)?;
    }
    arrive(change, source.ino, way.new_parent, place)?;
    Ok(orphan)
}

fn check_replaced(volume: &Volume, source: FoundEntry, target: FoundEntry) -> Result<()> {
    let directory = |entry: FoundEntry| entry.kind == InodeKind::Directory;
    match (directory(source), directory(target)) {
        (true, false) => Err(Error::NotDirectory),
        (false, true) => Err(Error::IsDirectory),
        (true, true) if !is_empty_directory(&*volume.view, target.ino)? => Err(Error::NotEmpty),
        _ => Ok(()),
    }
}

/// Leaves a character device 0:0 at the old name.
fn leave_whiteout(
    volume: &Volume,
    change: &mut Change<'_, '_>,
    caller: Caller,
    way: Move<'_>,
    source: FoundEntry,
) -> Result<()> {
    let ino = volume.counters.next_ino(&*volume.view)?;
    let kind = InodeKind::CharDevice;
    let mut inode = create::new_owned(change, caller, way.parent, kind, 0)?;
    inode.links = 1;
    inode.name_place = source.offset;
    change.add_inode(ino, inode, way.parent);
    let entry = Entry { ino, kind, name: way.name.as_bytes() };
    change_entry(change, way.parent, source, &entry)
}

/// Refuses what flags and projects forbid: both names go where a target is replaced or exchanged,
/// else one goes and one comes.
fn check_marks(
    change: &mut Change<'_, '_>,
    way: Move<'_>,
    mode: RenameMode,
    sides: &Sides,
) -> Result<()> {
    check_not_frozen(change.inode(way.parent)?)?;
    check_not_frozen(change.inode(sides.source.ino)?)?;
    match sides.target_ino() {
        Some(target) => {
            check_not_frozen(change.inode(way.new_parent)?)?;
            check_not_frozen(change.inode(target)?)?;
        }
        None => check_not_immutable(change.inode(way.new_parent)?)?,
    }
    let moved = change.inode(sides.source.ino)?.clone();
    check_project(change.inode(way.new_parent)?, &moved)?;
    match sides.target_ino().filter(|_| mode == RenameMode::Exchange) {
        Some(target) => {
            let moved = change.inode(target)?.clone();
            check_project(change.inode(way.parent)?, &moved)
        }
        None => Ok(()),
    }
}

/// The inode `ino` has come to the directory `parent`, where its entry is at `place`.
fn arrive(change: &mut Change<'_, '_>, ino: u64, parent: u64, place: u64) -> Result<()> {
    let now = change.now;
    let inode = change.inode_mut(ino)?;
    inode.changed = now;
    inode.parent = parent;
    inode.name_place = place;
    Ok(())
}

/// Gives an entry another spelling of its name.
fn respell(change: &mut Change<'_, '_>, way: Move<'_>, source: FoundEntry) -> Result<()> {
    check_not_frozen(change.inode(way.parent)?)?;
    check_not_frozen(change.inode(source.ino)?)?;
    let entry = Entry { ino: source.ino, kind: source.kind, name: way.new_name.as_bytes() };
    change.put_entry(way.parent, source.offset, &entry);
    let now = change.now;
    touch_content(change.inode_mut(way.parent)?, now);
    arrive(change, source.ino, way.parent, source.offset)
}

/// Lets an existing entry lead to another inode.
fn change_entry(
    change: &mut Change<'_, '_>,
    directory: u64,
    old: FoundEntry,
    new: &Entry<'_>,
) -> Result<()> {
    change.put_entry(directory, old.offset, new);
    let now = change.now;
    let inode = change.inode_mut(directory)?;
    let subdirectory = |kind: InodeKind| u32::from(kind == InodeKind::Directory);
    inode.links = (inode.links + subdirectory(new.kind)).saturating_sub(subdirectory(old.kind));
    touch_content(inode, now);
    Ok(())
}

/// Lets the two names change places.
fn exchange(
    change: &mut Change<'_, '_>,
    way: Move<'_>,
    source: FoundEntry,
    target: FoundEntry,
) -> Result<()> {
    let directory = |entry: FoundEntry| entry.kind == InodeKind::Directory;
    if way.parent != way.new_parent {
        match (directory(source), directory(target)) {
            (true, false) => check_links(change.inode(way.new_parent)?)?,
            (false, true) => check_links(change.inode(way.parent)?)?,
            _ => (),
        }
    }
    let to_new = Entry { ino: source.ino, kind: source.kind, name: way.new_name.as_bytes() };
    let to_old = Entry { ino: target.ino, kind: target.kind, name: way.name.as_bytes() };
    change_entry(change, way.new_parent, target, &to_new)?;
    change_entry(change, way.parent, source, &to_old)?;
    arrive(change, source.ino, way.new_parent, target.offset)?;
    arrive(change, target.ino, way.parent, source.offset)
}
