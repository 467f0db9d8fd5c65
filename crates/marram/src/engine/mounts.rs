//! What a home asks of the mounts that show it, while it performs an operation or works in the
//! background.
//!
//! A home whose volumes are mounted changes them under programs that use them. So it opens no
//! second file system of a volume that is open, takes nothing away that a mount shows, and says
//! what has changed. The daemon answers; a command that has a home to itself has no mounts.

use super::changes::Changes;
use super::volume::Volume;
use crate::error::Result;
use marram_store::Source;
use parking_lot::RwLockReadGuard;
use std::sync::Arc;

/// Until it is dropped, no volume is opened.
pub(crate) type Step<'m> = RwLockReadGuard<'m, ()>;

/// Something that lasts until it is dropped.
pub(crate) trait Hold {}

impl<T> Hold for T {}

/// A dataset during an operation on the whole of it: no other opens or closes it meanwhile.
///
/// It is dropped before [`Mounts::changed`] is called: a look-up that waits for a step may hold
/// what the kernel wants for that.
pub(crate) struct Held<'m> {
    /// The volume that programs use, if they use one.
    pub(crate) in_use: Option<Arc<dyn Volume>>,
    /// What holds it.
    pub(crate) _hold: Box<dyn Hold + 'm>,
}

/// Several datasets during an operation on the whole of all of them.
pub(crate) struct HeldAll<'m> {
    /// Of each the volume that programs use, if they use one.
    pub(crate) in_use: Vec<Option<Arc<dyn Volume>>>,
    /// What holds them.
    pub(crate) _hold: Box<dyn Hold + 'm>,
}

/// The mounts of a home.
pub(crate) trait Mounts: Send + Sync {
    /// Writes a line to the daemon's log.
    fn log(&self, line: &str);

    /// Whether the daemon is ending.
    fn is_shut(&self) -> bool;

    /// The volumes that are open.
    fn volumes(&self) -> Vec<Arc<dyn Volume>>;

    /// The volume that a dataset or snapshot is open as.
    fn volume_of(&self, source: &Source) -> Option<Arc<dyn Volume>>;

    /// Begins a step of work on volumes that are open.
    fn step(&self) -> Step<'_>;

    /// Begins a step of work on `volume`; `None` if that is not open any more.
    fn step_on(&self, volume: &Arc<dyn Volume>) -> Option<Step<'_>> {
        let step = self.step();
        self.volumes().iter().any(|open| Arc::ptr_eq(open, volume)).then_some(step)
    }

    /// Holds a dataset for an operation on the whole of it.
    ///
    /// # Errors
    /// It is being mounted or unmounted at the moment.
    fn hold(&self, live: &Source) -> Result<Held<'_>>;

    /// Holds several datasets for an operation on the whole of all of them. One that holds a
    /// dataset already must not hold another one: both might wait for each other.
    ///
    /// # Errors
    /// As for [`Mounts::hold`].
    fn hold_all(&self, lives: &[Source]) -> Result<HeldAll<'_>>;

    /// Refuses to change the whole of a dataset below a mount whose data the kernel holds back.
    ///
    /// # Errors
    /// Such a mount shows the dataset.
    fn refuse_held_back(&self, live: &Source) -> Result<()>;

    /// The dataset or snapshot of each mount.
    fn mounted(&self) -> Vec<Source>;

    /// Refuses what a mount of its own shows.
    ///
    /// # Errors
    /// One of `sources` is mounted.
    fn refuse_mounted(&self, sources: &[Source]) -> Result<()>;

    /// Keeps what is about to be destroyed from being opened, and takes it away from where it is
    /// seen below another mount, for as long as the answer lives.
    fn withhold(&self, sources: &[Source]) -> Box<dyn Hold + '_>;

    /// Takes what is gone away from where it is seen below another mount.
    fn evict(&self, sources: &[Source]);

    /// Snapshots or forks have come or gone.
    fn members_changed(&self, sources: &[Source]);

    /// Any snapshots or forks may have come or gone.
    fn all_members_changed(&self);

    /// Has the kernel ask anew for what has changed in a volume.
    fn changed(&self, source: &Source, volume: &dyn Volume, changes: &Changes);

    /// Has the kernel ask anew for all that it knows of a volume.
    fn all_changed(&self, source: &Source, volume: &dyn Volume);
}
