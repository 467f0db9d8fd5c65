//! Streams from and to an open pool.

use crate::control::protocol::{Answer, PartialRow, ReceiveOrder, SendOrder};
use crate::engine::streams;
use crate::error::{Error, Result};
use crate::output::size_text;
use marram_pool::{
    Incoming, Partial, Pool, ReadAt, ReceiveRequest, Received, ResumeToken, SendRequest,
    StreamFile, StreamImage,
};
use marram_store::{DatasetName, Source};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Writes what is asked for to `out`.
///
/// # Errors
/// Whatever refuses it or fails; the stream has no end then.
pub(super) fn send(pool: &Pool, order: &SendOrder, out: &mut dyn Write) -> Result<Answer> {
    let request = request(pool, order)?;
    let totals = pool.send(&request, out, &mut |_| {}).map_err(failure)?;
    let base = request.base.as_ref().map(ToString::to_string);
    Ok(streams::streamed(request.snapshot.to_string(), (base, None), &totals))
}

fn request(pool: &Pool, order: &SendOrder) -> Result<SendRequest> {
    let Some(text) = &order.resume else {
        return Ok(SendRequest {
            snapshot: order.snapshot.parse()?,
            base: order.base.as_ref().map(|base| base.parse()).transpose()?,
            resume: None,
        });
    };
    let token = ResumeToken::parse(text).map_err(streams::no_token)?;
    let (snapshot, base) = pool.named_by(&token).map_err(failure)?;
    Ok(SendRequest { snapshot, base, resume: Some(token) })
}

/// Reads a stream to its end.
///
/// # Errors
/// Whatever is wrong with it, refuses it or fails; then nothing is left of it, or the error names
/// what is kept.
pub(super) fn take_in<'p>(
    pool: &'p Pool,
    order: &ReceiveOrder,
    input: &mut dyn Read,
) -> Result<Incoming<'p>> {
    let dataset: DatasetName = order.dataset.parse()?;
    let (force, resumable) = (order.force, order.resumable);
    let request = ReceiveRequest { dataset: dataset.clone(), force, resumable };
    let taken = pool.receive(&request, input, &mut |_| {});
    taken.map_err(|error| tell_what_is_kept(pool, &dataset, failure(error)))
}

/// Shows what has been received.
///
/// # Errors
/// As [`take_in`].
pub(super) fn publish(pool: &Pool, incoming: Incoming<'_>) -> Result<Received> {
    let dataset = incoming.snapshot().dataset.clone();
    let published = incoming.publish();
    published.map_err(|error| tell_what_is_kept(pool, &dataset, failure(error)))
}

/// Reads a stream into a pool that nobody has mounted, and shows it.
///
/// # Errors
/// As [`take_in`].
pub(super) fn receive(pool: &Pool, order: &ReceiveOrder, input: &mut dyn Read) -> Result<Answer> {
    take_in(pool, order, input).and_then(|incoming| publish(pool, incoming)).map(|it| received(&it))
}

/// Adds to an error how the stream can go on, if it can.
fn tell_what_is_kept(pool: &Pool, dataset: &DatasetName, error: Error) -> Error {
    let rows = partials(pool).unwrap_or_default();
    let is_it = |row: &&PartialRow| {
        row.snapshot.parse().is_ok_and(|snapshot: Source| snapshot.dataset == *dataset)
    };
    let Some(row) = rows.iter().find(is_it).filter(|row| !row.running) else { return error };
    let Some(token) = &row.token else { return error };
    let mut error = error.hint(format!(
        "send the rest with `marram send POOL --resume {token}`, or drop it with `marram receive \
         POOL {dataset} --abort`"
    ));
    let bytes = size_text(row.content_bytes, false);
    let kept = format!("; kept of {}: {} items, {bytes}", row.snapshot, row.items);
    error.message.push_str(&kept);
    error
}

/// What is kept of streams that were cut, or is being received so that it can be.
///
/// # Errors
/// Damage.
pub(super) fn partials(pool: &Pool) -> Result<Vec<PartialRow>> {
    let row = |partial: Partial| {
        let received = partial.received;
        PartialRow {
            name: partial.hidden.to_string(),
            snapshot: partial.snapshot.to_string(),
            incremental: partial.base_id.is_some(),
            running: partial.is_running,
            items: received.map_or(0, |received| received.puts + received.removals),
            content_bytes: received.map_or(0, |received| received.stored_bytes),
            created_seconds: partial.created_seconds,
            token: partial.token().map(|token| token.text()),
        }
    };
    Ok(pool.partials().map_err(failure)?.into_iter().map(row).collect())
}

/// Drops what is kept of a stream.
///
/// # Errors
/// There is nothing, or it is being received.
pub(super) fn drop_partial(pool: &Pool, dataset: &str) -> Result<()> {
    pool.drop_partial(&dataset.parse()?).map_err(failure)?;
    Ok(())
}

/// What a command says of a stream that has been received.
pub(super) fn received(received: &Received) -> Answer {
    let text = |source: &Option<Source>| source.as_ref().map(ToString::to_string);
    let names = (text(&received.base), text(&received.kept));
    streams::streamed(received.snapshot.to_string(), names, &received.totals)
}

/// A file that the engine may read.
struct Lent(File);

impl ReadAt for Lent {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.0.read_at(bytes, offset)
    }
}

/// Verifies streams in files, the first a full one and each other one going on from the one before,
/// and makes a snapshot of them that can be read.
///
/// # Errors
/// Whatever is wrong with one, or does not fit.
pub(super) fn open_image(paths: &[PathBuf]) -> Result<StreamImage> {
    let mut files = Vec::new();
    for path in paths {
        let file = File::open(path).map_err(|error| Error::system("open", path, error))?;
        files.push(StreamFile { name: path.display().to_string(), file: Box::new(Lent(file)) });
    }
    StreamImage::open(files, &mut |_| {}).map_err(|error| match error {
        // Nothing was to be changed here.
        marram_pool::Error::Stream(_) => Error::failed(error.to_string()),
        other => failure(other),
    })
}

fn failure(error: marram_pool::Error) -> Error {
    use marram_pool::Error as Pool;
    match error {
        Pool::Store(error) => Error::from(error),
        Pool::Stream(reason) => streams::failure(marram_stream::Error::Stream(reason)),
        other => Error::failed(other.to_string()),
    }
}
