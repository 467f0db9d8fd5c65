//! POSIX access control lists, in the form in which the kernel hands them over.
//!
//! A list has one entry each for the owner, the owning group and all others, any number for named
//! users and groups, and, if it has those, a mask. The permission bits of the mode are the
//! entries of owner, mask (or owning group, where there is no mask) and others.

use thiserror::Error;

/// Most entries that a list may have: twice what the kernel can hand over.
pub(super) const ENTRIES_MAX: usize = 1024;

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// The id in entries that name nobody.
const NOBODY: u32 = u32::MAX;
const PERMISSIONS: u16 = 7;

/// Why bytes are no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PosixListError {
    /// Too short, or no whole number of entries.
    #[error("{len_bytes} bytes are no access control list")]
    Length {
        /// How many came.
        len_bytes: usize,
    },
    /// A version that is not known.
    #[error("version {0} of access control lists is not known")]
    Version(u32),
    /// More entries than are kept.
    #[error("{0} entries are too many")]
    TooMany(usize),
    /// An entry that makes no sense by itself.
    #[error("entry {0} has a tag, permissions or an id that there are not")]
    Entry(usize),
    /// An entry that may not be where it is, or is missing.
    #[error("an entry is missing, out of order, or there twice")]
    Order,
}

/// What an entry is about; in the order in which lists have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tag {
    Owner = 0x01,
    User = 0x02,
    OwningGroup = 0x04,
    Group = 0x08,
    Mask = 0x10,
    Others = 0x20,
}

impl Tag {
    fn from_number(number: u16) -> Option<Tag> {
        let all = [Tag::Owner, Tag::User, Tag::OwningGroup, Tag::Group, Tag::Mask, Tag::Others];
        all.into_iter().find(|tag| *tag as u16 == number)
    }

    fn is_named(self) -> bool {
        matches!(self, Tag::User | Tag::Group)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    permissions: u16,
    id: u32,
}

/// A valid list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PosixList {
    entries: Vec<Entry>,
}

impl PosixList {
    /// Decodes and checks a list.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<PosixList, PosixListError> {
        let length = PosixListError::Length { len_bytes: bytes.len() };
        let (version, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(length)?;
        match u32::from_le_bytes(*version) {
            VERSION => (),
            other => return Err(PosixListError::Version(other)),
        }
        let (chunks, []) = rest.as_chunks::<ENTRY_BYTES>() else {
            return Err(length);
        };
        if chunks.len() > ENTRIES_MAX {
            return Err(PosixListError::TooMany(chunks.len()));
        }
        let decode = |(at, chunk)| decode_entry(chunk).ok_or(PosixListError::Entry(at));
        let entries = chunks.iter().enumerate().map(decode).collect::<Result<Vec<_>, _>>()?;
        check_order(&entries)?;
        Ok(PosixList { entries })
    }

    /// The list as it is stored and handed out.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend_from_slice(&(entry.tag as u16).to_le_bytes());
            bytes.extend_from_slice(&entry.permissions.to_le_bytes());
            bytes.extend_from_slice(&entry.id.to_le_bytes());
        }
        bytes
    }

    /// Whether the nine permission bits say all that the list says.
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// The nine permission bits that go with the list.
    pub fn mode(&self) -> u32 {
        let bits = |tag| u32::from(self.find(tag).map_or(0, |entry| entry.permissions));
        bits(Tag::Owner) << 6 | bits(self.group_tag()) << 3 | bits(Tag::Others)
    }

    /// Brings the list in step with a mode that has been set.
    pub fn set_mode(&mut self, mode: u32) {
        let group = self.group_tag();
        self.set(Tag::Owner, mode >> 6);
        self.set(group, mode >> 3);
        self.set(Tag::Others, mode);
    }

    /// What a new inode has of this list when it is made with `mode`: what both allow.
    pub fn limited_to(mut self, mode: u32) -> PosixList {
        self.set_mode(self.mode() & mode);
        self
    }

    /// The entry that the group bits of the mode stand for.
    fn group_tag(&self) -> Tag {
        if self.find(Tag::Mask).is_some() { Tag::Mask } else { Tag::OwningGroup }
    }

    fn find(&self, tag: Tag) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.tag == tag)
    }

    fn set(&mut self, tag: Tag, bits: u32) {
        let permissions = u16::try_from(bits & u32::from(PERMISSIONS)).expect("three bits");
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.tag == tag) {
            entry.permissions = permissions;
        }
    }
}

