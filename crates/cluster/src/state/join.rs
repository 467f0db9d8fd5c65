//! A client comes beside others, and learns that others come and go.
//!
//! One that is **alone** lets its publications wait. Another one that comes says so in the log, and
//! then waits: it reads nothing until the first has answered that it is no longer alone, in the
//! entry that publishes what waited; or until the first is expelled, for it does not answer.

use super::company::Session;
use super::taking::clients;
use super::{Client, Cluster, Shared, State};
use crate::database::{Change, Table};
use crate::draft::identity_text;
use crate::format::{ClientRecord, Presence, Stance};
use crate::pending::Pending;
use crate::state::rescue::keep_for_lost;
use marram_store::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A client that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Which.
    pub session: [u8; 16],
    /// Perhaps it lives: a process that is stopped, or a host that is cut off. What it has waiting
    /// can be rescued then ([`Cluster::rescue`]).
    pub may_return: bool,
}

/// Judges the other clients that have a store open: names those that are lost, which are expelled
/// then. It is asked again and again while one of them is awaited, and may take its time. An error
/// of it ends the attempt to open the store, or what has woken this client.
pub type Judge = Arc<dyn Fn(&[Client]) -> Result<Vec<Lost>> + Send + Sync>;

/// What a client has learned of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is alone or not, as before.
    Same,
    /// Others have come.
    Shared,
    /// The others have gone.
    Alone,
}

impl Cluster {
    /// Looks whether others have come or gone. Before it answers that it is no longer alone,
    /// `before_sharing` lets go of all that is kept about the store outside of it. To be called
    /// often: others wait for the answer.
    ///
    /// # Errors
    /// The database fails; [`Error::ReadOnly`] once others have taken this client for lost.
    pub fn listen(&self, before_sharing: &mut dyn FnMut()) -> Result<Heard> {
        let shared = &*self.shared;
        if shared.read_only {
            return Ok(Heard::Same);
        }
        shared.take_in(&mut shared.publisher.lock())?;
        shared.settle_locks()?;
        if shared.state.read().rests {
            return shared.stay_at_rest().map(|()| Heard::Same);
        }
        let (is_alone, has_others_awake) = {
            let state = shared.state.read();
            (state.is_alone, state.company.has_others_awake(shared.session()))
        };
        match (is_alone, has_others_awake) {
            (true, true) => {
                shared.state.write().is_answering = true;
                before_sharing();
                let said = shared.publish_locks();
                let said = said.and_then(|()| shared.say(&|_| Ok(shared.here(Stance::Beside))));
                shared.state.write().is_answering = false;
                said.map(|()| Heard::Shared)
            }
            (false, false) => match shared.say(&|state| shared.here_alone(state)) {
                Ok(()) => shared.unpublish_own_locks().map(|()| Heard::Alone),
                Err(Error::Overtaken) => Ok(Heard::Same),
                Err(error) => Err(error),
            },
            // Others may have gone before the rows of locks could go.
            (true, false) => shared.unpublish_own_locks().map(|()| Heard::Same),
            (false, true) => Ok(Heard::Same),
        }
    }

    /// Whether other clients may read.
    pub fn is_shared(&self) -> bool {
        self.shared.is_shared()
    }

    /// Whether other clients may have the store open, also such as rest.
    pub fn has_company(&self) -> bool {
        self.shared.has_company()
    }

    /// The clients that have the store open, as the database has them.
    ///
    /// # Errors
    /// The database fails.
    pub fn clients(&self) -> Result<Vec<Client>> {
        self.shared.present()
    }

    /// Takes another client for lost, if it is there: whatever it publishes from then on counts for
    /// nothing.
    ///
    /// # Errors
    /// The database fails.
    pub fn expel(&self, lost: Lost) -> Result<()> {
        self.shared.expel(lost)
    }

    /// Gives a sign of life, by which others see that this client has the store open. It waits for
    /// no publication: one that takes long is no reason to be taken for lost.
    ///
    /// # Errors
    /// The database fails; [`Error::ReadOnly`] once another client has taken this one for lost.
    pub fn beat(&self) -> Result<()> {
        self.shared.beat()
    }
}

impl Shared {
    /// Whether other clients may read, or are about to be let in.
    pub(crate) fn is_shared(&self) -> bool {
        let state = self.state.read();
        !state.is_alone || state.is_answering
    }

    /// Whether other clients may have the store open, awake or at rest.
    pub(crate) fn has_company(&self) -> bool {
        let state = self.state.read();
        !state.is_alone || state.is_answering || state.company.has_others(self.session())
    }

