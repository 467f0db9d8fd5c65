//! What others have published is taken in, in the order of the log.
//!
//! The rows are brought up to an entry by the client that needs them first. They change only while
//! they follow the log up to the entry before: a client that was stopped in the middle of that
//! changes nothing when it goes on.

use super::company::Company;
use super::{Publisher, Shared};
use crate::catalogue::Catalogue;
use crate::database::{Change, Range, Table};
use crate::failure::damaged;
use crate::follow;
use crate::format::{ClientRecord, Entry, Presence, keys};
use crate::rows::Rows;
use bytes::Bytes;
use marram_store::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often the rows are read anew while others publish.
const TRIES_MAX: usize = 1000;

/// The rows as they are after one entry.
pub(super) struct Whole {
    pub(super) number: u64,
    pub(super) hash: [u8; 32],
    pub(super) catalogue: Catalogue,
    pub(super) company: Company,
}

/// The end of the log as a question finds it.
enum End {
    /// Nothing has come behind the entry that was asked for.
    Same,
    /// The next entry, and whether the rows have followed it.
    Next(Bytes, bool),
    /// The next entries are trimmed already.
    Gone,
    /// The database has forgotten entries.
    Before,
}

fn end_behind(rows: &Rows, number: u64) -> Result<End> {
    let ranges = [
        Range::one(Table::Log, keys::number(number + 1)),
        Range::one(Table::Header, keys::FOLLOWED),
    ];
    let mut found = rows.read(&ranges)?.into_iter().map(|rows| rows.into_iter().next());
    let (next, followed) = (found.next().flatten(), found.next().flatten());
    let followed = followed.map_or(Ok(0), |(_, value)| keys::decode_number(&value))?;
    Ok(match next {
        Some((_, entry)) => End::Next(entry, followed > number),
        None if followed == number => End::Same,
        None if followed > number => End::Gone,
        None => End::Before,
    })
}

pub(super) fn entry(rows: &Rows, number: u64) -> Result<Option<Bytes>> {
    rows.get(Table::Log, keys::number(number))
}

pub(super) fn missing(number: u64) -> Error {
    damaged("the log", number.to_string(), "the last entry is not there")
}

/// The next entry, which must follow the one with this hash.
fn decoded(bytes: &Bytes, (number, hash): (u64, [u8; 32])) -> Result<Entry> {
    let next = Entry::decode(bytes)?;
    match next.previous == hash {
        true => Ok(next),
        false => {
            let reason = "it does not follow the entry before it: the database lost a part";
            Err(damaged("an entry of the log", number.to_string(), reason))
        }
    }
}

/// Lets the rows follow an entry, unless they do.
pub(super) fn let_follow(rows: &Rows, number: u64, entry: &Entry) -> Result<()> {
    if rows.followed()? >= number {
        return Ok(());
    }
    let heads = follow::heads(rows, &entry.sections)?;
    write_following(rows, number, &follow::changes(rows, number, entry, &heads))
}

/// Makes the changes of an entry, unless another client has.
pub(super) fn write_following(rows: &Rows, number: u64, changes: &[Change]) -> Result<()> {
    if rows.write_after(number - 1, changes)? || rows.followed()? >= number {
        return Ok(());
    }
    Err(Error::Io(format!("the rows do not follow entry {number} of the log")))
}

/// Lets the rows follow the log to its end, and reads what they say.
pub(super) fn whole(rows: &Rows) -> Result<Whole> {
    for _ in 0..TRIES_MAX {
        let mut number = rows.followed()?;
        let Some(bytes) = entry(rows, number)? else {
            match rows.followed()? == number {
                true => return Err(missing(number)),
                false => continue,
            }
        };
        let (mut hash, mut seconds) = (rows.hash(&bytes), Entry::decode(&bytes)?.seconds);
        while let End::Next(bytes, have_followed) = end_behind(rows, number)? {
            number += 1;
            let next = decoded(&bytes, (number, hash))?;
            if !have_followed {
                let_follow(rows, number, &next)?;
            }
            (hash, seconds) = (rows.hash(&bytes), next.seconds);
        }
        let catalogue = Catalogue::read(rows);
        let company = clients(rows).map(|clients| Company::at((number, seconds), clients));
        if matches!(end_behind(rows, number)?, End::Same) {
            return Ok(Whole { number, hash, catalogue: catalogue?, company: company? });
        }
    }
    Err(Error::Overtaken)
}

