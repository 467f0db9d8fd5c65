//! Datasets, snapshots and lines, as the last publication has them.

use crate::database::Table;
use crate::failure::damaged;
use crate::format::{Entry, LineRecord, Record, Role, decode_operation, keys};
use crate::rows::Rows;
use marram_format::operation::OperationRecord;
use marram_store::{DatasetKind, DatasetName, DatasetReport, Error, Result, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Lines that a state is read along at most.
pub(crate) const LINES_DEEP_MAX: usize = 256;

/// All datasets, snapshots and lines.
#[derive(Clone, Default)]
pub(crate) struct Catalogue {
    records: BTreeMap<u64, Record>,
    lines: BTreeMap<u64, LineRecord>,
    datasets: BTreeMap<DatasetName, u64>,
    snapshots: BTreeMap<(u64, String), u64>,
    /// Where the snapshots of each line end, and where other lines begin: the line, its period, and
    /// the number of the snapshot or of the other line.
    points: BTreeSet<(u64, u64, u64)>,
    /// What users have asked for, by ascending numbers.
    operations: Arc<BTreeMap<u64, OperationRecord>>,
}

/// A line, and up to which of its periods a state has it; the last one is that which no other
/// state has begun on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    pub(crate) line: u64,
    /// The last period; `None` of the live end.
    pub(crate) period: Option<u64>,
}

impl Catalogue {
    /// Reads it.
    pub(crate) fn read(rows: &Rows) -> Result<Catalogue> {
        let mut catalogue = Catalogue::default();
        let [lines, records, operations] =
            rows.all_of([Table::Lines, Table::Datasets, Table::Operations])?;
        for (key, value) in lines {
            catalogue.set_line(keys::decode_number(&key)?, Some(LineRecord::decode(&value)?));
        }
        for (key, value) in records {
            catalogue.set(keys::decode_number(&key)?, Some(Record::decode(&value)?))?;
        }
        for (key, value) in operations {
            catalogue.set_operation(keys::decode_number(&key)?, Some(decode_operation(&value)?));
        }
        catalogue.check()?;
        Ok(catalogue)
    }

    /// Takes in what an entry sets and takes away.
    pub(crate) fn take(&mut self, entry: &Entry) -> Result<()> {
        for (number, operation) in &entry.operations {
            self.set_operation(*number, operation.clone());
        }
        entry.lines.iter().for_each(|(number, line)| self.set_line(*number, *line));
        entry.records.iter().try_for_each(|(number, record)| self.set(*number, record.clone()))
    }

    /// Refuses what no sound store has, so that nothing else need ask.
    fn check(&self) -> Result<()> {
        let wrong = |reason: String| damaged("the list of datasets", "its rows".into(), reason);
        if !self.datasets.contains_key(&DatasetName::root()) {
            return Err(wrong("it has no root dataset".to_owned()));
        }
        for (number, record) in &self.records {
            if let Role::Snapshot { of } = record.role
                && !matches!(self.records.get(&of), Some(Record { role: Role::Dataset { .. }, .. }))
            {
                return Err(wrong(format!("snapshot {number} is of no dataset")));
            }
            let chain = self.links(record.line, Some(record.period));
            chain.map_err(|_| wrong(format!("the line of {number} has no sound beginning")))?;
        }
        Ok(())
    }

