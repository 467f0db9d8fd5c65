//! The block pointer: where a block lies, how to read it, how to know that it is the right one.
//!
//! Invariants: the checksum is in the pointer, never beside the data, so that a lost or
//! misdirected write cannot pass for good data. The birth group says whether a snapshot may hold
//! the block, without a look at any other structure. The encoding has its own length and kinds,
//! so that a pointer of one copy in one piece pays nothing for what other pointers can do.

mod scattered;

use crate::FormatError;
use crate::group::Group;
use crate::reader::Reader;
use crate::space::ZONE_GRAINS;
use bytes::{BufMut, Bytes, BytesMut};

/// Grain of all addresses and lengths on a device, in bytes.
pub const GRAIN_BYTES: u64 = 4096;
/// Longest block, before and after compression, in bytes.
pub const LEN_BYTES_MAX: u32 = 1 << 24;
/// Counts of grains, of a dataset or a pool, are below this.
pub const GRAINS_MAX: u64 = 1 << 56;
/// Most copies of a block.
pub const COPIES_MAX: usize = 3;
/// Most pieces that a copy may lie in, but for the only copy of a block: see
/// [`SCATTERED_PIECES_MAX`].
pub const PIECES_MAX: usize = 16;
/// Most pieces that the only copy of a block may lie in.
pub const SCATTERED_PIECES_MAX: usize = 256;
/// Most bytes that a pointer may hold itself.
pub const EMBEDDED_BYTES_MAX: usize = 1024;
/// Addresses on a device are below this number of grains.
pub const DEVICE_GRAINS_MAX: u64 = 1 << 48;
/// Bytes that every pointer starts with.
pub const POINTER_HEADER_BYTES: usize = 20;
/// Bytes of an encoded extent.
pub const EXTENT_BYTES: usize = 12;
/// Longest encoded pointer, in bytes.
pub const POINTER_BYTES_MAX: usize = POINTER_HEADER_BYTES + EMBEDDED_BYTES_MAX;

const WHAT: &str = "block pointer";
const LAYOUT_EMBEDDED: u8 = 0x10;
const LAYOUT_STORED: u8 = 0x11;
const LAYOUT_SCATTERED: u8 = 0x12;
/// Bytes of a stored block's pointer between its header and its checksum.
const KINDS_BYTES: usize = 2;
/// Longest checksum, in bytes.
const CHECKSUM_BYTES_MAX: usize = 32;

/// What compressed a block.
pub mod codec_id {
    /// Not compressed.
    pub const OFF: u8 = 0;
    /// An LZ4 block without frame and size.
    pub const LZ4: u8 = 1;
    /// One Zstandard frame.
    pub const ZSTD: u8 = 2;
    /// An LZO1X stream with its end mark.
    pub const LZO: u8 = 3;
    /// A raw DEFLATE stream.
    pub const GZIP: u8 = 4;
    /// Runs of zeros and of literal bytes.
    pub const ZLE: u8 = 5;
}

/// What made a checksum.
pub mod checksum_kind {
    /// No checksum: embedded data, which its node's checksum covers.
    pub const NONE: u8 = 0;
    /// XXH3 of 128 bits, seed 0; 16 bytes, little-endian.
    pub const XXH3_128: u8 = 1;
    /// BLAKE3; 32 bytes.
    pub const BLAKE3: u8 = 2;
}

/// A run of grains of one device, inside one zone (see [`ZONE_GRAINS`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// Index in the superblock's list of devices.
    pub device: u16,
    /// First grain, below [`DEVICE_GRAINS_MAX`].
    pub start: u64,
    /// Number of grains, at least 1 and no more than the zone has behind `start`.
    pub grains: u32,
}

/// A checksum and what made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Checksum {
    /// One of [`checksum_kind`].
    pub kind: u8,
    /// The checksum; what its kind does not use is zero.
    pub bytes: [u8; 32],
}

/// Properties of a block that do not follow from the rest of its pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PointerFlags(pub u16);

/// Where the content of a block is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the pointer: at most [`EMBEDDED_BYTES_MAX`] bytes, after compression.
    Embedded(Bytes),
    /// On devices.
    Stored {
        /// Checksum of the stored bytes, without what rounds them up to grains.
        checksum: Checksum,
        /// One to [`COPIES_MAX`] copies, each in one to [`PIECES_MAX`] pieces; if there is only
        /// one, in as many as [`can_be_scattered`] allows.
        copies: Vec<Vec<Extent>>,
    },
}

/// A block pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The group that wrote the block.
    pub birth: Group,
    /// Bytes of content.
    pub logical_len: u32,
    /// Bytes of content after compression, before rounding up to grains.
    pub physical_len: u32,
    /// One of [`codec_id`].
    pub codec: u8,
    /// Flags.
    pub flags: PointerFlags,
    /// Where the content is.
    pub place: Place,
}

