//! Entries of the log of operations: what was done to a pool and its datasets, when and for which
//! user, and what is needed to take it back.
//!
//! An entry is an item of the pool's own tree, put there by the commit that does the operation: a
//! crash leaves both or neither.

use crate::FormatError;
use crate::dataset::DATASETS_MAX;
use crate::group::Group;
use crate::reader::Reader;
use crate::record::Limit;
use crate::version::feature;
use bytes::{BufMut, Bytes, BytesMut};

/// Most entries that a pool keeps; with a new one the oldest goes.
pub const OPERATIONS_KEPT_MAX: u64 = 1000;
/// Numbers of entries are below this.
pub const OPERATION_NUMBERS_MAX: u64 = 1 << 62;
/// Bytes of an entry before its texts.
pub const OPERATION_FIXED_BYTES: usize = 92;
/// Longest encoded entry, in bytes: it is the value of an item.
pub const OPERATION_BYTES_MAX: usize = 4096;
/// Most texts of an entry, besides the command.
pub const OPERATION_TEXTS_MAX: usize = 8;
/// The user of an entry that no user has asked for.
pub const NO_USER: u32 = u32::MAX;
/// With this the names of datasets and snapshots begin that are kept for an undo; the number of the
/// entry follows.
pub const TRASH_PREFIX: &str = "undo:";

/// Which text of a merge's entry tells how it stands, of one that is a part of a transaction over
/// two pools, see [`crate::transaction`].
pub const STATE_TEXT: usize = 4;
/// In such an entry: it is not known whether it is so.
pub const PREPARED_TEXT: &str = "prepared";
/// In such an entry: it was taken back before anybody has seen it.
pub const ABORTED_TEXT: &str = "aborted";
/// In such an entry: it is so because somebody has said so; the next text is the command.
pub const BY_HAND_TEXT: &str = "by hand";

const WHAT: &str = "entry of the log of operations";
const LAYOUT: u8 = 1;
/// In a limit: as much as there is.
const NO_LIMIT: &str = "none";

macro_rules! kinds {
    ($($name:ident $number:literal $text:literal $meaning:literal)*) => {
        /// What was done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum OperationKind {
            $(#[doc = $meaning] $name,)*
        }

        impl OperationKind {
            /// All kinds, by ascending numbers.
            pub const ALL: &[OperationKind] = &[$(OperationKind::$name,)*];

            /// Its number on media.
            pub const fn number(self) -> u8 {
                match self { $(OperationKind::$name => $number,)* }
            }

            /// Its name: a word that never changes its meaning.
            pub const fn name(self) -> &'static str {
                match self { $(OperationKind::$name => $text,)* }
            }

            const fn of(number: u8) -> Option<OperationKind> {
                match number { $($number => Some(OperationKind::$name),)* _ => None }
            }
        }
    };
}

kinds! {
    Create 1 "create" "A dataset was made. Texts: its name."
    Snapshot 2 "snapshot" "A snapshot was taken. Texts: its name."
    Clone 3 "clone" "A clone was made. Texts: its name, that of the snapshot that it began as."
    Fork 4 "fork" "A fork was made. Texts: its name, that of the dataset that it is of."
    Rollback 5 "rollback" "A dataset went back. Texts: the snapshot, the one with the state before."
    Merge 6 "merge" "Changes went into a dataset. Texts: the dataset, what they were of."
    Promote 7 "promote" "A clone took snapshots over. Texts: its name, whose they were."
    Hold 8 "hold" "A snapshot was held. Texts: its name, the tag."
    Release 9 "release" "A snapshot was released. Texts: its name, the tag."
    Set 10 "set" "A property was set. Texts: the dataset, the property, old and new value."
    Rename 11 "rename" "Something got another name. Texts: the old name, the new one."
    Destroy 12 "destroy" "Something was destroyed. Texts: its name."
    Restore 13 "restore" "Something destroyed has its name again. Texts: the name."
    Label 14 "label" "The pool got another label. Texts: old and new label."
    Limit 15 "limit" "An owner got another limit. Texts: the dataset, old and new limit."
    Grow 16 "grow" "The pool was grown. Texts: old and new size in bytes."
    Abort 17 "abort" "A part of a stream was dropped. Texts: the snapshot that it was to be."
}

