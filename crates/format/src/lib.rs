//! The bytes of a Marram pool on media: encode and decode only.
//!
//! `docs/format.md` is the specification; this crate is its only implementation. Explicit
//! little-endian (keys are big-endian, so that bytes sort as keys do), no struct casts, no I/O.
//!
//! Decoders take untrusted bytes: they never panic, never allocate more than in proportion to
//! their input, and name what is wrong in a [`FormatError`]. Encoders take what the engine has
//! built and assert that it is in range.

#![deny(clippy::cast_possible_truncation)]

pub mod dataset;
mod error;
pub mod group;
pub mod key;
pub mod log;
pub mod node;
pub mod operation;
pub mod pointer;
mod property;
mod reader;
pub mod record;
pub mod signature;
pub mod space;
pub mod stream;
pub mod superblock;
pub mod transaction;
pub mod version;

pub use error::FormatError;
