//! Performs a call on the file system that this thread has for its root.

use super::call::{Bytes, Call, Object, Place, Time, Whence};
use super::observe;
use super::side::Slots;
use rustix::fs::{
    self, Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid,
};
use rustix::io::{Errno, Result};

/// What a call returns when it succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Nothing but success.
    Done,
    /// A count or a position.
    Number(u64),
    /// What was read.
    Bytes(Bytes),
    /// Names, some with their kinds.
    Names(Vec<(Bytes, FileType)>),
}

/// What a call returns.
pub(super) type Outcome = std::result::Result<Value, Errno>;

/// Performs the call.
pub(super) fn perform(call: &Call, slots: &mut Slots) -> Outcome {
    match call {
        Call::Open { .. }
        | Call::Close { .. }
        | Call::Read { .. }
        | Call::Write { .. }
        | Call::Cut { .. }
        | Call::Allocate { .. }
        | Call::Seek { .. }
        | Call::Copy { .. }
        | Call::Sync { .. }
        | Call::ListOpen { .. } => files(call, slots),
        Call::Stat { .. }
        | Call::SetMode { .. }
        | Call::SetOwner { .. }
        | Call::SetTimes { .. }
        | Call::SetAttribute { .. }
        | Call::GetAttribute { .. }
        | Call::ListAttributes { .. }
        | Call::RemoveAttribute { .. } => attributes(call, slots),
        _ => names(call, slots),
    }
}

fn done(result: Result<()>) -> Outcome {
    result.map(|()| Value::Done)
}

fn number(count: usize) -> Value {
    Value::Number(count as u64)
}

fn mode_of(mode: u32) -> Mode {
    Mode::from_raw_mode(mode)
}

/// Calls on open files.
fn files(call: &Call, slots: &mut Slots) -> Outcome {
    match call {
        Call::Open { slot, path, flags, mode } => {
            // Never wait for the other end of a pipe.
            let flags = *flags | OFlags::NONBLOCK;
            let file = fs::openat(CWD, &path.0[..], flags, mode_of(*mode))?;
            slots.put(*slot, Some(file));
            Ok(Value::Done)
        }
        Call::Close { slot } => match slots.put(*slot, None) {
            true => Ok(Value::Done),
            false => Err(Errno::BADF),
        },
        Call::Read { place, count } => read(place, *count, slots),
        Call::Write { place, count, letter } => write(place, *count, *letter, slots),
        Call::Cut { slot, size } => done(fs::ftruncate(slots.get(*slot)?, *size)),
        Call::Allocate { slot, mode, offset, length } => {
            done(fs::fallocate(slots.get(*slot)?, *mode, *offset, *length))
        }
        Call::Seek { slot, whence, offset } => seek(slots.get(*slot)?, *whence, *offset),
        Call::Copy { from, to, count } => {
            let (mut from_offset, mut to_offset) = (from.offset, to.offset);
            let (source, target) = (slots.get(from.slot)?, slots.get(to.slot)?);
            let (source_at, target_at) = (from_offset.as_mut(), to_offset.as_mut());
            fs::copy_file_range(source, source_at, target, target_at, *count).map(number)
        }
        Call::Sync { slot } => done(fs::fsync(slots.get(*slot)?)),
        Call::ListOpen { slot } => Ok(Value::Names(observe::entries(slots.get(*slot)?)?)),
        _ => unreachable!("not a call on open files: {call:?}"),
    }
}

/// The position stays as it was if the two may find holes at different places: what comes after
/// is to be the same on both. In a folder a position means what each file system likes.
fn seek(file: &std::os::fd::OwnedFd, whence: Whence, offset: i64) -> Outcome {
    if FileType::from_raw_mode(fs::fstat(file)?.st_mode) == FileType::Directory {
        return Err(Errno::ISDIR);
    }
    let was = fs::tell(file);
    let found = fs::seek(file, position(whence, offset)?)?;
    if matches!(whence, Whence::Data | Whence::Hole) {
        fs::seek(file, SeekFrom::Start(was?))?;
    }
    Ok(Value::Number(found))
}

