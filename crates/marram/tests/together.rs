//! Operations on a whole dataset that nobody has mounted, several at the same time: each finds it
//! as the one before has left it.

use crate::workbench;
use std::fs;

const FILES: usize = 400;

#[test]
fn merges_into_a_dataset_that_nobody_has_mounted_wait_for_each_other() {
    let Some(bench) = workbench::mounted() else { return };
    fs::write(bench.path("mnt/base"), "base").expect("written");
    bench.run("fork mnt f").good();
    bench.run("fork mnt g").good();
    bench.run("unmount work.pool").good();
    for fork in ["f", "g"] {
        bench.make_folder(fork);
        bench.run(&format!("mount work.pool {fork} --fork {fork}")).good();
        for number in 0..FILES {
            let name = format!("{fork}-{number}");
            fs::write(bench.path(fork).join(&name), &name).expect("written");
        }
    }
    std::thread::scope(|scope| {
        let merge = |fork: &'static str| {
            let bench = &bench;
            scope.spawn(move || bench.run(&format!("merge {fork}")).good())
        };
        let both = [merge("f"), merge("g")];
        both.into_iter().for_each(|merge| {
            merge.join().expect("it is merged");
        });
    });
    bench.run("unmount f g").good();
    bench.run("check work.pool --data").good();
    bench.run("mount work.pool mnt").good();
    for fork in ["f", "g"] {
        for number in 0..FILES {
            let name = format!("{fork}-{number}");
            let found = fs::read_to_string(bench.path("mnt").join(&name)).expect(&name);
            assert_eq!(found, name);
        }
    }
    bench.run("unmount work.pool").good();
}
