//! Encoding of replies and notifications.

use marram_vfs::{Attributes, Kind, SpaceReport, Timestamp};
use std::time::Duration;

use super::flags::statx;

/// Bytes of a reply's header.
const REPLY_HEADER_BYTES: usize = 16;
/// Bytes of a directory entry before its name.
const ENTRY_HEADER_BYTES: usize = 24;
/// Bytes of a LOOKUP reply, which READDIRPLUS puts before each directory entry.
const LOOKUP_REPLY_BYTES: usize = 128;
/// Grain in which space is reported, in bytes.
const SPACE_GRAIN_BYTES: u64 = 4096;

/// The header of a reply to the request `unique`: an error number, or 0.
pub(crate) fn reply_header(
    unique: u64,
    errno: i32,
    payload_bytes: usize,
) -> [u8; REPLY_HEADER_BYTES] {
    let len = u32::try_from(REPLY_HEADER_BYTES + payload_bytes).expect("replies are bounded");
    header(len, errno.wrapping_neg(), unique)
}

fn header(len: u32, code: i32, unique: u64) -> [u8; REPLY_HEADER_BYTES] {
    let mut bytes = [0; REPLY_HEADER_BYTES];
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    bytes[4..8].copy_from_slice(&code.to_le_bytes());
    bytes[8..].copy_from_slice(&unique.to_le_bytes());
    bytes
}

/// What a message to the kernel that answers no request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotifyCode {
    /// Attributes and content of an inode may have changed.
    Inode = 2,
    /// A name may mean something else.
    Entry = 3,
    /// Any name may mean something else.
    AllNames = 8,
    /// Inodes are to be forgotten if nobody uses them.
    Unused = 9,
}

impl NotifyCode {
    /// The header of such a message.
    pub(crate) fn header(self, payload_bytes: usize) -> [u8; REPLY_HEADER_BYTES] {
        let len = u32::try_from(REPLY_HEADER_BYTES + payload_bytes).expect("messages are bounded");
        header(len, self as i32, 0)
    }
}

/// Puts fields at the end of a reply's payload.
pub(crate) struct Encoder<'a>(pub(crate) &'a mut Vec<u8>);

impl Encoder<'_> {
    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn i64(&mut self, value: i64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn zeros(&mut self, count: usize) -> &mut Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    /// Reply to STATFS.
    pub(crate) fn space(&mut self, space: &SpaceReport, name_bytes_max: u32) {
        let grain = u32::try_from(SPACE_GRAIN_BYTES).expect("the grain is small");
        let free = space.free_bytes / SPACE_GRAIN_BYTES;
        self.u64(space.total_bytes / SPACE_GRAIN_BYTES).u64(free).u64(free);
        self.u64(space.inodes_used.saturating_add(space.inodes_free)).u64(space.inodes_free);
        self.u32(grain).u32(name_bytes_max).u32(grain).zeros(4 + 6 * 4);
    }

    /// One directory entry with its padding.
    pub(crate) fn directory_entry(&mut self, name: &[u8], ino: u64, kind: Kind, next: u64) {
        let name_bytes = u32::try_from(name.len()).expect("names are bounded");
        self.u64(ino).u64(next).u32(name_bytes).u32(kind.mode_bits() >> 12).bytes(name);
        self.zeros(name.len().next_multiple_of(8) - name.len());
    }

    /// What a READDIRPLUS entry without attributes (`.` and `..`) begins with.
    pub(crate) fn no_lookup(&mut self) {
        self.zeros(LOOKUP_REPLY_BYTES);
    }

    /// Reply to INIT.
    pub(crate) fn init(&mut self, reply: &InitReply) {
        let (low, high) = split(reply.flags);
        self.u32(super::MAJOR).u32(super::MINOR).u32(reply.read_ahead_bytes).u32(low);
        self.u16(reply.background_max).u16(reply.congestion_threshold);
        self.u32(reply.write_bytes_max).u32(reply.time_grain_nanoseconds);
        self.u16(reply.pages_max).u16(0).u32(high).zeros(4 + 2 + 11 * 2);
    }
}

/// How many bytes a directory entry takes in a reply.
pub(crate) fn directory_entry_bytes(name: &[u8], with_lookup: bool) -> usize {
    let lookup = if with_lookup { LOOKUP_REPLY_BYTES } else { 0 };
    lookup + ENTRY_HEADER_BYTES + name.len().next_multiple_of(8)
}

fn split(flags: u64) -> (u32, u32) {
    let word = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("32 bits are left");
    (word(flags), word(flags >> 32))
}

