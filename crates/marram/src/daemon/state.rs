//! What all threads of a daemon share: the home, its mounts, and what is under way.

use super::damage::DamageList;
use super::log::Log;
use super::mounts::MountTable;
use super::open_transactions::OpenTransactions;
use super::refusals::Refusals;
use super::steps::Steps;
use super::streams::{Held, Streams};
use crate::control::protocol::DamageRow;
use crate::engine::volume::{Opened, VolumeOptions};
use crate::engine::{Home, OpenMode};
use crate::error::{Error, Result};
use crate::options::{AccessTimes, MountOptions};
use crate::timestamps::now_seconds;
use marram_store::Source;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

/// What all threads of the daemon share.
pub(super) struct Daemon {
    /// What it serves.
    pub(super) home: Arc<dyn Home>,
    /// The home's number, in hexadecimal.
    pub(super) id: String,
    /// What is mounted.
    pub(super) mounts: Arc<MountTable>,
    /// Streams and comparisons that are under way.
    pub(super) streams: Streams,
    /// Transactions that are open.
    pub(super) transactions: OpenTransactions,
    /// Transactions over two pools that could not be ended.
    pub(super) refusals: Refusals,
    /// Damage that was met.
    pub(super) damage: Arc<DamageList>,
    /// Work on volumes that is going on.
    pub(super) steps: Steps,
    /// Held by the one operation on a whole dataset that is not open.
    pub(super) alone: Mutex<()>,
    /// Where it says what nobody asked.
    pub(super) log: Arc<Log>,
    /// How the home was opened.
    pub(super) mode: OpenMode,
    /// When the daemon began.
    pub(super) started_seconds: i64,
    /// Set when nothing is written any more.
    closed: OnceLock<Result<Closed>>,
}

/// How a home was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// With everything that was done.
    Durable,
    /// As it was when it was halted on demand: what it had not written is meant to be lost.
    AsItWas,
}

impl Daemon {
    /// The daemon of a home that was opened in `mode`.
    pub(super) fn new(home: Arc<dyn Home>, mode: OpenMode, log: Log) -> Daemon {
        let id = home.id();
        Daemon {
            home,
            id,
            mounts: Arc::default(),
            streams: Streams::default(),
            transactions: OpenTransactions::default(),
            refusals: Refusals::default(),
            damage: Arc::default(),
            steps: Steps::default(),
            alone: Mutex::new(()),
            log: Arc::new(log),
            mode,
            started_seconds: now_seconds(),
            closed: OnceLock::new(),
        }
    }

    /// Opens a dataset or snapshot that is to be mounted as `asked`. Waits for the steps that are
    /// going on: one may have a volume of it that is no longer open otherwise.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn open(
        &self,
        source: &Source,
        access_times: Option<AccessTimes>,
        asked: &MountOptions,
    ) -> Result<Opened> {
        self.steps.wait();
        let (log, damage) = (Arc::clone(&self.log), Arc::clone(&self.damage));
        let options = VolumeOptions {
            access_times,
            directory_access_times: !asked.no_directory_access_times,
            lazy_times: asked.lazy_times,
            on_damage: Arc::new(move |row: DamageRow| {
                let line = format!(
                    "damaged: {} at offset {} for {} bytes: {}",
                    row.place,
                    row.offset.unwrap_or_default(),
                    row.len.unwrap_or_default(),
                    row.reason
                );
                if damage.add(row) {
                    log.write(&line);
                }
            }),
        };
        self.home.open(source, options)
    }

    /// Makes everything durable, and writes nothing from then on. The mounts are shut. Comes first
    /// with the last mount, if the kernel tells of its end, and else when the daemon ends.
    pub(super) fn close_for_good(&self) -> Result<Closed> {
        let close = || {
            self.streams.wait_until_none();
            match self.home.is_halted() {
                true => Ok(Closed::AsItWas),
                false => self.home.close_for_good().map(|()| Closed::Durable),
            }
        };
        self.closed.get_or_init(close).clone()
    }

    /// Whether everything that was done is durable, and the home is closed.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.closed.get(), Some(Ok(Closed::Durable)))
    }

    /// Counts a stream, a comparison or a pass for as long as the answer lives.
    ///
    /// # Errors
    /// The daemon ends.
    pub(super) fn hold_stream(&self) -> Result<Held<'_>> {
        // Counted before it is asked: the end of the mounts waits for it from then on.
        let held = self.streams.begin();
        if self.mounts.is_shut() {
            return Err(Error::in_use("the pool is being closed"));
        }
        Ok(held)
    }
}
