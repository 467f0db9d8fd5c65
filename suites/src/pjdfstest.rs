//! pjdfstest: about 400 tests of what POSIX asks of a file system.
//!
//! Failures that are known stand, each with its explanation, in the table of
//! `docs/conformance.md`; any other failure fails the script, and so does a line of the table that
//! is no longer true.

use super::{GIB, Setting, step};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, require, run};
use marram_lab::project;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const VERSION: &str = "0.2.2";
const TABLE: &str = "docs/conformance.md";
const TABLE_HEADING: &str = "## pjdfstest: known failures";

/// `naptime` is what a timer of 250 Hz can tell apart. The two users are of every Debian system.
const CONFIGURATION: &str = "[features]\nposix_fallocate = {}\nrename_ctime = {}\n\
    stat_st_birthtime = {}\nutime_now = {}\nutimensat = {}\n\
    [settings]\nnaptime = 0.02\nallow_remount = false\n\
    [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"games\", \"games\"]]\n";

/// The whole suite, then the tests of a read-only mount alone.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return fail("pjdfstest needs root");
    }
    require(&[("mount", "mount")])?;
    let pjdfstest = project::registry_tool("pjdfstest", VERSION, &[])?;
    let configuration = setting.folder.join("pjdfstest.toml");
    std::fs::write(&configuration, CONFIGURATION)?;
    let mut making = marram_lab::subject::Making::sized(2 * GIB);
    making.mount_words =
        ["-o", "suid,dev,allow_other,default_permissions"].map(String::from).into();
    // Names of sockets have room for 108 bytes of path: the project's folder may be too deep.
    let reachable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let short = tempfile::Builder::new().prefix("pjd").permissions(reachable).tempdir()?;
    let mut subject = marram_lab::subject::make(setting.kind, short.path(), &making)?;
    let place = subject.root().join("suite");
    std::fs::create_dir(&place)?;
    // The suite changes its credentials, and an ordinary user must be able to reach the place.
    run(command(&["chmod", "755"]).arg(subject.root()))?;
    let suite = |configuration: &Path| {
        let mut suite = Command::new(&pjdfstest);
        suite.arg("-c").arg(configuration).arg("-p").arg(&place);
        suite
    };
    judge(&mut suite(&configuration), setting, Known::All)?;
    // The tests that remount read-only disturb all others, so they run alone; and some want a
    // second file system.
    let second = tempfile::tempdir_in("/dev/shm")?;
    let remounting = setting.folder.join("remounting.toml");
    std::fs::write(
        &remounting,
        CONFIGURATION.replace("allow_remount = false", "allow_remount = true"),
    )?;
    for pattern in ["erofs", "exdev"] {
        let mut alone = suite(&remounting);
        judge(alone.arg("-s").arg(second.path()).arg(pattern), setting, Known::None)?;
    }
    subject.unmount()?;
    subject.check()
}

/// Which failures may be explained.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Those of the table, all of which must still be true.
    All,
    /// None.
    None,
}

fn judge(suite: &mut Command, setting: &Setting, explained: Known) -> Result<()> {
    let output = suite.output().context(|| "cannot start pjdfstest")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let Some(summary) = said.lines().find(|line| line.starts_with("Summary:")) else {
        let errors = String::from_utf8_lossy(&output.stderr);
        return fail(format!("pjdfstest did not finish:\n{said}\n{errors}"));
    };
    step(summary);
    let failed = failed_tests(&said);
    let known = if explained == Known::All { known_failures()? } else { BTreeSet::new() };
    let unexplained: Vec<&String> = failed.difference(&known).collect();
    if !unexplained.is_empty() {
        return fail(format!("not in {TABLE}: {unexplained:?}\n{}", reasons(&said)));
    }
    let mended: Vec<&String> = known.difference(&failed).collect();
    if !mended.is_empty() && setting.kind == marram_lab::subject::Kind::Marram {
        return fail(format!("{TABLE} explains tests that pass now: {mended:?}"));
    }
    Ok(())
}

/// What the suite says of its failures, without the backtraces.
fn reasons(said: &str) -> String {
    const LINES_MAX: usize = 60;
    let is_outcome = |line: &str| line.trim_end().ends_with(" FAILED");
    let lines: Vec<&str> = said.lines().collect();
    let pairs = lines.windows(2).filter(|pair| is_outcome(pair[0]));
    pairs.flatten().take(LINES_MAX).copied().collect::<Vec<_>>().join("\n")
}

/// The tests that failed: a line is the name, spaces, and the outcome.
fn failed_tests(said: &str) -> BTreeSet<String> {
    let outcomes = said.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?, words.next()))
    });
    outcomes
        .filter(|(name, outcome, rest)| {
            rest.is_none() && name.contains("::") && !["ok", "skipped"].contains(outcome)
        })
        .map(|(name, _, _)| name.to_owned())
        .collect()
}

/// The names in the first column of the table.
fn known_failures() -> Result<BTreeSet<String>> {
    let page = std::fs::read_to_string(project::root().join(TABLE))
        .context(|| format!("cannot read {TABLE}"))?;
    let section = page.split(TABLE_HEADING).nth(1).unwrap_or("");
    let section = section.split("\n## ").next().unwrap_or("");
    let names = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    Ok(names.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read_from_what_the_suite_prints() {
        let said = "chown::eloop_comp      ok\nrename::updates_link_parent    FAILED\n\
                    \tassertion failed: left == right\nchown::erofs_named    skipped\n";
        let failed = failed_tests(said);
        assert_eq!(failed.into_iter().collect::<Vec<_>>(), ["rename::updates_link_parent"]);
    }
}
