//! What a merge, update or way back does for a user, beside what the kernel lets that user do on
//! a copy of the tree: cells of users, verbs, owners, directories, modes and attributes.
//!
//! Each cell is a file in a directory. The change of the verb is made in a state that a user is to
//! bring into another, and by system calls of a thread that has become the user. The one has to go
//! exactly where the other does.

use super::family::{Family, Tree, source};
use marram_history::{
    Bound, Direction, DirectoryRollback, MergeOptions, Parent, bring_across, roll_back_directory,
};
use marram_store::memory::MemoryStore;
use marram_store::{DatasetName, Store};
use marram_vfs::{
    Error, FileSystem, Identity, Ino, Kind, NewNode, Result, SetAttributes, SetTime, Timestamp,
    WriteOptions,
};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

const ANN: u32 = 4001;
const BOB: u32 = 4002;
const STAFF: u32 = 4100;
const PAST_SECONDS: i64 = 1_000_000;
/// A capability of a file, as the kernel takes it: `CAP_NET_RAW`.
const CAPABILITY: [u8; 20] = [0, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Users: Ann in the group that the others share, and Ann without it.
const GROUPS: [&[u32]; 2] = [&[ANN, STAFF], &[ANN]];
/// Owners and groups of the file.
const OWNERS: [(u32, u32); 4] = [(ANN, ANN), (BOB, STAFF), (0, 0), (ANN, STAFF)];
/// Owners, groups and modes of the directory.
const DIRECTORIES: [(u32, u32, u32); 7] = [
    (ANN, ANN, 0o755),
    (BOB, BOB, 0o755),
    (BOB, STAFF, 0o775),
    (0, 0, 0o1777),
    (ANN, ANN, 0o555),
    (BOB, STAFF, 0o2775),
    (BOB, BOB, 0o700),
];
const MODES: [u32; 6] = [0o644, 0o664, 0o622, 0o000, 0o4755, 0o2775];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    Nothing,
    Capability,
    Immutable,
    /// An access list that gives Ann these bits by name, and the group and all others none.
    List(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Write,
    Cut,
    Mode(u32),
    Owner(u32),
    Group(u32),
    Unlink,
    Rename,
    Move,
    Create,
    Directory,
    Symlink,
    Device,
    Attribute,
    Capability,
    OldTime,
}

const VERBS: [Verb; 18] = [
    Verb::Write,
    Verb::Cut,
    Verb::Mode(0o640),
    Verb::Mode(0o4711),
    Verb::Mode(0o2711),
    Verb::Owner(BOB),
    Verb::Owner(0),
    Verb::Group(STAFF),
    Verb::Group(0),
    Verb::Unlink,
    Verb::Rename,
    Verb::Move,
    Verb::Create,
    Verb::Directory,
    Verb::Symlink,
    Verb::Device,
    Verb::Attribute,
    Verb::OldTime,
];

/// Files with more than a mode: with that one, and what is done to them.
const SPECIALS: [(Special, u32, [Verb; 4]); 4] = [
    (Special::Capability, 0o755, [Verb::Write, Verb::Cut, Verb::Unlink, Verb::Capability]),
    (Special::Immutable, 0o755, [Verb::Write, Verb::Mode(0o640), Verb::Unlink, Verb::Rename]),
    (Special::List(6), 0o660, [Verb::Write, Verb::Cut, Verb::Attribute, Verb::OldTime]),
    (Special::List(4), 0o660, [Verb::Write, Verb::Cut, Verb::Attribute, Verb::OldTime]),
];

/// The user that asks.
struct Person(&'static [u32]);

impl Identity for Person {
    fn uid(&self) -> u32 {
        ANN
    }

    fn gid(&self) -> u32 {
        ANN
    }

    fn is_member(&self, gid: u32) -> bool {
        self.0.contains(&gid)
    }
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    groups: &'static [u32],
    owner: (u32, u32),
    directory: (u32, u32, u32),
    mode: u32,
    special: Special,
    verb: Verb,
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for groups in GROUPS {
        for owner in OWNERS {
            for directory in DIRECTORIES {
                for mode in MODES {
                    cells.extend(VERBS.map(|verb| {
                        let special = Special::Nothing;
                        Cell { groups, owner, directory, mode, special, verb }
                    }));
                }
                for (special, mode, verbs) in &SPECIALS {
                    cells.extend(verbs.map(|verb| {
                        let mode = *mode;
                        Cell { groups, owner, directory, mode, special: *special, verb }
                    }));
                }
            }
        }
    }
    cells
}

/// What the file of a cell is afterwards, as far as a user chooses it.
type Outcome = Option<(u32, u32, u32)>;

/// Makes the tree of a cell on the disk, and has the user do it: what comes of it, if it goes.
fn by_system_calls(cell: Cell, place: &Path) -> Option<Outcome> {
    let directory = place.join("d");
    let file = directory.join("f");
    for made in [&directory, &place.join("o")] {
        fs::create_dir(made).unwrap();
    }
    fs::write(&file, "old content\n").unwrap();
    chown(&file, Some(cell.owner.0), Some(cell.owner.1)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(cell.mode)).unwrap();
    chown(place.join("o"), Some(ANN), Some(ANN)).unwrap();
    match cell.special {
        Special::Nothing => (),
        Special::Capability => {
            let flags = XattrFlags::empty();
            rustix::fs::setxattr(&file, "security.capability", &CAPABILITY, flags).ok()?;
        }
        Special::Immutable => freeze(&file, true)?,
        Special::List(bits) => {
            let flags = XattrFlags::empty();
            rustix::fs::setxattr(&file, "system.posix_acl_access", &list(bits), flags).ok()?;
        }
    }
    let (uid, gid, mode) = cell.directory;
    chown(&directory, Some(uid), Some(gid)).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
    let done = std::thread::scope(|scope| {
        scope.spawn(|| become_user(cell.groups).and_then(|()| act(cell.verb, place))).join()
    });
    let after = fs::symlink_metadata(place.join(made_by(cell.verb))).ok();
    let after = after.map(|it| (it.mode() & 0o7777, it.uid(), it.gid()));
    let outcome = done.unwrap().ok().map(|()| after.unwrap_or_default());
    // A mode of which the kernel leaves a bit out is one that the user cannot set.
    let is_done = |outcome: &(u32, u32, u32)| match cell.verb {
        Verb::Mode(asked) => outcome.0 == asked,
        _ => true,
    };
    let outcome = outcome.filter(is_done);
    if cell.special == Special::Immutable {
        freeze(&file, false)?;
    }
    fs::remove_dir_all(&directory).unwrap();
    fs::remove_dir_all(place.join("o")).unwrap();
    Some(outcome)
}

/// The owner has `rw`, Ann by name `bits`, the group and others nothing; the mask is `rw`.
fn list(bits: u16) -> Vec<u8> {
    let nobody = u32::MAX;
    let entries =
        [(1, 6, nobody), (2, bits, ANN), (4, 0, nobody), (16, 6, nobody), (32, 0_u16, nobody)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend(u16::to_le_bytes(tag).into_iter().chain(bits.to_le_bytes()));
        bytes.extend(u32::to_le_bytes(id));
    }
    bytes
}

fn freeze(file: &Path, is_frozen: bool) -> Option<()> {
    let file = File::open(file).ok()?;
    let mut flags = ioctl_getflags(&file).ok()?;
    flags.set(IFlags::IMMUTABLE, is_frozen);
    ioctl_setflags(&file, flags).ok()
}

/// The thread is the user's from then on.
fn become_user(groups: &[u32]) -> std::io::Result<()> {
    let groups: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let (uid, gid) = (Uid::from_raw(ANN), Gid::from_raw(ANN));
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// Where a verb has its outcome.
const fn made_by(verb: Verb) -> &'static str {
    match verb {
        Verb::Rename => "d/g",
        Verb::Move => "o/f",
        Verb::Create | Verb::Directory | Verb::Symlink | Verb::Device => "d/n",
        _ => "d/f",
    }
}

fn act(verb: Verb, place: &Path) -> std::io::Result<()> {
    let (file, made) = (place.join("d/f"), place.join(made_by(verb)));
    let mode = |mode| Mode::from_raw_mode(mode);
    match verb {
        Verb::Write => OpenOptions::new().write(true).open(file)?.write_all(b"new"),
        Verb::Cut => OpenOptions::new().write(true).open(file)?.set_len(3),
        Verb::Mode(mode) => fs::set_permissions(file, Permissions::from_mode(mode)),
        Verb::Owner(uid) => chown(file, Some(uid), None),
        Verb::Group(gid) => chown(file, None, Some(gid)),
        Verb::Unlink => fs::remove_file(file),
        Verb::Rename | Verb::Move => fs::rename(file, made),
        Verb::Create => File::create_new(&made)?.set_permissions(Permissions::from_mode(0o644)),
        Verb::Directory => fs::create_dir(made),
        Verb::Symlink => symlink("f", made),
        Verb::Device => {
            let device = rustix::fs::makedev(1, 3);
            Ok(rustix::fs::mknodat(CWD, &made, FileType::CharacterDevice, mode(0o644), device)?)
        }
        Verb::Attribute => {
            Ok(rustix::fs::setxattr(&file, "user.a", b"value", XattrFlags::empty())?)
        }
        Verb::Capability => {
            let mut other = CAPABILITY;
            other[5] = 0x10;
            let flags = XattrFlags::empty();
            Ok(rustix::fs::setxattr(&file, "security.capability", &other, flags)?)
        }
        Verb::OldTime => {
            let past = Timespec { tv_sec: PAST_SECONDS, tv_nsec: 0 };
            let times = Timestamps { last_access: past, last_modification: past };
            Ok(rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty())?)
        }
    }
}

/// Makes the tree of a cell.
fn prepare(cell: Cell, tree: &Tree) {
    let set = |path: &str, uid: u32, gid: u32, mode: u32| {
        let owner = SetAttributes { uid: Some(uid), gid: Some(gid), ..Default::default() };
        tree.set(path, owner);
        tree.mode(path, mode);
    };
    tree.directory("/d");
    tree.directory("/o");
    tree.file("/d/f", b"old content\n");
    set("/d/f", cell.owner.0, cell.owner.1, cell.mode);
    set("/o", ANN, ANN, 0o755);
    match cell.special {
        Special::Nothing => (),
        Special::Capability => tree.xattr("/d/f", "security.capability", &CAPABILITY),
        Special::Immutable => freeze_in(tree, true),
        Special::List(bits) => tree.xattr("/d/f", "system.posix_acl_access", &list(bits)),
    }
    let (uid, gid, mode) = cell.directory;
    set("/d", uid, gid, mode);
}

fn freeze_in(tree: &Tree, is_frozen: bool) {
    use marram_vfs::{InodeFlags, Marked as _, SetMarks};
    let ino = tree.find("/d/f").unwrap().ino;
    let flags = if is_frozen { InodeFlags::IMMUTABLE } else { InodeFlags::default() };
    let marks = SetMarks { flags: Some(flags), ..SetMarks::default() };
    tree.0.set_marks(ino, marks).unwrap();
}

/// Makes the change of a cell as a program with more rights would, with what a change by the user
/// takes away by itself.
fn change(cell: Cell, tree: &Tree) {
    let of_user = SetAttributes { uid: Some(ANN), ..Default::default() };
    let ino = tree.find("/d/f").unwrap().ino;
    let (_, group, directory_mode) = cell.directory;
    let gid = if directory_mode & 0o2000 != 0 { group } else { ANN };
    let make = |node: NewNode<'_>| {
        tree.make("/d/n", node);
        tree.set("/d/n", SetAttributes { gid: Some(gid), ..of_user });
    };
    let given = SetAttributes { clear_privileges: true, ..Default::default() };
    match cell.verb {
        Verb::Write => {
            let options = WriteOptions {
                clear_privileges: true,
                keep_times: false,
                accepted: false,
                memory: None,
            };
            tree.0.write(ino, 0, b"new", options).unwrap();
        }
        Verb::Cut => tree.set("/d/f", SetAttributes { size: Some(3), ..given }),
        Verb::Mode(mode) => tree.mode("/d/f", mode),
        Verb::Owner(uid) => tree.set("/d/f", SetAttributes { uid: Some(uid), ..given }),
        Verb::Group(gid) => tree.set("/d/f", SetAttributes { gid: Some(gid), ..given }),
        Verb::Unlink => tree.unlink("/d/f"),
        Verb::Rename => tree.rename("/d/f", "/d/g"),
        Verb::Move => tree.rename("/d/f", "/o/f"),
        Verb::Create => {
            make(NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 });
        }
        Verb::Directory => make(NewNode::Directory { permissions: 0o755 }),
        Verb::Symlink => make(NewNode::Symlink { target: b"f" }),
        Verb::Device => {
            make(NewNode::Node { kind: Kind::CharDevice, permissions: 0o644, device: 0x103 });
        }
        Verb::Attribute => tree.xattr("/d/f", "user.a", b"value"),
        Verb::Capability => {
            let mut other = CAPABILITY;
            other[5] = 0x10;
            tree.xattr("/d/f", "security.capability", &other);
        }
        Verb::OldTime => {
            let past = Timestamp { seconds: PAST_SECONDS, nanoseconds: 0 };
            let modified = Some(SetTime::At(past));
            tree.set("/d/f", SetAttributes { modified, ..Default::default() });
        }
    }
}

