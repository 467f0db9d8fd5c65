//! A pool for the crash explorer.

use super::{mount, text};
use marram_check::{CheckOptions, Finding};
use marram_device::{Device, MemoryDevice};
use marram_history::{DirectoryRollback, MergeOptions, MergePart, MergeSides, destroy_leftovers};
use marram_pool::planted::{PlantedBug, plant};
use marram_pool::{Author, CreateOptions, OpenOptions, POOL_BYTES_MIN, Pool, create};
use marram_posix::{Posix, hold_together};
use marram_sim::crash::{Committed, Mounted, Target};
use marram_sim::{HistoryClock, HomeResult};
use marram_store::{
    DatasetName, Error as StoreError, ForkBegin, Lineage, OperationLog, Properties, Source, Store,
};
use marram_vfs::{Error, FileSystem, Ino};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

/// How many items of orphans are freed at a time.
const RECLAIM_ITEMS: usize = 64;

/// The smallest pool there is, with short records.
#[derive(Default)]
pub struct PoolTarget {
    /// What is wrong with the engine.
    pub bug: Option<PlantedBug>,
}

/// A mounted pool.
struct MountedPool {
    pool: Arc<Pool>,
    clock: Arc<HistoryClock>,
    /// The file systems that are open, to give back what they freed.
    open: Mutex<BTreeMap<String, Weak<Posix>>>,
    bug: Option<PlantedBug>,
}

impl Target for PoolTarget {
    fn make(&self) -> HomeResult<Arc<[u8]>> {
        let bytes = usize::try_from(POOL_BYTES_MIN).map_err(text)?;
        let device = Arc::new(MemoryDevice::new(bytes));
        let properties = [("recordsize".to_owned(), "16K".to_owned())];
        let options = CreateOptions {
            label: "crash".to_owned(),
            properties: Properties(properties.into()),
            pool_id: [9; 16],
            secret: 7,
            now_seconds: 1_700_000_000,
        };
        create(&[Arc::clone(&device) as Arc<dyn Device>], &options).map_err(text)?;
        Ok(device.snapshot().into())
    }

    fn mount(
        &self,
        device: Arc<dyn Device>,
        clock: Arc<HistoryClock>,
    ) -> HomeResult<Box<dyn Mounted>> {
        plant(self.bug);
        let options = OpenOptions {
            cache_bytes: 1 << 20,
            dirty_bytes_max: usize::MAX / 4,
            reclaim_pointers_max: 1,
            ..OpenOptions::new(|| 0)
        };
        let pool = Pool::open(vec![device], options).map_err(text)?;
        destroy_leftovers(&*pool).map_err(text)?;
        Ok(Box::new(MountedPool { pool, clock, open: Mutex::default(), bug: self.bug }))
    }

    fn verify(&self, device: &dyn Device, content: bool) -> HomeResult<()> {
        let mut findings = String::new();
        let mut note = |finding: Finding| findings += &format!("\n  {finding:?}");
        let options = CheckOptions { read_data: content, snapshots: true };
        marram_check::check(device, &options, &mut note).map_err(text)?;
        if findings.is_empty() { Ok(()) } else { Err(format!("the verifier finds:{findings}")) }
    }
}

/// Why a rollback was not done.
struct Refused(String);

impl From<marram_vfs::Error> for Refused {
    fn from(error: marram_vfs::Error) -> Refused {
        Refused(text(error))
    }
}

impl MountedPool {
    fn posix(&self, source: &str) -> HomeResult<Arc<Posix>> {
        let mut open = self.open.lock().map_err(text)?;
        if let Some(files) = open.get(source).and_then(Weak::upgrade) {
            return Ok(files);
        }
        let view = self.pool.open(&source.parse::<Source>().map_err(text)?).map_err(text)?;
        let files = mount(view, &self.clock)?;
        open.insert(source.to_owned(), Arc::downgrade(&files));
        Ok(files)
    }
}

impl Mounted for MountedPool {
    fn sources(&self) -> HomeResult<Vec<String>> {
        let list = self.pool.list().map_err(text)?;
        let mut names: Vec<String> = list.iter().map(|report| report.source.to_string()).collect();
        names.sort();
        Ok(names)
    }

    fn open(&self, source: &str) -> HomeResult<Arc<dyn FileSystem>> {
        self.posix(source).map(|files| files as Arc<dyn FileSystem>)
    }

    fn enter_thread(&self) {
        plant(self.bug);
    }

    fn commit(&self) -> HomeResult<()> {
        let open: Vec<Arc<Posix>> =
            self.open.lock().map_err(text)?.values().filter_map(Weak::upgrade).collect();
        for files in open {
            while files.reclaim_step(RECLAIM_ITEMS).map_err(text)? {}
        }
        while self.pool.reclaim_step().map_err(text)? {}
        self.pool.commit().map_err(text)
    }

    fn snapshot(&self, source: &str) -> HomeResult<()> {
        let source: Source = source.parse().map_err(text)?;
        let name = source.snapshot.ok_or("it names no snapshot")?;
        self.pool.snapshot(&source.dataset, &name).map_err(text)
    }

    fn clone_snapshot(&self, snapshot: &str, clone: &str) -> HomeResult<()> {
        let origin = Source { dataset: DatasetName::root(), snapshot: Some(snapshot.to_owned()) };
        self.pool.clone_snapshot(&origin, &clone.parse().map_err(text)?).map_err(text)
    }

