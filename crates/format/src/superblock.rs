//! The superblock: the one place from which everything else is found.
//!
//! A group commit ends with the write of one slot. Two rings of slots, far apart on each device,
//! keep the last commits, so that a torn slot, or damage in one place, leaves the commit before
//! to be found. A slot is valid only as a whole: one checksum covers all of it.

use crate::FormatError;
use crate::dataset::DATASETS_MAX;
use crate::group::{GROUPS_MAX, Group};
use crate::pointer::{GRAINS_MAX, POINTER_BYTES_MAX, Pointer};
use crate::reader::Reader;
use crate::version::{FormatVersion, feature};
use xxhash_rust::xxh3::xxh3_128;

/// Bytes of a superblock slot.
pub const SUPERBLOCK_BYTES: usize = 4096;
/// Slots of a ring.
pub const RING_SLOTS: u64 = 64;
/// Where the two rings of a device start, in bytes.
pub const RING_OFFSETS: [u64; 2] = [64 << 10, 512 << 10];
/// Where the space for blocks starts on a device, in bytes.
pub const DATA_START_BYTES: u64 = 1 << 20;
/// What every superblock starts with.
pub const SUPERBLOCK_MAGIC: [u8; 8] = *b"MarramSB";
/// Longest label of a pool, in bytes.
pub const LABEL_BYTES_MAX: usize = 64;
/// Most devices that a superblock lists.
pub const DEVICES_MAX: usize = 24;

const WHAT: &str = "superblock";
/// Bytes before the variable part.
const FIXED_BYTES: usize = 192;
/// Bytes of a device entry as this version writes it, its length field included.
const DEVICE_ENTRY_BYTES: usize = 28;
/// Where the checksum is.
const CHECKSUM_OFFSET: usize = SUPERBLOCK_BYTES - 16;

const _: () = assert!(
    FIXED_BYTES + 3 * POINTER_BYTES_MAX + DEVICES_MAX * DEVICE_ENTRY_BYTES <= CHECKSUM_OFFSET,
    "the largest superblock fits into a slot"
);

/// What a device of the pool is.
pub mod device_kind {
    /// One file or block device.
    pub const SINGLE: u8 = 0;
    /// Reserved: several devices with the same content.
    pub const MIRROR: u8 = 1;
    /// Reserved: several devices, striped with parity.
    pub const PARITY: u8 = 2;
}

/// A device of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceEntry {
    /// The device's id.
    pub id: [u8; 16],
    /// Bytes of it that the pool uses, from its start.
    pub size_bytes: u64,
    /// One of [`device_kind`]; this version knows [`device_kind::SINGLE`].
    pub kind: u8,
}

/// A superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The pool's id, given at its creation.
    pub pool_id: [u8; 16],
    /// The pool's label, at most [`LABEL_BYTES_MAX`] bytes.
    pub label: String,
    /// Version of the format that wrote it.
    pub version: FormatVersion,
    /// Features without which the pool must not be touched; [`feature`] has the bits.
    pub features_incompatible: u64,
    /// Features without which the pool can be read but not written.
    pub features_read_compatible: u64,
    /// Features that do no harm where they are not known.
    pub features_compatible: u64,
    /// The group that this superblock commits, below [`GROUPS_MAX`].
    pub group: Group,
    /// When it was committed, in seconds since 1970.
    pub committed_seconds: i64,
    /// When the pool was created, in seconds since 1970.
    pub created_seconds: i64,
    /// The pool's devices, at most [`DEVICES_MAX`]; extents name them by index.
    pub devices: Vec<DeviceEntry>,
    /// Which of the devices this copy lies on.
    pub device_index: u16,
    /// Root of the pool's own tree.
    pub pool_tree: Option<Pointer>,
    /// The [`crate::space::Tail`] of the group.
    pub tail: Option<Pointer>,
    /// The [`crate::log::LogHead`], embedded; a pool that has it has the feature
    /// [`feature::INTENT_LOG`].
    pub intent_log: Option<Pointer>,
    /// The id that the next dataset, snapshot or dead list gets, below [`DATASETS_MAX`].
    pub next_dataset: u64,
    /// Grains in use, all copies counted, without those below [`DATA_START_BYTES`].
    pub allocated_grains: u64,
    /// A random number that nobody outside knows; seeds the checksums of frames of the intent log.
    pub secret: u64,
}

/// Where the slot of a group is on a device, in bytes, for each ring (0 or 1).
///
/// # Panics
/// If there is no such ring.
pub fn slot_offset(ring: usize, group: Group) -> u64 {
    let slot_bytes = u64::try_from(SUPERBLOCK_BYTES).expect("4096 fits");
    RING_OFFSETS[ring] + group.0 % RING_SLOTS * slot_bytes
}

