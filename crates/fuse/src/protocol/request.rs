//! Decoding of requests.

use super::fields::{Fields, Malformed};
use super::operation::{
    CopyRange, Create, FORGET_BYTES, Forgets, Header, Init, Ioctl, LockIn, Node, Operation, Rename,
    Request, SetAttributesIn, Transfer, Write,
};
use super::{Opcode, flags};

/// Bytes of a request's header.
const HEADER_BYTES: usize = 40;

/// Decodes one request.
///
/// # Errors
/// Says what is wrong; where at least the header is whole, it comes with it, so that the request
/// can be answered.
pub fn parse(bytes: &[u8]) -> Result<Request<'_>, (Option<Header>, Malformed)> {
    let (header, body) = parse_header(bytes).map_err(|reason| (None, reason))?;
    let operation = parse_body(&header, body).map_err(|reason| (Some(header), reason))?;
    Ok(Request { header, operation })
}

/// The header, and the body without the extensions that may follow it.
fn parse_header(bytes: &[u8]) -> Result<(Header, &[u8]), Malformed> {
    let received_bytes = bytes.len();
    let Some((first, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(Malformed::Header { received_bytes });
    };
    let word =
        |at: usize| u32::from_le_bytes([first[at], first[at + 1], first[at + 2], first[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    if usize::try_from(word(0)) != Ok(received_bytes) {
        return Err(Malformed::Length { said_bytes: word(0), received_bytes });
    }
    let extension_bytes = usize::from(u16::from_le_bytes([first[36], first[37]])) * 8;
    let body_bytes = body
        .len()
        .checked_sub(extension_bytes)
        .ok_or(Malformed::Extensions { said_bytes: extension_bytes, received_bytes: body.len() })?;
    let header = Header {
        opcode: word(4),
        unique: long(8),
        node: long(16),
        uid: word(24),
        gid: word(28),
        pid: word(32),
    };
    Ok((header, &body[..body_bytes]))
}

fn parse_body<'a>(header: &Header, body: &'a [u8]) -> Result<Operation<'a>, Malformed> {
    let Some(opcode) = Opcode::from_number(header.opcode) else {
        return Ok(Operation::Unknown);
    };
    let fields = &mut Fields::new(opcode, body);
    Ok(match opcode {
        Opcode::Lookup => Operation::Lookup { name: fields.text("name")? },
        Opcode::Forget => Operation::Forget { count: fields.u64("count")? },
        Opcode::GetAttributes => Operation::GetAttributes { open: is_open(fields)? },
        Opcode::SetAttributes => Operation::SetAttributes(set_attributes(fields)?),
        Opcode::ReadLink => Operation::ReadLink,
        Opcode::Symlink => {
            Operation::Symlink { name: fields.text("name")?, target: fields.text("target")? }
        }
        Opcode::MakeNode => Operation::MakeNode(make_node(fields)?),
        Opcode::MakeDirectory => Operation::MakeDirectory(make_directory(fields)?),
        Opcode::Unlink => Operation::Unlink { name: fields.text("name")? },
        Opcode::RemoveDirectory => Operation::RemoveDirectory { name: fields.text("name")? },
        Opcode::Rename => Operation::Rename(rename(fields, false)?),
        Opcode::Rename2 => Operation::Rename(rename(fields, true)?),
        Opcode::Link => {
            Operation::Link { node: fields.u64("inode")?, new_name: fields.text("name")? }
        }
        Opcode::Open => Operation::Open { caller_flags: fields.u32("flags")? },
        Opcode::Read => Operation::Read(transfer(fields)?),
        Opcode::Write => Operation::Write(write(fields)?),
        Opcode::Space => Operation::Space,
        Opcode::Release => Operation::Release { handle: fields.u64("handle")? },
        Opcode::Sync => Operation::Sync { data_only: sync(fields)? },
        Opcode::SetXattr => set_xattr(fields)?,
        Opcode::GetXattr => {
            let size = sized(fields)?;
            Operation::GetXattr { name: fields.text("name")?, size }
        }
        Opcode::ListXattrs => Operation::ListXattrs { size: sized(fields)? },
        Opcode::RemoveXattr => Operation::RemoveXattr { name: fields.text("name")? },
        Opcode::Flush => flush(fields)?,
        Opcode::Init => Operation::Init(init(fields)?),
        Opcode::OpenDirectory => Operation::OpenDirectory,
        Opcode::ReadDirectory => Operation::ReadDirectory(transfer(fields)?),
        Opcode::ReleaseDirectory => Operation::ReleaseDirectory,
        Opcode::SyncDirectory => Operation::SyncDirectory { data_only: sync(fields)? },
        Opcode::Access => Operation::Access { mask: fields.u32("mask")? },
        Opcode::Create => Operation::Create(create(fields)?),
        Opcode::Interrupt => Operation::Interrupt { unique: fields.u64("request")? },
        Opcode::Destroy => Operation::Destroy,
        Opcode::Ioctl => Operation::Ioctl(ioctl(fields)?),
        Opcode::NotifyReply => Operation::NotifyReply,
        Opcode::BatchForget => Operation::BatchForget(forgets(fields)?),
        Opcode::Allocate => allocate(fields)?,
        Opcode::ReadDirectoryPlus => Operation::ReadDirectoryPlus(transfer(fields)?),
        Opcode::Seek => seek(fields)?,
        Opcode::CopyRange => Operation::CopyRange(copy_range(fields, false)?),
        Opcode::CopyRange64 => Operation::CopyRange(copy_range(fields, true)?),
        Opcode::SyncAll => Operation::SyncAll,
        Opcode::CreateAnonymous => Operation::CreateAnonymous(create(fields)?),
        Opcode::ExtendedAttributes => Operation::ExtendedAttributes { open: is_open(fields)? },
        Opcode::GetLock => Operation::GetLock(lock(fields)?),
        Opcode::SetLock => Operation::SetLock { lock: lock(fields)?, waits: false },
        Opcode::SetLockWait => Operation::SetLock { lock: lock(fields)?, waits: true },
        Opcode::MapBlock | Opcode::Poll | Opcode::SetupMapping | Opcode::RemoveMapping => {
            Operation::Unsupported(opcode)
        }
    })
}

fn flush<'a>(fields: &mut Fields<'_>) -> Result<Operation<'a>, Malformed> {
    fields.skip(16)?;
    Ok(Operation::Flush { owner: fields.u64("owner of locks")? })
}

