//! Serves a [`marram_vfs::FileSystem`] through FUSE: a small complete layer of our own, from the
//! bytes on `/dev/fuse` to the mount table. It knows no engine.
//!
//! [`mount`] mounts and starts the threads that serve, [`Session`] is the mount while it is
//! served. Below are the protocol (decode and encode, no I/O), the transport (how requests come
//! and replies go), the adapter (requests to calls), and the ways to mount.

mod adapter;
mod errno;
mod error;
mod event;
mod file_calls;
mod mount;
mod options;
mod peer;
pub mod protocol;
mod session;
mod transport;

pub use error::MountError;
pub use event::{Event, EventSink};
pub use file_calls::{FileCallError, change_range, extents, share_range, usage};
pub use mount::{
    MountEntry, Separation, Unmount, clear_dead_mount, is_dead_mount, mounts, separate_mounts,
    unmount,
};
pub use options::{AccessTimes, MountOptions, Offer, SyncedCloses, TransportChoice};
pub use peer::{PeerIdentity, peer_identity};
pub use session::{
    Reenactment, Reenactor, Session, SessionHandle, Shown, TransportInUse, can_be_wakeful, mount,
    should_be_wakeful,
};
pub use transport::{ClassicTransport, Transport};
