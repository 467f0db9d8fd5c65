//! The clients that have the store open, and what they have changed.
//!
//! All that is known here follows from the log: each client that has taken in the same entries
//! knows the same, whatever its clock says.

use super::State;
use crate::follow::first_beat;
use crate::format::{ClientRecord, Entry, Presence, Stance};
use marram_store::Moment;
use std::collections::BTreeMap;

/// Where in the number of a history the life of the client stands.
const LIVES_SHIFT: u32 = 56;

/// A session: the number of a client, which is random.
pub(crate) type Session = [u8; 16];

/// What is known of the clients.
pub(crate) struct Company {
    /// Those that have the store open.
    pub(crate) clients: BTreeMap<Session, ClientRecord>,
    /// The last entry of another client that has changed a line.
    changed: BTreeMap<u64, u64>,
    /// Up to here nothing is known of the lines.
    begin: u64,
    /// When the last entry up to there was put, by the clock of the client that put it.
    begin_seconds: i64,
    /// The same of the last entry of each other client that is there.
    seconds: BTreeMap<Session, i64>,
}

/// What the log tells of the clocks of others, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// The latest moment at which another client that is there has put its last entry; none if
    /// none of them has put one.
    pub others_seconds: Option<i64>,
    /// When the last entry was put before this client came, or came to know all anew.
    pub before_seconds: i64,
}

impl Company {
    /// The clients after an entry, which was put then.
    pub(crate) fn at(
        (begin, begin_seconds): (u64, i64),
        clients: BTreeMap<Session, ClientRecord>,
    ) -> Company {
        let (changed, seconds) = (BTreeMap::new(), BTreeMap::new());
        Company { clients, changed, begin, begin_seconds, seconds }
    }

    /// What is known of the clocks of others.
    pub(crate) fn clocks(&self) -> Clocks {
        let others_seconds = self.seconds.values().copied().max();
        Clocks { others_seconds, before_seconds: self.begin_seconds }
    }

    /// Takes note of an entry; `own` is the session of this client.
    pub(crate) fn note(&mut self, (number, entry): (u64, &Entry), own: Session) {
        match &entry.presence {
            None => {}
            Some(Presence::Here { name, stance, since }) => {
                let (stance, since, name) = (*stance, *since, name.clone());
                let client = ClientRecord { stance, since, name, beat: first_beat(number) };
                self.clients.insert(entry.session, client);
            }
            Some(Presence::Closed) => {
                self.clients.remove(&entry.session);
            }
            Some(Presence::Expelled(lost)) => {
                self.clients.remove(lost);
            }
        }
        if entry.session != own {
            self.seconds.insert(entry.session, entry.seconds);
        }
        self.seconds.retain(|session, _| self.clients.contains_key(session));
        if entry.session != own {
            self.changed.extend(entry.sections.iter().map(|section| (section.line, number)));
            // A dataset that others have set back goes on on another line.
            let records = entry.records.iter().filter_map(|(_, record)| record.as_ref());
            self.changed.extend(records.map(|record| (record.line, number)));
        }
    }

    /// Clients beside this one.
    pub(crate) fn others(&self, own: Session) -> impl Iterator<Item = (&Session, &ClientRecord)> {
        self.clients.iter().filter(move |(session, _)| **session != own)
    }

    /// Whether another client publishes later than it answers.
    pub(crate) fn awaits_another(&self, own: Session) -> bool {
        self.others(own).any(|(_, client)| client.stance == Stance::Alone)
    }

    /// Whether another client may answer its users.
    pub(crate) fn has_others_awake(&self, own: Session) -> bool {
        self.others(own).any(|(_, client)| client.stance != Stance::Resting)
    }

    /// Whether other clients have the store open, awake or at rest.
    pub(crate) fn has_others(&self, own: Session) -> bool {
        self.others(own).next().is_some()
    }

    /// The last entry by which others have perhaps changed a line.
    fn changed(&self, line: u64) -> u64 {
        self.changed.get(&line).copied().unwrap_or(0).max(self.begin)
    }
}

impl State {
    /// The moment of a dataset, as others change it.
    pub(crate) fn moment(&self, dataset: u64) -> Moment {
        let record = self.catalogue.record(dataset);
        let changed = record.map_or(u64::MAX, |record| self.company.changed(record.line));
        let recut = self.recuts.get(&dataset).copied().unwrap_or(0);
        // A rollback gives the dataset another line. Lines are far below the bits of lives.
        let history = record.map_or(0, |record| record.line) | self.lives << LIVES_SHIFT;
        Moment { changed, recut, history }
    }
}
