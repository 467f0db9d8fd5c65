//! Files that no module names: the compiler never sees them, so nothing in them is true.

use super::Finding;
use super::source::Source;
use std::collections::HashSet;

/// Every Rust file is a crate root or is named by a `mod` line.
pub(crate) fn unreached_files(sources: &[Source]) -> Vec<Finding> {
    let mut reached = HashSet::new();
    for source in sources {
        named_files(&source.path, &source.syntax.items, &mut reached);
    }
    sources
        .iter()
        .filter(|source| !is_root(&source.path) && !reached.contains(&source.path))
        .map(|source| Finding::new("dead-file", source, 0, "no `mod` line names this file"))
        .collect()
}

/// Whether cargo itself finds the file: a library, a binary, an integration test.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let inner = match parts[0] {
        "crates" => &parts[2..],
        _ => &parts[1..],
    };
    match inner {
        ["build.rs"] | ["src", "lib.rs" | "main.rs"] => true,
        ["src", "bin", _] | ["src", "bin", _, "main.rs"] => true,
        ["tests" | "benches" | "examples", rest @ ..] => {
            rest.len() == 1 || rest.last() == Some(&"main.rs")
        }
        ["src", _] => parts[0] == "fuzz",
        ["targets", _] => true,
        _ => false,
    }
}

/// Adds the files that the `mod` lines of the file at `path` may mean.
fn named_files(path: &str, items: &[syn::Item], reached: &mut HashSet<String>) {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.trim_end_matches(".rs");
    let is_folder_root = is_root(path) || stem == "mod";
    let base = if is_folder_root { folder.to_owned() } else { format!("{folder}/{stem}") };
    add_modules(&base, items, reached);
}

fn add_modules(base: &str, items: &[syn::Item], reached: &mut HashSet<String>) {
    for item in items {
        let syn::Item::Mod(module) = item else { continue };
        let place = format!("{base}/{}", module.ident);
        match &module.content {
            Some((_, inner)) => add_modules(&place, inner, reached),
            None => {
                reached.insert(format!("{place}.rs"));
                reached.insert(format!("{place}/mod.rs"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_no_module_names_is_found() {
        let source = |path, text| Source::parse(path, text).expect("the snippet parses");
        let sources = [
            source("crates/pool/src/lib.rs", "mod tree;"),
            source("crates/pool/src/tree.rs", "mod node;"),
            source("crates/pool/src/tree/node.rs", ""),
            source("crates/pool/src/tree/leaf.rs", ""),
            source("crates/pool/tests/crash.rs", "mod seeds;"),
            source("crates/pool/tests/seeds.rs", ""),
        ];
        let found = unreached_files(&sources);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place, "crates/pool/src/tree/leaf.rs");
    }
}
