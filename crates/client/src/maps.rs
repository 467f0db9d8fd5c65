//! The files that this process has mapped.

use crate::device::DeviceNumber;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The files of a device that this process has mapped in a way
/// that writes to the map could reach them.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn shared_of(device: DeviceNumber) -> io::Result<Vec<PathBuf>> {
    Ok(in_text(&std::fs::read("/proc/self/maps")?, device))
}

fn in_text(text: &[u8], device: DeviceNumber) -> Vec<PathBuf> {
    let lines = text.split(|byte| *byte == b'\n');
    let mut files: Vec<PathBuf> = lines.filter_map(|line| shared(line, device)).collect();
    files.sort();
    files.dedup();
    files
}

/// The file of a line such as `7f00-7f01 rw-s 00000000 00:2f 17   /a/b`, if it is a shared map of
/// the device.
fn shared(line: &[u8], device: DeviceNumber) -> Option<PathBuf> {
    let mut words = line.splitn(6, |byte| *byte == b' ');
    let is_shared = words.nth(1)?.get(3) == Some(&b's');
    let found = std::str::from_utf8(words.nth(1)?).ok()?;
    let (major, minor) = found.split_once(':')?;
    let number = |digits| u32::from_str_radix(digits, 16).ok();
    let is_it = DeviceNumber::from((number(major)?, number(minor)?)) == device;
    let path = words.nth(1)?.trim_ascii_start().to_vec();
    (is_shared && is_it).then(|| OsString::from_vec(path).into())
}

#[cfg(test)]
mod tests {
    use super::in_text;
    use std::path::PathBuf;

    #[test]
    fn shared_maps_of_the_device_are_found_and_no_others() {
        let text = b"7f00-7f01 rw-s 00000000 00:2f 17                     /a b\n\
                     7f01-7f02 rw-p 00000000 00:2f 18                     /private\n\
                     7f02-7f03 r--s 00001000 00:2f 19                     /read\n\
                     7f03-7f04 rw-s 00000000 00:30 17                     /other\n\
                     7f04-7f05 rw-p 00000000 00:00 0 \n\
                     7f05-7f06 rw-s 00001000 00:2f 17                     /a b\n";
        assert_eq!(in_text(text, (0, 0x2f).into()), ["/a b", "/read"].map(PathBuf::from));
        assert!(in_text(text, (0, 0x31).into()).is_empty());
    }
}
