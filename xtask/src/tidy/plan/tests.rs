//! What a path means, and the arrows that follow from it.

use super::*;

fn sources(files: &[(&str, &str)]) -> Vec<Source> {
    let parse = |(path, text): &(&str, &str)| {
        Source::parse(&format!("crates/pool/src/{path}"), text).expect("the snippet parses")
    };
    files.iter().map(parse).collect()
}

/// The arrows as `from -> to: name`.
fn drawn(files: &[(&str, &str)]) -> Vec<String> {
    let sources = sources(files);
    let plan = Plan::new("pool", &sources);
    let name = |file: usize| plan.files[file].source.path.replace("crates/pool/src/", "");
    arrows(&plan)
        .iter()
        .map(|arrow| format!("{} -> {}: {}", name(arrow.from), name(arrow.to), arrow.name))
        .collect()
}

#[test]
fn a_path_ends_at_the_module_that_defines_the_item() {
    let files = [
        ("lib.rs", "mod media; mod tree;"),
        ("media/mod.rs", "mod cache; pub(crate) use cache::Cache as Blocks;"),
        ("media/cache.rs", "pub struct Cache;"),
        ("tree.rs", "use crate::media; fn f() { media::Blocks }"),
    ];
    let wanted =
        ["tree.rs -> media/mod.rs: media", "tree.rs -> media/cache.rs: media::cache::Cache"];
    assert_eq!(drawn(&files), wanted);
}

#[test]
fn private_imports_of_a_parent_lead_on() {
    let files = [
        ("lib.rs", "mod media; mod tree;"),
        ("media.rs", "pub struct Cache;"),
        ("tree/mod.rs", "mod leaf; use crate::media::Cache; fn f() { leaf::g() }"),
        ("tree/leaf.rs", "use super::Cache; pub fn g() {}"),
    ];
    let wanted = [
        "tree/mod.rs -> media.rs: media::Cache",
        "tree/mod.rs -> tree/leaf.rs: tree::leaf::g",
        "tree/leaf.rs -> media.rs: media::Cache",
    ];
    assert_eq!(drawn(&files), wanted);
}

#[test]
fn calls_lead_to_the_file_of_the_method() {
    let files = [
        ("lib.rs", "mod pool; mod tree;"),
        ("pool.rs", "mod grow; pub struct Pool; impl Pool { fn f(&self) { self.grow() } }"),
        ("pool/grow.rs", "impl super::Pool { pub fn grow(&self) {} pub fn made() {} }"),
        ("tree.rs", "fn f(p: &P) { p.grow(); crate::pool::Pool::made() }"),
    ];
    let wanted = [
        "pool.rs -> pool/grow.rs: Pool::grow()",
        "pool/grow.rs -> pool.rs: pool::Pool",
        "tree.rs -> pool/grow.rs: Pool::grow()",
        "tree.rs -> pool/grow.rs: Pool::made()",
        "tree.rs -> pool.rs: pool::Pool",
    ];
    assert_eq!(drawn(&files), wanted);
}

#[test]
fn test_modules_and_locals_draw_nothing() {
    let files = [
        ("lib.rs", "mod tree; #[cfg(test)] mod crash;"),
        ("crash.rs", "use crate::tree::read;"),
        ("tree/mod.rs", "mod read; fn f(read: u8) -> u8 { read }"),
        ("tree/read.rs", "pub fn read() {}"),
    ];
    assert!(drawn(&files).is_empty());
}

#[test]
fn a_ring_of_imports_ends() {
    let files =
        [("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::X;"), ("b.rs", "use crate::a::X;")];
    assert!(drawn(&files).is_empty());
}
