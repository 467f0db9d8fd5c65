//! Many threads at once: nothing is lost, nobody waits for ever, and what stays adds up.

use crate::{Bench, PLAIN, USER, name};
use marram_vfs::{Error, FileSystem, Ino, Kind, NewNode, RenameMode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const ROUNDS: u64 = 300;

/// A sequence of numbers below `max`.
fn numbers(seed: u64, max: usize) -> impl FnMut() -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as usize % max
    }
}

/// Counts directories and checks every link count below `ino`.
fn check_links(bench: &Bench, ino: Ino) -> usize {
    let mut below = Vec::new();
    bench
        .files
        .read_directory(ino, 0, true, &mut |entry| {
            below.push((entry.kind, entry.ino));
            true
        })
        .unwrap();
    let directories = below.iter().filter(|(kind, _)| *kind == Kind::Directory);
    let count = directories.clone().count();
    assert_eq!(bench.attributes(ino).links as usize, 2 + count);
    assert_eq!(bench.attributes(ino).size as usize, below.len());
    1 + directories.map(|(_, ino)| check_links(bench, *ino)).sum::<usize>()
}

#[test]
fn directories_that_move_at_random_stay_one_tree() {
    let bench = Bench::new();
    let mut directories = vec![Ino::ROOT];
    for number in 0..12 {
        directories.push(bench.directory(Ino::ROOT, &format!("d{number}")));
    }
    let (bench, directories) = (Arc::new(bench), Arc::new(directories));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (bench, directories) = (Arc::clone(&bench), Arc::clone(&directories));
            scope.spawn(move || {
                let mut draw = numbers(thread + 1, directories.len());
                for round in 0..ROUNDS {
                    let (from, to) = (directories[draw()], directories[draw()]);
                    let text = format!("d{}", draw());
                    let mode = [RenameMode::Replace, RenameMode::Exchange][draw() % 2];
                    let _any_answer =
                        bench.files.rename(USER, from, name(&text), to, name(&text), mode);
                    if round % 10 == 0 {
                        bench.store.commit_some(round);
                    }
                }
            });
        }
    });
    let left = check_links(&bench, Ino::ROOT);
    let removed = directories.iter().filter(|ino| bench.attributes(**ino).links == 0).count();
    assert_eq!(left + removed, directories.len(), "all are below the root or were replaced");
}

#[test]
fn creates_writes_and_removals_side_by_side() {
    let bench = Arc::new(Bench::new());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3_u64)
            .map(|thread| {
                let bench = Arc::clone(&bench);
                scope.spawn(move || {
                    let mut draw = numbers(thread + 7, 8);
                    for _ in 0..ROUNDS {
                        work(&bench, &format!("f{}", draw()), draw());
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                bench.store.commit_some(3);
                bench.files.reclaim_step(5).unwrap();
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    bench.files.forget_all();
    bench.reclaim(100);
    check_links(&bench, Ino::ROOT);
    let named = bench.attributes(Ino::ROOT).size;
    assert_eq!(bench.files.space().unwrap().inodes_used, 1 + named);
}

fn work(bench: &Bench, text: &str, choice: usize) {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let ino = match bench.files.create(USER, Ino::ROOT, name(text), node) {
        Ok(made) => made.ino,
        Err(Error::Exists) => match bench.files.lookup(Ino::ROOT, name(text)) {
            Ok(found) => found.ino,
            Err(error) => return assert_eq!(error, Error::NotFound),
        },
        Err(error) => panic!("{error}"),
    };
    let fill = [choice as u8; 5000];
    bench.files.write(ino, 0, &fill, PLAIN).unwrap();
    let content = bench.read(ino, 0, 5000);
    assert!(content.iter().all(|byte| *byte == content[0]), "a write is seen whole");
    if choice < 4 {
        let gone = bench.files.unlink(Ino::ROOT, name(text));
        assert!(matches!(gone, Ok(()) | Err(Error::NotFound)));
    }
    bench.files.forget(ino, 1);
}
