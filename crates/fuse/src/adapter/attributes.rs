//! Telling and changing attributes.

use super::caller::{
    Capability, Requester, acts_as_owner, has_capability, is_changing_owner, is_losing_privileges,
    is_strangers_setgid,
};
use super::opening::check_may_cut;
use super::{Adapter, Outcome, caller};
use crate::errno::Errno;
use crate::protocol::{Encoder, Header, SetAttributesIn, flags::set_attributes as valid};
use marram_vfs::{Action, Error, Ino, Kind, Name, SetAttributes, SetTime, Timestamp};

impl Adapter {
    /// The attributes of an open file go to any caller that has it open.
    pub(super) fn attributes(&self, header: &Header, open: bool, out: &mut Encoder<'_>) -> Outcome {
        let ino = Ino(header.node);
        if !open {
            self.authorize(header, Action::ReadAttributes(ino))?;
        }
        let attributes = self.file_system.attributes(ino)?;
        self.encoding().timed_attributes(out, &attributes);
        Ok(())
    }

    pub(super) fn extended_attributes(
        &self,
        header: &Header,
        open: bool,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let ino = Ino(header.node);
        if !open {
            self.authorize(header, Action::ReadAttributes(ino))?;
        }
        let attributes = self.file_system.attributes(ino)?;
        self.encoding().extended_attributes(out, &attributes);
        Ok(())
    }

    pub(super) fn set_attributes(
        &self,
        header: &Header,
        set: &SetAttributesIn,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let handle = (set.valid & valid::HANDLE != 0).then_some(set.handle);
        let mut set = change(set).ok_or(Errno::INVALID)?;
        let ino = Ino(header.node);
        if set == SetAttributes::default() {
            set.clear_privileges = self.is_change_of_owner(header, ino)?;
        }
        if set.clear_privileges || set.size.is_some() {
            let present = self.file_system.attributes(ino)?;
            set.clear_privileges |= is_losing_privileges(header, &present);
            set.clear_setgid = is_strangers_setgid(header, &present);
        }
        self.authorize_change(header, handle, &mut set)?;
        let attributes = self.file_system.set_attributes(caller(header), ino, &set)?;
        if set.size.is_some() {
            self.closes.note_change(ino);
        }
        self.encoding().timed_attributes(out, &attributes);
        Ok(())
    }

    /// A cut through an open file was allowed when that was opened.
    fn authorize_change(
        &self,
        header: &Header,
        handle: Option<u64>,
        set: &mut SetAttributes,
    ) -> Outcome {
        let Some(control) = self.control() else {
            return Ok(());
        };
        if let (Some(handle), Some(_)) = (handle, set.size) {
            let rest = SetAttributes {
                size: None,
                modified: set.modified.filter(|time| *time != SetTime::Now),
                clear_privileges: false,
                clear_setgid: false,
                ..*set
            };
            if rest == SetAttributes::default() {
                return check_may_cut(handle);
            }
        }
        Ok(control.authorize_change(&Requester::of(header), Ino(header.node), set)?)
    }

    /// Whether a change of nothing is a `chown` that names neither owner nor group, and takes
    /// setuid away. Before a write the kernel says as much when privileges must go. Those of a
    /// caller that may not keep them go then, so that a file system above this one (OverlayFS)
    /// knows of it before a program is run. A caller that may keep them writes to a file that had
    /// capabilities, which the kernel has taken off already, and the file keeps setuid. So the
    /// `chown` of such a caller takes nothing away, nor does that of a stranger, which the system
    /// call tells apart.
    fn is_change_of_owner(&self, header: &Header, ino: Ino) -> Result<bool, Error> {
        let present = self.file_system.attributes(ino)?;
        if present.kind == Kind::Directory || present.permissions & 0o6000 == 0 {
            return Ok(false);
        }
        let writes = || is_changing_owner(header) == Some(false);
        let keeps = has_capability(header, Capability::KeepPrivileges);
        Ok(!keeps && (acts_as_owner(header, &present) || writes()))
    }

    pub(super) fn space(&self, out: &mut Encoder<'_>) -> Outcome {
        let name_bytes_max = u32::try_from(Name::BYTES_MAX).expect("names are short");
        out.space(&self.file_system.space()?, name_bytes_max);
        Ok(())
    }
}

/// The change that a request asks for; `None` if a time in it is no time. The kernel says itself
/// when setuid and setgid must go (chown of a file by anyone, truncate by the unprivileged). A
/// change of nothing says only that file capabilities are gone, which it has seen to itself.
fn change(set: &SetAttributesIn) -> Option<SetAttributes> {
    let has = |bit: u32| set.valid & bit != 0;
    let time = |at: u32, now: u32, seconds: i64, nanoseconds: u32| match () {
        () if has(now) => Some(Some(SetTime::Now)),
        () if has(at) => moment(seconds, nanoseconds).map(|time| Some(SetTime::At(time))),
        () => Some(None),
    };
    let changed = match has(valid::CHANGED) {
        true => Some(moment(set.changed_seconds, set.changed_nanoseconds)?),
        false => None,
    };
    Some(SetAttributes {
        permissions: has(valid::MODE).then_some(set.mode & 0o7777),
        uid: has(valid::UID).then_some(set.uid),
        gid: has(valid::GID).then_some(set.gid),
        size: has(valid::SIZE).then_some(set.size),
        accessed: time(
            valid::ACCESSED,
            valid::ACCESSED_NOW,
            set.accessed_seconds,
            set.accessed_nanoseconds,
        )?,
        modified: time(
            valid::MODIFIED,
            valid::MODIFIED_NOW,
            set.modified_seconds,
            set.modified_nanoseconds,
        )?,
        changed,
        clear_privileges: has(valid::KILL_SUIDGID),
        clear_setgid: false,
    })
}

fn moment(seconds: i64, nanoseconds: u32) -> Option<Timestamp> {
    (nanoseconds < 1_000_000_000).then_some(Timestamp { seconds, nanoseconds })
}

#[cfg(test)]
mod tests {
    use super::change;
    use crate::protocol::{SetAttributesIn, flags::set_attributes as valid};
    use marram_vfs::{SetAttributes, SetTime, Timestamp};

    #[test]
    fn only_valid_fields_change() {
        let mut set = SetAttributesIn { mode: 0o104_755, uid: 3, size: 9, ..Default::default() };
        assert_eq!(change(&set), Some(SetAttributes::default()));
        set.valid = valid::MODE | valid::KILL_SUIDGID | valid::ACCESSED | valid::ACCESSED_NOW;
        let expected = SetAttributes {
            permissions: Some(0o4755),
            accessed: Some(SetTime::Now),
            clear_privileges: true,
            ..Default::default()
        };
        assert_eq!(change(&set), Some(expected));
    }

    #[test]
    fn times_are_taken_verbatim_or_refused() {
        let mut set = SetAttributesIn {
            valid: valid::MODIFIED,
            modified_seconds: -5,
            modified_nanoseconds: 999_999_999,
            ..Default::default()
        };
        let time = Timestamp { seconds: -5, nanoseconds: 999_999_999 };
        assert_eq!(change(&set).and_then(|set| set.modified), Some(SetTime::At(time)));
        set.modified_nanoseconds += 1;
        assert_eq!(change(&set), None);
    }
}
