//! Random edits of files, in all ways, with snapshots, forks, two clients and sweeps between: what
//! is read is what was written, in every state.

use crate::slices::{
    ROOT, assert_all_sound, content, create, cut, inserted, mounted, name, noise, set, write,
};
use crate::stores::{StillClock, made, together_in};
use crate::tree::Names;
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::{Cluster, Database};
use marram_posix::Posix;
use marram_store::Store;
use marram_vfs::{FileSystem, Ino, RenameMode};
use std::sync::Arc;

/// Histories, and the steps of one.
const SEEDS: u64 = 12;
const STEPS: usize = 40;
const SIZE_MAX: u64 = 60_000;

/// An edit of content: some of it goes, and something comes in its place.
fn edited(names: &mut Names, old: &[u8], step: u64) -> (usize, Vec<u8>) {
    let below = |names: &mut Names, end: usize| names.below(end as u64 + 1) as usize;
    let at = below(names, old.len());
    let gone = match names.below(3) {
        0 => 0,
        _ => below(names, (old.len() - at).min(9000)),
    };
    let new = match names.below(4) {
        0 => Vec::new(),
        // What it has somewhere else already.
        1 => {
            let from = below(names, old.len());
            old[from..from + below(names, (old.len() - from).min(9000))].to_vec()
        }
        2 => vec![step as u8; below(names, 9000)],
        _ => noise(step, below(names, 9000)),
    };
    let rest = &old[at + gone..];
    let whole = inserted(&[&old[..at], rest].concat(), at, &new);
    (at, whole[..whole.len().min(SIZE_MAX as usize)].to_vec())
}

/// Brings a file from one content to another in one of the ways of programs.
fn store(names: &mut Names, files: &Posix, (at, whole): (usize, &[u8])) {
    let ino = files.lookup(Ino::ROOT, name("file")).unwrap().ino;
    let piece = [1 << 20, 5000, 4096, 700][names.below(4) as usize];
    match names.below(4) {
        0 | 1 => {
            write(files, ino, at.min(whole.len()), &whole[at.min(whole.len())..], piece);
            cut(files, ino, whole.len());
        }
        2 => {
            cut(files, ino, 0);
            if names.below(2) == 0 {
                files.sync_all().unwrap();
            }
            write(files, ino, 0, whole, piece);
        }
        _ => {
            let new = create(files, "new");
            write(files, new, 0, whole, piece);
            let (from, to) = (name("new"), name("file"));
            files.rename(ROOT, Ino::ROOT, from, Ino::ROOT, to, RenameMode::Replace).unwrap();
        }
    }
}

fn run(seed: u64, clients: usize) {
    let mut names = Names::new(seed);
    let memory = MemoryDatabase::default();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made(&database);
    let clock = StillClock::new();
    let all: Vec<Arc<dyn Database>> = (0..clients).map(|_| Arc::clone(&database)).collect();
    let clusters: Vec<Arc<Cluster>> = together_in(&all, &clock);
    set(&clusters[0], "recordsize", if seed.is_multiple_of(2) { "4096" } else { "16384" });
    set(&clusters[0], "delta", "on");
    let mut mounts: Vec<Posix> = clusters.iter().map(|it| mounted(it, "root")).collect();
    create(&mounts[0], "file");
    let (mut whole, mut kept): (Vec<u8>, Vec<(String, Vec<u8>)>) = (Vec::new(), Vec::new());
    for step in 0..STEPS {
        let client = names.below(clients as u64) as usize;
        let (at, new) = edited(&mut names, &whole, seed * 1000 + step as u64);
        store(&mut names, &mounts[client], (at, &new));
        whole = new;
        if names.below(2) == 0 {
            mounts[client].sync_all().unwrap();
        }
        match names.below(8) {
            0 => {
                let snapshot = format!("s{step}");
                clusters[client].snapshot(&"root".parse().unwrap(), &snapshot).unwrap();
                kept.push((format!("root@{snapshot}"), whole.clone()));
            }
            1 if clients == 1 => {
                let fork = format!("f{step}");
                let origin = "root".parse().unwrap();
                clusters[0].fork(&origin, &fork.parse().unwrap(), 1).unwrap();
                kept.push((fork, whole.clone()));
            }
            2 if !kept.is_empty() && clients == 1 => {
                let (source, _) = kept.remove(names.below(kept.len() as u64) as usize);
                clusters[0].destroy(&source.parse().unwrap(), false).unwrap();
            }
            3 if clients == 1 => {
                clock.advance(100);
                while clusters[0].prune_step().unwrap().more {}
                clusters[0].sweep_step(Vec::new()).unwrap();
            }
            4 => mounts[client] = mounted(&clusters[client], "root"),
            _ => {}
        }
        for files in &mounts {
            let ino = files.lookup(Ino::ROOT, name("file")).unwrap().ino;
            assert!(content(files, ino) == whole, "seed {seed}, step {step}");
        }
        for (source, before) in &kept {
            let files = mounted(&clusters[client], source);
            let ino = files.lookup(Ino::ROOT, name("file")).unwrap().ino;
            assert!(content(&files, ino) == *before, "seed {seed}, step {step}: {source}");
        }
    }
    mounts[0].sync_all().unwrap();
    drop(mounts);
    assert_all_sound(&memory, seed);
}

#[test]
fn one_client_reads_what_it_has_written() {
    (0..SEEDS).for_each(|seed| run(seed, 1));
}

#[test]
fn two_clients_read_what_either_has_written() {
    (0..SEEDS).for_each(|seed| run(seed, 2));
}