fn position(whence: Whence, offset: i64) -> Result<SeekFrom> {
    let forward = || u64::try_from(offset).map_err(|_| Errno::INVAL);
    Ok(match whence {
        Whence::Start => SeekFrom::Start(forward()?),
        Whence::Current => SeekFrom::Current(offset),
        Whence::End => SeekFrom::End(offset),
        Whence::Data => SeekFrom::Data(forward()?),
        Whence::Hole => SeekFrom::Hole(forward()?),
    })
}

fn read(place: &Place, count: usize, slots: &Slots) -> Outcome {
    let mut buffer = vec![0; count];
    let file = slots.get(place.slot)?;
    let count = match place.offset {
        Some(offset) => rustix::io::pread(file, &mut buffer[..], offset)?,
        None => rustix::io::read(file, &mut buffer[..])?,
    };
    buffer.truncate(count);
    Ok(Value::Bytes(Bytes(buffer)))
}

/// Writes bytes that differ from one place of the buffer to the next.
fn write(place: &Place, count: usize, letter: u8, slots: &Slots) -> Outcome {
    let bytes: Vec<u8> = (0..count).map(|index| letter.wrapping_add((index / 7) as u8)).collect();
    let file = slots.get(place.slot)?;
    Ok(number(match place.offset {
        Some(offset) => rustix::io::pwrite(file, &bytes, offset)?,
        None => rustix::io::write(file, &bytes)?,
    }))
}

/// Calls on names.
fn names(call: &Call, slots: &mut Slots) -> Outcome {
    match call {
        Call::Access { path, mode, flags } => {
            let mode = Access::from_bits_truncate(*mode);
            done(fs::accessat(CWD, &path.0[..], mode, *flags))
        }
        Call::List { path } => Ok(Value::Names(observe::list(path)?)),
        Call::ReadLink { path } => {
            let target = fs::readlinkat(CWD, &path.0[..], Vec::new())?;
            Ok(Value::Bytes(Bytes(target.into_bytes())))
        }
        Call::MakeFolder { path, mode } => done(fs::mkdirat(CWD, &path.0[..], mode_of(*mode))),
        Call::MakeNode { path, kind, mode, device } => {
            done(fs::mknodat(CWD, &path.0[..], *kind, mode_of(*mode), *device))
        }
        Call::MakeLink { target, path } => done(fs::symlinkat(&target.0[..], CWD, &path.0[..])),
        Call::Link { from, to, flags } => {
            done(fs::linkat(CWD, &from.0[..], CWD, &to.0[..], *flags))
        }
        Call::LinkOpen { slot, to } => {
            done(fs::linkat(slots.get(*slot)?, "", CWD, &to.0[..], AtFlags::EMPTY_PATH))
        }
        Call::Unlink { path } => done(fs::unlinkat(CWD, &path.0[..], AtFlags::empty())),
        Call::RemoveFolder { path } => done(fs::unlinkat(CWD, &path.0[..], AtFlags::REMOVEDIR)),
        Call::Rename { from, to, flags } => {
            done(fs::renameat_with(CWD, &from.0[..], CWD, &to.0[..], *flags))
        }
        Call::Mask { mode } => {
            Ok(Value::Number(u64::from(rustix::process::umask(mode_of(*mode)).as_raw_mode())))
        }
        _ => unreachable!("not a call on names: {call:?}"),
    }
}

