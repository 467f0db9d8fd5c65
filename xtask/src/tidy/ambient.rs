//! The core has no ambient world: time, threads and files come in as arguments.
//!
//! A run that reads the machine's clock or starts a thread of its own cannot be replayed from a
//! seed, so a failure that such a run finds is lost.

use super::Finding;
use super::source::{Source, is_test_only};
use syn::visit::Visit;

/// Crates that stand between the core and the machine.
const OUTSIDE: [&str; 9] =
    ["device", "client", "client-c", "fuse", "marram", "bench", "lab", "suites", "xtask"];

/// The one file of the core that reads the machine's clock, behind a trait.
const CLOCK: &str = "crates/vfs/src/clock.rs";

/// The files of the core that start threads by a builder, since a system may have none to give; all
/// of them end before it goes on.
const SCOPED_THREADS: [&str; 2] =
    ["crates/pool/src/commit/blocks.rs", "crates/cluster/src/writers.rs"];

/// The files of the core that map files and ask what is below them: the medium itself, which no
/// `Device` can show.
const MAPPED_FILES: [&str; 2] =
    ["crates/pmem/src/memory/mapped.rs", "crates/pmem/src/memory/mapped/devices.rs"];

/// What is banned, as the end of a path, and what to use instead.
const BANNED: [(&[&str], &str); 5] = [
    (&["std", "fs"], "a `Device`, or let the caller read the file"),
    (&["SystemTime"], "a `Clock` given by the caller"),
    (&["Instant"], "a `Clock` given by the caller"),
    (&["thread", "spawn"], "work that the daemon drives"),
    (&["thread", "Builder"], "work that the daemon drives"),
];

/// No time, thread or file of the machine outside the outer crates and tests.
pub(crate) fn ambient_world(source: &Source) -> Vec<Finding> {
    let is_medium = source.path == CLOCK || MAPPED_FILES.contains(&&*source.path);
    if OUTSIDE.contains(&source.crate_name()) || is_medium || source.is_test() {
        return Vec::new();
    }
    let mut paths = Paths { source, findings: Vec::new() };
    paths.visit_file(&source.syntax);
    paths.findings
}

struct Paths<'a> {
    source: &'a Source,
    findings: Vec<Finding>,
}

impl Paths<'_> {
    fn judge(&mut self, path: &[String], line: usize) {
        for (banned, instead) in BANNED {
            let is_scoped =
                SCOPED_THREADS.contains(&self.source.path.as_str()) && banned.contains(&"Builder");
            if !is_scoped && path.windows(banned.len()).any(|part| part == banned) {
                let message = format!("`{}`: use {instead}", banned.join("::"));
                self.findings.push(Finding::new("ambient", self.source, line, message));
            }
        }
    }

    fn judge_use(&mut self, tree: &syn::UseTree, path: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(part) => {
                path.push(part.ident.to_string());
                self.judge_use(&part.tree, path);
                path.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.judge_use(item, path));
            }
            syn::UseTree::Name(leaf) => self.judge_leaf(&leaf.ident, path),
            syn::UseTree::Rename(leaf) => self.judge_leaf(&leaf.ident, path),
            syn::UseTree::Glob(_) => self.judge(path, 0),
        }
    }

    fn judge_leaf(&mut self, name: &syn::Ident, path: &mut Vec<String>) {
        path.push(name.to_string());
        self.judge(path, name.span().start().line);
        path.pop();
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test_only(&item.attrs) {
            self.judge_use(&item.tree, &mut Vec::new());
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test_only(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test_only(&item.attrs) {
            syn::visit::visit_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        let line = path.segments.first().map_or(0, |part| part.ident.span().start().line);
        self.judge(&names, line);
        syn::visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        ambient_world(&Source::parse(path, text).expect("the snippet parses")).len()
    }

    #[test]
    fn the_machine_is_found_in_paths_and_imports() {
        let place = "crates/pool/src/cache.rs";
        assert_eq!(found(place, "fn f() { std::fs::read(p); }"), 1);
        assert_eq!(found(place, "use std::{fs, io};"), 1);
        assert_eq!(found(place, "use std::time::{Duration, Instant};"), 1);
        assert_eq!(found(place, "fn f() { std::thread::spawn(g); }"), 1);
        assert_eq!(found(place, "use std::thread::Builder;"), 1);
        assert_eq!(found(SCOPED_THREADS[0], "fn f() { std::thread::spawn(g); }"), 1);
        assert_eq!(found(place, "fn f() { let t = std::time::SystemTime::now(); }"), 1);
    }

    #[test]
    fn tests_and_outer_crates_may_use_the_machine() {
        let text = "use std::fs;";
        assert_eq!(found("crates/device/src/file.rs", text), 0);
        assert_eq!(found("crates/pool/tests/crash.rs", text), 0);
        assert_eq!(found(CLOCK, "use std::time::SystemTime;"), 0);
        assert_eq!(found(SCOPED_THREADS[0], "use std::thread::Builder;"), 0);
        let inner = "#[cfg(test)] mod tests { use std::fs; }";
        assert_eq!(found("crates/pool/src/cache.rs", inner), 0);
    }

    #[test]
    fn time_spans_and_other_file_systems_are_fine() {
        let place = "crates/pool/src/cache.rs";
        assert_eq!(found(place, "use std::time::Duration; use rustix::fs::Mode;"), 0);
    }
}
