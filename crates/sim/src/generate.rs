//! Draws operations from a seed.
//!
//! **Swarm testing** (Groce and others, 2012): each history draws its own weights, and leaves many
//! kinds of operation out, because bugs hide behind operations that undo each other. Numbers are
//! drawn around the boundaries where code changes its mind: the 4 KiB page, the 128 KiB record,
//! the largest inline value, the largest file.

use crate::operation::{
    DIRECTORY_NAMES_FIRST, DIRECTORY_SLOTS, FILE_SLOTS, NAMES, New, Operation, Place, SLOTS,
    SPECIAL_SLOTS, Slot, XATTR_NAMES,
};
use crate::random::Random;
use marram_vfs::{
    Allocate, Caller, FILE_BYTES_MAX, Kind, RenameMode, SYMLINK_BYTES_MAX, SeekTarget,
    SetAttributes, SetTime, SyncScope, Timestamp, WriteOptions, XATTR_VALUE_BYTES_MAX, XattrMode,
};

/// Bytes of a record in a dataset with default properties.
const RECORD_BYTES: u64 = 131_072;
/// One of so many writes is an append.
const WRITES_PER_APPEND: u64 = 4;
/// Longest single read or write, in bytes.
const TRANSFER_BYTES_MAX: u64 = 3 * RECORD_BYTES;

/// How many of the kinds no history leaves out: without them there is nothing to work on.
const ALWAYS_DRAWN: usize = 3;

type Draw = fn(&mut Random) -> Operation;

/// Every kind of operation, and how often it is drawn before the swarm changes that.
const KINDS: &[(Draw, u64)] = &[
    (lookup, 10),
    (create_file, 10),
    (create_directory, 5),
    (parent, 1),
    (attributes, 1),
    (pin, 1),
    (forget, 4),
    (set_attributes, 5),
    (set_size, 5),
    (read_link, 1),
    (create_special, 3),
    (create_anonymous, 2),
    (link, 5),
    (unlink, 6),
    (remove_directory, 3),
    (rename, 10),
    (read, 8),
    (write, 20),
    (allocate, 9),
    (seek, 4),
    (copy_range, 6),
    (read_directory, 3),
    (xattr, 2),
    (set_xattr, 5),
    (list_xattrs, 1),
    (remove_xattr, 2),
    (sync, 1),
    (sync_all, 1),
    (space, 1),
];

/// A source of operations.
#[derive(Clone, Debug)]
pub struct Generator {
    random: Random,
    weights: Vec<u64>,
    total: u64,
    drawn: usize,
}

/// What every history begins with, so that there is something to work on.
const BEGINNING: &[Draw] = &[
    create_directory,
    create_directory,
    create_directory,
    create_directory,
    create_directory,
    create_file,
    create_file,
    create_file,
    create_file,
    create_file,
    create_file,
    create_file,
];

impl Generator {
    /// The generator of `seed`, with weights of its own.
    pub fn new(seed: u64) -> Generator {
        let mut random = Random::new(seed);
        let weights: Vec<u64> = KINDS
            .iter()
            .enumerate()
            .map(|(at, (_, weight))| {
                let times = random.pick(&[0, 1, 1, 2, 8]);
                weight * if at < ALWAYS_DRAWN { times.max(1) } else { times }
            })
            .collect();
        let total = weights.iter().sum();
        Generator { random, weights, total, drawn: 0 }
    }

    /// The generator of `seed` for a place where there is something to work on.
    pub(crate) fn going_on(seed: u64) -> Generator {
        Generator { drawn: BEGINNING.len(), ..Generator::new(seed) }
    }

    /// The next operation.
    pub fn draw(&mut self) -> Operation {
        self.drawn += 1;
        if let Some(draw) = BEGINNING.get(self.drawn - 1) {
            return draw(&mut self.random);
        }
        let mut at = self.random.below(self.total);
        for ((draw, _), weight) in KINDS.iter().zip(&self.weights) {
            if at < *weight {
                return draw(&mut self.random);
            }
            at -= weight;
        }
        unreachable!("the weights add up to their total")
    }
}

