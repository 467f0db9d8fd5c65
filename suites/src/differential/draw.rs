//! Draws calls from a seed.
//!
//! The names are few, so that calls meet the same files often; a few of them are hostile. What is
//! left out is what the two file systems cannot have in common: collapsed and inserted ranges
//! (FUSE refuses them), sizes beyond 16 TiB (ext4 refuses them), direct I/O (ext4 wants it
//! aligned), attributes that together take more than a block (ext4 refuses them), access lists,
//! times beyond what ext4 can store, files with `security.capability`, changes of owner that name
//! no owner (FUSE does not always tell when such privileges go), and `O_NOATIME` (whose effect on
//! directories it does not carry).

use super::call::{Bytes, Call, Object, Place, SLOTS, Step, Time, User, Whence};
use marram_lab::seed::Seed;
use rustix::fs::{AtFlags, FallocateFlags, FileType, OFlags, RenameFlags, XattrFlags};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The longest name that there may be.
const NAME_BYTES: usize = 255;

/// Files mostly stay below this size: small enough to be written over and over.
const FILE_BYTES: u64 = 300_000;

/// What a call is drawn with: its weight, and how.
type Kind = (u64, fn(&mut Draw) -> Call);

const KINDS: [Kind; 29] = [
    (110, Draw::open),
    (25, |draw| Call::Close { slot: draw.slot() }),
    (60, |draw| Call::Read { place: draw.place(), count: draw.count() }),
    (90, |draw| {
        let letter = draw.number(1, 256) as u8;
        Call::Write { place: draw.place(), count: draw.count(), letter }
    }),
    (30, |draw| Call::Cut { slot: draw.slot(), size: draw.offset() }),
    (40, Draw::allocate),
    (40, Draw::seek),
    (30, |draw| Call::Copy { from: draw.place(), to: draw.place(), count: draw.count() }),
    (2, |draw| Call::Sync { slot: draw.slot() }),
    (20, |draw| Call::Stat { object: draw.object() }),
    (20, Draw::access),
    (20, |draw| Call::List { path: draw.path() }),
    (10, |draw| Call::ListOpen { slot: draw.slot() }),
    (15, |draw| Call::ReadLink { path: draw.path() }),
    (60, |draw| Call::MakeFolder { path: draw.path(), mode: draw.mode() }),
    (20, Draw::node),
    (25, |draw| Call::MakeLink { target: draw.path(), path: draw.path() }),
    (40, |draw| {
        let flags = draw.one(&[AtFlags::empty(), AtFlags::SYMLINK_FOLLOW]);
        Call::Link { from: draw.path(), to: draw.path(), flags }
    }),
    (15, |draw| Call::LinkOpen { slot: draw.slot(), to: draw.path() }),
    (40, |draw| Call::Unlink { path: draw.path() }),
    (25, |draw| Call::RemoveFolder { path: draw.path() }),
    (70, Draw::rename),
    (40, |draw| Call::SetMode { object: draw.object(), mode: draw.mode() }),
    (30, Draw::set_owner),
    (30, |draw| Call::SetTimes {
        object: draw.object(),
        access: draw.time(),
        modification: draw.time(),
    }),
    (40, Draw::set_attribute),
    (45, Draw::get_attribute),
    (15, |draw| Call::RemoveAttribute { object: draw.object(), name: draw.attribute() }),
    (3, |draw| Call::Mask { mode: draw.one(&[0, 0o002, 0o022, 0o027]) }),
];

/// `count` steps that `seed` gives.
pub(super) fn steps(seed: u64, count: usize) -> Vec<Step> {
    let mut draw = Draw { seed: Seed::new(seed) };
    std::iter::repeat_with(|| draw.step()).take(count).collect()
}

struct Draw {
    seed: Seed,
}

impl Draw {
    fn number(&mut self, low: u64, high: u64) -> u64 {
        self.seed.between(low, high)
    }

