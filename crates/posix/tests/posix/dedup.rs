//! Sharing of equal content: no read shows it, and every hint is verified.

use crate::{Bench, USER, name, pattern};
use marram_posix::{
    DedupOptions, DedupReport, PassPlace, Posix, PosixOptions, deduplicate, share_if_equal,
};
use marram_store::{Block, Item, Key, View, kind};
use marram_vfs::{Error, FileSystem, Ino, SetAttributes, SteppedClock};
use std::sync::Arc;

const RECORD: u64 = 4096;

fn run(files: &Arc<Posix>, options: DedupOptions) -> DedupReport {
    let place = PassPlace { files: Arc::clone(files), directory: Ino::ROOT };
    deduplicate(&[place], options, &mut || Some(()))
}

/// The same file system behind an `Arc`, as the walk wants it.
fn shared(bench: &Bench) -> Arc<Posix> {
    let options =
        PosixOptions { clock: Arc::new(SteppedClock::default()), ..PosixOptions::default() };
    Arc::new(Posix::new(Arc::clone(&bench.view), options).unwrap())
}

fn blocks(view: &dyn View, ino: Ino) -> Vec<(u64, Block)> {
    let mut blocks = Vec::new();
    let mut visit = |key: Key, item: &Item| {
        blocks.extend(item.block.clone().map(|block| (key.offset, block)));
        true
    };
    let key = |offset| Key::new(ino.0, kind::SECTION, offset);
    view.scan(key(0), key(u64::MAX), &mut visit).unwrap();
    blocks
}

fn are_shared(bench: &Bench, one: Ino, other: Ino) -> bool {
    let (one, other) = (blocks(&*bench.view, one), blocks(&*bench.view, other));
    one.len() == other.len() && one.iter().zip(&other).all(|(a, b)| a.0 == b.0 && a.1.same(&b.1))
}

#[test]
fn equal_files_share_their_blocks_and_nothing_else_changes() {
    let bench = Bench::with(marram_posix::AccessTimes::Strict, RECORD);
    let directory = bench.directory(Ino::ROOT, "d");
    let (one, other) = (bench.file("one"), bench.file("other"));
    bench
        .files
        .rename(
            USER,
            Ino::ROOT,
            name("other"),
            directory,
            name("other"),
            marram_vfs::RenameMode::Replace,
        )
        .unwrap();
    let content = pattern(7, 50_000);
    for ino in [one, other] {
        bench.write(ino, 0, &content);
        // A hole, and what is reserved behind the end.
        bench.write(ino, 100_000, &content[..9000]);
    }
    bench.store.commit();
    let set = SetAttributes { permissions: Some(0o4755), ..SetAttributes::default() };
    bench.files.set_attributes(USER, other, &set).unwrap();
    let before = [bench.attributes(one), bench.attributes(other)];
    let report = run(&shared(&bench), DedupOptions { dry_run: true, ..DedupOptions::default() });
    assert_eq!((report.equal_bytes, report.shared_bytes), (59_000, 0));
    assert!(!are_shared(&bench, one, other));

    let report = run(&shared(&bench), DedupOptions::default());
    assert_eq!((report.files, report.passes, report.skipped), (2, 1, 0));
    assert_eq!(report.shared_bytes, report.equal_bytes);
    assert_eq!([bench.attributes(one), bench.attributes(other)], before, "nobody can tell");
    assert_eq!(bench.read(other, 0, 50_000), content);
    assert_eq!(bench.read(other, 50_000, 50_000), vec![0; 50_000]);
    let again = run(&shared(&bench), DedupOptions::default());
    assert_eq!((again.equal_bytes, again.shared_bytes), (0, 0), "there is nothing left to share");
    bench.write(one, 10_000, b"changed");
    assert_eq!(bench.read(other, 0, 50_000), content, "a write is to one of them");
}

#[test]
fn a_small_table_finds_the_same_in_more_passes() {
    let bench = Bench::with(marram_posix::AccessTimes::Never, RECORD);
    let content: Vec<u8> = (0..100).flat_map(|seed| pattern(seed, RECORD as usize)).collect();
    for text in ["a", "b", "c"] {
        let ino = bench.file(text);
        bench.write(ino, 0, &content);
    }
    bench.store.commit();
    let report = run(&shared(&bench), DedupOptions { places_max: 8, ..DedupOptions::default() });
    assert!(report.passes > 10, "{} passes", report.passes);
    assert_eq!(report.files, 3);
    let more = run(&shared(&bench), DedupOptions::default());
    assert_eq!((more.passes, more.equal_bytes), (1, 0), "all had been found: {report:?}");
    assert!(report.shared_bytes >= 2 * content.len() as u64, "{report:?}");
}

