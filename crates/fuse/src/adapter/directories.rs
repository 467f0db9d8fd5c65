//! Listing directories.
//!
//! The kernel's offset of an entry is the file system's cookie plus two: offset 1 comes after `.`,
//! 2 after `..`, which every listing begins with.

use super::{Adapter, Outcome, Refusal};
use crate::errno::Errno;
use crate::protocol::{Encoder, Transfer, directory_entry_bytes};
use marram_vfs::{COOKIE_MAX, DirectoryEntry, Error, Ino, Kind};

/// Offset after `.`.
const AFTER_SELF: u64 = 1;
/// Offset after `..`, and what is added to a cookie.
const AFTER_PARENT: u64 = 2;

impl Adapter {
    /// Fills a reply with entries after `transfer.offset`. An entry that does not fit is not
    /// accepted, so with attributes it is not pinned. If the file system fails half-way, what is
    /// there goes out (its pins are counted by the kernel); the next request meets the error.
    pub(super) fn read_directory(
        &self,
        ino: Ino,
        transfer: Transfer,
        with_attributes: bool,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let mut page = Page {
            bytes_max: usize::try_from(transfer.size).unwrap_or(usize::MAX),
            with_attributes,
            out,
        };
        if transfer.offset < AFTER_PARENT && !self.dots(ino, transfer.offset, &mut page)? {
            return Ok(());
        }
        let after = transfer.offset.saturating_sub(AFTER_PARENT);
        let mut broken = false;
        let listed = self.file_system.read_directory(ino, after, with_attributes, &mut |entry| {
            broken = entry.cookie > COOKIE_MAX;
            !broken && self.add(&mut page, &entry)
        });
        match listed {
            _ if !page.out.0.is_empty() => Ok(()),
            Ok(()) if broken => Err(Errno::IO.into()),
            ended => Ok(ended?),
        }
    }

    /// Adds `.` and `..`; false if they do not fit.
    fn dots(&self, ino: Ino, offset: u64, page: &mut Page<'_, '_>) -> Result<bool, Refusal> {
        if offset < AFTER_SELF && !page.add_dot(b".", ino, AFTER_SELF) {
            return Ok(false);
        }
        let parent = match self.file_system.parent(ino) {
            Ok(parent) => {
                self.file_system.forget(parent.ino, 1);
                parent.ino
            }
            // A directory that was removed while open has no parent any more.
            Err(Error::NotFound | Error::Stale) => ino,
            Err(error) => return Err(error.into()),
        };
        Ok(page.add_dot(b"..", parent, AFTER_PARENT))
    }

    fn add(&self, page: &mut Page<'_, '_>, entry: &DirectoryEntry<'_>) -> bool {
        if !page.has_room(entry.name) {
            return false;
        }
        if page.with_attributes {
            match &entry.attributes {
                Some(attributes) => self.encoding().entry(page.out, attributes),
                None => page.out.no_lookup(),
            }
        }
        let next = entry.cookie + AFTER_PARENT;
        page.out.directory_entry(entry.name, entry.ino.0, entry.kind, next);
        true
    }
}

/// A reply that fills up.
struct Page<'a, 'b> {
    bytes_max: usize,
    with_attributes: bool,
    out: &'a mut Encoder<'b>,
}

impl Page<'_, '_> {
    fn has_room(&self, name: &[u8]) -> bool {
        self.out.0.len() + directory_entry_bytes(name, self.with_attributes) <= self.bytes_max
    }

    /// Entries for `.` and `..` carry no attributes: the kernel does not count them as lookups.
    fn add_dot(&mut self, name: &[u8], ino: Ino, next: u64) -> bool {
        if !self.has_room(name) {
            return false;
        }
        if self.with_attributes {
            self.out.no_lookup();
        }
        self.out.directory_entry(name, ino.0, Kind::Directory, next);
        true
    }
}
