//! The header of an image: how an image is made, recognised and labelled.

use crate::error::ImageError;
use crate::layout::{
    FIRST_PAGE, HEADER_BYTES, HEADER_CHECKED, INODE, LABEL_BYTES_MAX, MAGIC, NUMBER_LIMIT, PAGE,
    PAGES_MAX, PAGES_MIN, SLOT, SLOTS, SlotHead, SlotKind, VERSION, slot_field,
};
use crate::memory::Memory;
use crate::state::ROOT_NAME;
use crate::time::{cut, encode};
use marram_vfs::{Caller, Error, Ino, Kind, Result, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

/// The number of the root dataset: the one behind that of its root directory.
const ROOT_NUMBER: u64 = Ino::ROOT.0 + 1;

/// Where the header has the number of pages.
const PAGES_AT: usize = 16;
/// Where it has the id.
const ID_AT: usize = 24;
/// Where it has the label.
pub(crate) const LABEL_AT: usize = 40;
/// Where it has the time at which it was made.
pub(crate) const CREATED_AT: usize = 104;

/// What an image says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its number among all images.
    pub id: [u8; 16],
    /// What people call it: at most 64 bytes of UTF-8.
    pub label: String,
    /// Pages of 4 KiB that it has.
    pub pages: u64,
    /// When it was made, in seconds since 1970.
    pub created: i64,
}

/// What an image that is to be made gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewImage {
    /// Its number among all images.
    pub id: [u8; 16],
    /// What people call it.
    pub label: String,
    /// The present.
    pub now: Timestamp,
    /// Owner of the root directory.
    pub root_owner: Caller,
}

impl NewImage {
    /// Refuses what no image can be made of, before anything is touched.
    ///
    /// # Errors
    /// The label is too long, or has a NUL.
    pub fn check(&self) -> Result<()> {
        check_label(&self.label)
    }
}

impl Header {
    /// The first bytes of the image.
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(PAGES_AT, &self.pages.to_le_bytes());
        put(ID_AT, &self.id);
        put(LABEL_AT, self.label.as_bytes());
        put(CREATED_AT, &self.created.to_le_bytes());
        let checksum = xxh3_64(&bytes[..HEADER_CHECKED]);
        bytes[HEADER_CHECKED..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the header of an image.
    ///
    /// # Errors
    /// There is no image, or it is of another version, or damaged.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> std::result::Result<Header, ImageError> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        if bytes[..8] != MAGIC {
            return Err(ImageError::NoImage("the file begins otherwise".to_owned()));
        }
        let version = (word(8) & 0xffff_ffff) as u32;
        if version != VERSION {
            return Err(ImageError::Version(version));
        }
        if xxh3_64(&bytes[..HEADER_CHECKED]) != word(HEADER_CHECKED) {
            return Err(ImageError::Damaged("its header does not match its checksum".to_owned()));
        }
        let label = &bytes[LABEL_AT..LABEL_AT + LABEL_BYTES_MAX];
        let len = label.iter().position(|byte| *byte == 0).unwrap_or(label.len());
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[ID_AT..ID_AT + 16]);
        let pages = word(PAGES_AT);
        if !(PAGES_MIN..=PAGES_MAX).contains(&pages) {
            return Err(ImageError::Damaged(format!("its header says {pages} pages")));
        }
        let label = String::from_utf8_lossy(&label[..len]).into_owned();
        Ok(Header { id, label, pages, created: word(CREATED_AT) as i64 })
    }

    /// The header of an image that is open.
    ///
    /// # Errors
    /// As [`Header::decode`].
    pub(crate) fn read(memory: &Memory) -> std::result::Result<Header, ImageError> {
        let mut bytes = [0; HEADER_BYTES];
        memory.read(0, &mut bytes)?;
        Header::decode(&bytes)
    }
}

/// Refuses a label that an image cannot have.
pub(crate) fn check_label(label: &str) -> Result<()> {
    if label.len() > LABEL_BYTES_MAX {
        return Err(Error::InvalidArgument("a label has at most 64 bytes"));
    }
    if label.contains('\0') {
        return Err(Error::InvalidArgument("a label has no NUL"));
    }
    Ok(())
}

/// Makes an empty image in `memory`. The first bytes come last: what is not whole is no image.
///
/// # Errors
/// The memory has no size that an image can have, or the label is too long.
pub fn make(memory: &mut Memory, new: &NewImage) -> std::result::Result<(), ImageError> {
    new.check()?;
    let pages = memory.bytes() / PAGE;
    if !(PAGES_MIN..=PAGES_MAX).contains(&pages) || !memory.bytes().is_multiple_of(PAGE) {
        return Err(ImageError::Damaged(format!("an image cannot have {pages} pages")));
    }
    let table = FIRST_PAGE * PAGE;
    memory.fill(0, &vec![0; table as usize + PAGE as usize])?;
    let time = encode(cut(new.now), false).word;
    let root = [
        u64::from(Kind::Directory.mode_bits() | 0o755) | 2 << 32,
        u64::from(new.root_owner.uid) | u64::from(new.root_owner.gid) << 32,
        Ino::ROOT.0,
        0,
        time,
        time,
        time,
        time,
    ];
    let bytes: Vec<u8> = root.iter().flat_map(|word| word.to_le_bytes()).collect();
    memory.fill(table + Ino::ROOT.0 * INODE, &bytes)?;
    let slot = SLOTS + SLOT;
    let words = [table, ROOT_NUMBER, 0, new.now.seconds as u64, Ino::ROOT.0].map(u64::to_le_bytes);
    memory.fill(slot + slot_field::ROOT, &words.concat())?;
    memory.fill(slot + slot_field::NAME, ROOT_NAME.as_bytes())?;
    let head = SlotHead::Used { kind: SlotKind::Dataset, name_len: ROOT_NAME.len() };
    memory.store(slot + slot_field::HEAD, 8, head.encode())?;
    memory.store(NUMBER_LIMIT, 8, ROOT_NUMBER + 1)?;
    let (id, label) = (new.id, new.label.clone());
    let header = Header { id, label, pages, created: new.now.seconds }.encode();
    memory.fill(8, &header[8..])?;
    memory.persist();
    memory.write_back()?;
    memory.store(0, 8, u64::from_le_bytes(MAGIC))?;
    memory.persist();
    memory.write_back()?;
    Ok(())
}
