//! Random plans: in every crash state, what is seen has all that it depends on; and no reader ever
//! sees anything but the newest bytes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use marram_device::{Device, MemoryDevice};
use marram_patch::{
    After, Bracket, Bug, Cache, Content, Discipline, Merging, Owner, PatchId, Plan, Study,
};
use marram_sim::Random;
use marram_sim::device::{CrashState, Event, Fate, RecordingDevice, Trace};
use std::collections::BTreeMap;
use std::sync::Arc;

const BLOCK: usize = 1024;
const BLOCKS: u64 = 12;
/// Bytes that one change has for itself.
const CELL: usize = 8;

/// A change: where it is, what it wrote, and which changes it waits for.
#[derive(Clone, Debug)]
struct Told {
    at: usize,
    value: u64,
    after: Vec<usize>,
}

/// Changes cells of a medium at random, each with dependencies on changes of before.
struct History {
    device: Arc<RecordingDevice>,
    cache: Cache,
    told: Vec<Told>,
    patches: Vec<PatchId>,
    newest: BTreeMap<usize, u64>,
}

impl History {
    fn new(discipline: Discipline, study: Study) -> History {
        let device =
            Arc::new(RecordingDevice::in_memory(vec![0; BLOCK * usize::try_from(BLOCKS).unwrap()]));
        let mut cache = Cache::new(Arc::clone(&device) as Arc<dyn Device>, 0, BLOCK);
        cache.set_study(study);
        cache.set_discipline(discipline);
        let (told, patches, newest) = (Vec::new(), Vec::new(), BTreeMap::new());
        History { device, cache, told, patches, newest }
    }

    /// One operation: some changes, each after others of the same and of before.
    fn operate(&mut self, random: &mut Random) {
        self.operate_behind(random, Vec::new());
    }

    /// The same, each after some patches too; which changes it made, with the patches of these.
    fn operate_behind(
        &mut self,
        random: &mut Random,
        behind: Vec<PatchId>,
    ) -> (std::ops::Range<usize>, Vec<PatchId>) {
        let mut plan = Plan::default();
        plan.set_behind(behind);
        plan.set_owner(Owner(random.below(4)));
        let first = self.told.len();
        for _ in 0..=random.below(4) {
            let block = random.below(BLOCKS);
            let content = if block < 3 { Content::Data } else { Content::Metadata };
            let within = random.below(16) as usize * CELL * 8;
            let mut after = Vec::new();
            for _ in 0..random.below(3) {
                match self.told.len() {
                    0 => (),
                    len => after
                        .push(random.below((len as u64).min(24)) as usize + len.saturating_sub(24)),
                }
            }
            // Inside of a block of data there is no order.
            let told = &self.told;
            let is_same = |which: &usize| told[*which].at / BLOCK == block as usize;
            after.retain(|which| content == Content::Metadata || !is_same(which));
            let stated: Vec<After> = after
                .iter()
                .map(|which| match which.checked_sub(first) {
                    Some(step) => After::Step(step),
                    None => After::Patch(self.patches[*which]),
                })
                .collect();
            let value = self.told.len() as u64 + 1;
            let bytes = (value | 0xab00_0000_0000_0000).to_le_bytes();
            let place = (block, content);
            let steps = plan.write(&mut self.cache, place, within, &bytes, &stated).unwrap();
            // Cells differ in their first byte at least, so there is one step.
            assert_eq!(steps.len(), 1);
            let at = usize::try_from(block).unwrap() * BLOCK + within;
            self.told.push(Told { at, value: value | 0xab00_0000_0000_0000, after });
            self.newest.insert(at, value | 0xab00_0000_0000_0000);
        }
        let made = self.cache.apply(plan).unwrap();
        self.patches.extend(&made);
        (first..self.told.len(), made)
    }

    fn check_readers(&mut self) {
        for (at, value) in &self.newest {
            let block = self.cache.read((at / BLOCK) as u64).unwrap();
            assert_eq!(block[at % BLOCK..][..CELL], value.to_le_bytes());
        }
    }
}

/// Which changes an image shows: those of each cell up to the one that is there.
fn seen(told: &[Told], image: &[u8]) -> Result<Vec<bool>, String> {
    let mut seen = vec![false; told.len()];
    let mut cells: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (which, change) in told.iter().enumerate() {
        cells.entry(change.at).or_default().push(which);
    }
    for (at, changes) in cells {
        let mut bytes = [0; CELL];
        bytes.copy_from_slice(&image[at..at + CELL]);
        let value = u64::from_le_bytes(bytes);
        let last = changes.iter().rposition(|which| told[*which].value == value);
        if last.is_none() && value != 0 {
            return Err(format!("the cell at {at} has the bytes of no change: {value:#x}"));
        }
        for which in changes.iter().take(last.map_or(0, |last| last + 1)) {
            seen[*which] = true;
        }
    }
    Ok(seen)
}

