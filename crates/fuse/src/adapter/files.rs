//! The content of files.

use super::announced::Allocation;
use super::caller::{is_losing_privileges, is_strangers_setgid};
use super::opening::check_may_cut;
use super::{Adapter, Outcome, caller};
use crate::errno::Errno;
use crate::protocol::flags::{allocate, open, write};
use crate::protocol::{CopyRange, Encoder, Header, Transfer, Write};
use bytes::Bytes;
use marram_vfs::{Allocate, Error, Ino, SetAttributes, WriteOptions};

impl Adapter {
    pub(super) fn read(&self, ino: Ino, transfer: Transfer, out: &mut Encoder<'_>) -> Outcome {
        let len = usize::try_from(transfer.size)
            .unwrap_or(usize::MAX)
            .min(self.agreement.transfer_bytes_max);
        self.cached_reads.note(ino, transfer.flags);
        out.0.reserve(len);
        match transfer.caller_flags & open::NO_ACCESS_TIME {
            0 => self.file_system.read(ino, transfer.offset, len, out.0)?,
            _ => self.file_system.read_unnoticed(ino, transfer.offset, len, out.0)?,
        }
        assert!(out.0.len() <= len, "a read gives no more than was asked for");
        Ok(())
    }

    /// Data that the kernel held back comes long after its times were set; without write-back the
    /// same mark means a shared mapping, and then the times are ours to move.
    pub(super) fn write(
        &self,
        header: &Header,
        write: &Write<'_>,
        memory: Option<&Bytes>,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let ino = Ino(header.node);
        // What is written back was appended when it was taken in.
        let is_append = write.is_append() && !self.agreement.writeback;
        if !is_append {
            self.check_write(ino, write.handle, write.offset)?;
        }
        match (write.flags & write::KILL_SUIDGID != 0, write.flags & write::CACHE != 0) {
            (true, _) => self.clear_strangers_setgid(header, ino)?,
            // A file system above this one writes in the name of its mounter, for any process.
            (false, false) => self.clear_privileges(header, ino)?,
            (false, true) => (),
        }
        let options = WriteOptions {
            clear_privileges: write.flags & write::KILL_SUIDGID != 0,
            keep_times: self.agreement.writeback && write.flags & write::CACHE != 0,
            accepted: write.flags & write::CACHE != 0,
            memory,
        };
        let Write { offset, data, .. } = *write;
        if is_append {
            let end = self.file_system.append(ino, data, options)?;
            self.moved_appends.note(header, offset, end);
        } else {
            self.file_system.write(ino, offset, data, options)?;
        }
        self.closes.note_change(ino);
        let written = u32::try_from(data.len()).expect("the size came in 32 bits");
        out.u32(written).zeros(4);
        Ok(())
    }

    pub(super) fn allocate(
        &self,
        header: &Header,
        handle: u64,
        (offset, len): (u64, u64),
        mode: u32,
    ) -> Outcome {
        check_may_cut(handle)?;
        let how = allocation(mode).ok_or(Errno::NOT_SUPPORTED)?;
        let ino = Ino(header.node);
        let meant = match how {
            Allocate::ZeroKeepSize => self.announced.take_allocation(ino, (offset, len))?,
            _ => None,
        };
        let Allocation { how, offset, len } = meant.unwrap_or(Allocation { how, offset, len });
        self.clear_privileges(header, ino)?;
        self.file_system.allocate(ino, how, offset, len)?;
        self.closes.note_change(ino);
        Ok(())
    }

    pub(super) fn copy_range(
        &self,
        header: &Header,
        copy: &CopyRange,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        if copy.flags != 0 {
            return Err(Errno::INVALID.into());
        }
        let (from, to) = (Ino(header.node), Ino(copy.to_node));
        self.check_write(to, copy.to_handle, copy.to_offset)?;
        let len = if copy.wide { copy.len } else { copy.len.min(NARROW_COPY_BYTES_MAX) };
        self.clear_privileges(header, to)?;
        let share = self.announced.take_share(to, (copy.to_offset, len));
        let copied = match share {
            true => self.file_system.share_range(from, copy.from_offset, to, copy.to_offset, len),
            false => self.file_system.copy_range(from, copy.from_offset, to, copy.to_offset, len),
        };
        let copied = match copied {
            // The kernel would copy instead, and a caller that wants sharing wants no copy.
            Err(Error::NotSupported | Error::CrossDevice) if share => {
                return Err(Errno::INVALID.into());
            }
            copied => copied?,
        };
        self.closes.note_change(to);
        match copy.wide {
            true => out.u64(copied),
            false => out.u32(u32::try_from(copied).map_err(|_| Errno::IO)?).zeros(4),
        };
        Ok(())
    }

    /// Takes setuid and setgid off `ino` if the caller may not keep them, where the kernel does not
    /// say so. It comes before the change of content: when that fails, a program
    /// has lost a privilege, which is safe; the other order could leave changed content with it.
    fn clear_privileges(&self, header: &Header, ino: Ino) -> Result<(), Error> {
        let attributes = self.file_system.attributes(ino)?;
        let set = SetAttributes {
            clear_privileges: is_losing_privileges(header, &attributes),
            clear_setgid: is_strangers_setgid(header, &attributes),
            ..Default::default()
        };
        if set != SetAttributes::default() {
            self.file_system.set_attributes(caller(header), ino, &set)?;
        }
        Ok(())
    }

    /// Before a write by a caller that may not keep privileges. The kernel itself announces what
    /// the write takes away.
    fn clear_strangers_setgid(&self, header: &Header, ino: Ino) -> Result<(), Error> {
        if is_strangers_setgid(header, &self.file_system.attributes(ino)?) {
            let set = SetAttributes { clear_setgid: true, ..Default::default() };
            self.file_system.set_attributes(caller(header), ino, &set)?;
        }
        Ok(())
    }
}

/// Most bytes of a copy whose reply has a count of 32 bits.
const NARROW_COPY_BYTES_MAX: u64 = 0xffff_f000;

fn allocation(mode: u32) -> Option<Allocate> {
    const PUNCH: u32 = allocate::PUNCH_HOLE | allocate::KEEP_SIZE;
    const ZERO_KEEP: u32 = allocate::ZERO_RANGE | allocate::KEEP_SIZE;
    match mode {
        0 => Some(Allocate::Reserve),
        allocate::KEEP_SIZE => Some(Allocate::ReserveKeepSize),
        PUNCH => Some(Allocate::PunchHole),
        allocate::ZERO_RANGE => Some(Allocate::Zero),
        ZERO_KEEP => Some(Allocate::ZeroKeepSize),
        _ => None,
    }
}
