//! Content.

use crate::fixture::{Mounted, can_mount, drop_caches, model, mounted, shell_ok};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, SeekFrom, copy_file_range, fallocate, linkat, open,
    seek,
};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom as From, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at / 7 % 251).unwrap()).collect()
}

#[test]
fn what_is_written_is_read_also_after_the_cache_is_gone() {
    let Some(mounted) = mounted() else { return };
    let data = pattern(3_000_001);
    fs::write(mounted.path("file"), &data).unwrap();
    assert!(fs::read(mounted.path("file")).unwrap() == data);
    drop_caches();
    assert!(fs::read(mounted.path("file")).unwrap() == data);
    let mut file = OpenOptions::new().append(true).open(mounted.path("file")).unwrap();
    file.write_all(b"more").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3_000_005);
    drop(file);
    fs::write(mounted.path("file"), b"short").unwrap();
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"short", "O_TRUNC cuts");
    mounted.end();
}

#[test]
fn truncate_cuts_and_extends_by_zeros() {
    let Some(mounted) = mounted() else { return };
    fs::write(mounted.path("file"), pattern(10_000)).unwrap();
    let file = OpenOptions::new().write(true).open(mounted.path("file")).unwrap();
    file.set_len(100).unwrap();
    file.set_len(5000).unwrap();
    let read = fs::read(mounted.path("file")).unwrap();
    assert_eq!(read[..100], pattern(100));
    assert_eq!(read[100..], vec![0; 4900]);
    drop(file);
    mounted.end();
}

#[test]
fn direct_io_and_the_cache_agree() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    fs::write(&path, pattern(8192)).unwrap();
    let direct: File = open(&path, OFlags::RDWR | OFlags::DIRECT, Mode::empty()).unwrap().into();
    let page = vec![7; 4096];
    direct.write_all_at(&page, 4096).unwrap();
    let cached = fs::read(&path).unwrap();
    assert!(cached[..4096] == pattern(4096) && cached[4096..] == page);
    let mut back = vec![0; 4096];
    direct.read_exact_at(&mut back, 4096).unwrap();
    assert!(back == page);
    drop(direct);
    mounted.end();
}

#[test]
fn a_file_lives_on_while_it_is_open_without_a_name() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(b"before").unwrap();
    fs::remove_file(&path).unwrap();
    drop_caches();
    file.write_all(b" and after").unwrap();
    file.seek(From::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before and after");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.set_len(3).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3);
    assert!(!path.exists());
    drop(file);
    mounted.end();
}

#[test]
fn a_file_replaced_by_rename_lives_on_while_it_is_open() {
    let Some(mounted) = mounted() else { return };
    fs::write(mounted.path("old"), b"old").unwrap();
    fs::write(mounted.path("new"), b"new").unwrap();
    let mut old = File::open(mounted.path("old")).unwrap();
    fs::rename(mounted.path("new"), mounted.path("old")).unwrap();
    drop_caches();
    let mut text = String::new();
    old.read_to_string(&mut text).unwrap();
    assert_eq!(text, "old");
    assert_eq!(fs::read(mounted.path("old")).unwrap(), b"new");
    drop(old);
    mounted.end();
}

#[test]
fn an_anonymous_file_gets_a_name_by_link() {
    let Some(mounted) = mounted() else { return };
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let mut file: File = open(mounted.root(), flags, Mode::from(0o640)).unwrap().into();
    file.write_all(b"anonymous").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(mounted.root()).unwrap().count(), 0);
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, source, CWD, mounted.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    drop(file);
    drop_caches();
    assert_eq!(fs::read(mounted.path("named")).unwrap(), b"anonymous");
    assert_eq!(fs::metadata(mounted.path("named")).unwrap().nlink(), 1);
    mounted.end();
}

#[test]
fn ranges_are_copied_by_the_file_system() {
    let Some(mounted) = mounted() else { return };
    fs::write(mounted.path("from"), pattern(300_000)).unwrap();
    let from = File::open(mounted.path("from")).unwrap();
    let to = File::create_new(mounted.path("to")).unwrap();
    let (mut from_offset, mut to_offset) = (1000, 5000);
    let copied =
        copy_file_range(&from, Some(&mut from_offset), &to, Some(&mut to_offset), 400_000).unwrap();
    assert_eq!(copied, 299_000, "up to the end of the source");
    let read = fs::read(mounted.path("to")).unwrap();
    assert_eq!(read.len(), 304_000);
    assert!(read[..5000] == vec![0; 5000] && read[5000..] == pattern(300_000)[1000..]);
    drop((from, to));
    mounted.end();
}