/// Whether an image has, for each change that it shows, all that the change waits for.
fn judge(told: &[Told], image: &[u8]) -> Result<(), String> {
    let seen = seen(told, image)?;
    for (which, change) in told.iter().enumerate().filter(|(which, _)| seen[*which]) {
        if let Some(missing) = change.after.iter().find(|other| !seen[**other]) {
            return Err(format!("change {which} is seen, and {missing} is not"));
        }
    }
    Ok(())
}

fn run(seed: u64, discipline: Discipline) -> (Vec<Told>, Trace) {
    run_as(seed, discipline, Study::default())
}

fn run_as(seed: u64, discipline: Discipline, study: Study) -> (Vec<Told>, Trace) {
    let mut random = Random::new(seed);
    let mut history = History::new(discipline, study);
    for _ in 0..60 {
        history.operate(&mut random);
        if random.once_in(5) {
            history.cache.wave().unwrap();
        }
        if random.once_in(15) {
            history.check_readers();
        }
    }
    history.cache.sync().unwrap();
    assert_eq!((history.cache.counters().waiting, history.cache.counters().undo_bytes), (0, 0));
    (history.told, history.device.trace())
}

/// A set of changes in brackets.
struct Set {
    bracket: Bracket,
    changes: Vec<usize>,
    /// All changes of the sets that it waits for.
    earlier: Vec<usize>,
    is_sealed: bool,
}

/// Changes at random, some in sets of which some wait for others. Without any other order only that
/// of the sets is noted.
fn run_in_sets(seed: u64, discipline: Discipline, bug: Option<Bug>) -> (Vec<Told>, Trace) {
    let (mut random, mut sets) = (Random::new(seed), Vec::<Set>::new());
    let mut history = History::new(discipline, Study::default());
    bug.into_iter().for_each(|bug| history.cache.plant(bug));
    for _ in 0..80 {
        if sets.is_empty() || random.once_in(4) {
            let chosen: Vec<usize> = (0..random.below(3))
                .filter(|_| !sets.is_empty())
                .map(|_| random.below(sets.len() as u64) as usize)
                .collect();
            let mut earlier = Vec::new();
            for which in &chosen {
                let set = &mut sets[*which];
                earlier.extend(set.changes.iter().chain(&set.earlier));
                if !std::mem::replace(&mut set.is_sealed, true) {
                    let is_unordered = discipline == Discipline::Unordered;
                    history.cache.seal_bracket(set.bracket, is_unordered);
                }
            }
            let brackets: Vec<Bracket> = chosen.iter().map(|it| sets[*it].bracket).collect();
            let bracket = history.cache.open_bracket(&brackets);
            sets.push(Set { bracket, changes: Vec::new(), earlier, is_sealed: false });
        }
        let which = random.below(sets.len() as u64) as usize;
        let set = Some(&mut sets[which]).filter(|set| !set.is_sealed);
        let behind = set.as_ref().map(|set| set.bracket.head).into_iter().collect();
        let (changes, made) = history.operate_behind(&mut random, behind);
        if discipline == Discipline::Unordered {
            history.told[changes.clone()].iter_mut().for_each(|told| told.after.clear());
        }
        if let Some(set) = set {
            history.cache.add_to_bracket(set.bracket, &made);
            for told in &mut history.told[changes.clone()] {
                told.after.extend(&set.earlier);
            }
            set.changes.extend(changes);
        }
        match random.below(12) {
            0 | 1 => drop(history.cache.wave().unwrap()),
            2 => history.check_readers(),
            3 => {
                let bracket = sets[which].bracket;
                history.cache.sync_bracket(bracket).unwrap();
                let own = &sets[which].changes;
                assert!(own.iter().all(|it| history.cache.is_committed(history.patches[*it])));
            }
            _ => (),
        }
    }
    history.cache.sync().unwrap();
    (history.told, history.device.trace())
}

#[test]
fn sets_of_changes_keep_the_order_that_was_chosen() {
    for discipline in [Discipline::SoftUpdates, Discipline::Unordered] {
        for seed in 0..12 {
            let (told, trace) = run_in_sets(seed, discipline, None);
            for state in states(&trace, seed) {
                let said = judge(&told, &trace.image(state));
                said.map_err(|said| format!("{discipline:?}, {seed}, {state}: {said}")).unwrap();
            }
        }
        let is_found = (0..6).any(|seed| {
            let (told, trace) = run_in_sets(seed, discipline, Some(Bug::GroupDropped));
            states(&trace, seed).into_iter().any(|state| judge(&told, &trace.image(state)).is_err())
        });
        assert!(is_found, "{discipline:?}: a change that does not wait for its set is found");
    }
}

