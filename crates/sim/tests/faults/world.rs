//! What a pool should hold, as a whole, at one moment.

use marram_model::Model;
use marram_pool::Pool;
use marram_posix::{AccessTimes, Posix, PosixOptions};
use marram_sim::HistoryClock;
use marram_sim::InodeMap;
use marram_sim::compare_trees;
use marram_sim::faults::{Damaged, compare_with_damage};
use marram_store::{Source, Store};
use marram_vfs::{Caller, Clock, FileSystem};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Datasets and snapshots by name, each as the model has it.
#[derive(Clone, Default)]
pub struct World(pub BTreeMap<String, Arc<Model>>);

/// Opens the file system of a dataset or snapshot.
pub fn mount(pool: &Pool, name: &str, clock: &Arc<HistoryClock>) -> Result<Arc<Posix>, String> {
    let source: Source = name.parse().map_err(|error| format!("{name}: {error}"))?;
    let view = pool.open(&source).map_err(|error| format!("opening {name}: {error}"))?;
    let options = PosixOptions {
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        access_times: AccessTimes::Never,
        on_damage: Arc::new(|_| {}),
        root_owner: Caller { uid: 0, gid: 0 },
        ..PosixOptions::default()
    };
    Posix::new(view, options).map(Arc::new).map_err(|error| format!("mounting {name}: {error}"))
}

impl World {
    /// Compares everything that a pool holds with this; adds what cannot be read to `damaged`.
    ///
    /// # Errors
    /// Says what is different.
    pub fn compare(
        &self,
        pool: &Pool,
        clock: &Arc<HistoryClock>,
        damaged: &mut Damaged,
    ) -> Result<(), String> {
        let list = pool.list().map_err(|error| format!("list: {error}"))?;
        let names: Vec<String> = list.iter().map(|report| report.source.to_string()).collect();
        let expected: Vec<&String> = self.0.keys().collect();
        if names.iter().ne(expected.iter().copied()) {
            return Err(format!("there are {names:?}, not {expected:?}"));
        }
        for (name, model) in &self.0 {
            let files = mount(pool, name, clock)?;
            compare_file_system(&*files, model, damaged)
                .map_err(|difference| format!("{name}: {difference}"))?;
        }
        Ok(())
    }
}

/// Compares a file system with its model; with holes too, if nothing is damaged.
///
/// # Errors
/// Says what is different.
pub fn compare_file_system(
    files: &dyn FileSystem,
    model: &Model,
    damaged: &mut Damaged,
) -> Result<(), String> {
    let Err(first) = compare_trees(&mut InodeMap::default(), files, model) else {
        return Ok(());
    };
    let before = *damaged;
    compare_with_damage(&mut InodeMap::default(), files, model, damaged)
        .map_err(|difference| format!("{difference} (at first: {first})"))?;
    if *damaged == before {
        // A read went wrong once.
        compare_trees(&mut InodeMap::default(), files, model)?;
    }
    Ok(())
}
