//! The pools that the campaign works on.

/// A device and the properties of the root dataset.
#[derive(Debug)]
pub struct Setting {
    /// Its name in ids.
    pub name: &'static str,
    /// Size of the device, in bytes.
    pub device_bytes: usize,
    /// Properties of the root dataset.
    pub properties: &'static [(&'static str, &'static str)],
    /// Bytes of the pool's cache: with few, nearly each read reaches the device.
    pub cache_bytes: usize,
    /// Of how many faults of reads one is made.
    pub every_read: usize,
}

/// All settings.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "small",
        device_bytes: 32 << 20,
        properties: &[],
        cache_bytes: 64 << 20,
        every_read: 1,
    },
    Setting {
        name: "wide",
        device_bytes: 400 << 20,
        properties: &[],
        cache_bytes: 64 << 20,
        every_read: 1,
    },
    Setting {
        name: "plain",
        device_bytes: 256 << 20,
        properties: &[("compression", "off"), ("recordsize", "16K"), ("checksum", "blake3")],
        cache_bytes: 64 << 20,
        every_read: 1,
    },
    Setting {
        name: "uncached",
        device_bytes: 100 << 20,
        properties: &[],
        cache_bytes: 0,
        every_read: 7,
    },
];