fn lock(fields: &mut Fields<'_>) -> Result<LockIn, Malformed> {
    let (handle, owner) = (fields.u64("handle")?, fields.u64("owner")?);
    let (first, last) = (fields.u64("first byte")?, fields.u64("last byte")?);
    let (kind, process) = (fields.u32("kind")?, fields.u32("process")?);
    let is_whole = fields.u32("flags")? & flags::lock::FLOCK != 0;
    Ok(LockIn { handle, owner, first, last, kind, process, is_whole })
}

/// Whether a request for attributes comes through an open file.
fn is_open(fields: &mut Fields<'_>) -> Result<bool, Malformed> {
    Ok(fields.u32("flags")? & flags::get_attributes::HANDLE != 0)
}

fn set_attributes(fields: &mut Fields<'_>) -> Result<SetAttributesIn, Malformed> {
    let valid = fields.u32("valid")?;
    fields.skip(4)?;
    let handle = fields.u64("handle")?;
    let size = fields.u64("size")?;
    fields.skip(8)?;
    let accessed_seconds = fields.i64("atime")?;
    let modified_seconds = fields.i64("mtime")?;
    let changed_seconds = fields.i64("ctime")?;
    let accessed_nanoseconds = fields.u32("atimensec")?;
    let modified_nanoseconds = fields.u32("mtimensec")?;
    let changed_nanoseconds = fields.u32("ctimensec")?;
    let mode = fields.u32("mode")?;
    fields.skip(4)?;
    Ok(SetAttributesIn {
        valid,
        handle,
        size,
        accessed_seconds,
        modified_seconds,
        changed_seconds,
        accessed_nanoseconds,
        modified_nanoseconds,
        changed_nanoseconds,
        mode,
        uid: fields.u32("uid")?,
        gid: fields.u32("gid")?,
    })
}

fn make_node<'a>(fields: &mut Fields<'a>) -> Result<Node<'a>, Malformed> {
    let mode = fields.u32("mode")?;
    let device = fields.u32("device")?;
    let umask = fields.u32("umask")?;
    fields.skip(4)?;
    Ok(Node { mode, device, umask, name: fields.text("name")? })
}

fn make_directory<'a>(fields: &mut Fields<'a>) -> Result<Node<'a>, Malformed> {
    let mode = fields.u32("mode")?;
    let umask = fields.u32("umask")?;
    Ok(Node { mode, device: 0, umask, name: fields.text("name")? })
}

fn rename<'a>(fields: &mut Fields<'a>, with_flags: bool) -> Result<Rename<'a>, Malformed> {
    let new_parent = fields.u64("new parent")?;
    let mut flags = 0;
    if with_flags {
        flags = fields.u32("flags")?;
        fields.skip(4)?;
    }
    let name = fields.text("name")?;
    Ok(Rename { new_parent, flags, name, new_name: fields.text("new name")? })
}

fn transfer(fields: &mut Fields<'_>) -> Result<Transfer, Malformed> {
    fields.skip(8)?;
    let (offset, size) = (fields.u64("offset")?, fields.u32("size")?);
    let flags = fields.u32("flags")?;
    fields.skip(8)?;
    Ok(Transfer { offset, size, flags, caller_flags: fields.u32("flags")? })
}

