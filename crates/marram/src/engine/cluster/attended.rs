//! Work with a store that no daemon serves, during which other clients are answered.

use marram_cluster::Cluster;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Between two looks whether others have come, where no daemon serves the home.
const LISTENING: Duration = Duration::from_millis(50);
/// Looks between two signs of life.
const BEAT_EVERY: u32 = 20;

/// Does something with a store that no daemon serves, and answers other clients meanwhile: one that
/// comes waits for that, and takes a client that is silent for lost.
pub(super) fn attended<T>(store: &Cluster, work: impl FnOnce() -> T) -> T {
    let (ended, end) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut round = 0_u32;
            while end.recv_timeout(LISTENING) == Err(RecvTimeoutError::Timeout) {
                round = round.wrapping_add(1);
                // What fails here fails in the work too.
                let _told_there = store.listen(&mut || ());
                if round.is_multiple_of(BEAT_EVERY) {
                    let _told_there = store.beat();
                }
            }
        });
        // Dropped when the work has ended, however it does.
        let _working = ended;
        work()
    })
}
