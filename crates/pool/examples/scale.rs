//! What the engine's work costs beside thousands of snapshots and forks, without commands, mounts
//! and devices in between: `cargo run --release --package marram-pool --example scale`.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

#[allow(dead_code, reason = "the measurement takes a part of the bench")]
#[path = "../tests/support/mod.rs"]
mod support;

use marram_pool::Pool;
use marram_store::{DatasetName, Source, SpaceUsage, Store};
use std::time::{Duration, Instant};
use support::{new_pool, noise, put, root, section};

/// Objects of the dataset.
const OBJECTS: u64 = 2000;
/// Rounds of a short measurement; its median is reported.
const ROUNDS: u64 = 200;

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn timed(mut work: impl FnMut(u64)) -> f64 {
    let one = |round: u64| {
        let began = Instant::now();
        work(round);
        began.elapsed()
    };
    median((0..ROUNDS).map(one).collect())
}

fn change(pool: &Pool, seed: u64) {
    put(&*root(pool), section(seed % OBJECTS + 1, 0), noise(seed, 4000)).unwrap();
}

fn measure(pool: &Pool, stage: &str) {
    let write = timed(|round| change(pool, round));
    let sync = timed(|round| {
        change(pool, round);
        root(pool).sync().unwrap();
    });
    let commit = timed(|round| {
        change(pool, round);
        pool.commit().unwrap();
    });
    let name: Source = "root@s7".parse().unwrap();
    let look = timed(|_| drop(pool.report(&name)));
    let began = Instant::now();
    let listed = pool.list().unwrap().len();
    let list = began.elapsed().as_secs_f64() * 1e3;
    let began = Instant::now();
    pool.usage(true).unwrap();
    let usage = began.elapsed().as_secs_f64() * 1e3;
    println!(
        "| {stage} | {write:.1} | {sync:.1} | {commit:.1} | {look:.1} | {listed} in {list:.1} | \
         {usage:.1} |"
    );
}

fn main() {
    let (_, pool) = new_pool(1024, &[]);
    let live = DatasetName::root();
    (0..OBJECTS).for_each(|seed| change(&pool, seed));
    pool.commit().unwrap();
    println!(
        "| beside | write, us | with sync, us | with commit, us | one looked up, us | list, ms | \
         usage, ms |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
    measure(&pool, "nothing");
    let mut taken = Vec::new();
    for number in 0..10_000_u64 {
        change(&pool, number);
        let began = Instant::now();
        pool.snapshot(&live, &format!("s{number}")).unwrap();
        taken.push(began.elapsed());
        if number + 1 == 1000 {
            measure(&pool, "1,000 snapshots");
        }
    }
    measure(&pool, "10,000 snapshots");
    let fork = |number: u64| {
        let began = Instant::now();
        pool.fork(&live, &format!("f{number}").parse().unwrap(), 1).unwrap();
        began.elapsed()
    };
    let forked: Vec<Duration> = (0..1000).map(fork).collect();
    measure(&pool, "10,000 snapshots, 1,000 forks");
    println!("a snapshot of the first 1,000: {:.0} us", median(taken[..1000].to_vec()));
    println!("a snapshot of the last 1,000: {:.0} us", median(taken[9000..].to_vec()));
    println!("a fork: {:.0} us", median(forked));
    let destroy = |name: String| {
        let began = Instant::now();
        pool.destroy(&name.parse().unwrap(), false).unwrap();
        began.elapsed()
    };
    let forks = (0..1000).map(|number| destroy(format!("f{number}"))).collect();
    println!("a fork destroyed: {:.0} us", median(forks));
    let some = (0..500).map(|number| destroy(format!("root@s{}", number * 20 + 3))).collect();
    println!("a snapshot destroyed: {:.0} us", median(some));
    let all = pool.list().unwrap().into_iter().map(|report| report.source);
    let all: Vec<Source> = all.filter(|source| source.snapshot.is_some()).collect();
    let began = Instant::now();
    pool.destroy_together(&all, false).unwrap();
    println!("{} snapshots destroyed together: {:.0?}", all.len(), began.elapsed());
    while pool.reclaim_step().unwrap() {}
    measure(&pool, "all destroyed");
    assert_eq!(pool.list().unwrap().len(), 1);
    let usage = pool.usage(true).unwrap();
    assert_eq!(usage.holders[0].added_bytes + usage.own_bytes, usage.allocated_bytes);
}
