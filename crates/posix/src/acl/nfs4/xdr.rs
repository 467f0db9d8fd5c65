//! The form of `system.nfs4_acl`, which is that of the protocol: big-endian words.
//!
//! Users and groups are decimal numbers: the daemon resolves no names. An entry for the owning
//! group carries the flag for groups, as servers of NFS send it; on input that flag means nothing
//! for `OWNER@`, `GROUP@` and `EVERYONE@`, as the protocol demands.

use super::{Entry, Inheritance, KEPT_ENTRIES_MAX, List, Rights, Who};
use thiserror::Error;

const ALLOW: u32 = 0;
const DENY: u32 = 1;
const FILE_INHERIT: u32 = 0x1;
const DIRECTORY_INHERIT: u32 = 0x2;
const NO_PROPAGATE: u32 = 0x4;
const INHERIT_ONLY: u32 = 0x8;
const IDENTIFIER_GROUP: u32 = 0x40;
const FLAGS: u32 =
    FILE_INHERIT | DIRECTORY_INHERIT | NO_PROPAGATE | INHERIT_ONLY | IDENTIFIER_GROUP;
/// Identities are rounded up to this many bytes.
const PADDING_BYTES: usize = 4;

/// Why bytes are no list that can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ListError {
    /// The bytes end in the middle, or go on after the last entry.
    #[error("an access control list of {len_bytes} bytes has not the length that it says")]
    Length {
        /// How many came.
        len_bytes: usize,
    },
    /// More entries than are kept.
    #[error("{0} entries are too many")]
    TooMany(u32),
    /// An entry that neither allows nor denies.
    #[error("entry {at} is of type {found}: only entries that allow or deny are kept")]
    Type {
        /// Which entry, from 0.
        at: usize,
        /// Its type.
        found: u32,
    },
    /// A flag that is not known.
    #[error("entry {at} has flags {found:#x}: only those of inheritance and groups are kept")]
    Flags {
        /// Which entry, from 0.
        at: usize,
        /// Its flags.
        found: u32,
    },
    /// A permission that there is not.
    #[error("entry {at} has permissions {found:#x}, of which some do not exist")]
    Rights {
        /// Which entry, from 0.
        at: usize,
        /// Its permissions.
        found: u32,
    },
    /// Not a number, and none of `OWNER@`, `GROUP@` and `EVERYONE@`.
    #[error("entry {at} names somebody otherwise than by a number")]
    Who {
        /// Which entry, from 0.
        at: usize,
    },
}

struct Words<'a> {
    rest: &'a [u8],
    len_bytes: usize,
}

impl<'a> Words<'a> {
    fn short(&self) -> ListError {
        ListError::Length { len_bytes: self.len_bytes }
    }

    fn word(&mut self) -> Result<u32, ListError> {
        let (word, rest) = self.rest.split_first_chunk().ok_or(self.short())?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*word))
    }

    /// Bytes with their length before them and padding after them.
    fn opaque(&mut self) -> Result<&'a [u8], ListError> {
        let len = usize::try_from(self.word()?).map_err(|_| self.short())?;
        let padded = len.checked_next_multiple_of(PADDING_BYTES).ok_or(self.short())?;
        let (bytes, rest) = self.rest.split_at_checked(padded).ok_or(self.short())?;
        self.rest = rest;
        Ok(&bytes[..len])
    }
}

impl List {
    /// Decodes and checks a list.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<List, ListError> {
        let mut words = Words { rest: bytes, len_bytes: bytes.len() };
        let count = words.word()?;
        let too_many = ListError::TooMany(count);
        let count = usize::try_from(count).map_err(|_| too_many)?;
        if count > KEPT_ENTRIES_MAX {
            return Err(too_many);
        }
        let entries =
            (0..count).map(|at| decode_entry(&mut words, at)).collect::<Result<_, _>>()?;
        if !words.rest.is_empty() {
            return Err(words.short());
        }
        Ok(List { entries })
    }

    /// The list as it is stored and handed out.
    pub fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.entries.len()).expect("lists are short");
        let mut bytes = count.to_be_bytes().to_vec();
        for entry in &self.entries {
            encode_entry(entry, &mut bytes);
        }
        bytes
    }
}

fn decode_entry(words: &mut Words<'_>, at: usize) -> Result<Entry, ListError> {
    let allows = match words.word()? {
        ALLOW => true,
        DENY => false,
        found => return Err(ListError::Type { at, found }),
    };
    let flags = words.word()?;
    if flags & !FLAGS != 0 {
        return Err(ListError::Flags { at, found: flags });
    }
    let rights = Rights(words.word()?);
    if !Rights::ALL.has(rights) {
        return Err(ListError::Rights { at, found: rights.0 });
    }
    let who = words.opaque()?;
    let who = decode_who(who, flags & IDENTIFIER_GROUP != 0).ok_or(ListError::Who { at })?;
    let inheritance = Inheritance {
        files: flags & FILE_INHERIT != 0,
        directories: flags & DIRECTORY_INHERIT != 0,
        no_propagate: flags & NO_PROPAGATE != 0,
        inherit_only: flags & INHERIT_ONLY != 0,
    };
    Ok(Entry { allows, who, rights, inheritance })
}

