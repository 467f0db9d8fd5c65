//! What can be wrong with a pool: one kind for each, with a code that never changes its meaning.
//!
//! `docs/check.md` lists the kinds for people; a test compares it with this module.

use marram_format::key::Key;
use std::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Nothing is lost and nothing need be done.
    Warning,
    /// Something is wrong or lost, but the rest of the pool can be used.
    Error,
    /// Writing to the pool could destroy more: it should only be read from now on.
    Fatal,
}

impl fmt::Display for Severity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
            Severity::Fatal => "fatal",
        })
    }
}

const NOTHING: &str = "nothing needs to be done";
const HEAL: &str = "nothing is lost: the good copy is used; mount the pool for writing, the bad \
                    copy is rewritten when it is met on reading, or when its block next changes";
const RENEW: &str =
    "mount the pool for writing and change something: the next commit writes two new copies";
const TAKE_IN: &str = "nothing is lost: the good copy is used; mount the pool for writing, then \
                       the next commit takes in what the log has";
const REDO: &str = "what programs had synced between that moment and the crash is lost; restore \
                    what was being written then from where it came";
const RESTORE: &str = "restore what is named from a backup or an older snapshot, or delete it";
const RESCUE: &str =
    "do not write to the pool; mount it read-only, copy out what can be read, and make a new pool";
const COPY: &str = "copy what is named to a new place and delete it here; please report the defect";
const DEFECT: &str = "the content is not touched by it, the pool can be used; please report the \
                      defect, and copy everything to a new pool when there is time";

macro_rules! kinds {
    ($($name:ident $code:literal $severity:ident $advice:ident $meaning:literal)*) => {
        /// What is wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FindingKind {
            $(#[doc = $meaning] $name,)*
        }

        impl FindingKind {
            /// All kinds.
            pub const ALL: &[FindingKind] = &[$(FindingKind::$name,)*];

            /// The code of this kind: a few words that never change their meaning.
            pub const fn code(self) -> &'static str {
                match self { $(FindingKind::$name => $code,)* }
            }

            /// How bad it is.
            pub const fn severity(self) -> Severity {
                match self { $(FindingKind::$name => Severity::$severity,)* }
            }

            /// What it means, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(FindingKind::$name => $meaning,)* }
            }

            /// What to do about it.
            pub const fn advice(self) -> &'static str {
                match self { $(FindingKind::$name => $advice,)* }
            }
        }
    };
}

