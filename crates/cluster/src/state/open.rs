//! A store is made, looked at, opened and closed.

use super::{Clock, Cluster, Publisher, Shared, SpaceProbe, State};
use crate::blocks::Blocks;
use crate::catalogue::Catalogue;
use crate::database::{Database, Range, Table};
use crate::draft::Draft;
use crate::failure::damaged;
use crate::follow;
use crate::format::{ClientRecord, Entry, Header, Presence, Seal, keys};
use crate::pending::Pending;
use crate::rows::Rows;
use marram_store::{DatasetName, Error, Properties, Result};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A store to make. All three numbers are random.
pub struct NewStore {
    /// Its number among all stores.
    pub id: [u8; 16],
    /// The key of its hashes.
    pub key: [u8; 32],
    /// Seconds since 1970.
    pub now: i64,
}

/// A client that has a store open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// A number of its own.
    pub session: [u8; 16],
    /// What it says of itself.
    pub name: String,
    /// Grows for as long as it lives.
    pub beat: u64,
}

/// What is known of a store that is not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Its number among all stores.
    pub id: [u8; 16],
    /// The client that has it open, or had when it died.
    pub client: Option<Client>,
}

/// How to open a store.
pub struct OpenOptions {
    /// A random number.
    pub session: [u8; 16],
    /// What this client says of itself: where it runs, and how it is found.
    pub name: String,
    /// The client that is taken for lost, if one has the store open.
    pub lost: Option<[u8; 16]>,
    /// Nothing is published. Only for a store that no client has open.
    pub read_only: bool,
    /// Memory for contents of blocks, in bytes.
    pub cache_bytes: u64,
    /// Gives the seconds since 1970.
    pub clock: Clock,
    /// Tells how much space there is where the database lies, if that is known.
    pub space: Option<SpaceProbe>,
}

/// Makes a store with an empty root dataset in a database that has none.
///
/// # Errors
/// There is one, or the database fails.
pub fn make(database: Arc<dyn Database>, new: &NewStore) -> Result<()> {
    let header = Header { id: new.id, key: new.key };
    let rows = Rows::new(Arc::clone(&database), Seal::of(&header));
    let root = first_entry(new.now)?;
    let bytes = root.encode();
    // The header comes last: without it there is no store, and a crash leaves rows to write over.
    rows.write(&follow::changes(&rows, 1, &root, &follow::Heads::new()))?;
    rows.write(&[rows.put(Table::Log, keys::number(1), bytes)])?;
    match database.insert(Table::Header, keys::HEADER, &header.encode())? {
        true => Ok(()),
        false => Err(Error::Invalid("there is a store already".to_owned())),
    }
}

fn first_entry(now: i64) -> Result<Entry> {
    let mut draft = Draft::new(Catalogue::default(), 1, now);
    draft.create(&DatasetName::root(), &Properties::default().0)?;
    let drafted = draft.finish();
    let (records, lines) = (drafted.records, drafted.lines);
    Ok(Entry { seconds: now, records, lines, ..Entry::default() })
}

fn header(database: &dyn Database) -> Result<Header> {
    let found = database.read(&[Range::one(Table::Header, keys::HEADER)])?;
    match found.concat().first() {
        Some((_, value)) => Header::decode(value),
        None => Err(Error::Invalid("there is no store: its making was cut off".to_owned())),
    }
}

/// Looks at a store without opening it.
///
/// # Errors
/// There is none, it is of a newer version, or the database fails.
pub fn glance(database: Arc<dyn Database>) -> Result<Glance> {
    let header = header(&*database)?;
    let client = client(&Rows::new(database, Seal::of(&header)))?;
    Ok(Glance { id: header.id, client })
}

fn client(rows: &Rows) -> Result<Option<Client>> {
    let row = rows.get(Table::Clients, keys::CLIENT.to_vec())?;
    let record = row.map(|value| ClientRecord::decode(&value)).transpose()?;
    Ok(record.map(|it| Client { session: it.session, name: it.name, beat: it.beat }))
}

