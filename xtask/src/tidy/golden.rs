//! Golden files of the format change only with a version of the format.
//!
//! `xtask/golden.sums` records the digest of every golden file. A change of
//! the bytes on media then shows as a change of that list, which says in the review what it is: a
//! pool that an earlier build wrote is no longer read as it was. Once a version of Marram is
//! released (a git tag `v*`), its lines may not change at all.

use super::Finding;
use super::source::{files_below, relative};
use crate::failure::{Context, Result};
use crate::process::{command, text};
use std::collections::BTreeMap;
use std::path::Path;

const LIST: &str = "xtask/golden.sums";
const FOLDERS: [&str; 2] = ["crates/format/golden", "crates/pmem/golden"];

const HEADING: &str = "# Digests (git hash-object) of the golden files of the format, one a line: \
                       digest path\n";

const CHANGED: &str = "the golden bytes changed: make a new format version, or, if this one was \
                       never released, run `cargo xtask tidy --record-golden`";

/// Digest by path.
type Sums = BTreeMap<String, String>;

/// The golden files are as recorded, and as they were at every release.
pub(crate) fn golden_files(root: &Path) -> Result<Vec<Finding>> {
    let list =
        std::fs::read_to_string(root.join(LIST)).context(|| format!("cannot read {LIST}"))?;
    let recorded = parse(&list);
    let mut found = compare(&recorded, &digests(root)?);
    let git = |words: &[&str]| text(command(&["git"]).args(words).current_dir(root));
    for tag in git(&["tag", "--list", "v*"]).unwrap_or_default().lines() {
        let released = git(&["show", &format!("{tag}:{LIST}")]).unwrap_or_default();
        found.extend(compare_release(tag, &parse(&released), &recorded));
    }
    Ok(found)
}

/// Writes the list anew, after a change of the format that is meant.
pub(crate) fn record(root: &Path) -> Result<()> {
    let mut list = String::from(HEADING);
    for (path, digest) in digests(root)? {
        list.push_str(&format!("{digest} {path}\n"));
    }
    std::fs::write(root.join(LIST), list).context(|| format!("cannot write {LIST}"))
}

fn parse(list: &str) -> Sums {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(' '))
        .map(|(digest, path)| (path.trim().to_owned(), digest.to_owned()))
        .collect()
}

fn digests(root: &Path) -> Result<Sums> {
    let mut sums = Sums::new();
    for folder in FOLDERS {
        for file in files_below(&root.join(folder))? {
            let path = relative(root, &file);
            let digest =
                text(command(&["git", "hash-object", "--no-filters", &path]).current_dir(root))?;
            sums.insert(path, digest);
        }
    }
    Ok(sums)
}

fn finding(place: &str, message: String) -> Finding {
    Finding { rule: "golden", place: place.to_owned(), line: 0, measure: None, message }
}

fn compare(recorded: &Sums, present: &Sums) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, digest) in present {
        match recorded.get(path) {
            Some(known) if known == digest => {}
            Some(_) => findings.push(finding(path, CHANGED.to_owned())),
            None => findings
                .push(finding(path, format!("not in {LIST}: `cargo xtask tidy --record-golden`"))),
        }
    }
    for path in recorded.keys().filter(|path| !present.contains_key(*path)) {
        findings.push(finding(path, format!("recorded in {LIST}, but the file is gone")));
    }
    findings
}

fn compare_release(tag: &str, released: &Sums, recorded: &Sums) -> Vec<Finding> {
    let changed = released.iter().filter(|(path, digest)| recorded.get(*path) != Some(*digest));
    changed.map(|(path, _)| finding(path, format!("differs from release {tag}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_new_or_lost_golden_file_is_found() {
        let recorded = parse("# remark\naa golden/v1.bin\nbb golden/v0.bin\n");
        let present = parse("ac golden/v1.bin\ncc golden/v2.bin\n");
        let places: Vec<String> =
            compare(&recorded, &present).into_iter().map(|finding| finding.place).collect();
        assert_eq!(places, ["golden/v1.bin", "golden/v2.bin", "golden/v0.bin"]);
        assert!(compare(&recorded, &recorded).is_empty());
    }

    #[test]
    fn a_released_golden_file_never_changes() {
        let released = parse("aa golden/v1.bin\n");
        let recorded = parse("ac golden/v1.bin\n");
        assert_eq!(compare_release("v0.1.0", &released, &recorded).len(), 1);
        assert!(compare_release("v0.1.0", &released, &released).is_empty());
    }
}