kinds! {
    SignatureDamaged "signature-damaged" Error DEFECT
        "the signature page, by which other programs know a pool, is damaged"
    SignatureMismatch "signature-mismatch" Warning NOTHING
        "the signature page names another pool than the superblock"
    DeviceRead "device-read" Error RESCUE
        "the device cannot read where superblocks lie"
    DeviceShort "device-short" Fatal RESCUE
        "the device ends before the pool does"
    SuperblockMissing "superblock-missing" Fatal RESCUE
        "no superblock is valid: nothing of the pool can be found"
    SuperblockCopy "superblock-copy" Error RENEW
        "of the newest superblock one of the two copies is damaged"
    SuperblockSlot "superblock-slot" Warning NOTHING
        "the superblock of an earlier commit is damaged, and no interrupted commit explains it"
    SuperblockRing "superblock-ring" Warning NOTHING
        "one ring of superblocks lacks many of those that the other has"
    SuperblockMisplaced "superblock-misplaced" Error DEFECT
        "a superblock lies in the slot of another group"
    SuperblockForeign "superblock-foreign" Error RESCUE
        "a superblock of another pool lies in a ring"
    SuperblockSplit "superblock-split" Error RESCUE
        "the two copies of a superblock are both valid and say different things"
    SuperblockField "superblock-field" Error DEFECT
        "a field of the newest superblock is not what it can be"
    AllocatedGrains "allocated-grains" Error DEFECT
        "the superblock has a wrong number of grains in use"
    NextDataset "next-dataset" Error RESCUE
        "an id is in use that the superblock would give away again"
    PointerMalformed "pointer-malformed" Error RESTORE
        "a block pointer cannot be decoded"
    PointerFlags "pointer-flags" Error COPY
        "a block pointer has flags that do not fit what it leads to"
    PointerBirth "pointer-birth" Error RESCUE
        "a block claims to be younger than what refers to it"
    ExtentRange "extent-range" Fatal RESCUE
        "a block lies where no block can lie"
    CopyDamaged "copy-damaged" Error HEAL
        "one copy of a block is damaged, another one is good"
    BlockLost "block-lost" Error RESTORE
        "no copy of a block of content is good"
    BlockContent "block-content" Error RESTORE
        "a block has the right checksum, but does not decompress to what it should"
    MetadataLost "metadata-lost" Fatal RESCUE
        "no copy of a block of the pool's own structures is good"
    MetadataMalformed "metadata-malformed" Fatal RESCUE
        "a structure of the pool has the right checksum, but makes no sense"
    NodeLevel "node-level" Fatal RESCUE
        "a tree node has not the level that its parent gives it"
    NodeTree "node-tree" Error RESCUE
        "a tree node was written for another tree"
    NodeBounds "node-bounds" Fatal RESCUE
        "a tree node holds keys that its parent leads elsewhere for"
    ItemMalformed "item-malformed" Error COPY
        "the value of an item cannot be decoded"
    ItemMisplaced "item-misplaced" Error COPY
        "an item lies under a key that it cannot have"
    ItemBlock "item-block" Error COPY
        "an item has a block and should not, or should and has none"
    ItemUnknown "item-unknown" Warning NOTHING
        "an item has a kind that is not known"
    DatasetLink "dataset-link" Fatal RESCUE
        "datasets and snapshots do not agree on their order"
    DatasetClones "dataset-clones" Error DEFECT
        "a snapshot has a wrong number of clones"
    DatasetGroup "dataset-group" Fatal RESCUE
        "a dataset has a wrong group of its previous snapshot"
    DatasetName "dataset-name" Error DEFECT
        "a dataset has a name that it cannot have"
    DatasetGrains "dataset-grains" Error DEFECT
        "a dataset has a wrong number of grains that it refers to"
    DeadGrains "dead-grains" Error DEFECT
        "a dataset has a wrong number of grains on its dead list"
    DatasetProperty "dataset-property" Error DEFECT
        "a property that the pool itself keeps of a dataset makes no sense"
    DeadUnowned "dead-unowned" Error DEFECT
        "a dead list belongs to no dataset"
    DeadContent "dead-content" Fatal RESCUE
        "a dead list is not what the snapshot before has and the dataset has no more"
    ReclaimList "reclaim-list" Fatal RESCUE
        "a dead list in reclaim belongs to a dataset, or leads to the wrong list"
    OperationLog "operation-log" Error DEFECT
        "the log of operations and what is kept for an undo do not agree"
    SpaceLeak "space-leak" Error DEFECT
        "space is marked as in use, but nothing refers to it"
    SpaceFree "space-free" Fatal RESCUE
        "a block lies in space that is marked as free"
    SpaceDouble "space-double" Fatal RESCUE
        "two blocks lie in the same space"
    SpaceSummary "space-summary" Error DEFECT
        "the summary of a zone is not what its bitmap says"
    SpaceTail "space-tail" Error RESCUE
        "the tail of the last commit does not fit the bitmaps"
    SpaceEnd "space-end" Error DEFECT
        "a bitmap marks space past the end of the pool"
    Unchecked "unchecked" Warning NOTHING
        "because of other damage, something could not be checked"
    LogHead "log-head" Fatal RESCUE
        "the superblock's head of the intent log makes no sense"
    LogFrame "log-frame" Fatal RESCUE
        "a frame of the intent log has the right checksum, but makes no sense"
    LogDataset "log-dataset" Fatal RESCUE
        "a frame of the intent log changes a dataset that there is not"
    LogBlock "log-block" Fatal RESCUE
        "a frame of the intent log leads to a block where none is in use"
    LogCopy "log-copy" Error TAKE_IN
        "one copy of a frame of the intent log is damaged, the other one is good"
    LogLost "log-lost" Error REDO
        "no copy of a frame of the intent log is good"
    RootMissing "root-missing" Error RESCUE
        "a file system has no root directory"
    CountersMissing "counters-missing" Error RESCUE
        "a file system has no counters"
    InodeCount "inode-count" Error DEFECT
        "a file system has a wrong number of inodes"
    OwnerUsage "owner-usage" Error DEFECT
        "what a user, group or project is said to use is not what its inodes use"
    InodeNumber "inode-number" Error COPY
        "an inode has a number that would be given away again"
    InodeMissing "inode-missing" Error COPY
        "items belong to an inode that there is not"
    InodeUnreachable "inode-unreachable" Error DEFECT
        "an inode has no name, and does not wait to be freed"
    ItemForeign "item-foreign" Error COPY
        "an inode has items that its kind cannot have"
    LinkCount "link-count" Error COPY
        "an inode has a wrong number of links"
    EntryDangling "entry-dangling" Error COPY
        "a name leads to an inode that there is not"
    EntryKind "entry-kind" Error COPY
        "a name and its inode do not agree on the kind"
    EntryName "entry-name" Error COPY
        "a directory has a name that no entry can have"
    NamePlace "name-place" Error COPY
        "a name does not lie where it is looked for"
    NameDuplicate "name-duplicate" Error COPY
        "a name is there twice"
    DirectoryParent "directory-parent" Error COPY
        "a directory does not know its parent, or has several"
    DirectorySize "directory-size" Error COPY
        "a directory has a wrong number of entries"
    DirectoryLoop "directory-loop" Error COPY
        "a directory lies below itself, out of reach from the root"
    SectionOverlap "section-overlap" Error COPY
        "two sections of a file overlap"
    SectionPastSize "section-past-size" Error COPY
        "a file has content past its size that does not wait to be removed"
    FileUsage "file-usage" Error COPY
        "a file has a wrong number of bytes in use"
    SymlinkTarget "symlink-target" Error COPY
        "a symbolic link has no target, or one of another size"
    CapabilityFlag "capability-flag" Error COPY
        "an inode does not know rightly whether it has file capabilities or access lists"
    OrphanRecord "orphan-record" Error COPY
        "an orphan item and its inode do not agree"
    ReferencesCount "references-count" Fatal RESCUE
        "the count of references to a shared block is wrong"
    OwnersCount "owners-count" Fatal RESCUE
        "the number of owners of a block is wrong"
    ReferencesFlag "references-flag" Fatal RESCUE
        "a shared block is referred to as if it were not, or is not counted"
    ImageHeader "image-header" Fatal RESCUE
        "the header of a pmem image makes no sense"
    ImageRecord "image-record" Fatal RESCUE
        "what an interrupted operation has left in a pmem image makes no sense"
    SlotMalformed "slot-malformed" Fatal RESCUE
        "the slot of a dataset or snapshot makes no sense"
    SlotDouble "slot-double" Fatal RESCUE
        "two slots have the same name or number"
    SlotOwner "slot-owner" Fatal RESCUE
        "a slot belongs to a dataset or snapshot that there is not"
    RootPointer "root-pointer" Fatal RESCUE
        "the root pointer of a tree in a pmem image makes no sense"
    PointerRange "pointer-range" Fatal RESCUE
        "a pointer in a pmem image leads to where no page can lie"
    PageDouble "page-double" Fatal RESCUE
        "a page of a pmem image is used for two things"
    PageUnreadable "page-unreadable" Error RESTORE
        "a page of a pmem image cannot be read"
    InodeMalformed "inode-malformed" Error COPY
        "an inode in a pmem image makes no sense"
    InodeNameless "inode-nameless" Warning NOTHING
        "an inode in a pmem image has no name"
    EntryMalformed "entry-malformed" Error COPY
        "an entry of a directory in a pmem image makes no sense"
    XattrMalformed "xattr-malformed" Error COPY
        "the extended attributes of an inode in a pmem image make no sense"
}

