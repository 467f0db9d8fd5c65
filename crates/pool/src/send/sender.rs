//! Sending: what differs between two snapshots, or all of one, as a stream.

use super::shared::{Known, Roots, SharedBlocks, is_kept};
use super::{Progress, SendRequest, StreamTotals, identity_of, sent_properties};
use crate::Error;
use crate::base::pointers::decode_pointer;
use crate::io::At;
use crate::memtable::dataset::Opened;
use crate::snapshots::session::Session;
use crate::state::State;
use crate::state::records::root_object;
use crate::tree::{self, Differing, Found};
use bytes::Bytes;
use marram_format::dataset::DatasetRecord;
use marram_format::key::Key;
use marram_format::pointer::{Checksum, GRAIN_BYTES, Place, Pointer};
use marram_format::stream::{StreamBegin, StreamBlock, StreamContent, StreamPut};
use marram_store::Source;
use marram_stream::reader::is_sent;
use marram_stream::writer::StreamWriter;
use std::io::Write;

/// A snapshot that stays while it is sent.
struct Sent {
    record: std::sync::Arc<DatasetRecord>,
    root: Option<Bytes>,
    _open: Opened,
}

impl Sent {
    fn open(pool: &State, source: &Source) -> Result<Sent, Error> {
        if source.snapshot.is_none() {
            let reason = format!("{source} is no snapshot: take one, and send that");
            return Err(Error::Unfit(reason));
        }
        let open = pool.open(source)?;
        let record = pool.find(source)?;
        let root = record.root.as_ref().map(Pointer::encode);
        Ok(Sent { record, root, _open: open })
    }
}

/// A stream that is being written.
struct Sender<'s> {
    at: At<'s>,
    shared: SharedBlocks,
    writer: StreamWriter<'s>,
}

impl Sender<'_> {
    /// Remembers with which items blocks were sent that may come again, as the stream that was cut
    /// has sent them. Reads nodes, no blocks.
    fn recall(&mut self, roots: &Roots<'_>, after: Key) -> Result<(), Error> {
        let at = At { media: self.at.media, epoch: self.at.epoch };
        let (mut failed, shared) = (None, &mut self.shared);
        let trees = (roots.base, roots.snapshot);
        tree::changes(&at, trees, Key::MIN, &mut |differing| {
            let kept = is_kept(&differing);
            let Some(item) = differing.after.filter(|item| item.key <= after) else {
                return differing.before.is_some_and(|before| before.key <= after);
            };
            if let Some(pointer) = item.pointer.filter(|_| !kept && is_sent(item.key.kind)) {
                match decode_pointer(&pointer) {
                    Ok(pointer) => {
                        let address = pointer.address();
                        let _known = address.map(|address| shared.look_up(address, item.key));
                    }
                    Err(error) => failed = Some(error),
                }
            }
            failed.is_none()
        })?;
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn items(&mut self, roots: &Roots<'_>, from: Key) -> Result<(), Error> {
        let mut failed = None;
        let at = At { media: self.at.media, epoch: self.at.epoch };
        let walked = tree::changes(&at, (roots.base, roots.snapshot), from, &mut |differing| {
            failed = self.item(&differing).err();
            failed.is_none()
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(walked?),
        }
    }

    fn item(&mut self, differing: &Differing) -> Result<(), Error> {
        let found = differing.after.as_ref().or(differing.before.as_ref());
        let Some(key) = found.map(|found| found.key).filter(|key| is_sent(key.kind)) else {
            return Ok(());
        };
        match &differing.after {
            Some(after) => self.put(after, is_kept(differing)),
            None => Ok(self.writer.remove(key)?),
        }
    }

    fn put(&mut self, item: &Found, is_kept: bool) -> Result<(), Error> {
        let pointer = item.pointer.as_ref().map(|pointer| decode_pointer(pointer)).transpose()?;
        let stored;
        let (mut content, mut block) = (None, StreamBlock::None);
        if let Some(pointer) = pointer {
            let known = match pointer.address() {
                Some(address) if !is_kept => self.shared.look_up(address, item.key),
                _ => None,
            };
            match known {
                _ if is_kept => block = StreamBlock::Kept,
                Some(Known::OfBase(key)) => block = StreamBlock::OfBase(key),
                Some(Known::Sent(key)) => block = StreamBlock::Earlier(key),
                None => content = Some(pointer),
            }
        }
        if let Some(pointer) = content {
            stored = self.at.media.stored(&pointer, self.at.epoch)?;
            block = content_of(&pointer, &stored);
        }
        Ok(self.writer.put(&StreamPut { key: item.key, value: &item.value, block })?)
    }
}

/// The content of a block as a record has it.
fn content_of<'s>(pointer: &Pointer, stored: &'s [u8]) -> StreamBlock<'s> {
    let checksum = match &pointer.place {
        Place::Embedded(_) => Checksum::NONE,
        Place::Stored { checksum, .. } => *checksum,
    };
    let (codec, logical_len) = (pointer.codec, pointer.logical_len);
    StreamBlock::Content(StreamContent { codec, logical_len, checksum, stored })
}

/// See `Pool::send`.
pub(crate) fn send(
    session: &Session,
    request: &SendRequest,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<StreamTotals, Error> {
    let snapshot = Sent::open(&session.state, &request.snapshot)?;
    let base = request.base.as_ref().map(|base| Sent::open(&session.state, base)).transpose()?;
    if let Some(base) = &base
        && base.record.created_group >= snapshot.record.created_group
    {
        let (base, snapshot) = (&base.record.name, &snapshot.record.name);
        let reason = format!("{base} is not older than {snapshot}: name an older snapshot");
        return Err(Error::Unfit(reason));
    }
    let begin = begin(session, &snapshot, base.as_ref(), request);
    request.check_token(&begin)?;
    let roots = Roots {
        base: base.as_ref().and_then(|base| base.root.as_ref()),
        snapshot: snapshot.root.as_ref(),
        base_group: base.as_ref().map_or_else(Default::default, |it| it.record.created_group),
    };
    let media = &session.state.media;
    let at = At { media, epoch: media.epoch() };
    let shared = SharedBlocks::find(&at, &roots)?;
    let mut sender = Sender { at, shared, writer: StreamWriter::begin(&begin, out, progress)? };
    let from = match begin.after {
        Some(after) => {
            sender.recall(&roots, after)?;
            after.successor()
        }
        None => Some(Key::MIN),
    };
    if let Some(from) = from {
        sender.items(&roots, from)?;
    }
    Ok(sender.writer.end()?)
}

fn begin(
    session: &Session,
    snapshot: &Sent,
    base: Option<&Sent>,
    request: &SendRequest,
) -> StreamBegin {
    let record = &snapshot.record;
    let dataset = session.state.records.read().get(record.parent).cloned();
    StreamBegin {
        snapshot: identity_of(record),
        base: base.map(|base| identity_of(&base.record)),
        dataset_id: dataset.map_or(record.id128, |dataset| dataset.id128),
        pool_id: session.state.superblock.lock().pool_id,
        root_object: root_object(record),
        referenced_bytes: record.referenced_grains * GRAIN_BYTES,
        dataset_name: request.snapshot.dataset.to_string(),
        snapshot_name: request.snapshot.snapshot.clone().unwrap_or_default(),
        properties: sent_properties(record),
        after: request.resume.as_ref().map(|token| token.received.after),
    }
}
