//! A prepared workspace that is forked a hundred times: programs work in all forks at once, each is
//! seen to have changed what it has, one is kept, the rest are dropped.

use crate::tree::wait_for;
use crate::workbench;
use crate::workbench::Workbench;
use std::fs;
use std::path::Path;

const FORKS: usize = 100;
const FILES: usize = 300;
/// What a fork may take until it is written to.
const FORK_BYTES_MAX: u64 = 64 << 10;
/// What may be in use at the end beyond what was: nodes of trees that have been split.
const TOLERANCE_BYTES: u64 = 2 << 20;

fn allocated(bench: &Workbench) -> u64 {
    bench.run("sync mnt").good();
    let status = bench.run("status mnt --json").result();
    status[0]["allocated_bytes"].as_u64().expect("a number")
}

fn text(number: usize) -> String {
    (0..40).map(|line| format!("{number}: line {line}\n")).collect()
}

/// What one program does in its fork.
fn work(fork: &Path, number: usize) {
    let own = fork.join(format!("d{}/f{number}", number % 10));
    fs::write(&own, text(number).replace("line 7\n", "line seven\n")).unwrap();
    fs::write(fork.join("shared"), format!("of {number}\n")).unwrap();
    fs::create_dir(fork.join("built")).unwrap();
    fs::write(fork.join("built/out"), text(number)).unwrap();
    fs::remove_file(fork.join(format!("d{}/f{}", number % 10, number + 200))).unwrap();
}

#[test]
fn a_hundred_forks_are_worked_in_at_once_one_is_kept_and_the_rest_are_dropped() {
    let Some(bench) = workbench::mounted() else { return };
    for number in 0..FILES {
        let folder = bench.make_folder(&format!("mnt/src/d{}", number % 10));
        fs::write(folder.join(format!("f{number}")), text(number)).unwrap();
    }
    fs::write(bench.path("mnt/src/shared"), "shared\n").unwrap();
    let before = allocated(&bench);
    for number in 0..FORKS {
        bench.run(&format!("fork mnt/src try-{number}")).good();
    }
    let each = (allocated(&bench) - before) / FORKS as u64;
    assert!(each < FORK_BYTES_MAX, "a fork takes {each} bytes");

    let forks = bench.path("mnt/.marram/forks");
    let fork = |number: usize| forks.join(format!("try-{number}"));
    std::thread::scope(|scope| {
        for first in 0..8 {
            let mine = (first..FORKS).step_by(8);
            scope.spawn(move || mine.for_each(|number| work(&fork(number), number)));
        }
    });
    let list = bench.run("forks mnt -H").good().out;
    assert_eq!(list.lines().count(), FORKS);
    for number in 0..FORKS {
        let told = bench.run(&format!("diff mnt/.marram/forks/try-{number}")).good().out;
        let folder = number % 10;
        let mut wanted = [
            "A /built/ (1 file)\n".to_owned(),
            format!("M /d{folder}/f{number}\n"),
            format!("D /d{folder}/f{}\n", number + 200),
            "M /shared\n".to_owned(),
        ];
        wanted.sort_by(|a, b| a[2..].cmp(&b[2..]));
        let sum = "2 files modified, 1 created, 1 removed; 1 directory created\n";
        assert_eq!(told, wanted.concat() + sum, "fork {number}");
    }
    assert_eq!(fs::read_to_string(bench.path("mnt/src/shared")).unwrap(), "shared\n");
    assert!(!bench.path("mnt/src/built").exists());

    bench.run("merge mnt --fork try-42").good();
    let seen = fs::read_to_string(bench.path("mnt/src/shared")).unwrap();
    assert_eq!(seen, "of 42\n");
    let refused = bench.run("merge mnt --fork try-43");
    assert!(
        refused.status == 4 && refused.out.contains("conflict: content /shared"),
        "{refused:?}"
    );
    for number in 0..FORKS {
        bench.run(&format!("destroy fork mnt try-{number} --yes --now")).good();
    }
    assert_eq!(fs::read_dir(&forks).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(bench.path("mnt/src/built/out")).unwrap(), text(42));
    wait_for("the space of the forks is back", || allocated(&bench) < before + TOLERANCE_BYTES);
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}