impl Superblock {
    /// The slot, checksum included.
    ///
    /// # Panics
    /// If a field is out of its documented range.
    pub fn encode(&self) -> Vec<u8> {
        let encoded = |pointer: &Option<Pointer>| pointer.as_ref().map(Pointer::encode);
        let pointers = [encoded(&self.pool_tree), encoded(&self.tail), encoded(&self.intent_log)];
        let mut out = Vec::with_capacity(SUPERBLOCK_BYTES);
        self.put_fixed(&mut out);
        for pointer in &pointers {
            put_u16_len(&mut out, pointer.as_ref().map_or(0, bytes::Bytes::len));
        }
        out.resize(FIXED_BYTES, 0);
        for pointer in pointers.iter().flatten() {
            out.extend_from_slice(pointer);
        }
        for device in &self.devices {
            device.put(&mut out);
        }
        out.resize(CHECKSUM_OFFSET, 0);
        let checksum = xxh3_128(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Everything up to the lengths of the pointers.
    fn put_fixed(&self, out: &mut Vec<u8>) {
        assert!(
            self.devices.len() <= DEVICES_MAX,
            "a superblock lists at most {DEVICES_MAX} devices"
        );
        assert!(
            usize::from(self.device_index) < self.devices.len(),
            "a superblock lies on one of its devices"
        );
        out.extend_from_slice(&SUPERBLOCK_MAGIC);
        put_version(out, self.version);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.features_incompatible.to_le_bytes());
        out.extend_from_slice(&self.features_read_compatible.to_le_bytes());
        out.extend_from_slice(&self.features_compatible.to_le_bytes());
        out.extend_from_slice(&self.pool_id);
        put_label(out, &self.label);
        out.extend_from_slice(&self.group.0.to_le_bytes());
        out.extend_from_slice(&self.committed_seconds.to_le_bytes());
        out.extend_from_slice(&self.created_seconds.to_le_bytes());
        out.extend_from_slice(&self.next_dataset.to_le_bytes());
        out.extend_from_slice(&self.allocated_grains.to_le_bytes());
        out.extend_from_slice(&self.secret.to_le_bytes());
        out.extend_from_slice(&self.device_index.to_le_bytes());
        put_u16_len(out, self.devices.len());
    }

    /// Decodes a slot.
    ///
    /// # Errors
    /// [`FormatError::Blank`] if nothing was ever written, [`FormatError::Foreign`] if something
    /// else lies there, [`FormatError::Checksum`] if it is torn or damaged,
    /// [`FormatError::Newer`] and [`FormatError::Features`] if only a newer program can read the
    /// pool, else what is malformed.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, FormatError> {
        let mut from = open_page(WHAT, SUPERBLOCK_MAGIC, bytes)?;
        let version = take_version(&mut from)?;
        from.reserved(4)?;
        let features_incompatible = from.u64("incompatible features")?;
        check_features(features_incompatible)?;
        let mut superblock = Superblock {
            version,
            features_incompatible,
            features_read_compatible: from.u64("read-compatible features")?,
            features_compatible: from.u64("compatible features")?,
            pool_id: from.array("pool id")?,
            label: take_label(&mut from)?,
            group: Group(from.u64_below("group", GROUPS_MAX, "less than 2^40")?),
            committed_seconds: from.i64("time of the commit")?,
            created_seconds: from.i64("time of creation")?,
            next_dataset: from.u64_below("next dataset", DATASETS_MAX, "less than 2^62")?,
            allocated_grains: from.u64_below("allocated grains", GRAINS_MAX, "less than 2^56")?,
            secret: from.u64("secret")?,
            device_index: from.u16("device index")?,
            devices: Vec::new(),
            pool_tree: None,
            tail: None,
            intent_log: None,
        };
        let device_count = take_device_count(&mut from, superblock.device_index)?;
        let lens = [
            from.u16("length of the pool tree's pointer")?,
            from.u16("length of the tail's pointer")?,
            from.u16("length of the intent log's pointer")?,
        ];
        from.reserved(FIXED_BYTES - from.at())?;
        superblock.pool_tree = take_pointer(&mut from, "pool tree", lens[0])?;
        superblock.tail = take_pointer(&mut from, "tail", lens[1])?;
        superblock.intent_log = take_pointer(&mut from, "intent log", lens[2])?;
        superblock.devices =
            (0..device_count).map(|_| DeviceEntry::take(&mut from)).collect::<Result<_, _>>()?;
        Ok(superblock)
    }

    /// The read-compatible features that this version does not know, by name; while there are
    /// any, the pool may only be read.
    pub fn write_obstacle(&self) -> Option<String> {
        let unknown = self.features_read_compatible & !feature::READ_COMPATIBLE_KNOWN;
        (unknown != 0).then(|| feature::read_compatible_names(unknown))
    }
}

impl DeviceEntry {
    fn put(&self, out: &mut Vec<u8>) {
        put_u16_len(out, DEVICE_ENTRY_BYTES);
        out.push(self.kind);
        out.push(0);
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&self.size_bytes.to_le_bytes());
    }

    /// Reads an entry and passes over what a later minor version has added to it.
    fn take(from: &mut Reader<'_>) -> Result<DeviceEntry, FormatError> {
        let offset = from.at();
        let len = usize::from(from.u16("length of a device entry")?);
        let Some(added_len) = len.checked_sub(DEVICE_ENTRY_BYTES) else {
            let found = u64::try_from(len).unwrap_or(u64::MAX);
            return Err(from.unexpected("length of a device entry", offset, found, "at least 28"));
        };
        let kind = from.u8("kind of a device")?;
        if kind != device_kind::SINGLE {
            return Err(from.unexpected("kind of a device", offset + 2, u64::from(kind), "0"));
        }
        from.reserved(1)?;
        let entry = DeviceEntry {
            kind,
            id: from.array("id of a device")?,
            size_bytes: from.u64("size of a device")?,
        };
        from.take("rest of a device entry", added_len)?;
        Ok(entry)
    }
}

