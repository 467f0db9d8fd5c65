//! Entries of the log of operations. What decodes encodes to the same bytes; and what a limit says
//! is understood as it is written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use marram_format::operation::{OperationRecord, limit_of, limit_text};

fuzz_target!(|bytes: &[u8]| {
    let Ok(entry) = OperationRecord::decode(bytes) else { return };
    assert_eq!(entry.encode(), bytes);
    for text in &entry.texts {
        if let Some(limit) = limit_of(text) {
            assert_eq!(limit_of(&limit_text(limit)), Some(limit));
        }
    }
});
