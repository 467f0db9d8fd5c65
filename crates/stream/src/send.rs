//! Sending from any store: all of a snapshot, or what differs from an older one.

use crate::reader::is_sent;
use crate::writer::StreamWriter;
use crate::{Error, Progress, StreamTotals, Transfers};
use bytes::Bytes;
use marram_format::pointer::Checksum;
use marram_format::stream::{ResumeToken, StreamBegin, StreamBlock, StreamContent, StreamPut};
use marram_store::{Block, Item, Key, Source, StoredForm, View};
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

/// Blocks that are remembered; what is beyond is sent again with each item.
const SHARED_BLOCKS_MAX: usize = 1 << 20;

/// What is to be sent.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// The snapshot.
    pub snapshot: Source,
    /// An older snapshot of the same home that the receiver has: only what has changed since it is
    /// sent.
    pub base: Option<Source>,
    /// Only what a receiver that was cut has not got is sent.
    pub resume: Option<ResumeToken>,
}

impl SendRequest {
    /// Refuses a token that is about other snapshots than `begin` is.
    ///
    /// # Errors
    /// [`Error::Unfit`].
    pub fn check_token(&self, begin: &StreamBegin) -> Result<(), Error> {
        let fits =
            |token: &ResumeToken| (token.snapshot, token.base) == (begin.snapshot, begin.base);
        match &self.resume {
            Some(token) if !fits(token) => Err(Error::Unfit(format!(
                "the token is about another snapshot than {}, or another one that it goes on from",
                self.snapshot
            ))),
            _ => Ok(()),
        }
    }
}

/// The request that a token stands for.
///
/// # Errors
/// [`Error::Unfit`]: the store has not got the snapshots that it names.
pub fn resumed(home: &dyn Transfers, token: ResumeToken) -> Result<SendRequest, Error> {
    let find = |identity, what: &str| match home.identified(identity, None)? {
        Some(found) => Ok(found),
        None => Err(Error::Unfit(format!("{what} that the token names is not here"))),
    };
    let snapshot = find(token.snapshot, "the snapshot")?;
    let base = token.base.map(|base| find(base, "the snapshot to go on from")).transpose()?;
    Ok(SendRequest { snapshot, base, resume: Some(token) })
}

/// A snapshot that stays while it is sent.
fn opened(home: &dyn Transfers, source: &Source) -> Result<Arc<dyn View>, Error> {
    if source.snapshot.is_none() {
        return Err(Error::Unfit(format!("{source} is no snapshot: take one, and send that")));
    }
    Ok(home.open(source)?)
}

/// Writes a snapshot, or what has changed since an older one, as a stream.
///
/// # Errors
/// No such snapshot, a base that is not older, damage; [`Error::Transfer`] if `out` fails. The
/// stream has no end then, and nobody can take it for whole.
pub fn send(
    home: &dyn Transfers,
    request: &SendRequest,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<StreamTotals, Error> {
    let view = opened(home, &request.snapshot)?;
    let _base_stays = request.base.as_ref().map(|base| opened(home, base)).transpose()?;
    if let Some(base) = &request.base
        && home.report(base)?.number >= home.report(&request.snapshot)?.number
    {
        let (base, snapshot) = (base, &request.snapshot);
        let reason = format!("{base} is not older than {snapshot}: name an older snapshot");
        return Err(Error::Unfit(reason));
    }
    let base = request.base.as_ref().map(|base| home.begin_of(base)).transpose()?;
    let begin = StreamBegin {
        base: base.map(|base| base.snapshot),
        after: request.resume.as_ref().map(|token| token.received.after),
        ..home.begin_of(&request.snapshot)?
    };
    request.check_token(&begin)?;
    let writer = StreamWriter::begin(&begin, out, progress)?;
    let base = request.base.as_ref();
    let mut sender = Sender { home, base, writer, after: begin.after, sent: HashMap::new() };
    sender.items(&request.snapshot, &*view)?;
    for identity in begin.base.iter().chain([&begin.snapshot]) {
        if !home.is_there(*identity)? {
            let snapshot = &request.snapshot;
            let reason = format!("others have destroyed {snapshot}, or its base, meanwhile");
            return Err(Error::Unfit(reason));
        }
    }
    sender.writer.end()
}

/// A stream that is being written.
struct Sender<'s> {
    home: &'s dyn Transfers,
    base: Option<&'s Source>,
    writer: StreamWriter<'s>,
    /// The last item that the receiver has.
    after: Option<Key>,
    /// Blocks that have come with their content, and under which key.
    sent: HashMap<Bytes, Key>,
}

