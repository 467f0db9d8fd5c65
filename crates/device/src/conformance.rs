//! What every [`Device`] must do while nothing fails, as one check for tests of devices.
//!
//! What a device may do in a crash cannot be seen from inside of a running program; the recording
//! device of the simulator enumerates that.

use crate::{Device, Error};

/// Smallest device that the check can use, in bytes.
pub const SIZE_BYTES_MIN: usize = 1 << 20;

/// Checks the contract on a device whose content does not matter.
///
/// # Panics
/// When the device breaks the contract, or is smaller than [`SIZE_BYTES_MIN`].
pub fn check(device: &dyn Device) {
    let size = device.size().expect("the size is known");
    assert!(size >= SIZE_BYTES_MIN as u64, "the device is too small");
    assert!(!device.name().is_empty(), "a device has a name");
    check_last_write_wins(device);
    check_neighbours_are_left_alone(device);
    check_bounds(device, size);
    check_discard(device, size);
    check_threads(device);
}

fn read(device: &dyn Device, offset: u64, len: usize) -> Vec<u8> {
    let mut buffer = vec![0x55; len];
    device.read(offset, &mut buffer).expect("the read is good");
    buffer
}

fn write(device: &dyn Device, offset: u64, bytes: &[u8]) {
    device.write(offset, bytes).expect("the write is good");
}

fn check_last_write_wins(device: &dyn Device) {
    write(device, 0, &[1; 8192]);
    write(device, 4096, &[2; 8192]);
    assert_eq!(read(device, 0, 4096), [1; 4096], "an earlier write is seen");
    assert_eq!(read(device, 4096, 8192), [2; 8192], "the last write wins");
    device.flush().expect("the flush is good");
    assert_eq!(read(device, 4096, 8192), [2; 8192], "a flush changes nothing");
}

fn check_neighbours_are_left_alone(device: &dyn Device) {
    write(device, 8192, &[3; 8192]);
    write(device, 9001, &[4; 1234]);
    write(device, 9001, &[]);
    device.write_parts(9101, &[&[4; 100], &[], &[4; 50]]).expect("the write is good");
    assert_eq!(read(device, 8192, 809), [3; 809], "bytes before a write");
    assert_eq!(read(device, 9001, 1234), [4; 1234], "a write of any length");
    assert_eq!(read(device, 10_235, 777), [3; 777], "bytes after a write");
}

fn check_bounds(device: &dyn Device, size: u64) {
    write(device, size - 512, &[5; 512]);
    assert_eq!(read(device, size - 512, 512), [5; 512], "the last sector");
    assert_eq!(device.read(size, &mut []), Ok(()), "nothing, at the end");
    for (offset, len) in [(size - 511, 512), (size, 1), (u64::MAX - 1, 512)] {
        let past = |answer| matches!(answer, Err(Error::PastEnd { .. }));
        let mut buffer = vec![6; len];
        assert!(past(device.read(offset, &mut buffer)), "a read past the end");
        assert!(past(device.write(offset, &buffer)), "a write past the end");
        assert!(past(device.discard(offset, len as u64)), "a discard past the end");
    }
    assert_eq!(device.size(), Ok(size), "the size stays");
    assert_eq!(read(device, size - 512, 512), [5; 512], "refused is not done");
}

fn check_discard(device: &dyn Device, size: u64) {
    write(device, size - 32_768, &[7; 32_768]);
    device.discard(size - 24_576, 8192).expect("a discard may do nothing, but not fail");
    assert_eq!(read(device, size - 32_768, 8192), [7; 8192], "before it");
    assert_eq!(read(device, size - 16_384, 16_384), [7; 16_384], "after it");
    write(device, size - 24_576, &[8; 8192]);
    assert_eq!(read(device, size - 24_576, 8192), [8; 8192], "used again");
}

/// Writers of ranges apart from each other do not disturb each other.
fn check_threads(device: &dyn Device) {
    std::thread::scope(|scope| {
        for lane in 0..4u8 {
            scope.spawn(move || {
                for round in 0..16u64 {
                    let offset = (round * 4 + u64::from(lane)) * 4096;
                    write(device, offset, &[lane; 4096]);
                    assert_eq!(read(device, offset, 4096), [lane; 4096]);
                    device.flush().expect("the flush is good");
                }
            });
        }
    });
    for index in 0..64u64 {
        let lane = u8::try_from(index % 4).expect("it is below four");
        assert_eq!(read(device, index * 4096, 4096), [lane; 4096]);
    }
}
