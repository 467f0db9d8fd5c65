//! Administration through a handle: its author, the trash, undo, properties, the label.

use crate::front::Pool;
use crate::snapshots::automatic;
use crate::snapshots::operations;
use crate::snapshots::session::Session;
use crate::snapshots::trash;
use crate::snapshots::undo;
use crate::snapshots::{label, properties};
use crate::state::waiting_merges::Expected;
use marram_store::{
    Author, DatasetName, DatasetReport, Grants, Hidden, Operation, Result, Reversal, Scheduled,
    Source, Store, Undo,
};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Pool {
    /// The same pool for somebody: what is done through this handle is entered into the log of
    /// operations.
    pub fn acting_for(&self, author: Author) -> Pool {
        Pool { session: Session { author: Some(Arc::new(author)), ..self.session.clone() } }
    }

    /// The same pool for what nobody has asked for: the log of operations has nothing of it.
    pub fn without_author(&self) -> Pool {
        Pool { session: Session { author: None, ..self.session.clone() } }
    }

    /// The same pool for a merge that takes back the merge with this number in the log.
    pub fn taking_back(&self, number: u64) -> Pool {
        Pool { session: Session { undoes: number, ..self.session.clone() } }
    }

    /// The same pool for a merge that is about to come: others that wait in memory stay for it a
    /// while, so that all share a commit. It is expected until it is there, or this handle is gone.
    pub fn expecting_merge(&self) -> Pool {
        let expected = Some(Arc::new(Expected::of(&self.session.state)));
        Pool { session: Session { expected, ..self.session.clone() } }
    }

    /// The same pool for an undo that goes back past later changes of the same thing: another
    /// rollback or merge, another value or label. What they left is not lost: an undo of that undo
    /// has it again.
    pub fn past_later_changes(&self) -> Pool {
        Pool { session: Session { goes_past: true, ..self.session.clone() } }
    }

    /// The same pool, past later changes or not.
    fn going(&self, past: bool) -> Pool {
        Pool { session: Session { goes_past: past, ..self.session.clone() } }
    }

    /// Destroys as [`destroy_together`] does, but what goes is kept for an undo as long as the
    /// property `undo` of its dataset says: of several the shortest time holds. If that is off, or
    /// this handle acts for nobody, it goes at once.
    ///
    /// [`destroy_together`]: marram_store::Store::destroy_together
    ///
    /// # Errors
    /// As `destroy_together`.
    pub fn move_to_trash(&self, sources: &[Source]) -> Result<Hidden> {
        trash::move_to_trash(&self.session, sources)
    }

    /// What is kept for an undo, under the names that hide it. The
    /// [list](marram_store::Store::list) of all datasets has none of it.
    ///
    /// # Errors
    /// A name in the pool that makes no sense.
    pub fn list_trash(&self) -> Result<Vec<DatasetReport>> {
        trash::list_trash(&self.session)
    }

    /// How the operation with this number, or the last one, would be taken back.
    ///
    /// # Errors
    /// [`Error::Invalid`](marram_store::Error::Invalid) says what is in the way.
    pub fn reversal(&self, number: Option<u64>) -> Result<(u64, Reversal)> {
        undo::reversal(&self.session, number)
    }

    /// Takes an operation back that is no merge, with all that is one step with it but a merge.
    /// Returns the number of the new entry, of several the last.
    ///
    /// # Errors
    /// [`Error::Invalid`](marram_store::Error::Invalid) says what is in the way. Then nothing has
    /// changed.
    pub fn undo(&self, number: u64) -> Result<u64> {
        undo::undo(&self.session, number)
    }

    /// The log of operations, oldest first.
    ///
    /// # Errors
    /// A failed read.
    pub fn operations(&self) -> Result<Vec<Operation>> {
        operations::operations(&self.session)
    }

    /// Sets properties of a dataset as one step: all of them, or none. `None` goes back to the
    /// default.
    ///
    /// # Errors
    /// As for [`Store::set_property`](marram_store::Store::set_property), of any of them.
    pub fn set_properties(
        &self,
        name: &DatasetName,
        values: &BTreeMap<String, Option<String>>,
    ) -> Result<()> {
        properties::set_properties(&self.session, name, values)
    }

    /// Changes what users and groups may do to a dataset beside root, and answers with what they
    /// may do then. Between reading and writing it nobody else changes it.
    ///
    /// # Errors
    /// Those of `change`; [`Error::NoDataset`](marram_store::Error::NoDataset); a failed commit.
    pub fn change_grants(
        &self,
        name: &DatasetName,
        change: impl FnOnce(&mut Grants) -> Result<()>,
    ) -> Result<Grants> {
        properties::change_grants(&self.session, name, change)
    }

    /// The datasets that have a rule for automatic snapshots. Looks at records in memory alone.
    ///
    /// # Errors
    /// A name in the pool that makes no sense.
    pub fn scheduled(&self) -> Result<Vec<Scheduled>> {
        automatic::scheduled(&self.session)
    }

    /// Gives the pool another label: at most 64 bytes, none to take it away. It is durable when
    /// this returns.
    ///
    /// # Errors
    /// A label that is too long; otherwise as for [`Pool::commit`].
    pub fn set_label(&self, label: &str) -> Result<()> {
        label::set_label(&self.session.state, label, self.session.author.as_ref())
    }
}

impl Undo for Pool {
    fn operations(&self) -> Result<Vec<Operation>> {
        operations::operations(&self.session)
    }

    fn reversal(&self, number: Option<u64>, past: bool) -> Result<(u64, Reversal)> {
        undo::reversal(&self.going(past).session, number)
    }

    fn undo(&self, number: u64, past: bool) -> Result<u64> {
        undo::undo(&self.going(past).session, number)
    }

    fn taking_back(&self, number: u64) -> Box<dyn Store + '_> {
        Box::new(Pool::taking_back(self, number))
    }

    fn hide_together(&self, sources: &[Source]) -> Result<Hidden> {
        trash::move_to_trash(&self.session, sources)
    }
}
