//! How an entry that is being made changes datasets and lines.

mod kept;
mod merging;
mod transactions;
mod undo;

pub(crate) use kept::{expired, is_hidden};
pub(crate) use merging::Merging;
pub(crate) use transactions::{is_of, left_of};
pub(crate) use undo::Judge;

use crate::catalogue::{Catalogue, LINES_DEEP_MAX};
use crate::delta::{DELTA, DELTA_DEFAULT, Delta};
use crate::format::{LineRecord, Record, Role};
use kept::{UNDO, is_passing};
use marram_format::operation::{OperationKind, OperationRecord, trash_entry};
use marram_format::stream::SnapshotIdentity;
use marram_store::{
    Author, DatasetName, Error, ROOT_OBJECT, Result, SnapshotRule, Source, UNDO_DEFAULT,
    check_rename, check_tag, check_undo_time,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use transactions::refuse_transaction;

/// Numbers that an entry gives away at most.
const NUMBERS_BITS: u32 = 16;
/// The largest block of a file where a dataset has no value of its own, in bytes.
pub(crate) const RECORD_BYTES: &str = "131072";

/// The catalogue with the changes of an entry that is being made.
pub(crate) struct Draft {
    /// As the entries before have it, and as this one will.
    catalogue: Catalogue,
    entry: u64,
    given: u64,
    now: i64,
    changed: BTreeSet<u64>,
    changed_lines: BTreeSet<u64>,
    work: Vec<[u64; 3]>,
    /// Operations that are entered, changed or forgotten.
    operations: BTreeSet<u64>,
    /// The author that it is done for; without one nothing is entered.
    author: Option<Arc<Author>>,
    /// The operation that is taken back, or 0.
    undoes: u64,
    /// Datasets and snapshots that are open.
    open: BTreeSet<u64>,
    /// Datasets and snapshots that are destroyed.
    gone: BTreeSet<u64>,
}

/// What a draft has come to.
pub(crate) struct Drafted {
    pub(crate) catalogue: Catalogue,
    pub(crate) records: Vec<(u64, Option<Record>)>,
    pub(crate) lines: Vec<(u64, Option<LineRecord>)>,
    pub(crate) work: Vec<[u64; 3]>,
    pub(crate) operations: Vec<(u64, Option<OperationRecord>)>,
}

/// Whether a view of a dataset or snapshot is open.
pub(crate) type IsOpen<'o> = &'o dyn Fn(u64) -> bool;

impl Draft {
    pub(crate) fn new(catalogue: Catalogue, entry: u64, now: i64) -> Draft {
        Draft {
            catalogue,
            entry,
            given: 0,
            now,
            changed: BTreeSet::new(),
            changed_lines: BTreeSet::new(),
            work: Vec::new(),
            operations: BTreeSet::new(),
            author: None,
            undoes: 0,
            open: BTreeSet::new(),
            gone: BTreeSet::new(),
        }
    }

    pub(crate) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// What is destroyed: nobody may have opened it since the draft was begun.
    pub(crate) fn gone(&self) -> &BTreeSet<u64> {
        &self.gone
    }

    /// Whether the entry would change nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty()
            && self.changed_lines.is_empty()
            && self.work.is_empty()
            && self.operations.is_empty()
    }

    pub(crate) fn finish(self) -> Drafted {
        let record = |number: &u64| (*number, self.catalogue.record(*number).cloned());
        let line = |number: &u64| (*number, self.catalogue.line(*number).copied());
        let operation = |number: &u64| (*number, self.catalogue.operations().get(number).cloned());
        Drafted {
            operations: self.operations.iter().map(operation).collect(),
            records: self.changed.iter().map(record).collect(),
            lines: self.changed_lines.iter().map(line).collect(),
            work: self.work,
            catalogue: self.catalogue,
        }
    }

    /// A number greater than all that were given before.
    fn number(&mut self) -> Result<u64> {
        self.given += 1;
        match self.given >> NUMBERS_BITS {
            0 => Ok(self.entry << NUMBERS_BITS | self.given),
            _ => Err(Error::Invalid("too many datasets in one step".to_owned())),
        }
    }

    fn set(&mut self, number: u64, record: Option<Record>) -> Result<()> {
        self.changed.insert(number);
        self.catalogue.set(number, record)
    }

    fn set_line(&mut self, number: u64, line: Option<LineRecord>) {
        self.changed_lines.insert(number);
        self.catalogue.set_line(number, line);
    }

    /// Changes the record of a dataset or snapshot.
    pub(crate) fn change(&mut self, number: u64, change: impl FnOnce(&mut Record)) -> Result<()> {
        let mut record = self.record(number)?;
        change(&mut record);
        self.set(number, Some(record))
    }

    fn record(&self, number: u64) -> Result<Record> {
        let record = self.catalogue.record(number).cloned();
        record.ok_or_else(|| Error::NoDataset(format!("number {number}")))
    }

    fn refuse_taken(&self, source: &Source) -> Result<()> {
        match self.catalogue.find(source) {
            Ok(_) => Err(Error::DatasetExists(source.to_string())),
            Err(_) => Ok(()),
        }
    }

    /// Makes an empty dataset.
    pub(crate) fn create(
        &mut self,
        name: &DatasetName,
        properties: &BTreeMap<String, String>,
    ) -> Result<()> {
        properties.iter().try_for_each(|(name, value)| check_property(name, value))?;
        refuse_transaction(name)?;
        self.refuse_taken(&Source::live(name.clone()))?;
        let number = self.number()?;
        self.set_line(number, Some(LineRecord { parent: 0, parent_period: 0 }));
        let record = Record {
            role: Role::Dataset { origin: 0, is_fork: false },
            name: name.to_string(),
            line: number,
            period: 1,
            root_object: ROOT_OBJECT,
            owner: 0,
            created_seconds: self.now,
            referenced_bytes: 0,
            holds: Vec::new(),
            properties: properties.clone(),
        };
        self.set(number, Some(record))?;
        self.enter(OperationRecord::of(OperationKind::Create, number, &[name.as_str()]))?;
        Ok(())
    }

    /// Takes a snapshot of a dataset, and begins its next period.
    pub(crate) fn snapshot(&mut self, dataset: &DatasetName, name: &str) -> Result<u64> {
        let source: Source = format!("{dataset}@{name}").parse()?;
        if !source.is_own() {
            refuse_transaction(dataset)?;
            dataset.refuse_receiving()?;
        }
        self.refuse_taken(&source)?;
        let number = self.snapshot_quietly(self.catalogue.dataset(dataset)?, name)?;
        if !is_passing(&source) {
            let text = source.to_string();
            self.enter(OperationRecord::of(OperationKind::Snapshot, number, &[&text]))?;
        }
        Ok(number)
    }

    /// The same, of which no operation is entered.
    pub(crate) fn snapshot_quietly(&mut self, of: u64, name: &str) -> Result<u64> {
        let live = self.record(of)?;
        let number = self.number()?;
        let snapshot = Record {
            role: Role::Snapshot { of },
            name: name.to_owned(),
            created_seconds: self.now,
            holds: Vec::new(),
            ..live
        };
        self.set(number, Some(snapshot))?;
        self.change(of, |live| live.period += 1)?;
        Ok(number)
    }

    /// Makes a dataset that begins as a snapshot.
    pub(crate) fn clone_snapshot(&mut self, origin: u64, name: &DatasetName) -> Result<u64> {
        let of = self.catalogue.source(origin);
        of.iter().map(|of| &of.dataset).chain([name]).try_for_each(refuse_transaction)?;
        let number = self.begin_clone(origin, name)?;
        let of = of.map(|of| of.to_string()).unwrap_or_default();
        let record = OperationRecord::of(OperationKind::Clone, number, &[name.as_str(), &of]);
        self.enter(OperationRecord { other: origin, ..record })?;
        Ok(number)
    }

    fn begin_clone(&mut self, origin: u64, name: &DatasetName) -> Result<u64> {
        self.refuse_taken(&Source::live(name.clone()))?;
        let snapshot = self.record(origin)?;
        self.refuse_too_deep(snapshot.line)?;
        let number = self.number()?;
        let (parent, parent_period) = (snapshot.line, snapshot.period);
        self.set_line(number, Some(LineRecord { parent, parent_period }));
        let mut properties = snapshot.properties.clone();
        properties.retain(|name, _| !is_own_property(name));
        let clone = Record {
            properties,
            role: Role::Dataset { origin, is_fork: false },
            name: name.to_string(),
            line: number,
            period: 1,
            created_seconds: self.now,
            holds: Vec::new(),
            ..snapshot
        };
        self.set(number, Some(clone))?;
        Ok(number)
    }

    fn refuse_too_deep(&self, line: u64) -> Result<()> {
        if self.catalogue.links(line, None)?.len() < LINES_DEEP_MAX {
            return Ok(());
        }
        let text = format!("lines of forks are at most {LINES_DEEP_MAX} deep: copy the files");
        Err(Error::Invalid(text))
    }

    /// Lets a dataset go on from one of its snapshots, on a line of its own, and keeps what it is
    /// as another snapshot. Returns the bases of merges that go.
    pub(crate) fn roll_back(
        &mut self,
        to: &Source,
        keep: &str,
        is_open: IsOpen<'_>,
    ) -> Result<Vec<u64>> {
        let number = self.catalogue.snapshot(to)?;
        let target = self.record(number)?;
        self.refuse_too_deep(target.line)?;
        let dataset = self.catalogue.dataset(&to.dataset)?;
        let kept: Source = format!("{}@{keep}", to.dataset).parse()?;
        self.refuse_taken(&kept)?;
        let before = self.snapshot_quietly(dataset, keep)?;
        let line = self.number()?;
        let (parent, parent_period) = (target.line, target.period);
        self.set_line(line, Some(LineRecord { parent, parent_period }));
        self.change(dataset, |live| {
            (live.line, live.period) = (line, 1);
            live.referenced_bytes = target.referenced_bytes;
        })?;
        let gone = self.forget_bases(dataset, number, is_open)?;
        let texts = [to.to_string(), kept.to_string()];
        let texts = texts.each_ref().map(String::as_str);
        let record = OperationRecord::of(OperationKind::Rollback, dataset, &texts);
        self.enter(OperationRecord { other: number, before, ..record })?;
        Ok(gone)
    }

    /// After a rollback: bases of merges that are younger than the snapshot are none any more, and
    /// neither are those before them. One that is open gets another name, under which the next
    /// mount finds it.
    fn forget_bases(&mut self, dataset: u64, target: u64, is_open: IsOpen<'_>) -> Result<Vec<u64>> {
        let base = |(number, record): (u64, &Record)| {
            let (taker, _) = self.catalogue.source(number)?.merge_base()?;
            match record.role {
                Role::Snapshot { of } => Some((number, (of.min(taker), of.max(taker)))),
                Role::Dataset { .. } => None,
            }
        };
        let is_of = |(_, pair): &(u64, (u64, u64))| pair.0 == dataset || pair.1 == dataset;
        let bases: Vec<_> = self.catalogue.records().filter_map(base).filter(is_of).collect();
        let later = bases.iter().filter(|(number, _)| *number > target);
        let lost: BTreeSet<(u64, u64)> = later.map(|(_, pair)| *pair).collect();
        let lost = bases.iter().filter(|(_, pair)| lost.contains(pair)).map(|(number, _)| *number);
        let (open, gone): (Vec<u64>, Vec<u64>) = lost.partition(|number| is_open(*number));
        for number in open {
            self.change(number, |base| base.name = format!("merge:{number}"))?;
        }
        for number in &gone {
            let base = self.record(*number)?;
            self.set(*number, None)?;
            self.end(base.line, base.period);
        }
        Ok(gone)
    }

    /// Lets a clone take over the snapshot that it began as, and those of the same dataset before
    /// it. Returns how many.
    pub(crate) fn promote(&mut self, name: &DatasetName) -> Result<u64> {
        refuse_transaction(name)?;
        let promoted = self.catalogue.dataset(name)?;
        let origin = match self.record(promoted)?.role {
            Role::Dataset { origin: origin @ 1.., .. } => origin,
            _ => return Err(Error::Invalid(format!("{name} is no clone"))),
        };
        let first = self.record(origin)?;
        let Role::Snapshot { of: other } = first.role else {
            return Err(Error::NoDataset(format!("what {name} began as")));
        };
        let passed = self.catalogue.links(first.line, Some(first.period))?;
        let is_passed = |record: &Record| {
            let upto = passed.iter().find(|link| link.line == record.line);
            upto.and_then(|link| link.period).is_some_and(|period| record.period <= period)
        };
        let all: Vec<u64> = self.catalogue.snapshots_of(other).collect();
        let mut taken = 0;
        for number in all {
            let mut record = self.record(number)?;
            if is_passed(&record) {
                let snapshot = Some(record.name.clone());
                self.refuse_taken(&Source { dataset: name.clone(), snapshot })?;
                // What is kept for others to be taken back goes along, and may end at any time.
                taken += u64::from(!kept::is_hidden(&record));
                record.role = Role::Snapshot { of: promoted };
                self.set(number, Some(record))?;
            }
        }
        let before = self.record(other)?.role;
        let origin_before = match before {
            Role::Dataset { origin, .. } => origin,
            Role::Snapshot { .. } => 0,
        };
        let role = |origin| Role::Dataset { origin, is_fork: false };
        self.change(promoted, |record| record.role = role(origin_before))?;
        self.change(other, |record| record.role = role(origin))?;
        let whose = self.record(other)?.name;
        let texts = [name.as_str(), whose.as_str()];
        let record = OperationRecord::of(OperationKind::Promote, promoted, &texts);
        self.enter(OperationRecord { other, detail: taken, ..record })?;
        Ok(taken)
    }

    /// A dataset into which a full stream comes gets its name.
    pub(crate) fn name_arrival(&mut self, hidden: &DatasetName, name: &DatasetName) -> Result<()> {
        self.rename(&Source::live(hidden.clone()), &Source::live(name.clone()))
    }

    /// A dataset goes on on the line of another one, which is there no more: the state of that
    /// becomes its own.
    pub(crate) fn take_over(&mut self, dataset: &DatasetName, hidden: &DatasetName) -> Result<()> {
        let (taker, taken) = (self.catalogue.dataset(dataset)?, self.arrival(hidden)?);
        let (live, gone) = (self.record(taker)?, self.record(taken)?);
        self.set(taken, None)?;
        self.change(taker, |live| {
            (live.line, live.period) = (gone.line, gone.period);
            live.referenced_bytes = gone.referenced_bytes;
        })?;
        self.end(live.line, live.period);
        Ok(())
    }

    /// Takes away a dataset whose state another one has now.
    pub(crate) fn drop_arrival(&mut self, hidden: &DatasetName) -> Result<()> {
        let number = self.arrival(hidden)?;
        let record = self.record(number)?;
        self.set(number, None)?;
        self.end(record.line, record.period);
        Ok(())
    }

    /// A dataset that goes as soon as another one has its state: nothing may be of it.
    fn arrival(&self, hidden: &DatasetName) -> Result<u64> {
        let number = self.catalogue.dataset(hidden)?;
        match self.catalogue.snapshots_of(number).next() {
            None => Ok(number),
            Some(_) => {
                let holder = "it has a snapshot: destroy that first".to_owned();
                Err(Error::InUse { name: hidden.to_string(), holder })
            }
        }
    }

    /// Takes a snapshot that has the identity which it had elsewhere.
    pub(crate) fn snapshot_arrival(
        &mut self,
        snapshot: &Source,
        identity: &SnapshotIdentity,
    ) -> Result<()> {
        let name = snapshot.snapshot.as_deref().unwrap_or_default();
        let number = self.snapshot(&snapshot.dataset, name)?;
        self.change(number, |record| {
            record.created_seconds = identity.created_seconds;
            let id = (IDENTITY.to_owned(), identity_text(&identity.id));
            record.properties.extend([id]);
        })
    }

    /// Makes a fork of the present state of a dataset.
    pub(crate) fn fork(
        &mut self,
        dataset: &DatasetName,
        name: &DatasetName,
        root_object: u64,
    ) -> Result<()> {
        dataset.refuse_receiving()?;
        // A transaction inside of another one ends before that.
        if name.transaction().is_none() {
            refuse_transaction(dataset)?;
        }
        self.refuse_taken(&Source::live(name.clone()))?;
        let is_taken = |base: &Source| self.catalogue.find(base).is_ok();
        let base = Source::fork_base(dataset, name, &is_taken)?;
        let of = self.catalogue.dataset(dataset)?;
        let origin = self.snapshot_quietly(of, base.snapshot.as_deref().unwrap_or_default())?;
        let number = self.begin_fork((origin, root_object), name)?;
        if name.transaction().is_none() {
            let texts = [name.as_str(), dataset.as_str()];
            let record = OperationRecord::of(OperationKind::Fork, number, &texts);
            self.enter(OperationRecord { other: origin, ..record })?;
        }
        Ok(())
    }

    /// Makes a fork of the state that a snapshot of a dataset keeps. The snapshot becomes its base,
    /// and goes with it.
    pub(crate) fn fork_kept(&mut self, of: u64, kept: &str, name: &DatasetName) -> Result<()> {
        self.refuse_taken(&Source::live(name.clone()))?;
        let live = self.catalogue.source(of);
        let live = live.ok_or_else(|| Error::NoDataset(format!("number {of}")))?;
        let is_taken = |base: &Source| self.catalogue.find(base).is_ok();
        let base = Source::fork_base(&live.dataset, name, &is_taken)?;
        let kept = Source { snapshot: Some(kept.to_owned()), ..live };
        let origin = self.catalogue.snapshot(&kept)?;
        let root_object = self.record(origin)?.root_object;
        self.begin_fork((origin, root_object), name)?;
        self.change(origin, |snapshot| snapshot.name = base.snapshot.unwrap_or_default())
    }

    fn begin_fork(&mut self, (origin, root_object): (u64, u64), name: &DatasetName) -> Result<u64> {
        let number = self.begin_clone(origin, name)?;
        self.change(number, |fork| {
            fork.role = Role::Dataset { origin, is_fork: true };
            fork.root_object = root_object;
        })?;
        Ok(number)
    }

    /// Gives a dataset or snapshot another name.
    pub(crate) fn rename(&mut self, from: &Source, to: &Source) -> Result<()> {
        check_rename(from, to)?;
        [&from.dataset, &to.dataset].into_iter().try_for_each(refuse_transaction)?;
        self.refuse_taken(to)?;
        let number = self.catalogue.find(from)?;
        let name = to.snapshot.clone().unwrap_or_else(|| to.dataset.to_string());
        self.change(number, |record| record.name = name)?;
        if !is_passing(from) {
            let texts = [from.to_string(), to.to_string()];
            let texts = texts.each_ref().map(String::as_str);
            self.enter(OperationRecord::of(OperationKind::Rename, number, &texts))?;
        }
        Ok(())
    }

    /// Sets a property of a dataset, or takes it away.
    pub(crate) fn set_property(
        &mut self,
        name: &DatasetName,
        property: &str,
        value: Option<&str>,
    ) -> Result<()> {
        value.map_or_else(|| check_known(property), |value| check_property(property, value))?;
        let number = self.catalogue.dataset(name)?;
        let mut before = None;
        self.change(number, |record| {
            before = match value {
                Some(value) => record.properties.insert(property.to_owned(), value.to_owned()),
                None => record.properties.remove(property),
            };
        })?;
        let before = before.unwrap_or_default();
        let texts = [name.as_str(), property, &before, value.unwrap_or_default()];
        self.enter(OperationRecord::of(OperationKind::Set, number, &texts))?;
        Ok(())
    }

    /// Keeps a snapshot from being destroyed.
    pub(crate) fn hold(&mut self, snapshot: &Source, tag: &str) -> Result<()> {
        check_tag(tag)?;
        refuse_transaction(&snapshot.dataset)?;
        let number = self.catalogue.snapshot(snapshot)?;
        if self.record(number)?.holds.iter().any(|held| held == tag) {
            return Err(Error::Invalid(format!("{snapshot} is held with the tag {tag} already")));
        }
        self.change(number, |record| {
            record.holds.push(tag.to_owned());
            record.holds.sort();
        })?;
        self.enter_hold(OperationKind::Hold, number, (snapshot, tag))
    }

    /// Takes such a tag away.
    pub(crate) fn release(&mut self, snapshot: &Source, tag: &str) -> Result<()> {
        let number = self.catalogue.snapshot(snapshot)?;
        if !self.record(number)?.holds.iter().any(|held| held == tag) {
            return Err(Error::Invalid(format!("{snapshot} is not held with a tag {tag}")));
        }
        self.change(number, |record| record.holds.retain(|held| held != tag))?;
        self.enter_hold(OperationKind::Release, number, (snapshot, tag))
    }

    fn enter_hold(
        &mut self,
        kind: OperationKind,
        number: u64,
        (snapshot, tag): (&Source, &str),
    ) -> Result<()> {
        self.enter(OperationRecord::of(kind, number, &[&snapshot.to_string(), tag]))?;
        Ok(())
    }

    /// Takes datasets and snapshots away, and all that goes with them.
    pub(crate) fn destroy(
        &mut self,
        sources: &[Source],
        is_open: IsOpen<'_>,
    ) -> Result<Vec<Source>> {
        let goes = self.all_that_goes(sources, is_open)?;
        let names = self.names_of(&goes);
        let entered: Vec<(u64, &Source)> = sources
            .iter()
            .filter(|source| !is_passing(source))
            .map(|source| Ok((self.catalogue.find(source)?, source)))
            .collect::<Result<_>>()?;
        let ends = |number: &u64| self.catalogue.record(*number).map(|it| (it.line, it.period));
        let ends: Vec<(u64, u64)> = goes.iter().filter_map(ends).collect();
        for number in &goes {
            self.set(*number, None)?;
        }
        self.gone.extend(goes);
        ends.into_iter().for_each(|(line, period)| self.end(line, period));
        for (number, source) in entered {
            let text = source.to_string();
            self.enter(OperationRecord::of(OperationKind::Destroy, number, &[&text]))?;
        }
        Ok(names)
    }

    /// The names of datasets and snapshots, without those that are hidden already.
    fn names_of(&self, numbers: &BTreeSet<u64>) -> Vec<Source> {
        let named = self.catalogue.named().into_iter();
        let named = named.filter(|(name, number)| numbers.contains(number) && !name.is_in_trash());
        named.map(|(source, _)| source).collect()
    }

    /// A state of a line is gone: the rows that only it needed may go, and the line with its last.
    fn end(&mut self, line: u64, period: u64) {
        let Some(record) = self.catalogue.line(line).copied() else { return };
        let is_needed = self.catalogue.points(line).next().is_some();
        if is_needed || self.catalogue.is_live(line) {
            let before = self.catalogue.points(line).rfind(|point| *point < period);
            self.work.push([line, before.unwrap_or(0), period]);
            return;
        }
        self.set_line(line, None);
        self.work.push([line, 0, u64::MAX]);
        if record.parent > 0 {
            self.end(record.parent, record.parent_period);
        }
    }

    /// All that a destruction takes: the sources, the snapshots of datasets, and the bases that
    /// nothing needs then.
    fn all_that_goes(&self, sources: &[Source], is_open: IsOpen<'_>) -> Result<BTreeSet<u64>> {
        let mut goes = BTreeSet::new();
        for source in sources {
            let number = self.catalogue.find(source)?;
            goes.insert(number);
            if source.snapshot.is_none() {
                goes.extend(self.catalogue.snapshots_of(number));
            }
        }
        let is_unneeded = |goes: &BTreeSet<u64>, number: u64, record: &Record| {
            !goes.contains(&number)
                && !is_open(number)
                && record.holds.is_empty()
                && self.is_unneeded_base(goes, number)
        };
        loop {
            let mut all = self.catalogue.records();
            let next = all.find(|(number, record)| {
                is_unneeded(&goes, *number, record) || self.is_kept_along(&goes, *number, record)
            });
            let Some((number, _)) = next else { break };
            goes.insert(number);
            goes.extend(self.catalogue.snapshots_of(number));
        }
        goes.iter().try_for_each(|number| self.refuse_in_use(*number, &goes, is_open))?;
        Ok(goes)
    }

    /// Whether it is kept for an undo, and hangs on what goes.
    fn is_kept_along(&self, goes: &BTreeSet<u64>, number: u64, record: &Record) -> bool {
        let hangs = matches!(record.role, Role::Dataset { origin, .. } if goes.contains(&origin));
        hangs && is_hidden(record) && !goes.contains(&number)
    }

    /// Whether it is a base of forks that all go, or of a merge with a dataset that goes.
    fn is_unneeded_base(&self, goes: &BTreeSet<u64>, number: u64) -> bool {
        let Some(source) = self.catalogue.source(number) else { return false };
        let mut clones = self.catalogue.clones_of(number).peekable();
        let taker_goes = source.merge_base().is_some_and(|(taker, _)| goes.contains(&taker));
        let forks_go = source.is_fork_base() && clones.peek().is_some();
        (forks_go || taker_goes) && clones.all(|clone| goes.contains(&clone))
    }

    /// How many lines go on from a snapshot, with something on them that stays in sight: its own,
    /// and those that began as it.
    fn lines_that_stay(&self, snapshot: &Record, goes: &BTreeSet<u64>) -> usize {
        let (line, period) = (snapshot.line, snapshot.period);
        if self.catalogue.lines_on(line, period).next().is_none() {
            return 1;
        }
        let stays = |of: u64, after: u64| {
            let mut all = self.catalogue.records();
            all.any(|(number, record)| {
                !goes.contains(&number)
                    && !self.catalogue.source(number).is_some_and(|it| it.is_in_trash())
                    && self.catalogue.links(record.line, Some(record.period)).is_ok_and(|links| {
                        let upto = links.iter().find(|link| link.line == of);
                        upto.and_then(|link| link.period).is_some_and(|upto| upto > after)
                    })
            })
        };
        let began = self.catalogue.lines_on(line, period).filter(|line| stays(*line, 0)).count();
        began + usize::from(stays(line, period))
    }

    fn refuse_in_use(&self, number: u64, goes: &BTreeSet<u64>, is_open: IsOpen<'_>) -> Result<()> {
        let name = self.catalogue.source(number).map(|source| source.to_string());
        let record = self.record(number)?;
        let name = match trash_entry(&record.name) {
            Some(of) => format!("what is kept for an undo of operation {of}"),
            None => name.unwrap_or_default(),
        };
        if name == DatasetName::root().as_str() {
            return Err(Error::Invalid("the root dataset cannot be destroyed".to_owned()));
        }
        let mut clones = self.catalogue.clones_of(number);
        let is_snapshot = matches!(record.role, Role::Snapshot { .. });
        let holder = match clones.find(|clone| !goes.contains(clone)) {
            _ if is_open(number) => "it is open".to_owned(),
            _ if !record.holds.is_empty() => format!("it is held: {}", record.holds.join(", ")),
            Some(clone) => match self.catalogue.source(clone) {
                Some(clone) => format!("{clone} began as it"),
                None => format!("dataset {clone} began as it"),
            },
            None if is_snapshot && self.lines_that_stay(&record, goes) > 1 => {
                "two lines of snapshots began as it".to_owned()
            }
            None => return Ok(()),
        };
        Err(Error::InUse { name, holder })
    }
}