fn decode_entry(chunk: &[u8; ENTRY_BYTES]) -> Option<Entry> {
    let [t0, t1, p0, p1, i0, i1, i2, i3] = *chunk;
    let tag = Tag::from_number(u16::from_le_bytes([t0, t1]))?;
    let permissions = u16::from_le_bytes([p0, p1]);
    let id = u32::from_le_bytes([i0, i1, i2, i3]);
    let known = permissions & !PERMISSIONS == 0 && !(tag.is_named() && id == NOBODY);
    known.then_some(Entry { tag, permissions, id: if tag.is_named() { id } else { NOBODY } })
}

/// Tags ascend; only named entries repeat; the three of the mode are there, and a mask if anybody
/// is named.
fn check_order(entries: &[Entry]) -> Result<(), PosixListError> {
    let ascends = entries.windows(2).all(|pair| {
        pair[0].tag < pair[1].tag || pair[0].tag == pair[1].tag && pair[0].tag.is_named()
    });
    let has = |tag| entries.iter().any(|entry| entry.tag == tag);
    let named = entries.iter().any(|entry| entry.tag.is_named());
    let whole = has(Tag::Owner) && has(Tag::OwningGroup) && has(Tag::Others);
    if ascends && whole && (has(Tag::Mask) || !named) {
        return Ok(());
    }
    Err(PosixListError::Order)
}

#[cfg(test)]
mod tests {
    use super::{ENTRIES_MAX, NOBODY, PosixList, PosixListError};

    fn bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&permissions.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    const NAMED: [(u16, u16, u32); 5] =
        [(1, 6, NOBODY), (2, 7, 1000), (4, 4, NOBODY), (0x10, 5, NOBODY), (0x20, 1, NOBODY)];

    #[test]
    fn a_list_comes_back_as_it_was_and_goes_with_its_mode() {
        let named = PosixList::decode(&bytes(&NAMED)).unwrap();
        assert_eq!(named.encode(), bytes(&NAMED));
        assert_eq!((named.mode(), named.is_minimal()), (0o651, false));
        let minimal = [(1, 7, NOBODY), (4, 5, NOBODY), (0x20, 0, NOBODY)];
        let minimal = PosixList::decode(&bytes(&minimal)).unwrap();
        assert_eq!((minimal.mode(), minimal.is_minimal()), (0o750, true));
    }

    #[test]
    fn a_mode_changes_the_mask_and_leaves_named_entries() {
        let mut list = PosixList::decode(&bytes(&NAMED)).unwrap();
        list.set_mode(0o740);
        let expected =
            [(1, 7, NOBODY), (2, 7, 1000), (4, 4, NOBODY), (0x10, 4, NOBODY), (0x20, 0, NOBODY)];
        assert_eq!(list.encode(), bytes(&expected));
    }

    #[test]
    fn what_is_made_has_what_list_and_mode_both_allow() {
        let list = PosixList::decode(&bytes(&NAMED)).unwrap();
        assert_eq!(list.clone().limited_to(0o666).mode(), 0o640);
        assert_eq!(list.limited_to(0o777).mode(), 0o651);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let (owner, user) = ((1, 6, NOBODY), (2, 7, 5));
        let (group, mask, others) = ((4, 6, NOBODY), (0x10, 6, NOBODY), (0x20, 6, NOBODY));
        let order: [&[_]; 6] = [
            &[],
            &[owner, group],
            &[owner, others, group],
            &[owner, user, group, others],
            &[owner, owner, group, others],
            &[owner, group, mask, mask, others],
        ];
        for entries in order {
            assert_eq!(PosixList::decode(&bytes(entries)), Err(PosixListError::Order));
        }
        for bad in [(3, 6, NOBODY), (1, 8, NOBODY), (2, 7, NOBODY), (0, 0, 0)] {
            let list = bytes(&[bad, group, others]);
            assert_eq!(PosixList::decode(&list), Err(PosixListError::Entry(0)));
        }
        let many = vec![user; ENTRIES_MAX + 1];
        let too_many = PosixListError::TooMany(ENTRIES_MAX + 1);
        assert_eq!(PosixList::decode(&bytes(&many)), Err(too_many));
        assert_eq!(PosixList::decode(&[1, 0, 0, 0]), Err(PosixListError::Version(1)));
        for len in [0, 3, 5, 11] {
            assert!(PosixList::decode(&[2, 0, 0, 0, 1, 0, 6, 0, 0, 0, 0][..len]).is_err());
        }
    }
}
