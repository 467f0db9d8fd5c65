//! Streams that no pool has sent, and blocks that no stream can hold: reported, and nothing else
//! happens.

use crate::small_pool;
use marram_device::MemoryDevice;
use marram_format::pointer::Checksum;
use marram_format::stream::{
    RecordChain, RecordKind, SnapshotIdentity, StreamBegin, StreamBlock, StreamContent, StreamEnd,
    StreamPut,
};
use marram_pool::{
    Error, OpenOptions, Pool, ReadAt, ReceiveRequest, SendRequest, StreamFile, StreamImage,
    verify_stream,
};
use marram_sim::pattern;
use marram_store::{Batch, Block, DatasetName, Item, Key, Store, View, kind};
use std::sync::{Arc, Mutex};

/// Seed of a pattern of noise.
const NOISE: u64 = 2;
const AT: Key = Key::new(9, kind::SECTION, 0);

fn open() -> Arc<Pool> {
    let memory = Arc::new(MemoryDevice::from_bytes(small_pool::empty("hostile")));
    Pool::open(vec![memory], OpenOptions::new(|| 0)).unwrap()
}

fn begin(properties: &[(&str, &str)]) -> StreamBegin {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    StreamBegin {
        snapshot: SnapshotIdentity { id: [1; 16], created_seconds: 1 },
        base: None,
        dataset_id: [2; 16],
        pool_id: [3; 16],
        root_object: 1,
        referenced_bytes: 0,
        dataset_name: "root".to_owned(),
        snapshot_name: "s".to_owned(),
        properties: properties.iter().map(owned).collect(),
        after: None,
    }
}

/// A full stream with one item, under `key`, whose content is stored as it is.
fn stream(begin: &StreamBegin, key: Key, content: &[u8]) -> Vec<u8> {
    let prefix = begin.prefix();
    let (mut chain, mut out) = (RecordChain::new(&prefix), prefix.to_vec());
    chain.seal(RecordKind::Begin, &begin.encode(), &mut out);
    let logical_len = u32::try_from(content.len()).unwrap();
    let stored = StreamContent { codec: 0, logical_len, checksum: Checksum::NONE, stored: content };
    let put = StreamPut { key, value: b"v", block: StreamBlock::Content(stored) };
    chain.seal(RecordKind::Put, &put.encode(), &mut out);
    let stored_bytes = content.len() as u64;
    let end = StreamEnd { puts: 1, removals: 0, blocks: 1, stored_bytes, whole: chain.whole() };
    chain.seal(RecordKind::End, &end.encode(), &mut out);
    out
}

fn receive(pool: &Pool, stream: &[u8]) -> Result<(), Error> {
    let request =
        ReceiveRequest { dataset: "copy".parse().unwrap(), force: false, resumable: false };
    pool.receive(&request, &mut &stream[..], &mut |_| {})?.publish().map(|_| ())
}

#[test]
fn a_stream_takes_no_space_of_the_pool_for_itself() {
    let pool = open();
    let free = pool.open(&"root".parse().unwrap()).unwrap().space().free_bytes;
    for name in ["reservation", "quota"] {
        let greedy = stream(&begin(&[(name, "20M")]), AT, b"content");
        let error = verify_stream(&mut &greedy[..], &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        let error = receive(&pool, &greedy).unwrap_err();
        assert!(matches!(error, Error::Stream(_)), "{error}");
        assert_eq!(pool.list().unwrap().len(), 1, "nothing is left of it");
    }
    let left = pool.open(&"root".parse().unwrap()).unwrap().space().free_bytes;
    assert!(left + (1 << 20) > free, "of {free} bytes {left} are left");
    receive(&pool, &stream(&begin(&[("recordsize", "8192")]), AT, b"content")).unwrap();
    assert_eq!(pool.properties(&"copy".parse().unwrap()).unwrap()["recordsize"].0, "8192");
}

/// A file that others write to.
#[derive(Clone)]
struct Shown(Arc<Mutex<Vec<u8>>>);

impl ReadAt for Shown {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let content = self.0.lock().unwrap();
        let rest = content.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let len = bytes.len().min(rest.len());
        bytes[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

#[test]
fn a_stream_that_is_exchanged_for_another_while_it_is_shown_is_told_as_damage() {
    let shown = Shown(Arc::new(Mutex::new(stream(&begin(&[]), AT, &[7; 900]))));
    let file = StreamFile { name: "it".to_owned(), file: Box::new(shown.clone()) };
    let image = StreamImage::open(vec![file], &mut |_| {}).unwrap();
    let block = image.get(AT).unwrap().unwrap().block.unwrap();
    assert_eq!(image.read_block(&block).unwrap(), vec![7; 900]);
    let is_told = |asked: marram_store::Result<()>, what: &str| match asked {
        Err(marram_store::Error::Damaged(damage)) => {
            assert!(damage.place.ends_with("of it"), "{what}: {damage}");
        }
        other => panic!("{what}: {other:?}"),
    };

    // Others, all as whole as the first: what was opened was not this.
    *shown.0.lock().unwrap() = stream(&begin(&[]), Key::new(9, kind::SECTION, 1), &[7; 900]);
    is_told(image.get(AT).map(|_| ()), "another key");
    let file = StreamFile { name: "it".to_owned(), file: Box::new(shown.clone()) };
    *shown.0.lock().unwrap() = stream(&begin(&[]), AT, &[7; 900]);
    let image = StreamImage::open(vec![file], &mut |_| {}).unwrap();
    *shown.0.lock().unwrap() = stream(&begin(&[]), AT, &[7; 90]);
    is_told(image.get(AT).map(|_| ()), "shorter content");
    is_told(image.read_block(&block).map(|_| ()), "shorter content");
}

#[test]
fn what_no_stream_can_hold_is_told_by_who_sends() {
    let too_long = Block::fresh(pattern(NOISE, 2 << 20));
    let items = [Item::with_block(vec![1], too_long), Item::plain(vec![0; 5000])];
    for (what, item) in ["its block", "its value"].into_iter().zip(items) {
        let pool = open();
        let view = pool.open(&"root".parse().unwrap()).unwrap();
        let mut batch = Batch::new();
        batch.put(AT, item);
        view.apply(batch).unwrap();
        pool.snapshot(&DatasetName::root(), "s").unwrap();
        let snapshot = "root@s".parse().unwrap();
        let request = SendRequest { snapshot, base: None, resume: None };
        let error = pool.send(&request, &mut Vec::new(), &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}
