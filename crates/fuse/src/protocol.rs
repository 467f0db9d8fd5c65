//! The FUSE protocol, ABI 7.45 (Linux 6.18): what the bytes on `/dev/fuse` mean.
//!
//! Requests are decoded field by field from a byte slice, every length checked: the kernel is
//! trusted no more than a disk is, and [`parse`] takes arbitrary bytes without panicking (a fuzz
//! target calls it). Replies are encoded the same way. The protocol is in the byte order of the
//! machine; Marram runs where that is little-endian, and says so at compile time.

mod encode;
mod fields;
mod file_calls;
pub(crate) mod flags;
mod opcode;
mod operation;
mod request;

pub(crate) use encode::{
    AttributesEncoding, Encoder, InitReply, NotifyCode, directory_entry_bytes, reply_header,
};
pub use fields::Malformed;
pub use file_calls::{Deed, EXTENTS_MAX, FileCall, Prepared};
pub(crate) use file_calls::{
    EXTENTS_BYTES, PREPARE_BYTES, PREPARED_BYTES_MIN, USAGE_BYTES, WITHDRAW_BYTES,
};
pub use file_calls::{decode_extents, decode_usage, encode_extents, encode_usage};
pub use opcode::Opcode;
pub use operation::{
    CopyRange, Create, Forgets, Header, Init, Ioctl, LockIn, Node, Operation, Rename, Request,
    SetAttributesIn, Transfer, Write,
};
pub use request::parse;

#[cfg(not(target_endian = "little"))]
compile_error!("the FUSE protocol is decoded as little-endian");

/// Major version of the protocol that is spoken here.
pub(crate) const MAJOR: u32 = 7;
/// Newest minor version that is spoken here.
pub(crate) const MINOR: u32 = 45;
/// Oldest minor version that is accepted (Linux 5.14). Kernels before 5.11 do not hand over the
/// clearing of setuid and setgid, without which an unprivileged write could leave a setuid program.
/// Those before 5.13 do not check the right to set flags of an inode.
pub(crate) const MINOR_MIN: u32 = 34;
