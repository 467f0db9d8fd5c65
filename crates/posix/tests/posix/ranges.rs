//! Ranges of files: reserved, zeroed, punched, copied, sought.

use crate::{Bench, pattern};
use marram_vfs::{
    Allocate, Copying, Error, ExtentMap, FileSystem, Ranges, SeekTarget, WriteOptions,
};

fn map(bench: &Bench, ino: marram_vfs::Ino) -> Vec<(u64, u64)> {
    let mut runs = Vec::new();
    let mut at = 0;
    while let Ok(start) = bench.files.seek(ino, at, SeekTarget::Data) {
        at = bench.files.seek(ino, start, SeekTarget::Hole).unwrap();
        runs.push((start, at));
        if at == bench.attributes(ino).size {
            break;
        }
    }
    runs
}

#[test]
fn data_and_holes_are_exact() {
    let bench = Bench::new();
    let ino = bench.file("f");
    bench.write(ino, 10_000, &pattern(1, 200_000));
    assert_eq!(map(&bench, ino), [(10_000, 210_000)]);
    bench.files.allocate(ino, Allocate::PunchHole, 50_001, 99_999).unwrap();
    assert_eq!(map(&bench, ino), [(10_000, 50_001), (150_000, 210_000)]);
    let used = (40_001_u64 + 60_000).div_ceil(4096) * 8;
    assert_eq!(bench.attributes(ino).blocks_512, used);
    assert_eq!(bench.read(ino, 50_000, 3), [pattern(1, 200_000)[40_000], 0, 0]);
    assert_eq!(bench.files.seek(ino, 210_000, SeekTarget::Hole), Err(Error::NoSuchOffset));
}

#[test]
fn reserved_space_counts_and_reads_as_zeros() {
    let bench = Bench::new();
    let ino = bench.file("f");
    bench.files.allocate(ino, Allocate::ReserveKeepSize, 0, 1 << 20).unwrap();
    assert_eq!((bench.attributes(ino).size, bench.attributes(ino).blocks_512), (0, 2048));
    bench.write(ino, 4096, &pattern(1, 8192));
    bench.files.allocate(ino, Allocate::Reserve, 0, 1 << 20).unwrap();
    assert_eq!((bench.attributes(ino).size, bench.attributes(ino).blocks_512), (1 << 20, 2048));
    assert_eq!(map(&bench, ino), [(4096, 12_288)]);
    assert_eq!(bench.read(ino, 0, 4096), [0; 4096]);
    bench.files.allocate(ino, Allocate::Zero, 5000, 2 << 20).unwrap();
    assert_eq!(bench.attributes(ino).size, 5000 + (2 << 20));
    assert_eq!(map(&bench, ino), [(4096, 5000)]);
    bench.set_size(ino, 0);
    assert_eq!(bench.attributes(ino).blocks_512, 0);
}

#[test]
fn more_space_than_there_is_cannot_be_reserved() {
    let bench = Bench::new();
    bench.store.set_limit(10 << 20);
    let ino = bench.file("f");
    let reserve = |len| bench.files.allocate(ino, Allocate::Reserve, 0, len);
    assert_eq!(reserve(20 << 20), Err(Error::NoSpace));
    assert_eq!(bench.attributes(ino).size, 0);
    reserve(5 << 20).unwrap();
}

#[test]
fn the_same_space_is_not_promised_twice() {
    let bench = Bench::new();
    bench.store.set_limit(10 << 20);
    let keep = |ino, len| bench.files.allocate(ino, Allocate::ReserveKeepSize, 0, len);
    let (first, second) = (bench.file("first"), bench.file("second"));
    keep(first, 6 << 20).unwrap();
    keep(first, 6 << 20).expect("it has been promised to this file");
    assert_eq!(keep(second, 6 << 20), Err(Error::NoSpace));
    // What is written or given up is not promised any more.
    bench.files.allocate(first, Allocate::PunchHole, 0, 6 << 20).unwrap();
    keep(second, 6 << 20).unwrap();
    assert_eq!(keep(first, 6 << 20), Err(Error::NoSpace));
    bench.files.unlink(marram_vfs::Ino::ROOT, crate::name("second")).unwrap();
    bench.files.forget(second, 1);
    bench.reclaim(100);
    keep(first, 6 << 20).unwrap();
    bench.write(first, 0, &pattern(1, 6 << 20));
}

#[test]
fn small_writes_fill_a_reserved_range_as_they_fill_a_hole() {
    let bench = Bench::new();
    let ino = bench.file("f");
    bench.files.allocate(ino, Allocate::ReserveKeepSize, 0, 1 << 20).unwrap();
    for at in 0..500 {
        bench.write(ino, at * 1000, &pattern(at as u8, 1000));
        if at % 100 == 99 {
            bench.store.commit();
        }
    }
    for at in 0..500 {
        assert_eq!(bench.read(ino, at * 1000, 1000), pattern(at as u8, 1000));
    }
    let content = bench.files.extents(ino, 0, 1000).unwrap();
    assert!(content.len() < 20, "{} pieces of 500,000 bytes", content.len());
}

