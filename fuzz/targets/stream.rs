//! Streams from anywhere, as they come, and with the right checksums around any records; and tokens
//! of streams that were cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use marram_format::stream::{RecordChain, RecordKind, ResumeToken, StreamEnd, stream_prefix};

/// Longest payload that is made, in bytes.
const PAYLOAD_BYTES_MAX: usize = 4096;

fn verify(stream: &[u8]) {
    // Whatever is wrong with it is an error.
    let _told = marram_pool::verify_stream(&mut &stream[..], &mut |_| {});
}

fuzz_target!(|bytes: &[u8]| {
    verify(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        // What is no token is an error too.
        let _told = ResumeToken::parse(text);
    }
    let prefix = stream_prefix();
    let mut chain = RecordChain::new(&prefix);
    let mut stream = prefix.to_vec();
    let mut rest = bytes;
    while let Some(([kind, low, high], after)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([*low, *high])) % PAYLOAD_BYTES_MAX;
        let (payload, after) = after.split_at(len.min(after.len()));
        rest = after;
        let kind = match kind % 4 {
            0 => RecordKind::Begin,
            1 => RecordKind::Put,
            2 => RecordKind::Remove,
            _ => RecordKind::End,
        };
        chain.seal(kind, payload, &mut stream);
    }
    let whole = chain.whole();
    chain.seal(RecordKind::End, &StreamEnd { whole, ..StreamEnd::default() }.encode(), &mut stream);
    verify(&stream);
});