impl Cluster {
    /// Opens the store in a database. Rows that an earlier client left behind the log follow it
    /// first.
    ///
    /// # Errors
    /// [`Error::InUse`] if a client has it open that is not the one that is taken for lost;
    /// damage, or the database fails.
    pub fn open(database: Arc<dyn Database>, options: OpenOptions) -> Result<Cluster> {
        let header = header(&*database)?;
        let rows = Rows::new(database, Seal::of(&header));
        let end = match options.read_only {
            true => end_of_log(&rows)?,
            false => catch_up(&rows)?,
        };
        refuse_other(&rows, &options)?;
        let catalogue = Arc::new(Catalogue::read(&rows)?);
        let shared = Shared {
            blocks: Blocks::new(rows.clone(), options.cache_bytes),
            rows,
            id: header.id,
            session: options.session,
            read_only: options.read_only,
            clock: options.clock,
            space: options.space,
            publisher: Mutex::new(end),
            state: RwLock::new(State {
                catalogue,
                pending: Pending::default(),
                frozen: None,
                open: BTreeMap::new(),
                going: BTreeSet::new(),
                applied: 0,
                published: 0,
                stopped: None,
            }),
        };
        if !options.read_only {
            shared.publish_with(Some(Presence::Opened(options.name)), &mut |_| Ok(()))?;
        }
        Ok(Cluster { shared: Arc::new(shared) })
    }

    /// Gives a sign of life, by which others see that this client has the store open.
    ///
    /// # Errors
    /// The database fails; [`Error::ReadOnly`] once another client has taken this one for lost.
    pub fn beat(&self) -> Result<()> {
        let shared = &self.shared;
        let mut publisher = shared.publisher.lock();
        shared.state.read().refuse_stopped()?;
        let there = client(&shared.rows)?;
        let Some(own) = there.filter(|client| client.session == shared.session) else {
            return Err(
                shared.stop("another client has opened the store: this one was taken for lost")
            );
        };
        publisher.beat += 1;
        let record = ClientRecord { session: own.session, name: own.name, beat: publisher.beat };
        shared.rows.write(&[shared.rows.put(
            Table::Clients,
            keys::CLIENT.to_vec(),
            record.encode(),
        )])
    }

    /// Publishes what waits, and leaves the store. Nothing can be changed from then on.
    ///
    /// # Errors
    /// It could not be published.
    pub fn close(&self) -> Result<()> {
        if self.shared.read_only || self.shared.state.read().stopped.is_some() {
            return self.shared.state.read().refuse_stopped();
        }
        self.shared.publish_with(Some(Presence::Closed), &mut |_| Ok(()))?;
        self.shared.stop("it was closed");
        Ok(())
    }
}

fn refuse_other(rows: &Rows, options: &OpenOptions) -> Result<()> {
    match client(rows)? {
        Some(client) if Some(client.session) != options.lost => {
            let holder = format!("{} has it open; stop that one first", client.name);
            Err(Error::InUse { name: "the store".to_owned(), holder })
        }
        _ => Ok(()),
    }
}

/// The end of the log, where no rows wait for it.
fn end_of_log(rows: &Rows) -> Result<Publisher> {
    let number = rows.followed()?;
    if entry(rows, number + 1)?.is_some() {
        let text = "a client died before its rows followed the log: mount it once for writing";
        return Err(Error::ReadOnly(text.to_owned()));
    }
    let bytes = entry(rows, number)?.ok_or_else(|| missing(number))?;
    Ok(Publisher { number, hash: rows.hash(&bytes), beat: 0 })
}

/// Lets the rows follow the log to its end.
fn catch_up(rows: &Rows) -> Result<Publisher> {
    let mut number = rows.followed()?;
    let bytes = entry(rows, number)?.ok_or_else(|| missing(number))?;
    let mut hash = rows.hash(&bytes);
    while let Some(bytes) = entry(rows, number + 1)? {
        number += 1;
        let next = Entry::decode(&bytes)?;
        if next.previous != hash {
            let reason = "it does not follow the entry before it: the database lost a part";
            return Err(damaged("an entry of the log", number.to_string(), reason));
        }
        hash = rows.hash(&bytes);
        let heads = follow::heads(rows, &next.sections)?;
        rows.write(&follow::changes(rows, number, &next, &heads))?;
    }
    Ok(Publisher { number, hash, beat: 0 })
}

fn entry(rows: &Rows, number: u64) -> Result<Option<bytes::Bytes>> {
    rows.get(Table::Log, keys::number(number))
}

fn missing(number: u64) -> Error {
    damaged("the log", number.to_string(), "the last entry is not there")
}
