//! Everything that moves dead lists, in any order, while lists are in reclaim: after each
//! operation all is in order, and what a destruction promises is what it gives back.

use crate::fixture::{Home, Random, check_all, name, new_home, noise, open_home};
use marram_device::MemoryDevice;
use marram_pool::{ReceiveRequest, SendRequest};
use marram_store::{DatasetName, Error, Lineage, Result, Source, SpaceUsage, Store};
use marram_vfs::{FileSystem, Ino};
use std::sync::Arc;

const HISTORIES: u64 = 12;
const STEPS: u64 = 70;
/// Datasets beside which no more come.
const DATASETS_MAX: usize = 5;
/// Steps of the background in which everything has come back for sure.
const BACKGROUND_STEPS_MAX: usize = 5000;

struct History {
    home: Home,
    random: Random,
    /// Steps of the background after which something was left.
    waited: usize,
    log: Vec<String>,
}

impl History {
    fn new(seed: u64) -> History {
        let (home, random) = (new_home(64, &[]), Random::new(seed));
        History { home, random, waited: 0, log: vec![format!("seed {seed}")] }
    }

    fn pick(&mut self, from: &[Source]) -> Option<Source> {
        let count = from.len() as u64;
        let index = usize::try_from(self.random.below(count.max(1))).unwrap();
        from.get(index).cloned()
    }

    /// Bytes that datasets and snapshots hold: what waits to be given back is nobody's.
    fn held(&self) -> u64 {
        let usage = self.home.pool.usage(true).unwrap();
        let added: u64 = usage.holders.iter().map(|holder| holder.added_bytes).sum();
        assert_eq!(usage.shared_bytes, 0, "{:#?}", self.log);
        let told = added + usage.own_bytes + usage.leaving_bytes;
        assert_eq!(told, usage.allocated_bytes, "{:#?}", self.log);
        added
    }