/// Where something was found, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Where on the device, in bytes.
    pub offset_bytes: Option<u64>,
    /// Name of the dataset or snapshot; none for structures of the pool.
    pub dataset: Option<String>,
    /// The inode.
    pub object: Option<u64>,
    /// One of the inode's names, from the root of the dataset.
    pub path: Option<Vec<u8>>,
    /// The item, or the first key below a tree node.
    pub key: Option<Key>,
}

impl Place {
    /// Somewhere in the pool.
    pub(crate) fn pool() -> Place {
        Place::default()
    }

    /// At an offset of the device.
    pub(crate) fn device(offset_bytes: u64) -> Place {
        Place::pool().at(Some(offset_bytes))
    }

    /// In a dataset or, without a name, in the pool's own tree.
    pub(crate) fn of(dataset: Option<&str>) -> Place {
        Place { dataset: dataset.map(str::to_owned), ..Place::default() }
    }

    /// The same, at an offset of the device.
    pub(crate) fn at(mut self, offset_bytes: Option<u64>) -> Place {
        self.offset_bytes = offset_bytes;
        self
    }

    /// The same, at an item.
    pub(crate) fn key(mut self, key: Key) -> Place {
        self.key = Some(key);
        self
    }

    /// The same, at an inode.
    pub(crate) fn object(mut self, ino: u64) -> Place {
        self.object = Some(ino);
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.dataset {
            Some(dataset) => write!(out, "dataset {dataset}")?,
            None => out.write_str("pool")?,
        }
        if let Some(path) = &self.path {
            match std::str::from_utf8(path) {
                Ok(path) => write!(out, ", {path}")?,
                Err(_) => write!(out, ", {}", path.escape_ascii())?,
            }
        }
        if let Some(object) = self.object {
            write!(out, ", inode {object}")?;
        }
        if let Some(Key { object, kind, offset }) = self.key {
            write!(out, ", key ({object}, {kind}, {offset:#x})")?;
        }
        match self.offset_bytes {
            Some(offset) => write!(out, ", device offset {offset:#x}"),
            None => Ok(()),
        }
    }
}

