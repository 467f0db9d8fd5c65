//! Bases of merges: snapshots that keep the newest state that two datasets both have.
//!
//! A merge that moves the base keeps the state that it has read as `SOURCE@base:TAKER:AT`: TAKER is
//! the number of the dataset that has taken it in, and AT grows from merge to merge.

use crate::{DatasetName, DatasetReport, Error, MergedFrom, Result, Source, Store};

/// With this the name of such a snapshot begins.
pub(crate) const BASE_PREFIX: &str = "base:";
/// With this the name begins of one that is kept for the undo of the merge that has moved it.
pub(crate) const FORMER_PREFIX: &str = "former:";

impl Source {
    /// The name of the snapshot that a merge keeps as base, without the dataset's.
    pub fn merge_base_name(taker: u64, at: u64) -> String {
        format!("{BASE_PREFIX}{taker}:{at}")
    }

    /// If it is the base of a merge: the number of the dataset that has taken it in, and the place
    /// of that merge in the order of merges.
    pub fn merge_base(&self) -> Option<(u64, u64)> {
        let (taker, at) = self.snapshot.as_ref()?.strip_prefix(BASE_PREFIX)?.split_once(':')?;
        taker.parse().ok().zip(at.parse().ok())
    }
}

impl Source {
    /// The name of the snapshot `base` while it is kept for an entry of the log of operations.
    pub fn former_base_name(entry: u64, base: &str) -> String {
        format!("{FORMER_PREFIX}{entry}:{base}")
    }

    /// If it is kept for an entry: the number of that, and the base that it was.
    pub fn former_base(&self) -> Option<(u64, Source)> {
        let (entry, base) = self.snapshot.as_ref()?.strip_prefix(FORMER_PREFIX)?.split_once(':')?;
        let base = Source { dataset: self.dataset.clone(), snapshot: Some(base.to_owned()) };
        entry.parse().ok().zip(base.merge_base().map(|_| base))
    }
}

/// The bases of merges between two datasets, in either direction, oldest first.
pub fn merge_bases(all: &[DatasetReport], a: &DatasetName, b: &DatasetName) -> Vec<Source> {
    let number = |name: &DatasetName| {
        let is_it = |report: &&DatasetReport| {
            report.source.snapshot.is_none() && report.source.dataset == *name
        };
        all.iter().find(is_it).map(|report| report.number)
    };
    let numbers = (number(a), number(b));
    let found = all.iter().filter_map(|report| {
        let (taker, at) = report.source.merge_base()?;
        let of = &report.source.dataset;
        let is_between = of == a && Some(taker) == numbers.1 || of == b && Some(taker) == numbers.0;
        is_between.then(|| (at, report.source.clone()))
    });
    let mut found: Vec<(u64, Source)> = found.collect();
    found.sort();
    found.into_iter().map(|(_, source)| source).collect()
}

/// Refuses a merge whose base is not the newest between the two, for a store that does not do so in
/// the step of the merge.
pub(crate) fn refuse_moved_base(store: &dyn Store, merged: &MergedFrom<'_>) -> Result<()> {
    let Some(base) = merged.base else { return Ok(()) };
    let newest = merge_bases(&store.list()?, merged.dataset, &merged.read.dataset).pop();
    if newest.as_ref().map_or_else(|| base.merge_base().is_none(), |newest| newest == base) {
        return Ok(());
    }
    let holder = "another merge between the two has moved their base: merge again".to_owned();
    Err(Error::InUse { name: base.to_string(), holder })
}

/// Makes the state that a merge has read the base, for a store that does not do so with the merge
/// itself. Those before it go, but for one that is being read.
pub(crate) fn move_base(store: &dyn Store, merged: &MergedFrom<'_>) -> Result<()> {
    let all = store.list()?;
    let number = |source: &Source| {
        let found = all.iter().find(|report| report.source == *source);
        found.map(|it| it.number).ok_or_else(|| Error::NoDataset(source.to_string()))
    };
    let (at, taker) = (number(merged.read)?, number(&Source::live(merged.dataset.clone()))?);
    let dataset = merged.read.dataset.clone();
    let base = Source { dataset, snapshot: Some(Source::merge_base_name(taker, at)) };
    store.rename(merged.read, &base)?;
    for former in merge_bases(&all, merged.dataset, &merged.read.dataset) {
        let _stays_while_read = store.destroy(&former, false);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::merge_bases;
    use crate::Source;

    #[test]
    fn the_name_of_a_base_says_what_has_it() {
        let base: Source = format!("root@{}", Source::merge_base_name(7, 120)).parse().unwrap();
        assert_eq!(
            (base.to_string().as_str(), base.merge_base()),
            ("root@base:7:120", Some((7, 120)))
        );
        assert!(base.is_own() && !base.is_fork_base() && !base.is_in_trash());
        for other in
            ["root@base", "root@base:7", "root@fork:base:7:1", "base:7:1", "root@undo:3:base:7:1"]
        {
            assert_eq!(other.parse::<Source>().unwrap().merge_base(), None, "{other}");
        }
        let former = Source::former_base_name(3, base.snapshot.as_ref().unwrap());
        let former = Source { snapshot: Some(former), ..base.clone() };
        assert_eq!(former.to_string(), "root@former:3:base:7:120");
        assert_eq!((former.former_base(), former.merge_base()), (Some((3, base.clone())), None));
        assert!(former.is_own() && base.former_base().is_none());
        assert_eq!(merge_bases(&[], &base.dataset, &base.dataset), []);
    }
}
