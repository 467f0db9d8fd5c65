//! Extended attributes and access lists, judged by `e2fsck` and `debugfs`.

use crate::images::{SMALL, Shape, make, name, open_bytes, program};
use crate::judge::Judge;
use marram_device::{Device, MemoryDevice};
use marram_ext2::{Ext2, Ext2Options};
use marram_vfs::{
    Caller, Error, FileSystem, Ino, Kind, NewNode, SetAttributes, StoredAccessLists, WriteOptions,
    XattrMode,
};
use std::process::Command;
use std::sync::Arc;

const USER: Caller = Caller { uid: 7, gid: 8 };
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o666, device: 0 };
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

fn opened(shape: Shape) -> (Ext2, Arc<MemoryDevice>) {
    let device = Arc::new(MemoryDevice::from_bytes(make(shape)));
    let files = Ext2::open(Arc::clone(&device) as Arc<dyn Device>, Ext2Options::default());
    (files.unwrap(), device)
}

/// Has `debugfs` do something to an image; what it says, and the image then.
fn debugfs(image: &[u8], request: &str) -> (String, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, image).unwrap();
    let run = Command::new(program("debugfs")).args(["-w", "-R", request]).arg(&path).output();
    let said = String::from_utf8_lossy(&run.unwrap().stdout).into_owned();
    (said, std::fs::read(path).unwrap())
}

/// A list as the kernel hands it over: tags, rights and numbers.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, number) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

const NONE: u32 = u32::MAX;

#[test]
fn attributes_are_those_that_e2fsprogs_reads_and_writes() {
    for inode_bytes in [128, 256, 512] {
        let (files, device) = opened(Shape { inode_bytes, ..SMALL });
        let file = files.create(USER, Ino::ROOT, name("file"), FILE).unwrap().ino;
        let any = XattrMode::Any;
        files.set_xattr(file, b"user.small", b"a value", any).unwrap();
        files.set_xattr(file, b"user.large", &[b'x'; 500], any).unwrap();
        files.set_xattr(file, b"trusted.empty", b"", any).unwrap();
        files.set_xattr(file, b"security.selinux", b"label", any).unwrap();
        assert_eq!(files.set_xattr(file, b"user.more", &[1; 2000], any), Err(Error::NoSpace));
        assert_eq!(files.set_xattr(file, b"other.name", b"", any), Err(Error::NotSupported));
        files.close().unwrap();
        Judge::new().clean(&device.snapshot()).unwrap();
        let (said, _) = debugfs(&device.snapshot(), "ea_get -V file user.small");
        assert_eq!(said, "a value\n", "{inode_bytes}");
        let (said, image) = debugfs(&device.snapshot(), "ea_set file user.theirs else");
        assert!(said.is_empty(), "{said}");
        let files = open_bytes(image).unwrap();
        assert_eq!(files.xattr(file, b"user.theirs").unwrap(), b"else");
        assert_eq!(files.xattr(file, b"user.large").unwrap(), [b'x'; 500]);
        let mut names = files.list_xattrs(file).unwrap();
        names.sort();
        let known = ["security.selinux", "trusted.empty", "user.large", "user.small"];
        assert_eq!(names[..4], known.map(|name| name.as_bytes().to_vec()));
        assert_eq!(names.len(), 5);
    }
}

#[test]
fn a_block_of_attributes_is_freed_with_its_last_attribute_and_its_inode() {
    let (files, device) = opened(SMALL);
    let free = files.space().unwrap().free_bytes;
    let file = files.create(USER, Ino::ROOT, name("file"), FILE).unwrap().ino;
    for len in [600, 700, 20] {
        files.set_xattr(file, b"user.tag", &vec![1; len], XattrMode::Any).unwrap();
        let blocks = files.attributes(file).unwrap().blocks_512;
        assert_eq!(blocks, if len > 100 { 2 } else { 0 });
    }
    files.set_xattr(file, b"user.tag", &[1; 600], XattrMode::Any).unwrap();
    files.unlink(Ino::ROOT, name("file")).unwrap();
    files.forget(file, 1);
    files.close().unwrap();
    Judge::new().clean(&device.snapshot()).unwrap();
    assert_eq!(open_bytes(device.snapshot()).unwrap().space().unwrap().free_bytes, free);
}

#[test]
fn a_write_takes_capabilities_away() {
    let (files, _) = opened(SMALL);
    let file = files.create(USER, Ino::ROOT, name("file"), FILE).unwrap().ino;
    files.set_xattr(file, b"security.capability", &[1; 20], XattrMode::Any).unwrap();
    files.write(file, 0, b"other", WriteOptions::default()).unwrap();
    assert_eq!(files.xattr(file, b"security.capability"), Err(Error::NoAttribute));
}

#[test]
fn lists_change_with_modes_and_are_inherited() {
    let (files, device) = opened(SMALL);
    let directory = NewNode::Directory { permissions: 0o777 };
    let above = files.create(USER, Ino::ROOT, name("d"), directory).unwrap().ino;
    let given = list(&[(1, 7, NONE), (2, 6, 1000), (4, 5, NONE), (16, 7, NONE), (32, 0, NONE)]);
    files.set_access_list(above, DEFAULT, &given, false).unwrap();
    assert_eq!(files.xattr(above, DEFAULT).unwrap(), given);
    let file = files.create_masked(USER, above, name("file"), FILE, 0o077).unwrap();
    assert_eq!(file.permissions, 0o660, "the umask does not count");
    let own = list(&[(1, 6, NONE), (2, 6, 1000), (4, 5, NONE), (16, 6, NONE), (32, 0, NONE)]);
    assert_eq!(files.xattr(file.ino, ACCESS).unwrap(), own);
    let below = files.create_masked(USER, above, name("below"), directory, 0).unwrap().ino;
    assert_eq!(files.xattr(below, DEFAULT).unwrap(), given);
    let set = SetAttributes { permissions: Some(0o640), ..SetAttributes::default() };
    files.set_attributes(USER, file.ino, &set).unwrap();
    let less = list(&[(1, 6, NONE), (2, 6, 1000), (4, 5, NONE), (16, 4, NONE), (32, 0, NONE)]);
    assert_eq!(files.xattr(file.ino, ACCESS).unwrap(), less);
    let plain = list(&[(1, 6, NONE), (4, 4, NONE), (32, 4, NONE)]);
    files.set_access_list(file.ino, ACCESS, &plain, false).unwrap();
    assert_eq!(files.attributes(file.ino).unwrap().permissions, 0o644);
    assert_eq!(files.xattr(file.ino, ACCESS), Err(Error::NoAttribute), "the mode says it all");
    assert_eq!(files.set_access_list(file.ino, DEFAULT, &given, false), Err(Error::AccessDenied));
    let bad = list(&[(1, 6, NONE), (2, 6, 1000), (4, 4, NONE), (32, 4, NONE)]);
    assert!(files.set_access_list(above, ACCESS, &bad, false).is_err(), "there is no mask");
    let masked = files.create_masked(USER, Ino::ROOT, name("m"), FILE, 0o027).unwrap();
    assert_eq!(masked.permissions, 0o640, "there is no list");
    files.set_access_list(above, ACCESS, &given, false).unwrap();
    files.close().unwrap();
    Judge::new().clean(&device.snapshot()).unwrap();
    let (said, _) = debugfs(&device.snapshot(), "ea_list d");
    let stored = "system.posix_acl_access (28) = 01 00 00 00 01 00 07 00 02 00 06 00 e8 03 00 00";
    assert!(said.contains(stored), "{said}");
}
