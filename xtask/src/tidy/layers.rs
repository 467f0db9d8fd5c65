//! Layering: which crate may know of which.
//!
//! The seams are what lets an engine be replaced, a test run in memory, and the offline verifier
//! disagree with the engine. A dependency that crosses one is a design change, not a line in a
//! manifest.

use super::Finding;
use super::source::Source;
use crate::failure::{Context, Result};
use std::path::Path;
use syn::visit::Visit;

/// What a crate may depend on inside the project.
struct Layer {
    /// Its folder.
    name: &'static str,
    /// Crates that it may use.
    may_use: &'static [&'static str],
    /// Whether its tests may use any crate.
    tests_are_free: bool,
}

/// The layers, bottom up; the table of `ARCHITECTURE.md` in a form that a machine reads.
const LAYERS: [Layer; 24] = [
    layer("format", &[]),
    layer("codec", &[]),
    layer("device", &[]),
    layer("locks", &[]),
    layer("vfs", &[]),
    layer("model", &["vfs"]),
    layer("store", &["format"]),
    layer("stream", &["store", "format", "codec"]),
    tested_layer("records", &["vfs", "store", "format"]),
    tested_layer("history", &["vfs", "store", "format", "records"]),
    tested_layer("posix", &["vfs", "store", "format", "locks", "records", "history"]),
    tested_layer("pool", &["store", "format", "codec", "device", "locks", "stream"]),
    tested_layer("cluster", &["store", "format", "codec", "stream"]),
    tested_layer("pmem", &["vfs", "locks"]),
    tested_layer("casefold", &["vfs", "format", "locks"]),
    tested_layer("patch", &["device"]),
    tested_layer("ext2", &["vfs", "patch", "device", "locks"]),
    tested_layer("tx", &["vfs", "store", "history"]),
    layer("client", &[]),
    layer("client-c", &["client"]),
    tested_layer("fuse", &["vfs"]),
    tested_layer("check", &["format", "codec", "device"]),
    tested_layer("sim", &["device", "vfs", "model"]),
    tested_layer(
        "marram",
        &[
            "format", "codec", "device", "vfs", "model", "store", "records", "history", "posix",
            "pool", "cluster", "pmem", "casefold", "ext2", "tx", "client", "fuse", "check", "sim",
            "stream",
        ],
    ),
];

/// The chores, which stand beside `crates/` and know the product by its command only.
const CHORES: [Layer; 4] = [
    layer("lab", &[]),
    layer("bench", &["client", "lab"]),
    tested_layer("suites", &["client", "lab"]),
    layer("xtask", &["lab"]),
];

/// Crates that may know of only some parts of `format`.
const FORMAT_MODULES: [(&str, &[&str]); 5] = [
    ("casefold", &["record"]),
    ("store", &["key", "operation"]),
    ("records", &["key", "record", "FormatError"]),
    ("history", &["key", "record", "FormatError"]),
    ("posix", &["key", "record", "FormatError"]),
];

const fn layer(name: &'static str, may_use: &'static [&'static str]) -> Layer {
    Layer { name, may_use, tests_are_free: false }
}

const fn tested_layer(name: &'static str, may_use: &'static [&'static str]) -> Layer {
    Layer { name, may_use, tests_are_free: true }
}

/// Every manifest keeps to its layer, to the workspace's lints, and to the house's package name.
pub(crate) fn manifests(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for entry in std::fs::read_dir(root.join("crates"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        findings.extend(manifest_at(root, &name, &format!("crates/{name}/Cargo.toml"))?);
    }
    for chore in &CHORES {
        let place = format!("{}/Cargo.toml", chore.name);
        findings.extend(manifest_at(root, chore.name, &place)?);
    }
    Ok(findings)
}

fn manifest_at(root: &Path, name: &str, place: &str) -> Result<Vec<Finding>> {
    let text =
        std::fs::read_to_string(root.join(place)).context(|| format!("cannot read {place}"))?;
    let manifest = text.parse().context(|| format!("cannot parse {place}"))?;
    Ok(in_manifest(name, place, &manifest))
}

fn in_manifest(name: &str, place: &str, manifest: &toml::Table) -> Vec<Finding> {
    let mut messages = Vec::new();
    let package = manifest.get("package").and_then(|package| package.get("name"));
    let is_whole_name = ["marram", "xtask"].contains(&name);
    let wanted = if is_whole_name { name.to_owned() } else { format!("marram-{name}") };
    if package.and_then(toml::Value::as_str) != Some(&wanted) {
        messages.push(format!("the package is to be named `{wanted}`"));
    }
    let lints = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    if lints.and_then(toml::Value::as_bool) != Some(true) {
        messages.push("the workspace's lints are not switched on".to_owned());
    }
    match LAYERS.iter().chain(&CHORES).find(|layer| layer.name == name) {
        None => messages.push(format!("no layer is written down for `{name}`")),
        Some(layer) => messages.extend(crossed(layer, manifest)),
    }
    messages
        .into_iter()
        .map(|message| {
            let place = place.to_owned();
            Finding { rule: "layers", place, line: 0, measure: None, message }
        })
        .collect()
}

/// The dependencies of the project's own that the layer does not allow.
fn crossed(layer: &Layer, manifest: &toml::Table) -> Vec<String> {
    let mut messages = Vec::new();
    for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
        if section == "dev-dependencies" && layer.tests_are_free {
            continue;
        }
        let Some(table) = manifest.get(section).and_then(toml::Value::as_table) else { continue };
        for used in table.keys().filter_map(|package| package.strip_prefix("marram-")) {
            if used != layer.name && !layer.may_use.contains(&used) {
                messages.push(format!("`{}` may not use `{used}` ({section})", layer.name));
            }
        }
    }
    messages
}

/// Crates that may know only some modules of `format` name no others.
pub(crate) fn used_paths(source: &Source) -> Vec<Finding> {
    let limit = FORMAT_MODULES.iter().find(|(name, _)| *name == source.crate_name());
    let Some((_, allowed)) = limit else { return Vec::new() };
    if source.is_test() {
        return Vec::new();
    }
    let mut paths = FormatPaths { source, allowed, findings: Vec::new() };
    paths.visit_file(&source.syntax);
    paths.findings
}

struct FormatPaths<'a> {
    source: &'a Source,
    allowed: &'a [&'a str],
    findings: Vec<Finding>,
}

