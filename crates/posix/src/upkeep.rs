//! Passes over a file system that is in use: equal content shared, fragments brought together,
//! and the space that files take.

mod dedup;
mod defragmentation;
mod descent;
mod footprint;
mod pass;

pub use dedup::{
    ContentSharing, DedupOptions, DedupReport, Deduplicator, LiveTotals, Sharing, content_sharing,
    deduplicate, share_if_equal,
};
pub use defragmentation::{
    DefragmentOptions, DefragmentReport, DefragmentTotals, Defragmenter, defragment,
};
pub use footprint::{Footprint, FootprintOptions, Footprints, footprints};
pub use pass::{PassPlace, Skipped};
