//! Content that is moved, shared, rewritten, sent, adopted and given back in random order, over
//! several datasets, snapshots, clones and crashes of one pool: every file is what was written to
//! it, in every state that was kept, and the verifier finds nothing.

use crate::root_files::{allocated, file, mount, open, read, write};
use crate::soundness::assert_sound;
use marram_device::{Device, MemoryDevice};
use marram_pool::{CreateOptions, Error as PoolError, Pool, ReceiveRequest, SendRequest, create};
use marram_posix::{
    DedupOptions, Deduplicator, DefragmentOptions, PassPlace, Posix, deduplicate, defragment,
};
use marram_sim::device::{CrashState, Fate, RecordingDevice};
use marram_sim::{Random, pattern};
use marram_store::{DatasetName, Lineage, Properties, Source, Store};
use marram_vfs::{
    Allocate, Caller, Copying, Error, FileSystem, Ino, Name, Ranges, SetAttributes, Sharing,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Files of each dataset.
const FILES: [&str; 3] = ["a", "b", "c"];
/// Most datasets.
const DATASETS_MAX: usize = 6;
/// A run ends when no more is free, in bytes.
const FREE_BYTES_MIN: u64 = 8 << 20;
/// States of a power cut that are looked at.
const STATES: usize = 3;
/// Content repeats after so many bytes, so that there is much to share.
const REPEATS_BYTES: usize = 65_536;

/// What files hold.
type Content = [Vec<u8>; 3];
/// What all datasets hold.
type Moment = BTreeMap<String, Content>;

/// A dataset that is in use.
struct Live {
    files: Arc<Posix>,
    inos: [Ino; 3],
    content: Content,
}

impl Live {
    /// What the files have.
    fn found(&self) -> Content {
        self.inos.map(|ino| read(&self.files, ino))
    }
}

/// How large everything is, in bytes.
#[derive(Clone, Copy)]
struct Sizes {
    pool: usize,
    record: u64,
    /// Where files are changed, and from where on they do not grow further.
    file: u64,
    /// Longest range of a step.
    range: u64,
}

/// Each operation on a file is one batch.
const SHORT: Sizes = Sizes { pool: 32 << 20, record: 16_384, file: 400_000, range: 131_072 };
/// A file has more sections than one batch is about.
const LONG: Sizes = Sizes { pool: 160 << 20, record: 4096, file: 5_000_000, range: 4_800_000 };

struct World {
    sizes: Sizes,
    memory: Arc<MemoryDevice>,
    pool: Arc<Pool>,
    random: Random,
    palette: Vec<Vec<u8>>,
    live: BTreeMap<String, Live>,
    kept: BTreeMap<String, Content>,
    /// Of a dataset that was received: where it is from, and the snapshot that it has.
    received: BTreeMap<String, (String, String)>,
    dedup: Deduplicator,
    number: u64,
    done: BTreeMap<&'static str, u64>,
}

fn inos(files: &Posix) -> [Ino; 3] {
    FILES.map(|text| files.lookup(Ino::ROOT, Name::new(text.as_bytes()).unwrap()).unwrap().ino)
}

fn as_store(error: marram_store::Error) -> Error {
    Error::Io(error.to_string())
}

impl World {
    fn new(seed: u64, sizes: Sizes) -> World {
        let memory = Arc::new(MemoryDevice::new(sizes.pool));
        let device: Arc<dyn Device> = memory.clone();
        let record = ("recordsize".to_owned(), sizes.record.to_string());
        let options = CreateOptions {
            label: "moved".to_owned(),
            properties: Properties([record].into()),
            pool_id: [9; 16],
            secret: 7,
            now_seconds: 1,
        };
        create(&[device], &options).unwrap();
        let pool = open(memory.clone());
        let files = mount(&pool, "root");
        let inos = FILES.map(|text| file(&files, text));
        let live = Live { files, inos, content: Content::default() };
        World {
            sizes,
            memory,
            pool,
            random: Random::new(seed),
            palette: (0..4).map(|seed| pattern(seed + 2, REPEATS_BYTES)).collect(),
            live: [("root".to_owned(), live)].into(),
            kept: BTreeMap::new(),
            received: BTreeMap::new(),
            dedup: Deduplicator::new(500),
            number: 0,
            done: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    fn some_live(&mut self) -> String {
        let chosen = self.random.below(self.live.len() as u64) as usize;
        self.live.keys().nth(chosen).unwrap().clone()
    }

    fn some_kept(&mut self) -> Option<String> {
        if self.kept.is_empty() {
            return None;
        }
        let chosen = self.random.below(self.kept.len() as u64) as usize;
        self.kept.keys().nth(chosen).cloned()
    }

    fn next(&mut self, prefix: &str) -> String {
        self.number += 1;
        format!("{prefix}{}", self.number)
    }

    fn place(&mut self) -> u64 {
        let at = self.random.below(self.sizes.file);
        match self.random.below(4) {
            0 => at,
            1 => at & !4095,
            2 => at & !16383,
            _ => at >> self.random.below(9),
        }
    }

    fn len(&mut self) -> u64 {
        let len = self.random.pick(&[1, 100, 4096, 9000, 16384, 40_000, self.sizes.range]);
        match self.random.below(2) {
            0 => len,
            _ => 1 + self.random.below(len),
        }
    }

    fn write(&mut self) {
        let (name, which) = (self.some_live(), self.random.below(3) as usize);
        let (at, len, ink) = (self.place(), self.len(), self.random.below(4) as usize);
        let data: Vec<u8> =
            (at..at + len).map(|at| self.palette[ink][at as usize % REPEATS_BYTES]).collect();
        let live = self.live.get_mut(&name).unwrap();
        write(&live.files, live.inos[which], at, &data);
        let (at, end) = (at as usize, (at + len) as usize);
        let content = &mut live.content[which];
        content.resize(content.len().max(end), 0);
        content[at..end].copy_from_slice(&data);
    }

    fn cut(&mut self) {
        let (name, which, size) = (self.some_live(), self.random.below(3) as usize, self.place());
        let live = self.live.get_mut(&name).unwrap();
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        live.files.set_attributes(Caller { uid: 0, gid: 0 }, live.inos[which], &set).unwrap();
        live.content[which].resize(size as usize, 0);
    }

    fn allocate(&mut self) {
        let (name, which) = (self.some_live(), self.random.below(3) as usize);
        let how = self.random.pick(&[
            Allocate::Reserve,
            Allocate::ReserveKeepSize,
            Allocate::PunchHole,
            Allocate::Zero,
            Allocate::ZeroKeepSize,
            Allocate::Collapse,
            Allocate::Insert,
            Allocate::Unshare,
            Allocate::UnshareKeepSize,
        ]);
        let (at, len) = (self.place(), self.len());
        let live = self.live.get_mut(&name).unwrap();
        let content = &mut live.content[which];
        let size = content.len() as u64;
        if how == Allocate::Insert && size > self.sizes.file {
            return;
        }
        let done = live.files.allocate(live.inos[which], how, at, len);
        let end = at + len;
        let expected = match how {
            Allocate::Collapse => end < size,
            Allocate::Insert => at < size,
            _ => true,
        };
        assert_eq!(done.is_ok(), expected, "{how:?} {at} {len} of {size}: {done:?}");
        if !expected {
            return;
        }
        let inside = |at: u64| at.min(size) as usize;
        match how {
            Allocate::PunchHole | Allocate::ZeroKeepSize | Allocate::Zero => {
                content[inside(at)..inside(end)].fill(0);
            }
            Allocate::Collapse => drop(content.drain(at as usize..end as usize)),
            Allocate::Insert => {
                let zeros = vec![0; len as usize];
                drop(content.splice(at as usize..at as usize, zeros));
            }
            _ => {}
        }
        if how.extends() {
            content.resize(content.len().max(end as usize), 0);
        }
    }

    fn copy(&mut self) {
        let (source, target) = (self.some_live(), self.some_live());
        let (from, to) = (self.random.below(3) as usize, self.random.below(3) as usize);
        let (from_at, to_at) = (self.place(), self.place());
        let len = self.len();
        let shares = self.random.once_in(2);
        let (one, other) = (&self.live[&source], &self.live[&target]);
        let places = ((one.inos[from], from_at), (other.inos[to], to_at));
        let ((a, a_at), (b, b_at)) = places;
        let done = match (source == target, shares) {
            (true, false) => other.files.copy_range(a, a_at, b, b_at, len),
            (true, true) => other.files.share_range(a, a_at, b, b_at, len),
            (false, false) => other.files.copy_range_from(&one.files, places.0, places.1, len),
            (false, true) => other.files.share_range_from(&one.files, places.0, places.1, len),
        };
        let Ok(copied) = done else {
            return self.count("refused copies");
        };
        let data = one.content[from].get(from_at as usize..(from_at + copied) as usize);
        let data = data.unwrap_or_default().to_vec();
        assert_eq!(data.len() as u64, copied);
        if copied == 0 {
            return;
        }
        let content = &mut self.live.get_mut(&target).unwrap().content[to];
        let (at, end) = (to_at as usize, (to_at + copied) as usize);
        content.resize(content.len().max(end), 0);
        content[at..end].copy_from_slice(&data);
        self.count("copies");
    }

    fn places(&self) -> Vec<PassPlace> {
        let place =
            |live: &Live| PassPlace { files: Arc::clone(&live.files), directory: Ino::ROOT };
        self.live.values().map(place).collect()
    }

    fn share(&mut self) {
        let options = DedupOptions { places_max: 40, ..DedupOptions::default() };
        let report = deduplicate(&self.places(), options, &mut || Some(()));
        assert_eq!((report.skipped, report.failure), (0, None));
        *self.done.entry("shared bytes").or_default() += report.shared_bytes;
    }

    fn share_recent(&mut self) {
        for live in self.live.values() {
            self.dedup.step(&live.files, 20);
            self.dedup.fill(&live.files, 5);
        }
        self.done.insert("recently shared bytes", self.dedup.totals().shared_bytes);
    }

    fn rewrite(&mut self) {
        let report = defragment(&self.places(), DefragmentOptions::default(), &mut || Some(()));
        assert_eq!((report.skipped, report.failure), (0, None));
        *self.done.entry("rewritten bytes").or_default() += report.totals.rewritten_bytes;
    }

    fn snapshot(&mut self) {
        let (name, tag) = (self.some_live(), self.next("s"));
        self.pool.snapshot(&name.parse().unwrap(), &tag).unwrap();
        self.kept.insert(format!("{name}@{tag}"), self.live[&name].content.clone());
        self.count("snapshots");
    }

    fn clone_it(&mut self) {
        let Some(origin) = self.some_kept().filter(|_| self.live.len() < DATASETS_MAX) else {
            return;
        };
        let name = self.next("d");
        self.pool.clone_snapshot(&origin.parse().unwrap(), &name.parse().unwrap()).unwrap();
        self.go_live(&name, self.kept[&origin].clone());
        self.count("clones");
    }

    fn fork(&mut self) {
        if self.live.len() >= DATASETS_MAX {
            return;
        }
        let (parent, name) = (self.some_live(), self.next("f"));
        self.pool.fork(&parent.parse().unwrap(), &name.parse().unwrap(), Ino::ROOT.0).unwrap();
        self.go_live(&name, self.live[&parent].content.clone());
        self.count("forks");
    }

    fn create(&mut self) {
        if self.live.len() >= DATASETS_MAX {
            return;
        }
        let name = self.next("n");
        let properties = [("dedup", "on"), ("recordsize", "8192")];
        let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.pool.create(&name.parse().unwrap(), &Properties(properties.into())).unwrap();
        let files = mount(&self.pool, &name);
        let inos = FILES.map(|text| file(&files, text));
        self.live.insert(name, Live { files, inos, content: Content::default() });
    }

    fn go_live(&mut self, name: &str, content: Content) {
        let files = mount(&self.pool, name);
        let inos = inos(&files);
        self.live.insert(name.to_owned(), Live { files, inos, content });
    }

    fn destroy(&mut self) {
        let snapshot = self.some_kept().filter(|_| self.random.below(3) > 0);
        let gone = match snapshot {
            Some(snapshot) => snapshot,
            None => self.some_live(),
        };
        if gone == "root" {
            return;
        }
        let live = self.live.remove(&gone);
        let content = live.map(|live| live.content);
        match self.pool.destroy(&gone.parse().unwrap(), false) {
            Ok(destruction) => {
                for source in destruction.sources {
                    self.kept.remove(&source.to_string());
                }
                self.received.remove(&gone);
                self.count("destructions");
            }
            Err(_in_use) => {
                if let Some(content) = content {
                    self.go_live(&gone, content);
                }
                self.count("refused destructions");
            }
        }
    }

    fn promote(&mut self) {
        let name = self.some_live();
        if self.pool.promote(&name.parse().unwrap()).is_err() {
            return;
        }
        let there = |source: &String| self.pool.report(&source.parse().unwrap()).is_ok();
        let kept = std::mem::take(&mut self.kept);
        let renamed = kept.into_iter().map(|(source, content)| {
            let tag = source.split_once('@').unwrap().1;
            let moved = format!("{name}@{tag}");
            if there(&source) { (source, content) } else { (moved, content) }
        });
        self.kept = renamed.collect();
        self.count("promotions");
    }

    fn roll_back(&mut self) {
        let Some(to) = self.some_kept() else { return };
        let name = to.split_once('@').unwrap().0.to_owned();
        let keep = self.next("k");
        let Some(live) = self.live.get_mut(&name) else { return };
        let source: Source = to.parse().unwrap();
        live.files.roll_back(|| self.pool.rollback(&source, &keep).map_err(as_store)).unwrap();
        let before = std::mem::replace(&mut live.content, self.kept[&to].clone());
        live.inos = inos(&live.files);
        self.kept.insert(format!("{name}@{keep}"), before);
        self.count("rollbacks");
    }

    fn stream(&self, snapshot: &str, base: Option<&str>) -> Option<Vec<u8>> {
        let (snapshot, base) = (snapshot.parse().unwrap(), base.map(|it| it.parse().unwrap()));
        let request = SendRequest { snapshot, base, resume: None };
        let mut stream = Vec::new();
        self.pool.send(&request, &mut stream, &mut |_| {}).ok()?;
        Some(stream)
    }

    fn receive_full(&mut self) {
        let Some(snapshot) = self.some_kept().filter(|_| self.live.len() < DATASETS_MAX) else {
            return;
        };
        let stream = self.stream(&snapshot, None).unwrap();
        let name = self.next("r");
        let dataset: DatasetName = name.parse().unwrap();
        let request = ReceiveRequest { dataset, force: false, resumable: false };
        self.pool.receive(&request, &mut &stream[..], &mut |_| {}).unwrap().publish().unwrap();
        let (from, tag) = snapshot.split_once('@').unwrap();
        self.received.insert(name.clone(), (from.to_owned(), tag.to_owned()));
        let content = self.kept[&snapshot].clone();
        self.kept.insert(format!("{name}@{tag}"), content.clone());
        self.go_live(&name, content);
        self.count("received");
    }

    /// What has changed since goes to where it was received before, in one piece or in two.
    fn receive_more(&mut self) {
        let names: Vec<String> = self.received.keys().cloned().collect();
        let Some(to) = names.get(self.random.below(1 + names.len() as u64) as usize) else {
            return;
        };
        let (from, base) = self.received[to].clone();
        if !self.live.contains_key(&from) || !self.live.contains_key(to) {
            return;
        }
        let tag = self.next("s");
        self.pool.snapshot(&from.parse().unwrap(), &tag).unwrap();
        let sent = format!("{from}@{tag}");
        self.kept.insert(sent.clone(), self.live[&from].content.clone());
        let Some(mut stream) = self.stream(&sent, Some(&format!("{from}@{base}"))) else {
            self.received.remove(to);
            return;
        };
        let cut = self.random.below(2 * stream.len() as u64) as usize;
        let resumable = cut < stream.len();
        let request = ReceiveRequest { dataset: to.parse().unwrap(), force: true, resumable };
        if resumable {
            let is_cut = {
                let part = self.pool.receive(&request, &mut &stream[..cut], &mut |_| {});
                part.is_err()
            };
            assert!(is_cut);
            if self.random.once_in(2) {
                self.crash();
            }
            let partials = self.pool.partials().unwrap();
            let partial = partials.iter().find(|part| part.snapshot.dataset == request.dataset);
            if let Some(token) = partial.and_then(|partial| partial.token()) {
                let (snapshot, base) = self.pool.named_by(&token).unwrap();
                let resumed = SendRequest { snapshot, base, resume: Some(token) };
                stream.clear();
                self.pool.send(&resumed, &mut stream, &mut |_| {}).unwrap();
                self.count("resumed");
            }
        }
        let incoming = match self.pool.receive(&request, &mut &stream[..], &mut |_| {}) {
            Ok(incoming) => incoming,
            Err(PoolError::Unfit(_)) => {
                self.received.remove(to);
                let _none = self.pool.drop_partial(&to.parse().unwrap());
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let live = self.live.get_mut(to).unwrap();
        let mut done = None;
        let publish = || {
            done = Some(incoming.publish().map_err(|error| Error::Io(error.to_string()))?);
            Ok::<(), Error>(())
        };
        live.files.roll_back(publish).unwrap();
        let content = self.kept[&sent].clone();
        let before = std::mem::replace(&mut live.content, content.clone());
        live.inos = inos(&live.files);
        if let Some(kept) = done.unwrap().kept {
            self.kept.insert(kept.to_string(), before);
            self.count("set aside");
        }
        self.kept.insert(format!("{to}@{tag}"), content);
        self.received.insert(to.clone(), (from, tag));
        self.count("received more");
    }

    fn sync(&self) {
        self.live.values().next().unwrap().files.sync_all().unwrap();
    }

    /// The pool goes on with what this device has.
    fn go_on_with(&mut self, device: Arc<dyn Device>) {
        self.pool = open(device);
        for (name, live) in &mut self.live {
            live.files = mount(&self.pool, name);
            live.inos = inos(&live.files);
        }
    }

    /// Everything is synced, and then the pool is cut off.
    fn crash(&mut self) {
        self.sync();
        self.memory = Arc::new(MemoryDevice::from_bytes(self.memory.snapshot()));
        self.go_on_with(self.memory.clone());
        self.count("crashes");
    }

    fn moment(&self) -> Moment {
        self.live.iter().map(|(name, live)| (name.clone(), live.content.clone())).collect()
    }

    /// Some steps, and a power cut in them: what is left is what all datasets had at one moment of
    /// them, and at none before the last sync.
    fn cut_power(&mut self) {
        if self.sizes.range > SHORT.range {
            return self.crash();
        }
        self.sync();
        let device = Arc::new(RecordingDevice::in_memory(self.memory.snapshot()));
        self.go_on_with(device.clone());
        let mut moments = vec![self.moment()];
        device.mark(0);
        for _ in 0..2 + self.random.below(10) {
            match self.random.below(24) {
                0..8 => self.write(),
                8..10 => self.cut(),
                10..13 => self.allocate(),
                13..17 => self.copy(),
                17 => self.share(),
                18 => self.share_recent(),
                19 => self.rewrite(),
                20 => drop(self.pool.reclaim_step().unwrap()),
                kind => {
                    if kind == 21 {
                        self.pool.commit().unwrap()
                    } else {
                        self.sync()
                    }
                    device.mark(moments.len() as u64 - 1);
                }
            }
            moments.push(self.moment());
        }
        let trace = device.trace();
        let seed = self.random.below(u64::MAX);
        let torn: Vec<CrashState> = trace.seeded(seed, STATES).collect();
        let whole = CrashState { cut: trace.events().len(), fate: Fate::All };
        for state in torn.into_iter().chain([whole]) {
            self.memory = Arc::new(MemoryDevice::from_bytes(trace.image(state)));
            self.go_on_with(self.memory.clone());
            let found: Moment =
                self.live.iter().map(|(name, live)| (name.clone(), live.found())).collect();
            let synced = trace.last_mark(state.cut).unwrap_or(0) as usize;
            assert!(moments[synced..].contains(&found), "state {state}: no moment after {synced}");
            for (name, content) in found {
                self.live.get_mut(&name).unwrap().content = content;
            }
            self.check();
        }
        self.count("power cuts");
    }

    fn compare(&self) {
        for (name, live) in &self.live {
            for (which, found) in live.found().into_iter().enumerate() {
                assert!(found == live.content[which], "{} of {name}", FILES[which]);
            }
        }
    }

    fn compare_kept(&self) {
        for (source, content) in &self.kept {
            let files = mount(&self.pool, source);
            for (which, ino) in inos(&files).iter().enumerate() {
                assert!(read(&files, *ino) == content[which], "{} of {source}", FILES[which]);
            }
        }
    }

    fn check(&mut self) {
        self.compare();
        assert!(allocated(&self.pool) > 0);
        assert_sound(&*self.memory, "moved");
        self.compare_kept();
        self.compare();
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..30 => self.write(),
            30..35 => self.cut(),
            35..48 => self.allocate(),
            48..64 => self.copy(),
            64..67 => self.share(),
            67..70 => self.share_recent(),
            70..73 => self.rewrite(),
            73..77 => self.snapshot(),
            77..79 => self.clone_it(),
            79 => self.fork(),
            80 => self.create(),
            81..85 => self.destroy(),
            85 => self.promote(),
            86..88 => self.roll_back(),
            88 => self.receive_full(),
            89..91 => self.receive_more(),
            91 => self.crash(),
            92 => self.cut_power(),
            93..97 => self.pool.commit().unwrap(),
            _ => self.sync(),
        }
    }
}

/// Adds what was done to `sum`.
fn run(seed: u64, sizes: Sizes, steps: u64, sum: &mut BTreeMap<&'static str, u64>) {
    println!("seed {seed}");
    let mut world = World::new(seed, sizes);
    for step in 1..=steps {
        world.step();
        if step % 20 == 0 {
            world.compare();
        }
        if step % 100 == 0 {
            world.check();
        }
        let space = world.live["root"].files.space().unwrap();
        if space.free_bytes < FREE_BYTES_MIN {
            break;
        }
    }
    world.check();
    for (what, times) in world.done {
        *sum.entry(what).or_default() += times;
    }
}

#[test]
fn what_was_written_stays_whatever_moves_it() {
    let mut sum = BTreeMap::new();
    (0..8).for_each(|seed| run(seed, SHORT, 300, &mut sum));
    for what in ["clones", "copies", "power cuts", "promotions", "received more", "resumed"] {
        assert!(sum.get(what).is_some_and(|times| *times > 0), "no {what}: {sum:?}");
    }
    for what in ["shared bytes", "recently shared bytes", "rewritten bytes"] {
        assert!(sum.get(what).is_some_and(|bytes| *bytes > 100_000), "few {what}: {sum:?}");
    }
}

#[test]
fn so_it_does_in_files_that_are_worked_on_in_pieces() {
    let mut sum = BTreeMap::new();
    (0..2).for_each(|seed| run(seed, LONG, 150, &mut sum));
    assert!(sum.get("copies").is_some_and(|times| *times > 10), "{sum:?}");
}