#[test]
fn holes_are_found() {
    let Some(mounted) = mounted() else { return };
    let file = File::create_new(mounted.path("file")).unwrap();
    file.write_all_at(&[1; 4096], 1 << 20).unwrap();
    file.set_len(4 << 20).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(1 << 20));
    assert_eq!(seek(&file, SeekFrom::Hole(1 << 20)), Ok((1 << 20) + 4096));
    assert_eq!(seek(&file, SeekFrom::Data(2 << 20)), Err(Errno::NXIO));
    assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(0));
    drop(file);
    mounted.end();
}

#[test]
fn what_the_kernel_holds_back_is_no_hole() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with(model(), |options| options.writeback = true);
    let file = File::create_new(mounted.path("file")).unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    file.write_all_at(&[1; 8192], 1 << 20).unwrap();
    let is_data = |at| seek(&file, SeekFrom::Data(at)) == Ok(at);
    assert!(is_data(0) && is_data(1 << 20));
    assert!(seek(&file, SeekFrom::Hole(0)).is_ok_and(|hole| hole >= 8192));
    drop(file);
    mounted.end();
}

#[test]
fn holes_are_told_in_whole_pages() {
    let Some(mounted) = mounted() else { return };
    let file = File::create_new(mounted.path("file")).unwrap();
    file.write_all_at(b"x", 5000).unwrap();
    file.write_all_at(b"y", 13_000).unwrap();
    file.set_len(20_000).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(4096));
    assert_eq!(seek(&file, SeekFrom::Data(8191)), Ok(8191), "the page has data");
    assert_eq!(seek(&file, SeekFrom::Data(8192)), Ok(12_288));
    assert_eq!(seek(&file, SeekFrom::Data(16_384)), Err(Errno::NXIO));
    assert_eq!(seek(&file, SeekFrom::Hole(100)), Ok(100));
    assert_eq!(seek(&file, SeekFrom::Hole(4100)), Ok(8192));
    assert_eq!(seek(&file, SeekFrom::Hole(13_001)), Ok(16_384));
    assert_eq!(seek(&file, SeekFrom::Hole(19_999)), Ok(19_999));
    assert_eq!(seek(&file, SeekFrom::Hole(20_000)), Err(Errno::NXIO));
    // The last page has data, so the only hole after it is the end.
    file.write_all_at(b"z", 17_000).unwrap();
    assert_eq!(seek(&file, SeekFrom::Hole(12_288)), Ok(20_000));
    drop(file);
    mounted.end();
}

#[test]
fn space_is_promised_punched_and_zeroed() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    fs::write(&path, pattern(100_000)).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let length = || file.metadata().unwrap().len();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert_eq!(length(), 100_000);
    fallocate(&file, FallocateFlags::empty(), 0, 200_000).unwrap();
    assert_eq!(length(), 200_000);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 1001, 50_000).unwrap();
    fallocate(&file, FallocateFlags::ZERO_RANGE, 199_000, 2000).unwrap();
    assert_eq!(length(), 201_000);
    let read = fs::read(&path).unwrap();
    assert_eq!(read[..1001], pattern(1001));
    assert!(read[1001..51_001].iter().all(|byte| *byte == 0));
    assert_eq!(read[51_001..100_000], pattern(100_000)[51_001..]);
    let collapse = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(collapse, Err(Errno::OPNOTSUPP));
    drop(file);
    mounted.end();
}

#[test]
#[allow(unsafe_code, reason = "memory maps have no safe interface")]
fn a_shared_mapping_reaches_the_file_and_moves_its_times() {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    fs::write(&path, vec![0; 8192]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping of a file that nobody else changes, used within its two pages and
    // not after it is taken away.
    unsafe {
        let map = mmap(std::ptr::null_mut(), 8192, protection, MapFlags::SHARED, &file, 0).unwrap();
        map.cast::<u8>().add(5000).write(42);
        msync(map, 8192, MsyncFlags::SYNC).unwrap();
        munmap(map, 8192).unwrap();
    }
    drop(file);
    drop_caches();
    assert_eq!(fs::read(&path).unwrap()[5000], 42);
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    assert!(modified > std::time::UNIX_EPOCH, "a write through memory moves the time");
    mounted.end();
}

#[test]
fn unknown_control_calls_are_refused_as_such() {
    let Some(mounted) = mounted() else { return };
    fs::write(mounted.path("file"), b"x").unwrap();
    for path in [mounted.path("file"), mounted.root()] {
        let opened = File::open(path).unwrap();
        let flags = rustix::fs::ioctl_getflags(&opened);
        assert!(matches!(flags, Err(Errno::NOTTY | Errno::OPNOTSUPP)), "{flags:?}");
    }
    let shutdown = "import fcntl, os
try: fcntl.ioctl(os.open('.', 0), 0x8004587d, bytes(4))
except OSError as error: print(error.strerror)";
    fs::write(mounted.path("program"), shutdown).unwrap();
    let told = shell_ok(&mounted.root(), 0, "python3 program");
    assert_eq!(told, "Inappropriate ioctl for device\n", "plain memory has no power cuts");
    mounted.end();
}
