//! One inode and the items that belong to it, which lie together.

use super::files::FileItem;
use super::names::{NameRun, is_entry_name};
use super::references::Fault;
use crate::finding::FindingKind;
use marram_format::key::kind;
use marram_format::record::{
    Counters, Entry, Inode, InodeKind, NameRule, Section, XattrRecord, decode_target, state,
};

/// Attributes that an inode says it has, each by a bit of its state.
const STATED: [(&[u8], u32); 4] = [
    (b"security.capability", state::CAPABILITY),
    (b"system.posix_acl_access", state::POSIX_ACCESS),
    (b"system.posix_acl_default", state::POSIX_DEFAULT),
    (b"system.nfs4_acl", state::NFS4_LIST),
];

/// What is known of an inode while its items pass by.
pub(super) struct Object {
    pub(super) ino: u64,
    pub(super) inode: Option<Inode>,
    /// There is a record, even if it cannot be decoded.
    has_record: bool,
    /// Something of it could not be read: nothing can be said of sums.
    pub(super) has_gap: bool,
    entries: u64,
    data_bytes: u64,
    reserved_bytes: u64,
    section_end: u64,
    data_end: u64,
    target_bytes: Option<u64>,
    /// Bits of the inode's state that belong to attributes found.
    stated: u32,
    names: NameRun,
    attributes: NameRun,
}

fn malformed(error: impl ToString) -> Fault {
    (FindingKind::ItemMalformed, error.to_string())
}

impl Object {
    pub(super) fn new(ino: u64, has_gap: bool) -> Object {
        Object {
            ino,
            inode: None,
            has_record: false,
            has_gap,
            entries: 0,
            data_bytes: 0,
            reserved_bytes: 0,
            section_end: 0,
            data_end: 0,
            target_bytes: None,
            stated: 0,
            names: NameRun::default(),
            attributes: NameRun::default(),
        }
    }

    /// Its record.
    pub(super) fn record(&mut self, item: &FileItem<'_>) -> Result<&Inode, Fault> {
        self.has_record = true;
        expect_offset_zero(item)?;
        let inode = Inode::decode(item.value).map_err(malformed)?;
        Ok(self.inode.insert(inode))
    }

    /// An entry of a directory. What can be said of it is reported even if something is wrong.
    pub(super) fn entry(
        &mut self,
        item: &FileItem<'_>,
        counters: Option<Counters>,
    ) -> Result<(u64, InodeKind, Option<Fault>), Fault> {
        let entry = Entry::decode(item.value).map_err(malformed)?;
        self.entries += 1;
        let named = |kind| (kind, String::from_utf8_lossy(entry.name).into_owned());
        let place = counters.and_then(|Counters { name_seed, names, .. }| {
            self.names.add(name_seed, names, item.key.offset, entry.name)
        });
        let fault = match is_entry_name(entry.name) {
            false => Some(named(FindingKind::EntryName)),
            true => place.map(named).or_else(|| self.foreign(InodeKind::Directory, "an entry")),
        };
        Ok((entry.ino, entry.kind, fault))
    }

    /// An extended attribute.
    pub(super) fn attribute(
        &mut self,
        item: &FileItem<'_>,
        seed: Option<u64>,
    ) -> Result<(), Fault> {
        let record = XattrRecord::decode(item.value).map_err(malformed)?;
        let stated = STATED.iter().find(|(name, _)| record.name == *name);
        self.stated |= stated.map_or(0, |(_, bit)| *bit);
        if item.block_bytes.is_some() && !record.value.is_empty() {
            return Err(malformed("the value is in the item and in a block"));
        }
        match seed.and_then(|seed| {
            self.attributes.add(seed, NameRule::Exact, item.key.offset, record.name)
        }) {
            None => Ok(()),
            Some(kind) => Err((kind, String::from_utf8_lossy(record.name).into_owned())),
        }
    }

    /// The target of a symbolic link.
    pub(super) fn target(&mut self, item: &FileItem<'_>) -> Result<(), Fault> {
        expect_offset_zero(item)?;
        let target = decode_target(item.value).map_err(malformed)?;
        self.target_bytes = Some(target.len() as u64);
        self.foreign(InodeKind::Symlink, "a target").map_or(Ok(()), Err)
    }

