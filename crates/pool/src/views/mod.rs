//! What callers hold of a dataset: the live one, or what a pinned commit has.

pub(crate) mod frozen;
pub(crate) mod live;
mod place;
