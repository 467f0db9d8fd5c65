//! Publications: blocks first, then the entry, then the rows.

use super::taking::write_following;
use super::{Publisher, Shared, State};
use crate::blocks::Upload;
use crate::catalogue::Catalogue;
use crate::database::{Change, Table};
use crate::draft::{Draft, Drafted};
use crate::follow;
use crate::format::{ENTRY_BYTES_MAX, Edit, Entry, Presence, Section, Stance, keys};
use crate::known::Known;
use crate::pending::{Items, Pending};
use crate::view::counters;
use marram_store::{Batch, Edit as BatchEdit, Error, Result};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often a publication is tried anew while others publish.
const TRIES_MAX: usize = 10_000;

/// What an entry does beside the items that wait.
pub(crate) type Plan<'p, T> = &'p mut dyn FnMut(&mut Draft) -> Result<T>;

/// An entry that can be put into the log.
struct Prepared<'p> {
    entry: &'p Entry,
    catalogue: Catalogue,
    uploads: Vec<Upload>,
}

/// Gives what an entry says of a client, when it is put; refuses what makes no sense then.
pub(crate) type Say<'p> = &'p dyn Fn(&State) -> Result<Presence>;

impl Shared {
    /// Publishes all that waits, together with what `plan` does: all of it, or nothing.
    pub(crate) fn publish<T>(&self, plan: Plan<'_, T>) -> Result<T> {
        self.publish_with(None, &Pending::default(), plan)
    }

    /// Publishes all that waits, with items beside it that nobody sees before, and what `plan`
    /// does: all of it, or nothing.
    ///
    /// # Errors
    /// [`Error::InUse`] if something waits for a dataset of these items.
    pub(crate) fn publish_items<T>(&self, items: &Pending, plan: Plan<'_, T>) -> Result<T> {
        self.publish_with(None, items, plan)
    }

    /// Publishes all that waits, with a client that comes or goes.
    pub(crate) fn say(&self, say: Say<'_>) -> Result<()> {
        self.publish_with(Some(say), &Pending::default(), &mut |_| Ok(()))
    }

    pub(super) fn publish_with<T>(
        &self,
        say: Option<Say<'_>>,
        items: &Pending,
        plan: Plan<'_, T>,
    ) -> Result<T> {
        if self.read_only {
            return Err(Error::ReadOnly("it is open for reading only".to_owned()));
        }
        let mut publisher = match say {
            Some(_) => self.publisher.lock(),
            None => self.publisher_awake()?,
        };
        self.share_waiting(&mut publisher);
        for _ in 0..TRIES_MAX {
            let said = say.map(|say| say(&self.state.read())).transpose();
            let known = publisher.number;
            match said.and_then(|it| self.try_publish(&mut publisher, it, items, plan)) {
                Err(Error::Overtaken) => self.take_in(&mut publisher)?,
                done => return done,
            }
            // Nothing has come: so what was refused is refused.
            if say.is_some() && publisher.number == known {
                break;
            }
        }
        Err(Error::Overtaken)
    }

    pub(super) fn try_publish<T>(
        &self,
        publisher: &mut Publisher,
        presence: Option<Presence>,
        items: &Pending,
        plan: Plan<'_, T>,
    ) -> Result<T> {
        let says_alone = match &presence {
            Some(Presence::Here { stance, .. }) => Some(*stance == Stance::Alone),
            _ => None,
        };
        let was_alone = self.state.read().is_alone;
        let (frozen, catalogue, applied) = self.freeze(says_alone)?;
        let done = beside(&frozen, items)
            .and_then(|all| self.put(publisher, (&all, &catalogue), presence, (None, plan)));
        drop(catalogue);
        let mut state = self.state.write();
        state.going.clear();
        match done {
            Ok((answer, drafted)) => {
                if let Some(catalogue) = drafted {
                    state.catalogue = Arc::new(catalogue);
                }
                (state.frozen, state.published) = (None, applied);
                state.is_alone = says_alone.unwrap_or(state.is_alone);
                Ok(answer)
            }
            // What is in the log already stays in sight until the rows have it.
            Err(error) if state.stopped.is_some() => Err(error),
            Err(error) => {
                (state.frozen, state.is_alone) = (None, was_alone);
                state.pending.take_up(&frozen);
                Err(error)
            }
        }
    }

