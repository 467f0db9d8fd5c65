//! A store in a database that somebody runs anyway: the cluster home.
//!
//! A **publication** is one entry of a log, put under the next number if that is free: the only
//! atomic step that a [`Database`] must have. **Rows** follow the log, and are what reads go by.
//! **Blocks** are named by a keyed hash of their content, so equal content is stored once.
//!
//! A dataset writes on a **line**. The snapshots of a line cut it into **periods**. A row has the
//! period of its birth, and if a snapshot needs it beyond its end, the period of its death: so a
//! snapshot or a fork is one entry whatever the size. `docs/cluster-format.md` specifies the bytes.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`database`] | what a database must give |
//! | [`memory`], [`sqlite`] | a database in memory, and SQLite |
//! | [`server`], [`postgres`], [`mongo`] | what servers have in common, PostgreSQL, and MongoDB |
//! | [`Objects`] | blocks outside of the database |
//! | [`directory`], [`bucket`] | as files of a directory, and as objects of a bucket |
//! | `writers` | threads that write them |
//! | `holder` | which database holds the place of blocks outside of it |
//! | [`mod@format`] | rows and entries as bytes |
//! | `rows`, `blocks` | sealed rows and verified blocks |
//! | `catalogue`, `draft` | datasets and lines, and how an entry changes them |
//! | `chain` | the items of a state, read along its lines |
//! | `pending` | batches that wait for their publication |
//! | `known` | what stands under keys that are about to change |
//! | `delta` | new content of a file as slices of what it replaces |
//! | `locks` | the locks that users of this client hold |
//! | `follow` | rows brought up to an entry |
//! | `state` | an open store: how it is opened, publishes, and takes away what nothing needs |
//! | `view` | a dataset or snapshot that is open |
//! | [`verify`] | a verifier that shares only the format with the rest |

mod blocks;
pub mod bucket;
mod catalogue;
mod chain;
pub mod database;
mod delta;
pub mod directory;
mod draft;
mod failure;
mod follow;
pub mod format;
mod holder;
mod item_cache;
mod known;
mod locks;
pub mod memory;
pub mod mongo;
mod objects;
mod pending;
pub mod postgres;
mod rows;
pub mod server;
pub mod sqlite;
mod state;
pub mod verify;
mod view;
mod writers;

pub use database::Database;
pub use format::Stance;
pub use objects::{Objects, marker};
pub use state::{
    Client, Clock, Clocks, Cluster, Glance, Heard, Judge, Lost, NewStore, OpenOptions, SpaceHeld,
    SpaceProbe, Status, Swept, glance, locked_ranges, make,
};
