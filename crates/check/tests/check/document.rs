//! The page about findings, and the tests of each.

use marram_check::{FindingKind, Severity};

const PAGE: &str = include_str!("../../../../docs/check.md");
const TESTS: [&str; 7] = [
    include_str!("operations.rs"),
    include_str!("planted_files.rs"),
    include_str!("planted_blocks.rs"),
    include_str!("planted_log.rs"),
    include_str!("planted_pmem.rs"),
    include_str!("planted_pool.rs"),
    include_str!("reclaim.rs"),
];

#[test]
fn the_page_lists_every_kind_of_finding_and_no_other() {
    let rows: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("| `")).collect();
    for kind in FindingKind::ALL {
        let severity = match kind.severity() {
            Severity::Warning => "warning",
            Severity::Error => "error",
            Severity::Fatal => "fatal",
        };
        let start = format!("| `{}` | {severity} | {}", kind.code(), kind.meaning());
        assert!(rows.iter().any(|row| row.starts_with(&start)), "docs/check.md lacks: {start}");
    }
    assert_eq!(rows.len(), FindingKind::ALL.len());
}

#[test]
fn every_kind_of_finding_has_been_planted() {
    for kind in FindingKind::ALL {
        let name = format!("Kind::{kind:?}");
        assert!(TESTS.iter().any(|test| test.contains(&name)), "no test plants {name}");
    }
}
