//! What Ctrl-C and SIGTERM do to a comparison: it ends between two steps, and takes away what it
//! mounted. A signal only asks, however often it comes: a mount that is left behind holds its loop
//! device, and with it the space of its image.

use marram_lab::failure::{Result, fail};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From now on a signal asks for the end.
pub(super) fn listen() -> Result<()> {
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ASKED))?;
    }
    Ok(())
}

/// Whether the end was asked for.
pub(super) fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Fails once the end was asked for.
pub(super) fn check() -> Result<()> {
    if is_asked() { fail("interrupted: what was mounted is unmounted") } else { Ok(()) }
}
