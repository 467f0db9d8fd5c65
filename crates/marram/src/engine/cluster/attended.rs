//! Work with a store that no daemon serves, during which other clients are answered.

use marram_cluster::Cluster;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, Scope};
use std::time::Duration;

/// Between two looks whether others have come, where no daemon serves the home.
const LISTENING: Duration = Duration::from_millis(50);
/// Between two signs of life.
const BEAT: Duration = Duration::from_secs(1);

/// Does something with a store that no daemon serves, and answers other clients meanwhile: one that
/// comes waits for that, and takes a client that is silent for lost. What fails here fails in the
/// work too.
pub(super) fn attended<T>(store: &Cluster, work: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let _answering = every(scope, LISTENING, || drop(store.listen(&mut || ())));
        // An answer may wait for a publication of the work.
        let _living = every(scope, BEAT, || drop(store.beat()));
        work()
    })
}

/// Does something again and again, until what it returns is dropped.
fn every<'s>(
    scope: &'s Scope<'s, '_>,
    pause: Duration,
    act: impl Fn() + Send + 's,
) -> mpsc::Sender<()> {
    let (ended, end) = mpsc::channel::<()>();
    scope.spawn(move || {
        while end.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            act();
        }
    });
    ended
}
