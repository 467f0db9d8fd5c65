//! Requests as the kernel sends them: any bytes, with the length in the header mended so that the
//! bodies are reached.

#![no_main]

use libfuzzer_sys::fuzz_target;
use marram_fuse::protocol::parse;

fuzz_target!(|bytes: &[u8]| {
    drop(format!("{:?}", parse(bytes)));
    let mut request = bytes.to_vec();
    if let (Ok(len), Some(place)) = (u32::try_from(bytes.len()), request.get_mut(..4)) {
        place.copy_from_slice(&len.to_le_bytes());
        drop(format!("{:?}", parse(&request)));
    }
});