/// What is agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InitReply {
    pub(crate) flags: u64,
    pub(crate) read_ahead_bytes: u32,
    pub(crate) background_max: u16,
    pub(crate) congestion_threshold: u16,
    pub(crate) write_bytes_max: u32,
    pub(crate) time_grain_nanoseconds: u32,
    pub(crate) pages_max: u16,
}

/// Setuid and setgid.
const PRIVILEGES: u32 = 0o6000;

/// How attributes are answered: how long they hold, and what I/O size to prefer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttributesEncoding {
    pub(crate) entry_timeout: Duration,
    pub(crate) absence_timeout: Duration,
    pub(crate) attributes_timeout: Duration,
    /// `st_blksize` of regular files, in bytes.
    pub(crate) preferred_io_bytes: u32,
}

impl AttributesEncoding {
    /// The same, with answers that hold for no time.
    pub(crate) fn for_no_time(self) -> AttributesEncoding {
        AttributesEncoding {
            entry_timeout: Duration::ZERO,
            absence_timeout: Duration::ZERO,
            attributes_timeout: Duration::ZERO,
            ..self
        }
    }

    /// Reply to LOOKUP and all that make or find an inode.
    pub(crate) fn entry(&self, out: &mut Encoder<'_>, attributes: &Attributes) {
        let timeout = self.timeout_of(attributes);
        out.u64(attributes.ino.0).u64(attributes.generation);
        entry_times(out, self.entry_timeout, timeout);
        self.attributes(out, attributes);
    }

    /// Reply to a LOOKUP that found nothing, to be remembered.
    pub(crate) fn no_entry(&self, out: &mut Encoder<'_>) {
        out.u64(0).u64(0);
        entry_times(out, self.absence_timeout, self.attributes_timeout);
        out.zeros(LOOKUP_REPLY_BYTES - 40);
    }

    /// How long the kernel may take these attributes for granted. It does not learn that a write,
    /// a copy or an allocation has taken setuid or setgid away: it would go on starting a program
    /// that a stranger has changed with the privileges of its owner.
    fn timeout_of(&self, attributes: &Attributes) -> Duration {
        let privileged =
            attributes.kind == Kind::Regular && attributes.permissions & PRIVILEGES != 0;
        if privileged { Duration::ZERO } else { self.attributes_timeout }
    }

    /// Reply to GETATTR and SETATTR.
    pub(crate) fn timed_attributes(&self, out: &mut Encoder<'_>, attributes: &Attributes) {
        let timeout = self.timeout_of(attributes);
        out.u64(timeout.as_secs()).u32(timeout.subsec_nanos()).zeros(4);
        self.attributes(out, attributes);
    }

    fn attributes(&self, out: &mut Encoder<'_>, of: &Attributes) {
        out.u64(of.ino.0).u64(of.size).u64(of.blocks_512);
        out.i64(of.accessed.seconds).i64(of.modified.seconds).i64(of.changed.seconds);
        out.u32(of.accessed.nanoseconds).u32(of.modified.nanoseconds).u32(of.changed.nanoseconds);
        out.u32(mode(of)).u32(of.links).u32(of.uid).u32(of.gid).u32(of.device);
        out.u32(self.io_bytes(of)).zeros(4);
    }

    /// Reply to STATX.
    pub(crate) fn extended_attributes(&self, out: &mut Encoder<'_>, of: &Attributes) {
        let timeout = self.timeout_of(of);
        out.u64(timeout.as_secs()).u32(timeout.subsec_nanos()).zeros(4 + 16);
        out.u32(statx::BASIC | statx::BIRTH).u32(self.io_bytes(of)).zeros(8);
        out.u32(of.links).u32(of.uid).u32(of.gid);
        out.u16(u16::try_from(mode(of)).expect("modes have 16 bits")).zeros(2);
        out.u64(of.ino.0).u64(of.size).u64(of.blocks_512).zeros(8);
        for time in [of.accessed, of.created, of.changed, of.modified] {
            extended_time(out, time);
        }
        let (major, minor) = device_numbers(of.device);
        out.u32(major).u32(minor).zeros(8 + 14 * 8);
    }

    fn io_bytes(&self, of: &Attributes) -> u32 {
        match of.kind {
            Kind::Regular => self.preferred_io_bytes,
            _ => 4096,
        }
    }
}

/// How long a name and its attributes hold.
fn entry_times(out: &mut Encoder<'_>, name: Duration, attributes: Duration) {
    out.u64(name.as_secs()).u64(attributes.as_secs());
    out.u32(name.subsec_nanos()).u32(attributes.subsec_nanos());
}