/// Something that is wrong with a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// Where.
    pub place: Place,
    /// The particulars.
    pub detail: String,
}

impl Finding {
    /// The code of its kind: a few words that never change their meaning.
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.kind.severity()
    }

    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        self.kind.advice()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (severity, code, meaning) = (self.severity(), self.code(), self.kind.meaning());
        write!(out, "{severity}[{code}]: {meaning}: {}", self.detail)?;
        write!(out, " ({}); {}", self.place, self.advice())
    }
}

#[cfg(test)]
mod tests {
    use super::{Finding, FindingKind, Place};

    #[test]
    fn a_finding_says_what_where_and_what_to_do() {
        let mut place = Place::of(Some("root")).object(7).at(Some(0x10_0000));
        place.path = Some(b"/etc/hosts".to_vec());
        let finding =
            Finding { kind: FindingKind::BlockLost, place, detail: "wrong checksum".to_owned() };
        assert_eq!(
            finding.to_string(),
            "error[block-lost]: no copy of a block of content is good: wrong checksum (dataset \
             root, /etc/hosts, inode 7, device offset 0x100000); restore what is named from a \
             backup or an older snapshot, or delete it"
        );
    }

    #[test]
    fn codes_are_distinct() {
        let mut codes: Vec<&str> = FindingKind::ALL.iter().map(|kind| kind.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), FindingKind::ALL.len());
    }
}