    /// Publishes a batch at once, beside other clients; `None` if there are none any more.
    ///
    /// # Errors
    /// [`Error::Overtaken`] if others have changed what it depends on.
    pub(crate) fn publish_batch(&self, dataset: u64, batch: &mut Batch<'_>) -> Result<Option<()>> {
        self.attend()?;
        let mut publisher = self.publisher_awake()?;
        let seen = batch.seen.ok_or(Error::Overtaken)?;
        let mut staged = {
            let state = self.state.read();
            state.refuse_stopped()?;
            if state.is_alone {
                return Ok(None);
            }
            if state.moment(dataset) != seen {
                return Err(Error::Overtaken);
            }
            let links = state.links(dataset)?;
            batch.begun.iter().for_each(|object| self.items.begin(&links, *object));
            self.staged(dataset, std::mem::take(&mut batch.edits), &state)?
        };
        self.share_staged(&mut publisher, &mut staged);
        for _ in 0..TRIES_MAX {
            let catalogue = Arc::clone(&self.state.read().catalogue);
            let nothing: Plan<'_, ()> = &mut |_| Ok(());
            match self.put(&mut publisher, (&staged, &catalogue), None, (None, nothing)) {
                Err(Error::Overtaken) => self.take_in(&mut publisher)?,
                done => {
                    if let Some(catalogue) = done?.1 {
                        self.state.write().catalogue = Arc::new(catalogue);
                    }
                    return Ok(Some(()));
                }
            }
            if self.state.read().moment(dataset) != seen {
                return Err(Error::Overtaken);
            }
        }
        Err(Error::Overtaken)
    }

    /// The edits of a batch, as items that wait for nothing but their publication.
    pub(super) fn staged(
        &self,
        dataset: u64,
        edits: Vec<BatchEdit<'_>>,
        state: &State,
    ) -> Result<Pending> {
        let links = state.links(dataset)?;
        let counters = counters(self, &edits, &|_| false, &|_| None, &links)?;
        let mut staged = Pending::default();
        for edit in edits {
            let counter = counters.get(&edit.key()).copied();
            staged.make(dataset, edit, counter)?;
        }
        Ok(staged)
    }

    /// Publishes all batches that were applied before the call.
    pub(crate) fn publish_waiting(&self) -> Result<()> {
        let wanted = self.state.read().applied;
        if self.read_only {
            return Ok(());
        }
        {
            // A publication that ended meanwhile may have had these too.
            let _publisher = self.publisher.lock();
            let state = self.state.read();
            state.refuse_stopped()?;
            if state.published >= wanted {
                return Ok(());
            }
        }
        self.publish(&mut |_| Ok(()))
    }

    /// Takes what waits. A client that is about to say that it is no longer alone lets nothing
    /// more wait from then on.
    fn freeze(&self, says_alone: Option<bool>) -> Result<(Arc<Pending>, Arc<Catalogue>, u64)> {
        let mut state = self.state.write();
        state.refuse_stopped()?;
        state.is_alone &= says_alone != Some(false);
        let frozen = Arc::new(std::mem::take(&mut state.pending));
        state.frozen = Some(Arc::clone(&frozen));
        Ok((frozen, Arc::clone(&state.catalogue), state.applied))
    }