    /// True once in `times`.
    fn once_in(&mut self, times: u64) -> bool {
        self.number(0, times) == 0
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.seed.index(of.len())]
    }

    fn step(&mut self) -> Step {
        let all: u64 = KINDS.iter().map(|(weight, _)| weight).sum();
        let mut left = self.number(0, all);
        let mut kinds = KINDS.iter();
        let draw = loop {
            let (weight, draw) = kinds.next().expect("the weights add up");
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => break draw,
            }
        };
        let call = draw(self);
        let user = match self.number(0, 20) {
            0..15 => User::Root,
            15..18 => User::First,
            _ => User::Second,
        };
        Step { user, call }
    }

    fn slot(&mut self) -> usize {
        self.seed.index(SLOTS)
    }

    fn place(&mut self) -> Place {
        let slot = self.slot();
        let offset = if self.once_in(2) { None } else { Some(self.offset()) };
        Place { slot, offset }
    }

    /// Mostly small, now and then at a boundary, seldom far out.
    fn offset(&mut self) -> u64 {
        match self.number(0, 20) {
            0 => 0,
            1..5 => self.number(0, 70) * 4096,
            5 => self.number(0, 70) * 4096 + self.one(&[1, 4095]),
            6 if self.once_in(8) => 1 << self.number(30, 43),
            6..12 => self.number(0, 10_000),
            _ => self.number(0, FILE_BYTES),
        }
    }

    fn count(&mut self) -> usize {
        let count = match self.number(0, 12) {
            0 => 0,
            1 => 1,
            2..4 => self.number(1, 20) * 4096,
            4 => self.number(1, 150_000),
            _ => self.number(1, 6000),
        };
        usize::try_from(count).expect("a small count")
    }

    fn name(&mut self) -> Vec<u8> {
        match self.number(0, 200) {
            0 => vec![b'n'; NAME_BYTES],
            1 => vec![b'n'; NAME_BYTES + 1],
            2 => vec![self.one(&[b'\n', b' ', b'\\', b'"', b'*', 1, 127, 128, 255])],
            3 => vec![self.number(1, 256) as u8],
            4 => b"..".to_vec(),
            5 => b".".to_vec(),
            6 => Vec::new(),
            7 => (1..=255).filter(|byte| *byte != b'/').collect(),
            _ => self.one(&NAMES).as_bytes().to_vec(),
        }
    }

    fn path(&mut self) -> Bytes {
        let depth = match self.number(0, 20) {
            0..11 => 1,
            11..17 => 2,
            17..19 => 3,
            _ => 4,
        };
        let names: Vec<Vec<u8>> = (0..depth).map(|_| self.name()).collect();
        let path = names.join(&b'/');
        match self.number(0, 150) {
            0 => Bytes([&b"/"[..], &path].concat()),
            1 => Bytes([&path, &b"/"[..]].concat()),
            2 => Bytes([&path, &b"/."[..]].concat()),
            3 => Bytes([&path, &b"/.."[..]].concat()),
            4 => Bytes([&b"./".repeat(1000), &path[..]].concat()),
            5 => Bytes([&b"./".repeat(2048), &path[..]].concat()),
            _ => Bytes(path),
        }
    }

    fn object(&mut self) -> Object {
        match self.number(0, 10) {
            0..3 => Object::Open(self.slot()),
            3..5 => Object::Link(self.path()),
            _ => Object::Path(self.path()),
        }
    }

    /// All the bits there are, with weight on those that let the other users in.
    fn mode(&mut self) -> u32 {
        match self.number(0, 4) {
            0 => self.number(0, 0o10000) as u32,
            1 => self.one(&[0o6777, 0o2775, 0o1777, 0o4711, 0o6755]),
            _ => self.one(&[0o777, 0o755, 0o644, 0o666, 0o600]),
        }
    }

    fn open(&mut self) -> Call {
        let mut flags = self.one(&[OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR, OFlags::RDWR]);
        for (times, flag) in [
            (2, OFlags::CREATE),
            (5, OFlags::EXCL),
            (5, OFlags::TRUNC),
            (4, OFlags::APPEND),
            (15, OFlags::DIRECTORY),
            (15, OFlags::NOFOLLOW),
            (12, OFlags::TMPFILE),
            (40, OFlags::PATH),
        ] {
            if self.once_in(times) {
                flags |= flag;
            }
        }
        Call::Open { slot: self.slot(), path: self.path(), flags, mode: self.mode() }
    }

    fn allocate(&mut self) -> Call {
        let mode = self.one(&[
            FallocateFlags::empty(),
            FallocateFlags::KEEP_SIZE,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            FallocateFlags::ZERO_RANGE,
            FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            FallocateFlags::PUNCH_HOLE,
        ]);
        let offset = if self.once_in(2) { self.number(0, 70) * 4096 } else { self.offset() };
        let length = self.count() as u64;
        Call::Allocate { slot: self.slot(), mode, offset: offset.min(FILE_BYTES), length }
    }

    fn seek(&mut self) -> Call {
        let whence =
            self.one(&[Whence::Start, Whence::Current, Whence::End, Whence::Data, Whence::Hole]);
        let offset = i64::try_from(self.offset()).expect("offsets stay below 2^44");
        let offset = if self.once_in(6) { -offset } else { offset };
        Call::Seek { slot: self.slot(), whence, offset }
    }

    fn access(&mut self) -> Call {
        let flags = self.one(&[AtFlags::empty(), AtFlags::EACCESS]);
        Call::Access { path: self.path(), mode: self.number(0, 8) as u32, flags }
    }

    /// Devices are the null device and ones that no driver serves.
    fn node(&mut self) -> Call {
        let kind = self.one(&[
            FileType::Fifo,
            FileType::Socket,
            FileType::CharacterDevice,
            FileType::BlockDevice,
            FileType::RegularFile,
            FileType::Directory,
        ]);
        let device = match kind {
            FileType::CharacterDevice => self.one(&[0, 0x103, 0xf011]),
            _ => 0xf_ff11,
        };
        Call::MakeNode { path: self.path(), kind, mode: self.mode(), device }
    }

    fn rename(&mut self) -> Call {
        let flags = match self.number(0, 12) {
            0 | 1 => RenameFlags::NOREPLACE,
            2 | 3 => RenameFlags::EXCHANGE,
            4 => RenameFlags::WHITEOUT,
            5 => self.one(&[
                RenameFlags::WHITEOUT | RenameFlags::NOREPLACE,
                RenameFlags::WHITEOUT | RenameFlags::EXCHANGE,
                RenameFlags::NOREPLACE | RenameFlags::EXCHANGE,
            ]),
            _ => RenameFlags::empty(),
        };
        Call::Rename { from: self.path(), to: self.path(), flags }
    }

    fn set_owner(&mut self) -> Call {
        let ids = [None, Some(0), Some(super::FIRST), Some(super::SECOND), Some(4_000_000_000)];
        let (user, mut group) = (self.one(&ids), self.one(&ids));
        if user.is_none() && group.is_none() {
            group = Some(0);
        }
        Call::SetOwner { object: self.object(), user, group }
    }

    fn time(&mut self) -> Time {
        match self.number(0, 5) {
            0 => Time::Now,
            1 => Time::Keep,
            _ => {
                let seconds = self.one(&[0, 1, -1, -2_000_000_000, 1_000_000_000, 14_000_000_000]);
                Time::At(seconds, self.number(0, 1_000_000_000) as u32)
            }
        }
    }

    fn attribute(&mut self) -> Bytes {
        match self.number(0, 40) {
            0 => Bytes::from("user."),
            1 => Bytes::from("plain"),
            2 => Bytes::from("other.a"),
            3 => Bytes([&b"user."[..], &[b'n'; 250]].concat()),
            4 => Bytes([&b"user."[..], &[b'n'; 251]].concat()),
            5 => Bytes::from(""),
            6 => Bytes::from("user.\u{1}\u{7f}"),
            7..15 => Bytes::from("trusted.a"),
            15..18 => Bytes::from("security.a"),
            18..28 => Bytes::from("user.b"),
            _ => Bytes::from("user.a"),
        }
    }

    fn set_attribute(&mut self) -> Call {
        let name = self.attribute();
        let value = match self.number(0, 12) {
            0 => Vec::new(),
            1 => vec![7; 65_537],
            _ => {
                let count = self.number(0, 300);
                self.seed.bytes(usize::try_from(count).expect("a small count"))
            }
        };
        let flags = match self.number(0, 5) {
            0 => XattrFlags::CREATE,
            1 => XattrFlags::REPLACE,
            _ => XattrFlags::empty(),
        };
        Call::SetAttribute { object: self.object(), name, value: Bytes(value), flags }
    }

    fn get_attribute(&mut self) -> Call {
        let room = self.one(&[0, 10, 1000, 1000]);
        if self.once_in(3) {
            return Call::ListAttributes { object: self.object(), room };
        }
        Call::GetAttribute { object: self.object(), name: self.attribute(), room }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_calls_and_every_kind_of_call() {
        let shown = |seed| format!("{:?}", steps(seed, 5000));
        assert_eq!(shown(3), shown(3));
        let all = shown(3);
        for kind in ["Open", "Copy", "Allocate", "Rename", "MakeNode", "SetTimes", "Mask"] {
            assert!(all.contains(&format!("call: {kind} ")), "no {kind}");
        }
    }
}
