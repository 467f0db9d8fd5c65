//! In what two states differ, each a snapshot or one that is kept in memory.

use super::refuse_live;
use crate::dataset::item_of;
use crate::media::{At, Media};
use crate::moment::Moment;
use crate::pool::Pool;
use crate::tree::{self, Differing, Found};
use crate::view::DatasetView;
use bytes::Bytes;
use marram_store::{Error, ItemChange, Key, Result, Source, kind};
use std::sync::Arc;

/// A state that stays readable as long as this is there.
struct Side<'p> {
    media: &'p Media,
    name: String,
    root: Option<Bytes>,
    /// As long as a snapshot is open it cannot be destroyed, and no block of its used again.
    _open: Option<DatasetView>,
    moment: Option<Arc<Moment>>,
}

impl Pool {
    /// See `Store::changes`.
    pub(super) fn compare(
        &self,
        (before, after): (&Source, &Source),
        from: Key,
        visit: &mut dyn FnMut(ItemChange) -> bool,
    ) -> Result<()> {
        let (before, after) = (self.side(before)?, self.side(after)?);
        let media = &self.inner.media;
        let at = At { media, epoch: media.epoch() };
        let mut failed = None;
        let mut show = |differing: Differing| match change_of(&differing) {
            Ok(Some(change)) => visit(change),
            Ok(None) => true,
            Err(error) => {
                failed = Some(error);
                false
            }
        };
        let walked =
            tree::changes(&at, (before.root.as_ref(), after.root.as_ref()), from, &mut show);
        let walked = after.told(before.told(walked));
        failed.map_or(walked, Err)
    }

    fn side(&self, source: &Source) -> Result<Side<'_>> {
        let (media, name) = (&self.inner.media, source.to_string());
        if let Some(state) = self.inner.passing_state(source) {
            let moment = Some(Arc::clone(&state.moment));
            return Ok(Side { media, name, root: state.root(), _open: None, moment });
        }
        refuse_live(source)?;
        let open = self.open_view(source)?;
        Ok(Side { media, name, root: open.root(), _open: Some(open), moment: None })
    }
}

impl Side<'_> {
    fn told<T>(&self, walked: Result<T>) -> Result<T> {
        match &self.moment {
            Some(moment) => moment.told(&self.name, walked),
            None => walked.inspect_err(|error| {
                if let Error::Damaged(damage) = error {
                    self.media.keep_damage(damage);
                }
            }),
        }
    }
}

/// A change as callers see it; none of what the engine keeps for itself.
fn change_of(differing: &Differing) -> Result<Option<ItemChange>> {
    let found = differing.after.as_ref().or(differing.before.as_ref());
    let Some(key) = found.map(|found| found.key).filter(|key| key.kind != kind::REFERENCES) else {
        return Ok(None);
    };
    let item = |found: &Option<Found>| found.as_ref().map(item_of).transpose();
    let (before, after) = (item(&differing.before)?, item(&differing.after)?);
    Ok(Some(ItemChange { key, before, after }))
}
