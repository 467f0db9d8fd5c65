//! What automatic snapshots ask of a cluster home, and whether the clock of this host is to be
//! believed.
//!
//! A clock that is set back would take snapshots of a time that is over, by which good ones would
//! count as too many. So nothing is taken and nothing goes while the clock is behind what other
//! clients that are there, or this host before, have said of the time. Where nobody else says
//! otherwise, a clock that has gone on for an hour is believed: then it was wrong before.

use crate::engine::automatic::Scheduling;
use crate::error::Result;
use marram_cluster::{Clocks, Cluster};
use marram_store::{DatasetName, Scheduled};
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Clocks of hosts that are right differ by no more.
const SKEW_SECONDS: i64 = 600;
/// After so long a clock that is behind is believed, where nobody else says otherwise.
const BELIEVED_AFTER: Duration = Duration::from_secs(3600);

/// A cluster home.
pub(super) struct OfCluster<'c>(pub(super) &'c Cluster);

impl Scheduling for OfCluster<'_> {
    fn scheduled(&self) -> Result<Vec<Scheduled>> {
        Ok(self.0.scheduled()?)
    }

    fn has_changed(&self, of: &Scheduled) -> Result<bool> {
        Ok(self.0.has_changed_since(of)?)
    }

    fn take(&self, due: &[Scheduled], name: &str) -> Result<Vec<DatasetName>> {
        Ok(self.0.take_due(due, name)?)
    }

    fn skew_seconds(&self) -> i64 {
        SKEW_SECONDS
    }
}

/// The clock of this host, as it was seen up to now.
#[derive(Default)]
pub(super) struct HostClock(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// The latest moment that it has said, or that was known before it came.
    latest: i64,
    /// Since when it says an earlier one.
    behind_since: Option<Instant>,
    /// It is believed, whatever was known before.
    is_believed: bool,
}

impl HostClock {
    /// How many seconds it is behind what is known of the time; none if it is to be believed.
    pub(super) fn behind(&self, now: i64, told: Clocks, at: Instant) -> Option<i64> {
        let seen = &mut *self.0.lock();
        let behind = |known: i64| known.checked_sub(now).filter(|by| *by > SKEW_SECONDS);
        if let Some(known) = told.others_seconds
            && let Some(by) = behind(known)
        {
            // Also when the other one has gone.
            seen.latest = seen.latest.max(known);
            (seen.behind_since, seen.is_believed) = (None, false);
            return Some(by);
        }
        if !seen.is_believed {
            seen.latest = seen.latest.max(told.before_seconds);
        }
        match behind(seen.latest) {
            Some(by) if at < *seen.behind_since.get_or_insert(at) + BELIEVED_AFTER => Some(by),
            Some(_) => {
                *seen = Seen { latest: now, behind_since: None, is_believed: true };
                None
            }
            None => {
                (seen.latest, seen.behind_since) = (seen.latest.max(now), None);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BELIEVED_AFTER, HostClock, SKEW_SECONDS};
    use marram_cluster::Clocks;
    use std::time::Instant;

    const NOW: i64 = 1_795_532_400;
    const DAY: i64 = 86_400;

    fn told(others_seconds: Option<i64>, before_seconds: i64) -> Clocks {
        Clocks { others_seconds, before_seconds }
    }

    #[test]
    fn a_clock_that_is_behind_others_is_never_believed() {
        let (clock, at) = (HostClock::default(), Instant::now());
        assert_eq!(clock.behind(NOW, told(Some(NOW + SKEW_SECONDS), 0), at), None, "a little");
        assert_eq!(clock.behind(NOW, told(Some(NOW - DAY), 0), at), None, "it is ahead");
        for after in [at, at + 2 * BELIEVED_AFTER] {
            assert_eq!(clock.behind(NOW - DAY, told(Some(NOW), 0), after), Some(DAY));
        }
        let after = at + 2 * BELIEVED_AFTER;
        assert_eq!(clock.behind(NOW - DAY, told(None, 0), after), Some(DAY), "they have gone");
    }

    #[test]
    fn a_clock_that_went_back_is_believed_once_it_has_gone_on_for_an_hour() {
        let (clock, at) = (HostClock::default(), Instant::now());
        let told = told(None, NOW);
        assert_eq!(clock.behind(NOW, told, at), None);
        assert_eq!(clock.behind(NOW - DAY, told, at), Some(DAY));
        assert_eq!(clock.behind(NOW - DAY, told, at + BELIEVED_AFTER / 2), Some(DAY));
        assert_eq!(clock.behind(NOW, told, at + BELIEVED_AFTER / 2), None, "it is right again");
        assert_eq!(clock.behind(NOW - DAY, told, at + BELIEVED_AFTER), Some(DAY));
        assert_eq!(clock.behind(NOW - DAY, told, at + 3 * BELIEVED_AFTER), None);
        assert_eq!(clock.behind(NOW - DAY + 60, told, at + 3 * BELIEVED_AFTER), None, "for good");
    }
}
