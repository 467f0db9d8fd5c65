//! Superblocks and signatures: any page, with its checksum mended so that the fields are reached.

#![no_main]

use libfuzzer_sys::fuzz_target;
use marram_format::signature::Signature;
use marram_format::superblock::Superblock;

fuzz_target!(|bytes: &[u8]| {
    decode(bytes);
    let mut page = bytes.to_vec();
    page.resize(4096, 0);
    let checksum = xxhash_rust::xxh3::xxh3_128(&page[..4080]);
    page[4080..].copy_from_slice(&checksum.to_le_bytes());
    decode(&page);
});

fn decode(page: &[u8]) {
    if let Ok(superblock) = Superblock::decode(page) {
        assert_eq!(Superblock::decode(&superblock.encode()).as_ref(), Ok(&superblock));
        std::hint::black_box(superblock.write_obstacle());
    }
    if let Ok(signature) = Signature::decode(page) {
        assert_eq!(Signature::decode(&signature.encode()).as_ref(), Ok(&signature));
    }
}
