//! Streams from and to an open cluster home.

use super::attended::attended;
use super::home::ClusterHome;
use super::open;
use crate::control::protocol::{Answer, ReceiveOrder, SendOrder};
use crate::engine::change_sets;
use crate::engine::changes::{ChangedInode, Changes};
use crate::engine::mounted::Shown;
use crate::engine::streams::{failure, no_token, streamed};
use crate::error::{Error, Result};
use marram_cluster::Cluster;
use marram_posix::Posix;
use marram_store::{DatasetName, Source, Store};
use marram_stream::receive::receive as read_all;
use marram_stream::send::{resumed, send as write_all};
use marram_stream::{Incoming, ReceiveRequest, Received, ResumeToken, SendRequest, Since};
use std::io::{Read, Write};
use std::path::Path;

/// Memory for contents of blocks of a home that is opened to send, in bytes.
const CACHE_BYTES: u64 = 8 << 20;

/// Writes what is asked for to `out`.
///
/// # Errors
/// Whatever refuses it or fails; the stream has no end then.
pub(super) fn send(store: &Cluster, order: &SendOrder, out: &mut dyn Write) -> Result<Answer> {
    let request = match &order.resume {
        Some(text) => {
            resumed(store, ResumeToken::parse(text).map_err(no_token)?).map_err(failure)?
        }
        None => SendRequest {
            snapshot: order.snapshot.parse()?,
            base: order.base.as_ref().map(|base| base.parse()).transpose()?,
            resume: None,
        },
    };
    let totals = write_all(store, &request, out, &mut |_| {}).map_err(failure)?;
    let base = request.base.as_ref().map(ToString::to_string);
    Ok(streamed(request.snapshot.to_string(), (base, None), &totals))
}

/// Reads a stream to its end.
fn take_in<'h>(
    home: &'h ClusterHome,
    order: &ReceiveOrder,
    input: &mut dyn Read,
) -> Result<Incoming<'h>> {
    let dataset: DatasetName = order.dataset.parse()?;
    refuse_shared(home, &dataset)?;
    let (force, resumable) = (order.force, order.resumable);
    let request = ReceiveRequest { dataset, force, resumable };
    let incoming = read_all(home.store(), &request, input, &mut |_| {}).map_err(failure)?;
    // Others may have come while it was read.
    refuse_shared(home, &request.dataset)?;
    Ok(incoming)
}

/// Refuses to show a stream in a dataset that is there while others may write to it.
fn refuse_shared(home: &ClusterHome, dataset: &DatasetName) -> Result<()> {
    let is_there = home.store().report(&Source::live(dataset.clone())).is_ok();
    match is_there && home.store().has_company() {
        false => Ok(()),
        true => Err(Error::in_use(
            "other daemons have the home open: a dataset that is there receives nothing then",
        )
        .hint("`marram clients` lists them; receive it when they have unmounted the home")),
    }
}

/// The same for a home that is open for reading only, as a client of its own: what is sent stays
/// for as long as that takes, whatever others destroy.
///
/// # Errors
/// As [`send`]; the home cannot be opened.
pub(super) fn send_beside(path: &Path, order: &SendOrder, out: &mut dyn Write) -> Result<Answer> {
    let store = open::beside(path, CACHE_BYTES)?;
    let sent = attended(&store, || send(&store, order, out));
    store.close()?;
    sent
}

/// Destroys what a crash has left of streams that came in.
pub(super) fn destroy_leftovers(store: &dyn Store) -> marram_store::Result<()> {
    let all = store.list()?.into_iter().map(|report| report.source);
    let mut left = all.filter(|it| it.snapshot.is_none() && it.dataset.is_receiving());
    left.try_for_each(|source| store.destroy(&source, false).map(|_| ()))
}

/// Reads a stream into a home that nobody has mounted, and shows it.
///
/// # Errors
/// Whatever refuses it or fails; then nothing is left of it.
pub(super) fn receive(
    home: &ClusterHome,
    order: &ReceiveOrder,
    input: &mut dyn Read,
) -> Result<Answer> {
    attended(home.store(), || {
        let received = take_in(home, order, input)?.publish().map_err(failure)?;
        Ok(answer(&received))
    })
}

/// Reads a stream, and has the mounts show what has been received, all at once.
///
/// # Errors
/// Whatever refuses it or fails; then nothing has changed that anybody sees.
pub(super) fn receive_shown(
    home: &ClusterHome,
    shown: &Shown<'_>,
    order: &ReceiveOrder,
    input: &mut dyn Read,
) -> Result<Answer> {
    let live = Source::live(order.dataset.parse::<DatasetName>()?);
    shown.mounts.refuse_held_back(&live)?;
    let incoming = take_in(home, order, input)?;
    let (files, received) = shown.on_whole(&live, |whole| {
        let files = whole.in_use.clone();
        let mut published = None;
        let publish = || -> Result<()> {
            published = Some(incoming.publish().map_err(failure)?);
            Ok(())
        };
        match &files {
            Some(files) => files.roll_back(publish)?,
            None => publish()?,
        }
        let received = published.ok_or_else(|| Error::failed("the stream was not shown"))?;
        Ok((files, received))
    })?;
    if let Some(files) = &files {
        tell(shown, &live, files, &received);
    }
    shown.mounts.members_changed(std::slice::from_ref(&received.snapshot));
    shown.mounts.members_changed(received.kept.as_slice());
    shown.mounts.all_members_changed();
    Ok(answer(&received))
}

/// Has the kernel ask anew for what a stream has changed in a file system that is in use.
fn tell(shown: &Shown<'_>, live: &Source, files: &Posix, received: &Received) {
    let Some(before) = received.kept.as_ref().or(received.base.as_ref()) else { return };
    let accessed = match received.since {
        Since::Accessed => files.known(),
        Since::Nothing | Since::Changed => Vec::new(),
    };
    let changes = change_sets::between(shown.store, before, &received.snapshot);
    let changes = changes.map(|mut found: Changes| {
        let accessed = accessed.into_iter();
        let told = accessed.map(|ino| ChangedInode { ino, content: ChangedInode::ATTRIBUTES });
        found.inodes.extend(told);
        found
    });
    shown.tell_changes(live, files, changes);
}

fn answer(received: &Received) -> Answer {
    let text = |source: &Option<Source>| source.as_ref().map(ToString::to_string);
    let names = (text(&received.base), text(&received.kept));
    streamed(received.snapshot.to_string(), names, &received.totals)
}
