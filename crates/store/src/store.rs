//! Datasets and snapshots: made, listed, destroyed.

use crate::{Admission, Batch, DatasetName, Error, Item, Key, Result, Source, Usage, View, kind};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Properties of a dataset in force: name to value, as text. Each store documents its own; all
/// have `recordsize` (largest block that a file is cut into, in bytes: a power of two from 4096 to
/// 1048576).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties(pub BTreeMap<String, String>);

/// Where a property's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertySource {
    /// Nobody has set it.
    Default,
    /// It was set on this dataset.
    Local,
}

/// What a dataset is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetKind {
    /// A writable dataset that was created empty.
    Live,
    /// A writable dataset that began as a snapshot.
    Clone,
    /// A kept state.
    Snapshot,
}

/// What is known of a dataset or snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetReport {
    /// Its name.
    pub source: Source,
    /// Greater than that of all that were made before it.
    pub number: u64,
    /// What it is.
    pub kind: DatasetKind,
    /// The snapshot that a clone or fork began as.
    pub origin: Option<Source>,
    /// The object that is the root of what it shows: 1, but of a fork the directory that was
    /// forked; a fork's snapshots and their clones have it from the fork.
    pub root_object: u64,
    /// What keeps a snapshot from being destroyed: the tags of [`Store::hold`], sorted.
    pub holds: Vec<String>,
    /// When it was made: seconds since 1970.
    pub created_seconds: i64,
    /// Bytes that it refers to, shared or not.
    pub referenced_bytes: u64,
}

/// The root of a dataset that is no fork of a directory.
pub const ROOT_OBJECT: u64 = 1;

/// An item in which two states differ, in its value or its block.
#[derive(Clone, Debug)]
pub struct ItemChange {
    /// The key.
    pub key: Key,
    /// The item in the first state.
    pub before: Option<Item>,
    /// The item in the second state.
    pub after: Option<Item>,
}

/// What a destruction would take, or took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destruction {
    /// Every dataset and snapshot that goes.
    pub sources: Vec<Source>,
    /// Bytes that come back.
    pub freed_bytes: u64,
}

/// What a batch brings into a dataset, for the store's own log.
#[derive(Clone, Copy, Debug)]
pub struct MergedFrom<'a> {
    /// The dataset that it goes into.
    pub dataset: &'a DatasetName,
    /// The fork whose changes they are.
    pub fork: &'a Source,
    /// The state of the fork that was read: a snapshot, or one of [`Store::keep_for_now`]. Blocks
    /// that the batch adopts are those of this state.
    pub read: &'a Source,
    /// Name of a snapshot that keeps the state before the batch, if one is wanted.
    pub keep: Option<&'a str>,
    /// The object that is the root of what is merged.
    pub root_object: u64,
}

/// The batch by which a limit is set: see [`Store::set_owner_limit`].
pub fn limit_batch(owner: u64, limit: Option<Bytes>) -> Batch<'static> {
    let key = Key::new(0, kind::LIMIT, owner);
    let mut batch = Batch { admission: Admission::Freeing, ..Batch::new() };
    match limit {
        None => batch.remove(key),
        Some(limit) => batch.put(key, Item::plain(limit)),
    };
    batch
}

/// Numbers that are tried for the name of a snapshot of the store's own: so many may be in use, or
/// left by a crash.
const OWN_NUMBERS_MAX: u32 = 1 << 16;

/// Datasets and snapshots of one store. Every change is durable when it returns.
pub trait Store: Send + Sync {
    /// Opens a dataset or snapshot.
    fn open(&self, source: &Source) -> Result<Arc<dyn View>>;

    /// Lists all datasets and snapshots in order of their names. Reads nothing from a device.
    fn list(&self) -> Result<Vec<DatasetReport>>;

    /// What is known of one dataset or snapshot. Takes the same time however many there are.
    fn report(&self, source: &Source) -> Result<DatasetReport> {
        let found = self.list()?.into_iter().find(|report| report.source == *source);
        found.ok_or_else(|| Error::NoDataset(source.to_string()))
    }

    /// [`crate::Holder::unique_bytes`] of one, not exact. Whoever wants to know of many asks for
    /// [`Store::usage`].
    fn unique_bytes(&self, source: &Source) -> Result<u64> {
        let holders = self.usage(false)?.holders;
        let found = holders.into_iter().find(|holder| holder.report.source == *source);
        found.map(|it| it.unique_bytes).ok_or_else(|| Error::NoDataset(source.to_string()))
    }