/// All that a seed asks of a run: some states of each kind.
fn states(trace: &Trace, seed: u64) -> Vec<CrashState> {
    let mut states: Vec<CrashState> = trace.prefixes().chain(trace.torn()).collect();
    states.extend(trace.subsets(5));
    states.extend(trace.seeded(seed, 300));
    states
}

/// The ways in which patches become fewer, with what can be written known or looked for.
fn studies() -> impl Iterator<Item = Study> {
    let ways = [Merging::None, Merging::Hard, Merging::Overlap, Merging::Both, Merging::Owned];
    let both = [false, true].into_iter();
    both.flat_map(move |has_ready_lists| {
        ways.map(|merging| Study { merging, has_ready_lists, ..Study::default() })
    })
}

#[test]
fn each_way_to_have_fewer_patches_keeps_the_order() {
    let mut count = 0;
    for (which, study) in studies().enumerate() {
        for seed in (0..6).map(|seed| 100 + seed * 10 + which as u64) {
            let (told, trace) = run_as(seed, Discipline::SoftUpdates, study);
            for state in states(&trace, seed) {
                let said = judge(&told, &trace.image(state));
                said.map_err(|said| format!("{study:?}, seed {seed}, {state}: {said}")).unwrap();
                count += 1;
            }
        }
    }
    assert!(count > 10_000, "{count}");
}

#[test]
fn what_can_be_written_is_the_same_whether_it_is_known_or_looked_for() {
    for seed in 0..10 {
        let traces = [false, true].map(|has_ready_lists| {
            let study = Study { has_ready_lists, ..Study::default() };
            run_as(seed, Discipline::SoftUpdates, study).1
        });
        assert_eq!(traces[0].events(), traces[1].events(), "seed {seed}");
    }
}

#[test]
fn what_is_seen_after_a_crash_has_all_that_it_depends_on() {
    let mut count = 0;
    for seed in 0..30 {
        let (told, trace) = run(seed, Discipline::SoftUpdates);
        let last = trace.state_at(trace.events().len());
        assert!(
            seen(&told, &last).unwrap().into_iter().all(|seen| seen),
            "all is there at the end"
        );
        for state in states(&trace, seed) {
            let said = judge(&told, &trace.image(state));
            said.map_err(|said| format!("seed {seed}, {state}: {said}")).unwrap();
            count += 1;
        }
    }
    assert!(count > 10_000, "{count}");
}

#[test]
fn an_order_that_is_not_kept_is_found() {
    let found = (0..10).filter(|seed| {
        let (told, trace) = run(*seed, Discipline::Unordered);
        states(&trace, *seed).into_iter().any(|state| judge(&told, &trace.image(state)).is_err())
    });
    assert_eq!(found.count(), 10);
}

#[test]
fn a_flush_that_is_left_out_is_found() {
    let found = (0..10).filter(|seed| {
        let (told, trace) = run(*seed, Discipline::SoftUpdates);
        // Without flushes any write may be lost: here they are made anew, with none between them.
        let device = RecordingDevice::in_memory(trace.base().to_vec());
        for event in trace.events() {
            if let Event::Write { offset, bytes } = event {
                device.write(*offset, bytes).unwrap();
            }
        }
        let trace = device.trace();
        let cut = trace.events().len();
        let mut random = Random::new(*seed);
        (0..200).any(|_| {
            let state = CrashState { cut, fate: Fate::Seeded(random.number()) };
            judge(&told, &trace.image(state)).is_err()
        })
    });
    assert_eq!(found.count(), 10);
}

#[test]
fn a_thousand_changes_that_wait_alike_take_as_many_waves_as_the_order_is_deep() {
    let device = Arc::new(MemoryDevice::new(BLOCK * 2200));
    let mut cache = Cache::new(device, 0, BLOCK);
    for which in 0..1000 {
        let mut plan = Plan::default();
        let metadata = |block| (block, Content::Metadata);
        let bit = plan.set_bits(&mut cache, 0, &[which], true, &[]).unwrap();
        let inode = plan.write(&mut cache, metadata(1 + which), 0, &[7; 64], &bit).unwrap();
        plan.write(&mut cache, metadata(1100 + which), 0, &[9; 16], &inode).unwrap();
        cache.apply(plan).unwrap();
    }
    cache.sync().unwrap();
    assert_eq!(cache.counters().waves, 3);
    assert_eq!(cache.counters().flushes, 3);
}

