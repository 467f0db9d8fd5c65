//! What was done to a device, in order, and the images that can be made of it.

use std::sync::Arc;

use marram_device::DISCARDED_BYTE;

use super::crash::{CrashState, Fate};
use super::fault::{sectors, tear, tear_after};
use crate::random::Random;

/// One thing that happened to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write that returned.
    Write {
        /// Where, in bytes.
        offset: u64,
        /// What.
        bytes: Arc<[u8]>,
    },
    /// A discard that returned.
    Discard {
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: u64,
    },
    /// A flush that returned: what comes before it is durable.
    Flush,
    /// A number that the test left here, such as the last operation acknowledged as durable.
    Mark(u64),
}

/// The image that a device started with, and all events since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    base: Arc<[u8]>,
    events: Vec<Event>,
}

impl Trace {
    /// A trace without events.
    pub(crate) fn new(base: Arc<[u8]>) -> Trace {
        Trace { base, events: Vec::new() }
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    /// The image that the device started with.
    pub fn base(&self) -> &Arc<[u8]> {
        &self.base
    }

    /// All events in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The image after the first `cut` events, as if all of them had arrived.
    pub fn state_at(&self, cut: usize) -> Vec<u8> {
        let fate = Fate::All;
        self.image(CrashState { cut, fate })
    }

    /// The image that a crash left.
    ///
    /// # Panics
    /// If the cut lies behind the last event.
    pub fn image(&self, state: CrashState) -> Vec<u8> {
        let durable = self.durable_before(state.cut);
        let mut image = self.base.to_vec();
        for event in &self.events[..durable] {
            whole(event, &mut |start, bytes| put(&mut image, start, bytes));
        }
        self.arrivals(state, &mut |start, bytes| put(&mut image, start, bytes));
        image
    }

    /// Names what arrived of the writes that no flush had covered, in order: where, and which
    /// bytes.
    pub(crate) fn arrivals(&self, state: CrashState, arrive: &mut dyn FnMut(usize, &[u8])) {
        let pending = self.pending(state.cut);
        match state.fate {
            Fate::All => pending.for_each(|event| whole(event, arrive)),
            Fate::Durable => {}
            Fate::Subset(mask) => pending
                .enumerate()
                .filter(|(index, _)| mask.checked_shr(*index as u32).unwrap_or(0) & 1 == 1)
                .for_each(|(_, event)| whole(event, arrive)),
            Fate::Torn { write, sector_bytes, kept } => {
                for (index, event) in pending.take(write + 1).enumerate() {
                    match change(event) {
                        Some((start, bytes)) if index == write => {
                            for part in tear_after(start, bytes.len(), sector_bytes, kept) {
                                arrive(part.start, &bytes[part.start - start..part.end - start]);
                            }
                        }
                        _ => whole(event, arrive),
                    }
                }
            }
            Fate::Seeded(seed) => by_lot(pending, seed, arrive),
        }
    }

    /// For each of the writes before `cut` that no flush had covered, how many sectors it has.
    pub(crate) fn pending_sectors(&self, cut: usize, sector_bytes: usize) -> Vec<usize> {
        let count = |event| {
            let (start, len) = match event {
                &Event::Write { offset, ref bytes } => (offset, bytes.len()),
                &Event::Discard { offset, len } => (offset, index(len)),
                Event::Flush | Event::Mark(_) => return 0,
            };
            sectors(index(start), len, sector_bytes).count()
        };
        self.pending(cut).map(count).collect()
    }

    /// The last mark before `cut`: what had been promised when the crash came.
    pub fn last_mark(&self, cut: usize) -> Option<u64> {
        let marks = self.events[..cut].iter().rev();
        marks.into_iter().find_map(|event| match event {
            Event::Mark(mark) => Some(*mark),
            _ => None,
        })
    }

    /// How many writes and discards before `cut` no flush has covered.
    pub fn pending_count(&self, cut: usize) -> usize {
        self.pending(cut).count()
    }

    /// How many of the first `cut` events a flush has made durable.
    pub(crate) fn durable_before(&self, cut: usize) -> usize {
        let mut flushes = self.events[..cut].iter();
        flushes.rposition(|event| *event == Event::Flush).unwrap_or(0)
    }

    fn pending(&self, cut: usize) -> impl Iterator<Item = &Event> {
        self.events[self.durable_before(cut)..cut]
            .iter()
            .filter(|event| matches!(event, Event::Write { .. } | Event::Discard { .. }))
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).expect("the image is in memory")
}

/// The place and the new bytes of an event that changes the image.
fn change(event: &Event) -> Option<(usize, Arc<[u8]>)> {
    match event {
        Event::Write { offset, bytes } => Some((index(*offset), bytes.clone())),
        Event::Discard { offset, len } => {
            Some((index(*offset), vec![DISCARDED_BYTE; index(*len)].into()))
        }
        Event::Flush | Event::Mark(_) => None,
    }
}

/// Names all of an event.
pub(crate) fn whole(event: &Event, arrive: &mut dyn FnMut(usize, &[u8])) {
    if let Some((start, bytes)) = change(event) {
        arrive(start, &bytes);
    }
}

/// Each event arrives, is lost or is torn; the seed also says how much of all arrives, so that
/// states with nearly all and with nearly nothing come up as well.
fn by_lot<'a>(
    pending: impl Iterator<Item = &'a Event>,
    seed: u64,
    arrive: &mut dyn FnMut(usize, &[u8]),
) {
    let mut random = Random::new(seed);
    let whole_of_eight = random.below(9);
    for event in pending {
        if random.below(8) < whole_of_eight {
            whole(event, arrive);
        } else if let Some((start, bytes)) = change(event) {
            tear(start, bytes.len(), &mut random, &mut |part| {
                arrive(part.start, &bytes[part.start - start..part.end - start]);
            });
        }
    }
}

/// Puts bytes into an image; the device may have grown when they were written.
fn put(image: &mut Vec<u8>, start: usize, bytes: &[u8]) {
    let end = start + bytes.len();
    if image.len() < end {
        image.resize(end, 0);
    }
    image[start..end].copy_from_slice(bytes);
}
