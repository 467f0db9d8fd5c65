//! Devices in regular files, and the lock that keeps two processes from one pool.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use marram_device::{Device, Error, FileDevice, conformance};
use tempfile::tempdir;

const SIZE: u64 = 1 << 20;

#[test]
fn a_file_keeps_the_contract() {
    let folder = tempdir().unwrap();
    for preallocate in [false, true] {
        let path = folder.path().join(format!("{preallocate}.pool"));
        let device = FileDevice::create(&path, SIZE, preallocate).unwrap();
        conformance::check(&device);
        assert_eq!(device.name(), path.display().to_string());
        assert!(!device.is_block_device());
    }
}

#[test]
fn a_new_file_is_private_and_sparse_unless_asked_otherwise() {
    let folder = tempdir().unwrap();
    for (preallocate, blocks) in [(false, 0), (true, SIZE / 512)] {
        let path = folder.path().join(format!("{preallocate}.pool"));
        FileDevice::create(&path, SIZE, preallocate).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.len(), SIZE);
        assert_eq!(metadata.mode() & 0o777, 0o600);
        assert!(metadata.blocks() >= blocks && (preallocate || metadata.blocks() < SIZE / 512));
        let refused = FileDevice::create(&path, SIZE, preallocate);
        assert!(refused.unwrap_err().to_string().contains("exists"));
    }
}

#[test]
fn a_file_that_cannot_be_sized_is_not_left_behind() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("huge.pool");
    assert!(FileDevice::create(&path, u64::MAX, false).is_err());
    assert!(!path.exists());
}

#[test]
fn what_was_written_is_there_for_the_next_one() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let device = FileDevice::create(&path, SIZE, false).unwrap();
    device.write(4096, b"marram").unwrap();
    device.flush().unwrap();
    drop(device);

    let device = FileDevice::open(&path, true).unwrap();
    let mut buffer = [0; 6];
    device.read(4096, &mut buffer).unwrap();
    assert_eq!(&buffer, b"marram");
    assert_eq!(device.flush(), Ok(()));
    for refused in [device.write(0, b"x"), device.discard(0, 4096), device.grow(2 * SIZE)] {
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("reading only"), "{message}");
    }
}

#[test]
fn a_file_grows_but_never_shrinks() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let device = FileDevice::create(&path, SIZE, false).unwrap();
    device.grow(2 * SIZE).unwrap();
    device.grow(SIZE).unwrap();
    assert_eq!(device.size(), Ok(2 * SIZE));
    device.write(2 * SIZE - 1, b"x").unwrap();
}

#[test]
fn a_file_cut_short_behind_our_back_is_an_error() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let device = FileDevice::create(&path, SIZE, false).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    let refused = device.read(8192, &mut [0; 512]);
    assert!(matches!(refused, Err(Error::PastEnd { size: 4096, .. })));
}

#[test]
fn a_discard_gives_space_back() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let device = FileDevice::create(&path, SIZE, true).unwrap();
    let before = fs::metadata(&path).unwrap().blocks();
    device.discard(100, SIZE / 2).unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() < before);
}

#[test]
fn what_is_no_device_is_told_so() {
    let folder = tempdir().unwrap();
    let cases = [
        (folder.path().join("missing"), "No such file"),
        (folder.path().to_path_buf(), "directory"),
        (Path::new("/dev/null").to_path_buf(), "special file"),
    ];
    for (path, hint) in cases {
        let message = FileDevice::open(&path, false).unwrap_err().to_string();
        assert!(message.contains(hint), "{message}");
        assert!(message.contains(&path.display().to_string()), "{message}");
    }
}

#[test]
fn a_second_lock_is_refused_and_names_the_holder() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let first = FileDevice::create(&path, SIZE, false).unwrap();
    let second = FileDevice::open(&path, true).unwrap();
    let lock = first.lock_exclusive().unwrap();
    let message = second.lock_exclusive().unwrap_err().to_string();
    let holder = format!("process {}", std::process::id());
    assert!(message.contains(&holder), "{message}");
    drop(lock);
    second.lock_exclusive().unwrap();
}

/// Runs a process that locks the file and waits.
fn locking_process(path: &Path) -> Child {
    let mut command = Command::new("flock");
    command.arg("--no-fork").arg(path).args(["sleep", "60"]);
    command.spawn().expect("util-linux is installed")
}

#[test]
fn the_lock_of_a_killed_process_is_not_in_the_way() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let device = FileDevice::create(&path, SIZE, false).unwrap();
    let mut child = locking_process(&path);
    let deadline = Instant::now() + Duration::from_secs(10);
    let message = loop {
        match device.lock_exclusive() {
            Err(error) => break error.to_string(),
            Ok(lock) => drop(lock),
        }
        assert!(Instant::now() < deadline, "the child never took the lock");
        std::thread::sleep(Duration::from_millis(10));
    };
    let named = message.contains(&format!("process {} (", child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(named, "{message}");
    device.lock_exclusive().unwrap();
}