fn directory(random: &mut Random) -> Slot {
    Slot(random.below(u64::from(DIRECTORY_SLOTS)) as u8)
}

/// Mostly a file, sometimes whatever is in another slot.
fn file(random: &mut Random) -> Slot {
    if random.once_in(16) {
        return any(random);
    }
    Slot(DIRECTORY_SLOTS + random.below(u64::from(FILE_SLOTS)) as u8)
}

/// Mostly something that is neither file nor directory.
fn special(random: &mut Random) -> Slot {
    if random.once_in(3) {
        return any(random);
    }
    Slot(SLOTS - 1 - random.below(u64::from(SPECIAL_SLOTS)) as u8)
}

/// Any slot, but some of them far more often.
fn favourite(random: &mut Random) -> Slot {
    if random.once_in(4) {
        return any(random);
    }
    Slot(random.pick(&[0, 1, DIRECTORY_SLOTS, DIRECTORY_SLOTS + 1, SLOTS - 1]))
}

fn any(random: &mut Random) -> Slot {
    Slot(random.below(u64::from(SLOTS)) as u8)
}

fn place(random: &mut Random) -> Place {
    let directory = if random.once_in(32) { any(random) } else { directory(random) };
    Place { directory, name: random.below(u64::from(NAMES)) as u8 }
}

/// A place whose name is mostly that of a directory.
fn directory_place(random: &mut Random) -> Place {
    let place = place(random);
    let name = DIRECTORY_NAMES_FIRST + place.name % (NAMES - DIRECTORY_NAMES_FIRST);
    if random.once_in(6) { place } else { Place { name, ..place } }
}

/// A place whose name is mostly that of something else.
fn file_place(random: &mut Random) -> Place {
    let place = place(random);
    let name = place.name % DIRECTORY_NAMES_FIRST;
    if random.once_in(6) { place } else { Place { name, ..place } }
}

fn into(random: &mut Random) -> u8 {
    random.below(256) as u8
}

fn caller(random: &mut Random) -> Caller {
    Caller { uid: random.pick(&[0, 1000, u32::MAX - 1]), gid: random.pick(&[0, 1000, 1001]) }
}

fn permissions(random: &mut Random) -> u32 {
    random.pick(&[0o644, 0o755, 0o2755, 0o4755, 0o6711, 0o2644, 0o1777, 0, 0o7777])
}

fn near(random: &mut Random, number: u64) -> u64 {
    let shift = random.pick(&[0, 0, 0, 1, 7, 100]);
    if random.once_in(2) { number.saturating_sub(shift) } else { number + shift }
}

/// An offset or size within the first megabyte, or seldom anywhere at all.
fn offset(random: &mut Random) -> u64 {
    match random.below(40) {
        0 => random.pick(&[1 << 31, 1 << 32, 1 << 40, FILE_BYTES_MAX, u64::MAX - 100]),
        1 => near(random, 1 << 40),
        2 => near(random, FILE_BYTES_MAX - 200),
        3..10 => random.below(8 * RECORD_BYTES),
        10..20 => random.below(8192),
        20..25 => 0,
        25..32 => {
            let pages = random.below(64);
            near(random, pages * 4096)
        }
        _ => {
            let records = random.below(8);
            near(random, records * RECORD_BYTES)
        }
    }
}

fn transfer_len(random: &mut Random) -> usize {
    let len = match random.below(16) {
        0 => 0,
        1..6 => 1 + random.below(200),
        6..9 => near(random, 4096),
        9..11 => near(random, RECORD_BYTES),
        11..13 => random.below(TRANSFER_BYTES_MAX),
        _ => random.below(20_000),
    };
    len as usize
}

fn range_len(random: &mut Random) -> u64 {
    match random.below(20) {
        0 => random.pick(&[0, 1 << 33, FILE_BYTES_MAX, u64::MAX]),
        1..8 => random.below(10_000),
        8..12 => near(random, 4096),
        12..16 => near(random, RECORD_BYTES),
        _ => random.below(4 * RECORD_BYTES),
    }
}

