//! Devices on a real loop device: `cargo test -p marram-device -- --ignored`, as root.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use marram_device::{Device, Error, FileDevice, conformance};
use tempfile::tempdir;

const SIZE: u64 = 8 << 20;

/// A loop device, detached when dropped.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn on(file: &Path) -> LoopDevice {
        let output = Command::new("losetup").args(["--show", "--find"]).arg(file).output();
        let output = output.expect("losetup is installed");
        assert!(output.status.success(), "losetup: {output:?}");
        LoopDevice(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run(Command::new("losetup").arg("--detach").arg(&self.0));
    }
}

/// A small file system in memory, unmounted when dropped.
struct SmallMount(PathBuf);

impl SmallMount {
    fn at(folder: &Path) -> SmallMount {
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=1M", "none"]).arg(folder));
        SmallMount(folder.to_path_buf())
    }
}

impl Drop for SmallMount {
    fn drop(&mut self) {
        run(Command::new("umount").arg(&self.0));
    }
}

fn run(command: &mut Command) {
    let status = command.status().expect("the tool is installed");
    assert!(status.success(), "{command:?}");
}

#[test]
#[ignore = "needs root and a loop device"]
fn a_block_device_keeps_the_contract() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("disk");
    File::create(&file).unwrap().set_len(SIZE).unwrap();
    let disk = LoopDevice::on(&file);
    let device = FileDevice::open(&disk.0, false).unwrap();
    assert!(device.is_block_device());
    assert_eq!(device.size(), Ok(SIZE));
    conformance::check(&device);
    device.grow(SIZE).unwrap();
    let message = device.grow(SIZE + 4096).unwrap_err().to_string();
    assert!(message.contains("grow it with the tool"), "{message}");
}

#[test]
#[ignore = "needs root and a loop device"]
fn a_block_device_has_one_user() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("disk");
    File::create(&file).unwrap().set_len(SIZE).unwrap();
    let disk = LoopDevice::on(&file);
    let first = FileDevice::open(&disk.0, false).unwrap();
    let second = FileDevice::open(&disk.0, false).unwrap();
    let lock = first.lock_exclusive().unwrap();
    let message = second.lock_exclusive().unwrap_err().to_string();
    let holder = format!("process {}", std::process::id());
    assert!(message.contains(&holder), "{message}");
    lock.release_claim();
    assert!(second.lock_exclusive().is_err(), "the lock outlives the claim");
    drop(lock);

    run(Command::new("mke2fs").arg("-q").arg(&disk.0));
    let mount = folder.path().join("mount");
    std::fs::create_dir(&mount).unwrap();
    run(Command::new("mount").arg(&disk.0).arg(&mount));
    let answer = second.lock_exclusive();
    run(Command::new("umount").arg(&mount));
    let message = answer.unwrap_err().to_string();
    assert!(message.contains("mounted"), "{message}");
    second.lock_exclusive().unwrap();
}

/// The backing store of the disk is full. Short writes reach the page cache, and only the flush can
/// report it. The kernel does so once, and a second `fdatasync` would answer success. A long write
/// goes past the page cache, and fails by itself.
#[test]
#[ignore = "needs root and a loop device"]
fn a_failed_flush_is_told_for_good() {
    let folder = tempdir().unwrap();
    let _small = SmallMount::at(folder.path());
    let file = folder.path().join("disk");
    File::create(&file).unwrap().set_len(SIZE).unwrap();
    let disk = LoopDevice::on(&file);
    let device = FileDevice::open(&disk.0, false).unwrap();
    for piece in 0..4 << 5 {
        device.write(piece * (32 << 10), &[1; 32 << 10]).unwrap();
    }
    let long = device.write(0, &vec![1; 4 << 20]);
    assert!(matches!(long, Err(Error::Failed { action: "write", .. })), "{long:?}");
    let failure = device.flush().unwrap_err();
    assert!(matches!(failure, Error::Failed { action: "flush", .. }), "{failure}");
    assert_eq!(device.flush(), Err(failure.clone()));
    assert_eq!(device.write(0, &[2; 512]), Err(failure.clone()));
    assert_eq!(device.discard(0, 4096), Err(failure));
    assert_eq!(device.read(0, &mut [0; 512]), Ok(()), "reads go on");
}
