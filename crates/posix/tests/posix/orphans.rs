//! What has lost its name goes, but not before its last use, and also after a crash.

use crate::{Bench, PLAIN, USER, name, pattern};
use marram_store::{DatasetName, Key, Lineage, Source, Store, kind};
use marram_vfs::{Copying, Error, FileSystem, Ino, Ranges, Result, SetAttributes};

fn orphans(bench: &Bench) -> Vec<Key> {
    bench.keys(0).into_iter().filter(|key| key.kind == kind::ORPHAN).collect()
}

/// Writes a file of `count` sections that cannot be merged.
fn scattered(bench: &Bench, ino: Ino, count: u64) {
    for at in 0..count {
        bench.write(ino, at * 200_000, &pattern(at as u8, 100));
    }
}

#[test]
fn a_file_that_nobody_uses_goes_with_its_name() {
    let bench = Bench::new();
    let ino = bench.file("f");
    bench.write(ino, 0, &pattern(1, 1_000_000));
    bench.files.forget(ino, 1);
    assert_eq!(bench.files.space().unwrap().inodes_used, 2);
    bench.files.unlink(Ino::ROOT, name("f")).unwrap();
    assert_eq!((bench.keys(ino.0), orphans(&bench)), (vec![], vec![]));
    assert_eq!(bench.files.space().unwrap().inodes_used, 1);
    assert_eq!(bench.files.attributes(ino), Err(Error::Stale));
}

#[test]
fn an_open_file_stays_until_it_is_forgotten() {
    let bench = Bench::new();
    let ino = bench.file("f");
    bench.files.unlink(Ino::ROOT, name("f")).unwrap();
    bench.reclaim(10);
    scattered(&bench, ino, 100);
    assert_eq!(bench.attributes(ino).links, 0);
    assert_eq!(bench.read(ino, 200_000, 100), pattern(1, 100));
    bench.files.forget(ino, 1);
    assert_eq!(bench.files.attributes(ino), Err(Error::Stale));
    let mut steps = 0;
    while bench.files.reclaim_step(16).unwrap() {
        steps += 1;
    }
    assert!((5..20).contains(&steps), "done in pieces: {steps}");
    assert_eq!((bench.keys(ino.0), orphans(&bench)), (vec![], vec![]));
    assert_eq!(bench.files.space().unwrap().inodes_used, 1);
}

#[test]
fn a_crash_takes_what_was_only_open() {
    let mut bench = Bench::new();
    let (file, anonymous) =
        (bench.file("f"), bench.files.create_anonymous(USER, Ino::ROOT, 0o600).unwrap().ino);
    let directory = bench.directory(Ino::ROOT, "d");
    scattered(&bench, file, 50);
    bench.write(anonymous, 0, b"temporary");
    bench.files.unlink(Ino::ROOT, name("f")).unwrap();
    bench.files.remove_directory(Ino::ROOT, name("d")).unwrap();
    assert_eq!(orphans(&bench).len(), 3);
    bench.crash();
    assert_eq!(bench.files.attributes(file), Err(Error::Stale));
    bench.reclaim(7);
    for ino in [file, anonymous, directory] {
        assert_eq!(bench.keys(ino.0), []);
    }
    assert_eq!(orphans(&bench), []);
    assert_eq!(bench.files.space().unwrap().inodes_used, 1);
    assert!(bench.file("next") > directory, "numbers are never used again");
}

#[test]
fn an_anonymous_file_that_gets_a_name_stays() {
    let mut bench = Bench::new();
    let ino = bench.files.create_anonymous(USER, Ino::ROOT, 0o600).unwrap().ino;
    bench.write(ino, 0, b"kept");
    assert_eq!(bench.files.link(ino, Ino::ROOT, name("kept")).unwrap().links, 1);
    bench.files.forget(ino, 2);
    bench.reclaim(10);
    bench.crash();
    bench.reclaim(10);
    assert_eq!(bench.files.lookup(Ino::ROOT, name("kept")).unwrap().ino, ino);
    assert_eq!(bench.read(ino, 0, 10), b"kept");
}