    /// Puts the next entry, if there is something in it. The items come into the records that
    /// `before` leaves.
    pub(super) fn put<T>(
        &self,
        publisher: &mut Publisher,
        (frozen, catalogue): (&Pending, &Catalogue),
        presence: Option<Presence>,
        (before, plan): (Option<Plan<'_, ()>>, Plan<'_, T>),
    ) -> Result<(T, Option<Catalogue>)> {
        let number = publisher.number + 1;
        let mut draft = Draft::new(catalogue.clone(), number, self.now());
        draft.set_open(self.state.read().all_open());
        if let Some(before) = before {
            before(&mut draft)?;
        }
        let mut uploads = Vec::new();
        let sections = self.sections(frozen, draft.catalogue(), &mut uploads)?;
        publisher.known.begin(publisher.number);
        for ((dataset, _), section) in frozen.datasets().zip(&sections) {
            let grown = self.grown(draft.catalogue(), dataset, section, &mut publisher.known)?;
            draft.change(dataset, |record| {
                record.referenced_bytes = record.referenced_bytes.saturating_add_signed(grown);
            })?;
        }
        let answer = plan(&mut draft)?;
        self.keep_closed(draft.gone())?;
        if draft.is_empty() && presence.is_none() {
            return Ok((answer, None));
        }
        let Drafted { catalogue, records, lines, work, operations } = draft.finish();
        let (previous, session, seconds) = (publisher.hash, self.session(), self.now());
        let of_client = Entry { previous, session, seconds, presence, ..Entry::default() };
        let entry = Entry { sections, records, lines, work, operations, ..of_client };
        let prepared = Prepared { entry: &entry, catalogue, uploads };
        let catalogue = self.put_prepared(publisher, prepared)?;
        let numbers = frozen.datasets().map(|(dataset, _)| dataset);
        let sections: Vec<_> = numbers.zip(&entry.sections).collect();
        self.note_replaced(publisher, &catalogue, &sections);
        publisher.known = Known::default();
        Ok((answer, Some(catalogue)))
    }

    /// Keeps what is destroyed from being opened until it is gone.
    ///
    /// # Errors
    /// [`Error::Overtaken`] if somebody has opened something of it meanwhile.
    fn keep_closed(&self, gone: &BTreeSet<u64>) -> Result<()> {
        if gone.is_empty() {
            return Ok(());
        }
        let mut state = self.state.write();
        if gone.iter().any(|number| state.is_open(*number)) {
            return Err(Error::Overtaken);
        }
        state.going.extend(gone);
        Ok(())
    }

    fn put_prepared(&self, publisher: &mut Publisher, prepared: Prepared<'_>) -> Result<Catalogue> {
        let Prepared { entry, catalogue, uploads } = prepared;
        let (number, bytes) = (publisher.number + 1, entry.encode());
        if bytes.len() > ENTRY_BYTES_MAX {
            let text = "the change is too large for one entry of the log: make it in parts";
            return Err(Error::Invalid(text.to_owned()));
        }
        let changes = follow::changes(&self.rows, number, entry, publisher.known.heads());
        let have_followed = self.append((number, entry, &bytes), &uploads, &changes)?;
        self.blocks.keep(&uploads);
        (publisher.number, publisher.hash) = (number, self.rows.hash(&bytes));
        self.state.write().company.note((number, entry), self.session());
        for upload in &uploads {
            upload.block.set_stored(upload.reference.token());
        }
        if !have_followed {
            write_following(&self.rows, number, &changes).map_err(|error| {
                self.stop(&format!("{error}; what was synced is in the log: mount it again"))
            })?;
        }
        self.items.take(&entry.sections, true);
        self.end.store(number, Ordering::Release);
        Ok(catalogue)
    }

    /// Puts the blocks and the entry, and lets the rows follow in the same step as the entry if the
    /// database can; whether they have. Where the answer was lost, looks whether it is there.
    fn append(
        &self,
        (number, entry, bytes): (u64, &Entry, &[u8]),
        uploads: &[Upload],
        changes: &[Change],
    ) -> Result<bool> {
        let row = || (Table::Log, keys::number(number));
        let upload = || self.blocks.upload(uploads, entry.seconds, (entry.session, number));
        let along = self.blocks.along(uploads);
        let are_sent = along.is_none();
        if are_sent {
            upload()?;
        }
        let beside = match along.filter(|along| !along.is_empty()) {
            Some(along) => Cow::Owned([&along[..], changes].concat()),
            None => Cow::Borrowed(changes),
        };
        let at_once = self.rows.insert_with(number - 1, row(), bytes.to_vec(), &beside);
        let have_followed = at_once.is_some();
        let put = match at_once {
            Some(put) => put,
            None => {
                if !are_sent {
                    upload()?;
                }
                self.rows.insert_after(number - 1, row(), bytes.to_vec())
            }
        };
        match put {
            Ok(true) => Ok(have_followed),
            // After a lost answer the rows may have followed an entry that is there.
            Ok(false) => match self.rows.get(Table::Log, keys::number(number)) {
                Ok(Some(there)) if there == bytes => Ok(false),
                Ok(_) => Err(Error::Overtaken),
                Err(error) => Err(self.is_unknown(&error)),
            },
            Err(error) => self.outcome(number, bytes, error).map(|()| false),
        }
    }

