//! May this batch be taken? Space is found for a batch before it is applied.

pub(crate) mod quota;
pub(crate) mod shortage;
