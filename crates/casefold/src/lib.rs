//! Names without case, as a layer over any file system: the module that Featherstitch had (Frost,
//! "Improving the Performance and Reliability of Storage Systems", 2010, section 2.4).
//!
//! A name is looked for as it is spelled, and then by its key: the rule of pools whose datasets
//! fold names ([`marram_format::record::NameRule::Folded`]). Nothing of the file system below
//! changes, so what is there already may have two names with one key. Then each exact spelling
//! leads to its own entry, and any other to the one of them that is first in the order of bytes.
//! All are listed as they are stored.
//!
//! Invariants. No entry is made whose key another entry of the directory has. Whatever changes
//! names goes through one lock, so an index in memory has the names of its directory while it is
//! kept.

mod index;
mod layer;

pub use layer::Folding;
