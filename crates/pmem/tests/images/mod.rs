//! Images in memory, and a clock with the grain of the home.

use marram_pmem::memory::Memory;
use marram_pmem::memory::recorded::{Event, Recorded};
use marram_pmem::{AccessTimes, NewImage, Pmem, PmemOptions, make};
use marram_vfs::{Caller, Clock, Timestamp};
use std::sync::Arc;

/// User 0.
pub(crate) const ROOT_USER: Caller = Caller { uid: 0, gid: 0 };
/// Nanoseconds by which the home cuts the present.
pub(crate) const GRAIN: u32 = 1 << 14;

/// A clock whose moments the home can keep.
pub(crate) struct Cut<C>(pub(crate) Arc<C>);

impl<C: Clock> Clock for Cut<C> {
    fn now(&self) -> Timestamp {
        let now = self.0.now();
        Timestamp { nanoseconds: now.nanoseconds & !(GRAIN - 1), ..now }
    }
}

/// A new image of so many bytes, that takes its times from `clock`.
pub(crate) fn new_image(bytes: usize, clock: &dyn Clock) -> Recorded {
    let medium = Recorded::new(vec![0xa5; bytes]);
    let new = NewImage {
        id: *b"0123456789abcdef",
        label: "test".to_owned(),
        now: clock.now(),
        root_owner: ROOT_USER,
    };
    make(&mut Memory::new(Box::new(medium.clone())), &new).unwrap();
    medium
}

/// Opens an image.
pub(crate) fn open(medium: &Recorded, clock: Arc<dyn Clock>) -> Arc<Pmem> {
    open_with(medium, clock, AccessTimes::Never)
}

/// Opens an image, with access times.
pub(crate) fn open_with(
    medium: &Recorded,
    clock: Arc<dyn Clock>,
    access_times: AccessTimes,
) -> Arc<Pmem> {
    let options = PmemOptions { clock, access_times, ..PmemOptions::default() };
    Arc::new(Pmem::open(Memory::new(Box::new(medium.clone())), options).unwrap())
}

/// Mounts an image that a crash has left, and returns what that has stored.
///
/// # Errors
/// It cannot be mounted, or what is known of it is not what a scan finds.
pub(crate) fn recover(image: &[u8]) -> Result<Vec<Event>, String> {
    let medium = Recorded::new(image.to_vec());
    medium.start();
    let opened = Pmem::open(Memory::new(Box::new(medium.clone())), PmemOptions::default());
    let files = opened.map_err(|error| error.to_string())?;
    files.audit().map_err(|error| error.to_string())?;
    Ok(medium.stop())
}
