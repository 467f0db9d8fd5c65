//! fio with verification: what was written is read back and held against its crc32c.

use super::{GIB, Setting, step};
use marram_lab::failure::Result;
use marram_lab::process::{command, require, run};
use std::path::Path;
use std::process::Command;

/// A job: its name and what makes it special.
const JOBS: [(&str, &[&str]); 5] = [
    ("sequential", &["--rw=write", "--bs=1M"]),
    ("random", &["--rw=randwrite", "--bs=4k"]),
    (
        "random-direct",
        &["--rw=randwrite", "--bs=4k", "--direct=1", "--ioengine=libaio", "--iodepth=8"],
    ),
    ("mixed-sizes", &["--rw=randwrite", "--bsrange=512-192k", "--bs_unaligned"]),
    ("mapped", &["--rw=randwrite", "--bs=4k", "--ioengine=mmap"]),
];

/// Every job, verified as it runs and once more after a remount.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    require(&[("fio", "fio")])?;
    let size = format!("{}M", setting.scaled(512, 48));
    let mut subject = setting.subject(6 * GIB)?;
    for (name, words) in JOBS {
        run(job(subject.root(), name, &size, setting.seed, words).arg("--do_verify=1"))?;
        step(&format!("{name}: written and verified"));
    }
    subject.remount()?;
    for (name, words) in JOBS {
        run(job(subject.root(), name, &size, setting.seed, words).arg("--verify_only"))?;
    }
    step("verified again after a remount");
    subject.unmount()?;
    subject.check()
}

fn job(folder: &Path, name: &str, size: &str, seed: u64, words: &[&str]) -> Command {
    let mut fio = command(&["fio", "--verify=crc32c", "--verify_fatal=1", "--group_reporting"]);
    // fio leaves its state of verification in the working folder; keep it with the data.
    fio.current_dir(folder).args([
        "--verify_state_save=0",
        "--end_fsync=1",
        "--output-format=terse",
    ]);
    fio.arg(format!("--name={name}")).arg(format!("--filename={name}.data"));
    fio.arg(format!("--size={size}")).arg(format!("--randseed={seed}")).args(words);
    fio
}
