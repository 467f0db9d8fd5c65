//! Extended attributes.
//!
//! Access control lists are refused unless the kernel has agreed to enforce them, or the file
//! system does: the kernel would store them through here all the same, and a list that is not
//! enforced is worse than none.

use super::caller::{Capability, Requester, has_capability};
use super::{Adapter, Outcome};
use crate::errno::Errno;
use crate::protocol::flags::set_xattr;
use crate::protocol::{Encoder, Header};
use marram_vfs::{
    Action, Error, Identity, Ino, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XattrMode,
};

/// Longest list of names that the kernel hands out, in bytes.
const LIST_BYTES_MAX: usize = 65_536;

/// POSIX access control lists.
const POSIX_LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// The NFSv4 access control list, which every inode has where there are any.
const NFS4_LIST: &[u8] = b"system.nfs4_acl";

impl Adapter {
    /// Size 0 asks how long the value is.
    pub(super) fn xattr(
        &self,
        header: &Header,
        name: &[u8],
        size: u32,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        self.check(name)?;
        let ino = Ino(header.node);
        self.authorize(header, Action::ReadXattr { ino, name })?;
        reply(&self.file_system.xattr(ino, name)?, size, out)
    }

    pub(super) fn set_xattr(
        &self,
        header: &Header,
        name: &[u8],
        value: &[u8],
        flags: u32,
        clear_setgid: bool,
    ) -> Outcome {
        self.check(name)?;
        let ino = Ino(header.node);
        let mode = match flags {
            0 => XattrMode::Any,
            set_xattr::CREATE => XattrMode::Create,
            set_xattr::REPLACE => XattrMode::Replace,
            _ => return Err(Errno::INVALID.into()),
        };
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Errno::TOO_BIG.into());
        }
        self.authorize(header, Action::WriteXattr { ino, name })?;
        if POSIX_LISTS.contains(&name) {
            let clear_setgid =
                clear_setgid || self.control().is_some() && !self.keeps_setgid(header, ino)?;
            return Ok(self.file_system.set_access_list(ino, name, value, clear_setgid)?);
        }
        if name == NFS4_LIST && mode != XattrMode::Create {
            let clear_setgid = !self.keeps_setgid(header, ino)?;
            return Ok(self.file_system.set_access_list(ino, name, value, clear_setgid)?);
        }
        Ok(self.file_system.set_xattr(ino, name, value, mode)?)
    }

    /// By the kernel, or by the file system, which refuses what it does not enforce.
    fn are_lists_enforced(&self) -> bool {
        self.agreement.posix_lists || self.control().is_some()
    }

    /// Of POSIX lists the kernel says itself whose setgid must go, where it enforces them.
    fn keeps_setgid(&self, header: &Header, ino: Ino) -> Result<bool, Error> {
        let caller = Requester::of(header);
        let group = self.file_system.attributes(ino)?.gid;
        Ok(caller.is_privileged() || caller.is_member(group))
    }

    pub(super) fn remove_xattr(&self, header: &Header, name: &[u8]) -> Outcome {
        self.check(name)?;
        let ino = Ino(header.node);
        self.authorize(header, Action::WriteXattr { ino, name })?;
        Ok(self.file_system.remove_xattr(ino, name)?)
    }

    /// Names under `trusted.` are shown to administrators only.
    pub(super) fn list_xattrs(&self, header: &Header, size: u32, out: &mut Encoder<'_>) -> Outcome {
        let mut names = self.file_system.list_xattrs(Ino(header.node))?;
        let trusted = |name: &Vec<u8>| name.starts_with(b"trusted.");
        if names.iter().any(trusted) && !has_capability(header, Capability::Administer) {
            names.retain(|name| !trusted(name));
        }
        let mut list = Vec::new();
        for name in names {
            list.extend_from_slice(&name);
            list.push(0);
        }
        if list.len() > LIST_BYTES_MAX {
            return Err(Errno::TOO_BIG.into());
        }
        reply(&list, size, out)
    }

    fn check(&self, name: &[u8]) -> Result<(), Errno> {
        match name {
            b"" => Err(Errno::INVALID),
            _ if name.len() > XATTR_NAME_BYTES_MAX => Err(Errno::RANGE),
            _ if POSIX_LISTS.contains(&name) && !self.are_lists_enforced() => {
                Err(Errno::NOT_SUPPORTED)
            }
            _ => Ok(()),
        }
    }
}

fn reply(value: &[u8], size: u32, out: &mut Encoder<'_>) -> Outcome {
    let value_bytes = u32::try_from(value.len()).map_err(|_| Errno::TOO_BIG)?;
    match size {
        0 => {
            out.u32(value_bytes).zeros(4);
        }
        _ if value_bytes > size => return Err(Errno::RANGE.into()),
        _ => {
            out.bytes(value);
        }
    }
    Ok(())
}