/// The clients that have the store open.
pub(super) fn clients(
    rows: &Rows,
) -> Result<std::collections::BTreeMap<super::company::Session, ClientRecord>> {
    let decode = |(key, value): (Bytes, Bytes)| {
        Ok((keys::decode_session(&key)?, ClientRecord::decode(&value)?))
    };
    rows.all(Table::Clients)?.into_iter().map(decode).collect()
}

impl Shared {
    /// Takes in what others have published, where others may have.
    pub(crate) fn look(&self) -> Result<()> {
        {
            let state = self.state.read();
            if state.is_alone || self.read_only {
                return Ok(());
            }
            state.refuse_stopped()?;
        }
        self.wake()?;
        match end_behind(&self.rows, self.end.load(Ordering::Acquire))? {
            End::Same => Ok(()),
            // It may be an entry of this client, of which the rows follow.
            _ => self.take_in(&mut self.publisher.lock()),
        }
    }

    /// Takes in all entries behind those that are known.
    pub(super) fn take_in(&self, publisher: &mut Publisher) -> Result<()> {
        self.state.read().refuse_stopped()?;
        loop {
            match end_behind(&self.rows, publisher.number)? {
                End::Same => return Ok(()),
                End::Next(bytes, have_followed) => self.take(publisher, &bytes, have_followed)?,
                End::Gone => return self.read_anew(publisher),
                End::Before => {
                    let text = "the database has lost what it had acknowledged, or was restored: \
                                nothing is written to it until it is mounted anew";
                    return Err(self.stop(text));
                }
            }
        }
    }

    fn take(&self, publisher: &mut Publisher, bytes: &Bytes, have_followed: bool) -> Result<()> {
        let number = publisher.number + 1;
        let entry = decoded(bytes, (number, publisher.hash))
            .map_err(|error| self.stop(&error.to_string()))?;
        if entry.presence == Some(Presence::Expelled(self.session())) {
            return Err(self.is_expelled());
        }
        if !have_followed {
            let_follow(&self.rows, number, &entry)?;
        }
        self.rows.stir();
        self.items.take(&entry.sections, false);
        let mut state = self.state.write();
        let mut catalogue = (*state.catalogue).clone();
        catalogue.take(&entry)?;
        state.catalogue = Arc::new(catalogue);
        state.company.note((number, &entry), self.session());
        drop(state);
        (publisher.number, publisher.hash) = (number, self.rows.hash(bytes));
        self.end.store(number, Ordering::Release);
        Ok(())
    }

    /// Another client has taken this one for lost: from now on others change what it shows.
    pub(super) fn is_expelled(&self) -> Error {
        let mut state = self.state.write();
        (state.is_expelled, state.is_alone) = (true, false);
        drop(state);
        self.stop(EXPELLED)
    }

    /// The log was trimmed behind this client: it reads all that it knows from the rows.
    fn read_anew(&self, publisher: &mut Publisher) -> Result<()> {
        let whole = whole(&self.rows)?;
        if !whole.company.clients.contains_key(&self.session()) {
            return Err(self.is_expelled());
        }
        self.rows.stir();
        self.items.clear(false);
        let mut state = self.state.write();
        state.catalogue = Arc::new(whole.catalogue);
        state.company = whole.company;
        drop(state);
        (publisher.number, publisher.hash) = (whole.number, whole.hash);
        self.end.store(whole.number, Ordering::Release);
        Ok(())
    }
}

/// Why a client changes nothing any more.
const EXPELLED: &str = "this client was taken for lost by another one";
