//! Deduplication: equal content found and shared after it was written.
//!
//! `share` is the one operation that changes anything, and no read can see what it changes.
//! `window` cuts files into what is compared; `table` remembers, bounded, where which content was;
//! `walk` looks through directories, `live` at what was written a moment ago.
//!
//! **A table holds hints.** Files change while nobody tells it, and checksums of 64 bits collide:
//! so what it says is compared byte by byte under the locks of both files before it counts. See
//! docs/decisions/0016-owners-of-a-block.md.

mod live;
mod saved;
mod share;
mod table;
mod walk;
mod window;

pub use live::{Deduplicator, LiveTotals};
pub use saved::{ContentSharing, content_sharing};
pub use share::{Sharing, share_if_equal};
pub use walk::{DedupOptions, DedupReport, deduplicate};