    /// Comes beside those that have the store open.
    pub(super) fn join(&self) -> Result<()> {
        self.expel_lost()?;
        self.say(&|state| {
            let is_alone = !state.company.has_others(self.session());
            Ok(self.here(if is_alone { Stance::Alone } else { Stance::Beside }))
        })?;
        let awaited = self.await_others();
        if awaited.is_err() {
            let _first_error_is_told = self.say(&|_| Ok(Presence::Closed));
        }
        awaited?;
        match self.state.read().is_alone {
            true => self.unpublish_locks(),
            false => self.publish_locks(),
        }
    }

    /// Waits until no other client is alone. Others that wait too see that this one is there.
    pub(super) fn await_others(&self) -> Result<()> {
        let mut beaten = self.now();
        loop {
            self.take_in(&mut self.publisher.lock())?;
            if !self.state.read().company.awaits_another(self.session()) {
                return Ok(());
            }
            // Once a second.
            if self.now() != beaten {
                self.beat()?;
                beaten = self.now();
            }
            self.expel_lost()?;
        }
    }

    fn beat(&self) -> Result<()> {
        let mut publisher = self.publisher.try_lock();
        if self.state.read().is_leaving {
            return Ok(());
        }
        match &mut publisher {
            Some(publisher) => self.take_in(publisher)?,
            None => self.state.read().refuse_stopped()?,
        }
        let key = self.session().to_vec();
        let row = self.rows.get(Table::Clients, key.clone())?;
        let Some(old) = row.map(|value| ClientRecord::decode(&value)).transpose()? else {
            // Whatever is being published meets the entry that has expelled this client.
            return publisher.map_or(Ok(()), |_| Err(self.is_expelled()));
        };
        let new = ClientRecord { beat: old.beat + 1, ..old.clone() };
        let change = |client: &ClientRecord| -> Change {
            self.rows.put(Table::Clients, key.clone(), client.encode())
        };
        // Another one may have brought the row up to an entry of this client: the next beat counts.
        self.rows.replace(change(&old), change(&new)).map(|_| ())
    }

    fn expel_lost(&self) -> Result<()> {
        let mut others = self.present()?;
        others.retain(|client| client.session != self.session());
        if others.is_empty() {
            return Ok(());
        }
        (self.judge)(&others)?.into_iter().try_for_each(|lost| self.expel(lost))
    }

    fn expel(&self, lost: Lost) -> Result<()> {
        let is_there = || {
            let is_other = lost.session != self.session();
            is_other && self.state.read().company.clients.contains_key(&lost.session)
        };
        let mut done = self.expel_ending(lost, true);
        if done == Err(Error::Overtaken) && is_there() {
            // Something of its transactions was opened just then: a sweep ends those.
            done = self.expel_ending(lost, false);
        }
        match done {
            // It has closed the store, or another client has expelled it.
            Err(Error::Overtaken) if !is_there() => Ok(()),
            done => done,
        }
    }

    /// Expels a client, and ends its transactions or leaves them to a sweep.
    ///
    /// # Errors
    /// [`Error::Overtaken`] if it is not there, or if somebody has opened what would end.
    fn expel_ending(&self, lost: Lost, ends_transactions: bool) -> Result<()> {
        let keeps = |state: &State| {
            let client = state.company.clients.get(&lost.session);
            client.map(|client| client.stance == Stance::Alone && lost.may_return)
        };
        let expels = |state: &State| match keeps(state) {
            Some(_) if lost.session != self.session() => Ok(Presence::Expelled(lost.session)),
            _ => Err(Error::Overtaken),
        };
        let nothing = Pending::default();
        self.publish_with(Some(&expels), &nothing, &mut |draft| {
            // What it had waiting for them is lost with it. Nothing of this stops the expulsion.
            let (state, session) = (self.state.read(), identity_text(&lost.session));
            let is_there = |of: &str| of != session;
            let is_open = |number| state.is_open(number);
            let _left_to_a_sweep =
                ends_transactions && draft.end_transactions(&is_there, &is_open).is_ok();
            if keeps(&state) == Some(true) {
                keep_for_lost(draft, lost.session);
            }
            Ok(())
        })
    }

    pub(super) fn here(&self, stance: Stance) -> Presence {
        Presence::Here {
            name: self.name.clone(),
            stance,
            since: self.since.load(Ordering::Relaxed),
        }
    }

    fn here_alone(&self, state: &State) -> Result<Presence> {
        match state.company.has_others_awake(self.session()) {
            false => Ok(self.here(Stance::Alone)),
            true => Err(Error::Overtaken),
        }
    }

    fn present(&self) -> Result<Vec<Client>> {
        let of = |(session, record): (Session, ClientRecord)| Client::of(session, record);
        Ok(clients(&self.rows)?.into_iter().map(of).collect())
    }
}

/// A store that a client has open.
pub(super) fn in_use(name: &str) -> Error {
    let holder = format!("{name} has it open; stop that one first");
    Error::InUse { name: "the store".to_owned(), holder }
}