fn time(random: &mut Random) -> SetTime {
    if random.once_in(3) {
        return SetTime::Now;
    }
    SetTime::At(timestamp(random))
}

fn timestamp(random: &mut Random) -> Timestamp {
    Timestamp {
        seconds: random.pick(&[-1, 0, -2_208_988_800, 1 << 31, 1 << 32, 253_402_300_799]),
        nanoseconds: random.pick(&[0, 1, 999_999_999]),
    }
}

fn lookup(random: &mut Random) -> Operation {
    Operation::Lookup { place: place(random), into: into(random) }
}

fn parent(random: &mut Random) -> Operation {
    Operation::Parent { directory: directory(random), into: into(random) }
}

fn attributes(random: &mut Random) -> Operation {
    Operation::Attributes { subject: any(random) }
}

fn pin(random: &mut Random) -> Operation {
    Operation::Pin { subject: any(random) }
}

fn forget(random: &mut Random) -> Operation {
    Operation::Forget { subject: any(random) }
}

fn set_attributes(random: &mut Random) -> Operation {
    let mut set = SetAttributes::default();
    let fields = random.number();
    if fields & 1 != 0 {
        set.permissions = Some(permissions(random));
    }
    if fields & 2 != 0 {
        set.uid = Some(caller(random).uid);
    }
    if fields & 4 != 0 {
        set.gid = Some(caller(random).gid);
    }
    if fields & 8 != 0 {
        set.accessed = Some(time(random));
    }
    if fields & 16 != 0 {
        set.modified = Some(time(random));
    }
    if fields & 0x60 == 0 {
        set.changed = Some(timestamp(random));
    }
    if fields & 0x180 == 0 {
        set.size = Some(offset(random));
    }
    set.clear_privileges = fields & 0x600 == 0;
    set.clear_setgid = fields & 0x1800 == 0;
    Operation::SetAttributes { caller: caller(random), subject: any(random), set }
}

fn set_size(random: &mut Random) -> Operation {
    let set = SetAttributes {
        size: Some(offset(random)),
        clear_privileges: random.once_in(4),
        ..SetAttributes::default()
    };
    Operation::SetAttributes { caller: caller(random), subject: file(random), set }
}

fn read_link(random: &mut Random) -> Operation {
    Operation::ReadLink { subject: special(random) }
}

fn create(random: &mut Random, new: New) -> Operation {
    let place = match new {
        New::Directory { .. } => directory_place(random),
        _ => file_place(random),
    };
    Operation::Create { caller: caller(random), place, new, into: into(random) }
}

fn create_file(random: &mut Random) -> Operation {
    let new = New::Node { kind: Kind::Regular, permissions: permissions(random), device: 0 };
    create(random, new)
}

fn create_directory(random: &mut Random) -> Operation {
    let permissions = permissions(random);
    create(random, New::Directory { permissions })
}

fn create_special(random: &mut Random) -> Operation {
    let kinds = [Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice];
    let new = if random.once_in(2) {
        let longest = SYMLINK_BYTES_MAX;
        New::Symlink { target_len: random.pick(&[0, 1, 30, 100, 1000, longest, longest + 1]) }
    } else {
        New::Node {
            kind: random.pick(&kinds),
            permissions: permissions(random),
            device: random.pick(&[0, 0x0103, u32::MAX]),
        }
    };
    create(random, new)
}

fn create_anonymous(random: &mut Random) -> Operation {
    Operation::CreateAnonymous {
        caller: caller(random),
        directory: directory(random),
        permissions: permissions(random),
        into: into(random),
    }
}

fn link(random: &mut Random) -> Operation {
    Operation::Link { subject: file(random), place: file_place(random) }
}

fn unlink(random: &mut Random) -> Operation {
    Operation::Unlink { place: file_place(random) }
}

fn remove_directory(random: &mut Random) -> Operation {
    Operation::RemoveDirectory { place: directory_place(random) }
}

