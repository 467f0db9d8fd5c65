//! Ranges of files that move, and ranges that are shared: by our own calls, under the kernel's
//! cache.

use crate::fixture::{Mounted, USER, can_mount, model, mounted, shell_ok};
use crate::proxy::Proxy;
use marram_fuse::{FileCallError, change_range, extents, share_range};
use marram_vfs::{Allocate, FileSystem, Ino, Name};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 3 + at / 251) as u8).collect()
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn refusal(outcome: Result<(), FileCallError>) -> i32 {
    match outcome {
        Err(FileCallError::Refused(error)) => error.raw_os_error().unwrap_or(0),
        other => panic!("not refused: {other:?}"),
    }
}

/// What the file is through a new descriptor, an old one, and by its size.
fn check(path: &Path, old: &File, expected: &[u8]) {
    assert_eq!(fs::metadata(path).unwrap().len(), expected.len() as u64);
    assert!(fs::read(path).unwrap() == expected, "read anew");
    let mut through_old = vec![0; expected.len()];
    old.read_exact_at(&mut through_old, 0).unwrap();
    assert!(through_old == expected, "read through an old descriptor");
    assert_eq!(old.read_at(&mut [0], expected.len() as u64).unwrap(), 0, "nothing after the end");
}

fn ranges_move(mounted: &Mounted) {
    let path = mounted.path("file");
    let mut expected = pattern(300_000);
    fs::write(&path, &expected).unwrap();
    let (file, old) = (open(&path), open(&path));
    check(&path, &old, &expected);
    change_range(&file, Allocate::Collapse, 1001, 100_000).unwrap();
    expected.drain(1001..101_001);
    check(&path, &old, &expected);
    let mut appender = OpenOptions::new().append(true).open(&path).unwrap();
    appender.write_all(b"tail").unwrap();
    expected.extend(b"tail");
    check(&path, &old, &expected);
    change_range(&file, Allocate::Insert, 77, 9000).unwrap();
    expected.splice(77..77, [0; 9000]);
    check(&path, &old, &expected);
    file.write_all_at(b"!", 208_000).unwrap();
    expected[208_000] = b'!';
    change_range(&file, Allocate::Unshare, 0, 1000).unwrap();
    check(&path, &old, &expected);
}

#[test]
fn the_kernel_keeps_nothing_of_a_range_that_moves() {
    let Some(mounted) = mounted() else { return };
    ranges_move(&mounted);
    mounted.end();
}

#[test]
fn ranges_move_where_the_kernel_owns_sizes() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with(model(), |options| options.writeback = true);
    ranges_move(&mounted);
    mounted.end();
}

#[test]
#[allow(unsafe_code, reason = "memory of a mapping is read")]
fn mappings_see_a_range_move() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    let content = pattern(50_000);
    fs::write(&path, &content).unwrap();
    let file = open(&path);
    // SAFETY: the mapping is only used below while it and what it shows of the file exist.
    unsafe {
        let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let map = mmap(std::ptr::null_mut(), 50_000, flags.0, flags.1, &file, 0).unwrap();
        let bytes = map.cast::<u8>();
        bytes.add(20_000).write(200);
        change_range(&file, Allocate::Collapse, 10, 10_000).unwrap();
        assert_eq!(bytes.add(9).read(), content[9]);
        assert_eq!(bytes.add(10).read(), content[10_010]);
        assert_eq!(bytes.add(10_000).read(), 200, "what was stored before has moved");
        munmap(map, 50_000).unwrap();
    }
    drop(file);
    mounted.end();
}

#[test]
fn moving_a_range_takes_an_open_file_to_write_and_a_range_that_makes_sense() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    fs::write(&path, pattern(10_000)).unwrap();
    let reader = File::open(&path).unwrap();
    assert_eq!(refusal(change_range(&reader, Allocate::Collapse, 0, 10)), 9, "EBADF");
    let file = open(&path);
    assert_eq!(refusal(change_range(&file, Allocate::Collapse, 0, 10_000)), 22, "EINVAL");
    assert_eq!(refusal(change_range(&file, Allocate::Insert, 5, 1 << 63)), 27, "EFBIG");
    assert_eq!(refusal(change_range(&file, Allocate::Insert, u64::MAX, 9)), 27, "EFBIG");
    check(&path, &reader, &pattern(10_000));
    let elsewhere = tempfile::tempfile().unwrap();
    let ours = change_range(&elsewhere, Allocate::Collapse, 0, 1);
    assert!(matches!(ours, Err(FileCallError::NotOurs)), "{ours:?}");
    assert!(matches!(extents(&file, 0), Err(FileCallError::NotOurs)), "the model cannot say");
    drop((reader, file));
    mounted.end();
}