/// Calls on attributes, plain and extended.
fn attributes(call: &Call, slots: &Slots) -> Outcome {
    match call {
        Call::Stat { object } => done(stat(object, slots)),
        Call::SetMode { object, mode } => done(set_mode(object, mode_of(*mode), slots)),
        Call::SetOwner { object, user, group } => {
            let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
            done(match object {
                Object::Open(slot) => fs::fchown(slots.get(*slot)?, user, group),
                Object::Path(path) => fs::chownat(CWD, &path.0[..], user, group, AtFlags::empty()),
                Object::Link(path) => {
                    fs::chownat(CWD, &path.0[..], user, group, AtFlags::SYMLINK_NOFOLLOW)
                }
            })
        }
        Call::SetTimes { object, access, modification } => {
            let times = Timestamps {
                last_access: timespec(*access),
                last_modification: timespec(*modification),
            };
            done(match object {
                Object::Open(slot) => fs::futimens(slots.get(*slot)?, &times),
                Object::Path(path) => fs::utimensat(CWD, &path.0[..], &times, AtFlags::empty()),
                Object::Link(path) => {
                    fs::utimensat(CWD, &path.0[..], &times, AtFlags::SYMLINK_NOFOLLOW)
                }
            })
        }
        Call::SetAttribute { object, name, value, flags } => done(match object {
            Object::Open(slot) => fs::fsetxattr(slots.get(*slot)?, &name.0[..], &value.0, *flags),
            Object::Path(path) => fs::setxattr(&path.0[..], &name.0[..], &value.0, *flags),
            Object::Link(path) => fs::lsetxattr(&path.0[..], &name.0[..], &value.0, *flags),
        }),
        Call::RemoveAttribute { object, name } => done(match object {
            Object::Open(slot) => fs::fremovexattr(slots.get(*slot)?, &name.0[..]),
            Object::Path(path) => fs::removexattr(&path.0[..], &name.0[..]),
            Object::Link(path) => fs::lremovexattr(&path.0[..], &name.0[..]),
        }),
        Call::GetAttribute { object, name, room } => get_attribute(object, name, *room, slots),
        Call::ListAttributes { object, room } => list_attributes(object, *room, slots),
        _ => unreachable!("not a call on attributes: {call:?}"),
    }
}

fn stat(object: &Object, slots: &Slots) -> Result<()> {
    match object {
        Object::Open(slot) => fs::fstat(slots.get(*slot)?),
        Object::Path(path) => fs::statat(CWD, &path.0[..], AtFlags::empty()),
        Object::Link(path) => fs::statat(CWD, &path.0[..], AtFlags::SYMLINK_NOFOLLOW),
    }
    .map(drop)
}

fn set_mode(object: &Object, mode: Mode, slots: &Slots) -> Result<()> {
    match object {
        Object::Open(slot) => fs::fchmod(slots.get(*slot)?, mode),
        // There is no way to change the mode of a symbolic link.
        Object::Path(path) | Object::Link(path) => {
            fs::chmodat(CWD, &path.0[..], mode, AtFlags::empty())
        }
    }
}

fn timespec(time: Time) -> Timespec {
    match time {
        Time::Now => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
        Time::Keep => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
        Time::At(seconds, nanoseconds) => Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
    }
}

/// Without room the answer is a length alone.
fn get_attribute(object: &Object, name: &Bytes, room: usize, slots: &Slots) -> Outcome {
    let mut buffer = vec![0; room];
    let count = match object {
        Object::Open(slot) => fs::fgetxattr(slots.get(*slot)?, &name.0[..], &mut buffer[..]),
        Object::Path(path) => fs::getxattr(&path.0[..], &name.0[..], &mut buffer[..]),
        Object::Link(path) => fs::lgetxattr(&path.0[..], &name.0[..], &mut buffer[..]),
    }?;
    Ok(if room == 0 { number(count) } else { Value::Bytes(Bytes(buffer[..count].to_vec())) })
}

/// The names are put in order: there is none among them.
fn list_attributes(object: &Object, room: usize, slots: &Slots) -> Outcome {
    let mut buffer = vec![0; room];
    let count = match object {
        Object::Open(slot) => fs::flistxattr(slots.get(*slot)?, &mut buffer[..]),
        Object::Path(path) => fs::listxattr(&path.0[..], &mut buffer[..]),
        Object::Link(path) => fs::llistxattr(&path.0[..], &mut buffer[..]),
    }?;
    if room == 0 {
        return Ok(number(count));
    }
    let names = buffer[..count].split_inclusive(|byte| *byte == 0);
    let mut names: Vec<_> = names.map(|name| (Bytes(name.to_vec()), FileType::Unknown)).collect();
    names.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(Value::Names(names))
}