impl PointerFlags {
    /// More than one item of the dataset may refer to the block; a REFERENCES item counts them.
    pub const SHARED: PointerFlags = PointerFlags(1 << 0);
    /// A tree node or another structure of ours, not content of a file.
    pub const METADATA: PointerFlags = PointerFlags(1 << 1);
    /// Reserved: 48 bytes follow the checksum (key id 8, nonce 24, authentication tag 16).
    pub const ENCRYPTED: PointerFlags = PointerFlags(1 << 2);
    /// The dataset has taken the block over from another one; the birth is the group in which it
    /// did, or 0 as long as it waits for that in the intent log.
    pub const ADOPTED: PointerFlags = PointerFlags(1 << 3);
    /// The flags that this version can read.
    pub const KNOWN: PointerFlags = PointerFlags(0b1011);

    /// Whether all of `flags` are set.
    pub const fn contains(self, flags: PointerFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags and those.
    #[must_use]
    pub const fn with(self, flags: PointerFlags) -> PointerFlags {
        PointerFlags(self.0 | flags.0)
    }

    /// These flags without those.
    #[must_use]
    pub const fn without(self, flags: PointerFlags) -> PointerFlags {
        PointerFlags(self.0 & !flags.0)
    }
}

impl Checksum {
    /// No checksum.
    pub const NONE: Checksum = Checksum { kind: checksum_kind::NONE, bytes: [0; 32] };

    /// Bytes that a checksum of this kind takes, or `None` if there is no such kind.
    pub const fn len_of(kind: u8) -> Option<usize> {
        match kind {
            checksum_kind::NONE => Some(0),
            checksum_kind::XXH3_128 => Some(16),
            checksum_kind::BLAKE3 => Some(32),
            _ => None,
        }
    }
}

impl Extent {
    /// The grain after the last one.
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.grains)
    }

    /// Whether it starts at a possible address and crosses no boundary between zones.
    fn is_in_one_zone(&self) -> bool {
        self.start < DEVICE_GRAINS_MAX
            && self.start % ZONE_GRAINS + u64::from(self.grains) <= ZONE_GRAINS
    }

    /// Appends the encoded extent, [`EXTENT_BYTES`] bytes.
    pub(crate) fn put(&self, out: &mut impl BufMut) {
        assert!(self.grains > 0, "an extent has at least one grain");
        assert!(self.is_in_one_zone(), "an extent lies in one zone, below 2^48 grains");
        out.put_u64_le(u64::from(self.device) << 48 | self.start);
        out.put_u32_le(self.grains);
    }

    /// Reads an encoded extent.
    pub(crate) fn take(from: &mut Reader<'_>) -> Result<Extent, FormatError> {
        let offset = from.at();
        let place = from.u64("extent")?;
        let grains = from.u32("grains of an extent")?;
        let [.., low, high] = place.to_le_bytes();
        let extent = Extent {
            device: u16::from_le_bytes([low, high]),
            start: place & (DEVICE_GRAINS_MAX - 1),
            grains,
        };
        if grains == 0 {
            return Err(from.unexpected("grains of an extent", offset + 8, 0, "at least 1"));
        }
        if !extent.is_in_one_zone() {
            let (found, expected) = (u64::from(grains), "no more than are left in its zone");
            return Err(from.unexpected("grains of an extent", offset + 8, found, expected));
        }
        Ok(extent)
    }
}

