//! What was done to a device, in order, and the images that can be made of it.

use std::sync::Arc;

use marram_device::DISCARDED_BYTE;

use super::crash::{CrashState, Fate};
use super::fault::arrive_torn;
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
    pub(crate) fn new(base: Vec<u8>) -> Trace {
        Trace { base: base.into(), events: Vec::new() }
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.events.push(event);
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
            arrive_whole(&mut image, event);
        }
        let pending = self.pending(state.cut);
        match state.fate {
            Fate::All => pending.for_each(|event| arrive_whole(&mut image, event)),
            Fate::Durable => {}
            Fate::Subset(mask) => pending
                .enumerate()
                .filter(|(index, _)| mask.checked_shr(*index as u32).unwrap_or(0) & 1 == 1)
                .for_each(|(_, event)| arrive_whole(&mut image, event)),
            Fate::Seeded(seed) => arrive_by_lot(&mut image, pending, seed),
        }
        image
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

    fn durable_before(&self, cut: usize) -> usize {
        let mut flushes = self.events[..cut].iter();
        flushes.rposition(|event| *event == Event::Flush).unwrap_or(0)
    }

    fn pending(&self, cut: usize) -> impl Iterator<Item = &Event> {
        self.events[self.durable_before(cut)..cut]
            .iter()
            .filter(|event| matches!(event, Event::Write { .. } | Event::Discard { .. }))
    }
}

/// The place and the new bytes of an event that changes the image.
fn change(event: &Event) -> Option<(usize, Arc<[u8]>)> {
    let index = |at: u64| usize::try_from(at).expect("the image is in memory");
    match event {
        Event::Write { offset, bytes } => Some((index(*offset), bytes.clone())),
        Event::Discard { offset, len } => {
            Some((index(*offset), vec![DISCARDED_BYTE; index(*len)].into()))
        }
        Event::Flush | Event::Mark(_) => None,
    }
}

fn arrive_whole(image: &mut Vec<u8>, event: &Event) {
    if let Some((start, bytes)) = change(event) {
        make_room(image, start + bytes.len());
        image[start..start + bytes.len()].copy_from_slice(&bytes);
    }
}

/// Each event arrives, is lost or is torn; the seed also says how much of all arrives, so that
/// states with nearly all and with nearly nothing come up as well.
fn arrive_by_lot<'a>(image: &mut Vec<u8>, pending: impl Iterator<Item = &'a Event>, seed: u64) {
    let mut random = Random::new(seed);
    let whole_of_eight = random.below(9);
    for event in pending {
        if random.below(8) < whole_of_eight {
            arrive_whole(image, event);
        } else if let Some((start, bytes)) = change(event) {
            make_room(image, start + bytes.len());
            arrive_torn(image, start, &bytes, &mut random);
        }
    }
}

/// The device had grown when this was written.
fn make_room(image: &mut Vec<u8>, end: usize) {
    if image.len() < end {
        image.resize(end, 0);
    }
}
