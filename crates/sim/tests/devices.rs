//! The simulator's devices: that they do what they say, and that a seed replays them.

use std::collections::HashSet;
use std::sync::Arc;

use marram_device::{Device, MemoryDevice, conformance};
use marram_sim::Random;
use marram_sim::device::{
    CrashState, Event, Fate, Fault, FaultRates, FaultyDevice, RecordingDevice, Trace,
};

const SIZE: usize = 64 << 10;

fn memory() -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(SIZE))
}

#[test]
fn without_faults_both_keep_the_contract_of_devices() {
    let size = conformance::SIZE_BYTES_MIN;
    conformance::check(&RecordingDevice::in_memory(vec![0; size]));
    let inner = Arc::new(MemoryDevice::new(size));
    conformance::check(&FaultyDevice::scripted(inner, Vec::new()));
}

/// Random writes and flushes; the same for the same seed.
fn run(device: &dyn Device, seed: u64) -> Vec<marram_device::Result<()>> {
    let mut random = Random::new(seed);
    let step = |_| match random.below(8) {
        0 => device.flush(),
        1 | 2 => device.read(random.below(8) * 4096, &mut [0; 4096]),
        _ => {
            let len = 512 * (1 + random.below(16));
            let byte = random.number().to_le_bytes()[0];
            let bytes = vec![byte; usize::try_from(len).expect("it is small")];
            device.write(random.below(64) * 512, &bytes)
        }
    };
    (0..200).map(step).collect()
}

#[test]
fn the_same_seed_gives_the_same_trace_and_the_same_states() {
    let record = |seed| {
        let device = RecordingDevice::in_memory(vec![0; SIZE]);
        run(&device, seed);
        device.trace()
    };
    let (first, second) = (record(3), record(3));
    assert_eq!(first, second);
    assert_ne!(first, record(4));
    let states: Vec<CrashState> = first.seeded(9, 50).collect();
    assert_eq!(states, second.seeded(9, 50).collect::<Vec<_>>());
    for state in states {
        let named: CrashState = state.to_string().parse().unwrap();
        assert!(first.image(state) == second.image(named), "{state}");
    }
}

#[test]
fn a_trace_ends_in_the_device_as_it_is() {
    let base: Vec<u8> = (0..SIZE).map(|index| (index / 512).to_le_bytes()[0]).collect();
    let inner = Arc::new(MemoryDevice::from_bytes(base.clone()));
    let device = RecordingDevice::new(inner.clone()).unwrap();
    run(&device, 5);
    device.discard(8192, 4096).unwrap();
    let trace = device.trace();
    assert!(trace.state_at(0) == base);
    assert!(trace.state_at(device.event_count()) == inner.snapshot());
}

/// Three writes, of which the first is flushed: 1, 2 and 3 in three sectors.
fn three_writes() -> Trace {
    let device = RecordingDevice::in_memory(vec![0; SIZE]);
    device.write(0, &[1; 512]).expect("memory");
    device.flush().expect("memory");
    device.mark(7);
    device.write(512, &[2; 512]).expect("memory");
    device.write(1024, &[3; 512]).expect("memory");
    device.trace()
}

fn sectors(image: &[u8]) -> [u8; 3] {
    [image[0], image[512], image[1024]]
}

#[test]
fn what_is_flushed_stays_and_the_rest_may_be_any_subset() {
    let trace = three_writes();
    assert_eq!(trace.events().len(), 5);
    assert_eq!(trace.pending_count(5), 2);
    assert_eq!(trace.last_mark(5), Some(7));
    assert_eq!(trace.last_mark(2), None);
    let at_the_end = trace.subsets(8).filter(|state| state.cut == 5);
    let images: Vec<_> = at_the_end.map(|state| sectors(&trace.image(state))).collect();
    assert_eq!(images, [[1, 0, 0], [1, 2, 0], [1, 0, 3], [1, 2, 3]]);
    for state in trace.prefixes().filter(|state| state.cut >= 2) {
        let [first, ..] = sectors(&trace.image(state));
        assert_eq!(first, 1, "{state} lost what was flushed");
    }
    let fate = Fate::Durable;
    assert_eq!(sectors(&trace.image(CrashState { cut: 1, fate })), [0; 3]);
}

#[test]
fn an_unflushed_write_tears_only_between_sectors() {
    let device = RecordingDevice::in_memory(vec![1; SIZE]);
    device.write(4096, &[2; 32 << 10]).unwrap();
    let trace = device.trace();
    let mut mixed = HashSet::new();
    for state in trace.seeded(1, 400) {
        let image = trace.image(state);
        let new = |sector: &[u8]| {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "{state}");
            sector[0] == 2
        };
        let arrived: Vec<bool> = image.chunks(512).map(new).collect();
        assert!(!arrived[..8].contains(&true) && !arrived[72..].contains(&true));
        mixed.insert(arrived);
    }
    assert!(mixed.len() > 50, "only {} different states", mixed.len());
}

/// The test of the tester: a commit that writes its record before its data is durable.
fn commit(device: &RecordingDevice, generation: u8, flush_between: bool) {
    let data = 4096 * (1 + u64::from(generation % 2));
    device.write(data, &[generation; 4096]).expect("memory");
    if flush_between {
        device.flush().expect("memory");
    }
    device.write(0, &[generation; 512]).expect("memory");
    device.flush().expect("memory");
    device.mark(u64::from(generation));
}

