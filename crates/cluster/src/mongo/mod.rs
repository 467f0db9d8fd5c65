//! MongoDB: a database of a server or of a replica set, for daemons of many hosts.
//!
//! All that changes something is a transaction, which a majority of the members has on disk when it
//! is answered: a server can be killed at any moment while its clients go on, so nothing may be
//! known to a client that it forgets. What reads more than one table is a transaction too.
//!
//! An insertion whose answer was lost is asked for again by its content: it is there once.

mod documents;
mod failure;
mod making;
mod place;
mod server;
mod sessions;

pub use place::Place;

use crate::database::{Change, Database, Guard, Range, Row, Table};
use crate::format::keys;
use bytes::Bytes;
use documents::{PARTS, Reading};
use failure::{Failure, Outcome};
use marram_store::{Error, Result};
use mongodb::bson::{Document, doc};
use sessions::{Sessions, Turn};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

/// How a database is reached.
pub type Access = crate::server::Access<Place>;

/// A database with the collections of a home.
pub struct MongoDatabase {
    sessions: Sessions,
    /// The collections are claimed for a home that is being made, until it has its header.
    is_making: AtomicBool,
}

impl MongoDatabase {
    /// Makes the collections in a database that has none, or only those of a home whose making was
    /// cut off. They are claimed until the home has its header.
    ///
    /// # Errors
    /// It has some, the user may not make any, or the server does not answer or is not fit.
    pub fn create(access: Access) -> Result<MongoDatabase> {
        let database = MongoDatabase::on(server::open(access)?, true);
        database.claim()?;
        let made = database.make_collections();
        match made.and_then(|()| server::refuse_without_transactions(&database.sessions)) {
            Ok(()) => Ok(database),
            Err(error) => {
                // The first error is the one to tell.
                let _left_for_the_next_one = database.remove();
                Err(error)
            }
        }
    }

    fn on(sessions: Sessions, is_making: bool) -> MongoDatabase {
        MongoDatabase { sessions, is_making: AtomicBool::new(is_making) }
    }

    /// Opens a database that has the collections; none if it has none of them.
    ///
    /// # Errors
    /// It has only some, or the server does not answer, or is not fit.
    pub fn open(access: Access) -> Result<Option<MongoDatabase>> {
        let database = MongoDatabase::on(server::open(access)?, false);
        let names = database.collections()?;
        let wanted = all_collections();
        let found: Vec<_> = wanted.iter().filter(|name| names.contains(**name)).collect();
        match found.len() {
            0 => Ok(None),
            // What is left of a home that was not made after all.
            1 if *found[0] == PARTS => Ok(None),
            count if count == wanted.len() => {
                server::refuse_without_transactions(&database.sessions)?;
                Ok(Some(database))
            }
            count => {
                let (place, all) = (&database.sessions.access.place, wanted.len());
                let text = format!("{place} has {count} of the {all} collections of a home");
                Err(Error::Invalid(text))
            }
        }
    }

    /// Removes the collections; those of a home that is being made, only while they are claimed for
    /// it.
    ///
    /// # Errors
    /// The server does not answer, or the user may not.
    pub fn remove(&self) -> Result<()> {
        if self.is_making.load(Ordering::Acquire) {
            return self.unmake();
        }
        self.remove_those(&all_collections())
    }

