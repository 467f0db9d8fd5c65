//! Ranges that are taken out of files, put into them, shared and unshared.

use crate::{Bench, name, pattern};
use marram_vfs::{
    Allocate, Copying, Error, ExtentMap, ExtentPlace, FileSystem, Ino, Ranges, Sharing,
};

fn collapse(bench: &Bench, ino: Ino, offset: u64, len: u64) -> Result<(), Error> {
    bench.files.allocate(ino, Allocate::Collapse, offset, len)
}

fn insert(bench: &Bench, ino: Ino, offset: u64, len: u64) -> Result<(), Error> {
    bench.files.allocate(ino, Allocate::Insert, offset, len)
}

#[test]
fn any_bytes_are_taken_out_and_put_in() {
    let bench = Bench::new();
    let ino = bench.file("f");
    let mut expected = pattern(1, 700_000);
    bench.write(ino, 0, &expected);
    for (offset, len) in [(0, 1), (4095, 131_073), (131_000, 200_000), (1, 300_000)] {
        bench.store.commit();
        collapse(&bench, ino, offset, len).unwrap();
        expected.drain(usize::try_from(offset).unwrap()..usize::try_from(offset + len).unwrap());
        assert_eq!(bench.attributes(ino).size, expected.len() as u64);
        assert_eq!(bench.read(ino, 0, 1 << 20), expected);
    }
    for (offset, len) in [(0, 5), (60_000, 1 << 20), (1, 4096)] {
        insert(&bench, ino, offset, len).unwrap();
        let at = usize::try_from(offset).unwrap();
        expected.splice(at..at, vec![0; usize::try_from(len).unwrap()]);
        assert_eq!(bench.attributes(ino).size, expected.len() as u64);
        assert_eq!(bench.read(ino, 0, 2 << 20), expected);
    }
    let content: u64 = 700_000 - 1 - 131_073 - 200_000 - 300_000;
    assert_eq!(bench.attributes(ino).blocks_512, content.div_ceil(4096) * 8, "holes take nothing");
}

#[test]
fn ranges_that_reach_the_end_are_refused() {
    let bench = Bench::new();
    let ino = bench.file("f");
    bench.write(ino, 0, &pattern(1, 10_000));
    let before = bench.attributes(ino);
    for (offset, len) in [(0, 10_000), (5000, 5000), (5000, 6000), (20_000, 1), (0, 0)] {
        assert!(matches!(collapse(&bench, ino, offset, len), Err(Error::InvalidArgument(_))));
    }
    for (offset, len) in [(10_000, 1), (20_000, 1), (0, 0)] {
        assert!(matches!(insert(&bench, ino, offset, len), Err(Error::InvalidArgument(_))));
    }
    let too_long = i64::MAX.cast_unsigned() - 9999;
    assert_eq!(insert(&bench, ino, 0, too_long), Err(Error::FileTooLarge));
    assert_eq!(bench.attributes(ino), before);
    insert(&bench, ino, 9999, too_long - 1).unwrap();
    assert_eq!(bench.attributes(ino).size, i64::MAX.cast_unsigned());
}

/// More sections than one batch moves, each with a byte that says which it is.
fn crumbs(bench: &Bench, count: u64) -> Ino {
    let ino = bench.file("crumbs");
    for at in 0..count {
        bench.write(ino, at * 300_000, &[1 + u8::try_from(at % 250).unwrap()]);
    }
    ino
}

#[test]
fn files_of_many_sections_are_shifted_in_pieces() {
    let bench = Bench::new();
    let count = 5000;
    let ino = crumbs(&bench, count);
    let size = bench.attributes(ino).size;
    bench.files.allocate(ino, Allocate::ReserveKeepSize, size, 1 << 30).unwrap();
    insert(&bench, ino, 150_000, 77).unwrap();
    assert_eq!(bench.attributes(ino).size, size + 77);
    collapse(&bench, ino, 1, 300_000 * 2500 + 77).unwrap();
    assert_eq!(bench.attributes(ino).size, size - 300_000 * 2500);
    assert_eq!(bench.attributes(ino).blocks_512, 8, "a byte of each section, and nothing else");
    let sections = bench.sections(ino);
    assert_eq!(sections.len() as u64, 1 + count - 2501);
    assert_eq!(bench.read(ino, 0, 1), [1]);
    for at in 2501..count {
        let expected = 1 + u8::try_from(at % 250).unwrap();
        assert_eq!(bench.read(ino, (at - 2500) * 300_000, 1), [expected], "section {at}");
    }
}

