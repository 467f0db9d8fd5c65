//! Attempts at something, for as long as there is patience.

use super::Access;
use std::time::Duration;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Attempts at something. The patience begins to run out with the first one that fails.
pub(crate) struct Attempts<'a, P> {
    access: &'a Access<P>,
    beyond: Duration,
    end: Option<Duration>,
}

impl<P> Attempts<'_, P> {
    pub(crate) fn new(access: &Access<P>) -> Attempts<'_, P> {
        Attempts { access, beyond: Duration::ZERO, end: None }
    }

    /// The same that go on for so much longer.
    pub(crate) fn longer(self, beyond: Duration) -> Self {
        Attempts { beyond, ..self }
    }

    /// Pauses before the next one; false if the time is over.
    pub(crate) fn go_on(&mut self) -> bool {
        self.go_on_after(PAUSE)
    }

    /// The same with a pause of the caller's.
    pub(crate) fn go_on_after(&mut self, pause: Duration) -> bool {
        let Access { patience, elapsed, .. } = self.access;
        let end = *self.end.get_or_insert_with(|| elapsed() + *patience + self.beyond);
        std::thread::sleep(pause);
        elapsed() < end
    }
}
