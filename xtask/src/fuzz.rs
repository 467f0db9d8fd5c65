//! `cargo xtask fuzz`: libFuzzer with coverage and the address sanitizer, on the stable compiler.
//!
//! The compiler's unstable flags are unlocked for this build alone (`RUSTC_BOOTSTRAP`). The corpus
//! in `fuzz/corpus/<target>` is kept in the project and only read; what a run finds goes to
//! `target/fuzz/<target>`, and an input that crashes to `fuzz/artifacts/<target>`.

use crate::failure::{Context, Result, fail};
use crate::process::{command, run_shown, shown};
use crate::project;
use std::path::PathBuf;

/// The only triple that the sanitizer is used on.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Coverage counters and comparisons for libFuzzer, and the address sanitizer.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Zsanitizer=address -Dwarnings";

/// What is asked for on the command line.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Targets; all if none is named.
    targets: Vec<String>,
    /// Seconds for each target.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many targets run at once.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
}

/// Builds the targets and runs those that were asked for.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let known = targets()?;
    if let Some(unknown) = arguments.targets.iter().find(|name| !known.contains(name)) {
        return fail(format!("no target `{unknown}`; there are {}", known.join(", ")));
    }
    let chosen = if arguments.targets.is_empty() { &known } else { &arguments.targets };
    build()?;
    for group in chosen.chunks(arguments.jobs.max(1)) {
        fuzz_together(group, arguments.seconds)?;
    }
    println!("fuzz: {} targets, {} s each, no crash", chosen.len(), arguments.seconds);
    Ok(())
}

/// The targets are the files in `fuzz/targets`.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(project::root().join("fuzz/targets"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

fn build_folder() -> PathBuf {
    project::target().join("fuzz-build")
}

fn build() -> Result<()> {
    let manifest = project::root().join("fuzz/Cargo.toml");
    let mut cargo = project::cargo(&["build", "--quiet", "--release", "--target"]);
    cargo.arg(TRIPLE).arg("--manifest-path").arg(manifest);
    cargo.env("CARGO_TARGET_DIR", build_folder());
    if project::built().is_some() {
        // The slice of CI runs for less time than it takes to optimise.
        cargo.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
        cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    }
    run_shown(cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FLAGS))
}

fn fuzz_together(targets: &[String], seconds: u64) -> Result<()> {
    let mut failed = Vec::new();
    std::thread::scope(|threads| {
        let started: Vec<_> = targets
            .iter()
            .map(|target| (target, threads.spawn(move || fuzz(target, seconds))))
            .collect();
        for (target, thread) in started {
            match thread.join() {
                Ok(Ok(said)) => println!("fuzz {target}: {said}"),
                Ok(Err(failure)) => failed.push(format!("fuzz {target}: {failure}")),
                Err(_) => failed.push(format!("fuzz {target}: its thread panicked")),
            }
        }
    });
    if failed.is_empty() { Ok(()) } else { fail(failed.join("\n")) }
}

/// Runs one target; what it says of how much it did.
fn fuzz(target: &str, seconds: u64) -> Result<String> {
    let root = project::root();
    let found = project::target().join("fuzz").join(target);
    let artifacts = root.join("fuzz/artifacts").join(target);
    let kept = root.join("fuzz/corpus").join(target);
    for folder in [&found, &artifacts] {
        std::fs::create_dir_all(folder)?;
    }
    if !kept.is_dir() {
        return fail(format!("no kept corpus {}", kept.display()));
    }
    let binary = build_folder().join(TRIPLE).join("release").join(target);
    let mut fuzzer = command(&[&binary.to_string_lossy()]);
    fuzzer.arg(format!("-max_total_time={seconds}"));
    fuzzer.arg(format!("-artifact_prefix={}/", artifacts.display()));
    fuzzer.args(["-rss_limit_mb=4096", "-timeout=20", "-print_final_stats=1"]);
    fuzzer.arg(&found).arg(&kept);
    let line = shown(&fuzzer);
    let output = fuzzer.output().context(|| format!("cannot start `{line}`"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(statistics(&said));
    }
    let reason: Vec<&str> = said.lines().filter(|line| is_reason(line)).collect();
    fail(format!("{}\nreplay: {line} with the input in {}", reason.join("\n"), artifacts.display()))
}

/// Lines of libFuzzer's report that say what happened, and not how far it had come.
fn is_reason(line: &str) -> bool {
    ["panicked", "ERROR", "SUMMARY", "Test unit written", "assertion", "left:", "right:"]
        .iter()
        .any(|mark| line.contains(mark))
}

fn statistics(said: &str) -> String {
    let wanted = ["stat::number_of_executed_units", "stat::peak_rss_mb"];
    let values = said.lines().filter_map(|line| {
        let (name, value) = line.split_once(':').and_then(|_| line.rsplit_once(": "))?;
        let name = wanted.iter().find(|wanted| name.starts_with(**wanted))?;
        Some(format!("{} {}", name.trim_start_matches("stat::"), value.trim()))
    });
    values.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_a_binary_and_has_a_kept_corpus() {
        let root = project::root().join("fuzz");
        let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("a manifest");
        for target in targets().expect("targets") {
            assert!(manifest.contains(&format!("path = \"targets/{target}.rs\"")), "{target}");
            let corpus = root.join("corpus").join(&target);
            assert!(corpus.is_dir(), "{} is missing", corpus.display());
        }
    }

    #[test]
    fn statistics_are_read_from_the_report() {
        let said = "#1 DONE\nstat::number_of_executed_units: 42\nstat::peak_rss_mb:      31\n";
        assert_eq!(statistics(said), "number_of_executed_units 42, peak_rss_mb 31");
    }
}