#[test]
fn a_shift_that_finds_no_space_leaves_all_bytes_in_their_order() {
    let bench = Bench::new();
    let count = 3000;
    let ino = crumbs(&bench, count);
    let free = bench.files.space().unwrap();
    bench.store.set_limit(free.total_bytes - free.free_bytes);
    let done = insert(&bench, ino, 1, 1 << 20);
    let size = bench.attributes(ino).size;
    let all = bench.sections(ino);
    let bytes: Vec<u8> = all.iter().map(|(at, _)| bench.read(ino, *at, 1)[0]).collect();
    let expected: Vec<u8> = (0..count).map(|at| 1 + u8::try_from(at % 250).unwrap()).collect();
    assert_eq!(bytes, expected, "{done:?}, size {size}");
}

#[test]
fn unsharing_takes_blocks_of_its_own() {
    let bench = Bench::new();
    let (from, to) = (bench.file("from"), bench.file("to"));
    let data = pattern(1, 400_000);
    bench.write(from, 0, &data);
    bench.store.commit();
    bench.files.share_range(from, 0, to, 0, 400_000).unwrap();
    bench.store.commit();
    let taken = |bench: &Bench| {
        let space = bench.files.space().unwrap();
        space.total_bytes - space.free_bytes
    };
    let before = taken(&bench);
    bench.files.allocate(to, Allocate::UnshareKeepSize, 0, 1 << 20).unwrap();
    bench.store.commit();
    assert!(taken(&bench) - before >= 400_000, "{} after {before}", taken(&bench));
    assert_eq!(bench.attributes(to).size, 400_000);
    assert_eq!(bench.read(to, 0, 1 << 20), data);
    bench.files.allocate(to, Allocate::Unshare, 0, 1 << 20).unwrap();
    assert_eq!(bench.attributes(to).size, 1 << 20);
    assert_eq!(bench.attributes(to).blocks_512, 2048, "holes of the range are reserved");
}

#[test]
fn sharing_copies_nothing_however_short() {
    let bench = Bench::new();
    let (from, to) = (bench.file("from"), bench.file("to"));
    bench.write(from, 0, &pattern(1, 1000));
    bench.store.commit();
    assert_eq!(bench.files.share_range(from, 10, to, 3, 100), Ok(100));
    assert_eq!(bench.sections(to), [(3, Some(1000))], "a slice of the whole block");
    assert_eq!(bench.read(to, 0, 200), [&[0; 3], &pattern(1, 1000)[10..110]].concat());
    assert_eq!(bench.files.copy_range(from, 10, to, 3, 100), Ok(100));
    assert_eq!(bench.sections(to), [(3, Some(100))], "a copy is short");
    let past = bench.files.share_range(from, 999, to, 0, 2);
    assert!(matches!(past, Err(Error::InvalidArgument(_))), "{past:?}");
    let directory = bench.directory(Ino::ROOT, "d");
    assert_eq!(bench.files.share_range(from, 0, directory, 0, 1), Err(Error::IsDirectory));
}

#[test]
fn extents_tell_what_is_reserved_and_what_waits() {
    let bench = Bench::new();
    let ino = bench.file("f");
    bench.write(ino, 5000, &pattern(1, 10));
    bench.files.allocate(ino, Allocate::ReserveKeepSize, 9000, 100).unwrap();
    let told = bench.files.extents(ino, 0, 10).unwrap();
    let told: Vec<_> = told.iter().map(|one| (one.offset, one.len, one.place)).collect();
    assert_eq!(
        told,
        [(5000, 10, ExtentPlace::Waiting), (9000, 100, ExtentPlace::Reserved)],
        "also past the end"
    );
    assert_eq!(bench.files.extents(ino, 5010, 10).unwrap().len(), 1);
    assert_eq!(bench.files.extents(ino, 0, 1).unwrap().len(), 1);
    assert_eq!(bench.files.extents(Ino::ROOT, 0, 1), Err(Error::IsDirectory));
    assert!(bench.files.unlink(Ino::ROOT, name("f")).is_ok());
}