    /// Who holds the space, as the last commit has it. May read as much as has died. With `exact`,
    /// blocks that a merge or reflink has brought from one dataset into another are told apart:
    /// they come back with their last owner, so they are unique to none. Without, each is unique to
    /// those that have it, and no tree is walked.
    fn usage(&self, exact: bool) -> Result<Usage>;

    /// A dataset or snapshot as the last commit has it: it stays so while others change it, and
    /// tells what each of its blocks is held by ([`crate::Ownership`]), all as of that moment.
    ///
    /// # Errors
    /// No such dataset; a store that cannot do that. The view's own reads fail with
    /// [`Error::InUse`] if the store has so little space that what they would read had to be
    /// overwritten.
    fn frozen(&self, source: &Source) -> Result<Arc<dyn View>> {
        Err(Error::Invalid(format!("this store cannot tell what holds the blocks of {source}")))
    }

    /// Makes an empty dataset.
    fn create(&self, name: &DatasetName, properties: &Properties) -> Result<()>;

    /// Keeps the present state of `dataset` as `dataset@snapshot`: all batches applied before the
    /// call are in it. Takes the same time and space however large the dataset is.
    fn snapshot(&self, dataset: &DatasetName, snapshot: &str) -> Result<()> {
        self.snapshot_together(std::slice::from_ref(dataset), snapshot)
    }

    /// As [`Store::snapshot`], of several datasets at one moment: all or none. Refused if one has a
    /// snapshot of that name already.
    fn snapshot_together(&self, datasets: &[DatasetName], snapshot: &str) -> Result<()>;

    /// Makes a writable dataset that begins as a snapshot.
    fn clone_snapshot(&self, origin: &Source, name: &DatasetName) -> Result<()>;

    /// Makes a fork: a clone of the state that `dataset` has now, with `root_object` as the root of
    /// what it shows. In the same step a snapshot of `dataset` is taken that it begins as, its
    /// **base**, which [`DatasetReport::origin`] of the fork names; its name begins with `fork:`.
    /// Takes the same time and space however large the dataset is.
    fn fork(&self, dataset: &DatasetName, name: &DatasetName, root_object: u64) -> Result<()>;

    /// Lets the dataset of the snapshot `to` go on from that snapshot, and keeps its present state
    /// as a snapshot named `keep`. Takes the same time whatever has changed. Views that are open
    /// on the dataset see the new state at once; batches wait. No other snapshot changes, and `to`
    /// may be any snapshot of the dataset, one that an earlier rollback kept too.
    ///
    /// Whoever prepares a batch from what it read before the call must not apply it after: it
    /// would put items and blocks of the other state into this one.
    fn rollback(&self, to: &Source, keep: &str) -> Result<()>;

    /// A clone takes over the snapshot that it began as and those before it, so that the dataset
    /// that had them can be destroyed, which from then on counts as a clone of the last of them.
    /// Refused if the clone has snapshots of the same names.
    fn promote(&self, name: &DatasetName) -> Result<()>;

    /// Keeps a snapshot from being destroyed until the tag is released. A tag is 1 to 64 letters,
    /// digits, `-`, `_`, `.` and `:`.
    fn hold(&self, snapshot: &Source, tag: &str) -> Result<()>;

    /// Takes a tag of [`Store::hold`] away.
    fn release(&self, snapshot: &Source, tag: &str) -> Result<()>;

    /// Gives a dataset (its snapshots go with it) or a snapshot (of the same dataset) another
    /// name. Works while it is open.
    fn rename(&self, from: &Source, to: &Source) -> Result<()>;

    /// Keeps the present state of a dataset for as long as somebody compares it. Returns its name,
    /// which begins with `purpose` and is the store's own; it is opened, reported and compared as a
    /// snapshot is, until [`Store::let_go`]. A store that can do so keeps it in memory only: then
    /// a dataset of which nothing waits for a commit costs nothing to keep.
    ///
    /// # Errors
    /// No such dataset; a failed commit.
    fn keep_for_now(&self, dataset: &DatasetName, purpose: &str) -> Result<Source> {
        self.keep_on_media(dataset, purpose)
    }