    /// A section of a file.
    pub(super) fn section(&mut self, item: &FileItem<'_>) -> Result<(), Fault> {
        let (block_bytes, at) = (item.block_bytes, item.key.offset);
        let section = Section::decode(item.value, at, block_bytes).map_err(malformed)?;
        let end = at + section.len_bytes;
        let overlaps = at < self.section_end;
        self.section_end = self.section_end.max(end);
        match block_bytes {
            Some(_) => {
                self.data_bytes = self.data_bytes.saturating_add(section.len_bytes);
                self.data_end = self.data_end.max(end);
            }
            None => self.reserved_bytes = self.reserved_bytes.saturating_add(section.len_bytes),
        }
        if overlaps {
            let detail = format!("the section at byte {at} begins inside the one before");
            return Err((FindingKind::SectionOverlap, detail));
        }
        self.foreign(InodeKind::Regular, "a section").map_or(Ok(()), Err)
    }

    /// The fault of an item that only one kind of inode has.
    fn foreign(&self, kind: InodeKind, what: &str) -> Option<Fault> {
        let inode = self.inode.as_ref()?;
        let detail = || format!("{what} of an inode that is {:?}", inode.kind);
        (inode.kind != kind).then(|| (FindingKind::ItemForeign, detail()))
    }

    /// All its items have passed.
    pub(super) fn finish(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if self.has_gap {
            return faults;
        }
        let Some(inode) = &self.inode else {
            if !self.has_record {
                faults.push((FindingKind::InodeMissing, format!("inode {}", self.ino)));
            }
            return faults;
        };
        let waits = inode.links == 0;
        self.check_usage(inode, waits, &mut faults);
        if waits {
            // It is freed at the next mount, with all that only it leads to.
            if inode.kind == InodeKind::Directory && self.entries > 0 {
                let detail = format!("{} entries, and it has no name", self.entries);
                faults.push((FindingKind::DirectorySize, detail));
            }
            return faults;
        }
        let target_bytes = self.target_bytes.unwrap_or_default();
        if inode.kind == InodeKind::Symlink && target_bytes != inode.size {
            let detail = format!("{target_bytes} bytes instead of {}", inode.size);
            faults.push((FindingKind::SymlinkTarget, detail));
        }
        if inode.kind == InodeKind::Directory && self.entries != inode.size {
            let detail = format!("{} instead of {}", inode.size, self.entries);
            faults.push((FindingKind::DirectorySize, detail));
        }
        for (name, bit) in STATED {
            let name = String::from_utf8_lossy(name);
            let detail = match (self.stated & bit != 0, inode.state & bit != 0) {
                (true, false) => format!("it has {name}, and does not say so"),
                (false, true) => format!("it says that it has {name}"),
                _ => continue,
            };
            faults.push((FindingKind::CapabilityFlag, detail));
        }
        faults
    }

    /// Of an inode that is being freed a part of the sections is gone already.
    fn check_usage(&self, inode: &Inode, waits: bool, faults: &mut Vec<Fault>) {
        let pairs = [
            ("data", inode.data_bytes, self.data_bytes),
            ("reserved", inode.reserved_bytes, self.reserved_bytes),
        ];
        for (what, recorded, found) in pairs {
            if if waits { found > recorded } else { found != recorded } {
                let detail = format!("{recorded} bytes of {what} instead of {found}");
                faults.push((FindingKind::FileUsage, detail));
            }
        }
        let tail = inode.state & state::TAIL != 0;
        if !tail && inode.kind == InodeKind::Regular && self.data_end > inode.size {
            let detail = format!("content up to byte {}, size {}", self.data_end, inode.size);
            faults.push((FindingKind::SectionPastSize, detail));
        }
    }
}

fn expect_offset_zero(item: &FileItem<'_>) -> Result<(), Fault> {
    if item.key.offset == 0 {
        return Ok(());
    }
    let what = if item.key.kind == kind::INODE { "an inode record" } else { "a target" };
    Err((FindingKind::ItemMisplaced, format!("{what} is looked for at offset 0")))
}
