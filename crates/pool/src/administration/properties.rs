//! Properties and holds: what is set on datasets and snapshots, with the entry in the log.

use super::operations::entry;
use super::{list, refuse_too_long, running};
use crate::commit::Turn;
use crate::pool::Pool;
use crate::settings::{RESERVATION, Settings};
use marram_format::dataset::{DatasetRecord, HOLD_PROPERTY_PREFIX};
use marram_format::operation::{OperationKind, OperationRecord};
use marram_format::version::feature;
use marram_store::{DatasetName, Error, Result, Source};

impl Pool {
    /// Sets a property, whose value has been checked; `None` goes back to the default.
    pub(super) fn change_property(
        &self,
        turn: &Turn<'_>,
        name: &DatasetName,
        (property, value): (&str, Option<&str>),
        undoes: u64,
    ) -> Result<()> {
        let mut record = DatasetRecord::clone(&*self.inner.find_live(name)?);
        let old = record.properties.iter().find(|(set, _)| set == property);
        let old = old.map_or_else(String::new, |(_, value)| value.clone());
        record.properties.retain(|(set, _)| set != property);
        if let Some(value) = value {
            record.properties.push((property.to_owned(), value.to_owned()));
            record.properties.sort();
        }
        refuse_too_long(&record)?;
        let settings = Settings::new(&record.properties)?;
        let known = running(&self.inner, record.id);
        turn.commit(Some(&mut |commit| {
            let changed = commit.record(record.id)?;
            let record = DatasetRecord { properties: record.properties.clone(), ..changed };
            if property == RESERVATION {
                let kept_free = known.as_ref().map_or(0, |dataset| dataset.allowance.kept_free());
                commit.pool.check_record_reservation(&record, kept_free)?;
            }
            let texts = [name.as_str(), property, &old, value.unwrap_or_default()];
            let entry = entry(OperationKind::Set, record.id, &texts);
            commit.keep(record)?;
            let entry = OperationRecord { undoes, ..entry };
            commit.enter(self.author.as_ref(), entry).map(|_| ())
        }))?;
        if let Some(dataset) = known {
            dataset.set_settings(settings);
        }
        self.inner.sum_reservations();
        Ok(())
    }

    /// Lets a tag hold a snapshot, or hold it no more.
    pub(super) fn change_holds(
        &self,
        turn: &Turn<'_>,
        snapshot: &Source,
        tag: &str,
        (holds, undoes): (bool, u64),
    ) -> Result<()> {
        let mut record = DatasetRecord::clone(&*self.inner.find_snapshot(snapshot)?);
        let name = format!("{HOLD_PROPERTY_PREFIX}{tag}");
        let held = record.properties.iter().any(|(known, _)| *known == name);
        match (holds, held) {
            (true, true) => {
                let reason = format!("{snapshot} is held with the tag {tag} already");
                return Err(Error::Invalid(reason));
            }
            (false, false) => {
                return Err(Error::Invalid(format!("{snapshot} has no hold with the tag {tag}")));
            }
            (true, false) => record.properties.push((name, String::new())),
            (false, true) => record.properties.retain(|(known, _)| *known != name),
        }
        record.properties.sort();
        refuse_too_long(&record)?;
        let count = u32::try_from(list::holds(&record).count());
        let count = count.expect("a record has few properties");
        let kind = if holds { OperationKind::Hold } else { OperationKind::Release };
        turn.commit(Some(&mut |commit| {
            commit.set_feature(feature::OWNERS);
            let properties = record.properties.clone();
            let changed = commit.record(record.id)?;
            commit.keep(DatasetRecord { properties, holds: count, ..changed })?;
            let entry = entry(kind, record.id, &[&record.name, tag]);
            let entry = OperationRecord { undoes, ..entry };
            commit.enter(self.author.as_ref(), entry).map(|_| ())
        }))
    }
}
