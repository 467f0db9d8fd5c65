//! Names, and the inodes behind them.

use crate::fixture::{drop_caches, mounted, shell_ok};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

#[test]
fn names_move_replace_and_change_places() {
    let Some(mounted) = mounted() else { return };
    let (a, b) = (mounted.path("a"), mounted.path("b"));
    fs::write(&a, b"a").unwrap();
    fs::write(&b, b"b").unwrap();
    let rename = |flags| renameat_with(CWD, &a, CWD, &b, flags);
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read(&a).unwrap(), fs::read(&b).unwrap()), (b"b".into(), b"a".into()));
    rename(RenameFlags::WHITEOUT).unwrap();
    assert_eq!(fs::read(&b).unwrap(), b"b");
    let whiteout = fs::symlink_metadata(&a).unwrap();
    assert!(whiteout.file_type().is_char_device());
    assert_eq!(whiteout.rdev(), 0);
    let careful = RenameFlags::WHITEOUT | RenameFlags::NOREPLACE;
    assert_eq!(rename(careful), Err(Errno::EXIST));
    fs::rename(&b, mounted.path("aside")).unwrap();
    fs::rename(mounted.path("aside"), &a).unwrap();
    rename(careful).unwrap();
    assert_eq!(fs::read(&b).unwrap(), b"b");
    assert!(fs::symlink_metadata(&a).unwrap().file_type().is_char_device());
    fs::create_dir(mounted.path("d")).unwrap();
    fs::rename(&b, mounted.path("d/c")).unwrap();
    assert_eq!(fs::read(mounted.path("d/c")).unwrap(), b"b");
    assert!(!b.exists());
    let inside = fs::rename(mounted.path("d"), mounted.path("d/e")).unwrap_err();
    assert_eq!(inside.raw_os_error(), Some(Errno::INVAL.raw_os_error()));
    mounted.end();
}

#[test]
fn hard_links_are_one_inode() {
    let Some(mounted) = mounted() else { return };
    fs::write(mounted.path("a"), b"1").unwrap();
    fs::hard_link(mounted.path("a"), mounted.path("b")).unwrap();
    let (a, b) =
        (fs::metadata(mounted.path("a")).unwrap(), fs::metadata(mounted.path("b")).unwrap());
    assert_eq!((a.ino(), a.nlink()), (b.ino(), 2));
    fs::write(mounted.path("b"), b"22").unwrap();
    assert_eq!(fs::read(mounted.path("a")).unwrap(), b"22");
    fs::remove_file(mounted.path("a")).unwrap();
    assert_eq!(fs::metadata(mounted.path("b")).unwrap().nlink(), 1);
    mounted.end();
}

#[test]
fn special_inodes_keep_what_they_are() {
    let Some(mounted) = mounted() else { return };
    let device = rustix::fs::makedev(300, 70_000);
    let kinds = [(FileType::Fifo, 0), (FileType::CharacterDevice, device), (FileType::Socket, 0)];
    for (at, (kind, device)) in kinds.into_iter().enumerate() {
        mknodat(CWD, mounted.path(&at.to_string()), kind, Mode::from(0o600), device).unwrap();
    }
    symlink("some/where", mounted.path("link")).unwrap();
    drop_caches();
    assert!(fs::metadata(mounted.path("0")).unwrap().file_type().is_fifo());
    assert_eq!(fs::metadata(mounted.path("1")).unwrap().rdev(), device);
    assert!(fs::metadata(mounted.path("2")).unwrap().file_type().is_socket());
    assert_eq!(fs::read_link(mounted.path("link")).unwrap().to_str(), Some("some/where"));
    mounted.end();
}