#[test]
fn a_program_of_a_user_loses_privileges_of_what_it_moves() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    fs::write(&path, pattern(10_000)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    fs::write(mounted.path("program"), prepared_zeroing()).unwrap();
    shell_ok(&mounted.root(), USER, "python3 program file");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
    assert!(fs::read(&path).unwrap() == pattern(10_000)[4096..]);
    mounted.end();
}

/// Collapses the first 4096 bytes of a file, as a program in any language can.
fn prepared_zeroing() -> &'static str {
    "import ctypes, fcntl, os, struct, sys
file = os.open(sys.argv[1], os.O_RDWR)
answer = fcntl.ioctl(file, 0xc020f501, struct.pack('<IIQQQ', 1, 0, 0, 4096, 0))
length = struct.unpack_from('<Q', answer)[0]
library = ctypes.CDLL(None, use_errno=True)
done = library.fallocate(file, 0x11, ctypes.c_long(0), ctypes.c_long(length))
assert done == 0, os.strerror(ctypes.get_errno())"
}

#[test]
fn ranges_are_shared_or_refused() {
    let Some(mounted) = mounted() else { return };
    let (from, to) = (mounted.path("from"), mounted.path("to"));
    let content = pattern(200_000);
    fs::write(&from, &content).unwrap();
    fs::write(&to, pattern(100)).unwrap();
    let (source, target) = (File::open(&from).unwrap(), open(&to));
    check(&to, &target, &pattern(100));
    share_range(&source, 1000, &target, 50, 150_000).unwrap();
    let expected = [&pattern(100)[..50], &content[1000..151_000]].concat();
    check(&to, &target, &expected);
    assert_eq!(refusal(share_range(&source, 199_999, &target, 0, 2)), 22, "past its end");
    assert_eq!(refusal(share_range(&source, 0, &File::open(&to).unwrap(), 0, 2)), 9, "EBADF");
    check(&to, &target, &expected);
    drop((source, target));
    mounted.end();
}

#[test]
fn what_cannot_be_shared_is_not_copied() {
    if !can_mount() {
        return;
    }
    let proxy = Proxy::new();
    let mounted = Mounted::with(proxy.clone(), |_| ());
    fs::write(mounted.path("from"), pattern(10_000)).unwrap();
    fs::write(mounted.path("to"), b"old").unwrap();
    let (source, target) = (open(&mounted.path("from")), open(&mounted.path("to")));
    assert_eq!(refusal(share_range(&source, 0, &target, 0, 10_000)), 22, "it cannot share");
    assert_eq!(fs::read(mounted.path("to")).unwrap(), b"old");
    let found = proxy.lookup(Ino::ROOT, Name::new(b"to").unwrap()).unwrap();
    assert_eq!(found.size, 3);
    let elsewhere = tempfile::tempfile().unwrap();
    let apart = share_range(&elsewhere, 0, &target, 0, 1);
    assert!(matches!(apart, Err(FileCallError::Apart)), "{apart:?}");
    proxy.forget(found.ino, 1);
    drop((source, target));
    mounted.end();
}

#[test]
fn hostile_control_calls_change_nothing() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    fs::write(&path, pattern(10_000)).unwrap();
    let program = "import ctypes, errno, fcntl, os, struct, sys
file = os.open(sys.argv[1], os.O_RDWR)
told = {}
def call(number, argument):
    try: fcntl.ioctl(file, number, argument); return 0
    except OSError as error: return error.errno
words = [0, 1, 5, 6, 2**31, 2**32 - 1]
numbers = [0, 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
for word in words:
    for first in numbers:
        for second in numbers:
            for last in (0, 1):
                code = call(0xc020f501, struct.pack('<IIQQQ', word, 0, first, second, last))
                assert code in (0, errno.EINVAL, errno.EFBIG), (word, first, second, code)
for low in range(256):
    assert call(0xc020f500 | low, bytes(32)) in (errno.EINVAL, errno.ENOTTY), low
library = ctypes.CDLL(None, use_errno=True)
for length in (2**62 + 1, 2**62 + 300, 2**62 + 2000, 2**63 - 1):
    if library.fallocate(file, 0x11, ctypes.c_long(0), ctypes.c_long(length)) == 0:
        print('done', length)
    else:
        assert ctypes.get_errno() in (errno.ENOSPC, errno.EINVAL, errno.EFBIG), ctypes.get_errno()";
    fs::write(mounted.path("program"), program).unwrap();
    let told = shell_ok(&mounted.root(), 0, "python3 program file");
    assert_eq!(told, "", "what was announced first was forgotten, or makes no sense");
    check(&path, &File::open(&path).unwrap(), &pattern(10_000));
    mounted.end();
}
