//! The head of the log: what the superblock says of it.

use super::{FREEZES_MAX, POSITIONS_MAX};
use crate::FormatError;
use crate::group::Group;
use crate::pointer::{Extent, PIECES_MAX, Place, Pointer, PointerFlags, codec_id};
use crate::reader::Reader;
use bytes::{BufMut, Bytes, BytesMut};

const WHAT: &str = "head of the intent log";
const LAYOUT: u8 = 1;

/// Where the intent log lies and where a replay begins: embedded in the third pointer of the
/// superblock, whose checksum covers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// Length of the ring, of each of its copies, at least 1.
    pub grains: u32,
    /// Position of the first frame that a replay needs, below [`POSITIONS_MAX`].
    pub start: u64,
    /// Number of the last freeze that the superblock includes, below [`FREEZES_MAX`].
    pub included: u64,
    /// The two copies, each in 1 to [`PIECES_MAX`] pieces that add up to `grains`.
    pub copies: [Vec<Extent>; 2],
}

impl LogHead {
    /// The pointer that the superblock of the group `birth` has.
    ///
    /// # Panics
    /// If a field is out of its documented range.
    pub fn to_pointer(&self, birth: Group) -> Pointer {
        let content = self.encode();
        let len = u32::try_from(content.len()).expect("a head has at most 410 bytes");
        Pointer {
            birth,
            logical_len: len,
            physical_len: len,
            codec: codec_id::OFF,
            flags: PointerFlags::METADATA,
            place: Place::Embedded(content),
        }
    }

    fn encode(&self) -> Bytes {
        assert!(self.start < POSITIONS_MAX, "a position is below 2^56");
        assert!(self.included < FREEZES_MAX, "the number of a freeze is below 2^62");
        let mut out = BytesMut::with_capacity(64);
        out.put_u8(LAYOUT);
        out.put_bytes(0, 3);
        out.put_u32_le(self.grains);
        out.put_u64_le(self.start);
        out.put_u64_le(self.included);
        for copy in &self.copies {
            assert!((1..=PIECES_MAX).contains(&copy.len()), "a copy lies in 1 to 16 pieces");
            assert!(grains_of(copy) == u64::from(self.grains), "pieces add up to the ring");
            out.put_u8(u8::try_from(copy.len()).expect("at most 16 pieces"));
            copy.iter().for_each(|piece| piece.put(&mut out));
        }
        out.freeze()
    }

    /// The head in a superblock's third pointer.
    ///
    /// # Errors
    /// If the pointer is no such pointer; whatever is wrong with the bytes in it.
    pub fn from_pointer(pointer: &Pointer) -> Result<LogHead, FormatError> {
        let of_pointer = |field, offset, found, expected| {
            Err(FormatError::Unexpected { what: WHAT, field, offset, found, expected })
        };
        let Place::Embedded(content) = &pointer.place else {
            return of_pointer("layout of its pointer", 0, 0x11, "0x10");
        };
        if pointer.codec != codec_id::OFF {
            return of_pointer("codec of its pointer", 1, u64::from(pointer.codec), "0");
        }
        if pointer.flags != PointerFlags::METADATA {
            return of_pointer("flags of its pointer", 2, u64::from(pointer.flags.0), "2");
        }
        if pointer.logical_len != pointer.physical_len {
            let (found, expected) = (u64::from(pointer.logical_len), "the physical length");
            return of_pointer("logical length of its pointer", 12, found, expected);
        }
        LogHead::decode(content)
    }

    fn decode(bytes: &[u8]) -> Result<LogHead, FormatError> {
        let mut from = Reader::new(WHAT, bytes);
        from.expect_u8("layout", LAYOUT, "1")?;
        from.reserved(3)?;
        let grains = from.u32("grains of the ring")?;
        if grains == 0 {
            return Err(from.unexpected("grains of the ring", 4, 0, "at least 1"));
        }
        let head = LogHead {
            grains,
            start: from.u64_below("start", POSITIONS_MAX, "less than 2^56")?,
            included: from.u64_below("included freeze", FREEZES_MAX, "less than 2^62")?,
            copies: [take_copy(&mut from, grains)?, take_copy(&mut from, grains)?],
        };
        from.finish()?;
        Ok(head)
    }
}

fn grains_of(copy: &[Extent]) -> u64 {
    copy.iter().map(|piece| u64::from(piece.grains)).sum()
}

fn take_copy(from: &mut Reader<'_>, grains: u32) -> Result<Vec<Extent>, FormatError> {
    let offset = from.at();
    let piece_count = from.u8("number of pieces")?;
    if !(1..=PIECES_MAX).contains(&usize::from(piece_count)) {
        let found = u64::from(piece_count);
        return Err(from.unexpected("number of pieces", offset, found, "1 to 16"));
    }
    let copy = (0..piece_count).map(|_| Extent::take(from)).collect::<Result<Vec<_>, _>>()?;
    if grains_of(&copy) != u64::from(grains) {
        let expected = "as many grains as the ring has";
        return Err(from.unexpected("pieces of a copy", offset, grains_of(&copy), expected));
    }
    Ok(copy)
}
