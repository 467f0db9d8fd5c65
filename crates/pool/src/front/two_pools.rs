//! Transactions over two pools, as a caller of one of them takes part.

use crate::commit::turn;
use crate::front::Pool;
use crate::snapshots::session::Session;
use crate::snapshots::two_pools::{self, Decide, Ending, OtherPool, Part};
use marram_format::transaction::TransactionState;
use marram_store::Result;

/// A transaction over two pools that is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwoPoolTransaction {
    /// The number of its first entry in the log of operations.
    pub number: u64,
    /// Its id, the same in both pools.
    pub id: [u8; 16],
    /// What is known of it here.
    pub state: TransactionState,
    /// The other pool.
    pub other: OtherPool,
    /// The datasets that it has changed here.
    pub datasets: Vec<String>,
    /// The numbers of the same, for [`Pool::end_views`].
    pub dataset_numbers: Vec<u64>,
    /// It is prepared, and its datasets can neither be read nor changed until it is decided.
    pub is_in_doubt: bool,
}

impl Pool {
    /// The same pool for a merge that is part of a transaction over two pools, in the pool that
    /// does not decide. The merge is made, and is undone again unless `decide` says that it is
    /// committed in the other pool; nobody sees it before. If that is not known, the datasets are
    /// in doubt until [`Pool::conclude_prepared`].
    #[must_use]
    pub fn preparing(&self, id: [u8; 16], other: OtherPool, decide: Decide<'static>) -> Pool {
        self.taking_part(Part::new(id, other, Some(decide)))
    }

    /// The same for a merge that decides: it is the commit of both. From then on
    /// [`Pool::two_pool_transactions`] has it, until [`Pool::forget_transaction`].
    #[must_use]
    pub fn deciding(&self, id: [u8; 16], other: OtherPool) -> Pool {
        self.taking_part(Part::new(id, other, None))
    }

    fn taking_part(&self, part: Part) -> Pool {
        Pool { session: Session { part: Some(part), ..self.session.clone() } }
    }

    /// Makes durable what was found when the pool was opened: a daemon that was killed may have
    /// left it in the host's cache alone, and another pool shall rely on it.
    ///
    /// # Errors
    /// A failed flush; then nothing is changed any more.
    pub fn settle_found(&self) -> Result<()> {
        turn::settle(&self.session.state)
    }

    /// Whether a transaction over two pools of this id is not over, or may be found again after a
    /// crash.
    pub fn knows_transaction(&self, id: [u8; 16]) -> bool {
        self.session.state.records.read().transactions().values().any(|record| record.id == id)
    }

    /// Whether a transaction was prepared here with this other pool, and its record is there, also
    /// one that goes with the next commit: a crash before that brings it back, and then the other
    /// pool's word is needed once more.
    pub fn may_ask_about(&self, id: [u8; 16], other_pool: [u8; 16]) -> bool {
        let records = self.session.state.records.read();
        records.transactions().values().any(|it| {
            let is_of = it.id == id && it.other_pool == other_pool;
            is_of && it.state != TransactionState::Decided
        })
    }

    /// The transactions over two pools that are not over.
    pub fn two_pool_transactions(&self) -> Vec<TwoPoolTransaction> {
        let state = &self.session.state;
        let all = state.records.read().kept_transactions();
        let is_in_doubt =
            |id: u64| state.running(id).is_some_and(|dataset| dataset.doubt.is_there());
        let row = |(number, record): (&u64, &marram_format::transaction::TransactionRecord)| {
            TwoPoolTransaction {
                number: *number,
                id: record.id,
                state: record.state,
                other: OtherPool { id: record.other_pool, path: record.other_path.clone() },
                datasets: record.datasets.iter().map(|it| state.name_of(it.dataset)).collect(),
                dataset_numbers: record.datasets.iter().map(|it| it.dataset).collect(),
                is_in_doubt: record.state == TransactionState::Prepared
                    && record.datasets.iter().any(|it| is_in_doubt(it.dataset)),
            }
        };
        all.iter().map(row).collect()
    }

    /// Ends what is prepared as the other pool has decided; or by hand, which the log of operations
    /// tells, and which stays known until it is [forgotten](Pool::forget_transaction).
    ///
    /// # Errors
    /// It is not prepared; its record does not lead to the states before it, and it is not
    /// committed: then nothing has changed; a failed commit.
    pub fn conclude_prepared(&self, number: u64, ending: Ending) -> Result<()> {
        two_pools::conclude_later(&self.session, number, ending)
    }

    /// Ends all views of these datasets that are open: what is kept in memory above them is not
    /// that of the state that they show now. They refuse everything; later ones do not.
    pub fn end_views(&self, datasets: &[u64]) {
        let running = datasets.iter().filter_map(|id| self.session.state.running(*id));
        running.for_each(|dataset| dataset.doubt.turn());
    }

    /// Forgets what was decided: the other pool needs it no more. Its record goes with the next
    /// commit, whatever that is made for; a crash before it brings it back.
    ///
    /// # Errors
    /// It is prepared, or not known; a pool that takes no changes.
    pub fn forget_transaction(&self, number: u64) -> Result<()> {
        two_pools::forget(&self.session, number)
    }
}