impl Sender<'_> {
    fn items(&mut self, snapshot: &Source, view: &dyn View) -> Result<(), Error> {
        let mut failed = None;
        let home = self.home;
        let walked = match self.base {
            None => view.scan(Key::MIN, Key::MAX, &mut |key, item| {
                failed = self.item(key, None, Some(item)).err();
                failed.is_none()
            }),
            Some(base) => home.changes(base, snapshot, Key::MIN, &mut |change| {
                let (before, after) = (change.before.as_ref(), change.after.as_ref());
                failed = self.item(change.key, before, after).err();
                failed.is_none()
            }),
        };
        match failed {
            Some(error) => Err(error),
            None => Ok(walked?),
        }
    }

    fn item(&mut self, key: Key, before: Option<&Item>, after: Option<&Item>) -> Result<(), Error> {
        if !is_sent(key.kind) {
            return Ok(());
        }
        let block = after.and_then(|item| item.block.as_ref());
        let is_kept = match (before.and_then(|item| item.block.as_ref()), block) {
            (Some(before), Some(block)) => before.same(block),
            _ => false,
        };
        if self.after.is_some_and(|last| key <= last) {
            // The receiver has it, and what comes later may have the same block.
            if let Some(block) = block.filter(|_| !is_kept) {
                self.known(key, block)?;
            }
            return Ok(());
        }
        let Some(item) = after else { return self.writer.remove(key) };
        let (known, form);
        let block = match block {
            None => StreamBlock::None,
            Some(_) if is_kept => StreamBlock::Kept,
            Some(block) => {
                known = self.known(key, block)?;
                match known {
                    Some(Known::OfBase(key)) => StreamBlock::OfBase(key),
                    Some(Known::Sent(key)) => StreamBlock::Earlier(key),
                    None => {
                        form = self.home.stored(block)?;
                        StreamBlock::Content(content(block, &form))
                    }
                }
            }
        };
        self.writer.put(&StreamPut { key, value: &item.value, block })
    }

    /// How a block may be named by the item under `key`, if it is known; else it is from now on.
    fn known(&mut self, key: Key, block: &Block) -> Result<Option<Known>, Error> {
        let Block::Stored(token) = block else { return Ok(None) };
        if let Some(sent) = self.sent.get(&token.place) {
            return Ok(Some(Known::Sent(*sent)));
        }
        if let Some(base) = self.base
            && let Some(holder) = self.home.holder(base, block)?
        {
            return Ok(Some(Known::OfBase(holder)));
        }
        if self.sent.len() < SHARED_BLOCKS_MAX {
            self.sent.insert(token.place.clone(), key);
        }
        Ok(None)
    }
}

/// How a block may be named instead of being sent.
enum Known {
    /// The base has it under this key.
    OfBase(Key),
    /// It has been sent with this key.
    Sent(Key),
}

fn content<'f>(block: &Block, form: &'f StoredForm) -> StreamContent<'f> {
    StreamContent {
        codec: form.codec,
        logical_len: u32::try_from(block.len()).unwrap_or(u32::MAX),
        checksum: Checksum { kind: form.checksum_kind, bytes: form.checksum },
        stored: &form.bytes,
    }
}
