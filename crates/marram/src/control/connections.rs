//! The connections of a control socket, counted by user.
//!
//! Root and the daemon's own user have places of their own, so whatever others ask, and however
//! often, they are heard.

use crate::control::credentials::Credentials;
use marram_vfs::Identity;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most connections of root and the daemon's own user at a time; further ones are closed at once.
const OWN_MAX: usize = 256;
/// Most connections of all other users together.
const OTHERS_MAX: usize = 64;
/// Most connections of one of them.
const EACH_MAX: usize = 16;

/// How many there are.
#[derive(Default)]
struct Counts {
    own: usize,
    others: BTreeMap<u32, usize>,
}

/// The connections that are open.
#[derive(Clone, Default)]
pub(super) struct Connections(Arc<Mutex<Counts>>);

/// Counts a connection as long as it lives, but for the time in which it rests.
pub(super) struct Place {
    counts: Arc<Mutex<Counts>>,
    /// The user, if that is neither root nor the daemon's own.
    other: Option<u32>,
    rests: bool,
}

impl Connections {
    /// A place for one more of a user; none if there are too many.
    pub(super) fn take(&self, by: &Credentials) -> Option<Place> {
        let other = (!by.is_unbound()).then(|| by.uid());
        let mut counts = self.0.lock();
        match other {
            None if counts.own >= OWN_MAX => return None,
            None => counts.own += 1,
            Some(user) => {
                let is_full = counts.others.values().sum::<usize>() >= OTHERS_MAX;
                let of_user = counts.others.get(&user).copied().unwrap_or(0);
                if is_full || of_user >= EACH_MAX {
                    return None;
                }
                counts.others.insert(user, of_user + 1);
            }
        }
        Some(Place { counts: Arc::clone(&self.0), other, rests: false })
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        let counts = self.0.lock();
        counts.own + counts.others.values().sum::<usize>()
    }
}

impl Place {
    /// Leaves it to others: the client works in a transaction. Only root and the daemon's own user
    /// have those.
    pub(super) fn rest(&mut self) {
        if self.other.is_none() && !std::mem::replace(&mut self.rests, true) {
            let mut counts = self.counts.lock();
            counts.own = counts.own.saturating_sub(1);
        }
    }

    /// Counts again: its client waits for an answer.
    pub(super) fn work(&mut self) {
        if std::mem::take(&mut self.rests) {
            self.counts.lock().own += 1;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.rests {
            return;
        }
        let mut counts = self.counts.lock();
        let Some(user) = self.other else {
            counts.own = counts.own.saturating_sub(1);
            return;
        };
        let left = counts.others.get(&user).map_or(0, |count| count.saturating_sub(1));
        match left {
            0 => counts.others.remove(&user),
            left => counts.others.insert(user, left),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::{Connections, EACH_MAX, OTHERS_MAX, OWN_MAX};
    use crate::control::credentials::Credentials;
    use crate::paths::own_uid;

    #[test]
    fn a_flood_of_one_user_takes_no_place_of_another() {
        let connections = Connections::default();
        let user = |number: u32| Credentials::of_user(own_uid() + 1 + number);
        let flood: Vec<_> = std::iter::from_fn(|| connections.take(&user(0))).collect();
        assert_eq!(flood.len(), EACH_MAX);
        assert!(connections.take(&user(1)).is_some());
        let users = u32::try_from(OTHERS_MAX).unwrap();
        let all: Vec<_> =
            (1..=users).filter_map(|number| connections.take(&user(number))).collect();
        assert_eq!(flood.len() + all.len(), OTHERS_MAX);
        let own: Vec<_> =
            std::iter::from_fn(|| connections.take(&Credentials::of_user(own_uid()))).collect();
        assert_eq!((own.len(), connections.count()), (OWN_MAX, OWN_MAX + OTHERS_MAX));
        let mut own = own;
        own[0].rest();
        let another = connections.take(&Credentials::of_user(own_uid()));
        assert!(another.is_some(), "one that rests leaves its place");
        own[0].work();
        assert_eq!(connections.count(), OWN_MAX + OTHERS_MAX + 1);
        drop((flood, all, own, another));
        assert_eq!(connections.count(), 0);
        assert!(connections.take(&user(0)).is_some());
    }
}
