//! A store is made, looked at, opened and closed.

use super::company::{Company, Session};
use super::join::{Judge, in_use};
use super::taking::{Whole, clients, entry, missing, whole};
use super::{Clock, Cluster, Publisher, Shared, SpaceProbe, State};
use crate::blocks::Blocks;
use crate::bucket;
use crate::catalogue::Catalogue;
use crate::database::{Database, Range, Table};
use crate::delta::Replaced;
use crate::draft::Draft;
use crate::follow;
use crate::format::{ClientRecord, Entry, Header, LockRow, Presence, Seal, Stance, keys};
use crate::item_cache::ItemCache;
use crate::known::Known;
use crate::objects::{self, Objects};
use crate::pending::Pending;
use crate::rows::Rows;
use marram_store::{DatasetName, Error, Properties, Result, Space};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};

/// One part in so many of the memory is for items.
const ITEMS_PART: u64 = 4;

/// A store to make. All three numbers are random.
pub struct NewStore {
    /// Its number among all stores.
    pub id: [u8; 16],
    /// The key of its hashes.
    pub key: [u8; 32],
    /// Seconds since 1970.
    pub now: i64,
    /// Where its blocks are to lie, if not in the database.
    pub objects: Option<Arc<dyn Objects>>,
}

/// A client that has a store open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// A number of its own.
    pub session: [u8; 16],
    /// What it says of itself.
    pub name: String,
    /// Since when: seconds since 1970, by its clock.
    pub since: i64,
    /// Grows for as long as it lives.
    pub beat: u64,
    /// How it is there. One that is alone has not answered those that came since.
    pub stance: Stance,
}

impl Client {
    pub(super) fn of(session: Session, record: ClientRecord) -> Client {
        let ClientRecord { stance, since, name, beat } = record;
        Client { session, name, since, beat, stance }
    }
}

/// What is known of a store that is not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Its number among all stores.
    pub id: [u8; 16],
    /// The clients that have it open, or had when they died.
    pub clients: Vec<Client>,
}

/// How to open a store.
pub struct OpenOptions {
    /// A random number.
    pub session: [u8; 16],
    /// What this client says of itself: where it runs, and how it is found.
    pub name: String,
    /// Judges those that have the store open already.
    pub judge: Judge,
    /// Nothing is published. Only for a store that no client has open.
    pub read_only: bool,
    /// Memory for contents of blocks and for items, in bytes.
    pub cache_bytes: u64,
    /// Gives the seconds since 1970.
    pub clock: Clock,
    /// Tells how much space there is where the database lies, if that is known.
    pub space: Option<SpaceProbe>,
    /// How a bucket is reached, if the blocks lie in one.
    pub bucket: Option<bucket::Access>,
}

/// Makes a store with an empty root dataset in a database that has none.
///
/// # Errors
/// There is one, or the database fails.
pub fn make(database: Arc<dyn Database>, new: &NewStore) -> Result<()> {
    let has_blocks_outside = new.objects.is_some();
    let header = Header { id: new.id, key: new.key, has_blocks_outside };
    let rows = Rows::new(Arc::clone(&database), Seal::of(&header));
    let root = first_entry(new.now)?;
    let bytes = root.encode();
    // The header comes last: without it there is no store, and a crash leaves rows to write over.
    rows.write(&follow::changes(&rows, 1, &root, &follow::Heads::new()))?;
    let place = new.objects.as_ref().map(|objects| objects.place().encode());
    let place = place.map(|place| rows.put(Table::Header, keys::BLOCKS.to_vec(), place));
    rows.write(&place.into_iter().collect::<Vec<_>>())?;
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
    let clients = clients(&Rows::new(database, Seal::of(&header)))?.into_iter();
    let clients = clients.map(|(session, record)| Client::of(session, record)).collect();
    Ok(Glance { id: header.id, clients })
}

/// How many ranges of objects each client of a store has locked, by session, as far as others can
/// know: one that has no others beside it keeps its locks in memory.
///
/// # Errors
/// There is no store, it is of a newer version, or the database fails.
pub fn locked_ranges(database: Arc<dyn Database>) -> Result<BTreeMap<[u8; 16], usize>> {
    let header = header(&*database)?;
    let mut locked = BTreeMap::new();
    for (_, row) in Rows::new(database, Seal::of(&header)).all(Table::Locks)? {
        for (session, ranges) in LockRow::decode(&row)?.0 {
            *locked.entry(session).or_default() += ranges.len();
        }
    }
    Ok(locked)
}

impl Cluster {
    /// Opens the store in a database, beside the clients that have it open. Rows that an earlier
    /// client left behind the log follow it first.
    ///
    /// # Errors
    /// What the judge refuses; [`Error::InUse`] beside others for reading only; another database
    /// holds the blocks; damage, or the database fails.
    pub fn open(database: Arc<dyn Database>, options: OpenOptions) -> Result<Cluster> {
        let header = header(&*database)?;
        let objects = objects::of_store(&header, &*database, options.bucket.as_ref())?;
        Cluster::opened(database, &header, objects, options)
    }

