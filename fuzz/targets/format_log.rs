//! The intent log: heads, and frames with their header and checksum mended so that parts and edits
//! are reached. What decodes encodes to the same bytes. The first byte selects.

#![no_main]

use libfuzzer_sys::fuzz_target;
use marram_format::log::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES, FRAME_MAGIC, FrameWriter};
use marram_format::log::{LogEdit, LogHead, LogPart, decode_frame};
use marram_format::pointer::Pointer;
use xxhash_rust::xxh3::xxh3_128_with_seed;

const POOL_ID: [u8; 16] = [7; 16];
const SECRET: u64 = 11;
const POSITION: u64 = 13;

fuzz_target!(|bytes: &[u8]| {
    match bytes.split_first() {
        None => {}
        Some((0, pointer)) => head(pointer),
        Some((_, frame)) => {
            assert!(decode_frame(frame, &POOL_ID, !SECRET, POSITION).is_none());
            mended(frame);
        }
    }
});

fn head(bytes: &[u8]) {
    if let Ok(pointer) = Pointer::decode(bytes)
        && let Ok(head) = LogHead::from_pointer(&pointer)
    {
        assert_eq!(head.to_pointer(pointer.birth), pointer);
    }
}

fn mended(bytes: &[u8]) {
    let mut frame = bytes.to_vec();
    let Some(start) = frame.get_mut(..FRAME_HEADER_BYTES) else { return };
    start[..8].copy_from_slice(&FRAME_MAGIC);
    start[8..24].copy_from_slice(&POOL_ID);
    start[24..32].copy_from_slice(&POSITION.to_le_bytes());
    start[40..].fill(0);
    let len = u32::from_le_bytes([start[32], start[33], start[34], start[35]]) as usize;
    let len = len.clamp(FRAME_HEADER_BYTES, bytes.len().min(FRAME_BYTES_MAX));
    frame[32..36].copy_from_slice(&(len as u32).to_le_bytes());
    let checksum = xxh3_128_with_seed(&frame[..len], SECRET);
    frame[40..FRAME_HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    let parts = decode_frame(&frame, &POOL_ID, SECRET, POSITION).expect("a checksum that is right");
    if let Ok(parts) = parts {
        assert_eq!(encode(&parts)[..len], frame[..len]);
    }
}

fn encode(parts: &[LogPart<'_>]) -> Vec<u8> {
    let mut writer = FrameWriter::new();
    for part in parts {
        match &part.merge {
            None => writer.begin_part(part.freeze, part.dataset),
            Some(entry) => writer.begin_merge(part.freeze, entry),
        }
        for edit in &part.edits {
            match *edit {
                LogEdit::Remove { key } => writer.remove(key),
                LogEdit::Put { key, value, block } => writer.put(key, value, block),
                LogEdit::Patch { key, value, at, data } => writer.patch(key, value, at, data),
            }
        }
    }
    writer.finish(&POOL_ID, SECRET, POSITION)
}
