//! `marram create`: a pool in a file or on a block device, or a dataset in a pool.

use crate::arguments::{CreateArguments, HomeKind};
use crate::control::protocol::Operation;
use crate::engine::properties::parse_settings;
use crate::engine::{self, CreateCluster, CreatePmem, CreateRequest};
use crate::error::{Error, Result};
use crate::output::{Output, size_text};
use crate::paths::utf8;
use crate::sizes::parse_size;
use crate::target::Target;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct Created {
    pool: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dataset: Option<String>,
}

pub(super) fn run(arguments: &CreateArguments, output: &Output) -> Result<()> {
    let properties = parse_settings(&arguments.options)?;
    if let Some(name) = &arguments.dataset {
        let target = Target::find(&arguments.path)?;
        let operation = Operation::CreateDataset { name: name.clone(), properties };
        target.perform(&operation)?;
        let created = Created { pool: target.pool, size_bytes: None, dataset: Some(name.clone()) };
        output.print(&created, || format!("created the dataset {name}\n"));
        return Ok(());
    }
    let size_bytes = arguments.size.as_deref().map(parse_size).transpose()?;
    utf8(&arguments.path)?;
    if let Some(file) = engine::sqlite_file(&arguments.path) {
        return cluster(arguments, (file, properties), output);
    }
    if let Some(url) = engine::server_url(&arguments.path)? {
        return cluster(arguments, (&url, properties), output);
    }
    if arguments.blocks.is_some() {
        return Err(Error::usage("--blocks is for a home in a database")
            .hint("other homes have their blocks in their own file; write sqlite:FILE, or a URL"));
    }
    if arguments.home == HomeKind::Pmem {
        return pmem(arguments, size_bytes, output);
    }
    let request = CreateRequest {
        size_bytes,
        preallocate: arguments.preallocate,
        force: arguments.force,
        label: arguments.label.clone(),
        properties,
    };
    let size_bytes = engine::create(&arguments.path, &request)?;
    let created =
        Created { pool: arguments.path.clone(), size_bytes: Some(size_bytes), dataset: None };
    output.print(&created, || {
        let size = size_text(size_bytes, false);
        format!("created a pool of {size} in {}\n", arguments.path.display())
    });
    Ok(())
}

/// Makes a cluster home in a SQLite file, or on a server.
fn cluster(
    arguments: &CreateArguments,
    (file, properties): (&Path, BTreeMap<String, String>),
    output: &Output,
) -> Result<()> {
    let is_plain = arguments.size.is_none() && !arguments.force && !arguments.preallocate;
    if !is_plain || !arguments.label.is_empty() || arguments.home == HomeKind::Pmem {
        return Err(Error::usage("a home in a database grows by itself, in a new file or schema")
            .hint("leave out --size, --preallocate, --force, --label and --home"));
    }
    let blocks = arguments.blocks.clone();
    if let Some(url) = blocks.as_deref().filter(|path| is_other_url(path)) {
        // What is wrong with it may be a key in it, so it is not said.
        let (scheme, _) = url.to_str().and_then(|url| url.split_once("://")).unwrap_or_default();
        let text = format!("blocks lie in a directory or a bucket, and {scheme}:// is neither");
        return Err(Error::usage(text).hint(
            "name a bucket as s3://BUCKET/PREFIX; or mount a share, and name the directory",
        ));
    }
    engine::create_cluster(file, &CreateCluster { properties, blocks })?;
    let created = Created { pool: file.to_owned(), size_bytes: None, dataset: None };
    output.print(&created, || format!("created a cluster home in {}\n", file.display()));
    Ok(())
}

/// Whether something is written as a URL that is none of a bucket.
fn is_other_url(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.contains("://") && !text.starts_with("s3://"))
}

/// Makes a pmem home, and says what it keeps.
fn pmem(arguments: &CreateArguments, size_bytes: Option<u64>, output: &Output) -> Result<()> {
    if let Some(setting) = arguments.options.first() {
        return Err(Error::usage(format!("a pmem home has no properties: {setting}")));
    }
    let (force, label) = (arguments.force, arguments.label.as_str());
    let request = CreatePmem { size_bytes, force, label };
    let size_bytes = engine::create_pmem(&arguments.path, &request)?;
    let created =
        Created { pool: arguments.path.clone(), size_bytes: Some(size_bytes), dataset: None };
    output.print(&created, || {
        let medium = engine::pmem_medium(&arguments.path).unwrap_or_default();
        format!(
            "created a pmem home of {} in {}\nIt lies on {medium}.\n",
            size_text(size_bytes, false),
            arguments.path.display()
        )
    });
    Ok(())
}