#[test]
fn a_huge_file_is_cut_at_once_and_emptied_in_pieces() {
    let mut bench = Bench::new();
    let ino = bench.file("f");
    scattered(&bench, ino, 3000);
    bench.set_size(ino, 50);
    assert_eq!(bench.attributes(ino).size, 50);
    assert_eq!(bench.read(ino, 0, 1_000_000), &pattern(0, 100)[..50]);
    assert!(bench.sections(ino).len() > 1000, "most of it is still there");
    assert_eq!(orphans(&bench).len(), 1);
    bench.crash();
    bench.reclaim(100);
    assert_eq!(bench.sections(ino), [(0, Some(100))]);
    assert_eq!(orphans(&bench), []);
    assert_eq!(bench.attributes(ino).blocks_512, 8);
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let grow: [fn(&Bench, Ino); 4] = [
        |bench, ino| bench.set_size(ino, 700_000_000),
        |bench, ino| bench.write(ino, 700_000_000, b"."),
        |bench, ino| {
            let how = marram_vfs::Allocate::Reserve;
            bench.files.allocate(ino, how, 0, 700_000_000).unwrap();
        },
        |bench, ino| {
            let source = bench.file("source");
            bench.set_size(source, 1_000_000);
            bench.files.copy_range(source, 0, ino, 699_000_000, 1_000_000).unwrap();
        },
    ];
    for grow in grow {
        let bench = Bench::new();
        let ino = bench.file("f");
        scattered(&bench, ino, 3000);
        bench.set_size(ino, 50);
        grow(&bench, ino);
        for at in [50, 200_000, 300_000_000, 599_800_000] {
            assert_eq!(bench.read(ino, at, 200), [0; 200], "at {at}");
        }
        assert_eq!(orphans(&bench), []);
    }
}

#[test]
fn a_file_with_a_tail_can_be_unlinked_and_linked() {
    let mut bench = Bench::new();
    let ino = bench.file("f");
    scattered(&bench, ino, 2000);
    bench.set_size(ino, 0);
    bench.files.unlink(Ino::ROOT, name("f")).unwrap();
    bench.files.link(ino, Ino::ROOT, name("g")).unwrap();
    bench.crash();
    bench.reclaim(50);
    assert_eq!(bench.files.lookup(Ino::ROOT, name("g")).unwrap().blocks_512, 0);
    assert_eq!((bench.sections(ino), orphans(&bench)), (vec![], vec![]));
    bench.files.forget(ino, 1);
    bench.files.unlink(Ino::ROOT, name("g")).unwrap();
    bench.reclaim(50);
    assert_eq!(bench.keys(ino.0), []);
}

#[test]
fn a_full_store_finds_the_space_that_waits_to_be_freed() {
    let bench = Bench::new();
    let ino = bench.file("f");
    bench.write(ino, 0, &pattern(1, 1_000_000));
    let space = bench.files.space().unwrap();
    bench.store.set_limit(space.total_bytes - space.free_bytes + 500_000);
    let other = bench.file("g");
    let more = bench.files.write(other, 0, &pattern(2, 900_000), PLAIN);
    assert_eq!(more, Err(Error::NoSpace));
    bench.files.unlink(Ino::ROOT, name("f")).unwrap();
    bench.files.forget(ino, 1);
    bench.write(other, 0, &pattern(2, 900_000));
    let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
    bench.files.set_attributes(USER, other, &set).unwrap();
}

#[test]
fn what_was_only_open_in_a_restored_state_is_freed_without_a_remount() {
    let bench = Bench::new();
    let (gone, used) = (bench.file("gone"), bench.file("used"));
    for ino in [gone, used] {
        scattered(&bench, ino, 100);
    }
    bench.files.unlink(Ino::ROOT, name("gone")).unwrap();
    bench.files.unlink(Ino::ROOT, name("used")).unwrap();
    bench.store.snapshot(&DatasetName::root(), "s").unwrap();
    bench.files.forget(gone, 1);
    bench.reclaim(1000);
    assert_eq!(bench.keys(gone.0), []);
    let to: Source = "root@s".parse().unwrap();
    let go_back = || -> Result<()> {
        bench.store.rollback(&to, "before").unwrap();
        Ok(())
    };
    bench.files.roll_back(go_back).unwrap();
    assert!(!bench.keys(gone.0).is_empty(), "the state has it");
    bench.reclaim(1000);
    assert_eq!(bench.keys(gone.0), []);
    assert_eq!(bench.read(used, 200_000, 100), pattern(1, 100), "it is still open");
    bench.files.forget(used, 1);
    bench.reclaim(1000);
    assert_eq!((bench.keys(used.0), orphans(&bench)), (vec![], vec![]));
    assert_eq!(bench.files.space().unwrap().inodes_used, 1);
}