#[test]
fn files_that_were_cut_otherwise_are_found_and_those_that_differ_stay() {
    let bench = Bench::new();
    let content = pattern(3, 400_000);
    let [whole, pieces, different] = ["whole", "pieces", "different"].map(|text| bench.file(text));
    bench.write(whole, 0, &content);
    bench.write(pieces, 0, &content);
    bench.write(different, 0, &content);
    bench.store.commit();
    // Rewritten in the middle with the same bytes, and with one other.
    bench.write(pieces, 150_000, &content[150_000..190_000]);
    bench.write(different, 150_000, &[content[150_000] ^ 1]);
    let expected = bench.read(different, 0, 400_000);
    bench.store.commit();
    let report = run(&shared(&bench), DedupOptions::default());
    assert!(are_shared(&bench, whole, pieces), "{report:?}");
    assert_eq!(report.shared_bytes, 400_000 + 400_000 - 131_072);
    assert_eq!(bench.read(different, 0, 400_000), expected);
    assert_eq!(bench.read(pieces, 0, 400_000), content);
}

#[test]
fn a_hint_that_lies_is_found_out() {
    let bench = Bench::with(marram_posix::AccessTimes::Never, RECORD);
    let (one, other) = (bench.file("one"), bench.file("other"));
    bench.write(one, 0, &pattern(1, 20_000));
    bench.write(other, 0, &pattern(2, 20_000));
    let files = shared(&bench);
    let share = |from, to, len| share_if_equal(&files, &files, from, to, len, false);
    assert_eq!(share((one, 0), (other, 0), 20_000).unwrap().equal_bytes, 0);
    assert_eq!(share((one, 1 << 40), (other, 0), 20_000).unwrap().equal_bytes, 0);
    assert_eq!(share((one, 0), (other, 19_000), 1 << 40).unwrap().equal_bytes, 0);
    let overlapping = share((one, 0), (one, 4096), 8192);
    assert!(matches!(overlapping, Err(Error::InvalidArgument(_))), "{overlapping:?}");
    let gone = share((Ino(99), 0), (other, 0), 1);
    assert!(matches!(gone, Err(Error::Stale)), "{gone:?}");
    assert_eq!(bench.read(other, 0, 20_000), pattern(2, 20_000));
}

#[test]
fn what_repeats_inside_a_file_is_shared() {
    let bench = Bench::with(marram_posix::AccessTimes::Never, RECORD);
    let ino = bench.file("f");
    let period: Vec<u8> = (0..4).flat_map(|seed| pattern(9 * seed, RECORD as usize)).collect();
    let content = period.repeat(20);
    bench.write(ino, 0, &content);
    bench.store.commit();
    let report = run(&shared(&bench), DedupOptions::default());
    assert_eq!(report.shared_bytes, 19 * period.len() as u64);
    assert_eq!(bench.read(ino, 0, content.len()), content);
}

#[test]
fn damage_is_told_and_not_spread() {
    let bench = Bench::with(marram_posix::AccessTimes::Never, RECORD);
    let (bad, good) = (bench.file("bad"), bench.file("good"));
    let content: Vec<u8> = [pattern(1, RECORD as usize), pattern(2, RECORD as usize)].concat();
    bench.write(bad, 0, &content);
    bench.write(good, 0, &content);
    bench.store.commit();
    let Block::Stored(token) = &blocks(&*bench.view, bad)[0].1 else {
        panic!("the block is stored");
    };
    bench.store.damage(token);
    let report = run(&shared(&bench), DedupOptions::default());
    assert_eq!((report.shared_bytes, report.skipped), (RECORD, 1));
    assert_eq!(report.listed[0].path, b"bad");
    assert!(matches!(report.listed[0].reason, Error::Damaged(_)));
    assert_eq!(bench.read(good, 0, content.len()), content);
    let sharing = share_if_equal(&bench.files, &bench.files, (bad, 0), (good, 0), RECORD, false);
    let sharing = sharing.unwrap();
    assert_eq!((sharing.shared_bytes, sharing.unreadable), (0, 1));
    assert_eq!(bench.damage.lock().unwrap()[0].path.as_deref(), Some(&b"/bad"[..]));
    assert_eq!(bench.read(good, 0, content.len()), content);
}

#[test]
fn a_walk_ends_when_nobody_wants_it_any_more() {
    let bench = Bench::with(marram_posix::AccessTimes::Never, RECORD);
    for number in 0..50 {
        bench.write(bench.file(&format!("f{number}")), 0, &pattern(1, 4096));
    }
    let place = PassPlace { files: shared(&bench), directory: Ino::ROOT };
    let mut left = 20;
    let report = deduplicate(&[place], DedupOptions::default(), &mut || {
        left -= 1;
        (left > 0).then_some(())
    });
    assert!(report.is_interrupted && report.files < 50, "{report:?}");
}
