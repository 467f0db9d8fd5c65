//! The images as they are kept: compressed, part by part.

use marram_codec::{Compression, codec_id, compress, decompress};

/// What is compressed at a time, in bytes.
pub(crate) const PART_BYTES: usize = 1 << 20;

pub(crate) fn pack(image: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut output = Vec::new();
    for part in image.chunks(PART_BYTES) {
        assert!(compress(Compression::Zstd { level: 19 }, part, &mut output), "it compresses");
        packed.extend((output.len() as u32).to_le_bytes());
        packed.extend(&output);
    }
    packed
}

pub(crate) fn unpack(mut packed: &[u8]) -> Vec<u8> {
    let mut image = Vec::new();
    while let Some((len, rest)) = packed.split_first_chunk() {
        let (part, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
        image.extend(decompress(codec_id::ZSTD, part, PART_BYTES).expect("a part of the image"));
        packed = rest;
    }
    image
}
