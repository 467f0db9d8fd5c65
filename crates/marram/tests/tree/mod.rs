//! A tree with all that files can be, and what tests of streams do with it.

use crate::workbench::{Outcome, Workbench};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long something may take that happens at once on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a line of the shell in which `marram` is the program.
pub(crate) fn shell(bench: &Workbench, line: &str) -> Outcome {
    let marram = env!("CARGO_BIN_EXE_marram");
    bench.host(&["sh", "-c", &format!("marram() {{ {marram} \"$@\"; }}; {line}")])
}

/// Returns when it is so.
pub(crate) fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Stops a process, and returns when each of its threads stands still: one that is at work hears of
/// it a little later.
pub(crate) fn stop(pid: Pid) {
    kill_process(pid, Signal::STOP).unwrap();
    wait_for("it stands still", || {
        let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap();
        let mut stats =
            threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("stat")));
        let is_stopped = |stat: std::io::Result<String>| {
            let stat = stat.unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T"))
        };
        stats.all(is_stopped)
    });
}

/// Makes the tree.
pub(crate) fn fill(root: &Path) {
    fs::create_dir_all(root.join("d/e")).unwrap();
    for index in 0..200_usize {
        fs::write(root.join(format!("d/f{index}")), vec![index as u8; index * 97]).unwrap();
    }
    let mixed: Vec<u8> = (0..1_500_000_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    fs::write(root.join("big"), &mixed).unwrap();
    fs::hard_link(root.join("big"), root.join("d/again")).unwrap();
    std::os::unix::fs::symlink("d/nowhere", root.join("link")).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", (1 << 30) - 3).unwrap();
    rustix::fs::setxattr(root.join("d"), "user.note", &[7; 5000], rustix::fs::XattrFlags::empty())
        .unwrap();
    std::os::unix::fs::chown(root.join("d/f1"), Some(1000), Some(100)).unwrap();
}

/// What programs can see of a tree, inode numbers too.
pub(crate) fn seen(bench: &Workbench, folder: &str) -> String {
    let format = "%P %i %m %U %G %s %b %n %y %T@ %C@ %l\\n";
    let listing = bench.host(&["find", folder, "-printf", format]).good().out;
    let mut lines: Vec<&str> = listing.lines().collect();
    lines.sort_unstable();
    let note = fs::read(bench.path(folder).join("big")).unwrap();
    format!("{}\n{:?}", lines.join("\n"), note.iter().map(|byte| u64::from(*byte)).sum::<u64>())
}

/// Both folders show the same tree.
pub(crate) fn assert_same(bench: &Workbench, one: &str, other: &str) {
    assert_eq!(seen(bench, one), seen(bench, other));
    let left = format!("{one}/d");
    bench.host(&["diff", "-r", "--no-dereference", &left, &format!("{other}/d")]).good();
    bench.host(&["cmp", &format!("{one}/big"), &format!("{other}/big")]).good();
    let mut value = [vec![0; 5000], vec![1; 5000]];
    for (folder, value) in [one, other].iter().zip(&mut value) {
        rustix::fs::getxattr(bench.path(folder).join("d"), "user.note", &mut value[..]).unwrap();
    }
    assert_eq!(value[0], value[1]);
}

/// A receiver with these arguments that has got half of a stream and waits for the rest.
pub(crate) fn half_received(bench: &Workbench, stream: &[u8], arguments: &str) -> Child {
    let mut command = bench.command();
    command
        .arg("receive")
        .args(arguments.split_whitespace())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let input = child.stdin.as_mut().unwrap();
    input.write_all(&stream[..stream.len() / 2]).unwrap();
    input.flush().unwrap();
    child
}
