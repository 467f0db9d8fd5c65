//! `cargo xtask bench --workloads transport`: what the way from a program to a file system and back
//! costs, over `/dev/fuse` and over io_uring: a file system that does nothing.
//!
//! The programs are an example of the crate `fuse`; this only builds and runs it. io_uring is
//! measured where the kernel offers it: that is an administrator's choice, and not made here.

use marram_lab::failure::Result;
use marram_lab::process::{command, run_shown};
use marram_lab::project;

/// Says whether the kernel offers io_uring to FUSE servers.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Builds and runs the race; it prints a table for each transport.
pub(super) fn run_all() -> Result<()> {
    let words = ["cargo", "run", "--release", "--package", "marram-fuse"];
    let mut race = command(&words);
    race.args(["--example", "transport_race", "--", "classic"]).current_dir(project::root());
    if std::fs::read_to_string(PARAMETER).is_ok_and(|value| value.trim() == "Y") {
        race.arg("io_uring");
    } else {
        println!("io_uring is not measured: the kernel offers it with Y in {PARAMETER}");
    }
    run_shown(&mut race)
}
