//! Attributes and privileges: what is set, and what is lost on the way.

use crate::{Bench, USER};
use marram_vfs::{
    Allocate, Copying, Error, FileSystem, Ino, Ranges, SetAttributes, SetTime, Timestamp,
    WriteOptions, XattrMode,
};

const CAPABILITY: &[u8] = b"security.capability";

fn set_permissions(bench: &Bench, ino: marram_vfs::Ino, permissions: u32) {
    let set = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
    bench.files.set_attributes(USER, ino, &set).unwrap();
}

#[test]
fn privileges_go_with_a_write_and_a_cut() {
    let bench = Bench::new();
    let ino = bench.file("f");
    for cut in [false, true] {
        set_permissions(&bench, ino, 0o6755);
        bench.files.set_xattr(ino, CAPABILITY, b"cap", XattrMode::Any).unwrap();
        let set = SetAttributes { permissions: Some(0o6755), ..SetAttributes::default() };
        bench.files.set_attributes(USER, ino, &set).unwrap();
        assert_eq!(bench.files.xattr(ino, CAPABILITY).unwrap(), b"cap");
        if cut {
            let set =
                SetAttributes { size: Some(1), clear_privileges: true, ..SetAttributes::default() };
            bench.files.set_attributes(USER, ino, &set).unwrap();
        } else {
            let options = WriteOptions { clear_privileges: true, ..WriteOptions::default() };
            bench.files.write(ino, 0, b"flag", options).unwrap();
        }
        assert_eq!(bench.attributes(ino).permissions, 0o755);
        assert_eq!(bench.files.xattr(ino, CAPABILITY), Err(Error::NoAttribute));
        assert_eq!(bench.files.list_xattrs(ino).unwrap(), Vec::<Vec<u8>>::new());
    }
    set_permissions(&bench, ino, 0o2644);
    let options = WriteOptions { clear_privileges: true, ..WriteOptions::default() };
    bench.files.write(ino, 0, b"flag", options).unwrap();
    assert_eq!(bench.attributes(ino).permissions, 0o2644, "mandatory locking, no privilege");
}

#[test]
fn capabilities_go_with_every_change_of_content_or_owner() {
    let changes: [(&str, Change); 10] = [
        ("write", |bench, ino| bench.write(ino, 0, b"x")),
        ("cut", |bench, ino| bench.set_size(ino, 1)),
        ("the same size", |bench, ino| bench.set_size(ino, 7)),
        ("owner", |bench, ino| {
            set(bench, ino, SetAttributes { uid: Some(5), ..SetAttributes::default() })
        }),
        ("group", |bench, ino| {
            set(bench, ino, SetAttributes { gid: Some(1000), ..SetAttributes::default() })
        }),
        ("reserve", |bench, ino| allocate(bench, ino, Allocate::ReserveKeepSize)),
        ("zero", |bench, ino| allocate(bench, ino, Allocate::Zero)),
        ("punch", |bench, ino| allocate(bench, ino, Allocate::PunchHole)),
        ("copy", |bench, ino| {
            let source = bench.file("source");
            bench.write(source, 0, b"copied");
            bench.files.copy_range(source, 0, ino, 0, 6).unwrap();
        }),
        ("none", |bench, ino| {
            set(bench, ino, SetAttributes { permissions: Some(0o700), ..SetAttributes::default() })
        }),
    ];
    for (what, change) in changes {
        let bench = Bench::new();
        let ino = bench.file("f");
        bench.write(ino, 0, b"program");
        bench.files.set_xattr(ino, CAPABILITY, b"cap", XattrMode::Any).unwrap();
        change(&bench, ino);
        let kept = bench.files.xattr(ino, CAPABILITY).is_ok();
        assert_eq!(kept, what == "none", "{what}");
        assert_eq!(bench.files.list_xattrs(ino).unwrap().len(), usize::from(kept), "{what}");
    }
}

type Change = fn(&Bench, Ino);

fn set(bench: &Bench, ino: Ino, set: SetAttributes) {
    bench.files.set_attributes(USER, ino, &set).unwrap();
}

fn allocate(bench: &Bench, ino: Ino, how: Allocate) {
    bench.files.allocate(ino, how, 0, 100).unwrap();
}

#[test]
fn times_move_as_told() {
    let bench = Bench::new();
    let ino = bench.file("f");
    let at = Timestamp { seconds: -5, nanoseconds: 7 };
    let set = SetAttributes {
        accessed: Some(SetTime::At(at)),
        modified: Some(SetTime::Now),
        changed: Some(Timestamp { seconds: 1 << 40, nanoseconds: 1 }),
        ..SetAttributes::default()
    };
    let told = bench.files.set_attributes(USER, ino, &set).unwrap();
    assert_eq!((told.accessed, told.changed.seconds), (at, 1 << 40));
    assert!(told.modified > told.created);
    let options = WriteOptions { keep_times: true, ..WriteOptions::default() };
    bench.files.write(ino, 0, b"cached", options).unwrap();
    let after = bench.attributes(ino);
    assert_eq!((after.modified, after.changed, after.size), (told.modified, told.changed, 6));
    bench.files.allocate(ino, Allocate::PunchHole, 0, 1).unwrap();
    assert!(bench.attributes(ino).modified > told.modified);
}

#[test]
fn extended_attributes_of_all_sizes_are_kept() {
    let mut bench = Bench::new();
    let ino = bench.file("f");
    for len in [0, 1, 3072, 3073, 65_536] {
        let name = format!("user.{len}");
        let value = crate::pattern(len as u8, len);
        bench.files.set_xattr(ino, name.as_bytes(), &value, XattrMode::Create).unwrap();
        bench.store.commit_some(len as u64);
        assert_eq!(bench.files.xattr(ino, name.as_bytes()).unwrap(), value);
    }
    bench.files.set_xattr(ino, b"user.65536", b"short now", XattrMode::Replace).unwrap();
    bench.crash();
    assert_eq!(bench.files.xattr(ino, b"user.65536").unwrap(), b"short now");
    assert_eq!(bench.files.list_xattrs(ino).unwrap().len(), 5);
    bench.files.remove_xattr(ino, b"user.1").unwrap();
    assert_eq!(bench.files.remove_xattr(ino, b"user.1"), Err(Error::NoAttribute));
    let set = |name: &[u8], value: &[u8]| bench.files.set_xattr(ino, name, value, XattrMode::Any);
    assert_eq!(set(b"user.big", &[0; 65_537]), Err(Error::ValueTooLarge));
    assert_eq!(set(b"system.posix_acl_access", b"x"), Err(Error::NotSupported));
    assert!(matches!(set(b"user.", b"x"), Err(Error::InvalidArgument(_))));
    let create = bench.files.set_xattr(ino, b"user.0", b"", XattrMode::Create);
    assert_eq!(create, Err(Error::Exists));
    let replace = bench.files.set_xattr(ino, b"user.none", b"", XattrMode::Replace);
    assert_eq!(replace, Err(Error::NoAttribute));
}
