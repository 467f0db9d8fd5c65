//! Streams that the daemon sends and receives. It does not end before it has let go of each: a
//! stream that waits for its other side is given up then.

use super::Daemon;
use crate::control::protocol::{Answer, CompareOrder, ReceiveOrder, SendOrder};
use crate::engine::{history, streams, undo};
use crate::error::{Error, Result};
use marram_pool::Accessed;
use marram_posix::{Touched, TouchedInode};
use marram_store::{DatasetName, Source};
use marram_vfs::Ino;
use parking_lot::{Condvar, Mutex};
use std::io::{BufWriter, Read, Write};

/// Bytes of lines that are handed on at once.
const LINES_BYTES: usize = 256 << 10;

/// How many streams there are.
#[derive(Default)]
pub(super) struct Streams {
    count: Mutex<usize>,
    changed: Condvar,
}

/// A stream, for as long as it is there.
pub(super) struct Held<'s>(&'s Streams);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.0.count.lock() -= 1;
        self.0.changed.notify_all();
    }
}

impl Streams {
    /// Returns when there is none any more. No new one comes, as the mounts are shut.
    pub(super) fn wait_until_none(&self) {
        let mut count = self.count.lock();
        while *count > 0 {
            self.changed.wait(&mut count);
        }
    }
}

impl Daemon {
    pub(super) fn hold_stream(&self) -> Result<Held<'_>> {
        *self.streams.count.lock() += 1;
        // Counted before it is asked: whoever shuts the mounts waits for it from then on.
        let held = Held(&self.streams);
        if self.mounts.is_shut() {
            return Err(Error::in_use("the pool is being closed"));
        }
        Ok(held)
    }

    /// Writes to `out` what differs between two states, a line for each difference.
    ///
    /// # Errors
    /// Whatever refuses it or fails.
    pub(super) fn compare(&self, order: &CompareOrder, out: &mut dyn Write) -> Result<Answer> {
        let _held = self.hold_stream()?;
        let mut lines = BufWriter::with_capacity(LINES_BYTES, out);
        let failed =
            |error: std::io::Error| Error::failed(format!("cannot tell what differs: {error}"));
        history::diff(self.pool.pool(), order, &mut |row| {
            let line = serde_json::to_vec(&row).map_err(|error| failed(error.into()))?;
            lines.write_all(&line).and_then(|()| lines.write_all(b"\n")).map_err(failed)
        })?;
        lines.flush().map_err(failed)?;
        Ok(Answer::Done)
    }

    /// Writes a stream to `out`.
    ///
    /// # Errors
    /// Whatever refuses it or fails.
    pub(super) fn send(&self, order: &SendOrder, out: &mut dyn Write) -> Result<Answer> {
        let _held = self.hold_stream()?;
        let answer = streams::send(self.pool.pool(), order, out);
        let outcome = answer.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned());
        let what =
            order.resume.as_ref().map_or(order.snapshot.as_str(), |_| "the rest of a stream");
        self.log.write(&format!("send {what}: {outcome}"));
        answer
    }

    /// Reads a stream, and has the mounts show what has been received, all at once.
    ///
    /// # Errors
    /// Whatever refuses it or fails; then nothing has changed that anybody sees.
    pub(super) fn receive(&self, order: &ReceiveOrder, input: &mut dyn Read) -> Result<Answer> {
        let _held = self.hold_stream()?;
        let answer = self.receive_seen(order, input);
        let outcome = answer.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned());
        self.log.write(&format!("receive {}: {outcome}", order.dataset));
        answer
    }

    fn receive_seen(&self, order: &ReceiveOrder, input: &mut dyn Read) -> Result<Answer> {
        let pool = &undo::acting_for(self.pool.pool(), &order.author);
        let live = Source::live(order.dataset.parse::<DatasetName>()?);
        self.refuse_held_back(&live)?;
        let incoming = streams::take_in(pool, order, input)?;
        let (files, received) = self.on_whole(&live, |held| {
            let files = held.in_use();
            let mut published = None;
            let publish = || -> Result<()> {
                published = Some(streams::publish(pool, incoming)?);
                Ok(())
            };
            match &files {
                Some(files) => files.roll_back(publish)?,
                None => publish()?,
            }
            let received = published.ok_or_else(|| Error::failed("the stream was not shown"))?;
            Ok((files, received))
        })?;
        let before = received.kept.as_ref().or(received.base.as_ref());
        if let (Some(files), Some(before)) = (&files, before) {
            let touched = marram_posix::touched(pool, before, &received.snapshot);
            match &received.accessed {
                Accessed::Many => self.all_changed(&live, files),
                Accessed::These(inodes) => self.tell_changes(
                    &live,
                    files,
                    touched.map(|touched| with_accessed(touched, inodes)),
                ),
                Accessed::None => self.tell_changes(&live, files, touched),
            }
        }
        self.shelves_changed(std::slice::from_ref(&received.snapshot));
        self.shelves_changed(received.kept.as_slice());
        Ok(streams::received(&received))
    }
}

/// What has changed, and inodes whose access times are as they were.
fn with_accessed(mut touched: Touched, inodes: &[u64]) -> Touched {
    let accessed = |ino: &u64| TouchedInode { ino: Ino(*ino), content: TouchedInode::ATTRIBUTES };
    touched.inodes.extend(inodes.iter().map(accessed));
    touched
}
