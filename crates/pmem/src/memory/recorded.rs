//! A medium that keeps every store, flush and fence: for tests that look at what lies between.

use super::{Medium, Unordered, WriteBack};
use marram_vfs::{Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;

/// Why a store was refused.
const REFUSED: &str = "the medium takes no more stores";

/// What happened to a medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A store that is atomic.
    Store {
        /// Where.
        at: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// A fill, which is not.
    Fill {
        /// Where.
        at: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// Lines written back.
    Flush {
        /// The first byte.
        at: u64,
        /// How many.
        bytes: u64,
    },
    /// A wait for what was written back.
    Fence,
    /// All pages were written back, where that happens in any order.
    WriteBack,
}

#[derive(Debug, Default)]
struct Kept {
    image: Vec<u8>,
    events: Vec<Event>,
    is_recording: bool,
    /// Stores until they are refused.
    stores_left: Option<u64>,
    has_failed: bool,
    /// The run of the machine, if pages are written back in any order.
    host: Option<u64>,
    /// Nothing can be written back any more.
    loses: bool,
    /// Operations leave their last fence out.
    is_epoch: bool,
}

/// An image in the memory of the process, shared by its handles.
#[derive(Clone, Debug, Default)]
pub struct Recorded(Arc<Mutex<Kept>>);

impl Recorded {
    /// A medium that holds `image`.
    pub fn new(image: Vec<u8>) -> Recorded {
        Recorded(Arc::new(Mutex::new(Kept { image, ..Kept::default() })))
    }

    /// The image as it is, with all stores.
    pub fn image(&self) -> Vec<u8> {
        self.0.lock().image.clone()
    }

    /// Records from now on.
    pub fn start(&self) {
        let mut kept = self.0.lock();
        kept.events.clear();
        kept.is_recording = true;
    }

    /// What was recorded since the start, which ends it.
    pub fn stop(&self) -> Vec<Event> {
        let mut kept = self.0.lock();
        kept.is_recording = false;
        std::mem::take(&mut kept.events)
    }

    /// The same, as a medium whose pages are written back in any order, in a run of the machine.
    pub fn unordered(image: Vec<u8>, host: u64) -> Recorded {
        Recorded(Arc::new(Mutex::new(Kept { image, host: Some(host), ..Kept::default() })))
    }

    /// The same, whose operations leave their last fence out.
    pub fn epoch(image: Vec<u8>) -> Recorded {
        Recorded(Arc::new(Mutex::new(Kept { image, is_epoch: true, ..Kept::default() })))
    }

    /// Refuses to write anything back from now on.
    pub fn fail_write_back(&self) {
        self.0.lock().loses = true;
    }

    /// Refuses all stores after `count` more of them.
    pub fn fail_after(&self, count: u64) {
        self.0.lock().stores_left = Some(count);
    }

    fn put(&mut self, at: u64, bytes: &[u8], event: fn(u64, Vec<u8>) -> Event) -> Result<()> {
        let mut kept = self.0.lock();
        match kept.stores_left {
            Some(0) => {
                kept.has_failed = true;
                return Err(Error::Io(REFUSED.to_owned()));
            }
            Some(left) => kept.stores_left = Some(left - 1),
            None => {}
        }
        let start = at as usize;
        kept.image[start..start + bytes.len()].copy_from_slice(bytes);
        if kept.is_recording {
            kept.events.push(event(at, bytes.to_vec()));
        }
        Ok(())
    }
}

impl WriteBack for Recorded {
    fn write_back(&self) -> Result<()> {
        let mut kept = self.0.lock();
        if kept.is_recording && !kept.loses {
            kept.events.push(Event::WriteBack);
        }
        match kept.loses {
            true => Err(Error::Io(REFUSED.to_owned())),
            false => Ok(()),
        }
    }
}

impl Medium for Recorded {
    fn bytes(&self) -> u64 {
        self.0.lock().image.len() as u64
    }

    fn reader(&self) -> Box<dyn Medium> {
        Box::new(self.clone())
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        let kept = self.0.lock();
        let start = at as usize;
        out.copy_from_slice(&kept.image[start..start + out.len()]);
        Ok(())
    }

    fn store(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.put(at, bytes, |at, bytes| Event::Store { at, bytes })
    }

    fn fill(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.put(at, bytes, |at, bytes| Event::Fill { at, bytes })
    }

    fn unordered(&self) -> Option<Unordered> {
        let host = self.0.lock().host?;
        Some(Unordered { host, write_back: Arc::new(self.clone()) })
    }

    fn is_epoch(&self) -> bool {
        self.0.lock().is_epoch
    }

    fn failure(&self) -> Option<String> {
        self.0.lock().has_failed.then(|| REFUSED.to_owned())
    }

    fn flush(&mut self, at: u64, bytes: u64) {
        let mut kept = self.0.lock();
        if kept.is_recording {
            kept.events.push(Event::Flush { at, bytes });
        }
    }

    fn fence(&mut self) {
        let mut kept = self.0.lock();
        if kept.is_recording {
            kept.events.push(Event::Fence);
        }
    }
}
