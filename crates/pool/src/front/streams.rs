//! Streams through a handle: sent, received, and the parts of them that are kept.

use crate::Error;
use crate::front::Pool;
use crate::send::partial::{self, Partial};
use crate::send::receive::{self, Incoming};
use crate::send::{Progress, ReceiveRequest, SendRequest, StreamTotals, sender};
use marram_format::stream::ResumeToken;
use marram_store::{DatasetName, Source};
use std::io::{Read, Write};

impl Pool {
    /// Writes a snapshot, or what has changed since an older one, as a stream. Both stay for as
    /// long as that takes.
    ///
    /// # Errors
    /// No such snapshot, a base that is not older, damage; [`Error::Transfer`] if `out` fails. The
    /// stream has no end then, and nobody can take it for whole.
    pub fn send(
        &self,
        request: &SendRequest,
        out: &mut dyn Write,
        progress: Progress<'_>,
    ) -> Result<StreamTotals, Error> {
        sender::send(&self.session, request, out, progress)
    }

    /// Reads a stream to its end into a dataset of the pool's own.
    ///
    /// # Errors
    /// [`Error::Stream`] for a stream that is cut, damaged or altered, [`Error::Unfit`] for one
    /// that does not fit what is here, [`Error::Transfer`] if it cannot be read; no space, a failed
    /// device. Then nothing is left of it, unless it is resumable: then [`Pool::partials`] lists
    /// what is kept.
    pub fn receive(
        &self,
        request: &ReceiveRequest,
        input: &mut dyn Read,
        progress: Progress<'_>,
    ) -> Result<Incoming<'_>, Error> {
        receive::receive(&self.session, request, input, progress)
    }

    /// The parts of streams that are kept, or being received so that they can be.
    ///
    /// # Errors
    /// Damage.
    pub fn partials(&self) -> std::result::Result<Vec<Partial>, Error> {
        partial::partials(&self.session)
    }

    /// Drops what has been received of a stream for `dataset`; returns the snapshot that it was a
    /// part of.
    ///
    /// # Errors
    /// There is nothing, or it is being received at this moment.
    pub fn drop_partial(&self, dataset: &DatasetName) -> std::result::Result<Source, Error> {
        partial::drop_partial(&self.session, dataset)
    }

    /// Drops all parts with nothing in them, which a crash at the beginning of a stream has left.
    ///
    /// # Errors
    /// As for [`Pool::commit`].
    pub fn drop_empty_partials(&self) -> std::result::Result<(), Error> {
        partial::drop_empty_partials(&self.session)
    }

    /// The snapshot, and the one that it goes on from, which a token is about.
    ///
    /// # Errors
    /// This pool has not got them.
    pub fn named_by(
        &self,
        token: &ResumeToken,
    ) -> std::result::Result<(Source, Option<Source>), Error> {
        partial::named_by(&self.session, token)
    }
}
