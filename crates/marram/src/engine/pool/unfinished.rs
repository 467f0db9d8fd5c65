//! Transactions over two pools that are not over: what is known of them, and how they end.

use crate::control::protocol::{JointId, PoolPlace, Resolution, TwoPoolRow};
use crate::engine::mounts::Mounts;
use crate::engine::posix::posix;
use crate::error::{Error, Result};
use crate::names::hexadecimal;
use marram_pool::{Ending, Pool, TransactionState, TwoPoolTransaction};
use marram_posix::{Posix, turn_together};
use marram_store::Source;
use std::collections::BTreeSet;
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
/// There is none of this id with this other pool; it is at another stage; a failed commit.
pub(super) fn resolve(pool: &Pool, of: &JointId, resolution: Resolution) -> Result<()> {
    let number = find(pool, of, resolution)?.number;
    match ending_of(resolution) {
        Some(ending) => pool.conclude_prepared(number, ending)?,
        None => pool.forget_transaction(number)?,
    }
    Ok(())
}

/// The same below mounts. Those that have been there since before the doubt have seen the state
/// before alone: if the other one holds, they go on with that. If it cannot be read, they are at
/// their end.
///
/// # Errors
/// As for [`resolve`]; a dataset is being mounted or unmounted at the moment; a failed read when it
/// has ended.
pub(super) fn resolve_below(
    pool: &Pool,
    mounts: &dyn Mounts,
    (of, resolution): (&JointId, Resolution),
) -> Result<()> {
    let found = find(pool, of, resolution)?;
    let Some(ending) = ending_of(resolution).filter(|ending| ending.committed) else {
        return resolve(pool, of, resolution);
    };
    // A record that is damaged may name one twice, and what holds it would wait for itself.
    let lives = found.datasets.iter().filter_map(|name| name.parse().ok());
    let lives: BTreeSet<Source> = lives.map(Source::live).collect();
    let lives: Vec<Source> = lives.into_iter().collect();
    let held = mounts.hold_all(&lives)?;
    let mut in_use = Vec::new();
    for (live, volume) in lives.iter().zip(&held.in_use) {
        if let Some(volume) = volume {
            in_use.push((live, posix(Arc::clone(volume))?));
        }
    }
    let files: Vec<&Posix> = in_use.iter().map(|(_, files)| &**files).collect();
    let ending = Ending { views_go_on: true, ..ending };
    let mut has_ended = false;
    let conclude = || -> Result<()> {
        pool.conclude_prepared(found.number, ending)?;
        has_ended = true;
        Ok(())
    };
    let concluded = turn_together(&files, conclude, || pool.end_views(&found.dataset_numbers));
    drop(held);
    if has_ended {
        in_use.iter().for_each(|(live, files)| mounts.all_changed(live, &**files));
    }
    concluded.map_err(|error| {
        if !has_ended {
            return error;
        }
        let error = error.during("it has ended, and a dataset cannot be read anew");
        mounts.log(&format!("transaction {}: {error}", of.id));
        error.hint("unmount its datasets and mount them again")
    })
}

