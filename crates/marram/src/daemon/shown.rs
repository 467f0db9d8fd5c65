//! The daemon's mounts, as a home sees them while it works.

use super::invalidation;
use super::state::Daemon;
use crate::engine::changes::Changes;
use crate::engine::mounts::{Held, HeldAll, Hold, Mounts, Step};
use crate::engine::volume::Volume;
use crate::error::{Error, Result};
use marram_store::Source;
use std::sync::Arc;

impl Mounts for Daemon {
    fn log(&self, line: &str) {
        self.log.write(line);
    }

    fn is_shut(&self) -> bool {
        self.mounts.is_shut()
    }

    fn volumes(&self) -> Vec<Arc<dyn Volume>> {
        self.mounts.volumes()
    }

    fn volume_of(&self, source: &Source) -> Option<Arc<dyn Volume>> {
        invalidation::volume_of(&self.mounts, source)
    }

    fn step(&self) -> Step<'_> {
        self.steps.begin()
    }

    /// Waits for other operations on the whole of a dataset that is not open.
    fn hold(&self, live: &Source) -> Result<Held<'_>> {
        if let Some(held) = hold_open(self, live)? {
            return Ok(held);
        }
        let turn = self.alone.lock();
        match hold_open(self, live)? {
            Some(held) => Ok(held),
            None => {
                let alone = self.mounts.open_alone(live, self.home.path())?;
                // One that has just been closed may still be worked on.
                self.steps.wait();
                Ok(Held { in_use: None, _hold: Box::new((alone, turn)) })
            }
        }
    }

    /// Those that are not open are taken before the step that keeps the others open: for them all
    /// steps that are going on are waited for.
    fn hold_all(&self, lives: &[Source]) -> Result<HeldAll<'_>> {
        let are_open = lives.iter().all(|live| self.volume_of(live).is_some());
        let turn = (!are_open).then(|| self.alone.lock());
        let mut alone = Vec::new();
        for live in lives.iter().filter(|live| self.volume_of(live).is_none()) {
            alone.push((live, self.mounts.open_alone(live, self.home.path())?));
        }
        if !alone.is_empty() {
            self.steps.wait();
        }
        let step = self.step();
        let volumes = self.volumes();
        let mut in_use = Vec::with_capacity(lives.len());
        for live in lives {
            let is_alone = alone.iter().any(|(taken, _)| *taken == live);
            let volume = self.volume_of(live).filter(|_| !is_alone);
            let is_open =
                |volume: &Arc<dyn Volume>| volumes.iter().any(|open| Arc::ptr_eq(open, volume));
            if !is_alone && !volume.as_ref().is_some_and(is_open) {
                return Err(closing(live));
            }
            in_use.push(volume);
        }
        let alone: Vec<_> = alone.into_iter().map(|(_, alone)| alone).collect();
        Ok(HeldAll { in_use, _hold: Box::new((step, alone, turn)) })
    }

    fn refuse_held_back(&self, live: &Source) -> Result<()> {
        invalidation::refuse_held_back(&self.mounts, live)
    }

    fn mounted(&self) -> Vec<Source> {
        self.mounts.served().into_iter().map(|mount| mount.source).collect()
    }

    fn refuse_mounted(&self, sources: &[Source]) -> Result<()> {
        let mounted = self.mounts.reports();
        for source in sources {
            let name = source.to_string();
            if let Some(mount) = mounted.iter().find(|mount| mount.source == name) {
                let place = mount.directory.display();
                return Err(
                    Error::in_use(format!("{name} is mounted at {place}")).hint("unmount it first")
                );
            }
        }
        Ok(())
    }

    fn withhold(&self, sources: &[Source]) -> Box<dyn Hold + '_> {
        let withheld = self.mounts.withhold(sources);
        self.evict(sources);
        Box::new(withheld)
    }

    fn evict(&self, sources: &[Source]) {
        invalidation::evict(&self.mounts, sources);
    }

    fn members_changed(&self, sources: &[Source]) {
        invalidation::members_changed(&self.mounts, sources);
    }

    fn all_members_changed(&self) {
        invalidation::all_members_changed(&self.mounts);
    }

    fn changed(&self, source: &Source, volume: &dyn Volume, changes: &Changes) {
        let left_out = invalidation::changed(&self.mounts, source, volume, changes);
        if left_out > 0 {
            let line = format!("{left_out} changes of {source} were not shown to its watchers");
            self.log.write(&line);
        }
    }

    fn all_changed(&self, source: &Source, volume: &dyn Volume) {
        invalidation::all_changed(&self.mounts, source, volume);
    }
}

/// Holds a dataset that is open, if it is.
fn hold_open<'d>(daemon: &'d Daemon, live: &Source) -> Result<Option<Held<'d>>> {
    let Some(volume) = daemon.volume_of(live) else { return Ok(None) };
    let step = daemon.step_on(&volume).ok_or_else(|| closing(live))?;
    Ok(Some(Held { in_use: Some(volume), _hold: Box::new(step) }))
}

fn closing(live: &Source) -> Error {
    Error::in_use(format!("{live} is being unmounted")).hint("try again in a moment")
}