    /// What an entry has come to of which the answer is an error.
    fn outcome(&self, number: u64, bytes: &[u8], error: Error) -> Result<()> {
        let found = self.rows.get(Table::Log, keys::number(number));
        match found.and_then(|there| Ok((there, self.rows.followed()?))) {
            Ok((Some(there), _)) if there == bytes => Ok(()),
            Ok((Some(_), _)) => Err(Error::Overtaken),
            Ok((None, followed)) if followed < number => Err(error),
            // It was trimmed, or is another's that was; or the database is away.
            Ok(_) | Err(_) => Err(self.is_unknown(&error)),
        }
    }

    /// Nothing is changed any more: an entry may be in the log, or not.
    fn is_unknown(&self, error: &Error) -> Error {
        self.stop(&format!("{error}; whether it was written is not known"))
    }

    /// What waits, as sections of an entry.
    fn sections(
        &self,
        frozen: &Pending,
        catalogue: &Catalogue,
        uploads: &mut Vec<Upload>,
    ) -> Result<Vec<Section>> {
        let section = |(dataset, items): (u64, &Items)| {
            let record = catalogue.record(dataset);
            let record = record.ok_or_else(|| Error::NoDataset(format!("number {dataset}")))?;
            let mut stored = |(key, item): (_, &Option<_>)| -> Result<Edit> {
                let item = item.as_ref().map(|item| self.stored(item, uploads)).transpose()?;
                Ok((key, item))
            };
            let edits = items.iter().map(|(key, item)| stored((*key, item)));
            Ok(Section {
                line: record.line,
                period: record.period,
                needed: catalogue.needed(record.line),
                inherits: catalogue.line(record.line).is_some_and(|line| line.parent > 0),
                edits: edits.collect::<Result<_>>()?,
            })
        };
        frozen.datasets().map(section).collect()
    }

    /// By how many bytes a section lets what its dataset refers to grow.
    fn grown(
        &self,
        catalogue: &Catalogue,
        dataset: u64,
        section: &Section,
        known: &mut Known,
    ) -> Result<i64> {
        let record = catalogue.record(dataset);
        let line = record.map_or(section.line, |record| record.line);
        let keys = || section.edits.iter().map(|(key, _)| key);
        known.ask_heads(&self.rows, line, keys())?;
        known.ask_inherited(&self.rows, &catalogue.links(line, None)?, keys())?;
        let mut grown: i64 = 0;
        for (key, item) in &section.edits {
            let bytes = |item: Option<&_>| item.map_or(0, crate::format::StoredItem::bytes);
            let (before, after) = (bytes(known.item(line, *key)), bytes(item.as_ref()));
            grown = grown.saturating_add(after.cast_signed()).saturating_sub(before.cast_signed());
        }
        Ok(grown)
    }
}

/// What waits, with items of other datasets beside it.
fn beside<'w>(waiting: &'w Pending, items: &Pending) -> Result<Cow<'w, Pending>> {
    if items.is_empty() {
        return Ok(Cow::Borrowed(waiting));
    }
    let of_both = |(dataset, _): (u64, &Items)| waiting.datasets().any(|(it, _)| it == dataset);
    if items.datasets().any(of_both) {
        let (name, holder) = ("the dataset".to_owned(), "it is being written to".to_owned());
        return Err(Error::InUse { name, holder });
    }
    let mut all = items.clone();
    all.take_up(waiting);
    Ok(Cow::Owned(all))
}