fn mode(of: &Attributes) -> u32 {
    of.kind.mode_bits() | of.permissions & 0o7777
}

fn extended_time(out: &mut Encoder<'_>, time: Timestamp) {
    out.i64(time.seconds).u32(time.nanoseconds).zeros(4);
}

/// Takes the kernel's 32-bit device number apart.
fn device_numbers(device: u32) -> (u32, u32) {
    ((device & 0xf_ff00) >> 8, device & 0xff | device >> 12 & 0xf_ff00)
}

#[cfg(test)]
mod tests {
    use super::{AttributesEncoding, Encoder, InitReply, device_numbers, reply_header};
    use marram_vfs::{Attributes, Ino, Kind, SpaceReport, Timestamp};
    use std::time::Duration;

    fn attributes() -> Attributes {
        Attributes {
            ino: Ino(7),
            generation: 1,
            kind: Kind::Regular,
            permissions: 0o644,
            links: 1,
            uid: 5,
            gid: 6,
            device: 0,
            size: 11,
            blocks_512: 8,
            accessed: Timestamp { seconds: -1, nanoseconds: 1 },
            modified: Timestamp { seconds: 2, nanoseconds: 2 },
            changed: Timestamp { seconds: 3, nanoseconds: 3 },
            created: Timestamp { seconds: 4, nanoseconds: 4 },
        }
    }

    fn encoding() -> AttributesEncoding {
        AttributesEncoding {
            entry_timeout: Duration::from_secs(1),
            absence_timeout: Duration::from_secs(1),
            attributes_timeout: Duration::from_secs(60),
            preferred_io_bytes: 131_072,
        }
    }

    #[test]
    fn replies_have_the_sizes_of_the_protocol() {
        let encoding = encoding();
        let sizes = |write: &dyn Fn(&mut Encoder<'_>)| {
            let mut bytes = Vec::new();
            write(&mut Encoder(&mut bytes));
            bytes.len()
        };
        assert_eq!(sizes(&|out| encoding.entry(out, &attributes())), 128);
        assert_eq!(sizes(&|out| encoding.no_entry(out)), 128);
        assert_eq!(sizes(&|out| encoding.timed_attributes(out, &attributes())), 104);
        assert_eq!(sizes(&|out| encoding.extended_attributes(out, &attributes())), 288);
        assert_eq!(sizes(&|out| out.space(&SpaceReport::default(), 255)), 80);
        assert_eq!(sizes(&|out| out.directory_entry(b"abc", 1, Kind::Fifo, 9)), 32);
        let init = InitReply {
            flags: u64::MAX,
            read_ahead_bytes: 0,
            background_max: 1,
            congestion_threshold: 1,
            write_bytes_max: 1,
            time_grain_nanoseconds: 1,
            pages_max: 1,
        };
        assert_eq!(sizes(&|out| out.init(&init)), 64);
    }

    #[test]
    fn attributes_with_privileges_are_never_taken_for_granted() {
        let timeouts = |kind, permissions| {
            let of = Attributes { kind, permissions, ..attributes() };
            let reported = |write: &dyn Fn(&mut Encoder<'_>), at: usize| {
                let mut bytes = Vec::new();
                write(&mut Encoder(&mut bytes));
                u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
            };
            let encoding = encoding();
            let timed = reported(&|out| encoding.timed_attributes(out, &of), 0);
            assert_eq!(reported(&|out| encoding.entry(out, &of), 24), timed);
            assert_eq!(reported(&|out| encoding.extended_attributes(out, &of), 0), timed);
            timed
        };
        for permissions in [0o4755, 0o2755, 0o2644] {
            assert_eq!(timeouts(Kind::Regular, permissions), 0);
        }
        assert_eq!(timeouts(Kind::Regular, 0o1755), 60);
        assert_eq!(timeouts(Kind::Directory, 0o2755), 60);
    }

    #[test]
    fn a_header_carries_the_negated_error() {
        let bytes = reply_header(0x0102, 2, 8);
        assert_eq!(bytes[..4], 24_u32.to_le_bytes());
        assert_eq!(bytes[4..8], (-2_i32).to_le_bytes());
        assert_eq!(bytes[8..], 0x0102_u64.to_le_bytes());
    }

    #[test]
    fn device_numbers_follow_the_kernels_encoding() {
        assert_eq!(device_numbers(0x0103), (1, 3));
        assert_eq!(device_numbers(0xabcd_ef12), (0xdef, 0xa_bc12));
    }
}
