//! Content of files: how writes become sections.

use crate::{Bench, PLAIN, pattern};
use marram_posix::AccessTimes;
use marram_vfs::{Error, FILE_BYTES_MAX, FileSystem};

#[test]
fn small_appends_grow_one_block_per_record() {
    let bench = Bench::new();
    let ino = bench.file("f");
    let data = pattern(1, 300_000);
    let mut at = 0;
    for chunk in data.chunks(777) {
        bench.write(ino, at, chunk);
        at += chunk.len() as u64;
    }
    let record = Some(131_072);
    assert_eq!(bench.sections(ino), [(0, record), (131_072, record), (262_144, Some(37_856))]);
    assert_eq!(bench.read(ino, 0, 400_000), data);
    assert_eq!(bench.attributes(ino).blocks_512, 300_000_u64.div_ceil(4096) * 8);
}

#[test]
fn appends_with_a_commit_after_each_do_not_crumble() {
    let bench = Bench::new();
    let ino = bench.file("log");
    let mut expected = Vec::new();
    for line in 0..1500_u32 {
        let line = pattern(line as u8, 100);
        bench.write(ino, expected.len() as u64, &line);
        expected.extend_from_slice(&line);
        bench.store.commit();
    }
    assert!(bench.sections(ino).len() <= 12, "{:?}", bench.sections(ino));
    assert_eq!(bench.read(ino, 0, 200_000), expected);
}

#[test]
fn an_overwrite_keeps_the_rest_of_a_stored_block() {
    let bench = Bench::new();
    let ino = bench.file("f");
    let mut expected = pattern(1, 131_072);
    bench.write(ino, 0, &expected);
    bench.store.commit();
    let new = pattern(99, 4096);
    bench.write(ino, 60_000, &new);
    expected[60_000..64_096].copy_from_slice(&new);
    let record = Some(131_072);
    assert_eq!(bench.sections(ino), [(0, record), (60_000, Some(4096)), (64_096, record)]);
    assert_eq!(bench.read(ino, 0, 131_072), expected);
    let new = pattern(98, 4096);
    bench.write(ino, 1000, &new);
    expected[1000..5096].copy_from_slice(&new);
    assert_eq!(bench.sections(ino)[0], (0, Some(5096)), "a short rest is copied");
    bench.store.commit();
    assert_eq!(bench.read(ino, 0, 131_072), expected);
    assert_eq!(bench.attributes(ino).blocks_512, 256);
}

#[test]
fn writes_of_all_shapes_read_back() {
    for record_bytes in [4096, 16_384, 131_072] {
        let bench = Bench::with(AccessTimes::Never, record_bytes);
        let ino = bench.file("f");
        let mut expected: Vec<u8> = Vec::new();
        let mut state = record_bytes;
        for round in 0..400_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round | 1);
            let offset = (state >> 40) as usize % 100_000;
            let len = 1 + (state >> 20) as usize % if round % 9 == 0 { 60_000 } else { 3000 };
            let data = pattern(round as u8, len);
            bench.write(ino, offset as u64, &data);
            expected.resize(expected.len().max(offset + len), 0);
            expected[offset..offset + len].copy_from_slice(&data);
            bench.store.commit_some(round % 5 + u64::from(round % 7 != 0));
            assert_eq!(bench.read(ino, 0, 200_000), expected, "after round {round}");
        }
    }
}

#[test]
fn a_cut_file_that_grows_again_reads_zeros() {
    let bench = Bench::new();
    let ino = bench.file("f");
    bench.write(ino, 0, &pattern(1, 10_000));
    for committed in [false, true] {
        if committed {
            bench.store.commit();
        }
        bench.set_size(ino, 5000);
        bench.set_size(ino, 8000);
        bench.write(ino, 9000, b"x");
        let mut expected = pattern(1, 5000);
        expected.resize(9000, 0);
        expected.push(b'x');
        assert_eq!(bench.read(ino, 0, 20_000), expected);
        bench.set_size(ino, 5000);
        assert_eq!(bench.attributes(ino).blocks_512, 16);
        bench.write(ino, 5000, &pattern(1, 10_000)[5000..]);
    }
}

#[test]
fn files_end_at_the_largest_size() {
    let bench = Bench::new();
    let ino = bench.file("f");
    bench.write(ino, FILE_BYTES_MAX - 1, b"z");
    assert_eq!(bench.attributes(ino).size, FILE_BYTES_MAX);
    assert_eq!(bench.read(ino, FILE_BYTES_MAX - 2, 100), b"\0z");
    assert_eq!(bench.files.write(ino, FILE_BYTES_MAX, b"z", PLAIN), Err(Error::FileTooLarge));
    assert_eq!(bench.files.write(ino, u64::MAX, b"z", PLAIN), Err(Error::FileTooLarge));
}

#[test]
fn another_record_size_is_used_once_it_is_told() {
    let bench = Bench::new();
    let ino = bench.file("f");
    bench.write(ino, 0, &pattern(1, 131_072));
    let root = marram_store::DatasetName::root();
    marram_store::Store::set_property(&bench.store, &root, "recordsize", Some("4096")).unwrap();
    bench.files.reload_properties();
    let mut expected = pattern(1, 131_072);
    let new = pattern(7, 10_000);
    bench.write(ino, 50_000, &new);
    expected[50_000..60_000].copy_from_slice(&new);
    assert_eq!(bench.read(ino, 0, 131_072), expected);
    bench.store.commit();
    bench.write(ino, 50_001, &new);
    expected[50_001..60_001].copy_from_slice(&new);
    assert_eq!(bench.read(ino, 0, 131_072), expected);
}

#[test]
fn a_short_rest_beside_a_write_goes_into_its_block_and_a_page_stays_where_it_is() {
    let bench = Bench::new();
    for (name, at, sections) in [
        ("short", 4095, vec![(0, Some(8191)), (8191, Some(131_072))]),
        ("page", 4096, vec![(0, Some(131_072)), (4096, Some(4096)), (8192, Some(131_072))]),
    ] {
        let ino = bench.file(name);
        let mut content = pattern(1, 131_072);
        bench.write(ino, 0, &content);
        bench.store.commit();
        bench.write(ino, at, &pattern(2, 4096));
        let from = usize::try_from(at).unwrap();
        content[from..from + 4096].copy_from_slice(&pattern(2, 4096));
        assert_eq!(bench.sections(ino), sections, "{name}");
        assert_eq!(bench.read(ino, 0, 131_072), content, "{name}");
    }
}
