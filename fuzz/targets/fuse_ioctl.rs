//! What our own control calls take and give: any bytes. What makes sense survives another way.

#![no_main]

use libfuzzer_sys::fuzz_target;
use marram_fuse::protocol::{FileCall, Prepared, decode_extents, encode_extents};

fuzz_target!(|bytes: &[u8]| {
    let Some((command, input)) = bytes.split_first_chunk() else {
        return;
    };
    let command = u32::from_le_bytes(*command);
    if let Some(call) = FileCall::decode(command, input) {
        assert_eq!(call.encode(), (command, input.to_vec()));
    }
    if let Some(prepared) = Prepared::decode(input) {
        assert_eq!(Prepared::decode(&prepared.encode()), Some(prepared));
    }
    if let Some(extents) = decode_extents(input) {
        assert_eq!(decode_extents(&encode_extents(&extents)), Some(extents));
    }
});
