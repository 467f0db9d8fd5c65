//! Thinning of automatic snapshots, on any store.

use crate::control::protocol::{StayRow, ThinReport, ThinRequest};
use crate::engine::store_operations::below;
use crate::error::Result;
use crate::retention::{Rule, automatic_moment};
use marram_store::{DatasetName, DatasetReport, Error, Source, Store};
use std::collections::{BTreeMap, BTreeSet};

/// Automatic snapshots that are to go, and why others stay.
pub(crate) struct Thinning {
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
    pub(crate) fn plan(
        store: &dyn Store,
        request: &ThinRequest,
        mounted: &BTreeSet<Source>,
    ) -> Result<Thinning> {
        let (dataset, rule) = (request.dataset.parse()?, request.keep.parse::<Rule>()?);
        store.report(&Source::live(DatasetName::clone(&dataset)))?;
        let reports = store.list()?;
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
    pub(crate) fn of(
        store: &dyn Store,
        sources: &[Source],
        mounted: &BTreeSet<Source>,
    ) -> Result<Thinning> {
        let reports = store.list()?;
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
    pub(crate) fn goes(&self) -> &[Source] {
        &self.goes
    }

    /// Destroys it, in one step. What turns out to be in use stays; what others have destroyed
    /// meanwhile is gone.
    ///
    /// # Errors
    /// Whatever else the store refuses, or a failed write.
    pub(crate) fn perform(mut self, store: &dyn Store, dry_run: bool) -> Result<ThinReport> {
        let freed_bytes = loop {
            if self.goes.is_empty() {
                break 0;
            }
            match store.destroy_together(&self.goes, dry_run) {
                Ok(destruction) => break destruction.freed_bytes,
                Err(Error::InUse { name, holder }) => {
                    let left = self.goes.len();
                    self.goes.retain(|source| source.to_string() != name);
                    if self.goes.len() == left {
                        return Err(Error::InUse { name, holder }.into());
                    }
                    self.stayed.push(StayRow { name, reason: holder });
                }
                Err(Error::NoDataset(name)) => {
                    let left = self.goes.len();
                    self.goes.retain(|source| source.to_string() != name);
                    if self.goes.len() == left {
                        return Err(Error::NoDataset(name).into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        };
        let destroyed = self.goes.iter().map(ToString::to_string).collect();
        Ok(ThinReport { destroyed, stayed: self.stayed, kept: self.kept, freed_bytes, dry_run })
    }
}
