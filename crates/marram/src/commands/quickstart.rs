//! `marram quickstart`: from nothing to a mounted pool, and three things to try. What is there
//! already is left as it is, so it can be run again, after a reboot for instance.

use super::mount::{MountPlan, mount};
use crate::arguments::QuickstartArguments;
use crate::engine::{self, CreateRequest};
use crate::error::{Error, Result};
use crate::options::MountOptions;
use crate::output::Output;
use crate::paths::absolute;
use crate::sizes::parse_size;
use crate::target::Target;
use crate::{mountinfo, paths};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Which snapshots are taken by themselves of what is made here.
const SNAPSHOTS: &str = "15m:8,1h:24,1d:7";

#[derive(Serialize)]
struct Quickstart {
    pool: PathBuf,
    directory: PathBuf,
    created: bool,
    mounted: bool,
}

pub(super) fn run(arguments: &QuickstartArguments, output: &Output) -> Result<()> {
    let size_bytes = parse_size(&arguments.size)?;
    let pool = paths::data_folder()?.join("quickstart.pool");
    let directory = match &arguments.directory {
        Some(directory) => directory.clone(),
        None => paths::home()?.join("marram"),
    };
    let created = make_pool(&pool, size_bytes)?;
    let mounted = make_mount(&pool, &directory)?;
    let directory = absolute(&directory)?;
    let done = Quickstart { pool, directory, created, mounted };
    output.print(&done, || text(&done));
    Ok(())
}

fn make_pool(pool: &Path, size_bytes: u64) -> Result<bool> {
    if pool.exists() {
        return match engine::probe(pool)? {
            Some(_) => Ok(false),
            None => Err(engine::no_pool(pool)),
        };
    }
    if let Some(folder) = pool.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|error| Error::system("make the folder", folder, error))?;
    }
    let request = CreateRequest {
        size_bytes: Some(size_bytes),
        label: "quickstart".to_owned(),
        properties: BTreeMap::from([("snapshots".to_owned(), SNAPSHOTS.to_owned())]),
        ..CreateRequest::default()
    };
    engine::create(pool, &request).map(|_size| true)
}

/// Mounts the pool unless it is mounted there already.
fn make_mount(pool: &Path, directory: &Path) -> Result<bool> {
    if !directory.exists() && !marram_fuse::is_dead_mount(directory) {
        std::fs::create_dir_all(directory)
            .map_err(|error| Error::system("make the folder", directory, error))?;
    }
    if let Some(mounted) = already_at(pool, directory)? {
        return Ok(mounted);
    }
    let plan = MountPlan {
        target: pool.to_owned(),
        then: Vec::new(),
        directory: directory.to_owned(),
        options: MountOptions::default(),
        foreground: false,
        log: None,
    };
    mount(&plan).map(|_mounted| true)
}

/// `Some(false)` if the pool is on `directory` already.
fn already_at(pool: &Path, directory: &Path) -> Result<Option<bool>> {
    let Ok(place) = directory.canonicalize() else {
        return Ok(None);
    };
    if !mountinfo::mount_on(&place)?.is_some_and(|entry| entry.is_marram()) {
        return Ok(None);
    }
    let there = Target::find(&place)?.pool;
    if there == absolute(pool)? {
        return Ok(Some(false));
    }
    Err(Error::in_use(format!("{} is mounted at {}", there.display(), place.display()))
        .hint("name another directory: `marram quickstart DIRECTORY`"))
}

fn text(done: &Quickstart) -> String {
    let (at, pool) = (done.directory.display(), done.pool.display());
    format!(
        "A pool is mounted at {at}\n(it lives in {pool}, which takes only the space \
         that is used)\n\n\
         Three things to try:\n\n\
         1. Put something in, and see what it takes after compression:\n     \
         cp -a /usr/share/doc {at}/ && marram status {at}\n\n\
         2. Keep this state, break something, and look at what was:\n     \
         marram snapshot {at}@before && rm -rf {at}/doc\n     \
         mkdir -p /tmp/before && marram mount {at}@before /tmp/before && ls /tmp/before\n\n\
         3. Go on from there in a clone beside it, changing neither:\n     \
         marram clone {at}@before again && mkdir -p /tmp/again\n     \
         marram mount {at} /tmp/again --dataset again && touch /tmp/again/new\n\n\
         Snapshots are taken by themselves where something has changed: after a mistake,\n\
         marram versions PATH shows what there was, also of what was removed.\n\
         When done: marram unmount {pool}\n"
    )
}
