//! Merges and updates of a fork beside the model's: both meet the same kinds of conflicts, and what
//! is decided about each path comes to the same.

use crate::home::Clashes;
use crate::random::Random;
use marram_model::{Clash, Decisions, Side};
use marram_vfs::Error;
use std::collections::BTreeSet;

/// What became of a merge or update.
pub(crate) enum Brought {
    /// Both did it; so many files were decided.
    Done { decided: usize },
    /// Both refused it for conflicts.
    Refused(Clashes),
    /// The real one had no space for it.
    WithoutSpace,
}

/// Compares what the real one answers with the model, which does it only if there was space for it.
pub(crate) fn judged(
    real: marram_vfs::Result<Clashes>,
    model: impl FnOnce() -> Clashes,
) -> Result<Brought, String> {
    let real = match real {
        Err(Error::NoSpace) => return Ok(Brought::WithoutSpace),
        Err(error) => return Err(format!("refused with {error:?}")),
        Ok(real) => real,
    };
    let clashes = model();
    let kinds =
        |clashes: &Clashes| clashes.iter().map(|(clash, _)| *clash).collect::<BTreeSet<_>>();
    if kinds(&real) != kinds(&clashes) {
        return Err(format!("met {real:?}; the model {clashes:?}"));
    }
    match real.is_empty() {
        true => Ok(Brought::Done { decided: 0 }),
        false => Ok(Brought::Refused(real)),
    }
}

/// Merges or updates by `bring`. If all that is in the way is in content and attributes of files
/// that `is_known`, each is decided by its path, as a user would, and that is done.
pub(crate) fn decided(
    decides: Option<u64>,
    is_known: &dyn Fn(&[u8]) -> bool,
    bring: &mut dyn FnMut(&Decisions) -> Result<Brought, String>,
) -> Result<Brought, String> {
    let brought = bring(&Decisions::new())?;
    let (Brought::Refused(clashes), Some(seed)) = (&brought, decides) else { return Ok(brought) };
    let is_of_file =
        |(clash, _): &(Clash, Vec<u8>)| matches!(clash, Clash::Content | Clash::Attribute);
    let is_decidable = |at: &(Clash, Vec<u8>)| is_of_file(at) && is_known(&at.1);
    if !clashes.iter().all(is_decidable) {
        return Ok(brought);
    }
    let mut random = Random::new(seed);
    let paths: BTreeSet<&Vec<u8>> = clashes.iter().map(|(_, path)| path).collect();
    let mut decide =
        |path: &Vec<u8>| (path.clone(), if random.once_in(2) { Side::Ours } else { Side::Theirs });
    let decisions: Decisions = paths.into_iter().map(&mut decide).collect();
    match bring(&decisions)? {
        Brought::Done { .. } => Ok(Brought::Done { decided: decisions.len() }),
        Brought::WithoutSpace => Ok(Brought::WithoutSpace),
        Brought::Refused(left) => Err(format!("{decisions:?} leave the conflicts {left:?}")),
    }
}
