//! What callers hold of a dataset: the live one, or what one commit left.

pub(crate) mod holding;
pub(crate) mod live;
pub(crate) mod pinned_commit;
