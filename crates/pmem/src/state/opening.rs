//! How an image is opened: what a crash has left half done is finished, and all states are held
//! until they have been looked through.

use crate::error::ImageError;
use crate::image::{CREATED_AT, Header, LABEL_AT, check_label};
use crate::layout::{HEADER_CHECKED, PAGE};
use crate::memory::Memory;
use crate::state::commit::Plan;
use crate::state::{Frozen, State};
use marram_vfs::{Error, Result};

impl State {
    /// Opens an image: what a crash has left half done is finished. After a power cut on a medium
    /// without an order, it is first what it was at the last checkpoint. What is in use is found in
    /// what is returned beside.
    ///
    /// # Errors
    /// There is no image, or it makes no sense.
    pub(crate) fn open(
        memory: Memory,
        writable: bool,
    ) -> std::result::Result<(State, Frozen), ImageError> {
        let header = Header::read(&memory)?;
        let bytes = memory.bytes();
        if header.pages != bytes / PAGE {
            let pages = header.pages;
            return Err(ImageError::Damaged(format!(
                "it has {bytes} bytes, and its header says {pages} pages of 4096"
            )));
        }
        let mut state = State::unscanned(memory);
        if writable {
            state.settle_words()?;
        }
        if !state.is_live()? {
            if !writable {
                return Err(ImageError::Interrupted);
            }
            state.restore()?;
            state = State::unscanned(state.memory);
        }
        if writable {
            state.settle_redo()?;
            state.settle_intent()?;
        } else if state.is_unsettled()? {
            return Err(ImageError::Interrupted);
        }
        let frozen = state.freeze()?;
        Ok((state, frozen))
    }

    /// The header.
    pub(crate) fn header(&self) -> std::result::Result<Header, ImageError> {
        Header::read(&self.memory)
    }

    /// Gives the image another label.
    pub(crate) fn set_label(&mut self, label: &str) -> Result<()> {
        check_label(label)?;
        // Several words of the header change: a power cut could leave some of them.
        if self.memory.host().is_some() {
            return Err(Error::NotSupported);
        }
        let old = self.header().map_err(|error| Error::Damaged(error.to_string()))?;
        let bytes = Header { label: label.to_owned(), ..old }.encode();
        let mut plan = Plan::default();
        let words = bytes.chunks_exact(8).enumerate().filter(|(at, _)| {
            (LABEL_AT..CREATED_AT).contains(&(at * 8)) || at * 8 == HEADER_CHECKED
        });
        for (at, bytes) in words {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            plan.edit(at as u64 * 8, u64::from_le_bytes(word));
        }
        self.commit(&plan)
    }
}
