//! What an open pool knows beside its trees: the records of its datasets, and their settings.

pub(crate) mod records;
pub(crate) mod settings;