impl Pointer {
    /// The encoded pointer, at most [`POINTER_BYTES_MAX`] bytes.
    ///
    /// # Panics
    /// If a field is out of its documented range, or the pieces of a copy do not add up to
    /// `physical_len`.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64);
        self.put_header(&mut out);
        match &self.place {
            Place::Embedded(data) => out.put_slice(data),
            Place::Stored { checksum, copies } => self.put_stored(&mut out, checksum, copies),
        }
        out.freeze()
    }

    fn put_header(&self, out: &mut BytesMut) {
        let flags = self.flags.without(PointerFlags::KNOWN);
        assert!(flags.0 == 0, "only known flags are set");
        assert!(
            self.logical_len <= LEN_BYTES_MAX && self.physical_len <= LEN_BYTES_MAX,
            "a block has at most {LEN_BYTES_MAX} bytes"
        );
        let layout = match &self.place {
            Place::Stored { copies, .. } if is_scattered(copies) => LAYOUT_SCATTERED,
            Place::Stored { .. } => LAYOUT_STORED,
            Place::Embedded(data) => {
                assert!(
                    data.len() <= EMBEDDED_BYTES_MAX
                        && u32::try_from(data.len()) == Ok(self.physical_len),
                    "embedded data is short, and as long as the pointer says"
                );
                LAYOUT_EMBEDDED
            }
        };
        out.put_u8(layout);
        out.put_u8(self.codec);
        out.put_u16_le(self.flags.0);
        out.put_u64_le(self.birth.0);
        out.put_u32_le(self.logical_len);
        out.put_u32_le(self.physical_len);
    }

    fn put_stored(&self, out: &mut BytesMut, checksum: &Checksum, copies: &[Vec<Extent>]) {
        let checksum_len = Checksum::len_of(checksum.kind).expect("the checksum's kind is known");
        assert!((1..=COPIES_MAX).contains(&copies.len()), "a block has 1 to 3 copies");
        out.put_u8(checksum.kind);
        out.put_u8(u8::try_from(copies.len()).expect("at most 3 copies"));
        out.put_slice(&checksum.bytes[..checksum_len]);
        if let [copy] = copies
            && is_scattered(copies)
        {
            assert!(
                grains_of(copy) == grains_needed(self.physical_len),
                "the pieces of a copy add up to the block"
            );
            return scattered::put(copy, out);
        }
        for copy in copies {
            assert!((1..=PIECES_MAX).contains(&copy.len()), "a copy lies in 1 to 16 pieces");
            assert!(
                grains_of(copy) == grains_needed(self.physical_len),
                "the pieces of a copy add up to the block"
            );
            out.put_u8(u8::try_from(copy.len()).expect("at most 16 pieces"));
            copy.iter().for_each(|piece| piece.put(out));
        }
    }

    /// Decodes a pointer.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Pointer, FormatError> {
        let mut from = Reader::new(WHAT, bytes);
        let layout = from.u8("layout")?;
        let codec = from.u8("codec")?;
        if codec > codec_id::ZLE {
            return Err(from.unexpected("codec", 1, u64::from(codec), "0 to 5"));
        }
        let flags = PointerFlags(from.u16("flags")?);
        if flags.without(PointerFlags::KNOWN).0 != 0 {
            return Err(from.unexpected("flags", 2, u64::from(flags.0), "known flags only"));
        }
        let birth = Group(from.u64("birth")?);
        let logical_len = take_len(&mut from, "logical length")?;
        let physical_len = take_len(&mut from, "physical length")?;
        let place = match layout {
            LAYOUT_STORED | LAYOUT_SCATTERED => {
                take_stored(&mut from, physical_len, layout == LAYOUT_SCATTERED)?
            }
            LAYOUT_EMBEDDED => take_embedded(&mut from, physical_len)?,
            _ => return Err(from.unexpected("layout", 0, u64::from(layout), "0x10 to 0x12")),
        };
        from.finish()?;
        Ok(Pointer { birth, logical_len, physical_len, codec, flags, place })
    }

    /// Grains that all copies hold together; 0 for embedded data.
    pub fn grains(&self) -> u64 {
        match &self.place {
            Place::Embedded(_) => 0,
            Place::Stored { copies, .. } => copies.iter().map(|copy| grains_of(copy)).sum(),
        }
    }

    /// The identity of a stored block: device (16 bits) and first grain (48 bits) of the first
    /// copy. `None` for embedded data.
    pub fn address(&self) -> Option<u64> {
        match &self.place {
            Place::Embedded(_) => None,
            Place::Stored { copies, .. } => {
                let first = copies.first()?.first()?;
                Some(u64::from(first.device) << 48 | first.start)
            }
        }
    }

    /// Birth and address of an encoded pointer, without decoding the rest: what a cache asks for
    /// on each step of a look-up. `None` for embedded data and for bytes that are no pointer.
    pub fn peek_identity(encoded: &[u8]) -> Option<(Group, u64)> {
        let word = |at: usize| Some(u64::from_le_bytes(encoded.get(at..at + 8)?.try_into().ok()?));
        let layout = *encoded.first()?;
        if layout != LAYOUT_STORED && layout != LAYOUT_SCATTERED {
            return None;
        }
        let checksum_len = Checksum::len_of(*encoded.get(POINTER_HEADER_BYTES)?)?;
        let first_copy = POINTER_HEADER_BYTES + KINDS_BYTES + checksum_len;
        let address = match layout {
            LAYOUT_SCATTERED => scattered::peek_address(encoded.get(first_copy..)?)?,
            _ => word(first_copy + 1)?,
        };
        Some((Group(word(4)?), address))
    }

    /// Bytes of content of an encoded pointer, without decoding the rest. `None` for bytes that are
    /// too short to tell.
    pub fn peek_logical_len(encoded: &[u8]) -> Option<u32> {
        Some(u32::from_le_bytes(encoded.get(12..16)?.try_into().ok()?))
    }

    /// Whether it takes the feature [`crate::version::feature::SCATTERED`] to read it.
    pub fn is_scattered(&self) -> bool {
        matches!(&self.place, Place::Stored { copies, .. } if is_scattered(copies))
    }

    /// Of an adopted block the group in which it was adopted.
    pub fn adopted(&self) -> Option<Group> {
        self.flags.contains(PointerFlags::ADOPTED).then_some(self.birth)
    }

    /// Whether an encoded pointer has the flag adopted and birth 0, without decoding the rest.
    pub fn peek_waiting(encoded: &[u8]) -> bool {
        const FLAG: u8 = PointerFlags::ADOPTED.0.to_le_bytes()[0];
        encoded.get(2..12).is_some_and(|bytes| bytes[0] & FLAG != 0 && bytes[2..] == [0; 8])
    }

    /// All extents of all copies.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        let copies: &[Vec<Extent>] = match &self.place {
            Place::Embedded(_) => &[],
            Place::Stored { copies, .. } => copies,
        };
        copies.iter().flatten().copied()
    }
}