/// Clients choose ids: one of the same id with a third pool is another transaction. A pool that was
/// made by hand may have several of one id with one other pool: what is said of them holds for
/// all, and they end one after the other, each by what can end it.
fn find(pool: &Pool, of: &JointId, resolution: Resolution) -> Result<TwoPoolTransaction> {
    let (id, other) = (id_of(&of.id)?, id_of(&of.other)?);
    let mut all = pool.two_pool_transactions();
    all.retain(|row| row.id == id && row.other.id == other);
    let is_decided = ending_of(resolution).is_none();
    let can_end =
        |row: &TwoPoolTransaction| (row.state != TransactionState::Prepared) == is_decided;
    let at = all.iter().position(can_end).unwrap_or(0);
    all.into_iter().nth(at).ok_or_else(|| {
        let JointId { id, other } = of;
        Error::not_found(format!("no transaction {id} with pool {other} is unfinished here"))
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

#[cfg(test)]
mod tests {
    use super::{resolve, rows};
    use crate::control::protocol::{JointId, Resolution, TwoPoolRow};
    use crate::names::hexadecimal;
    use marram_device::{Device, MemoryDevice};
    use marram_history::{MergeOptions, MergePart, MergeSides, Touched, merge_together};
    use marram_pool::{Author, CreateOptions, OpenOptions, OtherPool, Pool, Verdict, create};
    use marram_posix::{Posix, PosixOptions, hold_together};
    use marram_store::{DatasetName, Source, Store};
    use marram_vfs::Ino;
    use std::sync::Arc;

    fn pool() -> Arc<Pool> {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 << 20));
        let fresh = CreateOptions {
            label: String::new(),
            properties: Default::default(),
            pool_id: [9; 16],
            secret: 9,
            now_seconds: 0,
        };
        create(&[Arc::clone(&device)], &fresh).unwrap();
        Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap()
    }

    /// Has a transaction in a dataset prepared that the other pool does not decide.
    fn prepared(pool: &Arc<Pool>, dataset: &str, (id, other): (u8, u8)) {
        let dataset: DatasetName = dataset.parse().unwrap();
        let store: &dyn Store = &**pool;
        let view = store.open(&Source::live(dataset.clone())).unwrap();
        let parent = Posix::new(view, PosixOptions::default()).unwrap();
        let fork = DatasetName::of_transaction(&format!("{dataset}{id}")).unwrap();
        store.begin_fork(&dataset, &fork, 1).unwrap();
        let fork = Source::live(fork);
        let base = store.report(&fork).unwrap().origin.unwrap();
        let sides = MergeSides { dataset: &dataset, base: &base, fork: &fork, root: Ino::ROOT };
        let strict = |_: &Touched| Vec::new();
        let options =
            MergeOptions { strict: Some(&strict), always: true, ..MergeOptions::default() };
        let acting = pool.acting_for(Author { user: Some(0), command: "tx run".to_owned() });
        let other = OtherPool { id: [other; 16], path: "/other".to_owned() };
        let acting = acting.preparing([id; 16], other, Arc::new(|| Verdict::Unknown));
        let part = MergePart { parent: &parent, sides, options: &options };
        merge_together(&acting, &[part], &|| Ok(hold_together(&[&parent]))).unwrap_err();
    }

    fn named(id: u8, other: u8) -> JointId {
        JointId { id: hexadecimal(&[id; 16]), other: hexadecimal(&[other; 16]) }
    }

    #[test]
    fn what_a_pool_says_holds_for_what_was_prepared_with_it_alone() {
        let pool = pool();
        for dataset in ["a", "b", "c"] {
            pool.create(&dataset.parse().unwrap(), &Default::default()).unwrap();
        }
        prepared(&pool, "a", (7, 1));
        prepared(&pool, "b", (7, 2));
        prepared(&pool, "c", (8, 1));
        let left = || {
            let mut all: Vec<String> =
                rows(&pool).into_iter().map(|row| row.datasets[0].clone()).collect();
            all.sort();
            all
        };
        assert_eq!(left(), ["a", "b", "c"]);
        for of in [named(7, 3), named(8, 2), named(9, 1)] {
            let refused = resolve(&pool, &of, Resolution::Committed).unwrap_err();
            assert!(refused.message.contains(&of.id) && refused.message.contains(&of.other));
        }
        // What is prepared is decided, and not forgotten.
        resolve(&pool, &named(7, 1), Resolution::Forgotten).unwrap_err();
        assert_eq!(left(), ["a", "b", "c"], "nothing has changed");
        resolve(&pool, &named(7, 2), Resolution::Aborted).unwrap();
        assert_eq!(left(), ["a", "c"]);
        resolve(&pool, &named(7, 1), Resolution::CommittedByHand).unwrap();
        assert_eq!(left(), ["a", "c"], "it is known until the other pool is heard");
        assert_eq!(rows(&pool)[0].state, TwoPoolRow::COMMITTED_BY_HAND);
        resolve(&pool, &named(7, 1), Resolution::Forgotten).unwrap();
        resolve(&pool, &named(8, 1), Resolution::Committed).unwrap();
        assert!(left().is_empty());
    }
}