impl FormatPaths<'_> {
    fn judge(&mut self, module: &syn::Ident) {
        if !self.allowed.iter().any(|name| module == name) {
            let name = self.source.crate_name();
            let message = format!("`{name}` may not use `marram_format::{module}`");
            let line = module.span().start().line;
            self.findings.push(Finding::new("layers", self.source, line, message));
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

impl<'ast> Visit<'ast> for FormatPaths<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if let syn::UseTree::Path(part) = &item.tree
            && part.ident == "marram_format"
        {
            self.judge_tree(&part.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if segments.next().is_some_and(|first| first.ident == "marram_format")
            && let Some(module) = segments.next()
        {
            self.judge(&module.ident);
        }
        syn::visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(name: &str, text: &str) -> Vec<String> {
        let manifest = text.parse().expect("the manifest parses");
        let findings = in_manifest(name, "Cargo.toml", &manifest);
        findings.into_iter().map(|finding| finding.message).collect()
    }

    fn manifest(name: &str, dependencies: &str) -> String {
        format!("package.name = \"marram-{name}\"\nlints.workspace = true\n{dependencies}")
    }

    #[test]
    fn a_dependency_that_crosses_a_seam_is_found() {
        let crossed = "[dependencies]\nmarram-pool.workspace = true";
        assert_eq!(messages("posix", &manifest("posix", crossed)).len(), 1);
        assert!(messages("marram", "package.name = \"marram\"\nlints.workspace = true").is_empty());
    }

    #[test]
    fn only_some_crates_have_free_tests() {
        let tests = "[dev-dependencies]\nmarram-pool.workspace = true";
        assert!(messages("posix", &manifest("posix", tests)).is_empty());
        assert_eq!(messages("codec", &manifest("codec", tests)).len(), 1);
    }

    #[test]
    fn a_chore_knows_the_product_in_test_programs_only() {
        let tests = "[dev-dependencies]\nmarram-pool.workspace = true";
        assert!(messages("suites", &manifest("suites", tests)).is_empty());
        assert_eq!(messages("bench", &manifest("bench", tests)).len(), 1);
        let used = "[dependencies]\nmarram-pool.workspace = true";
        assert_eq!(messages("suites", &manifest("suites", used)).len(), 1);
    }

    #[test]
    fn names_and_lints_of_packages_are_checked() {
        assert_eq!(messages("pool", "package.name = \"tank\"\nlints.workspace = true").len(), 1);
        assert_eq!(messages("pool", "package.name = \"marram-pool\"").len(), 1);
        assert_eq!(messages("cache", &manifest("cache", "")).len(), 1);
    }

    #[test]
    fn a_module_of_the_format_that_is_not_shared_is_found() {
        let found = |path: &str, text: &str| {
            used_paths(&Source::parse(path, text).expect("the snippet parses")).len()
        };
        assert_eq!(found("crates/store/src/lib.rs", "use marram_format::key::Key;"), 0);
        assert_eq!(found("crates/store/src/lib.rs", "use marram_format::node::Node;"), 1);
        let group = "use marram_format::{key::Key, superblock};";
        assert_eq!(found("crates/posix/src/inode.rs", group), 1);
        let path = "fn f() { marram_format::pointer::decode(b) }";
        assert_eq!(found("crates/posix/src/inode.rs", path), 1);
        assert_eq!(found("crates/pool/src/tree.rs", "use marram_format::node::Node;"), 0);
    }
}
