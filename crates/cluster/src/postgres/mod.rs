//! PostgreSQL: a schema of a database of a server, for daemons of many hosts.
//!
//! Each call is one round trip: all of its statements are sent at once, and are one transaction.
//! Every write is on disk when it is answered, by `synchronous_commit`: the server can be killed
//! at any moment while its clients go on, so nothing may be known to a client that it forgets.
//!
//! An insertion whose answer was lost is asked for again by its content: it is there once.

mod failure;
mod place;
mod sessions;
mod socket;
mod statements;
mod wire;

pub use place::Place;

use crate::database::{Change, Database, Guard, Range, Row, Table};
use bytes::Bytes;
use marram_store::{Error, Result};
use sessions::Sessions;
use std::collections::{BTreeMap, BTreeSet};
use wire::{Answer, Step};

/// How a schema is reached.
pub type Access = crate::server::Access<Place>;

/// A schema with the tables of a home.
pub struct PostgresDatabase {
    sessions: Sessions,
}

impl PostgresDatabase {
    /// Makes the tables in a new schema, or in an empty one.
    ///
    /// # Errors
    /// The schema has tables, the user may not make any, or the server does not answer.
    pub fn create(access: Access) -> Result<PostgresDatabase> {
        let database = PostgresDatabase { sessions: Sessions::open(access)? };
        let schema = &database.sessions.access.place.schema;
        let found = database.ask(&[statements::schema(schema)])?;
        let is_there = found[0].count > 0;
        if found[0].rows.iter().any(|row| row.iter().any(|name| !name.is_empty())) {
            let text = format!(
                "{} has tables already: name a new schema with ?schema=NAME, or remove this one \
                 with DROP SCHEMA {schema} CASCADE",
                database.sessions.access.place
            );
            return Err(Error::Invalid(text));
        }
        // Asked again after a lost answer it would find its own tables: then it says so.
        database.ask(&statements::make_tables(schema, is_there))?;
        Ok(database)
    }

    /// Opens a schema that has the tables; none if it has none of them.
    ///
    /// # Errors
    /// It has only some, or the server does not answer, or is not fit.
    pub fn open(access: Access) -> Result<Option<PostgresDatabase>> {
        let database = PostgresDatabase { sessions: Sessions::open(access)? };
        let place = &database.sessions.access.place;
        let found = database.ask(&[statements::schema(&place.schema)])?;
        let names: BTreeSet<&[u8]> = found[0].rows.iter().flatten().map(|name| &name[..]).collect();
        let count = Table::ALL.iter().filter(|it| names.contains(it.name().as_bytes())).count();
        match count {
            0 => Ok(None),
            count if count == Table::ALL.len() => Ok(Some(database)),
            count => {
                let all = Table::ALL.len();
                let text = format!("{place} has {count} of the {all} tables of a home");
                Err(Error::Invalid(text))
            }
        }
    }

    /// Removes the tables, and the schema if this user may.
    ///
    /// # Errors
    /// The server does not answer, or they belong to another user.
    pub fn remove(&self) -> Result<()> {
        let schema = &self.sessions.access.place.schema;
        self.ask(&statements::remove_tables(schema))?;
        // A schema that somebody else has made stays.
        let _stays_where_it_may_not = self.ask(&[statements::remove_schema(schema)]);
        Ok(())
    }

    /// The step before others that are made only while a guard holds.
    fn guarded<'g>(&self, guard: Option<&'g Guard>) -> Result<Vec<Step<'g>>> {
        let Some(Guard { table, key, value }) = guard else { return Ok(Vec::new()) };
        let none = || Error::Invalid("no row can be guarded that is not there".to_owned());
        let value = value.as_ref().ok_or_else(none)?;
        Ok(vec![statements::guard(self.schema(), *table, key, value)])
    }

    fn insert_behind(
        &self,
        guard: Option<&Guard>,
        table: Table,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        let (guarded, mut was_asked) = (self.guarded(guard)?, false);
        let made = self.sessions.with(|connection, asked| {
            was_asked = asked;
            let step = statements::insert(self.schema(), table, (key, value), asked);
            let steps: Vec<_> = guarded.iter().cloned().chain([step]).collect();
            Ok(connection.run(&steps)?.last().is_some_and(|answer| answer.count > 0))
        });
        let is_new = match made {
            Err(Error::Overtaken) if was_asked => self.is_there(table, key, value),
            made => made,
        }?;
        if is_new && table == Table::Log {
            self.sessions.acknowledge(key);
        }
        Ok(is_new)
    }

    /// Puts a row and makes changes, in one transaction. The guard may hold no more because that
    /// was done, and only its answer was lost.
    fn insert_and_write(&self, guard: &Guard, row: &Change, changes: &[Change]) -> Result<bool> {
        let (table, key, value) = (row.table, &row.key, row.value.as_deref().unwrap_or_default());
        let row = statements::insert_or_end(self.schema(), table, key, value);
        let steps = self.write_steps(Some(guard), Some(row), changes)?;
        let mut was_asked = false;
        let made = self.sessions.with(|connection, asked| {
            was_asked = asked;
            connection.run(&steps).map(|_| true)
        });
        let is_put = match made {
            Err(Error::Overtaken) if was_asked => {
                let again = [statements::write_again(self.schema(), table, key, value)];
                match self.ask(&again)?.last().is_some_and(|answer| answer.count > 0) {
                    true => Ok(true),
                    false => self.is_there(table, key, value),
                }
            }
            made => made,
        }?;
        if is_put && table == Table::Log {
            self.sessions.acknowledge(key);
        }
        Ok(is_put)
    }

    /// Whether a row was put of which the answer was lost, where its guard holds no more: others
    /// have gone on, so what they found is durable.
    fn is_there(&self, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        let found = self.read(&[Range::one(table, key)])?.concat();
        let found = found.first().map(|(_, found)| found == value);
        let text = "PostgreSQL: the answer to an insertion was lost, and others have gone on so \
                    far that nobody knows what it was";
        found.ok_or_else(|| Error::Io(text.to_owned()))
    }

    fn write_behind(&self, guard: Option<&Guard>, changes: &[Change]) -> Result<()> {
        let steps = self.write_steps(guard, None, changes)?;
        self.ask(&steps).map(|_| ())
    }

    /// The steps of changes behind a guard, and behind a row. What is long to send comes before the
    /// guard: the row of that is held from there on, and all others wait for it.
    fn write_steps<'s>(
        &self,
        guard: Option<&'s Guard>,
        row: Option<Step<'s>>,
        changes: &'s [Change],
    ) -> Result<Vec<Step<'s>>> {
        let (content, rest): (BTreeMap<_, _>, BTreeMap<_, _>) =
            last_of(changes).into_iter().partition(|((table, _), _)| *table == Table::Blocks);
        let mut steps = statements::write(self.schema(), &content);
        steps.extend(self.guarded(guard)?);
        steps.extend(row);
        steps.extend(statements::write(self.schema(), &rest));
        Ok(steps)
    }

    fn ask(&self, steps: &[Step<'_>]) -> Result<Vec<Answer>> {
        self.sessions.with(|connection, _| connection.run(steps))
    }

    fn schema(&self) -> &str {
        &self.sessions.access.place.schema
    }
}

