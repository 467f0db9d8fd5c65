//! The verifier: reads all rows, and says what does not fit.
//!
//! It shares the format with the rest of the crate, and no code that reads or writes a store. It
//! changes nothing; only folders that a directory of blocks lacks are made when it is opened. A row
//! that waits for its entry, as a dead client leaves it, is no damage.

use crate::bucket;
use crate::database::{Database, Range, Row, Table};
use crate::format::{
    BlockRow, ClientRecord, Entry, Head, Header, LineRecord, LockPlace, LockRow, ObjectName, Past,
    Record, Reference, Role, Seal, StoredItem, UploadId, decode_operation, keys,
};
use crate::objects::{self, Objects};
use bytes::Bytes;
use marram_format::operation::OperationRecord;
use marram_store::{Error, Key, Result, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rows that one question asks for, and entries of the log, each of which may be large.
const ROWS_ASKED: usize = 256;
const ENTRIES_ASKED: usize = 4;
/// Findings that are kept; more are counted.
const FINDINGS_MAX: usize = 1000;

/// What the verifier has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// What does not fit, in words; at most a thousand.
    pub findings: Vec<String>,
    /// Findings in all.
    pub findings_count: u64,
    /// What is worth knowing and no damage.
    pub notes: Vec<String>,
    /// Entries of the log, datasets and snapshots, items, and blocks that were read.
    pub counts: Counts,
    /// The rows are those of the last entry of the log.
    pub has_followed: bool,
}

impl Verified {
    /// Takes note of what does not fit.
    pub fn find(&mut self, finding: String) {
        self.findings_count += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// How much was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries of the log.
    pub entries: u64,
    /// Datasets and snapshots.
    pub datasets: u64,
    /// Items of all lines.
    pub items: u64,
    /// Blocks, each with its content.
    pub blocks: u64,
    /// Bytes of their contents.
    pub content_bytes: u64,
}

/// Verifies the store in a database, with its blocks in it or in a directory.
///
/// # Errors
/// There is none, it is of a newer version, the database fails, or the place of its blocks is not
/// there. Damage is no error.
pub fn verify(database: &dyn Database) -> Result<Verified> {
    verify_reached(database, None)
}

/// The same, with how a bucket is reached if the blocks lie in one.
///
/// # Errors
/// Those of [`verify`].
pub fn verify_reached(
    database: &dyn Database,
    bucket: Option<&bucket::Access>,
) -> Result<Verified> {
    let header = header(database)?;
    let objects = objects::of_store(&header, database, bucket)?;
    verify_opened(database, &header, objects)
}

/// The same of a store whose blocks lie outside of the database, which are reached as the caller
/// says.
///
/// # Errors
/// Those of [`verify`].
pub fn verify_with(database: &dyn Database, objects: Arc<dyn Objects>) -> Result<Verified> {
    verify_opened(database, &header(database)?, Some(objects))
}

fn header(database: &dyn Database) -> Result<Header> {
    let found = database.read(&[Range::one(Table::Header, keys::HEADER)])?.concat();
    match found.first() {
        Some((_, header)) => Header::decode(header),
        None => Err(Error::Invalid("there is no store: its making was cut off".to_owned())),
    }
}

fn verify_opened(
    database: &dyn Database,
    header: &Header,
    objects: Option<Arc<dyn Objects>>,
) -> Result<Verified> {
    let mut verifier = Verifier {
        database,
        objects,
        seal: Seal::of(header),
        lines: BTreeMap::new(),
        logged: BTreeMap::new(),
        operations: BTreeMap::new(),
        work: Vec::new(),
        has_followed: true,
        verified: Verified::default(),
    };
    verifier.run()?;
    Ok(Verified { has_followed: verifier.has_followed, ..verifier.verified })
}

struct Verifier<'d> {
    database: &'d dyn Database,
    /// Where blocks lie, if not in the database.
    objects: Option<Arc<dyn Objects>>,
    seal: Seal,
    lines: BTreeMap<u64, LineRecord>,
    /// The datasets and snapshots that entries of the log have set or taken away.
    logged: BTreeMap<u64, Option<Record>>,
    /// The operations that entries of the log have set or taken away.
    operations: BTreeMap<u64, Option<OperationRecord>>,
    /// Lines of which rows are to go that were born behind a period, up to another.
    work: Vec<[u64; 3]>,
    /// Whether the rows are those of the last entry.
    has_followed: bool,
    verified: Verified,
}

/// Where an item lies.
struct Place {
    table: Table,
    line: u64,
    key: Key,
    birth: u64,
}

