//! Attributes, extended attributes, space.

use crate::fixture::{Mounted, USER, can_mount, drop_caches, mounted, shell, shell_ok};
use crate::proxy::Proxy;
use rustix::fs::{
    AtFlags, CWD, IFlags, StatxFlags, Timespec, Timestamps, XattrFlags, getxattr, getxattr_query,
    ioctl_setflags, listxattr, removexattr, setxattr, statvfs, statx, utimensat,
};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::time::{Duration, SystemTime};

#[test]
fn birth_is_told() {
    let Some(mounted) = mounted() else { return };
    fs::write(mounted.path("f"), b"x").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    fs::write(mounted.path("f"), b"y").unwrap();
    let flags = StatxFlags::BTIME | StatxFlags::BASIC_STATS;
    let told = statx(CWD, mounted.path("f"), AtFlags::empty(), flags).unwrap();
    assert_ne!(told.stx_mask & StatxFlags::BTIME.bits(), 0);
    let metadata = fs::metadata(mounted.path("f")).unwrap();
    assert!(metadata.created().unwrap() < metadata.modified().unwrap());
    let age = SystemTime::now().duration_since(metadata.created().unwrap()).unwrap();
    assert!(age < Duration::from_secs(60));
    mounted.end();
}

#[test]
fn owners_modes_and_times_are_kept() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("f");
    fs::write(&path, b"x").unwrap();
    chown(&path, Some(12), Some(34)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o7421)).unwrap();
    let times = Timestamps {
        last_access: Timespec { tv_sec: -1, tv_nsec: 1 },
        last_modification: Timespec { tv_sec: 1 << 33, tv_nsec: 999_999_999 },
    };
    utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    drop_caches();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode()), (12, 34, 0o107_421));
    assert_eq!((metadata.atime(), metadata.atime_nsec()), (-1, 1));
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1 << 33, 999_999_999));
    mounted.end();
}

#[test]
fn new_inodes_belong_to_their_maker_and_honour_the_umask() {
    let Some(mounted) = mounted() else { return };
    fs::set_permissions(mounted.root(), fs::Permissions::from_mode(0o777)).unwrap();
    shell_ok(&mounted.root(), USER, "umask 027; touch f; mkdir d; ln -s x l; mkfifo p");
    for (name, mode) in [("f", 0o640), ("d", 0o750), ("l", 0o777), ("p", 0o640)] {
        let metadata = fs::symlink_metadata(mounted.path(name)).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (USER, USER), "{name}");
        assert_eq!(metadata.mode() & 0o7777, mode, "{name}");
    }
    fs::set_permissions(mounted.root(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(!shell(&mounted.root(), USER, "touch denied").status.success());
    mounted.end();
}

#[test]
fn extended_attributes_follow_the_rules_of_the_kernel() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("f");
    fs::write(&path, b"x").unwrap();
    let set = |name: &str, value: &[u8], flags| setxattr(&path, name, value, flags);
    set("user.a", b"value", XattrFlags::CREATE).unwrap();
    set("user.empty", b"", XattrFlags::empty()).unwrap();
    set("trusted.t", b"1", XattrFlags::empty()).unwrap();
    assert_eq!(set("user.a", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.b", b"2", XattrFlags::REPLACE), Err(Errno::NODATA));
    let mut buffer = [0; 64];
    assert_eq!(getxattr(&path, "user.a", &mut buffer), Ok(5));
    assert_eq!(getxattr_query(&path, "user.a"), Ok(5));
    assert_eq!(getxattr(&path, "user.a", &mut [0_u8; 4]), Err(Errno::RANGE));
    assert_eq!(getxattr(&path, "user.empty", &mut buffer), Ok(0));
    assert_eq!(getxattr(&path, "user.none", &mut buffer), Err(Errno::NODATA));
    let len = listxattr(&path, &mut buffer).unwrap();
    let mut names: Vec<_> = buffer[..len].split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    names.sort();
    assert_eq!(names, [&b""[..], b"trusted.t", b"user.a", b"user.empty"]);
    let seen = shell_ok(&mounted.root(), USER, "getfattr -m - f");
    assert!(seen.contains("user.a") && !seen.contains("trusted"), "{seen}");
    removexattr(&path, "user.a").unwrap();
    assert_eq!(removexattr(&path, "user.a"), Err(Errno::NODATA));
    let large = vec![1; 65_536];
    set("user.large", &large, XattrFlags::empty()).unwrap();
    drop_caches();
    let mut back = vec![0; 65_536];
    assert_eq!(getxattr(&path, "user.large", &mut back[..]), Ok(65_536));
    assert!(back == large);
    mounted.end();
}

#[test]
fn access_lists_are_refused_rather_than_stored_and_ignored() {
    let Some(mounted) = mounted() else { return };
    fs::write(mounted.path("f"), b"x").unwrap();
    // Version 2; entries of tag, permissions and id for owner, group and others.
    let mut acl = vec![2, 0, 0, 0];
    for (tag, permissions) in [(1, 6), (4, 4), (32, 4)] {
        acl.extend([tag, 0, permissions, 0, 0xff, 0xff, 0xff, 0xff]);
    }
    let stored = setxattr(mounted.path("f"), "system.posix_acl_access", &acl, XattrFlags::empty());
    assert_eq!(stored, Err(Errno::OPNOTSUPP));
    mounted.end();
}

#[test]
fn space_is_reported_in_pages() {
    let Some(mounted) = mounted() else { return };
    let space = statvfs(mounted.root()).unwrap();
    assert_eq!((space.f_frsize, space.f_namemax), (4096, 255));
    assert!(space.f_bavail > 0 && space.f_bavail <= space.f_blocks);
    mounted.end();
}

#[test]
fn who_has_set_flags_sees_at_once_that_the_times_have_moved() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with(Proxy::new(), |_| ());
    let file = fs::File::create(mounted.path("f")).unwrap();
    let changed = || file.metadata().map(|told| (told.ctime(), told.ctime_nsec())).unwrap();
    let mut before = changed();
    for round in 0..1000 {
        ioctl_setflags(&file, IFlags::empty()).unwrap();
        let after = changed();
        assert!(after > before, "round {round}");
        before = after;
    }
    drop(file);
    mounted.end();
}
