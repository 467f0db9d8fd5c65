//! Runs of the campaign of faults on a pool: one fault, the whole workload, a verdict.
//!
//! What counts as a violation: wrong content, names or attributes; an error where two copies or a
//! healthy medium should have answered; a sync that succeeds after one has failed; a pool that
//! does not open again on the device without faults, or with anything but a state that may be
//! there: that of the last acknowledged sync, or of a moment after it.

#![allow(dead_code, unreachable_pub, reason = "the test and the example use their parts")]

mod settings;
mod trial;
mod world;

use marram_device::MemoryDevice;
use marram_sim::device::{Access, Fault, FaultyDevice};
use marram_sim::faults::{FaultId, positions};
pub use settings::{SETTINGS, Setting};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
pub use trial::Outcome;
use trial::Trial;

/// Places that stray writes hit besides those that the workload writes: the signature, both
/// superblock rings, and the first grains of data.
const TARGETS: [u64; 5] = [0, 64 << 10, 512 << 10, 1 << 20, (1 << 20) + (64 << 10)];

/// What the pool says of a block that no copy is left of.
const BOTH_COPIES: &str = "is damaged in every copy";

/// Runs the workload with one fault.
///
/// # Errors
/// The violation.
pub fn run(id: &FaultId) -> Result<Outcome, String> {
    let setting = setting(&id.setting)?;
    let trial = Trial::new(setting, vec![id.fault])?;
    let device = trial.device();
    match catch_unwind(AssertUnwindSafe(|| trial.run())) {
        Ok(Err(text)) if device.hit_its_like() && text.contains(BOTH_COPIES) => {
            Ok(Outcome::BothCopies)
        }
        Ok(result) => result,
        Err(panic) => Err(format!("a panic: {}", text_of(&*panic))),
    }
}

/// All runs of a setting: it is run once without a fault, and each call that it makes of the
/// device is a position.
///
/// # Errors
/// The run without a fault goes wrong.
pub fn all(setting: &'static Setting, seed: u64) -> Result<Vec<FaultId>, String> {
    let accesses = clean_run(setting)?;
    let faults = positions(&accesses, setting.device_bytes as u64, &TARGETS, seed);
    let both_rings = |fault: &Fault| match *fault {
        // One write over both superblock rings leaves no pool: see docs/faults.md.
        Fault::MisdirectWrite { nth, offset } => {
            offset <= 64 << 10 && offset + write_len(&accesses, nth) > 512 << 10
        }
        _ => false,
    };
    let id = |fault| FaultId { setting: setting.name.to_owned(), fault };
    let mut reads = 0;
    let is_chosen = |fault: &Fault| match fault {
        Fault::FailRead { .. } | Fault::FlipBit { .. } | Fault::RotBit { .. } => {
            reads += 1;
            reads % setting.every_read == 0
        }
        fault => !both_rings(fault),
    };
    Ok(faults.into_iter().filter(is_chosen).map(id).collect())
}

/// What the workload does to the device.
pub fn clean_run(setting: &'static Setting) -> Result<Vec<Access>, String> {
    let mut trial = Trial::new(setting, Vec::new())?;
    let device: Arc<FaultyDevice> = trial.device();
    match trial.work()? {
        Outcome::Correct => Ok(device.accesses()),
        other => Err(format!("without a fault: {other:?}")),
    }
}

fn write_len(accesses: &[Access], nth: u64) -> u64 {
    let mut lens = accesses.iter().filter_map(|access| match access {
        Access::Write { len, .. } => Some(*len),
        _ => None,
    });
    lens.nth(usize::try_from(nth).expect("it counts memory")).unwrap_or(0)
}

fn setting(name: &str) -> Result<&'static Setting, String> {
    let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    SETTINGS
        .iter()
        .find(|setting| setting.name == name)
        .ok_or_else(|| format!("no setting {name:?}: there are {}", names.join(", ")))
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text.clone(),
        (None, Some(text)) => (*text).to_owned(),
        (None, None) => "without a text".to_owned(),
    }
}

/// A device of the setting's size in memory, of which only what is written takes memory.
pub fn memory(setting: &Setting) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(setting.device_bytes))
}
