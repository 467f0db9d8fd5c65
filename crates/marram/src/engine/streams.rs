//! Streams from and to an open pool.

use crate::control::protocol::{Answer, ReceiveOrder, SendOrder, StreamSummary};
use crate::error::{Error, Result};
use marram_pool::{
    Incoming, Pool, ReceiveRequest, Received, SendRequest, StreamReport, StreamTotals,
};
use std::io::{Read, Write};

/// Writes what is asked for to `out`.
///
/// # Errors
/// Whatever refuses it or fails; the stream has no end then.
pub(crate) fn send(pool: &Pool, order: &SendOrder, out: &mut dyn Write) -> Result<Answer> {
    let request = SendRequest {
        snapshot: order.snapshot.parse()?,
        base: order.base.as_ref().map(|base| base.parse()).transpose()?,
    };
    let totals = pool.send(&request, out, &mut |_| {}).map_err(failure)?;
    let summary = summary(order.snapshot.clone(), order.base.clone(), &totals);
    Ok(Answer::Streamed(Box::new(summary)))
}

/// Reads a stream to its end.
///
/// # Errors
/// Whatever is wrong with it, refuses it or fails; then nothing is left of it.
pub(crate) fn take_in<'p>(
    pool: &'p Pool,
    order: &ReceiveOrder,
    input: &mut dyn Read,
) -> Result<Incoming<'p>> {
    let request = ReceiveRequest { dataset: order.dataset.parse()?, force: order.force };
    pool.receive(&request, input, &mut |_| {}).map_err(failure)
}

/// Shows what has been received.
///
/// # Errors
/// As [`take_in`].
pub(crate) fn publish(incoming: Incoming<'_>) -> Result<Received> {
    incoming.publish().map_err(failure)
}

/// What a command says of a stream that has been received.
pub(crate) fn received(received: &Received) -> Answer {
    let base = received.base.as_ref().map(ToString::to_string);
    let mut summary = summary(received.snapshot.to_string(), base, &received.totals);
    summary.kept = received.kept.as_ref().map(ToString::to_string);
    Answer::Streamed(Box::new(summary))
}

/// Whether bytes begin as a stream does.
pub(crate) fn is_stream(bytes: &[u8]) -> bool {
    marram_pool::is_stream(bytes)
}

/// Reads a stream that nobody receives, and verifies all of it.
///
/// # Errors
/// Whatever is wrong with it.
pub(crate) fn verify(input: &mut dyn Read) -> Result<StreamReport> {
    marram_pool::verify_stream(input, &mut |_| {}).map_err(failure)
}

fn summary(snapshot: String, base: Option<String>, totals: &StreamTotals) -> StreamSummary {
    StreamSummary {
        snapshot,
        base,
        kept: None,
        items_put: totals.puts,
        items_removed: totals.removals,
        blocks: totals.blocks,
        content_bytes: totals.stored_bytes,
        stream_bytes: totals.stream_bytes,
    }
}

fn failure(error: marram_pool::Error) -> Error {
    use marram_pool::Error as Pool;
    match error {
        Pool::Store(error) => Error::from(error),
        Pool::Stream(_) => Error::failed(error.to_string())
            .hint("nothing has been changed; send it again, and look at what lies between"),
        other => Error::failed(other.to_string()),
    }
}
