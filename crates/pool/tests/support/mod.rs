//! What the pool's tests share: a pool in memory, and content that says where it belongs.
pub(crate) mod hooked;

use marram_device::{Device, MemoryDevice};
use marram_pool::{Author, CreateOptions, OpenOptions, Pool, create};
use marram_store::{
    Admission, Batch, Block, DatasetName, Item, Key, Properties, Source, Store, View, kind,
};
use std::sync::Arc;

pub(crate) fn create_on(device: &Arc<dyn Device>, properties: &[(&str, &str)]) {
    let properties = properties.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    let options = CreateOptions {
        label: "test".to_owned(),
        properties: Properties(properties.collect()),
        pool_id: [7; 16],
        secret: 7,
        now_seconds: 1,
    };
    create(std::slice::from_ref(device), &options).expect("the test's pool does what it is asked");
}

pub(crate) fn open(device: &Arc<dyn Device>) -> Arc<Pool> {
    Pool::open(vec![device.clone()], OpenOptions::new(|| 0))
        .expect("the test's pool does what it is asked")
}

pub(crate) fn new_pool(
    mebibytes: usize,
    properties: &[(&str, &str)],
) -> (Arc<MemoryDevice>, Arc<Pool>) {
    let memory = Arc::new(MemoryDevice::new(mebibytes << 20));
    let device: Arc<dyn Device> = memory.clone();
    create_on(&device, properties);
    (memory, open(&device))
}

pub(crate) fn root(pool: &Pool) -> Arc<dyn View> {
    pool.open(&Source { dataset: DatasetName::root(), snapshot: None })
        .expect("the test's pool does what it is asked")
}

pub(crate) fn view(pool: &Pool, source: &str) -> Arc<dyn View> {
    pool.open(&source.parse().expect("the test's pool does what it is asked"))
        .expect("the test's pool does what it is asked")
}

pub(crate) fn section(object: u64, offset: u64) -> Key {
    Key::new(object, kind::SECTION, offset)
}

/// Bytes that do not compress and that depend on `seed`.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

pub(crate) fn put(view: &dyn View, key: Key, content: Vec<u8>) -> marram_store::Result<()> {
    let mut batch = Batch::new();
    batch.put(key, Item::with_block(content.len().to_string(), Block::fresh(content)));
    view.apply(batch)
}

pub(crate) fn remove(view: &dyn View, key: Key) -> marram_store::Result<()> {
    let mut batch = Batch::new();
    batch.admission = Admission::Freeing;
    batch.remove(key);
    view.apply(batch)
}

pub(crate) fn content(view: &dyn View, key: Key) -> Option<Vec<u8>> {
    let item = view.get(key).expect("the test's pool does what it is asked")?;
    Some(
        view.read_block(&item.block.expect("the test's pool does what it is asked"))
            .expect("the test's pool does what it is asked")
            .to_vec(),
    )
}

/// The pool as a user's command has it, whose operations are in the log.
pub(crate) fn acting(pool: &Pool) -> Pool {
    pool.acting_for(Author { user: Some(1000), command: "marram test".to_owned() })
}

pub(crate) fn name(text: &str) -> DatasetName {
    text.parse().expect("a name")
}

pub(crate) fn source(text: &str) -> Source {
    text.parse().expect("a dataset or a snapshot")
}

pub(crate) fn names(pool: &Pool) -> Vec<String> {
    let list = pool.list().expect("the pool can be read");
    list.iter().map(|report| report.source.to_string()).collect()
}

pub(crate) fn trash_names(pool: &Pool) -> Vec<String> {
    let list = pool.list_trash().expect("the pool can be read");
    list.iter().map(|report| report.source.to_string()).collect()
}