#[test]
fn a_file_that_grows_by_many_writes_keeps_few_patches() {
    let device = Arc::new(MemoryDevice::new(BLOCK * 2200));
    let mut cache = Cache::new(device, 0, BLOCK);
    for which in 0..1000_u64 {
        let mut plan = Plan::default();
        let mut after = plan.set_bits(&mut cache, 0, &[which], true, &[]).unwrap();
        let data = (2 + which, Content::Data);
        after.extend(plan.fresh(&cache, data, &[5; BLOCK], &[]));
        let size = (which + 1).to_le_bytes();
        plan.write(&mut cache, (1, Content::Metadata), 0, &size, &after).unwrap();
        cache.apply(plan).unwrap();
    }
    let counters = cache.counters();
    assert_eq!(counters.patches(), 1000 + 1 + 1, "blocks, the bitmap, and one size");
    assert!(counters.undo_bytes <= 8, "{}", counters.undo_bytes);
}

#[test]
fn a_change_of_bits_does_not_wait_for_the_other_bits_of_its_byte() {
    let device = Arc::new(MemoryDevice::new(BLOCK * 4));
    let mut cache = Cache::new(Arc::clone(&device) as Arc<dyn Device>, 0, BLOCK);
    let mut plan = Plan::default();
    let first = plan.write(&mut cache, (1, Content::Metadata), 0, &[1], &[]).unwrap();
    plan.set_bits(&mut cache, 0, &[0, 1], true, &first).unwrap();
    plan.set_bits(&mut cache, 0, &[4], true, &[]).unwrap();
    cache.apply(plan).unwrap();
    cache.wave().unwrap();
    assert_eq!(device.snapshot()[0], 0b1_0000, "the others wait");
    assert_eq!(cache.read(0).unwrap()[0], 0b1_0011, "readers see all");
    cache.wave().unwrap();
    assert_eq!(device.snapshot()[0], 0b1_0011);
}

#[test]
fn no_word_is_half_of_one_change_and_half_of_another() {
    let device = Arc::new(MemoryDevice::new(BLOCK * 4));
    let mut cache = Cache::new(Arc::clone(&device) as Arc<dyn Device>, 0, BLOCK);
    let mut plan = Plan::default();
    let first = plan.write(&mut cache, (1, Content::Metadata), 0, &[1], &[]).unwrap();
    plan.write(&mut cache, (0, Content::Metadata), 8, &[7, 0, 0, 0], &first).unwrap();
    plan.write(&mut cache, (0, Content::Metadata), 8, &[7, 0, 5, 0], &[]).unwrap();
    plan.write(&mut cache, (0, Content::Metadata), 12, &[9], &[]).unwrap();
    cache.apply(plan).unwrap();
    cache.wave().unwrap();
    assert_eq!(device.snapshot()[8..13], [0, 0, 0, 0, 9], "the later half waits as well");
    cache.wave().unwrap();
    assert_eq!(device.snapshot()[8..13], [7, 0, 5, 0, 9]);
}

#[test]
fn what_comes_again_and_again_does_not_hold_back_what_waits() {
    let device = Arc::new(MemoryDevice::new(BLOCK * 300));
    let mut cache = Cache::new(device, 0, BLOCK);
    let mut older = Vec::new();
    for which in 0..200_u64 {
        let mut plan = Plan::default();
        plan.set_owner(Owner(7));
        // Each waits for something new, and belongs to the same.
        let new = plan.write(&mut cache, (2 + which, Content::Metadata), 0, &[7; 4], &[]).unwrap();
        let count = (which as u32 + 1).to_le_bytes();
        plan.write(&mut cache, (1, Content::Metadata), 0, &count, &new).unwrap();
        let made = cache.apply(plan).unwrap();
        older.push(made[made.len() - 1]);
        cache.wave().unwrap();
        if let Some(long_ago) = older.len().checked_sub(4) {
            assert!(cache.is_committed(older[long_ago]), "change {long_ago} waits for ever");
        }
    }
}

#[test]
fn what_is_freed_of_many_owners_is_one_patch_until_a_wave() {
    const FREED: Owner = Owner(u64::MAX);
    let device = Arc::new(MemoryDevice::new(BLOCK * 300));
    let mut cache = Cache::new(device, 0, BLOCK);
    let free = |cache: &mut Cache, which: u64| {
        let mut plan = Plan::default();
        plan.set_owner(Owner(which));
        let gone =
            plan.write(cache, (2, Content::Metadata), 0, &[which as u8 + 1; 4], &[]).unwrap();
        let inode = plan.write(cache, (3 + which, Content::Metadata), 0, &[1; 4], &gone).unwrap();
        plan.set_owner(FREED);
        plan.set_bits(cache, 0, &[which], true, &inode).unwrap();
        let made = cache.apply(plan).unwrap();
        made[made.len() - 1]
    };
    let first: Vec<PatchId> = (0..100).map(|which| free(&mut cache, which)).collect();
    assert!(first.windows(2).all(|pair| pair[0] == pair[1]));
    cache.wave().unwrap();
    assert_ne!(free(&mut cache, 100), first[0], "what comes later does not hold it back");
    cache.sync().unwrap();
    assert_eq!(cache.counters().waiting, 0);
}
