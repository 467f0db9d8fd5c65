//! Control calls on files. Those that are not known here do not exist.

use super::caller::{Capability, caller_word, has_capability};
use super::{Adapter, Outcome, Refusal, caller};
use crate::errno::Errno;
use crate::protocol::flags::ioctl;
use crate::protocol::{Encoder, FileCall, Header, Ioctl};
use marram_vfs::{Error, Ino, InodeFlags, Marks, SetMarks, Shutdown};
use std::sync::atomic::Ordering;

/// Flags that both forms have, each with its bit in the wide form (`FS_XFLAG_*`).
const EXTENDED: [(InodeFlags, u32); 6] = [
    (InodeFlags::IMMUTABLE, 0x8),
    (InodeFlags::APPEND_ONLY, 0x10),
    (InodeFlags::SYNC, 0x20),
    (InodeFlags::NO_ACCESS_TIME, 0x40),
    (InodeFlags::NO_DUMP, 0x80),
    (InodeFlags::INHERIT_PROJECT, 0x200),
];

/// Numbers in what `FITRIM` takes and gives: start, length, least length of a run.
const TRIM_WORDS: usize = 3;
/// What is shorter than this holds nothing that could be discarded, in bytes.
const TRIM_BYTES_MIN: u64 = 4096;

impl Adapter {
    pub(super) fn ioctl(
        &self,
        header: &Header,
        ioctl: &Ioctl<'_>,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        match ioctl.command {
            ioctl::SHUTDOWN => self.shutdown(header, ioctl)?,
            ioctl::SET_FLAGS | ioctl::SET_EXTENDED_FLAGS => self.set_marks(header, ioctl)?,
            ioctl::FLAGS | ioctl::EXTENDED_FLAGS | ioctl::VERSION => {
                return self.tell(header, ioctl.command, out);
            }
            ioctl::TRIM => return self.trim(header, ioctl, out),
            ioctl::LABEL => return self.tell_label(out),
            ioctl::SET_LABEL => self.set_label(header, ioctl)?,
            command if FileCall::is_one(command) => return self.file_call(header, ioctl, out),
            _ => return Err(Errno::NO_IOCTL.into()),
        }
        out.zeros(ioctl::REPLY_BYTES);
        Ok(())
    }

    /// Flags and project, in the narrow form of ext2 and in the wide one of XFS; and the
    /// generation, which programs take into 32 bits whatever the command's number says.
    fn tell(&self, header: &Header, command: u32, out: &mut Encoder<'_>) -> Outcome {
        let ino = Ino(header.node);
        if command == ioctl::VERSION {
            let generation = self.file_system.attributes(ino)?.generation;
            let low = u32::try_from(generation & u64::from(u32::MAX)).expect("32 bits");
            out.zeros(ioctl::REPLY_BYTES).u32(low);
            return Ok(());
        }
        let marks = self.marks(ino)?;
        out.zeros(ioctl::REPLY_BYTES);
        match command {
            ioctl::FLAGS => out.u32(marks.flags.0),
            _ => out.u32(extended(marks.flags)).zeros(8).u32(marks.project).zeros(12),
        };
        Ok(())
    }

    fn marks(&self, ino: Ino) -> Result<Marks, Refusal> {
        match self.file_system.marks(ino) {
            Err(Error::NotSupported) => Err(Errno::NO_IOCTL.into()),
            reported => Ok(reported?),
        }
    }

    /// The kernel has checked whether the caller may. Flags that the wide form has no word for
    /// stay as they are with it.
    fn set_marks(&self, header: &Header, ioctl: &Ioctl<'_>) -> Outcome {
        let ino = Ino(header.node);
        let present = self.marks(ino)?.flags;
        let word = |at: usize| {
            let bytes = ioctl.input.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_le_bytes).ok_or(Errno::INVALID)
        };
        let set = match ioctl.command {
            ioctl::SET_FLAGS => SetMarks { flags: Some(InodeFlags(word(0)?)), project: None },
            _ => {
                let named = plain(word(0)?).ok_or(Errno::NOT_SUPPORTED)?;
                let flags = present.without(plain_mask()) | named;
                SetMarks { flags: Some(flags), project: Some(word(12)?) }
            }
        };
        Ok(self.file_system.set_marks(ino, set)?)
    }

    /// Has what is free discarded (`fstrim`): a range of the device, in runs of a length that is
    /// worth it. The kernel lets any caller through; only an administrator may.
    fn trim(&self, header: &Header, ioctl: &Ioctl<'_>, out: &mut Encoder<'_>) -> Outcome {
        if !has_capability(header, Capability::Administer) {
            return Err(Errno::NOT_PERMITTED.into());
        }
        let mut words = [0; TRIM_WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            let bytes = ioctl.input.get(at * 8..at * 8 + 8).and_then(|bytes| bytes.try_into().ok());
            *word = bytes.map(u64::from_le_bytes).ok_or(Errno::INVALID)?;
        }
        let [from, len, min_bytes] = words;
        let total_bytes = self.file_system.space()?.total_bytes;
        if from >= total_bytes || len < TRIM_BYTES_MIN || min_bytes > total_bytes {
            return Err(Errno::INVALID.into());
        }
        // A file system's size is less than its device's: a range of all of it means the device.
        let end = from.saturating_add(len);
        let to = if end >= total_bytes { u64::MAX } else { end };
        let discarded = match self.file_system.trim(from, to, min_bytes) {
            Err(Error::NotSupported) => return Err(Errno::NOT_SUPPORTED.into()),
            discarded => discarded?.min(total_bytes - from),
        };
        out.zeros(ioctl::REPLY_BYTES).u64(from).u64(discarded).u64(min_bytes);
        Ok(())
    }

    /// What the file system is called, padded with zeros.
    fn tell_label(&self, out: &mut Encoder<'_>) -> Outcome {
        let label = match self.file_system.label() {
            Err(Error::NotSupported) => return Err(Errno::NO_IOCTL.into()),
            label => label?,
        };
        let padding = ioctl::LABEL_BYTES.checked_sub(label.len()).filter(|bytes| *bytes > 0);
        let padding = padding.ok_or(Errno::IO)?;
        out.zeros(ioctl::REPLY_BYTES).bytes(label.as_bytes()).zeros(padding);
        Ok(())
    }

    /// Gives the file system another label. The kernel lets any caller through.
    fn set_label(&self, header: &Header, ioctl: &Ioctl<'_>) -> Outcome {
        if !has_capability(header, Capability::Administer) {
            return Err(Errno::NOT_PERMITTED.into());
        }
        let end = ioctl.input.iter().position(|byte| *byte == 0).ok_or(Errno::INVALID)?;
        let label = std::str::from_utf8(&ioctl.input[..end]).map_err(|_| Errno::INVALID)?;
        match self.file_system.set_label(caller(header), label) {
            Err(Error::NotSupported) => Err(Errno::NO_IOCTL.into()),
            outcome => Ok(outcome?),
        }
    }

    /// Stops the file system as a power cut would, for tests of crashes (`FS_IOC_SHUTDOWN`, as XFS
    /// has brought it). Its number says, wrongly, that it hands something to the caller, so the
    /// kernel does not pass on what the caller has put there.
    fn shutdown(&self, header: &Header, ioctl: &Ioctl<'_>) -> Outcome {
        if !has_capability(header, Capability::Administer) {
            return Err(Errno::NOT_PERMITTED.into());
        }
        let how = match caller_word(header, ioctl.argument).ok_or(Errno::FAULT)? {
            ioctl::SHUTDOWN_FLUSH | ioctl::SHUTDOWN_FLUSH_LOG => Shutdown::Flush,
            ioctl::SHUTDOWN_NOW => Shutdown::Now,
            _ => return Err(Errno::INVALID.into()),
        };
        match self.file_system.shutdown(how) {
            Err(Error::NotSupported) => return Err(Errno::NO_IOCTL.into()),
            outcome => outcome?,
        }
        self.shut_down.store(true, Ordering::Release);
        Ok(())
    }
}