/// The property of a snapshot that came from elsewhere: its id, in hexadecimal.
pub(crate) const IDENTITY: &str = ".identity";

/// An id of 128 bits as such a property has it.
pub(crate) fn identity_text(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a property is of one record alone, and no clone has it.
fn is_own_property(name: &str) -> bool {
    name.starts_with('.')
}

/// What a dataset has where nobody has set another value.
pub(crate) const DEFAULTS: [(&str, &str); 4] = [
    ("recordsize", RECORD_BYTES),
    (DELTA, DELTA_DEFAULT),
    (SNAPSHOTS, "off"),
    (UNDO, UNDO_DEFAULT),
];
/// The property that says when snapshots are taken by themselves, and which of them stay.
pub(crate) const SNAPSHOTS: &str = "snapshots";

/// Refuses what is no property.
fn check_known(property: &str) -> Result<()> {
    let known = DEFAULTS.iter().find(|(known, _)| *known == property);
    known.map_or_else(|| check_property(property, ""), |_| Ok(()))
}

/// Refuses what is no property, or no value of one.
pub(crate) fn check_property(property: &str, value: &str) -> Result<()> {
    let bytes = value.parse::<u64>().unwrap_or(0);
    match property {
        "recordsize"
            if bytes.is_power_of_two()
                && (4096..=1 << 20).contains(&bytes)
                && value == bytes.to_string() =>
        {
            Ok(())
        }
        DELTA if Delta::parse(value).is_some() => Ok(()),
        UNDO => check_undo_time(value).map(|_| ()),
        SNAPSHOTS if value == "off" => Ok(()),
        SNAPSHOTS => value.parse::<SnapshotRule>().map(|_| ()),
        _ => Err(Error::Invalid(format!(
            "{property}={value}: there are recordsize, a power of two from 4096 to 1048576, \
             delta, auto, on or off, undo, a time as in 30m, 12h or 7d, or off, and snapshots, \
             a rule as in 15m:8,1h:24, or off"
        ))),
    }
}