    /// As [`Store::keep_for_now`], as a snapshot: nothing that others write overtakes it. A crash
    /// leaves it.
    ///
    /// # Errors
    /// As for [`Store::snapshot`].
    fn keep_on_media(&self, dataset: &DatasetName, purpose: &str) -> Result<Source> {
        for number in 1..=OWN_NUMBERS_MAX {
            let name = format!("{purpose}:{number}");
            match self.snapshot(dataset, &name) {
                Ok(()) => return Ok(Source { dataset: dataset.clone(), snapshot: Some(name) }),
                Err(Error::DatasetExists(_)) => (),
                Err(error) => return Err(error),
            }
        }
        Err(Error::Invalid(format!("{dataset} has too many snapshots named {purpose}:N")))
    }

    /// Nobody compares any more what was kept for that. One that cannot be destroyed stays, as
    /// after a crash.
    fn let_go(&self, kept: &Source) {
        let _stays = self.destroy(kept, false);
    }

    /// Whether what [`Store::keep_for_now`] has kept may be the reason why a read of it failed, or
    /// [`Store::apply_merge`] was refused: its dataset has gone on since, or the store had to use
    /// its space. Who is told so begins anew with [`Store::keep_on_media`].
    fn is_overtaken(&self, kept: &Source) -> bool {
        let _is_a_snapshot = kept;
        false
    }

    /// Applies the batch of a merge through `view`, that of the dataset. It is durable with the
    /// next [`View::sync`]; a store that keeps a log of operations enters the merge into it in the
    /// same step, and then it is durable when this returns. So is the snapshot of
    /// [`MergedFrom::keep`]: a merge that fails leaves none.
    ///
    /// # Errors
    /// Those of [`View::apply`] and [`Store::snapshot`]; [`Error::InUse`] if the state that was
    /// read is overtaken.
    fn apply_merge(
        &self,
        view: &dyn View,
        batch: Batch<'_>,
        merged: &MergedFrom<'_>,
    ) -> Result<()> {
        let Some(keep) = merged.keep else { return view.apply(batch) };
        self.snapshot(merged.dataset, keep)?;
        view.apply(batch).inspect_err(|_| {
            let snapshot = Some(keep.to_owned());
            self.let_go(&Source { dataset: merged.dataset.clone(), snapshot });
        })
    }

    /// Visits, by ascending keys from `from` on, the items in which two snapshots of this store
    /// (or states of [`Store::keep_for_now`]) differ, until the visitor returns false. Costs what
    /// differs, not what is there. What the store keeps for itself ([`crate::kind::REFERENCES`]) is
    /// not shown. An item whose block was only marked as shared, or adopted by a merge, may be
    /// shown with a block that has the same content.
    fn changes(
        &self,
        before: &Source,
        after: &Source,
        from: Key,
        visit: &mut dyn FnMut(ItemChange) -> bool,
    ) -> Result<()>;

    /// Destroys a snapshot, or a dataset with all its snapshots; with `dry_run`, only says what
    /// would go. What comes back may do so later, in steps of the background; who finds no space
    /// gets it at once. With the last fork that began as it goes its base. Refused while something
    /// that would go is open or held, or while another dataset or line of snapshots that stays
    /// began as it: a rollback to a snapshot, and each clone, begins such a line.
    fn destroy(&self, source: &Source, dry_run: bool) -> Result<Destruction> {
        self.destroy_together(std::slice::from_ref(source), dry_run)
    }

    /// As [`Store::destroy`], of several in one step: all or none. What no one of them holds alone
    /// comes back too.
    fn destroy_together(&self, sources: &[Source], dry_run: bool) -> Result<Destruction>;

    /// The properties of a dataset and where each comes from.
    fn properties(&self, name: &DatasetName) -> Result<BTreeMap<String, (String, PropertySource)>>;

    /// Sets a property; `None` goes back to the default.
    fn set_property(&self, name: &DatasetName, property: &str, value: Option<&str>) -> Result<()>;

    /// Sets the item of [`crate::kind::LIMIT`] under an offset, or takes it away: what an owner may
    /// use of a dataset. It is durable when this returns; a store that keeps a log of operations
    /// enters it in the same step.
    ///
    /// # Errors
    /// No such dataset; otherwise as for [`View::apply`] and [`View::sync`].
    fn set_owner_limit(&self, name: &DatasetName, owner: u64, limit: Option<Bytes>) -> Result<()> {
        let view = self.open(&Source::live(name.clone()))?;
        view.apply(limit_batch(owner, limit))?;
        view.sync()
    }

    /// Returns when everything that was applied before is durable.
    fn sync(&self) -> Result<()>;
}
