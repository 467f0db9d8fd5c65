//! What callers hold of a dataset: the live one, or what a pinned commit has.

pub(crate) mod frozen;
mod layered;
pub(crate) mod live;
mod place;

use crate::snapshots::ephemeral;
use crate::snapshots::session::Session;
use live::DatasetView;
use marram_store::{Result, Source, View};
use std::sync::Arc;

/// See [`marram_store::Store::open`].
pub(crate) fn open(session: &Session, source: &Source) -> Result<Arc<dyn View>> {
    match ephemeral::find_or_base(session, source)? {
        Some(snapshot) => frozen::open_ephemeral(&snapshot),
        None => {
            let opened = session.state.open(source)?;
            Ok(Arc::new(DatasetView::new(Arc::clone(&session.state), opened)))
        }
    }
}