fn rename(random: &mut Random) -> Operation {
    let modes = [
        RenameMode::Replace,
        RenameMode::Replace,
        RenameMode::NoReplace,
        RenameMode::Exchange,
        RenameMode::Whiteout,
        RenameMode::WhiteoutNoReplace,
    ];
    Operation::Rename {
        caller: caller(random),
        from: place(random),
        to: place(random),
        mode: random.pick(&modes),
    }
}

fn read(random: &mut Random) -> Operation {
    Operation::Read { subject: file(random), offset: offset(random), len: transfer_len(random) }
}

/// A write, or of every so many an append.
fn write(random: &mut Random) -> Operation {
    let (subject, offset, len) = (file(random), offset(random), transfer_len(random));
    let seed = random.number();
    let options = WriteOptions {
        clear_privileges: random.once_in(4),
        keep_times: random.once_in(8),
        accepted: random.once_in(8),
        memory: None,
    };
    match seed % WRITES_PER_APPEND {
        0 => Operation::Append { subject, len, seed },
        _ => Operation::Write { subject, offset, len, seed, options },
    }
}

fn allocate(random: &mut Random) -> Operation {
    let ways = [
        Allocate::Reserve,
        Allocate::ReserveKeepSize,
        Allocate::PunchHole,
        Allocate::PunchHole,
        Allocate::Zero,
        Allocate::ZeroKeepSize,
        Allocate::Collapse,
        Allocate::Collapse,
        Allocate::Insert,
        Allocate::Unshare,
        Allocate::UnshareKeepSize,
    ];
    Operation::Allocate {
        subject: file(random),
        how: random.pick(&ways),
        offset: offset(random),
        len: range_len(random),
    }
}

fn seek(random: &mut Random) -> Operation {
    Operation::Seek {
        subject: file(random),
        offset: offset(random),
        target: random.pick(&[SeekTarget::Data, SeekTarget::Hole]),
    }
}

fn copy_range(random: &mut Random) -> Operation {
    let from = file(random);
    let to = if random.once_in(4) { from } else { file(random) };
    Operation::CopyRange {
        from,
        from_offset: offset(random),
        to,
        to_offset: offset(random),
        len: range_len(random),
        share: random.once_in(3),
    }
}

fn read_directory(random: &mut Random) -> Operation {
    Operation::ReadDirectory {
        directory: directory(random),
        with_attributes: random.once_in(2),
        entries_per_call: random.pick(&[1, 2, 5, 1000]),
    }
}

fn xattr(random: &mut Random) -> Operation {
    Operation::Xattr {
        subject: favourite(random),
        name: random.below(u64::from(XATTR_NAMES)) as u8,
    }
}

fn set_xattr(random: &mut Random) -> Operation {
    let largest = XATTR_VALUE_BYTES_MAX;
    Operation::SetXattr {
        subject: favourite(random),
        name: random.below(u64::from(XATTR_NAMES)) as u8,
        len: match random.below(12) {
            0 => 0,
            1..6 => random.below(300) as usize,
            6..10 => 2900 + random.below(1400) as usize,
            10 => random.below(20_000) as usize,
            _ => random.pick(&[largest - 1, largest, largest + 1]),
        },
        seed: random.number(),
        mode: random.pick(&[XattrMode::Any, XattrMode::Any, XattrMode::Create, XattrMode::Replace]),
    }
}

fn list_xattrs(random: &mut Random) -> Operation {
    Operation::ListXattrs { subject: any(random) }
}

fn remove_xattr(random: &mut Random) -> Operation {
    Operation::RemoveXattr {
        subject: favourite(random),
        name: random.below(u64::from(XATTR_NAMES)) as u8,
    }
}

fn sync(random: &mut Random) -> Operation {
    Operation::Sync { subject: any(random), scope: random.pick(&[SyncScope::Data, SyncScope::All]) }
}

fn sync_all(_random: &mut Random) -> Operation {
    Operation::SyncAll
}

fn space(_random: &mut Random) -> Operation {
    Operation::Space
}
