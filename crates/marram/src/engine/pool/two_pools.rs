//! Transactions over two pools, as a pool takes part
//! (docs/decisions/0090-transactions-over-two-pools.md).

use super::home::PoolHome;
use super::open::acting_for;
use super::transactions::merge_orders;
use super::unfinished::{id_of, resolve_below, rows};
use crate::control::protocol::{
    CommitSummary, JointCommit, JointId, Resolution, Standing, TwoPoolRow,
};
use crate::engine::home::{CommitOrder, Decide, TwoPools};
use crate::engine::mounts::Mounts;
use crate::error::{Error, Result};
use marram_pool::{Health, OtherPool, Pool, Verdict};
use std::sync::Arc;

impl TwoPools for PoolHome {
    fn prepare(
        &self,
        orders: &[CommitOrder<'_>],
        mounts: &dyn Mounts,
        joint: &JointCommit,
        decide: Decide,
    ) -> Result<Vec<CommitSummary>> {
        let decide = move || match decide() {
            Some(true) => Verdict::Committed,
            Some(false) => Verdict::Aborted,
            None => Verdict::Unknown,
        };
        let acting = acting_in(self, orders)?;
        let pool = acting.preparing(id_of(&joint.id)?, other_of(joint)?, Arc::new(decide));
        merge_orders(self, &pool, (orders, mounts), true)
    }

    fn decide(
        &self,
        orders: &[CommitOrder<'_>],
        mounts: &dyn Mounts,
        joint: &JointCommit,
    ) -> Result<Vec<CommitSummary>> {
        let acting = acting_in(self, orders)?;
        let pool = acting.deciding(id_of(&joint.id)?, other_of(joint)?);
        merge_orders(self, &pool, (orders, mounts), true)
    }

    fn standing(&self, of: &JointId) -> Standing {
        let is_durable = self.pool().settle_found().is_ok();
        let mut rows = rows(self.pool());
        rows.retain(|row| row.joint_id() == *of);
        Standing {
            is_open: false,
            is_in_use: false,
            is_decided: rows.iter().any(|row| row.state == TwoPoolRow::DECIDED),
            is_prepared: id_of(&of.id)
                .and_then(|id| Ok((id, id_of(&of.other)?)))
                .is_ok_and(|(id, other)| self.pool().may_ask_about(id, other)),
            has_failed: !is_durable || self.pool().status().health != Health::Online,
        }
    }

    fn knows(&self, id: &str) -> bool {
        id_of(id).is_ok_and(|id| self.pool().knows_transaction(id))
    }

    fn unfinished(&self) -> Vec<TwoPoolRow> {
        rows(self.pool())
    }

    fn resolve(&self, of: &JointId, resolution: Resolution, mounts: &dyn Mounts) -> Result<()> {
        resolve_below(self.pool(), mounts, (of, resolution))
    }
}

/// The pool on behalf of the author of a transaction.
fn acting_in(home: &PoolHome, orders: &[CommitOrder<'_>]) -> Result<Pool> {
    let first = orders.first().ok_or_else(|| Error::failed("no dataset takes part"))?;
    Ok(acting_for(home.pool(), first.author))
}

fn other_of(joint: &JointCommit) -> Result<OtherPool> {
    let path = joint.other.path.to_string_lossy().into_owned();
    Ok(OtherPool { id: id_of(&joint.other.id)?, path })
}
