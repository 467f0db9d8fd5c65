//! What is needed to reach a database, beside its name.

use marram_store::Result;
use std::sync::Arc;
use std::time::Duration;

/// Gives the password for a place. It is asked each time when a server asks.
pub type Password<P> = Arc<dyn Fn(&P) -> Result<Vec<u8>> + Send + Sync>;

/// Gives the time since some moment; it never goes back.
pub type Elapsed = Arc<dyn Fn() -> Duration + Send + Sync>;

/// How long most wait for a server.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How a database is reached.
#[derive(Clone)]
pub struct Access<P> {
    /// Where it is.
    pub place: P,
    /// The password of the user.
    pub password: Password<P>,
    /// What the server lists the connections under: a name that nothing else has, of at most 40
    /// letters. Those that were lost are ended by it.
    pub name: String,
    /// How long a server is awaited that is gone, or does not answer.
    pub patience: Duration,
    /// The time by which that is measured.
    pub elapsed: Elapsed,
}

impl<P> Access<P> {
    pub(crate) fn password(&self) -> Result<Vec<u8>> {
        (self.password)(&self.place)
    }
}
