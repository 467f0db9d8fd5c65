//! POSIX access control lists: as users and the kernel hand them over, and as an image has them.

use crate::bytes::{put_u16, put_u32, u16_at, u32_at};
use marram_vfs::{Error, Result};

/// What stands before a list that users hand over, and one of an image.
const USERS_VERSION: u32 = 2;
const STORED_VERSION: u32 = 1;
/// Most entries of a list.
const ENTRIES_MAX: usize = 8192;
const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;
/// Where an entry has no number.
const NO_NUMBER: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    tag: u16,
    number: u32,
    rights: u16,
}

/// A list that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccessList(Vec<Entry>);

fn bad() -> Error {
    Error::InvalidArgument("not an access control list")
}

fn is_numbered(tag: u16) -> bool {
    matches!(tag, USER | GROUP)
}

impl AccessList {
    fn checked(mut entries: Vec<Entry>) -> Result<AccessList> {
        entries.sort_unstable();
        let count = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
        let has_each = [OWNER, OWNING_GROUP, OTHER].into_iter().all(|tag| count(tag) == 1);
        let names = count(USER) + count(GROUP);
        let mask = count(MASK);
        let is_known = entries.len() == 3 + names + mask;
        let is_twice = entries
            .windows(2)
            .any(|pair| (pair[0].tag, pair[0].number) == (pair[1].tag, pair[1].number));
        let has_rights = entries.iter().all(|entry| entry.rights <= 7);
        let is_good = has_each && is_known && !is_twice && has_rights && mask <= 1;
        if !is_good || names > 0 && mask == 0 || entries.len() > ENTRIES_MAX {
            return Err(bad());
        }
        Ok(AccessList(entries))
    }

    /// A list as users hand it over.
    pub(crate) fn decode(bytes: &[u8]) -> Result<AccessList> {
        if bytes.len() < 4 || bytes.len() % 8 != 4 || u32_at(bytes, 0) != USERS_VERSION {
            return Err(bad());
        }
        let entry = |entry: &[u8]| {
            let tag = u16_at(entry, 0);
            let number = if is_numbered(tag) { u32_at(entry, 4) } else { NO_NUMBER };
            Entry { tag, number, rights: u16_at(entry, 2) }
        };
        AccessList::checked(bytes[4..].chunks_exact(8).map(entry).collect())
    }

    /// The same list for users.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = USERS_VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            let mut part = [0; 8];
            put_u16(&mut part, 0, entry.tag);
            put_u16(&mut part, 2, entry.rights);
            put_u32(&mut part, 4, entry.number);
            bytes.extend(part);
        }
        bytes
    }

    /// A list of an image.
    pub(crate) fn decode_stored(bytes: &[u8]) -> Result<AccessList> {
        if bytes.len() < 4 || u32_at(bytes, 0) != STORED_VERSION {
            return Err(bad());
        }
        let (mut rest, mut entries) = (&bytes[4..], Vec::new());
        while let Some(head) = rest.get(..4) {
            let (tag, rights) = (u16_at(head, 0), u16_at(head, 2));
            let len = if is_numbered(tag) { 8 } else { 4 };
            let entry = rest.get(..len).ok_or_else(bad)?;
            let number = if len == 8 { u32_at(entry, 4) } else { NO_NUMBER };
            entries.push(Entry { tag, number, rights });
            rest = &rest[len..];
        }
        if rest.is_empty() { AccessList::checked(entries) } else { Err(bad()) }
    }

    /// The same list for an image.
    pub(crate) fn encode_stored(&self) -> Vec<u8> {
        let mut bytes = STORED_VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            bytes.extend(entry.tag.to_le_bytes());
            bytes.extend(entry.rights.to_le_bytes());
            if is_numbered(entry.tag) {
                bytes.extend(entry.number.to_le_bytes());
            }
        }
        bytes
    }

    fn find(&self, tag: u16) -> Option<usize> {
        self.0.iter().position(|entry| entry.tag == tag)
    }

    /// The entries that the three parts of a mode stand for, and how far a part is shifted.
    fn mode_entries(&self) -> impl Iterator<Item = (usize, u32)> {
        let group = self.find(MASK).or_else(|| self.find(OWNING_GROUP));
        let places = [(self.find(OWNER), 6), (group, 3), (self.find(OTHER), 0)];
        places.into_iter().filter_map(|(place, shift)| Some((place?, shift)))
    }

    /// The nine bits of a mode that it stands for.
    pub(crate) fn mode(&self) -> u32 {
        self.mode_entries()
            .fold(0, |mode, (place, shift)| mode | u32::from(self.0[place].rights) << shift)
    }

    /// Gives it the rights of a mode.
    pub(crate) fn set_mode(&mut self, mode: u32) {
        let places: Vec<(usize, u32)> = self.mode_entries().collect();
        for (place, shift) in places {
            self.0[place].rights = (mode >> shift & 7) as u16;
        }
    }

    /// What of it is left of something that is made with a mode.
    pub(crate) fn limited_to(mut self, mode: u32) -> AccessList {
        let kept = self.mode() & mode;
        self.set_mode(kept);
        self
    }

    /// Whether a mode says as much.
    pub(crate) fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }
}