    fn fork(&self, name: &str) -> HomeResult<()> {
        let name = name.parse().map_err(text)?;
        self.pool.fork(&DatasetName::root(), &name, Ino::ROOT.0).map_err(text)
    }

    fn merge(&self, fork: &str) -> HomeResult<bool> {
        let dataset = DatasetName::root();
        let base: Source = format!("{dataset}@fork:{fork}").parse().map_err(text)?;
        let fork: Source = fork.parse().map_err(text)?;
        let sides = MergeSides { dataset: &dataset, base: &base, fork: &fork, root: Ino::ROOT };
        let files = self.posix("root")?;
        let report = marram_history::merge(&*files, &*self.pool, sides, &MergeOptions::default())
            .map_err(text)?;
        Ok(report.applied)
    }

    fn roll_back(&self, snapshot: &str, keep: &str) -> HomeResult<()> {
        let to: Source = format!("root@{snapshot}").parse().map_err(text)?;
        let go_back = || self.pool.rollback(&to, keep).map_err(|error| Refused(text(error)));
        self.posix("root")?.roll_back(go_back).map_err(|Refused(reason)| reason)
    }

    fn roll_back_directory(&self, directory: Ino, snapshot: &str) -> HomeResult<bool> {
        let dataset = DatasetName::root();
        let to: Source = format!("{dataset}@{snapshot}").parse().map_err(text)?;
        let rollback = DirectoryRollback { dataset: &dataset, to: &to, directory, keep: None };
        match marram_history::roll_back_directory(&*self.posix("root")?, &*self.pool, rollback) {
            Ok(_change_set) => Ok(true),
            Err(Error::NotFound | Error::NotDirectory) => Ok(false),
            Err(error) => Err(text(error)),
        }
    }

    fn begin_transaction(
        &self,
        id: &str,
        datasets: &[&str],
    ) -> HomeResult<Option<Vec<Arc<dyn FileSystem>>>> {
        let store: &dyn Store = &*self.pool;
        let mut named = Vec::new();
        for (place, dataset) in datasets.iter().enumerate() {
            let name = DatasetName::of_transaction_at(id, place).map_err(text)?;
            named.push((dataset.parse::<DatasetName>().map_err(text)?, name));
        }
        let begins: Vec<ForkBegin<'_>> = named
            .iter()
            .map(|(dataset, name)| ForkBegin { dataset, name, root_object: Ino::ROOT.0 })
            .collect();
        match store.begin_forks(&begins) {
            Ok(()) => {
                let opened = named.iter().map(|(_, fork)| self.open(fork.as_str()));
                opened.collect::<HomeResult<_>>().map(Some)
            }
            Err(StoreError::NoSpace) => Ok(None),
            Err(error) => Err(text(error)),
        }
    }

    fn commit_transaction(&self, id: &str, datasets: &[&str]) -> HomeResult<Committed> {
        let acting = self.pool.acting_for(Author { user: Some(1), command: "tx".to_owned() });
        let store: &dyn Store = &acting;
        let (mut named, mut is_unchanged) = (Vec::new(), true);
        for (place, dataset) in datasets.iter().enumerate() {
            let name = DatasetName::of_transaction_at(id, place).map_err(text)?;
            is_unchanged = is_unchanged && store.is_unchanged(&name).map_err(text)?;
            let fork = Source::live(name);
            let base = store.report(&fork).map_err(text)?.origin.ok_or("it has no base")?;
            let dataset: DatasetName = dataset.parse().map_err(text)?;
            named.push((self.posix(dataset.as_str())?, dataset, base, fork));
        }
        if is_unchanged {
            return Ok(Committed::Unchanged);
        }
        let options = MergeOptions {
            strict: Some(&|_| Vec::new()),
            may_wait: datasets.len() == 1,
            ..MergeOptions::default()
        };
        let mut parts = Vec::new();
        for (files, dataset, base, fork) in &named {
            let sides = MergeSides { dataset, base, fork, root: Ino::ROOT };
            parts.push(MergePart { parent: &**files, sides, options: &options });
        }
        let files: Vec<&Posix> = named.iter().map(|(files, ..)| &**files).collect();
        let merged = match parts.as_slice() {
            [part] => {
                marram_history::merge(part.parent, store, part.sides, &options).map(|it| vec![it])
            }
            parts => marram_history::merge_together(store, parts, &|| Ok(hold_together(&files))),
        };
        match merged {
            Ok(reports) if reports.iter().all(|report| report.applied) => {
                OperationLog::settle_merges(&acting).map_err(text)?;
                Ok(Committed::Applied)
            }
            Ok(reports) if reports.iter().all(|report| report.conflicts.is_empty()) => {
                Ok(Committed::Unchanged)
            }
            Ok(_) | Err(Error::NoSpace) => Ok(Committed::Refused),
            Err(error) => Err(text(error)),
        }
    }

    fn end_transaction(&self, id: &str, datasets: usize) -> HomeResult<()> {
        let store: &dyn Store = &*self.pool;
        (0..datasets).try_for_each(|place| {
            let fork = DatasetName::of_transaction_at(id, place).map_err(text)?;
            store.end_fork(&fork).map_err(text)
        })
    }

    fn destroy(&self, source: &str) -> HomeResult<()> {
        let source: Source = source.parse().map_err(text)?;
        self.pool.destroy(&source, false).map(|_| ()).map_err(text)
    }
}