/// The ways in which changes of one state are brought into another for a user.
#[derive(Clone, Copy, Debug)]
enum Way {
    Merge,
    Update,
    Back,
}

/// Brings what is new in one side into the other; whether there was anything.
fn across(family: &Family, into: &dyn Parent, direction: Direction) -> Result<bool> {
    let (fork, options) = ("fork".parse().unwrap(), MergeOptions::default());
    let report = bring_across(into, &family.store, (&fork, direction), &options)?;
    Ok(!report.differences.is_empty())
}

/// Lets everything go back to a state; whether anything changed.
fn back_to(family: &Family, files: &dyn Parent, to: &str) -> Result<bool> {
    let (dataset, to) = (DatasetName::root(), source(to));
    let rollback =
        DirectoryRollback { dataset: &dataset, to: &to, directory: Ino::ROOT, keep: None };
    Ok(roll_back_directory(files, &family.store, rollback)?.is_some())
}

/// What comes of a cell by a merge, update or way back: none where there is nothing to change.
fn by_history(cell: Cell, way: Way) -> Option<Outcome> {
    let store = MemoryStore::new();
    store.set_property(&DatasetName::root(), "acl", Some("posix")).unwrap();
    let family = Family::of(store, "/", |tree| prepare(cell, tree));
    let (from, into) = match way {
        Way::Merge => (&family.fork, &family.parent),
        Way::Update | Way::Back => (&family.parent, &family.fork),
    };
    let into = if matches!(way, Way::Back) { from } else { into };
    let is_frozen = cell.special == Special::Immutable;
    if is_frozen {
        freeze_in(from, false);
    }
    change(cell, from);
    if is_frozen && from.find("/d/f").is_ok() {
        freeze_in(from, true);
    }
    if matches!(way, Way::Back) {
        family.store.snapshot(&DatasetName::root(), "changed").unwrap();
        // By root, to where it began.
        back_to(&family, &*family.parent.0, "root@fork:fork").unwrap().then_some(())?;
    }
    let user = Person(cell.groups);
    let bound = Bound::new(&*into.0, &user);
    let done = match way {
        Way::Merge => across(&family, &bound, Direction::Merge),
        Way::Update => across(&family, &bound, Direction::Update),
        Way::Back => back_to(&family, &bound, "root@changed"),
    };
    match done {
        Ok(false) => None,
        Ok(true) => {
            let found = into.find(&format!("/{}", made_by(cell.verb))).ok();
            Some(Some(found.map(|it| (it.permissions, it.uid, it.gid)).unwrap_or_default()))
        }
        Err(Error::NotPermitted) => {
            assert!(bound.refusals().count > 0, "{cell:?}: refused without a word");
            Some(None)
        }
        Err(error) => panic!("{cell:?} by {way:?}: {error}"),
    }
}

#[test]
fn what_is_done_for_a_user_is_what_the_user_could_do() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, to become another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    // The thread that becomes a user has this mask too.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let (mut compared, mut differs) = ([0, 0], Vec::new());
    for (number, cell) in cells().into_iter().enumerate() {
        let way = [Way::Merge, Way::Update, Way::Back][number % 3];
        let Some(by_hand) = by_system_calls(cell, folder.path()) else { continue };
        let Some(brought) = by_history(cell, way) else { continue };
        compared[usize::from(by_hand.is_some())] += 1;
        if by_hand != brought {
            differs.push(format!("{cell:?} by {way:?}: {by_hand:?}, but {brought:?}"));
        }
    }
    let first = differs.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(differs.is_empty(), "{} of {compared:?} differ:\n{first}", differs.len());
    assert!(compared.iter().sum::<usize>() >= 2000, "only {compared:?} cells");
    assert!(compared.iter().all(|count| *count >= 500), "one-sided: {compared:?}");
}
