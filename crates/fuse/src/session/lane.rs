//! A lane of either transport, as the threads that serve see it.

use crate::transport::{ClassicTransport, RingLane, Space, Transport};
use rustix::io::Errno;
use std::io::IoSlice;
use std::sync::Arc;

/// Where a thread gets its requests from.
#[derive(Clone)]
pub(super) enum Lane {
    /// `/dev/fuse`.
    Device(Arc<ClassicTransport>),
    /// A ring of its own.
    Ring(Arc<RingLane>),
}

impl Lane {
    /// Whether its thread gets no other request before it has answered the last: then it may as
    /// well wait for the devices.
    pub(super) fn waits_for_answers(&self) -> bool {
        matches!(self, Lane::Ring(_))
    }

    /// Waits for a request where that takes no memory yet; false when there will be none.
    pub(super) fn wait(&self) -> Result<bool, Errno> {
        match self {
            Lane::Device(_) => Ok(true),
            Lane::Ring(lane) => lane.wait(),
        }
    }

    /// Memory that another lane has left, if these lanes share it.
    pub(super) fn take_space(&self) -> Option<Space> {
        match self {
            Lane::Device(_) => None,
            Lane::Ring(lane) => lane.queue.take_space(),
        }
    }

    /// Leaves memory to another lane, or hands it back if these lanes do not share it.
    pub(super) fn give_space(&self, space: Space) -> Option<Space> {
        match self {
            Lane::Device(_) => Some(space),
            Lane::Ring(lane) => {
                lane.queue.give_space(space);
                None
            }
        }
    }

    /// Ends a request that is not answered in the protocol's way.
    pub(super) fn hand_back(&self, errno: Option<Errno>) {
        if let Lane::Ring(lane) = self {
            lane.hand_back(errno);
        }
    }
}

impl Transport for Lane {
    fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        match self {
            Lane::Device(lane) => lane.receive(buffer),
            Lane::Ring(lane) => lane.receive(buffer),
        }
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        match self {
            Lane::Device(lane) => lane.send(parts),
            Lane::Ring(lane) => lane.send(parts),
        }
    }
}
