//! What the kernel does not say of a caller: its capabilities, its supplementary groups, and what
//! lies in its memory.
//!
//! The kernel marks writes, truncations and chowns that must clear setuid and setgid, but not
//! `fallocate` and `copy_file_range`. Nor does it mark what comes through a file system above this
//! one (OverlayFS), which acts in the name of its mounter; `/proc` tells the process behind it. And
//! the kernel hands out lists of extended attributes whole, though the names under `trusted.` are
//! for administrators. Both questions are rare (a file with setuid, a list with such a name), so
//! the answer is looked up in `/proc` when they come. A caller that cannot be seen there has no
//! capabilities. The caller waits for its reply meanwhile, so its number cannot have passed to
//! another thread unless it was killed.
//!
//! Anybody can make a user namespace and have all capabilities in it. They are for what belongs to
//! that namespace, and a mount does not: such a caller has none here.

use crate::protocol::Header;
use marram_vfs::{Attributes, Identity, Kind};
use std::cell::OnceCell;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// A power that root has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capability {
    /// What only the owner of a file may do.
    Own = 3,
    /// Setuid and setgid stay when it changes a file.
    KeepPrivileges = 4,
    /// Administration; sees `trusted.` attributes.
    Administer = 21,
}

/// Whether the caller has `capability` in force.
pub(super) fn has_capability(header: &Header, capability: Capability) -> bool {
    has(header, &status(header), capability)
}

/// The same, with the text of the caller's `/proc/<pid>/status`.
fn has(header: &Header, status: &str, capability: Capability) -> bool {
    effective(status) >> capability as u32 & 1 == 1 && is_in_our_user_namespace(header.pid)
}

/// Whether a thread is in the user namespace of this process. A server without privileges may not
/// see the namespace of another user's thread: then the users that each knows decide.
fn is_in_our_user_namespace(pid: u32) -> bool {
    let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/user"));
    let users = |of: &str| fs::read(format!("/proc/{of}/uid_map"));
    let theirs = pid.to_string();
    match (namespace("self"), namespace(&theirs)) {
        (Ok(ours), Ok(theirs)) => ours == theirs,
        (Ok(_), Err(_)) => {
            users(&theirs).is_ok_and(|theirs| users("self").is_ok_and(|ours| ours == theirs))
        }
        // A kernel without user namespaces.
        (Err(_), _) => true,
    }
}

/// Whether a file has setuid, or setgid that is a privilege, and the caller may not keep them when
/// its content changes.
pub(super) fn is_losing_privileges(header: &Header, file: &Attributes) -> bool {
    let is_privileged = file.permissions & 0o4000 != 0 || file.permissions & 0o2010 == 0o2010;
    file.kind == Kind::Regular
        && is_privileged
        && !has_capability(header, Capability::KeepPrivileges)
}

/// Whether the caller is in a system call that changes owners; none if the kernel does not say.
pub(super) fn is_changing_owner(header: &Header) -> Option<bool> {
    let told = fs::read_to_string(format!("/proc/{}/syscall", header.pid)).ok()?;
    let number = told.split(' ').next()?.parse().ok()?;
    CHANGES_OF_OWNER.map(|numbers| numbers.contains(&number))
}

/// The numbers of `chown` and its like: of 64-bit programs, and of 32-bit ones where no call of the
/// others with that number has a file changed.
#[cfg(target_arch = "x86_64")]
const CHANGES_OF_OWNER: Option<&[i64]> = Some(&[92, 93, 94, 260, 95, 182, 198, 207, 212, 298]);
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
const CHANGES_OF_OWNER: Option<&[i64]> = Some(&[54, 55]);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
const CHANGES_OF_OWNER: Option<&[i64]> = None;

/// Whether a file has setgid without being executable for its group, and the caller is neither a
/// member of that group nor may keep such bits. Then a change by that caller takes setgid away. The
/// kernel speaks only of setgid that is a privilege.
pub(super) fn is_strangers_setgid(header: &Header, file: &Attributes) -> bool {
    if file.kind == Kind::Directory || file.permissions & 0o2010 != 0o2000 {
        return false;
    }
    let status = status(header);
    let keeps = has(header, &status, Capability::KeepPrivileges);
    let acts_in = id_for_files(&status, "Gid:") == Some(file.gid);
    !keeps && !acts_in && !numbers(&status, "Groups:").contains(&file.gid)
}

/// Whether the caller owns a file, or may do what its owner may. Where identities can be mapped the
/// kernel gives the caller's identity only with requests that make something.
pub(super) fn acts_as_owner(header: &Header, file: &Attributes) -> bool {
    let status = status(header);
    id_for_files(&status, "Uid:") == Some(file.uid) || has(header, &status, Capability::Own)
}

