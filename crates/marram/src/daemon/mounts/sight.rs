//! Whether anybody sees a mount that has been taken from its directory.

use crate::mountinfo::sights_elsewhere;
use marram_fuse::SessionHandle;
use std::time::Duration;

/// How long a mount may still be served before it counts as used in another place where it is seen.
/// Not at once: its device number may be another mount's already.
const SEEN_PATIENCE: Duration = Duration::from_millis(300);
/// The same if it is seen from another mount namespace: many of those live for a moment.
const SEEN_ELSEWHERE_PATIENCE: Duration = Duration::from_secs(1);
/// The same if nobody can be found.
const UNSEEN_PATIENCE: Duration = Duration::from_secs(5);

/// Whether a mount that is served, and was unmounted in one place so long ago, is used elsewhere.
pub(in crate::daemon) fn is_used(session: &SessionHandle, waited: Duration) -> bool {
    let is_seen_elsewhere = || !sights_elsewhere(session.device().into()).is_empty();
    waited > UNSEEN_PATIENCE
        || waited > SEEN_PATIENCE && session.is_mounted()
        || waited > SEEN_ELSEWHERE_PATIENCE && is_seen_elsewhere()
}