/// The first crash state in which the record leads to data that is not there, or in which a
/// finished commit is missing.
fn find_violation(trace: &Trace) -> Option<CrashState> {
    let states = trace.prefixes().chain(trace.subsets(8)).chain(trace.seeded(1, 100));
    states.into_iter().find(|&state| {
        let image = trace.image(state);
        let generation = image[0];
        let data = 4096 * (1 + usize::from(generation % 2));
        let whole = image[data..data + 4096].iter().all(|byte| *byte == generation);
        let promised = trace.last_mark(state.cut).unwrap_or(0);
        (generation > 0 && !whole) || u64::from(generation) < promised
    })
}

#[test]
fn a_planted_ordering_bug_is_caught() {
    for (flush_between, is_caught) in [(true, false), (false, true)] {
        let device = RecordingDevice::in_memory(vec![0; SIZE]);
        (1..5).for_each(|generation| commit(&device, generation, flush_between));
        let found = find_violation(&device.trace());
        assert_eq!(found.is_some(), is_caught, "{found:?}");
    }
}

#[test]
fn scripted_faults_come_where_they_are_asked_for() {
    let inner = memory();
    let faults = vec![
        Fault::FailRead { nth: 0 },
        Fault::FlipBit { nth: 1, bit: 9 },
        Fault::FailWrite { nth: 0 },
        Fault::LoseWrite { nth: 1 },
        Fault::MisdirectWrite { nth: 2, offset: 8192 },
        Fault::TearWrite { nth: 3, kept_bytes: 512 },
    ];
    let device = FaultyDevice::scripted(inner.clone(), faults.clone());
    let mut buffer = [0; 512];
    assert!(device.read(0, &mut buffer).is_err());
    device.read(0, &mut buffer).unwrap();
    assert_eq!(buffer[..3], [0, 2, 0]);
    device.read(0, &mut buffer).unwrap();
    assert_eq!(buffer, [0; 512]);

    assert!(device.write(0, &[1; 1024]).is_err());
    device.write(0, &[2; 1024]).unwrap();
    device.write(0, &[3; 1024]).unwrap();
    assert!(device.write(4096, &[4; 1024]).is_err());
    let image = inner.snapshot();
    assert_eq!((image[0], image[8192], image[9215]), (0, 3, 3));
    assert_eq!((image[4096], image[4607], image[4608]), (4, 4, 0));
    assert_eq!(device.fired(), faults);
}

/// The trap behind `fsync`: the second flush succeeds, and the write is gone.
#[test]
fn a_failed_flush_takes_the_writes_with_it() {
    let inner = memory();
    let device = FaultyDevice::scripted(inner.clone(), vec![Fault::FailFlush { nth: 1 }]);
    device.write(0, &[1; 512]).unwrap();
    device.flush().unwrap();
    device.write(0, &[2; 512]).unwrap();
    device.write(0, &[3; 512]).unwrap();
    assert!(device.flush().is_err());
    assert_eq!(device.flush(), Ok(()));
    assert_eq!(inner.snapshot()[0], 1);
}

#[test]
fn spoiled_sectors_are_readable_once_written() {
    let device = FaultyDevice::scripted(memory(), Vec::new());
    device.spoil(4096..8192);
    let mut buffer = [0; 512];
    assert!(device.read(8192 - 512, &mut buffer).is_err());
    assert_eq!(device.read(8192, &mut buffer), Ok(()));
    device.write(4096 + 512, &[1; 512]).unwrap();
    assert_eq!(device.read(4096 + 512, &mut buffer), Ok(()));
    assert!(device.read(4096, &mut buffer).is_err());
    assert!(device.read(4096 + 1024, &mut buffer).is_err());
}

#[test]
fn a_device_that_vanished_answers_nothing_any_more() {
    let device = FaultyDevice::scripted(memory(), Vec::new());
    device.vanish();
    assert!(device.size().is_err());
    assert!(device.read(0, &mut [0; 512]).is_err());
    assert!(device.write(0, &[0; 512]).is_err());
    assert!(device.flush().is_err());
}

#[test]
fn faults_by_lot_replay_from_the_seed_and_from_their_own_list() {
    let rates = FaultRates {
        fail_read: 9,
        flip_bit: 9,
        fail_write: 20,
        tear_write: 20,
        lose_write: 20,
        misdirect_write: 20,
        fail_flush: 5,
    };
    let lot = |seed| FaultyDevice::seeded(memory(), seed, rates);
    let (first, second) = (lot(7), lot(7));
    assert_eq!(run(&first, 1), run(&second, 1));
    assert_eq!(first.fired(), second.fired());
    assert!(first.fired().len() > 10);

    let inner = memory();
    let replayed = FaultyDevice::scripted(inner.clone(), first.fired());
    let other = lot(8);
    assert_eq!(run(&replayed, 1), run(&lot(7), 1));
    run(&other, 1);
    assert_ne!(other.fired(), first.fired());
}

#[test]
fn failed_and_refused_operations_are_not_recorded() {
    let device = RecordingDevice::in_memory(vec![0; SIZE]);
    assert!(device.write(SIZE as u64, &[1]).is_err());
    device.flush().unwrap();
    assert_eq!(device.trace().events(), [Event::Flush]);
}
