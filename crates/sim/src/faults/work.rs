//! The work that is done while faults come: always the same.
//!
//! It has each kind of thing that a pool writes: small and large content, appends and overwrites
//! that are synced, many inodes, large extended attributes, a replaced file, a snapshot, a clone
//! that goes its own way, things destroyed, and mounts with a cold cache, after a close and after
//! a crash.

use crate::operation::{DIRECTORY_SLOTS, New, Operation, Place, Slot};
use marram_vfs::{
    Allocate, Caller, Kind, RenameMode, SetAttributes, SyncScope, WriteOptions, XattrMode,
};

/// The dataset that an act is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dataset {
    /// The root dataset.
    Root,
    /// The clone.
    Clone,
}

/// One thing that is done to a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// An operation on a mounted dataset.
    Operation(Dataset, Operation),
    /// A group commit.
    Commit,
    /// Space of what was removed is given back, as far as there is any.
    Reclaim,
    /// The root dataset is kept under this name.
    Snapshot(&'static str),
    /// The clone is made of this snapshot, and mounted.
    MakeClone(&'static str),
    /// The clone is destroyed.
    DestroyClone,
    /// A snapshot is destroyed.
    DestroySnapshot(&'static str),
    /// Everything is read and compared: mounted datasets and snapshots.
    ReadAll,
    /// The pool is closed and opened again.
    Remount,
    /// The pool is dropped without being closed and opened again; everything was synced before.
    Crash,
}

const CALLER: Caller = Caller { uid: 1000, gid: 100 };
/// Files that make the trees more than one node.
const MANY_FILES: u8 = 8;

fn file(into: u8) -> Slot {
    Slot(DIRECTORY_SLOTS + into)
}

fn in_root(name: u8) -> Place {
    Place { directory: Slot(0), name }
}

fn in_folder(name: u8) -> Place {
    Place { directory: Slot(1), name }
}

fn folder(place: Place, into: u8) -> Operation {
    let new = New::Directory { permissions: 0o755 };
    Operation::Create { caller: CALLER, place, new, into }
}

fn create(place: Place, into: u8) -> Operation {
    let new = New::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    Operation::Create { caller: CALLER, place, new, into }
}

fn write(subject: Slot, offset: u64, len: usize, seed: u64) -> Operation {
    Operation::Write { subject, offset, len, seed, options: WriteOptions::default() }
}

fn sync(subject: Slot) -> Operation {
    Operation::Sync { subject, scope: SyncScope::All }
}

fn data_sync(subject: Slot) -> Operation {
    Operation::Sync { subject, scope: SyncScope::Data }
}

fn set_xattr(subject: Slot, name: u8, len: usize) -> Operation {
    Operation::SetXattr { subject, name, len, seed: 5, mode: XattrMode::Any }
}

fn rename(from: Place, to: Place) -> Operation {
    Operation::Rename { caller: CALLER, from, to, mode: RenameMode::Replace }
}

/// Begins with an empty pool of which nothing is mounted.
pub fn workload() -> Vec<Act> {
    let mut acts = Vec::new();
    let on_root = |operations: Vec<Operation>| -> Vec<Act> {
        operations.into_iter().map(|operation| Act::Operation(Dataset::Root, operation)).collect()
    };
    acts.extend(on_root(create_content()));
    acts.push(Act::Commit);
    acts.extend(on_root(append_and_overwrite()));
    acts.extend([Act::Remount, Act::ReadAll]);
    acts.extend(on_root(many_names()));
    acts.extend([Act::Snapshot("first"), Act::Crash, Act::ReadAll]);
    acts.extend(on_root(replace_and_cut()));
    acts.extend([Act::Crash, Act::ReadAll, Act::MakeClone("first")]);
    acts.extend(on_clone());
    acts.extend(on_root(remove()));
    acts.extend([Act::Reclaim, Act::Snapshot("second"), Act::Remount, Act::ReadAll]);
    acts.extend([Act::DestroyClone, Act::DestroySnapshot("first"), Act::Reclaim]);
    acts.extend(on_root(vec![write(file(1), 4096, 9000, 62), sync(file(1))]));
    acts.extend([Act::Crash, Act::ReadAll]);
    acts.extend(on_root(vec![write(file(0), 0, 3000, 63)]));
    acts.extend([Act::Remount, Act::ReadAll]);
    acts
}

fn create_content() -> Vec<Operation> {
    vec![
        folder(in_root(9), 0),
        create(in_root(4), 0),
        write(file(0), 0, 3000, 2),
        sync(file(0)),
        create(in_folder(5), 1),
        write(file(1), 0, 70_000, 5),
        write(file(1), 70_000, 40_000, 4),
        create(in_folder(0), 2),
        write(file(2), 0, 300_000, 8),
        sync(Slot(1)),
    ]
}

fn append_and_overwrite() -> Vec<Operation> {
    vec![
        write(file(0), 3000, 700, 11),
        data_sync(file(0)),
        write(file(0), 3700, 5000, 14),
        data_sync(file(0)),
        write(file(2), 150_000, 20_000, 17),
        sync(file(2)),
        write(file(1), 5, 10, 20),
        Operation::SyncAll,
        set_xattr(file(1), 2, 5000),
        set_xattr(file(1), 0, 20),
        Operation::Create {
            caller: CALLER,
            place: in_root(6),
            new: New::Symlink { target_len: 60 },
            into: 0,
        },
        Operation::Link { subject: file(0), place: in_folder(7) },
        sync(Slot(0)),
    ]
}

/// Files with a little content each, in one directory.
fn many_names() -> Vec<Operation> {
    let mut operations = vec![folder(in_folder(10), 1)];
    for number in 0..MANY_FILES {
        let place = Place { directory: Slot(2), name: number };
        operations.push(create(place, 3 + number % 3));
        operations.push(write(file(3 + number % 3), 0, 1500, u64::from(number) * 3 + 2));
        operations.push(set_xattr(file(3 + number % 3), number, 2000));
    }
    operations.push(write(file(1), 100_000, 30_000, 29));
    operations
}

/// The idiom of editors (write a new file, sync, rename it over the old one), and cuts.
fn replace_and_cut() -> Vec<Operation> {
    let set = SetAttributes { size: Some(50_000), ..SetAttributes::default() };
    vec![
        create(in_root(8), 6),
        write(file(6), 0, 9000, 32),
        sync(file(6)),
        rename(in_root(8), in_folder(5)),
        sync(Slot(1)),
        Operation::Allocate {
            subject: file(2),
            how: Allocate::PunchHole,
            offset: 10_000,
            len: 140_000,
        },
        Operation::SetAttributes { caller: CALLER, subject: file(2), set },
        write(file(2), 260_000, 12_000, 35),
        sync(file(2)),
    ]
}

fn on_clone() -> Vec<Act> {
    let operations = [
        Operation::Lookup { place: in_root(9), into: 0 },
        Operation::Lookup { place: in_folder(0), into: 2 },
        write(file(2), 100, 150_000, 38),
        create(in_folder(8), 3),
        write(file(3), 0, 20_000, 41),
        sync(file(3)),
        Operation::Unlink { place: in_folder(7) },
        sync(Slot(0)),
    ];
    operations.into_iter().map(|operation| Act::Operation(Dataset::Clone, operation)).collect()
}

fn remove() -> Vec<Operation> {
    let from = Place { directory: Slot(2), name: 3 };
    vec![
        Operation::Unlink { place: Place { directory: Slot(2), name: 2 } },
        rename(from, in_root(3)),
        Operation::CopyRange {
            from: file(2),
            from_offset: 0,
            to: file(0),
            to_offset: 16_384,
            len: 8192,
            share: false,
        },
        Operation::Unlink { place: in_root(6) },
        Operation::Forget { subject: file(6) },
        sync(Slot(0)),
        write(file(0), 2000, 100, 44),
        Operation::Read { subject: file(0), offset: 0, len: 50_000 },
        sync(file(0)),
    ]
}