fn write<'a>(fields: &mut Fields<'a>) -> Result<Write<'a>, Malformed> {
    let handle = fields.u64("handle")?;
    let offset = fields.u64("offset")?;
    let size = fields.u32("size")?;
    let flags = fields.u32("flags")?;
    fields.skip(8)?;
    let caller_flags = fields.u32("caller flags")?;
    fields.skip(4)?;
    let data = sized_bytes(fields, size, "data")?;
    Ok(Write { handle, offset, flags, caller_flags, data })
}

fn sized_bytes<'a>(
    fields: &mut Fields<'a>,
    size: u32,
    field: &'static str,
) -> Result<&'a [u8], Malformed> {
    fields.bytes(usize::try_from(size).unwrap_or(usize::MAX), field)
}

fn sync(fields: &mut Fields<'_>) -> Result<bool, Malformed> {
    fields.skip(8)?;
    Ok(fields.u32("flags")? & flags::sync::DATA_ONLY != 0)
}

/// A size and its padding.
fn sized(fields: &mut Fields<'_>) -> Result<u32, Malformed> {
    let size = fields.u32("size")?;
    fields.skip(4)?;
    Ok(size)
}

fn set_xattr<'a>(fields: &mut Fields<'a>) -> Result<Operation<'a>, Malformed> {
    let size = fields.u32("size")?;
    let flags = fields.u32("flags")?;
    let clear_setgid = fields.u32("more flags")? & flags::set_xattr::CLEAR_SETGID != 0;
    fields.skip(4)?;
    let name = fields.text("name")?;
    let value = sized_bytes(fields, size, "value")?;
    Ok(Operation::SetXattr { name, value, flags, clear_setgid })
}

fn create<'a>(fields: &mut Fields<'a>) -> Result<Create<'a>, Malformed> {
    let caller_flags = fields.u32("flags")?;
    let mode = fields.u32("mode")?;
    let umask = fields.u32("umask")?;
    let open_flags = fields.u32("open flags")?;
    Ok(Create { caller_flags, mode, umask, open_flags, name: fields.text("name")? })
}

/// Kernels older than INIT_EXT send the first word of flags only.
fn init(fields: &mut Fields<'_>) -> Result<Init, Malformed> {
    let major = fields.u32("major")?;
    let minor = fields.u32("minor")?;
    if fields.is_empty() {
        return Ok(Init { major, minor, read_ahead_bytes: 0, flags: 0 });
    }
    let read_ahead_bytes = fields.u32("read-ahead")?;
    let mut flags = u64::from(fields.u32("flags")?);
    if flags & flags::init::INIT_EXT != 0 {
        flags |= u64::from(fields.u32("more flags")?) << 32;
    }
    Ok(Init { major, minor, read_ahead_bytes, flags })
}

fn ioctl<'a>(fields: &mut Fields<'a>) -> Result<Ioctl<'a>, Malformed> {
    fields.skip(8)?;
    let flags = fields.u32("flags")?;
    let command = fields.u32("command")?;
    let argument = fields.u64("argument")?;
    let size = fields.u32("input size")?;
    let output_bytes_max = fields.u32("output size")?;
    let input = sized_bytes(fields, size, "input")?;
    Ok(Ioctl { flags, command, argument, input, output_bytes_max })
}

fn forgets<'a>(fields: &mut Fields<'a>) -> Result<Forgets<'a>, Malformed> {
    let count = fields.u32("count")?;
    fields.skip(4)?;
    let len = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(FORGET_BYTES);
    Ok(Forgets::new(fields.bytes(len, "inodes")?))
}

fn allocate<'a>(fields: &mut Fields<'_>) -> Result<Operation<'a>, Malformed> {
    let handle = fields.u64("handle")?;
    let offset = fields.u64("offset")?;
    let len = fields.u64("length")?;
    Ok(Operation::Allocate { handle, offset, len, mode: fields.u32("mode")? })
}

fn seek<'a>(fields: &mut Fields<'_>) -> Result<Operation<'a>, Malformed> {
    fields.skip(8)?;
    Ok(Operation::Seek { offset: fields.u64("offset")?, whence: fields.u32("whence")? })
}

fn copy_range(fields: &mut Fields<'_>, wide: bool) -> Result<CopyRange, Malformed> {
    fields.skip(8)?;
    let from_offset = fields.u64("source offset")?;
    let to_node = fields.u64("target inode")?;
    let to_handle = fields.u64("target handle")?;
    let to_offset = fields.u64("target offset")?;
    let len = fields.u64("length")?;
    let flags = fields.u64("flags")?;
    Ok(CopyRange { from_offset, to_node, to_handle, to_offset, len, flags, wide })
}
