//! Streams, whatever home they come from.

use crate::control::protocol::{Answer, StreamSummary};
use crate::error::{Error, Result};
use marram_stream::{StreamReport, StreamTotals};
use std::io::Read;

/// Bytes that the snapshot of a full stream refers to, if bytes hold all of the stream's first
/// record; of another stream the inner `None`.
pub(crate) fn referenced_bytes(first: &[u8]) -> Option<Option<u64>> {
    let begin = marram_stream::peek_begin(first)?;
    let is_full = begin.base.is_none() && begin.after.is_none();
    Some(is_full.then_some(begin.referenced_bytes))
}

/// Whether bytes begin as a stream does.
pub(crate) fn is_stream(bytes: &[u8]) -> bool {
    marram_stream::is_stream(bytes)
}

/// Reads a stream that nobody receives, and verifies all of it.
///
/// # Errors
/// Whatever is wrong with it.
pub(crate) fn verify(input: &mut dyn Read) -> Result<StreamReport> {
    marram_stream::verify_stream(input, &mut |_| {}).map_err(failure)
}

/// What a command says of a stream.
pub(super) fn streamed(
    snapshot: String,
    (base, kept): (Option<String>, Option<String>),
    totals: &StreamTotals,
) -> Answer {
    Answer::Streamed(Box::new(StreamSummary {
        snapshot,
        base,
        kept,
        items_put: totals.puts,
        items_removed: totals.removals,
        blocks: totals.blocks,
        content_bytes: totals.stored_bytes,
        stream_bytes: totals.stream_bytes,
    }))
}

/// The error for a token that is none.
pub(super) fn no_token(error: impl std::fmt::Display) -> Error {
    Error::usage(format!("this is no token of a stream that was cut: {error}"))
        .hint("`marram receive POOL NAME --token`, where the stream was received, tells it")
}

/// What a command says when a stream fails.
pub(super) fn failure(error: marram_stream::Error) -> Error {
    use marram_stream::Error as Stream;
    match error {
        Stream::Store(error) => Error::from(error),
        Stream::Stream(_) => Error::failed(error.to_string())
            .hint("nothing has been changed; send it again, and look at what lies between"),
        other => Error::failed(other.to_string()),
    }
}
