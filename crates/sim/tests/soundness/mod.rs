//! What holds of a pool whatever was done to it: the offline verifier finds nothing.

use marram_check::{CheckOptions, Summary, check};
use marram_device::Device;

/// Checks the pool on a device with all content, in datasets and in snapshots. Returns what is
/// there; `what` says which pool it is that something was found in.
pub(crate) fn assert_sound(device: &dyn Device, what: &str) -> Summary {
    let mut found = Vec::new();
    let options = CheckOptions { read_data: true, snapshots: true };
    let summary = check(device, &options, &mut |finding| found.push(finding.to_string()));
    assert!(found.is_empty(), "{what}: {found:#?}");
    summary.unwrap_or_else(|error| panic!("{what}: {error:?}"))
}
