//! What a store gives beside its core, so that its snapshots can be sent and others received.

use marram_format::stream::{SnapshotIdentity, StreamBegin};
use marram_store::{Block, DatasetName, Key, Result, Source, Store, StoredForm};

/// How a dataset has changed since one of its snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// In nothing.
    Nothing,
    /// In access times alone, as somebody has looked at files, or in what had no name and went.
    Accessed,
    /// In something else.
    Changed,
}

/// What a stream brings, and where it goes.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The dataset that nobody sees, into which it has come.
    pub hidden: DatasetName,
    /// The snapshot that it is to be.
    pub snapshot: Source,
    /// The snapshot that it goes on from, of the same dataset; none of a full stream.
    pub base: Option<Source>,
    /// The snapshot that the dataset is still to be like when it is shown, but for access times:
    /// that one, or the one that keeps what was changed since; none of a full stream.
    pub stands: Option<Source>,
    /// What the stream says of itself.
    pub begin: StreamBegin,
}

/// The capability of a store to send snapshots and to receive those of others.
///
/// A snapshot has an **identity**, which it keeps wherever it is sent to. One that was taken here
/// has an id that no other snapshot of any store has.
pub trait Transfers: Store {
    /// What a stream of a snapshot says first. The base and the place where it goes on are empty.
    ///
    /// # Errors
    /// [`marram_store::Error::NoDataset`], or a failed read.
    fn begin_of(&self, snapshot: &Source) -> Result<StreamBegin>;

    /// The snapshot, of one dataset or of any, that has an identity.
    ///
    /// # Errors
    /// A failed read.
    fn identified(
        &self,
        identity: SnapshotIdentity,
        of: Option<&DatasetName>,
    ) -> Result<Option<Source>>;

    /// Whether a snapshot is there at this moment, as all that have the store open know. Of one
    /// that others have destroyed meanwhile, what was read may lack what they have freed.
    ///
    /// # Errors
    /// A failed read; others have taken this client for lost.
    fn is_there(&self, identity: SnapshotIdentity) -> Result<bool> {
        Ok(self.identified(identity, None)?.is_some())
    }

    /// A block as it is stored, verified, with a checksum of the stored bytes.
    ///
    /// # Errors
    /// Damage, or a failed read.
    fn stored(&self, block: &Block) -> Result<StoredForm>;

    /// A key under which a snapshot has a block, if that can be found without a look at all of it.
    ///
    /// # Errors
    /// A failed read.
    fn holder(&self, snapshot: &Source, block: &Block) -> Result<Option<Key>>;

    /// Makes the dataset into which a stream comes, under one of the names of
    /// [`DatasetName::receiving`]. It begins as `base`, or empty with the properties that the
    /// stream names, as far as the store has them.
    ///
    /// # Errors
    /// [`marram_store::Error::NoDataset`]; a property makes no sense.
    fn hide(&self, begin: &StreamBegin, base: Option<&Source>) -> Result<DatasetName>;

    /// How the dataset of a snapshot differs from it.
    ///
    /// # Errors
    /// [`marram_store::Error::NoDataset`], or a failed read.
    fn since(&self, snapshot: &Source) -> Result<Since>;

    /// Shows what has come, in one step. A full stream's dataset gets its name. An incremental
    /// one's state becomes that of the dataset, which is as [`Arrival::stands`] says. The snapshot
    /// is taken with the identity that it came with. Nothing is left of [`Arrival::hidden`].
    ///
    /// Views that are open on the dataset see the new state at once. A batch that was prepared
    /// before must not be applied after it, as for a [rollback](marram_store::Lineage::rollback).
    ///
    /// # Errors
    /// Names are taken, the dataset has been changed, a failed write; then nothing has changed.
    fn show(&self, arrival: &Arrival) -> Result<()>;
}