    fn step(&mut self, step: u64) {
        let list = self.home.pool.list().unwrap();
        let all: Vec<Source> = list.into_iter().map(|report| report.source).collect();
        let (snapshots, lives): (Vec<Source>, Vec<Source>) =
            all.iter().cloned().partition(|source| source.snapshot.is_some());
        let live = self.pick(&lives).unwrap();
        let snapshot = self.pick(&snapshots);
        let what = self.random.below(17);
        self.log.push(format!("{what}: {live}, {snapshot:?}"));
        let pool = Arc::clone(&self.home.pool);
        match (what, snapshot) {
            (0..=3, _) => {
                self.write(live.dataset.as_str());
                // What waits for a commit is born with the snapshot, as its youngest blocks.
                if self.random.below(2) == 0 {
                    allowed(pool.snapshot(&live.dataset, &format!("w{step}")));
                }
            }
            (4 | 5 | 15, _) => allowed(pool.snapshot(&live.dataset, &format!("n{step}"))),
            (6, _) => allowed(pool.promote(&live.dataset)),
            (7, Some(snapshot)) => allowed(pool.rollback(&snapshot, &format!("b{step}"))),
            (8..=10 | 12, Some(_)) => self.destroy(&all, &snapshots),
            (13, Some(snapshot)) if lives.len() < DATASETS_MAX => {
                self.send(&snapshot, &snapshots, &lives);
            }
            (14, Some(snapshot)) if lives.len() < DATASETS_MAX / 2 + 1 => {
                allowed(pool.clone_snapshot(&snapshot, &format!("c{step}").parse().unwrap()));
            }
            (16, _) => {
                let left = MemoryDevice::from_bytes(self.home.bytes());
                self.home = open_home(Arc::new(left));
            }
            _ => self.waited += usize::from(pool.reclaim_step().unwrap()),
        }
        let (_, findings) = check_all(&*self.home.memory);
        let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "{:#?} {findings:#?}", self.log);
    }

    /// Makes, changes or removes a few files, over one or several commits; the last one waits for
    /// whatever commits next.
    fn write(&mut self, live: &str) {
        let files = self.home.mount(live);
        let changes = 1 + self.random.below(4);
        for change in 1..=changes {
            let file = format!("f{}", self.random.below(6));
            let there = files.posix.lookup(Ino(1), name(&file)).ok().map(|found| found.ino);
            there.into_iter().for_each(|ino| files.posix.forget(ino, 1));
            let content = noise(self.random.next(), 9000);
            match (there, self.random.below(4)) {
                (None, _) => {
                    files.file(1, &file, &content);
                }
                (Some(_), 0) => {
                    files.remove(1, &file);
                    files.reclaim();
                }
                (Some(ino), _) => files.write(ino.0, self.random.below(3) * 5000, &content),
            }
            match self.random.below(4) {
                0 | 1 if change < changes => files.commit(),
                2 => files.sync(),
                _ => {}
            }
        }
        files.sync();
    }

    /// Destroys up to three, mostly snapshots.
    fn destroy(&mut self, all: &[Source], snapshots: &[Source]) {
        self.home.pool.commit().unwrap();
        let mut gone = Vec::new();
        for _ in 0..=self.random.below(3) {
            let from = if self.random.below(4) == 0 { all } else { snapshots };
            gone.extend(self.pick(from));
        }
        gone.sort();
        gone.dedup();
        self.log.push(format!("destroy {gone:?}"));
        let before = self.held();
        let promised = self.home.pool.destroy_together(&gone, true);
        match self.home.pool.destroy_together(&gone, false) {
            Ok(done) => {
                assert_eq!(promised.unwrap().freed_bytes, done.freed_bytes, "{:#?}", self.log);
                assert_eq!(before - self.held(), done.freed_bytes, "{:#?}", self.log);
            }
            refused => allowed(refused),
        }
    }

    /// Sends a snapshot to a dataset of its own: in full, or as the next of what that has.
    fn send(&mut self, snapshot: &Source, snapshots: &[Source], lives: &[Source]) {
        let dataset: DatasetName = format!("r{}", snapshot.dataset.as_str()).parse().unwrap();
        let is_base = |base: &Source| base.dataset == snapshot.dataset && base != snapshot;
        let has_target = lives.iter().any(|live| live.dataset == dataset);
        let base = self.pick(snapshots).filter(|base| has_target && is_base(base));
        let mut stream = Vec::new();
        let request = SendRequest { snapshot: snapshot.clone(), base, resume: None };
        if self.home.pool.send(&request, &mut stream, &mut |_| {}).is_err() {
            return;
        }
        let resumable = self.random.below(2) == 0;
        let request = ReceiveRequest { dataset, force: true, resumable };
        // Whether it fits what is there by now is another test's question.
        let received = self.home.pool.receive(&request, &mut &stream[..], &mut |_| {});
        let _ = received.and_then(|received| received.publish());
    }

    /// All that waits comes back, and nobody holds more or less by it.
    fn finish(self) -> usize {
        self.home.pool.commit().unwrap();
        let held = self.held();
        let steps =
            (0..BACKGROUND_STEPS_MAX).take_while(|_| self.home.pool.reclaim_step().unwrap());
        assert!(steps.count() < BACKGROUND_STEPS_MAX, "{:#?}", self.log);
        self.home.assert_clean();
        assert_eq!(self.held(), held, "{:#?}", self.log);
        assert_eq!(self.home.pool.usage(true).unwrap().leaving_bytes, 0, "{:#?}", self.log);
        self.waited
    }
}

/// Done, or refused for what is in the way.
#[track_caller]
fn allowed<T>(result: Result<T>) {
    match result.map(|_done| ()) {
        Ok(())
        | Err(Error::InUse { .. } | Error::Invalid(_))
        | Err(Error::DatasetExists(_) | Error::NoDataset(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn lists_move_in_any_order_while_they_are_reclaimed() {
    let mut waited = 0;
    for seed in 0..HISTORIES {
        let mut history = History::new(seed);
        (0..STEPS).for_each(|step| history.step(step));
        waited += history.finish();
    }
    assert!(waited > 0, "it was given back in steps");
}