impl OperationKind {
    /// The read-compatible features that a pool has whose log has an entry of this kind.
    pub const fn feature(self) -> u64 {
        match self {
            OperationKind::Label
            | OperationKind::Limit
            | OperationKind::Grow
            | OperationKind::Abort => feature::OPERATIONS | feature::OPERATION_KINDS,
            _ => feature::OPERATIONS,
        }
    }
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationRecord {
    /// What was done.
    pub kind: OperationKind,
    /// The user of the command; [`NO_USER`] if none did.
    pub user: u32,
    /// When, in seconds since 1970.
    pub seconds: i64,
    /// The group that did it.
    pub group: Group,
    /// The entry that it took back; 0 if none.
    pub undoes: u64,
    /// The dataset or snapshot that it was done to; 0 for the pool itself.
    pub subject: u64,
    /// What else had a part in it: the snapshot that a clone or fork began as, or that a dataset
    /// went back to; the dataset whose snapshots were taken over; else 0.
    pub other: u64,
    /// Of a rollback or merge: the snapshot with the state before; 0 if there is none.
    pub before: u64,
    /// Of a merge: the snapshot with the state after; 0 if there is none.
    pub after: u64,
    /// Of a merge: the object that was the root of what was merged. Of a promotion: how many
    /// snapshots were taken over. Of a limit: whose it is, see
    /// [`crate::record::OwnerId::from_offset`]. Else 0.
    pub detail: u64,
    /// Until when what an undo needs is kept, in seconds since 1970; 0 if nothing is kept, or not
    /// any more.
    pub kept_until_seconds: i64,
    /// The program with its arguments, as far as known.
    pub command: String,
    /// Names and values as they were: see [`OperationKind`].
    pub texts: Vec<String>,
}

impl OperationRecord {
    /// An entry about a dataset or snapshot, or with 0 the pool, that says no more than that.
    pub fn of(kind: OperationKind, subject: u64, texts: &[&str]) -> OperationRecord {
        OperationRecord {
            kind,
            user: NO_USER,
            seconds: 0,
            group: Group(0),
            undoes: 0,
            subject,
            other: 0,
            before: 0,
            after: 0,
            detail: 0,
            kept_until_seconds: 0,
            command: String::new(),
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    /// The encoded entry.
    ///
    /// # Panics
    /// If there are more than [`OPERATION_TEXTS_MAX`] texts, or it is longer than
    /// [`OPERATION_BYTES_MAX`].
    pub fn encode(&self) -> Bytes {
        assert!(self.texts.len() <= OPERATION_TEXTS_MAX, "an entry has few texts");
        let mut out = BytesMut::with_capacity(OPERATION_FIXED_BYTES);
        out.put_u8(LAYOUT);
        out.put_u8(self.kind.number());
        out.put_u16_le(0);
        out.put_u32_le(self.user);
        out.put_i64_le(self.seconds);
        out.put_u64_le(self.group.0);
        for number in [self.undoes, self.subject, self.other, self.before, self.after, self.detail]
        {
            out.put_u64_le(number);
        }
        out.put_i64_le(self.kept_until_seconds);
        out.put_bytes(0, 8);
        put_len(&mut out, self.command.len());
        put_len(&mut out, self.texts.len());
        out.put_slice(self.command.as_bytes());
        for text in &self.texts {
            put_len(&mut out, text.len());
            out.put_slice(text.as_bytes());
        }
        assert!(out.len() <= OPERATION_BYTES_MAX, "an entry of {} bytes is too long", out.len());
        out.freeze()
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<OperationRecord, FormatError> {
        let mut from = Reader::new(WHAT, bytes);
        if bytes.len() > OPERATION_BYTES_MAX {
            let found = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            return Err(from.unexpected("length", 0, found, "at most 4096"));
        }
        from.expect_u8("layout", LAYOUT, "1")?;
        let number = from.u8("kind")?;
        let kind = OperationKind::of(number);
        let kind = kind.ok_or_else(|| from.unexpected("kind", 1, u64::from(number), "1 to 17"))?;
        from.reserved(2)?;
        let id = |from: &mut Reader<'_>, field| from.u64_below(field, DATASETS_MAX, "below 2^62");
        let mut record = OperationRecord {
            kind,
            user: from.u32("user")?,
            seconds: from.i64("time")?,
            group: Group(from.u64("group")?),
            undoes: from.u64_below("entry taken back", OPERATION_NUMBERS_MAX, "below 2^62")?,
            subject: id(&mut from, "subject")?,
            other: id(&mut from, "other part")?,
            before: id(&mut from, "state before")?,
            after: id(&mut from, "state after")?,
            detail: from.u64("detail")?,
            kept_until_seconds: from.i64("end of keeping")?,
            command: String::new(),
            texts: Vec::new(),
        };
        from.reserved(8)?;
        let command_len = from.u16("length of the command")?;
        let offset = from.at();
        let texts = from.u16("number of texts")?;
        if usize::from(texts) > OPERATION_TEXTS_MAX {
            return Err(from.unexpected("number of texts", offset, u64::from(texts), "at most 8"));
        }
        record.command = from.text("command", usize::from(command_len))?;
        for _ in 0..texts {
            let len = from.u16("length of a text")?;
            record.texts.push(from.text("text", usize::from(len))?);
        }
        from.finish()?;
        Ok(record)
    }

    /// The text at `index`, or none.
    pub fn text(&self, index: usize) -> &str {
        self.texts.get(index).map_or("", String::as_str)
    }
}

/// A limit as an entry has it: bytes and inodes, each a number or `none`.
pub fn limit_text(limit: Limit) -> String {
    let most = |most: i64| match most {
        i64::MAX => NO_LIMIT.to_owned(),
        most => most.to_string(),
    };
    format!("{} {}", most(limit.bytes), most(limit.inodes))
}

/// The limit in an entry; `None` if the text has none.
pub fn limit_of(text: &str) -> Option<Limit> {
    let most = |text: &str| match text {
        NO_LIMIT => Some(i64::MAX),
        number => number.parse().ok().filter(|most| (0..i64::MAX).contains(most)),
    };
    let (bytes, inodes) = text.split_once(' ')?;
    Some(Limit { bytes: most(bytes)?, inodes: most(inodes)? })
}

/// The number of the entry for which a dataset or snapshot of this name is kept; `None` of what is
/// not kept for an undo.
pub fn trash_entry(name: &str) -> Option<u64> {
    let last = name.split_once('@').map_or(name, |(_, snapshot)| snapshot);
    let number = last.strip_prefix(TRASH_PREFIX)?.split(':').next()?;
    number.parse().ok().filter(|number| *number < OPERATION_NUMBERS_MAX)
}

/// With this the name begins of a snapshot that was the base of a fork, and is kept for the undo of
/// the merge that has moved the base; the number of that merge's entry follows.
pub const FORMER_PREFIX: &str = "former:";

/// The number of the merge for whose undo a former base of this name is kept.
pub fn former_base_entry(name: &str) -> Option<u64> {
    let (_, snapshot) = name.split_once('@')?;
    let (number, base) = snapshot.strip_prefix(FORMER_PREFIX)?.split_once(':')?;
    number.parse().ok().filter(|_| base.starts_with("base:"))
}

fn put_len(out: &mut BytesMut, len: usize) {
    out.put_u16_le(u16::try_from(len).expect("an entry is shorter than 4096 bytes"));
}
