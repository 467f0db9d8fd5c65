//! Entries of the log.

use super::fields::{put_count, put_counted};
use super::item::{put_item, take_item};
use super::operation::decode_operation;
use super::{Fields, LineRecord, Record, Stance, StoredItem};
use marram_format::operation::OperationRecord;
use marram_store::{Key, Result};

/// A publication: all that it changes. Its number stands in its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The hash of the entry before it, zeros of the first.
    pub previous: [u8; 32],
    /// The client that has published it.
    pub session: [u8; 16],
    /// When: seconds since 1970.
    pub seconds: i64,
    /// Whether a client comes or goes with it.
    pub presence: Option<Presence>,
    /// Items, by line.
    pub sections: Vec<Section>,
    /// Datasets and snapshots that are set or go, by number.
    pub records: Vec<(u64, Option<Record>)>,
    /// Lines that are set or go, by number.
    pub lines: Vec<(u64, Option<LineRecord>)>,
    /// Periods whose rows perhaps nothing needs from then on: line, after, up to.
    pub work: Vec<[u64; 3]>,
    /// Operations that are set or go, by number.
    pub operations: Vec<(u64, Option<OperationRecord>)>,
}

/// A client that comes or goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It has the store open from then on, and says this of itself.
    Here {
        /// Its host, its process.
        name: String,
        /// How it is there.
        stance: Stance,
        /// Since when it has the store open: seconds since 1970.
        since: i64,
    },
    /// It closes the store.
    Closed,
    /// The client of this session is lost: what it publishes later counts for nothing.
    Expelled([u8; 16]),
}

/// What changes on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The line.
    pub line: u64,
    /// The period in which it changes.
    pub period: u64,
    /// The newest period that a snapshot has of the line; 0 if none has one.
    pub needed: u64,
    /// Whether the line began on another one.
    pub inherits: bool,
    /// The edits, by ascending keys.
    pub edits: Vec<Edit>,
}

/// The item under a key from then on; none if it is removed.
pub type Edit = (Key, Option<StoredItem>);

const STAYS: u8 = 0;
const HERE: u8 = 1;
const CLOSED: u8 = 2;
const EXPELLED: u8 = 3;
/// Bytes of the shortest section, edit, record and line.
const LEAST_BYTES: [usize; 4] = [29, 18, 9, 9];

impl Entry {
    /// The entry as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.previous);
        out.extend_from_slice(&self.session);
        out.extend_from_slice(&self.seconds.to_le_bytes());
        match &self.presence {
            None => out.push(STAYS),
            Some(Presence::Closed) => out.push(CLOSED),
            Some(Presence::Here { name, stance, since }) => {
                out.extend_from_slice(&[HERE, stance.number()]);
                out.extend_from_slice(&since.to_le_bytes());
                put_counted(&mut out, name.as_bytes());
            }
            Some(Presence::Expelled(session)) => {
                out.push(EXPELLED);
                out.extend_from_slice(session);
            }
        }
        put_count(&mut out, self.sections.len());
        self.sections.iter().for_each(|section| section.put(&mut out));
        put_numbered(&mut out, &self.records, Record::encode);
        put_numbered(&mut out, &self.lines, LineRecord::encode);
        put_count(&mut out, self.work.len());
        for number in self.work.iter().flatten() {
            out.extend_from_slice(&number.to_le_bytes());
        }
        put_numbered(&mut out, &self.operations, |operation| operation.encode().to_vec());
        out
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(bytes: &[u8]) -> Result<Entry> {
        let [section_bytes, _, record_bytes, line_bytes] = LEAST_BYTES;
        let mut fields = Fields::new("an entry of the log", bytes);
        let (previous, session) = (fields.array()?, fields.array()?);
        let seconds = fields.i64()?;
        let presence = match fields.u8()? {
            STAYS => None,
            HERE => {
                let (stance, since) = (Stance::take(&mut fields)?, fields.i64()?);
                Some(Presence::Here { name: fields.text()?, stance, since })
            }
            CLOSED => Some(Presence::Closed),
            EXPELLED => Some(Presence::Expelled(fields.array()?)),
            _ => return fields.refuse("it says nothing known of its client"),
        };
        let count = fields.count(section_bytes)?;
        let sections = (0..count).map(|_| Section::take(&mut fields)).collect::<Result<_>>()?;
        let records = take_numbered(&mut fields, record_bytes, Record::decode)?;
        let lines = take_numbered(&mut fields, line_bytes, LineRecord::decode)?;
        let count = fields.count(24)?;
        let mut work = Vec::with_capacity(count);
        for _ in 0..count {
            work.push([fields.u64()?, fields.u64()?, fields.u64()?]);
        }
        let operations = take_numbered(&mut fields, record_bytes, decode_operation)?;
        fields.end()?;
        let counted = Entry { sections, records, lines, work, operations, ..Entry::default() };
        Ok(Entry { previous, session, seconds, presence, ..counted })
    }
}

impl Section {
    fn put(&self, out: &mut Vec<u8>) {
        for number in [self.line, self.period, self.needed] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.push(u8::from(self.inherits));
        put_count(out, self.edits.len());
        for (key, item) in &self.edits {
            out.extend_from_slice(&key.encode());
            put_item(out, item.as_ref());
        }
    }

    fn take(fields: &mut Fields<'_>) -> Result<Section> {
        let (line, period, needed) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let inherits = fields.bit()?;
        let count = fields.count(LEAST_BYTES[1])?;
        let mut edits: Vec<Edit> = Vec::with_capacity(count);
        for _ in 0..count {
            let key = Key::decode(&fields.array()?);
            if edits.last().is_some_and(|(last, _)| *last >= key) {
                return fields.refuse("its keys do not ascend");
            }
            edits.push((key, take_item(fields)?));
        }
        match needed < period {
            true => Ok(Section { line, period, needed, inherits, edits }),
            false => fields.refuse("a snapshot has its present period"),
        }
    }
}

fn put_numbered<T>(out: &mut Vec<u8>, all: &[(u64, Option<T>)], encode: impl Fn(&T) -> Vec<u8>) {
    put_count(out, all.len());
    for (number, one) in all {
        out.extend_from_slice(&number.to_le_bytes());
        out.push(u8::from(one.is_some()));
        if let Some(one) = one {
            put_counted(out, &encode(one));
        }
    }
}

fn take_numbered<T>(
    fields: &mut Fields<'_>,
    least_bytes: usize,
    decode: impl Fn(&[u8]) -> Result<T>,
) -> Result<Vec<(u64, Option<T>)>> {
    let count = fields.count(least_bytes)?;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let number = fields.u64()?;
        all.push((
            number,
            match fields.u8()? {
                0 => None,
                1 => Some(decode(fields.counted()?)?),
                _ => return fields.refuse("a record neither is set nor goes"),
            },
        ));
    }
    Ok(all)
}