    pub(crate) fn record(&self, number: u64) -> Option<&Record> {
        self.records.get(&number)
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = (u64, &Record)> {
        self.records.iter().map(|(number, record)| (*number, record))
    }

    pub(crate) fn line(&self, number: u64) -> Option<&LineRecord> {
        self.lines.get(&number)
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = (u64, &LineRecord)> {
        self.lines.iter().map(|(number, line)| (*number, line))
    }

    /// What users have asked for, oldest first.
    pub(crate) fn operations(&self) -> &Arc<BTreeMap<u64, OperationRecord>> {
        &self.operations
    }

    /// Enters an operation, or takes it away.
    pub(crate) fn set_operation(&mut self, number: u64, operation: Option<OperationRecord>) {
        let operations = Arc::make_mut(&mut self.operations);
        match operation {
            Some(operation) => operations.insert(number, operation),
            None => operations.remove(&number),
        };
    }

    /// The number of a dataset or snapshot.
    pub(crate) fn find(&self, source: &Source) -> Result<u64> {
        let dataset = self.datasets.get(&source.dataset);
        let found = match &source.snapshot {
            None => dataset,
            Some(name) => dataset.and_then(|of| self.snapshots.get(&(*of, name.clone()))),
        };
        found.copied().ok_or_else(|| Error::NoDataset(source.to_string()))
    }

    pub(crate) fn dataset(&self, name: &DatasetName) -> Result<u64> {
        self.find(&Source::live(name.clone()))
    }

    /// The number of a snapshot; refuses a live dataset.
    pub(crate) fn snapshot(&self, source: &Source) -> Result<u64> {
        match &source.snapshot {
            Some(_) => self.find(source),
            None => {
                self.find(source)?;
                Err(Error::Invalid(format!("{source} is no snapshot: take one first")))
            }
        }
    }

    /// All of them in order of their names.
    pub(crate) fn named(&self) -> Vec<(Source, u64)> {
        let of_dataset = |(name, number): (&DatasetName, &u64)| {
            let snapshots = self.snapshots_of(*number);
            let all = std::iter::once(*number).chain(snapshots);
            let name = name.clone();
            all.filter_map(move |number| {
                let of = self.records.get(&number)?;
                let is_snapshot = matches!(of.role, Role::Snapshot { .. });
                let snapshot = is_snapshot.then(|| of.name.clone());
                Some((Source { dataset: name.clone(), snapshot }, number))
            })
        };
        self.datasets.iter().flat_map(of_dataset).collect()
    }

    /// The numbers of the snapshots of a dataset.
    pub(crate) fn snapshots_of(&self, dataset: u64) -> impl Iterator<Item = u64> {
        let all = self.snapshots.range((dataset, String::new())..);
        all.take_while(move |((of, _), _)| *of == dataset).map(|(_, number)| *number)
    }

    /// The name of a dataset or snapshot.
    pub(crate) fn source(&self, number: u64) -> Option<Source> {
        let record = self.records.get(&number)?;
        match record.role {
            Role::Dataset { .. } => record.name.parse().ok().map(Source::live),
            Role::Snapshot { of } => {
                let dataset = self.records.get(&of)?.name.parse().ok()?;
                Some(Source { dataset, snapshot: Some(record.name.clone()) })
            }
        }
    }

    /// The datasets that began as a snapshot.
    pub(crate) fn clones_of(&self, snapshot: u64) -> impl Iterator<Item = u64> {
        self.records().filter_map(move |(number, record)| match record.role {
            Role::Dataset { origin, .. } if origin == snapshot => Some(number),
            _ => None,
        })
    }

    pub(crate) fn report(&self, number: u64, source: Source) -> Result<DatasetReport> {
        let record = self.records.get(&number);
        let record = record.ok_or_else(|| Error::NoDataset(source.to_string()))?;
        let (kind, origin, is_fork) = match record.role {
            Role::Snapshot { .. } => (DatasetKind::Snapshot, None, false),
            Role::Dataset { origin, is_fork } => match self.source(origin) {
                None => (DatasetKind::Live, None, false),
                origin => (DatasetKind::Clone, origin, is_fork),
            },
        };
        Ok(DatasetReport {
            source,
            number,
            kind,
            origin,
            root_object: record.root_object,
            is_fork,
            owner: record.owner,
            holds: record.holds.clone(),
            created_seconds: record.created_seconds,
            referenced_bytes: record.referenced_bytes,
        })
    }

    /// The lines that a state is read along: its own first.
    pub(crate) fn links(&self, line: u64, period: Option<u64>) -> Result<Vec<Link>> {
        let mut links = vec![Link { line, period }];
        let mut at = line;
        while let Some(LineRecord { parent: parent @ 1.., parent_period }) = self.lines.get(&at) {
            links.push(Link { line: *parent, period: Some(*parent_period) });
            if links.len() > LINES_DEEP_MAX {
                let text = format!("it began as a fork of a fork, {LINES_DEEP_MAX} deep: copy it");
                return Err(Error::Invalid(text));
            }
            at = *parent;
        }
        match self.lines.contains_key(&at) {
            true => Ok(links),
            false => Err(damaged("a line", at.to_string(), "it has no record")),
        }
    }

    /// The periods of a line in which a snapshot ends or another line begins, ascending.
    pub(crate) fn points(&self, line: u64) -> impl DoubleEndedIterator<Item = u64> {
        self.points.range((line, 0, 0)..=(line, u64::MAX, u64::MAX)).map(|(_, period, _)| *period)
    }

    /// The lines that began as a period of another.
    pub(crate) fn lines_on(&self, line: u64, period: u64) -> impl Iterator<Item = u64> {
        let all = self.points.range((line, period, 0)..=(line, period, u64::MAX));
        all.map(|(_, _, number)| *number).filter(|number| self.lines.contains_key(number))
    }

    /// Whether one of these periods, both included, is such a one.
    pub(crate) fn has_point(&self, line: u64, from: u64, to: u64) -> bool {
        from <= to && self.points.range((line, from, 0)..=(line, to, u64::MAX)).next().is_some()
    }

    /// The newest period of a line that a snapshot or another line has; 0 if none has one.
    pub(crate) fn needed(&self, line: u64) -> u64 {
        self.points(line).next_back().unwrap_or(0)
    }

    /// Whether a dataset goes on on a line.
    pub(crate) fn is_live(&self, line: u64) -> bool {
        self.records
            .values()
            .any(|record| record.line == line && matches!(record.role, Role::Dataset { .. }))
    }

    /// Sets a line, or takes it away.
    pub(crate) fn set_line(&mut self, number: u64, line: Option<LineRecord>) {
        if let Some(LineRecord { parent, parent_period }) = self.lines.remove(&number) {
            self.points.remove(&(parent, parent_period, number));
        }
        let Some(line) = line else { return };
        if line.parent > 0 {
            self.points.insert((line.parent, line.parent_period, number));
        }
        self.lines.insert(number, line);
    }

    /// Sets a record, or takes it away.
    pub(crate) fn set(&mut self, number: u64, record: Option<Record>) -> Result<()> {
        if let Some(before) = self.records.remove(&number) {
            self.unname(number, &before);
        }
        let Some(record) = record else { return Ok(()) };
        match record.role {
            Role::Dataset { .. } => {
                self.datasets.insert(record.name.parse()?, number);
            }
            Role::Snapshot { of } => {
                let _checked: Source = format!("root@{}", record.name).parse()?;
                self.snapshots.insert((of, record.name.clone()), number);
                self.points.insert((record.line, record.period, number));
            }
        }
        self.records.insert(number, record);
        Ok(())
    }

    fn unname(&mut self, number: u64, record: &Record) {
        match record.role {
            Role::Dataset { .. } => self.datasets.retain(|_, named| *named != number),
            Role::Snapshot { of } => {
                self.snapshots.remove(&(of, record.name.clone()));
                self.points.remove(&(record.line, record.period, number));
            }
        }
    }
}