fn check_features(bits: u64) -> Result<(), FormatError> {
    let unknown = bits & !feature::INCOMPATIBLE_KNOWN;
    if unknown == 0 {
        return Ok(());
    }
    Err(FormatError::Features {
        what: WHAT,
        bits: unknown,
        names: feature::incompatible_names(unknown),
    })
}

fn take_device_count(from: &mut Reader<'_>, device_index: u16) -> Result<u16, FormatError> {
    let offset = from.at();
    let count = from.u16("number of devices")?;
    if usize::from(count) > DEVICES_MAX {
        return Err(from.unexpected("number of devices", offset, u64::from(count), "at most 24"));
    }
    if device_index >= count {
        let (found, expected) = (u64::from(device_index), "less than the number of devices");
        return Err(from.unexpected("device index", offset - 2, found, expected));
    }
    Ok(count)
}

fn take_pointer(
    from: &mut Reader<'_>,
    field: &'static str,
    len: u16,
) -> Result<Option<Pointer>, FormatError> {
    let bytes = from.take(field, usize::from(len))?;
    if bytes.is_empty() {
        return Ok(None);
    }
    Pointer::decode(bytes).map(Some)
}

/// Checks size, magic and checksum of a page, and returns a reader that stands after the magic
/// and ends before the checksum. These three are in the same places in every version.
pub(crate) fn open_page<'a>(
    what: &'static str,
    magic: [u8; 8],
    bytes: &'a [u8],
) -> Result<Reader<'a>, FormatError> {
    let mut whole = Reader::new(what, bytes);
    let body = whole.take("fields", CHECKSUM_OFFSET)?;
    let expected = u128::from_le_bytes(whole.array("checksum")?);
    whole.finish()?;
    if *bytes == [0; SUPERBLOCK_BYTES] {
        return Err(FormatError::Blank { what });
    }
    let mut from = Reader::new(what, body);
    let start: [u8; 8] = from.array("magic")?;
    if start != magic {
        return Err(FormatError::Foreign { what, found: start.to_vec() });
    }
    let found = xxh3_128(body);
    if found != expected {
        return Err(FormatError::Checksum { what, found, expected });
    }
    check_version(what, body)?;
    Ok(from)
}

fn check_version(what: &'static str, body: &[u8]) -> Result<(), FormatError> {
    let mut from = Reader::new(what, body);
    from.take("magic", 8)?;
    let found = take_version(&mut from)?;
    if found.major > FormatVersion::CURRENT.major {
        return Err(FormatError::Newer { what, found, supported: FormatVersion::CURRENT });
    }
    if found.major == 0 {
        return Err(from.unexpected("major version", 8, 0, "at least 1"));
    }
    Ok(())
}

/// Appends a version, 4 bytes.
pub(crate) fn put_version(out: &mut Vec<u8>, version: FormatVersion) {
    out.extend_from_slice(&version.major.to_le_bytes());
    out.extend_from_slice(&version.minor.to_le_bytes());
}

/// Reads a version.
pub(crate) fn take_version(from: &mut Reader<'_>) -> Result<FormatVersion, FormatError> {
    Ok(FormatVersion { major: from.u16("major version")?, minor: from.u16("minor version")? })
}

/// Appends a label: its length in 8 bytes, and 64 bytes filled up with zeros.
pub(crate) fn put_label(out: &mut Vec<u8>, label: &str) {
    assert!(label.len() <= LABEL_BYTES_MAX, "a label has at most {LABEL_BYTES_MAX} bytes");
    out.push(u8::try_from(label.len()).expect("at most 64"));
    out.extend_from_slice(&[0; 7]);
    out.extend_from_slice(label.as_bytes());
    out.resize(out.len() + LABEL_BYTES_MAX - label.len(), 0);
}

/// Reads a label.
pub(crate) fn take_label(from: &mut Reader<'_>) -> Result<String, FormatError> {
    let offset = from.at();
    let len = usize::from(from.u8("length of the label")?);
    let Some(padding_len) = LABEL_BYTES_MAX.checked_sub(len) else {
        let found = u64::try_from(len).unwrap_or(u64::MAX);
        return Err(from.unexpected("length of the label", offset, found, "at most 64"));
    };
    from.reserved(7)?;
    let label = from.text("label", len)?;
    from.reserved(padding_len)?;
    Ok(label)
}

fn put_u16_len(out: &mut Vec<u8>, len: usize) {
    let len = u16::try_from(len).expect("parts of a superblock are shorter than it");
    out.extend_from_slice(&len.to_le_bytes());
}
