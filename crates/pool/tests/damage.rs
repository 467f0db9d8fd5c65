//! Bits that rot: healed where there is a second copy, refused where there is none.

use crate::support::{create_on, new_pool, noise, open, put, root, section};
use marram_device::{Device, MemoryDevice};
use marram_format::pointer::Pointer;
use marram_pool::{OpenOptions, Pool, create};
use marram_store::{Block, Error, Part, Store, Token, Unread};
use std::ops::Range;
use std::sync::Arc;

/// Flips a bit in every grain that is not zero and for which `hit` says so; returns how many.
fn rot(bytes: &mut [u8], hit: impl Fn(usize) -> bool) -> usize {
    let mut count = 0;
    for (index, grain) in bytes.chunks_exact_mut(4096).enumerate().skip(256) {
        if grain.iter().any(|byte| *byte != 0) && hit(index) {
            grain[100] ^= 4;
            count += 1;
        }
    }
    count
}

fn filled() -> Arc<MemoryDevice> {
    let (memory, pool) = new_pool(256, &[("compression", "off")]);
    let live = root(&pool);
    for object in 0..300 {
        put(&*live, section(object, 0), noise(object, 20_000)).expect("a healthy pool works");
    }
    pool.close().expect("a healthy pool works");
    memory
}

#[test]
fn each_grain_that_rots_is_healed_or_reported_and_never_believed() {
    let memory = filled();
    let good = memory.snapshot();
    let used = rot(&mut good.clone(), |_| true);
    assert!(used > 1500);
    let mut healed = 0;
    let mut refused = 0;
    for step in 0..12 {
        let mut bytes = good.clone();
        rot(&mut bytes, |index| index % 12 == step);
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(bytes));
        let Ok(pool) = Pool::open(vec![device], OpenOptions::new(|| 0)) else { continue };
        let live = root(&pool);
        for object in 0..300 {
            let read = live.get(section(object, 0)).and_then(|item| {
                live.read_block(&item.expect("no item is lost").block.expect("it has a block"))
            });
            match read {
                Ok(content) => assert_eq!(content, noise(object, 20_000)),
                Err(Error::Damaged(damage)) => {
                    refused += 1;
                    assert!(damage.to_string().contains("offset"), "{damage}");
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(pool.status().damage.is_empty(), refused == 0);
        pool.commit().unwrap();
        healed += pool.status().healed_blocks;
    }
    assert!(healed > 0 && refused > 0, "healed {healed}, refused {refused}");
}

#[test]
fn a_block_that_rots_among_neighbours_read_in_one_go_is_refused_alone() {
    const BLOCKS: u64 = 20;
    let (memory, pool) = new_pool(256, &[("compression", "off")]);
    let live = root(&pool);
    for offset in 0..BLOCKS {
        put(&*live, section(7, offset), noise(offset, 5000)).unwrap();
    }
    pool.close().unwrap();
    let good = memory.snapshot();
    for rotten in [0, 9, BLOCKS - 1] {
        let first = noise(rotten, 5000);
        let place = good.chunks_exact(4096).position(|grain| *grain == first[..4096]).unwrap();
        let mut bytes = good.clone();
        bytes[place * 4096 + 4096 + 17] ^= 1;
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(bytes));
        let pool = open(&device);
        let live = root(&pool);
        let block = |offset| live.get(section(7, offset)).unwrap().unwrap().block.unwrap();
        let blocks: Vec<_> = (0..BLOCKS).map(block).collect();
        let read = |range: Range<u64>| {
            let part = |(number, offset): (usize, u64)| {
                let block = &blocks[usize::try_from(offset).unwrap()];
                Part { block, from: 0, len: 5000, at: number * 5000, passes_by: false }
            };
            let mut out = Vec::new();
            live.read_parts(&range.enumerate().map(part).collect::<Vec<_>>(), &mut out)?;
            Ok(out)
        };
        match read(0..BLOCKS) {
            Err(Unread { number, error: Error::Damaged(_) }) if number as u64 == rotten => {}
            other => panic!("block {rotten} is bad: {other:?}"),
        }
        for range in [0..rotten, rotten + 1..BLOCKS] {
            let good: Vec<u8> = range.clone().flat_map(|offset| noise(offset, 5000)).collect();
            assert!(read(range) == Ok(good), "block {rotten} alone is bad");
        }
        let status = pool.status();
        assert_eq!((status.damage.len(), status.devices[0].checksum_errors), (1, 1), "{status:?}");
    }
}

#[test]
fn a_long_record_that_rots_is_refused_each_time_that_it_is_read() {
    const LEN: usize = 128 << 10;
    let half = |seed| [noise(seed, LEN / 2), vec![0; LEN / 2]].concat();
    for (compression, contents) in
        [("off", [noise(1, LEN), noise(2, LEN)]), ("lz4", [half(1), half(2)])]
    {
        let (memory, pool) = new_pool(256, &[("compression", compression)]);
        for (offset, content) in (0..).zip(&contents) {
            put(&*root(&pool), section(7, offset), content.clone()).unwrap();
        }
        pool.close().unwrap();
        let mut bytes = memory.snapshot();
        let middle = &contents[1][LEN / 4..][..64];
        let place = bytes.windows(64).position(|window| window == middle).unwrap();
        bytes[place] ^= 1;
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(bytes));
        let pool = open(&device);
        let live = root(&pool);
        let block = |offset| live.get(section(7, offset)).unwrap().unwrap().block.unwrap();
        let blocks = [block(0), block(1)];
        let part = |number| Part {
            block: &blocks[number],
            from: 0,
            len: LEN,
            at: number * LEN,
            passes_by: true,
        };
        for time in 1..=4 {
            let mut out = Vec::new();
            live.read_parts(&[part(0)], &mut out).unwrap();
            assert!(out == contents[0], "{compression}, time {time}");
            match live.read_parts(&[part(0), part(1)], &mut Vec::new()) {
                Err(Unread { number: 1, error: Error::Damaged(_) }) => {}
                other => panic!("{compression}, time {time}: {other:?}"),
            }
            let status = pool.status();
            let counts = (status.damage.len(), status.devices[0].checksum_errors);
            assert_eq!(counts, (1, time), "{compression}: {status:?}");
        }
    }
}

