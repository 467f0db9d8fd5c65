//! Where findings go to, and what they add up to.
//!
//! A pool that is damaged in one place can be wrong in very many: after so many findings of a
//! kind, further ones are only counted.

use crate::finding::{Finding, FindingKind, Place, Severity};
use std::collections::BTreeMap;

/// Findings of one kind that are reported in full.
pub const FINDINGS_PER_KIND_MAX: u64 = 1000;

/// Counts findings and hands them on.
pub(crate) struct Reporter<'a> {
    sink: &'a mut dyn FnMut(Finding),
    counts: BTreeMap<FindingKind, u64>,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(sink: &'a mut dyn FnMut(Finding)) -> Reporter<'a> {
        Reporter { sink, counts: BTreeMap::new() }
    }

    /// Whether another finding of this kind would be reported in full.
    pub(crate) fn wants(&self, kind: FindingKind) -> bool {
        self.counts.get(&kind).is_none_or(|count| *count < FINDINGS_PER_KIND_MAX)
    }

    pub(crate) fn report(&mut self, kind: FindingKind, place: Place, detail: impl Into<String>) {
        if self.wants(kind) {
            (self.sink)(Finding { kind, place, detail: detail.into() });
        }
        *self.counts.entry(kind).or_default() += 1;
    }

    /// Findings by code.
    pub(crate) fn codes(&self) -> BTreeMap<&'static str, u64> {
        self.counts.iter().map(|(kind, count)| (kind.code(), *count)).collect()
    }

    /// How many findings are this bad.
    pub(crate) fn count(&self, severity: Severity) -> u64 {
        let counts = self.counts.iter();
        counts.filter(|(kind, _)| kind.severity() == severity).map(|(_, count)| count).sum()
    }
}
