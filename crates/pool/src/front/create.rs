//! Making a pool, and recognising one.

use crate::commit::sync;
use crate::front::Pool;
use crate::memtable::settings::Settings;
use crate::snapshots::label;
use crate::snapshots::session::Session;
use crate::state::open;
use crate::state::options::OpenOptions;
use crate::state::superblocks::newest_superblock;
use crate::{Error, check_property};
use marram_device::Device;
use marram_format::FormatError;
use marram_format::group::Group;
use marram_format::pointer::GRAIN_BYTES;
use marram_format::signature::{SIGNATURE_BYTES, Signature};
use marram_format::superblock::{DATA_START_BYTES, DeviceEntry, Superblock, device_kind};
use marram_format::version::FormatVersion;
use marram_store::{DatasetName, Properties, Store};
use std::sync::Arc;

/// Smallest pool, in bytes.
pub const POOL_BYTES_MIN: u64 = 32 << 20;

/// What a new pool is to be like.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// A name for people: at most 64 bytes.
    pub label: String,
    /// Properties of the root dataset.
    pub properties: Properties,
    /// An id that no other pool has.
    pub pool_id: [u8; 16],
    /// A random number that nobody else knows: see the intent log in `docs/format.md`.
    pub secret: u64,
    /// The present time, in seconds since 1970.
    pub now_seconds: i64,
}

/// What is known of a pool without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its id.
    pub pool_id: [u8; 16],
    /// Its label.
    pub label: String,
    /// The version of its format.
    pub version: FormatVersion,
    /// When it was created, in seconds since 1970.
    pub created_seconds: i64,
    /// When it was last committed, in seconds since 1970.
    pub committed_seconds: i64,
}

/// Makes a pool on a device, with the root dataset in it. What the device held is lost.
///
/// # Errors
/// A device that is too small or fails, several devices, an option that makes no sense.
pub fn create(devices: &[Arc<dyn Device>], options: &CreateOptions) -> Result<(), Error> {
    let [device] = devices else {
        let reason = "this version makes pools on one device: name exactly one";
        return Err(Error::Unsupported(reason.to_owned()));
    };
    let size_bytes = device.size()? / GRAIN_BYTES * GRAIN_BYTES;
    if size_bytes < POOL_BYTES_MIN {
        return Err(Error::TooSmall {
            device: device.name(),
            found_bytes: size_bytes,
            needed_bytes: POOL_BYTES_MIN,
            reason: "no pool is smaller; choose a larger size".to_owned(),
        });
    }
    let properties = checked(&options.properties)?;
    label::check(&options.label).map_err(Error::Unsupported)?;
    erase_head(device.as_ref())?;
    let superblock = first_superblock(options, size_bytes);
    let now_seconds = options.now_seconds;
    let options_of_open = OpenOptions::new(move || now_seconds);
    let pool = Pool {
        session: Session::new(open::start(devices.to_vec(), options_of_open, superblock, None)?),
    };
    sync::begin_log(&pool.session.state)?;
    pool.create(&DatasetName::root(), &properties)?;
    write_signature(device.as_ref(), options)
}

fn checked(properties: &Properties) -> Result<Properties, Error> {
    let mut checked = Properties::default();
    for (name, value) in &properties.0 {
        checked.0.insert(name.clone(), check_property(name, value)?);
    }
    let local: Vec<_> = checked.0.clone().into_iter().collect();
    Settings::new(&local)?;
    Ok(checked)
}

/// Nothing of an older pool may be taken for this one.
fn erase_head(device: &dyn Device) -> Result<(), Error> {
    let zeros = vec![0; usize::try_from(DATA_START_BYTES).unwrap_or(usize::MAX)];
    device.write(0, &zeros)?;
    Ok(device.flush()?)
}

fn first_superblock(options: &CreateOptions, size_bytes: u64) -> Superblock {
    Superblock {
        pool_id: options.pool_id,
        label: options.label.clone(),
        version: FormatVersion::CURRENT,
        features_incompatible: 0,
        features_read_compatible: 0,
        features_compatible: 0,
        group: Group(0),
        committed_seconds: options.now_seconds,
        created_seconds: options.now_seconds,
        devices: vec![DeviceEntry { id: options.pool_id, size_bytes, kind: device_kind::SINGLE }],
        device_index: 0,
        pool_tree: None,
        tail: None,
        intent_log: None,
        next_dataset: 1,
        allocated_grains: 0,
        secret: options.secret,
    }
}

/// The signature comes last: what has it is a whole pool.
fn write_signature(device: &dyn Device, options: &CreateOptions) -> Result<(), Error> {
    let signature = Signature {
        version: FormatVersion::CURRENT,
        pool_id: options.pool_id,
        label: options.label.clone(),
        created_seconds: options.now_seconds,
    };
    device.write(0, &signature.encode())?;
    Ok(device.flush()?)
}

/// Looks whether a device holds a pool, without changing anything.
///
/// # Errors
/// A device that cannot be read, or a pool that is damaged or too new.
pub fn probe(device: &dyn Device) -> Result<Option<Probe>, Error> {
    let found_bytes = device.size()?;
    if found_bytes < SIGNATURE_BYTES as u64 {
        return Ok(None);
    }
    let mut page = vec![0; SIGNATURE_BYTES];
    device.read(0, &mut page)?;
    let foreign = matches!(
        Signature::decode(&page),
        Err(FormatError::Foreign { .. } | FormatError::Blank { .. })
    );
    match newest_superblock(device) {
        Ok(newest) => Ok(Some(Probe {
            pool_id: newest.pool_id,
            label: newest.label,
            version: newest.version,
            created_seconds: newest.created_seconds,
            committed_seconds: newest.committed_seconds,
        })),
        Err(Error::NoPool { .. }) if foreign => Ok(None),
        Err(Error::NoPool { device, .. }) if found_bytes < POOL_BYTES_MIN => Err(Error::TooSmall {
            device,
            found_bytes,
            needed_bytes: POOL_BYTES_MIN,
            reason: "no pool is smaller, so the end of this one is cut off, with its superblocks; \
                     bring back the whole file or device"
                .to_owned(),
        }),
        Err(error) => Err(error),
    }
}