/// The wide form of flags.
fn extended(flags: InodeFlags) -> u32 {
    EXTENDED.iter().filter(|(flag, _)| flags.any(*flag)).fold(0, |bits, (_, bit)| bits | bit)
}

/// The flags that bits of the wide form mean; `None` if one means none that is kept.
fn plain(bits: u32) -> Option<InodeFlags> {
    let known = EXTENDED.iter().fold(0, |known, (_, bit)| known | bit);
    let set = EXTENDED.iter().filter(|(_, bit)| bits & bit != 0);
    (bits & !known == 0).then(|| set.fold(InodeFlags::default(), |flags, (flag, _)| flags | *flag))
}

/// All flags that the wide form has.
fn plain_mask() -> InodeFlags {
    EXTENDED.iter().fold(InodeFlags::default(), |flags, (flag, _)| flags | *flag)
}

#[cfg(test)]
mod tests {
    use super::{extended, plain, plain_mask};
    use marram_vfs::InodeFlags;

    #[test]
    fn the_wide_form_means_the_same_flags() {
        let flags = InodeFlags::IMMUTABLE | InodeFlags::INHERIT_PROJECT;
        assert_eq!(extended(flags), 0x208);
        assert_eq!(plain(0x208), Some(flags));
        assert_eq!(extended(InodeFlags::NO_COMPRESSION), 0);
        assert_eq!(plain(0x8000_0000), None, "this one is told, not set");
        assert!(
            plain_mask().any(InodeFlags::NO_DUMP) && !plain_mask().any(InodeFlags::SYNC_DIRECTORY)
        );
    }
}