    /// The same of a store whose blocks lie outside of the database, which are reached as the
    /// caller says.
    ///
    /// # Errors
    /// Those of [`Cluster::open`]; or the blocks lie in the database.
    pub fn open_with(
        database: Arc<dyn Database>,
        objects: Arc<dyn Objects>,
        options: OpenOptions,
    ) -> Result<Cluster> {
        let header = header(&*database)?;
        if !header.has_blocks_outside {
            return Err(Error::Invalid("the blocks of the store lie in the database".to_owned()));
        }
        Cluster::opened(database, &header, Some(objects), options)
    }

    fn opened(
        database: Arc<dyn Database>,
        header: &Header,
        objects: Option<Arc<dyn Objects>>,
        options: OpenOptions,
    ) -> Result<Cluster> {
        let rows = Rows::new(database, Seal::of(header));
        let found = match options.read_only {
            true => still(&rows, &options.judge)?,
            false => whole(&rows)?,
        };
        let items_bytes = options.cache_bytes / ITEMS_PART;
        let shared = Shared {
            space: objects.as_ref().map(space_of).or(options.space),
            blocks: Blocks::new(rows.clone(), objects, options.cache_bytes - items_bytes),
            items: ItemCache::new(usize::try_from(items_bytes).unwrap_or(0), !options.read_only),
            rows,
            id: header.id,
            session: Mutex::new(options.session),
            name: options.name,
            judge: options.judge,
            waking: Mutex::new(()),
            since: AtomicI64::new((options.clock)()),
            uses: AtomicU64::new(0),
            read_only: options.read_only,
            clock: options.clock,
            locks: Mutex::default(),
            publisher: Mutex::new(Publisher {
                number: found.number,
                hash: found.hash,
                known: Known::default(),
                replaced: Replaced::default(),
            }),
            pages: RwLock::new(()),
            end: AtomicU64::new(found.number),
            state: RwLock::new(State {
                catalogue: Arc::new(found.catalogue),
                pending: Pending::default(),
                frozen: None,
                open: BTreeMap::new(),
                going: BTreeSet::new(),
                applied: 0,
                published: 0,
                stopped: None,
                is_alone: options.read_only,
                is_answering: false,
                rests: false,
                is_expelled: false,
                is_leaving: false,
                lives: 0,
                company: found.company,
                recuts: BTreeMap::new(),
            }),
        };
        if !options.read_only {
            shared.blocks.hold.take(shared.session())?;
            shared.join()?;
        }
        let (shared, has_merged) = (Arc::new(shared), Arc::default());
        Ok(Cluster { shared, author: None, undoes: 0, has_merged })
    }

    /// Publishes what waits, and leaves the store. Nothing can be changed from then on.
    ///
    /// # Errors
    /// It could not be published.
    pub fn close(&self) -> Result<()> {
        if self.shared.read_only || self.shared.state.read().stopped.is_some() {
            return self.shared.state.read().refuse_stopped();
        }
        self.shared.state.write().is_leaving = true;
        let said = self.shared.say(&|_| Ok(Presence::Closed));
        if said.is_err() {
            self.shared.state.write().is_leaving = false;
        }
        said?;
        let held = self.shared.blocks.hold.take_after_uploads(self.shared.session());
        self.shared.stop("it was closed");
        held
    }
}

/// Content takes the space of the place where it lies.
fn space_of(objects: &Arc<dyn Objects>) -> SpaceProbe {
    let objects = Arc::clone(objects);
    Arc::new(move || objects.space().unwrap_or(Space::UNCOUNTED))
}

/// A store that no client has open, where no rows wait for the log.
fn still(rows: &Rows, judge: &Judge) -> Result<Whole> {
    let there = clients(rows)?;
    let of = |(session, record): (&Session, &ClientRecord)| Client::of(*session, record.clone());
    let lost = match there.is_empty() {
        true => Vec::new(),
        false => judge(&there.iter().map(of).collect::<Vec<_>>())?,
    };
    if let Some((_, client)) =
        there.iter().find(|(session, _)| !lost.iter().any(|it| it.session == **session))
    {
        return Err(in_use(&client.name));
    }
    let number = rows.followed()?;
    if entry(rows, number + 1)?.is_some() {
        let text = "a client died before its rows followed the log: mount it once for writing";
        return Err(Error::ReadOnly(text.to_owned()));
    }
    let bytes = entry(rows, number)?.ok_or_else(|| missing(number))?;
    let at = (number, Entry::decode(&bytes)?.seconds);
    let (catalogue, company) = (Catalogue::read(rows)?, Company::at(at, there));
    Ok(Whole { number, hash: rows.hash(&bytes), catalogue, company })
}
