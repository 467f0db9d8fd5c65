//! Block pointers: what decodes encodes to the same bytes again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use marram_format::pointer::Pointer;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(pointer) = Pointer::decode(bytes) {
        assert_eq!(pointer.encode(), bytes);
        std::hint::black_box(pointer.address());
        let grains: u64 = pointer.extents().map(|extent| extent.end() - extent.start).sum();
        assert_eq!(grains, pointer.grains());
    }
});