#[test]
fn a_pointer_that_claims_more_than_its_block_has_is_refused_also_when_the_block_is_in_memory() {
    const LEN: usize = 128 << 10;
    let (_memory, pool) = new_pool(256, &[("compression", "off")]);
    put(&*root(&pool), section(7, 0), noise(1, LEN)).unwrap();
    pool.commit().unwrap();
    let live = root(&pool);
    let good = live.get(section(7, 0)).unwrap().unwrap().block.unwrap();
    let Block::Stored(token) = &good else { panic!("it was written") };
    let mut pointer = Pointer::decode(&token.place).unwrap();
    pointer.logical_len += 4096;
    let bad = Token { place: pointer.encode(), len: pointer.logical_len };
    let bad = Block::Stored(bad);
    for passes_by in [false, true] {
        assert_eq!(live.read_block(&good).unwrap(), noise(1, LEN));
        let len = bad.len();
        let part = Part { block: &bad, from: 0, len, at: 0, passes_by };
        for parts in [&[part][..], &[part, Part { at: len, ..part }]] {
            match live.read_parts(parts, &mut Vec::new()) {
                Err(Unread { number: 0, error: Error::Damaged(_) }) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(live.read_block(&good).unwrap(), noise(1, LEN));
}

#[test]
fn a_healed_pool_reads_without_an_error_afterwards() {
    let (memory, pool) = new_pool(256, &[]);
    let live = root(&pool);
    for object in 0..2000 {
        put(&*live, section(object, 0), vec![1; 100]).unwrap();
    }
    pool.close().unwrap();
    let mut bytes = memory.snapshot();
    let first_copies = 64 << 8..128 << 8;
    assert!(rot(&mut bytes, |index| first_copies.contains(&index)) > 0);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(bytes));
    for pass in 0..2 {
        let pool = open(&device);
        let live = root(&pool);
        for object in 0..2000 {
            assert!(live.get(section(object, 0)).unwrap().is_some());
        }
        pool.commit().unwrap();
        let status = pool.status();
        assert_eq!(status.devices[0].checksum_errors > 0, pass == 0, "{status:?}");
        assert_eq!(status.healed_blocks > 0, pass == 0);
    }
}

#[test]
fn what_is_no_pool_is_told_apart() {
    let open_error = |device: Arc<dyn Device>| {
        Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap_err().to_string()
    };
    let empty: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    assert!(open_error(empty.clone()).contains("no Marram pool"));
    assert_eq!(marram_pool::probe(empty.as_ref()).unwrap(), None);
    create_on(&empty, &[]);
    assert_eq!(marram_pool::probe(empty.as_ref()).unwrap().unwrap().label, "test");
    let memory = filled();
    let cut: Arc<dyn Device> =
        Arc::new(MemoryDevice::from_bytes(memory.snapshot()[..128 << 20].to_vec()));
    assert!(open_error(cut).contains("cut off"));
    let mut bytes = memory.snapshot();
    bytes[64 << 10..1 << 20].fill(0x5a);
    assert!(open_error(Arc::new(MemoryDevice::from_bytes(bytes))).contains("no Marram pool"));
    let tiny: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20));
    let options = marram_pool::CreateOptions {
        label: String::new(),
        properties: marram_store::Properties::default(),
        pool_id: [1; 16],
        secret: 7,
        now_seconds: 0,
    };
    assert!(create(&[tiny], &options).unwrap_err().to_string().contains("no pool is smaller"));
    let _store: &dyn Store = &*open(&(memory as Arc<dyn Device>));
}
