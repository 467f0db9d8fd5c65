//! What mode bits and POSIX access control lists grant, as the kernel decides it.
//!
//! The order of the questions is the kernel's (`acl_permission_check`): the owner by the mode
//! alone, then a list where the group bits of the mode are not all clear, then group and others.

use marram_format::record::Inode;
use marram_vfs::Identity;

/// To read a file, or to list a directory.
pub const READ: u16 = 4;
/// To write a file, or to change names in a directory.
pub const WRITE: u16 = 2;
/// To run a file, or to use names in a directory.
pub const SEARCH: u16 = 1;

/// Bytes of a list before its entries, and of an entry.
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

/// The tags of entries, in the order in which a list has them.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// What decides about an inode beside a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    /// The low twelve mode bits.
    pub permissions: u16,
    /// The owner.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
}

impl From<&Inode> for Modes {
    fn from(inode: &Inode) -> Modes {
        Modes { permissions: inode.permissions, uid: inode.uid, gid: inode.gid }
    }
}

/// Whether `user` gets all of `wanted` of an inode; `list` is its access list, if it has one that
/// counts.
pub fn grants(user: &dyn Identity, of: Modes, list: Option<&[u8]>, wanted: u16) -> bool {
    let has = |shift: u16| of.permissions >> shift & wanted == wanted;
    if user.is_privileged() {
        return true;
    }
    if of.uid == user.uid() {
        return has(6);
    }
    if let Some(list) = list.filter(|_| of.permissions & 0o070 != 0) {
        return by_list(user, of, list, wanted);
    }
    if user.is_member(of.gid) { has(3) } else { has(0) }
}

/// One entry of a list: tag, permissions and id.
type Entry = (u16, u16, u32);

fn entries(list: &[u8]) -> Option<Vec<Entry>> {
    let (chunks, []) = list.get(HEADER_BYTES..)?.as_chunks::<ENTRY_BYTES>() else { return None };
    let entry = |chunk: &[u8; ENTRY_BYTES]| {
        let [t0, t1, p0, p1, i0, i1, i2, i3] = *chunk;
        let (tag, permissions) = (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([p0, p1]));
        (tag, permissions, u32::from_le_bytes([i0, i1, i2, i3]))
    };
    Some(chunks.iter().map(entry).collect())
}

/// What a list grants; one that makes no sense grants nothing.
fn by_list(user: &dyn Identity, of: Modes, list: &[u8], wanted: u16) -> bool {
    let Some(entries) = entries(list) else { return false };
    let mask = entries.iter().find(|(tag, ..)| *tag == MASK).map_or(7, |(_, bits, _)| *bits);
    let mut is_in_a_group = false;
    for (tag, bits, id) in entries {
        match tag {
            OWNER if user.uid() == of.uid => return bits & wanted == wanted,
            USER if user.uid() == id => return bits & mask & wanted == wanted,
            OWNING_GROUP | GROUP => {
                let group = if tag == GROUP { id } else { of.gid };
                if user.is_member(group) {
                    is_in_a_group = true;
                    if bits & wanted == wanted {
                        return bits & mask & wanted == wanted;
                    }
                }
            }
            OTHERS if !is_in_a_group => return bits & wanted == wanted,
            _ => (),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{Modes, READ, SEARCH, WRITE, grants};
    use marram_format::record::{InodeKind, Time};
    use marram_records::inode::new_inode;
    use marram_vfs::Identity;

    struct Person(u32, &'static [u32]);

    impl Identity for Person {
        fn uid(&self) -> u32 {
            self.0
        }

        fn gid(&self) -> u32 {
            self.1[0]
        }

        fn is_member(&self, gid: u32) -> bool {
            self.1.contains(&gid)
        }
    }

    fn file(permissions: u32) -> Modes {
        let inode = new_inode(InodeKind::Regular, permissions, 1, Time::default());
        Modes { uid: 10, gid: 20, ..Modes::from(&inode) }
    }

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&permissions.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let (owner, member, other) = (Person(10, &[1]), Person(11, &[1, 20]), Person(12, &[1]));
        let inode = file(0o075);
        assert!(!grants(&owner, inode, None, READ), "though others may");
        assert!(grants(&member, inode, None, READ | WRITE | SEARCH));
        assert!(grants(&other, inode, None, READ | SEARCH));
        assert!(!grants(&other, inode, None, WRITE));
        assert!(grants(&Person(0, &[0]), file(0), None, WRITE));
    }

    #[test]
    fn a_list_names_users_and_groups_below_its_mask() {
        let nobody = u32::MAX;
        let named = list(&[
            (1, 7, nobody),
            (2, 7, 11),
            (4, 0, nobody),
            (8, 6, 30),
            (16, 5, nobody),
            (32, 1, nobody),
        ]);
        let inode = file(0o751);
        assert!(grants(&Person(11, &[1]), inode, Some(&named), READ | SEARCH));
        assert!(!grants(&Person(11, &[1]), inode, Some(&named), WRITE), "the mask");
        assert!(grants(&Person(12, &[30]), inode, Some(&named), READ));
        assert!(!grants(&Person(12, &[30]), inode, Some(&named), SEARCH), "no entry has it");
        assert!(!grants(&Person(13, &[20]), inode, Some(&named), SEARCH), "not as one of others");
        assert!(grants(&Person(13, &[1]), inode, Some(&named), SEARCH));
        assert!(!grants(&Person(13, &[1]), inode, Some(&named[..9]), SEARCH), "no list at all");
        // The kernel looks at no list where the group bits are all clear.
        assert!(grants(&Person(11, &[1]), file(0o704), Some(&named), READ));
    }
}
