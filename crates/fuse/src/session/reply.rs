//! How requests are answered, and bugs in serving one of them reported.

use crate::adapter::Adapter;
use crate::errno::Errno;
use crate::event::Event;
use crate::protocol::{Header, reply_header};
use crate::transport::Transport;
use marram_vfs::Ino;
use std::any::Any;
use std::io::IoSlice;

/// A bug in serving one request must not take the mount from everyone: it is answered and logged.
pub(super) fn report_panic(adapter: &Adapter, header: &Header, panic: &(dyn Any + Send)) {
    let message = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "no message".to_owned(),
    };
    let ino = Ino(header.node);
    (adapter.on_event)(Event::Panicked { opcode: header.opcode, ino, message });
}

/// Sends a reply. A request whose caller is gone by now is not an event; a reply that the kernel
/// does not understand is, and is replaced by an error, so that nobody waits forever. False if the
/// caller has been let go before.
pub(super) fn reply(
    adapter: &Adapter,
    lane: &dyn Transport,
    unique: u64,
    outcome: Result<(), Errno>,
    payload: &[u8],
) -> bool {
    let errno = outcome.err().map_or(0, |errno| errno.0);
    let header = reply_header(unique, errno, payload.len());
    match lane.send(&[IoSlice::new(&header), IoSlice::new(payload)]) {
        Ok(()) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV) => (),
        Err(rustix::io::Errno::CANCELED) => return false,
        Err(error) => {
            let reason = format!("a reply of {} bytes was refused: {error}", payload.len());
            (adapter.on_event)(Event::Disconnected { reason });
            let header = reply_header(unique, Errno::IO.0, 0);
            let _gone = lane.send(&[IoSlice::new(&header)]);
        }
    }
    true
}
