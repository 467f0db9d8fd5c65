//! Engines: one folder of the binary names their crates.
//!
//! The daemon and the commands ask a home. So a new home touches its own crate and that folder.

use super::Finding;
use super::source::{Source, is_test_only};
use syn::visit::Visit;

/// The folder that may name them.
const FOLDER: &str = "crates/marram/src/engine/";
/// The binary.
const BINARY: &str = "crates/marram/src/";
/// The crates of the engines.
const ENGINES: [&str; 7] = [
    "marram_pool",
    "marram_cluster",
    "marram_pmem",
    "marram_ext2",
    "marram_posix",
    "marram_history",
    "marram_records",
];

/// The places outside the folder that name an engine.
pub(crate) fn named(source: &Source) -> Vec<Finding> {
    let is_outside = source.path.starts_with(BINARY) && !source.path.starts_with(FOLDER);
    if !is_outside || source.is_test() {
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
    fn judge(&mut self, name: &syn::Ident) {
        if ENGINES.iter().any(|engine| name == engine) {
            let message = format!("only `{FOLDER}` may name `{name}`: ask the home");
            let line = name.span().start().line;
            self.findings.push(Finding::new("engines", self.source, line, message));
        }
    }

    fn judge_tree(&mut self, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(part) => self.judge(&part.ident),
            syn::UseTree::Name(leaf) => self.judge(&leaf.ident),
            syn::UseTree::Rename(leaf) => self.judge(&leaf.ident),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.judge_tree(item));
            }
            syn::UseTree::Glob(_) => {}
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test_only(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test_only(&item.attrs) {
            self.judge_tree(&item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(first) = path.segments.first() {
            self.judge(&first.ident);
        }
        syn::visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let source = Source::parse(path, text).expect("the snippet parses");
        named(&source).into_iter().map(|finding| finding.line).collect()
    }

    const TEXT: &str = "use marram_pool::Pool;\n\
         use {marram_store::Source, marram_posix as posix};\n\
         fn f() -> marram_history::Report { g() }\n\
         #[cfg(test)]\nmod tests { use marram_pool::Author; }\n";

    #[test]
    fn an_engine_that_is_named_outside_its_folder_is_found() {
        assert_eq!(lines("crates/marram/src/daemon/state.rs", TEXT), [1, 2, 3]);
    }

    #[test]
    fn the_folder_tests_and_other_crates_may_name_it() {
        let paths =
            ["marram/src/engine/pool/home.rs", "marram/src/daemon/tests/mod.rs", "sim/src/a.rs"];
        for path in paths {
            assert!(lines(&format!("crates/{path}"), TEXT).is_empty(), "{path}");
        }
    }
}
