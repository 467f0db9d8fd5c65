//! Each operation on an open pool, whoever asks for it.

use super::{OpenPool, hexadecimal, make_root_directory, owners};
use crate::control::protocol::{
    Answer, DamageRow, DatasetRow, DestructionReport, DeviceRow, Operation, PropertyRow,
    StatusReport,
};
use crate::error::{Error, Result};
use marram_pool::Health;
use marram_store::{DatasetKind, DatasetName, DatasetReport, Properties, PropertySource, Store};
use std::collections::BTreeMap;

/// Does what is asked.
pub(super) fn perform(open: &OpenPool, operation: &Operation) -> Result<Answer> {
    let pool = open.pool.as_ref();
    match operation {
        Operation::Snapshot { dataset, snapshot } => {
            pool.snapshot(&dataset.parse()?, snapshot)?;
        }
        Operation::Clone { origin, name } => {
            pool.clone_snapshot(&origin.parse()?, &name.parse()?)?;
        }
        Operation::CreateDataset { name, properties } => {
            let name = name.parse()?;
            pool.create(&name, &Properties(properties.clone()))?;
            make_root_directory(pool, &name)?;
        }
        Operation::Destroy { source, dry_run } => {
            return destroy(pool, source, *dry_run);
        }
        Operation::List => {
            let rows = pool.list()?.iter().map(dataset_row).collect();
            return Ok(Answer::Datasets(rows));
        }
        Operation::Get { dataset } => return get(pool, &dataset.parse()?),
        Operation::Set { dataset, properties } => set(pool, &dataset.parse()?, properties)?,
        Operation::Owners { source } => return owners::report(pool, source),
        Operation::SetLimit { dataset, owner, bytes_limit, inodes_limit } => {
            owners::set_limit(pool, dataset, *owner, (*bytes_limit, *inodes_limit))?;
        }
        Operation::Status => return Ok(Answer::Status(Box::new(status(open)))),
        Operation::Grow { size_bytes } => return grow(open, *size_bytes),
        Operation::Sync => pool.sync()?,
    }
    Ok(Answer::Done)
}

fn destroy(pool: &dyn Store, source: &str, dry_run: bool) -> Result<Answer> {
    let destruction = pool.destroy(&source.parse()?, dry_run)?;
    Ok(Answer::Destruction(DestructionReport {
        sources: destruction.sources.iter().map(ToString::to_string).collect(),
        freed_bytes: destruction.freed_bytes,
        dry_run,
    }))
}

fn dataset_row(report: &DatasetReport) -> DatasetRow {
    let kind = match report.kind {
        DatasetKind::Live => "dataset",
        DatasetKind::Clone => "clone",
        DatasetKind::Snapshot => "snapshot",
    };
    DatasetRow {
        name: report.source.to_string(),
        kind: kind.to_owned(),
        origin: report.origin.as_ref().map(ToString::to_string),
        created_seconds: report.created_seconds,
        referenced_bytes: report.referenced_bytes,
        unique_bytes: report.unique_bytes,
    }
}

fn get(pool: &dyn Store, dataset: &DatasetName) -> Result<Answer> {
    let row = |(property, (value, source)): (String, (String, PropertySource))| PropertyRow {
        dataset: dataset.to_string(),
        property,
        value,
        source: match source {
            PropertySource::Default => "default".to_owned(),
            PropertySource::Local => "local".to_owned(),
        },
    };
    Ok(Answer::Properties(pool.properties(dataset)?.into_iter().map(row).collect()))
}

/// Sets what can be set; the first that fails names those that were set before it.
fn set(
    pool: &dyn Store,
    dataset: &DatasetName,
    properties: &BTreeMap<String, Option<String>>,
) -> Result<()> {
    let mut done: Vec<&str> = Vec::new();
    for (name, value) in properties {
        match pool.set_property(dataset, name, value.as_deref()) {
            Ok(()) => done.push(name),
            Err(error) if done.is_empty() => return Err(error.into()),
            Err(error) => {
                let done = done.join(", ");
                return Err(Error::partial(format!("{name}: {error}; {done} was set")));
            }
        }
    }
    Ok(())
}

fn grow(open: &OpenPool, size_bytes: Option<u64>) -> Result<Answer> {
    if let Some(size_bytes) = size_bytes {
        open.device.grow(size_bytes)?;
    }
    let size_bytes = open.pool.grow().map_err(|error| Error::failed(error.to_string()))?;
    Ok(Answer::Grown { size_bytes })
}

fn status(open: &OpenPool) -> StatusReport {
    let status = open.pool.status();
    let devices = status.devices.iter().map(|device| DeviceRow {
        name: device.name.clone(),
        size_bytes: device.size_bytes,
        read_errors: device.read_errors,
        write_errors: device.write_errors,
        checksum_errors: device.checksum_errors,
        written_bytes: device.written_bytes,
        flushes: device.flushes,
    });
    let damage = status.damage.iter().map(|damage| DamageRow {
        place: damage.place.clone(),
        offset: None,
        len: None,
        reason: damage.reason.clone(),
    });
    let (health, reason) = match &status.health {
        Health::Online if status.damage.is_empty() => ("online", None),
        Health::Online => ("damaged", Some("stored bytes are damaged; see below".to_owned())),
        Health::ReadOnly(reason) => ("read-only", Some(reason.clone())),
    };
    StatusReport {
        pool: open.path.clone(),
        pool_id: hexadecimal(&status.pool_id),
        label: status.label.clone(),
        health: health.to_owned(),
        reason,
        group: status.group,
        last_commit_seconds: status.last_commit_seconds,
        total_bytes: status.total_bytes,
        allocated_bytes: status.allocated_bytes,
        free_bytes: status.free_bytes,
        cache_bytes: status.cache_bytes,
        dirty_bytes: status.dirty_bytes,
        healed_blocks: status.healed_blocks,
        devices: devices.collect(),
        damage: damage.collect(),
        mounts: Vec::new(),
        dead_mounts: Vec::new(),
        daemon: None,
    }
}
