//! Devices that lose power, lie and break, each by a number that replays it.
//!
//! # The fault model
//!
//! **Power loss.** A write that has returned is only on its way. Until a flush has returned, each
//! sector of it may have arrived or not, whatever became of the sectors and writes before it: the
//! device's own cache and the kernel's write-back order as they like. Sectors are 512 bytes
//! (what the media promise) or 4096 (what most of them do). A sector itself is old or new, never
//! mixed. What a flush has covered stays. [`RecordingDevice`] keeps every write with its bytes and
//! every flush; a [`CrashState`] names one of the images that a power loss could have left.
//!
//! **Media.** Bits flip, in a sector or on the way; sectors become unreadable until they are
//! written again; a write is acknowledged and never done (lost), or is done elsewhere
//! (misdirected), or in part (torn), with or without an error; a flush fails, and what it should
//! have made durable is gone although the next flush succeeds; the device vanishes.
//! [`FaultyDevice`] does any of these, at an operation that a script or a seed names.
//!
//! **Not modelled.** Damage that also repairs its checksum (that takes an adversary), a device that
//! answers a flush before it has done it, and one that writes outside of what it was asked to
//! while power fails.
//!
//! One seed gives one sequence of faults for one sequence of operations. Threads that race for the
//! device make another sequence of operations; runs that must replay drive it from one thread.

mod crash;
mod fault;
mod faulty;
mod overlay;
mod recording;
mod trace;

pub use crash::{CrashState, Fate, NotACrashState};
pub use fault::{Fault, FaultRates};
pub use faulty::{Access, FaultyDevice};
pub use overlay::{Layer, OverlayDevice};
pub use recording::RecordingDevice;
pub(crate) use trace::whole;
pub use trace::{Event, Trace};

/// The unit of bytes that power loss leaves whole on any medium.
pub const SECTOR_BYTES: usize = 512;
