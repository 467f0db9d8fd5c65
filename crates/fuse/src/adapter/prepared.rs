//! Our own control calls: they announce what another call performs, and answer what no other call
//! can ask.

use super::announced::Allocation;
use super::caller::{Capability, acts_as_user, acts_in_group, has_capability};
use super::{Adapter, Outcome};
use crate::errno::Errno;
use crate::protocol::flags::ioctl::REPLY_BYTES;
use crate::protocol::{
    Deed, EXTENTS_MAX, Encoder, FileCall, Header, Ioctl, Prepared, encode_extents, encode_usage,
};
use marram_vfs::{Error, FILE_BYTES_MAX, Ino, UsageOwner};

impl Adapter {
    /// Serves one of our own control calls.
    pub(super) fn file_call(
        &self,
        header: &Header,
        ioctl: &Ioctl<'_>,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let call = FileCall::decode(ioctl.command, ioctl.input).ok_or(Errno::INVALID)?;
        let ino = Ino(header.node);
        let answer = match call {
            FileCall::Prepare { deed, offset, len } => self.prepare(ino, deed, (offset, len))?,
            FileCall::Withdraw { offset, len } => {
                let was_there = self.announced.take_share(ino, (offset, len));
                [u64::from(was_there).to_le_bytes(), [0; 8]].concat()
            }
            FileCall::Extents { offset } => {
                encode_extents(&self.file_system.extents(ino, offset, EXTENTS_MAX)?)
            }
            FileCall::Usage { owner } => {
                if !self.may_know_of(header, owner)? {
                    return Err(Errno::NOT_PERMITTED.into());
                }
                encode_usage(&self.file_system.usage(ino, owner)?)
            }
        };
        if u32::try_from(answer.len()).is_ok_and(|bytes| bytes > ioctl.output_bytes_max) {
            return Err(Errno::INVALID.into());
        }
        out.zeros(REPLY_BYTES).bytes(&answer);
        Ok(())
    }

    /// Whether the caller may know what `owner` uses. As with the kernel's own quotas a user may
    /// know of itself and its groups, and of the project of a file that it has open.
    fn may_know_of(&self, header: &Header, owner: UsageOwner) -> Result<bool, Error> {
        let is_own = match owner {
            UsageOwner::User(id) => acts_as_user(header, id),
            UsageOwner::Group(id) => acts_in_group(header, id),
            UsageOwner::Project(id) => self.file_system.marks(Ino(header.node))?.project == id,
        };
        Ok(is_own || has_capability(header, Capability::Administer))
    }

    fn prepare(&self, ino: Ino, deed: Deed, (offset, len): (u64, u64)) -> Result<Vec<u8>, Error> {
        if offset.checked_add(len).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Error::FileTooLarge);
        }
        let len = match deed {
            Deed::Allocate(how) => {
                self.announced.add_allocation(ino, Allocation { how, offset, len })
            }
            Deed::Share => {
                self.announced.add_share(ino, (offset, len));
                0
            }
        };
        Ok(Prepared { len, kernel_owns_sizes: self.agreement.writeback }.encode())
    }
}