/// Grains that `len_bytes` bytes take on a device.
pub fn grains_needed(len_bytes: u32) -> u64 {
    u64::from(len_bytes).div_ceil(GRAIN_BYTES)
}

fn grains_of(copy: &[Extent]) -> u64 {
    copy.iter().map(|piece| u64::from(piece.grains)).sum()
}

fn take_len(from: &mut Reader<'_>, field: &'static str) -> Result<u32, FormatError> {
    let offset = from.at();
    let len = from.u32(field)?;
    if len <= LEN_BYTES_MAX {
        return Ok(len);
    }
    Err(from.unexpected(field, offset, u64::from(len), "at most 2^24"))
}

fn take_embedded(from: &mut Reader<'_>, len: u32) -> Result<Place, FormatError> {
    match usize::try_from(len) {
        Ok(len) if len <= EMBEDDED_BYTES_MAX => {
            Ok(Place::Embedded(Bytes::copy_from_slice(from.take("embedded data", len)?)))
        }
        _ => Err(from.unexpected("physical length", 16, u64::from(len), "at most 1024")),
    }
}

fn take_stored(
    from: &mut Reader<'_>,
    physical_len: u32,
    is_scattered: bool,
) -> Result<Place, FormatError> {
    let offset = from.at();
    if physical_len == 0 {
        return Err(from.unexpected("physical length", 16, 0, "at least 1"));
    }
    let kind = from.u8("checksum kind")?;
    let copy_count = from.u8("number of copies")?;
    let Some(checksum_len) = Checksum::len_of(kind) else {
        return Err(from.unexpected("checksum kind", offset, u64::from(kind), "0, 1 or 2"));
    };
    if !(1..=COPIES_MAX).contains(&usize::from(copy_count)) {
        let found = u64::from(copy_count);
        return Err(from.unexpected("number of copies", offset + 1, found, "1 to 3"));
    }
    if is_scattered && copy_count != 1 {
        let found = u64::from(copy_count);
        return Err(from.unexpected("copies of a scattered block", offset + 1, found, "1"));
    }
    let mut checksum = Checksum { kind, bytes: [0; 32] };
    checksum.bytes[..checksum_len].copy_from_slice(from.take("checksum", checksum_len)?);
    let take = |_| take_copy(from, physical_len, is_scattered);
    let copies = (0..copy_count).map(take).collect::<Result<_, _>>()?;
    Ok(Place::Stored { checksum, copies })
}

fn take_copy(
    from: &mut Reader<'_>,
    physical_len: u32,
    is_scattered: bool,
) -> Result<Vec<Extent>, FormatError> {
    let offset = from.at();
    let copy = if is_scattered { scattered::take(from)? } else { take_pieces(from)? };
    if grains_of(&copy) != grains_needed(physical_len) {
        let expected = "as many grains as the physical length takes";
        return Err(from.unexpected("pieces of a copy", offset, grains_of(&copy), expected));
    }
    Ok(copy)
}

fn take_pieces(from: &mut Reader<'_>) -> Result<Vec<Extent>, FormatError> {
    let offset = from.at();
    let piece_count = from.u8("number of pieces")?;
    if !(1..=PIECES_MAX).contains(&usize::from(piece_count)) {
        let found = u64::from(piece_count);
        return Err(from.unexpected("number of pieces", offset, found, "1 to 16"));
    }
    (0..piece_count).map(|_| Extent::take(from)).collect()
}

/// Whether copies are encoded as a scattered one.
fn is_scattered(copies: &[Vec<Extent>]) -> bool {
    matches!(copies, [copy] if copy.len() > PIECES_MAX)
}

/// Whether the only copy of a block can lie in these pieces: a pointer of it is no longer than
/// [`POINTER_BYTES_MAX`], whatever its checksum.
pub fn can_be_scattered(pieces: &[Extent]) -> bool {
    let head = POINTER_HEADER_BYTES + KINDS_BYTES + CHECKSUM_BYTES_MAX;
    scattered::fits(pieces, POINTER_BYTES_MAX - head)
}
