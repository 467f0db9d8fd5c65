//! The images that a trace can leave, each a device of its own that shares what it can.
//!
//! States between the same two flushes share all that was durable before the first of them, so an
//! image costs no more than the pages that were on their way.

use crate::device::{CrashState, Event, Layer, OverlayDevice, Trace, whole};
use std::collections::HashMap;
use std::sync::Arc;

/// Makes the images of one trace.
pub struct Images<'t> {
    base: Arc<[u8]>,
    trace: &'t Trace,
    /// What is durable, by the number of events before the last flush.
    layers: HashMap<usize, Arc<Layer>>,
}

impl<'t> Images<'t> {
    /// Of a trace that began on the device that `base` makes with the pages of `lower`.
    pub fn new(base: &Arc<[u8]>, lower: Arc<Layer>, trace: &'t Trace) -> Images<'t> {
        let device = OverlayDevice::new(Arc::clone(base), Arc::clone(&lower));
        let mut layers = HashMap::from([(0, lower)]);
        for (index, event) in trace.events().iter().enumerate() {
            whole(event, &mut |start, bytes| device.put(start, bytes));
            if *event == Event::Flush {
                layers.insert(index, Arc::new(device.freeze()));
            }
        }
        Images { base: Arc::clone(base), trace, layers }
    }

    /// What a crash left.
    ///
    /// # Panics
    /// If the cut lies behind the last event.
    pub fn image(&self, state: CrashState) -> OverlayDevice {
        let layer = Arc::clone(&self.layers[&self.trace.durable_before(state.cut)]);
        let device = OverlayDevice::new(Arc::clone(&self.base), layer);
        self.trace.arrivals(state, &mut |start, bytes| device.put(start, bytes));
        device
    }
}
