//! Forks that transactions work in. Each is of one life of a client, and goes with that.
//!
//! What a client had waiting for such a fork is lost with the client. So the fork says whose it is,
//! and no other client, nor the same one when it has come back, brings it into its dataset.

use super::{Draft, IsOpen, identity_text};
use crate::catalogue::Catalogue;
use crate::format::{Record, Role};
use marram_store::{DatasetName, Error, Result, Source};

/// The property of a transaction's fork: the session of its client, in hexadecimal.
const SESSION: &str = ".session";

/// The forks of transactions whose clients are not there, in the order in which they began.
pub(crate) fn left_of(catalogue: &Catalogue, is_there: &dyn Fn(&str) -> bool) -> Vec<Source> {
    let fork = |(_, record): (u64, &Record)| {
        let name: DatasetName = match record.role {
            Role::Dataset { is_fork: true, .. } => record.name.parse().ok()?,
            _ => return None,
        };
        let session = record.properties.get(SESSION).map_or("", String::as_str);
        let is_left = name.transaction().is_some() && !is_there(session);
        is_left.then(|| Source::live(name))
    };
    catalogue.records().filter_map(fork).collect()
}

/// Whether a dataset is the fork of a transaction of the client with this session.
pub(crate) fn is_of(catalogue: &Catalogue, fork: &DatasetName, session: &[u8; 16]) -> Result<bool> {
    let number = catalogue.dataset(fork)?;
    let of = catalogue.record(number).and_then(|record| record.properties.get(SESSION));
    Ok(of == Some(&identity_text(session)))
}

/// Refuses what would let something outlive the fork of a transaction, or be taken for one.
pub(super) fn refuse_transaction(dataset: &DatasetName) -> Result<()> {
    match dataset.transaction() {
        Some(_) => Err(Error::Invalid(format!("{dataset} is the fork of a transaction"))),
        None => Ok(()),
    }
}

impl Draft {
    /// Makes the fork that a transaction of the client with this session works in.
    pub(crate) fn begin_transaction(
        &mut self,
        (dataset, root_object): (&DatasetName, u64),
        name: &DatasetName,
        session: &[u8; 16],
    ) -> Result<()> {
        self.fork(dataset, name, root_object)?;
        let number = self.catalogue.dataset(name)?;
        let of = (SESSION.to_owned(), identity_text(session));
        self.change(number, |record| record.properties.extend([of]))
    }

    /// Refuses to merge the fork of a transaction that was begun by another client, or by this one
    /// before it was taken for lost.
    pub(crate) fn refuse_foreign(&self, fork: &Source, session: &[u8; 16]) -> Result<()> {
        let is_transaction = fork.dataset.transaction().is_some();
        match is_transaction && !is_of(&self.catalogue, &fork.dataset, session)? {
            true => Err(Error::NoDataset(format!("{fork} of this client"))),
            false => Ok(()),
        }
    }

    /// Destroys the forks of transactions whose clients are not there, but for those that are open
    /// here. Returns what goes.
    pub(crate) fn end_transactions(
        &mut self,
        is_there: &dyn Fn(&str) -> bool,
        is_open: IsOpen<'_>,
    ) -> Result<Vec<Source>> {
        let mut gone = Vec::new();
        // One that began in another one goes before that.
        for fork in left_of(&self.catalogue, is_there).into_iter().rev() {
            match self.destroy(&[fork], is_open) {
                Ok(names) => gone.extend(names),
                Err(Error::InUse { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(gone)
    }
}