impl Verifier<'_> {
    fn run(&mut self) -> Result<()> {
        for fault in self.database.faults()? {
            self.find(format!("database: {fault}"));
        }
        self.log()?;
        self.clients()?;
        self.lines()?;
        self.datasets()?;
        self.operations()?;
        self.each(Table::Heads, Self::head)?;
        self.each(Table::Pasts, Self::past)?;
        self.each(Table::Marks, |_, (row, _)| keys::decode_mark(row).map(|_| ()))?;
        self.each(Table::Uses, Self::usage)?;
        self.each(Table::Loose, |_, _| Ok(()))?;
        self.each(Table::Locks, |_, (row, value)| {
            LockPlace::decode(row)?;
            LockRow::decode(value).map(|_| ())
        })?;
        self.each(Table::Blocks, Self::block)?;
        self.strays()
    }

    fn find(&mut self, finding: String) {
        self.verified.find(finding);
    }

    /// Looks at each row of a table; what is wrong with one is a finding.
    fn each(
        &mut self,
        table: Table,
        mut look: impl FnMut(&mut Self, &Row) -> Result<()>,
    ) -> Result<()> {
        let mut from = Vec::new();
        let asked = if table == Table::Log { ENTRIES_ASKED } else { ROWS_ASKED };
        loop {
            let range = Range::first(table, from, vec![u8::MAX; 80], asked);
            let rows = self.database.read(&[range])?.concat();
            for (key, sealed) in &rows {
                let looked = self.unsealed(table, key, sealed);
                let looked = looked.and_then(|value| look(self, &(key.clone(), value)));
                match looked {
                    Ok(()) => {}
                    Err(Error::Damaged(damage)) => {
                        let name = hexadecimal(key);
                        self.find(format!("{}: row {name}: {}", table.name(), damage.reason));
                    }
                    Err(error) => return Err(error),
                }
            }
            match rows.last() {
                Some((last, _)) if rows.len() == asked => from = [&last[..], &[0]].concat(),
                _ => return Ok(()),
            }
        }
    }

    fn unsealed(&self, table: Table, key: &[u8], sealed: &Bytes) -> Result<Bytes> {
        let len = self.seal.open(table, key, sealed)?.len();
        Ok(sealed.slice(..len))
    }

    fn get(&self, table: Table, key: Vec<u8>) -> Result<Option<Bytes>> {
        let found = self.database.read(&[Range::one(table, key)])?.concat();
        found.first().map(|(key, value)| self.unsealed(table, key, value)).transpose()
    }

    fn has(&self, table: Table, key: Vec<u8>) -> Result<bool> {
        Ok(self.database.has(table, &[key])?.contains(&true))
    }

    fn log(&mut self) -> Result<()> {
        let followed = self.followed()?;
        let mut last: Option<(u64, [u8; 32])> = None;
        self.each(Table::Log, |verifier, (row, bytes)| {
            let (number, entry) = (keys::decode_number(row)?, Entry::decode(bytes)?);
            if let Some((before, hash)) = last
                && (before + 1 != number || hash != entry.previous)
            {
                verifier.find(format!("log: entry {number} does not follow entry {before}"));
            }
            verifier.verified.counts.entries += 1;
            verifier.logged.extend(entry.records);
            verifier.operations.extend(entry.operations);
            last = Some((number, verifier.seal.hash(bytes)));
            Ok(())
        })?;
        let end = last.map_or(0, |(number, _)| number);
        if end < followed {
            self.find(format!("log: it ends with {end}, but rows follow it up to {followed}"));
        }
        if end > followed + 1 {
            // An entry is put only where the rows follow the one before.
            self.find(format!("log: it ends with {end}, and rows follow it only up to {followed}"));
        }
        if end > followed {
            self.has_followed = false;
            let count = end - followed;
            let text =
                "wait for their rows, as a client left them that died: the next mount goes on";
            self.verified.notes.push(format!("{count} entries of the log {text}"));
        }
        Ok(())
    }

    fn followed(&mut self) -> Result<u64> {
        let row = self.get(Table::Header, keys::FOLLOWED.to_vec());
        match row.and_then(|row| row.map(|row| keys::decode_number(&row)).transpose()) {
            Ok(Some(number)) => return Ok(number),
            Ok(None) => self.find("header: how far rows follow the log is missing".to_owned()),
            Err(Error::Damaged(damage)) => self.find(format!("header: {}", damage.reason)),
            Err(error) => return Err(error),
        }
        Ok(0)
    }

    fn clients(&mut self) -> Result<()> {
        self.each(Table::Clients, |verifier, (session, value)| {
            keys::decode_session(session)?;
            let client = ClientRecord::decode(value)?;
            verifier.verified.notes.push(format!("{} has it open, or died", client.name));
            Ok(())
        })
    }

    fn lines(&mut self) -> Result<()> {
        self.each(Table::Lines, |verifier, (row, value)| {
            verifier.lines.insert(keys::decode_number(row)?, LineRecord::decode(value)?);
            Ok(())
        })?;
        self.each(Table::Work, |verifier, (row, _)| {
            verifier.work.push(keys::decode_work(row)?);
            Ok(())
        })?;
        if !self.has_followed {
            // Of two lines that go in one entry, the first may be gone already.
            return Ok(());
        }
        let orphans = self.lines.iter().filter(|(number, line)| {
            line.parent > 0 && (line.parent >= **number || !self.lines.contains_key(&line.parent))
        });
        let orphans: Vec<u64> = orphans.map(|(number, _)| *number).collect();
        orphans.iter().for_each(|line| self.find(format!("lines: {line} began on none")));
        Ok(())
    }

    fn datasets(&mut self) -> Result<()> {
        let mut records = BTreeMap::new();
        self.each(Table::Datasets, |verifier, (row, value)| {
            records.insert(keys::decode_number(row)?, Record::decode(value)?);
            verifier.verified.counts.datasets += 1;
            Ok(())
        })?;
        if self.has_followed {
            self.records(&records);
        }
        Ok(())
    }

    /// Each record has a name of its own and a line, and is as the log has it.
    fn records(&mut self, records: &BTreeMap<u64, Record>) {
        let mut names = BTreeSet::new();
        for (number, record) in records {
            let name = name_of(records, record);
            let is_source = name.as_ref().is_some_and(|name| name.parse::<Source>().is_ok());
            if !is_source || !names.insert(name.unwrap_or_default()) {
                self.find(format!("datasets: {number} has no name of its own"));
            }
            if !self.lines.contains_key(&record.line) {
                self.find(format!("datasets: {number} lies on no line"));
            }
            if let Role::Dataset { origin: origin @ 1.., .. } = record.role
                && !records.contains_key(&origin)
            {
                self.find(format!("datasets: what {number} began as is missing"));
            }
        }
        if !names.contains("root") {
            self.find("datasets: there is no root dataset".to_owned());
        }
        let is_other =
            |(number, record): &(&u64, &Option<Record>)| records.get(number) != record.as_ref();
        let others: Vec<u64> = self.logged.iter().filter(is_other).map(|(it, _)| *it).collect();
        for number in others {
            self.find(format!("datasets: {number} is not as the log has it"));
        }
    }

    /// Each operation is as the log has it.
    fn operations(&mut self) -> Result<()> {
        let mut known = BTreeMap::new();
        self.each(Table::Operations, |_, (row, value)| {
            known.insert(keys::decode_number(row)?, decode_operation(value)?);
            Ok(())
        })?;
        if !self.has_followed {
            return Ok(());
        }
        let logged = std::mem::take(&mut self.operations);
        for (number, _) in logged.iter().filter(|(it, logged)| known.get(it) != logged.as_ref()) {
            self.find(format!("operations: {number} is not as the log has it"));
        }
        Ok(())
    }

    fn head(&mut self, (row, value): &Row) -> Result<()> {
        let ((line, key), Head { birth, item }) = (keys::decode_head(row)?, Head::decode(value)?);
        self.item(Place { table: Table::Heads, line, key, birth }, item.as_ref())
    }

    fn past(&mut self, (row, value): &Row) -> Result<()> {
        let ((line, key, birth), past) = (keys::decode_past(row)?, Past::decode(value)?);
        if past.death <= birth {
            self.find(format!("pasts: {key:?} of line {line} ended before it began"));
        }
        self.item(Place { table: Table::Pasts, line, key, birth }, past.item.as_ref())
    }

    /// An item has its line, its mark, and its block with a use.
    fn item(&mut self, place: Place, item: Option<&StoredItem>) -> Result<()> {
        self.verified.counts.items += 1;
        let Place { table, line, key, birth } = place;
        if !self.has_followed || self.is_leaving(line, birth) {
            return Ok(());
        }
        let name = || format!("{}: {key:?} of line {line}", table.name());
        if !self.lines.contains_key(&line) {
            self.find(format!("{}: there is no such line", name()));
        }
        if !self.has(Table::Marks, keys::mark(line, birth, key))? {
            self.find(format!("{}: its mark is missing", name()));
        }
        let Some(block) = item.and_then(|item| item.block) else { return Ok(()) };
        if !self.has(Table::Blocks, block.id.to_vec())? {
            self.find(format!("{}: its block {} is missing", name(), hexadecimal(&block.id)));
        }
        if !self.has(Table::Uses, keys::usage(&block.id, line, key, birth))? {
            self.find(format!("{}: the use of its block is missing", name()));
        }
        Ok(())
    }

    /// Whether a row may be on its way out.
    fn is_leaving(&self, line: u64, birth: u64) -> bool {
        let covers = |[of, after, upto]: &[u64; 3]| *of == line && *after < birth && birth <= *upto;
        self.work.iter().any(covers)
    }

    /// A use is that of a row.
    fn usage(&mut self, (row, _): &Row) -> Result<()> {
        let (block, (line, key, birth)) = keys::decode_usage(row)?;
        if !self.has_followed || self.is_leaving(line, birth) {
            return Ok(());
        }
        let refers = |item: Option<StoredItem>| {
            item.and_then(|item| item.block).is_some_and(|it: Reference| it.id == block)
        };
        let past = self.get(Table::Pasts, keys::past(line, key, birth))?;
        let past = past.map(|value| Past::decode(&value)).transpose()?;
        let head = self.get(Table::Heads, keys::head(line, key))?;
        let head = head.map(|value| Head::decode(&value)).transpose()?;
        let head = head.filter(|head| head.birth == birth);
        if !past.is_some_and(|it| refers(it.item)) && !head.is_some_and(|it| refers(it.item)) {
            self.find(format!("uses: {key:?} of line {line} does not refer to the block"));
        }
        Ok(())
    }

    /// A block is what its name says, and is used or loose.
    fn block(&mut self, (row, value): &Row) -> Result<()> {
        let block = BlockRow::decode(value)?;
        match block.upload()? {
            Some(upload) => self.outside(row, upload, block.len)?,
            None if !self.is_content(row, &block) => {
                self.find(format!("blocks: {} has another content", hexadecimal(row)));
            }
            None => {}
        }
        self.verified.counts.blocks += 1;
        self.verified.counts.content_bytes += u64::from(block.len);
        let to = [&row[..], &[u8::MAX; 33]].concat();
        let uses = Range::first(Table::Uses, row.to_vec(), to, 1);
        let is_used = !self.database.read(&[uses])?.concat().is_empty();
        if !is_used && !self.has(Table::Loose, row.to_vec())? {
            self.find(format!("blocks: nothing refers to {}, or will let it go", hexadecimal(row)));
        }
        Ok(())
    }

    /// Whether the content of a block is what its name says.
    fn is_content(&self, id: &[u8], block: &BlockRow<'_>) -> bool {
        let content = marram_codec::decompress(block.codec, block.stored, block.len as usize);
        content.is_ok_and(|content| self.seal.hash(&content)[..] == *id)
    }

    /// A block that lies outside of the database is there, whole.
    fn outside(&mut self, id: &[u8], upload: UploadId, len: u32) -> Result<()> {
        let (Some(objects), Ok(block)) = (self.objects.clone(), id.try_into()) else {
            self.find(format!("blocks: {} lies nowhere", hexadecimal(id)));
            return Ok(());
        };
        let name = ObjectName { block, upload };
        let place = objects.locate(&name);
        let found = match objects.read(&name) {
            Err(error) => {
                objects.probe()?;
                Some(format!("blocks: {place} cannot be read: {error}"))
            }
            Ok(None) => Some(format!("blocks: {place} is gone")),
            Ok(Some(bytes)) => {
                let is_it = BlockRow::decode(&bytes)
                    .is_ok_and(|block| block.len == len && self.is_content(id, &block));
                (!is_it).then(|| format!("blocks: {place} has another content"))
            }
        };
        found.into_iter().for_each(|found| self.find(found));
        Ok(())
    }

    /// What lies outside and no row knows is no damage: the next sweeps take it away.
    fn strays(&mut self) -> Result<()> {
        let Some(objects) = self.objects.clone() else { return Ok(()) };
        let mut count = 0;
        for first in 0..=u8::MAX {
            let names = match objects.list(first) {
                Ok(names) => names,
                Err(error) => {
                    objects.probe()?;
                    self.find(format!("blocks: {error}"));
                    continue;
                }
            };
            for name in names {
                let row = self.get(Table::Blocks, name.block.to_vec());
                // A row that is damaged has been found before.
                let Ok(row) = row else { continue };
                let upload = row.map(|value| BlockRow::decode(&value)?.upload()).transpose();
                let is_named = upload.is_ok_and(|upload| upload.flatten() == Some(name.upload));
                if !is_named && !self.has(Table::Loose, name.key())? {
                    count += 1;
                }
            }
        }
        if count > 0 {
            let place = objects.place();
            let text = "as a power cut leaves them: a mount that is alone takes them away";
            self.verified.notes.push(format!("{count} blocks in {place} have no row, {text}"));
        }
        Ok(())
    }
}

fn name_of(records: &BTreeMap<u64, Record>, record: &Record) -> Option<String> {
    match record.role {
        Role::Dataset { .. } => Some(record.name.clone()),
        Role::Snapshot { of } => match records.get(&of) {
            Some(Record { role: Role::Dataset { .. }, name, .. }) => {
                Some(format!("{name}@{}", record.name))
            }
            _ => None,
        },
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
