//! POSIX access control lists: kept in step with modes, inherited, hidden where not obeyed.

use crate::{Bench, USER, name};
use marram_vfs::{
    AccessRules, Error, FileSystem, Ino, Kind, NewNode, SetAttributes, StoredAccessLists, XattrMode,
};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const NOBODY: u32 = u32::MAX;

/// Owner, a named user, owning group, mask, others.
fn list(owner: u16, user: u16, group: u16, mask: u16, others: u16) -> Vec<u8> {
    encode(&[
        (1, owner, NOBODY),
        (2, user, 1234),
        (4, group, NOBODY),
        (0x10, mask, NOBODY),
        (0x20, others, NOBODY),
    ])
}

fn encode(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

fn bench() -> Bench {
    Bench::with_property("acl", "posix")
}

fn make(bench: &Bench, parent: Ino, text: &str, permissions: u32, umask: u32) -> Ino {
    let node = NewNode::Node { kind: Kind::Regular, permissions, device: 0 };
    bench.files.create_masked(USER, parent, name(text), node, umask).unwrap().ino
}

fn chmod(bench: &Bench, ino: Ino, permissions: u32) {
    let set = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
    bench.files.set_attributes(USER, ino, &set).unwrap();
}

fn set(bench: &Bench, ino: Ino, name: &[u8], value: &[u8]) -> marram_vfs::Result<()> {
    bench.files.set_access_list(ino, name, value, false)
}

fn mode(bench: &Bench, ino: Ino) -> u32 {
    bench.attributes(ino).permissions
}

#[test]
fn mode_and_list_say_the_same() {
    let mut bench = bench();
    assert!(matches!(bench.files.access_rules(), AccessRules::PosixLists));
    let ino = bench.file("f");
    set(&bench, ino, ACCESS, &list(6, 7, 4, 5, 1)).unwrap();
    assert_eq!(mode(&bench, ino), 0o651);
    chmod(&bench, ino, 0o4740);
    assert_eq!(bench.files.xattr(ino, ACCESS).unwrap(), list(7, 7, 4, 4, 0));
    assert_eq!(mode(&bench, ino), 0o4740);
    bench.crash();
    assert_eq!(bench.files.xattr(ino, ACCESS).unwrap(), list(7, 7, 4, 4, 0));
    assert_eq!(bench.files.list_xattrs(ino).unwrap(), [ACCESS.to_vec()]);
    bench.files.remove_xattr(ino, ACCESS).unwrap();
    bench.files.remove_xattr(ino, ACCESS).expect("as on ext4, fine if it is gone");
    assert_eq!(bench.files.xattr(ino, ACCESS), Err(Error::NoAttribute));
    assert_eq!(mode(&bench, ino), 0o4740);
}

#[test]
fn a_list_that_says_no_more_than_the_mode_is_not_kept() {
    let bench = bench();
    let ino = bench.file("f");
    set(&bench, ino, ACCESS, &list(6, 7, 4, 5, 1)).unwrap();
    chmod(&bench, ino, 0o2775);
    let minimal = encode(&[(1, 7, NOBODY), (4, 5, NOBODY), (0x20, 0, NOBODY)]);
    bench.files.set_access_list(ino, ACCESS, &minimal, true).unwrap();
    assert_eq!(mode(&bench, ino), 0o750, "setgid went with it");
    assert_eq!(bench.files.xattr(ino, ACCESS), Err(Error::NoAttribute));
    assert_eq!(bench.keys(ino.0).len(), 1, "only the inode is left");
}

#[test]
fn what_is_made_has_what_directory_and_maker_both_allow() {
    let bench = bench();
    let directory = bench.directory(Ino::ROOT, "d");
    let given = list(7, 6, 5, 7, 5);
    set(&bench, directory, DEFAULT, &given).unwrap();
    assert_eq!(mode(&bench, directory), 0o755, "the directory's own is another list");
    let file = make(&bench, directory, "f", 0o664, 0o077);
    assert_eq!(mode(&bench, file), 0o664, "the umask does not count");
    assert_eq!(bench.files.xattr(file, ACCESS).unwrap(), list(6, 6, 5, 6, 4));
    assert_eq!(bench.files.xattr(file, DEFAULT), Err(Error::NoAttribute));
    let node = NewNode::Directory { permissions: 0o700 };
    let below = bench.files.create_masked(USER, directory, name("sub"), node, 0o777).unwrap();
    assert_eq!(below.permissions, 0o700);
    assert_eq!(bench.files.xattr(below.ino, ACCESS).unwrap(), list(7, 6, 5, 0, 0));
    assert_eq!(bench.files.xattr(below.ino, DEFAULT).unwrap(), given);
    let nameless = bench.files.create_anonymous_masked(USER, directory, 0o600, 0o777).unwrap();
    assert_eq!(nameless.permissions, 0o600);
    assert_eq!(bench.files.xattr(nameless.ino, ACCESS).unwrap(), list(6, 6, 5, 0, 0));
    let link = NewNode::Symlink { target: b"f" };
    let link = bench.files.create_masked(USER, directory, name("l"), link, 0o777).unwrap();
    assert_eq!(link.permissions, 0o777);
    assert!(bench.files.list_xattrs(link.ino).unwrap().is_empty());
}

#[test]
fn a_default_list_that_names_nobody_gives_a_mode_only() {
    let bench = bench();
    let directory = bench.directory(Ino::ROOT, "d");
    let given = encode(&[(1, 7, NOBODY), (4, 5, NOBODY), (0x20, 0, NOBODY)]);
    set(&bench, directory, DEFAULT, &given).unwrap();
    let file = make(&bench, directory, "f", 0o666, 0o777);
    assert_eq!(mode(&bench, file), 0o640);
    assert!(bench.files.list_xattrs(file).unwrap().is_empty());
}

#[test]
fn without_a_default_list_the_umask_counts() {
    let bench = bench();
    let file = make(&bench, Ino::ROOT, "f", 0o4666, 0o027);
    assert_eq!(mode(&bench, file), 0o4640);
    let nameless = bench.files.create_anonymous_masked(USER, Ino::ROOT, 0o666, 0o077).unwrap();
    assert_eq!(nameless.permissions, 0o600);
}

#[test]
fn what_is_no_list_or_cannot_have_one_is_refused() {
    let bench = bench();
    let file = bench.file("f");
    let invalid = Err(Error::InvalidArgument("access control list"));
    let group_first = encode(&[(4, 7, NOBODY), (1, 7, NOBODY), (0x20, 0, NOBODY)]);
    for bad in [&b""[..], b"\x02\0\0\0", b"\x01\0\0\0", b"garbage of some length", &group_first] {
        assert_eq!(set(&bench, file, ACCESS, bad), invalid);
    }
    let good = list(6, 7, 4, 5, 1);
    assert_eq!(set(&bench, file, DEFAULT, &good), Err(Error::AccessDenied));
    assert_eq!(set(&bench, file, b"user.a", &good), Err(Error::NotSupported));
    let link = NewNode::Symlink { target: b"f" };
    let link = bench.files.create(USER, Ino::ROOT, name("l"), link).unwrap().ino;
    assert_eq!(set(&bench, link, ACCESS, &good), Err(Error::NotSupported));
    let create = |ino| bench.files.set_xattr(ino, ACCESS, &good, XattrMode::Create);
    assert_eq!((create(file), create(file)), (Ok(()), Err(Error::Exists)));
    let other = bench.file("g");
    let replace = bench.files.set_xattr(other, ACCESS, &good, XattrMode::Replace);
    assert_eq!(replace, Err(Error::NoAttribute));
    assert_eq!(mode(&bench, other), 0o644, "nothing was changed");
}

#[test]
fn a_list_that_is_not_obeyed_is_hidden_and_goes_with_the_mode() {
    let mut bench = bench();
    let (kept, changed) = (bench.file("kept"), bench.file("changed"));
    for ino in [kept, changed] {
        set(&bench, ino, ACCESS, &list(6, 7, 4, 5, 1)).unwrap();
    }
    bench.set_property("acl", "off");
    bench.crash();
    assert!(matches!(bench.files.access_rules(), AccessRules::ModeBits));
    assert_eq!(bench.files.xattr(kept, ACCESS), Err(Error::NotSupported));
    assert_eq!(bench.files.remove_xattr(kept, ACCESS), Err(Error::NotSupported));
    assert!(bench.files.list_xattrs(kept).unwrap().is_empty());
    assert_eq!(set(&bench, kept, ACCESS, &list(6, 7, 4, 5, 1)), Err(Error::NotSupported));
    chmod(&bench, changed, 0o600);
    bench.set_property("acl", "posix");
    bench.crash();
    assert_eq!(bench.files.xattr(kept, ACCESS).unwrap(), list(6, 7, 4, 5, 1));
    assert_eq!(bench.files.xattr(changed, ACCESS), Err(Error::NoAttribute));
}

#[test]
fn a_long_list_is_kept_too() {
    let mut bench = bench();
    let directory = bench.directory(Ino::ROOT, "d");
    let users = (1..500).map(|id| (2, 4, id));
    let entries: Vec<(u16, u16, u32)> = [(1, 7, NOBODY)]
        .into_iter()
        .chain(users)
        .chain([(4, 5, NOBODY), (0x10, 4, NOBODY), (0x20, 0, NOBODY)])
        .collect();
    set(&bench, directory, DEFAULT, &encode(&entries)).unwrap();
    let below = bench.directory(directory, "below");
    bench.store.commit_some(3);
    bench.crash();
    assert_eq!(bench.files.xattr(below, DEFAULT).unwrap(), encode(&entries));
    assert_eq!(bench.files.xattr(below, ACCESS).unwrap().len(), encode(&entries).len());
}
