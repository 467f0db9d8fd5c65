//! Transactions over two pools that are not over: what is known of them, and how they end.

use crate::control::protocol::{PoolPlace, Resolution, TwoPoolRow};
use crate::engine::mounts::Mounts;
use crate::engine::posix::posix;
use crate::error::{Error, Result};
use crate::names::hexadecimal;
use marram_pool::{Ending, Pool, TransactionState, TwoPoolTransaction};
use marram_posix::{Posix, turn_together};
use marram_store::Source;
use std::sync::Arc;

/// The transactions over two pools that are not over.
pub(super) fn rows(pool: &Pool) -> Vec<TwoPoolRow> {
    let row = |found: TwoPoolTransaction| TwoPoolRow {
        id: hexadecimal(&found.id),
        state: match found.state {
            TransactionState::Prepared => TwoPoolRow::PREPARED,
            TransactionState::Decided => TwoPoolRow::DECIDED,
            TransactionState::CommittedByHand => TwoPoolRow::COMMITTED_BY_HAND,
            TransactionState::AbortedByHand => TwoPoolRow::ABORTED_BY_HAND,
        }
        .to_owned(),
        is_in_doubt: found.is_in_doubt,
        datasets: found.datasets,
        other: PoolPlace { id: hexadecimal(&found.other.id), path: found.other.path.into() },
    };
    pool.two_pool_transactions().into_iter().map(row).collect()
}

/// Ends or forgets one that is not over.
///
/// # Errors
/// There is none of this id; it is at another stage; a failed commit.
pub(super) fn resolve(pool: &Pool, id: &str, resolution: Resolution) -> Result<()> {
    let number = find(pool, id)?.number;
    match ending_of(resolution) {
        Some(ending) => pool.conclude_prepared(number, ending)?,
        None => pool.forget_transaction(number)?,
    }
    Ok(())
}

/// The same below mounts. Those that have been there since before the doubt have seen the state
/// before alone: if the other one holds, they go on with that.
///
/// # Errors
/// As for [`resolve`]; a dataset is being mounted or unmounted at the moment.
pub(super) fn resolve_below(
    pool: &Pool,
    mounts: &dyn Mounts,
    (id, resolution): (&str, Resolution),
) -> Result<()> {
    let found = find(pool, id)?;
    let Some(ending) = ending_of(resolution).filter(|ending| ending.committed) else {
        return resolve(pool, id, resolution);
    };
    let lives = found.datasets.iter().filter_map(|name| name.parse().ok());
    let lives: Vec<Source> = lives.map(Source::live).collect();
    let held = mounts.hold_all(&lives)?;
    let mut in_use = Vec::new();
    for (live, volume) in lives.iter().zip(&held.in_use) {
        if let Some(volume) = volume {
            in_use.push((live, posix(Arc::clone(volume))?));
        }
    }
    let files: Vec<&Posix> = in_use.iter().map(|(_, files)| &**files).collect();
    let ending = Ending { views_go_on: true, ..ending };
    let ended = turn_together(&files, || -> Result<()> {
        pool.conclude_prepared(found.number, ending)?;
        Ok(())
    });
    drop(held);
    if ended.is_ok() {
        in_use.iter().for_each(|(live, files)| mounts.all_changed(live, &**files));
    }
    ended
}

fn find(pool: &Pool, id: &str) -> Result<TwoPoolTransaction> {
    let wanted = id_of(id)?;
    let found = pool.two_pool_transactions().into_iter().find(|row| row.id == wanted);
    found.ok_or_else(|| {
        Error::not_found(format!("no transaction {id} over two pools is unfinished here"))
    })
}

/// How what is prepared ends; nothing if it has ended, and is to be forgotten.
fn ending_of(resolution: Resolution) -> Option<Ending> {
    let ending = |committed, by_hand| Ending { committed, by_hand, views_go_on: false };
    match resolution {
        Resolution::Committed => Some(ending(true, false)),
        Resolution::Aborted => Some(ending(false, false)),
        Resolution::CommittedByHand => Some(ending(true, true)),
        Resolution::AbortedByHand => Some(ending(false, true)),
        Resolution::Forgotten => None,
    }
}

/// An id of 32 digits of base 16.
///
/// # Errors
/// It is none.
pub(super) fn id_of(text: &str) -> Result<[u8; 16]> {
    let wrong = || Error::usage(format!("{text:?} is no id of 32 digits of base 16"));
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    u128::from_str_radix(text, 16).map(u128::to_be_bytes).map_err(|_| wrong())
}
