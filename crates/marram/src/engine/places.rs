//! Where directories are that records know by their numbers.

use crate::names::PathText;
use marram_store::{Source, Store};

/// The path of a directory from the root of a dataset or snapshot; none if it is not there any
/// more, or cannot be read: a report is made all the same.
pub(crate) fn directory(store: &dyn Store, of: &Source, number: u64) -> Option<PathText> {
    let root = store.report(of).ok()?.root_object;
    let path = marram_history::path_of(store.open(of).ok()?, root, number).ok().flatten()?;
    Some(PathText::of(&path))
}
