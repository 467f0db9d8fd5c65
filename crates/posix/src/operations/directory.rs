//! Directories: names looked up, and visited in order of their cookies.
//!
//! A listing that goes on from a cookie misses nothing that was there all the time, and sees
//! nothing twice; see [`marram_records::directory`].

use crate::frame::{access_times, lookup, together};
use crate::volume::Volume;
use marram_records::directory::Listing;
use marram_records::inode::{attributes, check_directory, check_living_directory, kind_of};
use marram_vfs::{Attributes, DirectoryEntry, Error, Ino, Name, Result};

/// Entries read at once: begins here and doubles, so that a small listing reads little.
const ENTRIES_MIN: usize = 32;
const ENTRIES_MAX: usize = 256;

pub(crate) fn look_up(volume: &Volume, parent: u64, name: Name<'_>) -> Result<Attributes> {
    let _held = volume.locks.read(parent);
    let entry = lookup::entry(volume, parent, name)?;
    pin_named(volume, entry.ino)
}

/// Pins an inode that has a name in a directory whose lock is held.
fn pin_named(volume: &Volume, ino: u64) -> Result<Attributes> {
    let found = named(volume, ino)?;
    volume.pins.add(ino);
    Ok(found)
}

fn named(volume: &Volume, ino: u64) -> Result<Attributes> {
    let missing = || Error::Damaged(format!("inode {ino} has a name but no record"));
    let inode = volume.find_inode(ino)?.ok_or_else(missing)?;
    Ok(attributes(ino, &inode))
}

pub(crate) fn parent_of(volume: &Volume, ino: u64) -> Result<Attributes> {
    let _held = volume.locks.read(ino);
    let inode = volume.load_inode(ino)?;
    check_living_directory(&inode)?;
    pin_named(volume, if ino == volume.root() { ino } else { inode.parent })
}

/// The attributes of all that a listing has, if they are to be of its moment: beside others the
/// lock of the directory does not keep what it has in being.
fn ahead_of(volume: &Volume, listing: &Listing, is_wanted: bool) -> Result<Vec<Attributes>> {
    match is_wanted && together::is_shared(volume) {
        true => listing.entries().map(|(entry, _)| named(volume, entry.ino)).collect(),
        false => Ok(Vec::new()),
    }
}

pub(crate) fn list(
    volume: &Volume,
    ino: u64,
    after: u64,
    with_attributes: bool,
    visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
) -> Result<()> {
    let inode = volume.load_inode(ino)?;
    list_entries(volume, ino, after, with_attributes, visit)?;
    access_times::accessed(volume, ino, &inode);
    Ok(())
}

/// As `list`, without moving the access time.
pub(crate) fn list_entries(
    volume: &Volume,
    ino: u64,
    after: u64,
    with_attributes: bool,
    visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
) -> Result<()> {
    let mut after = after;
    let mut max = ENTRIES_MIN;
    loop {
        let held = volume.locks.read(ino);
        let (listing, mut ahead) = together::of_one_moment(volume, || {
            check_directory(&volume.load_inode(ino)?)?;
            let listing = Listing::read(&*volume.view, ino, after, max)?;
            let ahead = ahead_of(volume, &listing, with_attributes)?;
            Ok((listing, ahead.into_iter()))
        })?;
        for (entry, name) in listing.entries() {
            after = entry.offset + 1;
            let found = match (with_attributes, ahead.next()) {
                (false, _) => None,
                (true, Some(ahead)) => Some(ahead),
                (true, None) => Some(named(volume, entry.ino)?),
            };
            let accepted = visit(DirectoryEntry {
                name,
                ino: Ino(entry.ino),
                kind: kind_of(entry.kind),
                cookie: after,
                attributes: found,
            });
            if !accepted {
                return Ok(());
            }
            if with_attributes {
                volume.pins.add(entry.ino);
            }
        }
        drop(held);
        if listing.len() < max {
            return Ok(());
        }
        max = ENTRIES_MAX.min(max * 2);
    }
}
