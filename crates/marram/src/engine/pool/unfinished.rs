//! Transactions over two pools that are not over: what is known of them, and how they end.

use crate::control::protocol::{PoolPlace, Resolution, TwoPoolRow};
use crate::error::{Error, Result};
use crate::names::hexadecimal;
use marram_pool::{Pool, TransactionState, TwoPoolTransaction};

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
    let wanted = id_of(id)?;
    let found = pool.two_pool_transactions().into_iter().find(|row| row.id == wanted);
    let missing =
        || Error::not_found(format!("no transaction {id} over two pools is unfinished here"));
    let number = found.ok_or_else(missing)?.number;
    match resolution {
        Resolution::Committed => pool.conclude_prepared(number, true, false)?,
        Resolution::Aborted => pool.conclude_prepared(number, false, false)?,
        Resolution::CommittedByHand => pool.conclude_prepared(number, true, true)?,
        Resolution::AbortedByHand => pool.conclude_prepared(number, false, true)?,
        Resolution::Forgotten => pool.forget_transaction(number)?,
    }
    Ok(())
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
