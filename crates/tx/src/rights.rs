//! What decides about an inode, in a transaction: its mode and its POSIX access control list
//! ([`marram_history::grants`]), and what follows from its owner.

use marram_history::{Modes, SEARCH, grants};
use marram_vfs::{Attributes, Error, Identity, Kind, Result};

const EXECUTE_ANY: u32 = 0o111;
const STICKY: u32 = 0o1000;

/// What decides about an inode.
pub(crate) struct Subject {
    pub(crate) attributes: Attributes,
    /// The access control list, as the kernel hands it over.
    pub(crate) list: Option<Vec<u8>>,
}

impl Subject {
    /// Whether it is the caller's own, or the caller is bound by nothing.
    pub(crate) fn is_owned_by(&self, who: &dyn Identity) -> bool {
        who.is_privileged() || self.attributes.uid == who.uid()
    }

    pub(crate) fn demand_ownership(&self, who: &dyn Identity) -> Result<()> {
        if self.is_owned_by(who) { Ok(()) } else { Err(Error::NotPermitted) }
    }

    pub(crate) fn demand(&self, who: &dyn Identity, wanted: u16) -> Result<()> {
        if self.allows(who, wanted) { Ok(()) } else { Err(Error::AccessDenied) }
    }

    /// Whether a caller that may change the directory may take this from it.
    pub(crate) fn may_lose(&self, who: &dyn Identity, gone: &Subject) -> Result<()> {
        let is_sticky = self.attributes.permissions & STICKY != 0;
        match is_sticky && !gone.is_owned_by(who) && !self.is_owned_by(who) {
            true => Err(Error::NotPermitted),
            false => Ok(()),
        }
    }

    /// Nobody runs a file that has no execute bit at all.
    pub(crate) fn allows(&self, who: &dyn Identity, wanted: u16) -> bool {
        let Attributes { kind, permissions, uid, gid, .. } = self.attributes;
        let runs = wanted & SEARCH != 0 && kind != Kind::Directory;
        if runs && permissions & EXECUTE_ANY == 0 {
            return false;
        }
        let low = u16::try_from(permissions & 0o7777).unwrap_or_default();
        grants(who, Modes { permissions: low, uid, gid }, self.list.as_deref(), wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::Subject;
    use marram_history::{READ, SEARCH, WRITE};
    use marram_vfs::{Attributes, Identity, Ino, Kind, Timestamp};

    struct Who(u32, &'static [u32]);

    impl Identity for Who {
        fn uid(&self) -> u32 {
            self.0
        }

        fn gid(&self) -> u32 {
            self.1[0]
        }

        fn is_member(&self, gid: u32) -> bool {
            self.1.contains(&gid)
        }
    }

    const OWNER: Who = Who(10, &[20]);
    const MEMBER: Who = Who(11, &[9, 20]);
    const STRANGER: Who = Who(12, &[9]);
    const ROOT: Who = Who(0, &[0]);

    fn subject(kind: Kind, permissions: u32) -> Subject {
        let time = Timestamp::default();
        let attributes = Attributes {
            ino: Ino(5),
            generation: 0,
            kind,
            permissions,
            links: 1,
            uid: 10,
            gid: 20,
            device: 0,
            size: 0,
            blocks_512: 0,
            accessed: time,
            modified: time,
            changed: time,
            created: time,
        };
        Subject { attributes, list: None }
    }

    #[test]
    fn the_class_of_the_caller_decides_alone() {
        let file = subject(Kind::Regular, 0o074);
        let may = |who: &Who, wanted| file.allows(who, wanted);
        assert!(!may(&OWNER, READ), "though its group may");
        assert!(may(&MEMBER, READ | WRITE | SEARCH) && may(&STRANGER, READ));
        assert!(!may(&STRANGER, WRITE) && !may(&STRANGER, READ | SEARCH));
        assert!(may(&ROOT, READ | WRITE | SEARCH));
        let plain = subject(Kind::Regular, 0o666);
        assert!(!plain.allows(&ROOT, SEARCH), "nobody runs what has no execute bit");
        assert!(subject(Kind::Directory, 0o000).allows(&ROOT, SEARCH));
        assert!(!subject(Kind::Regular, 0o604).allows(&MEMBER, READ));
        assert!(!subject(Kind::Regular, 0o060).allows(&STRANGER, READ));
    }

    #[test]
    fn only_owners_take_things_out_of_a_sticky_directory() {
        let (sticky, plain) = (subject(Kind::Directory, 0o1777), subject(Kind::Directory, 0o777));
        let mut own = subject(Kind::Regular, 0o644);
        assert!(
            sticky.may_lose(&STRANGER, &own).is_err() && plain.may_lose(&STRANGER, &own).is_ok()
        );
        assert!(sticky.may_lose(&OWNER, &own).is_ok() && sticky.may_lose(&ROOT, &own).is_ok());
        own.attributes.uid = 12;
        assert!(sticky.may_lose(&STRANGER, &own).is_ok());
    }
}