fn decode_who(bytes: &[u8], is_group: bool) -> Option<Who> {
    match bytes {
        b"OWNER@" => return Some(Who::Owner),
        b"GROUP@" => return Some(Who::Group),
        b"EVERYONE@" => return Some(Who::Everyone),
        _ => (),
    }
    let digits = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(bytes).ok()?.parse().ok();
    let number = number.filter(|number| digits && *number != u32::MAX)?;
    Some(if is_group { Who::NamedGroup(number) } else { Who::NamedUser(number) })
}

fn encode_entry(entry: &Entry, bytes: &mut Vec<u8>) {
    let inheritance = entry.inheritance;
    let is_group = matches!(entry.who, Who::Group | Who::NamedGroup(_));
    let flags = [
        (inheritance.files, FILE_INHERIT),
        (inheritance.directories, DIRECTORY_INHERIT),
        (inheritance.no_propagate, NO_PROPAGATE),
        (inheritance.inherit_only, INHERIT_ONLY),
        (is_group, IDENTIFIER_GROUP),
    ];
    let flags = flags.iter().filter(|(set, _)| *set).fold(0, |flags, (_, flag)| flags | flag);
    let kind = if entry.allows { ALLOW } else { DENY };
    let who = match entry.who {
        Who::Owner => "OWNER@".to_owned(),
        Who::Group => "GROUP@".to_owned(),
        Who::Everyone => "EVERYONE@".to_owned(),
        Who::NamedUser(number) | Who::NamedGroup(number) => number.to_string(),
    };
    let len = u32::try_from(who.len()).expect("a few digits");
    for word in [kind, flags, entry.rights.0, len] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend_from_slice(who.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(PADDING_BYTES), 0);
}

#[cfg(test)]
mod tests {
    use super::super::ENTRIES_MAX;
    use super::{Entry, Inheritance, KEPT_ENTRIES_MAX, List, ListError, Rights, Who};

    /// `A:fdg:10:r`, `D::EVERYONE@:w`, as a client sends them.
    const TWO: &[u8] = b"\0\0\0\x02\
        \0\0\0\0\0\0\0\x43\0\0\0\x01\0\0\0\x0210\0\0\
        \0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x09EVERYONE@\0\0\0";

    fn two() -> List {
        let inheritance = Inheritance { files: true, directories: true, ..Inheritance::NONE };
        let group = Entry::allow(Who::NamedGroup(10), Rights::READ_DATA);
        let everyone = Entry::deny(Who::Everyone, Rights::WRITE_DATA);
        List { entries: vec![Entry { inheritance, ..group }, everyone] }
    }

    #[test]
    fn a_list_is_read_and_written_as_clients_do() {
        assert_eq!(List::decode(TWO), Ok(two()));
        assert_eq!(two().encode(), TWO);
        let mut flagged = TWO.to_vec();
        flagged[31] = 0x40;
        assert_eq!(List::decode(&flagged), Ok(two()), "no group flag for everyone");
        assert_eq!(List::decode(&[0; 4]), Ok(List::default()));
    }

    #[test]
    fn each_wrong_part_is_told() {
        let with = |at: usize, byte: u8| {
            let mut bytes = TWO.to_vec();
            bytes[at] = byte;
            List::decode(&bytes).unwrap_err()
        };
        assert_eq!(with(7, 2), ListError::Type { at: 0, found: 2 }, "audit");
        assert_eq!(with(11, 0x80), ListError::Flags { at: 0, found: 0x80 });
        assert_eq!(with(14, 8), ListError::Rights { at: 0, found: 0x801 });
        assert_eq!(with(20, b'x'), ListError::Who { at: 0 });
        assert_eq!(with(39, 200), ListError::Length { len_bytes: TWO.len() });
        assert_eq!(with(3, 1), ListError::Length { len_bytes: TWO.len() });
        assert_eq!(with(0, 1), ListError::TooMany(0x100_0002));
        for name in ["", "alice", "+1", "4294967295", "4294967296", "1@x", "OWNER@\0"] {
            let mut bytes = [0, 0, 0, 1_u32].map(u32::to_be_bytes).concat();
            bytes.rotate_right(4);
            bytes[3] = 1;
            bytes[15] = 1;
            bytes.extend_from_slice(&u32::try_from(name.len()).unwrap().to_be_bytes());
            bytes.extend_from_slice(name.as_bytes());
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            assert_eq!(List::decode(&bytes), Err(ListError::Who { at: 0 }), "{name}");
        }
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_refused_or_a_list() {
        for len in 0..TWO.len() {
            assert!(List::decode(&TWO[..len]).is_err(), "{len}");
        }
        let mut seed = 1_u64;
        for _ in 0..20_000 {
            let mut bytes = TWO.to_vec();
            for _ in 0..3 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = usize::try_from(seed >> 33).unwrap() % bytes.len();
                bytes[at] = seed.to_le_bytes()[3];
            }
            if let Ok(list) = List::decode(&bytes) {
                assert_eq!(List::decode(&list.encode()), Ok(list));
            }
        }
    }

    #[test]
    fn what_can_be_kept_can_be_read() {
        let entry = Entry::allow(Who::NamedUser(4_294_967_294), Rights::ALL);
        let list = List { entries: vec![entry; KEPT_ENTRIES_MAX] };
        assert_eq!(List::decode(&list.encode()), Ok(list.clone()));
        assert!(list.encode().len() <= marram_vfs::XATTR_VALUE_BYTES_MAX && list.is_too_long());
        let list = List { entries: vec![entry; ENTRIES_MAX] };
        assert!(!list.is_too_long());
    }
}
