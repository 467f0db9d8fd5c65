//! What becomes of an image whose medium has failed.
//!
//! Nothing is stored any more, and the operation that met the failure is refused. What it had
//! stored can be a part of it: as a mount after a crash would, it is finished or not, but in memory
//! alone, over what can be read still. What was known of the image may be ahead of it, and is
//! forgotten.

use crate::layout::SLOTS;
use crate::state::counts::ContentCounts;
use crate::state::{Dataset, State};
use marram_vfs::{Error, Result};

/// What is known of a failure.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What has failed.
    why: String,
    /// What is there still makes sense, and can be read.
    is_readable: bool,
}

impl State {
    /// Looks whether the medium has failed since the last operation.
    pub(crate) fn notice_failure(&mut self) {
        if self.failure.is_none()
            && let Some(why) = self.memory.failure()
        {
            self.forget_unsure();
            self.memory.lay_over(true);
            let settled = self.settle_redo().and_then(|()| self.settle_intent());
            self.memory.lay_over(false);
            let slots = settled.and_then(|()| self.read_slots(SLOTS, &mut |_| Ok(())));
            let is_readable = slots.is_ok();
            if let Ok(slots) = slots {
                self.slots = slots;
            }
            self.failure = Some(Failure { why, is_readable });
        }
    }

    /// Forgets what an operation may have changed that was not stored wholly. Which inodes are
    /// pinned does not lie on the medium, and stays.
    fn forget_unsure(&mut self) {
        let forget = |dataset: &mut Dataset| {
            dataset.directories.clear();
            dataset.inodes_used = None;
        };
        forget(&mut self.dataset);
        self.others.values_mut().for_each(forget);
        self.indexed = 0;
        self.content_counts = ContentCounts::default();
        self.fresh.clear();
        self.made.clear();
        self.freed.clear();
        self.late.clear();
    }

    /// What has failed, if anything has.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_ref().map(|failure| &*failure.why)
    }

    /// Refuses to read what makes no sense since a failure.
    pub(crate) fn check_readable(&self) -> Result<()> {
        match &self.failure {
            Some(failure) if !failure.is_readable => Err(Error::Io(failure.why.clone())),
            _ => Ok(()),
        }
    }

    /// Notes that what was stored could not be made durable: nothing more is stored.
    pub(crate) fn fail(&mut self, error: &Error) {
        let why = error.to_string();
        self.failure.get_or_insert(Failure { why, is_readable: true });
    }

    /// Refuses changes after a failure, or after the end.
    pub(crate) fn check_changeable(&self) -> Result<()> {
        if self.failure.is_some() || self.is_closed { Err(Error::ReadOnly) } else { Ok(()) }
    }
}