#[test]
fn errors_are_those_of_posix() {
    let Some(mounted) = mounted() else { return };
    let code = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    let is = |errno: Errno| Some(errno.raw_os_error());
    fs::create_dir_all(mounted.path("d/e")).unwrap();
    fs::write(mounted.path("f"), b"").unwrap();
    assert_eq!(code(fs::remove_dir(mounted.path("d"))), is(Errno::NOTEMPTY));
    assert_eq!(code(fs::create_dir(mounted.path("d"))), is(Errno::EXIST));
    assert_eq!(code(fs::create_dir(mounted.path("f/x"))), is(Errno::NOTDIR));
    assert_eq!(code(fs::remove_dir(mounted.path("f"))), is(Errno::NOTDIR));
    assert_eq!(code(fs::remove_file(mounted.path("d"))), is(Errno::ISDIR));
    assert_eq!(code(fs::remove_file(mounted.path("none"))), is(Errno::NOENT));
    assert_eq!(code(fs::create_dir(mounted.path(&"x".repeat(256)))), is(Errno::NAMETOOLONG));
    fs::create_dir(mounted.path(&"x".repeat(255))).unwrap();
    mounted.end();
}

#[test]
fn what_was_missing_is_seen_once_it_is_there() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    for _ in 0..3 {
        assert!(!path.exists());
        fs::write(&path, b"x").unwrap();
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
    }
    fs::create_dir(&path).unwrap();
    assert!(path.is_dir());
    mounted.end();
}

#[test]
fn file_handles_find_their_inode_after_the_kernel_has_forgotten_it() {
    let Some(mounted) = mounted() else { return };
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/f"), b"found").unwrap();
    let script = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_char * 128)]
def handle(path):
    taken, mount = Handle(128), ctypes.c_int()
    assert libc.name_to_handle_at(-100, path, ctypes.byref(taken), ctypes.byref(mount), 0) == 0
    return taken
handles = [handle(b"d/f"), handle(b"d")]
def drop_caches():
    try:
        open("/proc/sys/vm/drop_caches", "w").write("3")
    except OSError:
        pass
drop_caches()
root = os.open(".", os.O_RDONLY)
for taken in handles:
    fd = libc.open_by_handle_at(root, ctypes.byref(taken), os.O_RDONLY)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    print(os.readlink("/proc/self/fd/%d" % fd))
    os.close(fd)
os.remove("d/f")
drop_caches()
fd = libc.open_by_handle_at(root, ctypes.byref(handles[0]), os.O_RDONLY)
print(fd, "stale" if ctypes.get_errno() == 116 else ctypes.get_errno())
"#;
    let output = shell_ok(&mounted.root(), 0, &format!("python3 - <<'END'\n{script}\nEND"));
    assert!(output.contains("/d\n"), "{output}");
    assert!(output.ends_with("-1 stale\n") || output.ends_with("116\n"), "{output}");
    mounted.end();
}

#[test]
fn handles_that_were_made_up_lead_nowhere_or_to_a_file_of_the_mount() {
    let Some(mounted) = mounted() else { return };
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/f"), b"found").unwrap();
    let script = r#"
import ctypes, os, random
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
good, mount = Handle(128), ctypes.c_int()
assert libc.name_to_handle_at(-100, b"d/f", ctypes.byref(good), ctypes.byref(mount), 0) == 0
root = os.open(".", os.O_RDONLY)
def opened(handle):
    return libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY | os.O_NONBLOCK)
known = {os.stat(path).st_ino for path in (".", "d", "d/f")}
chance, refusals = random.Random(7), set()
for number in range(3000):
    bad = Handle.from_buffer_copy(good)
    if number % 3 == 0:
        bad.data[chance.randrange(good.bytes)] ^= 1 << chance.randrange(8)
    else:
        bad.bytes = chance.choice((0, 4, good.bytes, 24, 128))
        bad.type = chance.choice((good.type, 1, 2, 0x82, chance.randrange(256)))
        for at in range(bad.bytes):
            bad.data[at] = chance.choice((0, 1, 0xFF, chance.randrange(256)))
    file = opened(bad)
    if file < 0:
        refusals.add(ctypes.get_errno())
        continue
    assert os.fstat(file).st_ino in known
    os.close(file)
assert refusals and refusals <= {22, 116}, refusals
file = opened(good)
print(os.read(file, 10).decode())
"#;
    let output = shell_ok(&mounted.root(), 0, &format!("python3 - <<'END'\n{script}\nEND"));
    assert_eq!(output, "found\n");
    mounted.end();
}
