//! What the kernel does not say of a caller: its capabilities, and what lies in its memory.
//!
//! The kernel marks writes, truncations and chowns that must clear setuid and setgid, but not
//! `fallocate` and `copy_file_range`; and it hands out lists of extended attributes whole, though
//! the names under `trusted.` are for administrators. Both questions are rare (a file with setuid,
//! a list with such a name), so the answer is looked up in `/proc` when they come. A caller that
//! cannot be seen there has no capabilities. The caller waits for its reply meanwhile, so its
//! number cannot have passed to another thread unless it was killed.

use crate::protocol::Header;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// A power that root has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capability {
    /// Setuid and setgid stay when it changes a file.
    KeepPrivileges = 4,
    /// Administration; sees `trusted.` attributes.
    Administer = 21,
}

/// Whether the caller has `capability` in force.
pub(super) fn has_capability(header: &Header, capability: Capability) -> bool {
    header.pid != 0
        && fs::read_to_string(format!("/proc/{}/status", header.pid))
            .is_ok_and(|status| effective(&status) >> capability as u32 & 1 == 1)
}

/// The word at `address` in the caller's memory, as the little-endian protocol has it; `None`
/// if it cannot be read.
pub(super) fn caller_word(header: &Header, address: u64) -> Option<u32> {
    let memory = File::open(format!("/proc/{}/mem", header.pid)).ok()?;
    let mut word = [0; 4];
    memory.read_exact_at(&mut word, address).ok()?;
    Some(u32::from_le_bytes(word))
}

/// The effective capabilities in the text of a `/proc/<pid>/status`.
fn effective(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Capability, caller_word, effective, has_capability};
    use crate::protocol::Header;

    #[test]
    fn capabilities_are_read_from_the_status() {
        assert_eq!(effective("Name:\tx\nCapEff:\t0000000000200010\nNoNewPrivs:\t0\n"), 0x20_0010);
        assert_eq!(effective("Name:\tx\n"), 0);
    }

    #[test]
    fn who_cannot_be_seen_has_none() {
        let header = Header { opcode: 0, unique: 0, node: 0, uid: 0, gid: 0, pid: 0 };
        assert!(!has_capability(&header, Capability::Administer));
        assert!(!has_capability(&Header { pid: u32::MAX, ..header }, Capability::Administer));
        assert_eq!(caller_word(&header, 4096), None);
    }

    #[test]
    fn a_word_is_read_from_a_callers_memory() {
        let pid = std::process::id();
        let header = Header { opcode: 0, unique: 0, node: 0, uid: 0, gid: 0, pid };
        let word = Box::new(0x0102_0304_u32);
        let address = std::ptr::from_ref(&*word) as u64;
        assert_eq!(caller_word(&header, address), Some(0x0102_0304));
        assert_eq!(caller_word(&header, 0), None);
        assert_eq!(caller_word(&header, u64::MAX - 1), None);
    }
}