/// The last change of each key, which decides; in the order of keys, so that two clients that write
/// the same rows wait for each other and never both.
fn last_of(changes: &[Change]) -> BTreeMap<(Table, &[u8]), Option<&[u8]>> {
    let rows = changes.iter();
    rows.map(|it| ((it.table, &it.key[..]), it.value.as_deref())).collect()
}

impl Database for PostgresDatabase {
    fn insert(&self, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.insert_behind(None, table, key, value)
    }

    fn insert_if(&self, guard: &Guard, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        while_it_holds(self.insert_behind(Some(guard), table, key, value))
    }

    fn write_if(&self, guard: &Guard, changes: &[Change]) -> Result<bool> {
        while_it_holds(self.write_behind(Some(guard), changes).map(|()| true))
    }

    fn insert_with(&self, guard: &Guard, row: &Change, changes: &[Change]) -> Option<Result<bool>> {
        Some(while_it_holds(self.insert_and_write(guard, row, changes)))
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        self.write_behind(None, changes)
    }

    fn read(&self, ranges: &[Range]) -> Result<Vec<Vec<Row>>> {
        let asked = statements::Reading::of(self.schema(), ranges);
        let answers = self.ask(&asked.steps)?;
        let mut found = answers.into_iter().skip(asked.ahead);
        let mut single: BTreeMap<(Table, Bytes), Bytes> = BTreeMap::new();
        for table in &asked.singles {
            let rows = found.next().map(|answer| pairs(answer.rows)).unwrap_or_default();
            single.extend(rows.into_iter().map(|(key, value)| ((*table, key), value)));
        }
        let mut answer = |range: &Range| match statements::is_single(range) {
            true => {
                let key = (range.table, Bytes::copy_from_slice(&range.from));
                let value = single.get(&key);
                value.map(|value| (key.1.clone(), value.clone())).into_iter().collect()
            }
            false => found.next().map(|answer| pairs(answer.rows)).unwrap_or_default(),
        };
        Ok(ranges.iter().map(&mut answer).collect())
    }

    fn has(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<bool>> {
        let answers = self.ask(&[statements::has(self.schema(), table, keys)])?;
        let found: BTreeSet<&[u8]> = answers[0].rows.iter().flatten().map(|key| &key[..]).collect();
        Ok(keys.iter().map(|key| found.contains(&key[..])).collect())
    }

    fn bytes(&self) -> Result<u64> {
        let answers = self.ask(&[statements::bytes(self.schema())])?;
        Ok(answers[0].text(0).parse().unwrap_or(0))
    }

    fn identity(&self) -> Result<Vec<u8>> {
        Ok(self.ask(&[statements::identity(self.schema())])?[0].text(0).into_bytes())
    }

    fn round_trips(&self) -> u64 {
        self.sessions.calls()
    }

    fn is_far(&self) -> bool {
        true
    }

    fn asks_ranges_at_once(&self) -> bool {
        true
    }

    fn engine(&self) -> &'static str {
        "PostgreSQL"
    }
}

/// What a guarded step comes to: false if the guard did not hold.
fn while_it_holds(done: Result<bool>) -> Result<bool> {
    match done {
        Err(Error::Overtaken) => Ok(false),
        done => done,
    }
}

fn pairs(rows: Vec<Vec<Bytes>>) -> Vec<Row> {
    let pair = |row: Vec<Bytes>| {
        let mut columns = row.into_iter();
        Some((columns.next()?, columns.next()?))
    };
    rows.into_iter().filter_map(pair).collect()
}
