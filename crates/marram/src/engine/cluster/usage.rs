//! When a daemon that nobody uses goes to rest.
//!
//! A rest lets the daemon of another host be alone, and costs that one what its kernel remembers
//! when it ends. So a daemon whose rests turn out short waits longer for the next one.

use std::time::{Duration, Instant};

/// How long nobody uses it before the first rest.
const UNUSED_MIN: Duration = Duration::from_secs(2);
/// The longest that it waits.
const UNUSED_MAX: Duration = Duration::from_secs(64);
/// A rest is short that ends before so many times of what was waited for it.
const WORTH: u32 = 8;

/// When it was last used.
pub(super) struct Usage {
    uses: u64,
    used: Instant,
    /// How long nobody uses it before the next rest.
    patience: Duration,
    /// When the rest began of which the end was not seen yet.
    rested: Option<Instant>,
}

impl Usage {
    pub(super) fn since(now: Instant) -> Usage {
        Usage { uses: 0, used: now, patience: UNUSED_MIN, rested: None }
    }

    /// Whether it has not been used for long enough; `uses` counts what it was asked for.
    pub(super) fn is_over(&mut self, uses: u64, now: Instant) -> bool {
        if uses != self.uses {
            if let Some(rested) = self.rested.take() {
                let is_short = now - rested < self.patience * WORTH;
                self.patience = match is_short {
                    true => UNUSED_MAX.min(self.patience * 2),
                    false => UNUSED_MIN,
                };
            }
            (self.uses, self.used) = (uses, now);
        }
        now - self.used >= self.patience
    }

    /// It rests from now on.
    pub(super) fn rests(&mut self, now: Instant) {
        self.rested = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::{UNUSED_MAX, UNUSED_MIN, Usage};
    use std::time::{Duration, Instant};

    #[test]
    fn one_that_is_woken_soon_waits_longer_for_its_next_rest() {
        let (mut uses, mut now) = (0, Instant::now());
        let mut usage = Usage::since(now);
        let mut waited = Vec::new();
        for rest in [Duration::from_secs(1); 6].into_iter().chain([Duration::from_secs(600)]) {
            (uses, now) = (uses + 1, now + rest);
            assert!(!usage.is_over(uses, now));
            let began = now;
            while !usage.is_over(uses, now) {
                now += Duration::from_millis(500);
            }
            waited.push((now - began).as_secs());
            usage.rests(now);
        }
        assert_eq!(waited, [2, 4, 8, 16, 32, UNUSED_MAX.as_secs(), UNUSED_MIN.as_secs()]);
    }
}
