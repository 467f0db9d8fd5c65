//! The threads that serve.

use super::handshake::request_buffer_bytes;
use super::sync_lane::{SyncLane, Waiting};
use crate::adapter::{Adapter, Answer, SyncJob};
use crate::errno::Errno;
use crate::event::Event;
use crate::protocol::{Header, Request, parse, reply_header};
use crate::transport::{ClassicTransport, Transport};
use marram_vfs::Ino;
use std::any::Any;
use std::io::IoSlice;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::Scope;

/// Serves one lane until the mount has ended.
pub(super) fn work<'scope, 'env>(
    adapter: &'scope Adapter,
    lane: Arc<ClassicTransport>,
    syncs: &'scope SyncLane,
    scope: &'scope Scope<'scope, 'env>,
) {
    let mut buffer = vec![0; request_buffer_bytes(adapter.transfer_bytes_max)];
    let mut out = Vec::new();
    loop {
        let request = match lane.receive(&mut buffer) {
            Ok(Some(len)) => parse(&buffer[..len]),
            Ok(None) => return,
            Err(error) => {
                (adapter.on_event)(Event::Disconnected { reason: error.to_string() });
                return;
            }
        };
        match request {
            Ok(request) => match SyncJob::of(&request) {
                Some(job) => {
                    let waiting = Waiting { header: request.header, job, lane: lane.clone() };
                    syncs.submit(adapter, scope, waiting);
                }
                None => serve(adapter, &*lane, &request, &mut out),
            },
            Err((header, reason)) => {
                (adapter.on_event)(Event::Malformed { reason });
                if let Some(header) = header {
                    reply(adapter, &*lane, header.unique, Err(Errno::IO), &[]);
                }
            }
        }
    }
}

fn serve(adapter: &Adapter, lane: &dyn Transport, request: &Request<'_>, out: &mut Vec<u8>) {
    let served = catch_unwind(AssertUnwindSafe(|| adapter.serve(request, out)));
    let answer = served.unwrap_or_else(|panic| {
        out.clear();
        report_panic(adapter, &request.header, &*panic);
        Answer::Reply(Err(Errno::IO))
    });
    if let Answer::Reply(outcome) = answer {
        reply(adapter, lane, request.header.unique, outcome, out);
    }
}

/// Serves a request that waits for the devices.
pub(super) fn serve_sync(adapter: &Adapter, waiting: &Waiting) {
    let header = &waiting.header;
    let served = catch_unwind(AssertUnwindSafe(|| adapter.sync(header, waiting.job)));
    let outcome = served.unwrap_or_else(|panic| {
        report_panic(adapter, header, &*panic);
        Err(Errno::IO)
    });
    reply(adapter, &*waiting.lane, header.unique, outcome, &[]);
}

/// A bug in serving one request must not take the mount from everyone: it is told and logged.
fn report_panic(adapter: &Adapter, header: &Header, panic: &(dyn Any + Send)) {
    let message = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "no message".to_owned(),
    };
    let ino = Ino(header.node);
    (adapter.on_event)(Event::Panicked { opcode: header.opcode, ino, message });
}

/// Sends a reply. A request whose caller is gone by now is not an event; a reply that the kernel
/// does not understand is, and is replaced by an error, so that nobody waits forever.
fn reply(
    adapter: &Adapter,
    lane: &dyn Transport,
    unique: u64,
    outcome: Result<(), Errno>,
    payload: &[u8],
) {
    let errno = outcome.err().map_or(0, |errno| errno.0);
    let header = reply_header(unique, errno, payload.len());
    match lane.send(&[IoSlice::new(&header), IoSlice::new(payload)]) {
        Ok(()) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV) => (),
        Err(error) => {
            let reason = format!("a reply of {} bytes was refused: {error}", payload.len());
            (adapter.on_event)(Event::Disconnected { reason });
            let header = reply_header(unique, Errno::IO.0, 0);
            let _gone = lane.send(&[IoSlice::new(&header)]);
        }
    }
}
