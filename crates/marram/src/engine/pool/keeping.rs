//! Snapshots of many datasets, thinning of automatic ones, and what holds the space.

use super::kinds::kind_of;
use crate::control::protocol::{
    Answer, DestructionReport, HolderRow, SpaceReport, StayRow, ThinReport, ThinRequest,
};
use crate::error::Result;
use crate::retention::{Rule, automatic_moment};
use marram_pool::Pool;
use marram_store::{
    DatasetKind, DatasetName, DatasetReport, Error, Holder, Source, SpaceUsage, Store,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Between the first and the last snapshot of a range.
const RANGE: &str = "..";

/// A dataset and all below it: those whose names begin with its own and a slash, and of the root
/// dataset all. Forks are no datasets below another.
fn below(reports: &[DatasetReport], dataset: &DatasetName) -> Vec<DatasetName> {
    let prefix = format!("{dataset}/");
    let is_below = |report: &&DatasetReport| {
        let (source, is_live) = (&report.source, report.kind != DatasetKind::Snapshot);
        let is_fork = report.is_fork;
        let name = source.dataset.as_str();
        let is_under = *dataset == DatasetName::root() || name.starts_with(&prefix);
        is_live && (source.dataset == *dataset || is_under && !is_fork && !source.is_own())
    };
    reports.iter().filter(is_below).map(|report| report.source.dataset.clone()).collect()
}

/// Takes a snapshot of a dataset and of all below it.
///
/// # Errors
/// No such dataset; one has a snapshot of that name. Then there is none of any.
pub(super) fn snapshot_below(pool: &Pool, dataset: &DatasetName, name: &str) -> Result<Answer> {
    let began = Instant::now();
    pool.report(&Source::live(dataset.clone()))?;
    let datasets = below(&pool.list()?, dataset);
    pool.snapshot_together(&datasets, name)?;
    let engine_nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let names = datasets.iter().map(|dataset| format!("{dataset}@{name}")).collect();
    Ok(Answer::Snapshots { names, engine_nanoseconds })
}

/// Automatic snapshots that are to go, and why others stay.
pub(super) struct Thinning {
    goes: Vec<Source>,
    stayed: Vec<StayRow>,
    kept: usize,
}

impl Thinning {
    /// Finds what a rule does not keep, and what of that may go: nothing that is held, mounted, or
    /// that others began as.
    ///
    /// # Errors
    /// No such dataset; no rule.
    pub(super) fn plan(
        pool: &Pool,
        request: &ThinRequest,
        mounted: &BTreeSet<Source>,
    ) -> Result<Thinning> {
        let (dataset, rule) = (request.dataset.parse()?, request.keep.parse::<Rule>()?);
        pool.report(&Source::live(DatasetName::clone(&dataset)))?;
        let reports = pool.list()?;
        let datasets = match request.recursive {
            true => below(&reports, &dataset),
            false => vec![dataset],
        };
        let mut automatic: BTreeMap<&DatasetName, BTreeMap<i64, &DatasetReport>> =
            datasets.iter().map(|dataset| (dataset, BTreeMap::new())).collect();
        for report in &reports {
            let moment = report.source.snapshot.as_deref().and_then(automatic_moment);
            if let (Some(moment), Some(of)) = (moment, automatic.get_mut(&report.source.dataset)) {
                of.insert(moment, report);
            }
        }
        let origins: BTreeSet<&Source> =
            reports.iter().filter_map(|report| report.origin.as_ref()).collect();
        let mut thinning = Thinning { goes: Vec::new(), stayed: Vec::new(), kept: 0 };
        for of in automatic.values() {
            let moments = of.keys().copied().chain(request.coming_seconds).collect();
            let kept = rule.kept(&moments);
            thinning.kept += kept.len();
            for report in of.iter().filter(|(at, _)| !kept.contains(at)).map(|(_, report)| report) {
                thinning.sort(report, &origins, mounted);
            }
        }
        Ok(thinning)
    }

    /// Those of some snapshots that may go.
    ///
    /// # Errors
    /// A failed read.
    pub(super) fn of(
        pool: &Pool,
        sources: &[Source],
        mounted: &BTreeSet<Source>,
    ) -> Result<Thinning> {
        let reports = pool.list()?;
        let origins: BTreeSet<&Source> =
            reports.iter().filter_map(|report| report.origin.as_ref()).collect();
        let mut thinning = Thinning { goes: Vec::new(), stayed: Vec::new(), kept: 0 };
        for report in reports.iter().filter(|report| sources.contains(&report.source)) {
            thinning.sort(report, &origins, mounted);
        }
        Ok(thinning)
    }

    fn sort(
        &mut self,
        report: &DatasetReport,
        origins: &BTreeSet<&Source>,
        mounted: &BTreeSet<Source>,
    ) {
        let source = &report.source;
        let reason = match report {
            _ if !report.holds.is_empty() => format!("held: {}", report.holds.join(", ")),
            _ if origins.contains(source) => "a clone began as it".to_owned(),
            _ if mounted.contains(source) => "mounted".to_owned(),
            _ => return self.goes.push(source.clone()),
        };
        self.stayed.push(StayRow { name: source.to_string(), reason });
    }

    /// What is to go.
    pub(super) fn goes(&self) -> &[Source] {
        &self.goes
    }

    /// Destroys it, in one step. What turns out to be in use stays.
    ///
    /// # Errors
    /// Whatever else the pool refuses, or a device that fails.
    pub(super) fn perform(mut self, pool: &Pool, dry_run: bool) -> Result<ThinReport> {
        let freed_bytes = loop {
            if self.goes.is_empty() {
                break 0;
            }
            match pool.destroy_together(&self.goes, dry_run) {
                Ok(destruction) => break destruction.freed_bytes,
                Err(Error::InUse { name, holder }) => {
                    let left = self.goes.len();
                    self.goes.retain(|source| source.to_string() != name);
                    if self.goes.len() == left {
                        return Err(Error::InUse { name, holder }.into());
                    }
                    self.stayed.push(StayRow { name, reason: holder });
                }
                Err(error) => return Err(error.into()),
            }
        };
        let destroyed = self.goes.iter().map(ToString::to_string).collect();
        Ok(ThinReport { destroyed, stayed: self.stayed, kept: self.kept, freed_bytes, dry_run })
    }
}

/// Tells what holds the space, or what destroying some together would give back.
///
/// # Errors
/// One that is not there, or whose destruction the pool refuses.
pub(super) fn space(pool: &Pool, sources: &[String]) -> Result<Answer> {
    if pool.status().dirty_bytes > 0 {
        pool.commit()?;
    }
    if sources.is_empty() {
        return report(pool).map(Answer::Space);
    }
    let destruction = pool.destroy_together(&named(pool, sources)?, true)?;
    Ok(Answer::Destruction(DestructionReport {
        sources: destruction.sources.iter().map(ToString::to_string).collect(),
        freed_bytes: destruction.freed_bytes,
        dry_run: true,
    }))
}

/// What is named, each once: of a range all its snapshots.
///
/// # Errors
/// A name that is none, or the end of a range that is not there.
pub(super) fn named(pool: &Pool, sources: &[String]) -> Result<Vec<Source>> {
    let mut named = BTreeSet::new();
    for source in sources {
        named.extend(range(pool, source)?);
    }
    Ok(named.into_iter().collect())
}

/// The snapshots of a range, both ends included, by age; anything else is itself.
fn range(pool: &Pool, text: &str) -> Result<Vec<Source>> {
    let source: Source = text.parse()?;
    let ends = source.snapshot.as_deref().and_then(|name| name.split_once(RANGE));
    let Some((first, last)) = ends.filter(|_| pool.report(&source).is_err()) else {
        return Ok(vec![source]);
    };
    let number = |name: &str| -> Result<u64> {
        let end: Source = format!("{}@{name}", source.dataset).parse()?;
        Ok(pool.report(&end)?.number)
    };
    let (first, last) = (number(first)?, number(last)?);
    let numbers = first.min(last)..=first.max(last);
    let of_range = |report: &DatasetReport| {
        let is_snapshot = report.kind == DatasetKind::Snapshot && !report.source.is_own();
        is_snapshot && report.source.dataset == source.dataset && numbers.contains(&report.number)
    };
    let found = pool.list()?.into_iter().filter(of_range);
    Ok(found.map(|report| report.source).collect())
}

fn report(pool: &Pool) -> Result<SpaceReport> {
    let usage = pool.usage(true)?;
    let row = |holder: &Holder| HolderRow {
        name: holder.report.source.to_string(),
        kind: kind_of(&holder.report).to_owned(),
        referenced_bytes: holder.report.referenced_bytes,
        added_bytes: holder.added_bytes,
        unique_bytes: holder.unique_bytes,
        shared_bytes: holder.report.referenced_bytes.saturating_sub(holder.unique_bytes),
    };
    Ok(SpaceReport {
        holders: usage.holders.iter().map(row).collect(),
        added_bytes: usage.holders.iter().map(|holder| holder.added_bytes).sum(),
        own_bytes: usage.own_bytes,
        leaving_bytes: usage.leaving_bytes,
        shared_bytes: usage.shared_bytes,
        allocated_bytes: usage.allocated_bytes,
    })
}