#[test]
fn what_is_reserved_can_be_written_when_all_else_is_full() {
    let bench = Bench::new();
    bench.store.set_limit(10 << 20);
    let (kept, other) = (bench.file("kept"), bench.file("other"));
    let free_before = bench.files.space().unwrap().free_bytes;
    bench.files.allocate(kept, Allocate::ReserveKeepSize, 0, 6 << 20).unwrap();
    let less = free_before - bench.files.space().unwrap().free_bytes;
    assert!((6 << 20..(6 << 20) + 4096).contains(&less), "{less}");
    let write =
        |ino, at: u64| bench.files.write(ino, at, &pattern(1, 100_000), WriteOptions::default());
    let filled = (0..).find(|round| write(other, round * 100_000).is_err()).unwrap();
    assert!(filled > 20, "only {filled} writes beside what is reserved");
    for round in 0..60 {
        write(kept, round * 100_000).expect("it was reserved");
    }
    assert_eq!(write(other, filled * 100_000), Err(Error::NoSpace));
    // What is given up is free for others.
    bench.files.allocate(kept, Allocate::PunchHole, 6_000_000, 1 << 20).unwrap();
    write(other, filled * 100_000).unwrap();
}

#[test]
fn many_holes_are_filled_and_punched_in_pieces() {
    let bench = Bench::new();
    let ino = bench.file("f");
    for at in 0..2500_u64 {
        bench.write(ino, at * 300_000, b"x");
    }
    let end = 2500 * 300_000;
    bench.files.allocate(ino, Allocate::Reserve, 0, end).unwrap();
    assert_eq!(bench.attributes(ino).blocks_512, end.div_ceil(4096) * 8);
    assert_eq!(map(&bench, ino).len(), 2500);
    bench.files.allocate(ino, Allocate::PunchHole, 1, end - 1).unwrap();
    assert_eq!(map(&bench, ino), [(0, 1)]);
    assert_eq!(bench.attributes(ino).blocks_512, 8);
}

#[test]
fn copies_share_blocks_and_diverge() {
    let bench = Bench::new();
    let (from, to) = (bench.file("from"), bench.file("to"));
    let data = pattern(1, 500_000);
    bench.write(from, 0, &data);
    for round in 0..2 {
        let copied = bench.files.copy_range(from, 1234, to, 77, 600_000).unwrap();
        assert_eq!(copied, 500_000 - 1234);
        assert_eq!(bench.read(to, 77, 600_000), data[1234..]);
        bench.store.commit();
        bench.write(to, 100_000, &pattern(9, 10));
        assert_eq!(bench.read(from, 0, 600_000), data, "round {round}");
    }
    let used = |ino| bench.attributes(ino).blocks_512;
    assert_eq!(used(from), used(to) + 8, "1234 bytes less, 77 of them a hole");
    let space = bench.files.space().unwrap();
    let taken = space.total_bytes - space.free_bytes;
    assert!(taken < 550_000, "blocks are shared: {taken}");
    bench.files.unlink(marram_vfs::Ino::ROOT, crate::name("from")).unwrap();
    bench.files.forget(from, 1);
    bench.reclaim(100);
    bench.store.commit();
    assert_eq!(bench.read(to, 200_000, 1000), data[201_157..202_157]);
}

#[test]
fn copies_within_a_file_must_not_overlap() {
    let bench = Bench::new();
    let ino = bench.file("f");
    let data = pattern(1, 300_000);
    bench.write(ino, 0, &data);
    bench.store.commit();
    let copy = |from, to, len| bench.files.copy_range(ino, from, ino, to, len);
    assert!(matches!(copy(0, 99_999, 100_000), Err(Error::InvalidArgument(_))));
    assert_eq!(copy(10_000, 120_000, 110_000), Ok(110_000));
    let mut expected = data.clone();
    expected.copy_within(10_000..120_000, 120_000);
    assert_eq!(bench.read(ino, 0, 400_000), expected);
    assert_eq!(copy(300_000, 0, 1), Ok(0));
}

#[test]
fn copies_bring_holes() {
    let bench = Bench::new();
    let (from, to) = (bench.file("from"), bench.file("to"));
    bench.write(from, 0, &pattern(1, 10_000));
    bench.write(from, 1_000_000, &pattern(2, 10_000));
    bench.write(to, 0, &pattern(3, 1_200_000));
    assert_eq!(bench.files.copy_range(from, 0, to, 0, u64::MAX), Ok(1_010_000));
    assert_eq!(map(&bench, to), [(0, 10_000), (1_000_000, 1_200_000)]);
    assert_eq!(bench.read(to, 1_000_000, 10_000), pattern(2, 10_000));
}
