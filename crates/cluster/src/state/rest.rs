//! A client that is not used rests, so that another one can be alone.
//!
//! One that **rests** has said in the log that it answers nothing. Once all others rest, a client
//! is alone: it writes behind, and asks for nothing. The first thing that a user asks of a client
//! that rests wakes it: it says in the log that it is there, and waits until no other is alone, as
//! one that comes anew does. What it has open, and the locks that it holds, stay as they are.
//!
//! One client is always awake, to do what has to be done at times.

use super::{Cluster, Publisher, Shared};
use crate::format::Stance;
use marram_store::{Error, Result};
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;

impl Cluster {
    /// Goes to rest, if another client is awake. Whatever a user asks for wakes it again. Whether
    /// it rests from then on.
    ///
    /// # Errors
    /// The database fails; [`Error::ReadOnly`] once others have taken this client for lost.
    pub fn rest(&self) -> Result<bool> {
        self.shared.rest()
    }

    /// Whether it rests: another client may have answered what is not in the log yet.
    pub fn rests(&self) -> bool {
        self.shared.state.read().rests
    }

    /// A number that grows with each thing that a user asks for.
    pub fn uses(&self) -> u64 {
        self.shared.uses.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn rest(&self) -> Result<bool> {
        let _going = self.waking.lock();
        {
            let mut state = self.state.write();
            let is_lone = !state.company.has_others_awake(self.session());
            if self.read_only || state.is_alone || state.is_answering || state.rests || is_lone {
                return Ok(false);
            }
            // Before the entry: what is asked for from now on waits for the end of this.
            state.rests = true;
        }
        let said = self.say(&|state| match state.company.has_others_awake(self.session()) {
            true => Ok(self.here(Stance::Resting)),
            false => Err(Error::Overtaken),
        });
        match said {
            Ok(()) => Ok(true),
            Err(error) => {
                self.state.write().rests = false;
                if error == Error::Overtaken { Ok(false) } else { Err(error) }
            }
        }
    }

    /// A user asks for something: a client that rests wakes before it answers.
    pub(crate) fn attend(&self) -> Result<()> {
        self.uses.fetch_add(1, Ordering::Relaxed);
        self.wake()
    }

    /// The end of the log, for what is published for a user: as long as it is held, this client
    /// does not go to rest.
    pub(super) fn publisher_awake(&self) -> Result<MutexGuard<'_, Publisher>> {
        loop {
            self.wake()?;
            let publisher = self.publisher.lock();
            if !self.state.read().rests {
                return Ok(publisher);
            }
        }
    }

    /// Goes on resting, unless all others do, or the log says that it does not.
    pub(super) fn stay_at_rest(&self) -> Result<()> {
        let goes_on = {
            let (state, own) = (self.state.read(), self.session());
            let stance = state.company.clients.get(&own).map(|client| client.stance);
            stance == Some(Stance::Resting) && state.company.has_others_awake(own)
        };
        if goes_on { Ok(()) } else { self.wake() }
    }

    /// Wakes if it rests, and waits until no other client is alone.
    pub(super) fn wake(&self) -> Result<()> {
        if !self.state.read().rests {
            return Ok(());
        }
        let _waking = self.waking.lock();
        if !self.state.read().rests {
            return Ok(());
        }
        self.uses.fetch_add(1, Ordering::Relaxed);
        self.say(&|_| Ok(self.here(Stance::Beside)))?;
        self.await_others()?;
        self.state.write().rests = false;
        Ok(())
    }
}