/// Whether the caller is this user, as files see it.
pub(super) fn acts_as_user(header: &Header, uid: u32) -> bool {
    header.uid == uid || id_for_files(&status(header), "Uid:") == Some(uid)
}

/// Whether the caller is in this group, as files see it.
pub(super) fn acts_in_group(header: &Header, gid: u32) -> bool {
    let status = status(header);
    header.gid == gid
        || id_for_files(&status, "Gid:") == Some(gid)
        || numbers(&status, "Groups:").contains(&gid)
}

/// What the system shows of the caller; nothing if it cannot be seen.
fn status(header: &Header) -> String {
    match header.pid {
        0 => String::new(),
        pid => fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(),
    }
}

/// The numbers in a line of a `/proc/<pid>/status`.
fn numbers(status: &str, field: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The identity that counts for files, the last of four.
fn id_for_files(status: &str, field: &str) -> Option<u32> {
    numbers(status, field).get(3).copied()
}

/// The caller of a request. Its supplementary groups are looked up once for a request, when they
/// matter.
pub(super) struct Requester<'a> {
    header: &'a Header,
    groups: OnceCell<Vec<u32>>,
}

impl<'a> Requester<'a> {
    pub(super) fn of(header: &'a Header) -> Requester<'a> {
        Requester { header, groups: OnceCell::new() }
    }

    fn groups(&self) -> &[u32] {
        self.groups.get_or_init(|| match self.header.pid {
            0 => Vec::new(),
            pid => fs::read_to_string(format!("/proc/{pid}/status"))
                .map_or_else(|_| Vec::new(), |status| supplementary(&status, self.header)),
        })
    }
}

impl Identity for Requester<'_> {
    fn uid(&self) -> u32 {
        self.header.uid
    }

    fn gid(&self) -> u32 {
        self.header.gid
    }

    fn is_member(&self, gid: u32) -> bool {
        self.header.gid == gid || self.groups().contains(&gid)
    }
}

/// The supplementary groups in the text of a `/proc/<pid>/status`, if it is about the identity of
/// the request: a kernel thread that works for a caller has other groups. `access` asks with the
/// real identity, all else with that for files.
fn supplementary(status: &str, header: &Header) -> Vec<u32> {
    let is = |field: &str, id: u32| match numbers(status, field)[..] {
        [real, _, _, for_files] => id == real || id == for_files,
        _ => false,
    };
    match is("Uid:", header.uid) && is("Gid:", header.gid) {
        true => numbers(status, "Groups:"),
        false => Vec::new(),
    }
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
    use super::{
        Capability, Requester, caller_word, effective, has_capability, id_for_files,
        is_changing_owner, is_in_our_user_namespace, supplementary,
    };
    use crate::protocol::Header;
    use marram_vfs::Identity;

    #[test]
    fn the_identity_for_files_is_the_last() {
        let status = "Uid:\t1\t2\t2\t3\nGid:\t4\t5\t5\t6\nGroups:\t7 8 \n";
        assert_eq!(id_for_files(status, "Uid:"), Some(3));
        assert_eq!(id_for_files(status, "Gid:"), Some(6));
        assert_eq!(id_for_files("", "Gid:"), None);
    }

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
    fn who_only_looks_changes_no_owner() {
        let pid = std::process::id();
        let header = Header { opcode: 0, unique: 0, node: 0, uid: 0, gid: 0, pid };
        assert_ne!(is_changing_owner(&header), Some(true));
        assert_eq!(is_changing_owner(&Header { pid: 0, ..header }), None);
    }

    #[test]
    fn this_process_is_in_its_own_user_namespace() {
        assert!(is_in_our_user_namespace(std::process::id()));
    }

    #[test]
    fn groups_count_only_if_they_are_those_of_the_requests_identity() {
        let status = "Uid:\t1\t2\t2\t3\nGid:\t4\t5\t5\t6\nGroups:\t7 8 \n";
        let of = |uid, gid| Header { opcode: 0, unique: 0, node: 0, uid, gid, pid: 1 };
        assert_eq!(supplementary(status, &of(3, 6)), [7, 8]);
        assert_eq!(supplementary(status, &of(1, 4)), [7, 8]);
        for (uid, gid) in [(2, 6), (3, 5), (0, 0)] {
            assert!(supplementary(status, &of(uid, gid)).is_empty());
        }
        assert!(supplementary("Uid:\t3\n", &of(3, 6)).is_empty());
        let header = Header { pid: 0, ..of(3, 6) };
        let unseen = Requester::of(&header);
        assert!(unseen.is_member(6) && !unseen.is_member(7));
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