    fn remove_those(&self, those: &[&'static str]) -> Result<()> {
        let names = self.collections()?;
        for name in those.iter().copied().filter(|name| names.contains(*name)) {
            self.sessions.patiently(async || {
                self.sessions.command(lasting(doc! { "drop": name })).await.map(|_| ())
            })?;
        }
        Ok(())
    }

    fn collections(&self) -> Result<BTreeSet<String>> {
        let names = self.sessions.patiently(async || server::collections(&self.sessions).await)?;
        Ok(names.into_iter().filter(|name| !name.starts_with("system.")).collect())
    }

    fn has_collections(&self) -> Error {
        let place = &self.sessions.access.place;
        let text = format!(
            "{place} has collections already: name a new database, or remove this one with \
             db.dropDatabase()"
        );
        Error::Invalid(text)
    }

    fn insert_behind(
        &self,
        guard: Option<&Guard>,
        table: Table,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        let mut asked = false;
        let made = self.sessions.in_transaction(async |turn, was_asked| {
            asked = was_asked;
            let ends_claim = (table, key) == (Table::Header, keys::HEADER);
            self.hold_claim(turn, was_asked && ends_claim).await?;
            hold(turn, guard).await?;
            if let Some(found) = there_before(turn, was_asked, (table, key)).await? {
                if found != value {
                    return Err(Failure::Taken);
                }
                turn.command(documents::touch(table, key, value)).await?;
                return Ok(());
            }
            for command in documents::insert(table, key, value)? {
                turn.command(command).await?;
            }
            if ends_claim {
                self.end_claim(turn).await?;
            }
            Ok(())
        });
        if made.is_ok() && (table, key) == (Table::Header, keys::HEADER) {
            self.is_making.store(false, Ordering::Release);
        }
        let is_new = match made {
            Ok(()) => true,
            Err(Failure::Guarded) if asked => self.is_there(table, key, value)?,
            Err(Failure::Taken) => false,
            Err(failure) => return Err(failure.into()),
        };
        if is_new && table == Table::Log {
            self.sessions.acknowledge(key);
        }
        Ok(is_new)
    }

    /// Whether a row was put of which the answer was lost, where its guard holds no more: others
    /// have gone on, so what they found is durable.
    fn is_there(&self, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        let found = self.read(&[Range::one(table, key)])?.concat();
        let found = found.first().map(|(_, found)| found == value);
        let text = "MongoDB: the answer to an insertion was lost, and others have gone on so far \
                    that nobody knows what it was";
        found.ok_or_else(|| Error::Io(text.to_owned()))
    }

    fn write_behind(&self, guard: Option<&Guard>, changes: &[Change]) -> Result<()> {
        // The last change of a key decides.
        let mut last: BTreeMap<(Table, &[u8]), Option<&[u8]>> = BTreeMap::new();
        for Change { table, key, value } in changes {
            last.insert((*table, key), value.as_deref());
        }
        let commands = documents::write(&last)?;
        if commands.is_empty() && guard.is_none() {
            return Ok(());
        }
        let done = self.sessions.in_transaction(async |turn, _| {
            self.hold_claim(turn, false).await?;
            hold(turn, guard).await?;
            for command in &commands {
                turn.command(command.clone()).await?;
            }
            Ok(())
        });
        Ok(done?)
    }

    fn has_one_of(&self, table: Table, keys: &[Vec<u8>]) -> Result<BTreeSet<Bytes>> {
        let mut found = BTreeSet::new();
        for command in documents::has(table, keys) {
            found.extend(documents::keys(&self.sessions.read(&command)?));
        }
        Ok(found)
    }
}

/// Holds the row of a guard as it is until the transaction is at an end.
async fn hold(turn: &mut Turn<'_>, guard: Option<&Guard>) -> Outcome<()> {
    let Some(guard) = guard else { return Ok(()) };
    let answer = turn.command(documents::guard(guard)?).await?;
    match documents::count(&answer) {
        0 => Err(Failure::Guarded),
        _ => Ok(()),
    }
}

/// The row that stands where one is to be put, if that was asked for before.
async fn there_before(
    turn: &mut Turn<'_>,
    was_asked: bool,
    (table, key): (Table, &[u8]),
) -> Outcome<Option<Bytes>> {
    if !was_asked {
        return Ok(None);
    }
    let range = [Range::one(table, key)];
    let found = rows(turn, &Reading::of(&range)).await?;
    Ok(found.into_iter().flatten().next().map(|(_, value)| value))
}

/// Reads rows in a transaction, with all of their parts.
async fn rows(turn: &mut Turn<'_>, reading: &Reading<'_>) -> Outcome<Vec<Vec<Row>>> {
    let mut found = Vec::new();
    for command in reading.commands() {
        found.extend(turn.documents(command).await?);
    }
    let mut answers = reading.answers(found)?;
    let mut parts = Vec::new();
    for command in answers.missing() {
        parts.push(turn.documents(command).await?);
    }
    answers.complete(parts)?;
    Ok(answers.rows())
}

impl Database for MongoDatabase {
    fn insert(&self, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.insert_behind(None, table, key, value)
    }

    fn insert_if(&self, guard: &Guard, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        while_it_holds(self.insert_behind(Some(guard), table, key, value))
    }

    fn write_if(&self, guard: &Guard, changes: &[Change]) -> Result<bool> {
        while_it_holds(self.write_behind(Some(guard), changes).map(|()| true))
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        self.write_behind(None, changes)
    }

    fn read(&self, ranges: &[Range]) -> Result<Vec<Vec<Row>>> {
        let reading = Reading::of(ranges);
        if let Some(command) = reading.alone() {
            let answers = reading.answers(self.sessions.read(&command)?)?;
            if answers.missing().is_empty() {
                return Ok(answers.rows());
            }
        }
        if reading.is_empty() {
            return Ok(ranges.iter().map(|_| Vec::new()).collect());
        }
        Ok(self.sessions.in_transaction(async |turn, _| rows(turn, &reading).await)?)
    }

    fn has(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<bool>> {
        let found = self.has_one_of(table, keys)?;
        Ok(keys.iter().map(|key| found.contains(&key[..])).collect())
    }

    fn bytes(&self) -> Result<u64> {
        let asked = doc! { "dbStats": 1 };
        let answer =
            self.sessions.patiently(async || self.sessions.command(asked.clone()).await)?;
        Ok(documents::number(answer.get("totalSize")))
    }

    fn identity(&self) -> Result<Vec<u8>> {
        let header = Table::Header.name();
        Ok(self.sessions.patiently(async || server::identity(&self.sessions, header).await)?)
    }

    fn round_trips(&self) -> u64 {
        self.sessions.calls()
    }

    fn is_far(&self) -> bool {
        true
    }

    fn engine(&self) -> &'static str {
        "MongoDB"
    }
}

/// What a guarded step comes to: false if the guard did not hold.
fn while_it_holds(done: Result<bool>) -> Result<bool> {
    match done {
        Err(Error::Overtaken) => Ok(false),
        done => done,
    }
}

fn all_collections() -> Vec<&'static str> {
    Table::ALL.map(Table::name).into_iter().chain([PARTS]).collect()
}

/// A command whose work a majority has on disk when it is answered.
fn lasting(mut command: Document) -> Document {
    command.insert("writeConcern", doc! { "w": "majority", "j": true });
    command
}
