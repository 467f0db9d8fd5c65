//! Circles: files that can only be understood together.
//!
//! A circle is a set of files of which each takes from each other one, directly or through others,
//! by imports or by calls of methods. Three files are a small concept; more are a knot.

use super::Finding;
use super::plan::{Arrow, Plan};

/// How many files may form a circle.
const FILES_MAX: usize = 3;

/// The circles that are too large, as one finding a crate: its measure is the files in them.
pub(crate) fn large_circles(plan: &Plan<'_>, arrows: &[Arrow]) -> Vec<Finding> {
    let circles = circles(plan, arrows);
    if circles.is_empty() {
        return Vec::new();
    }
    let files = circles.iter().map(Vec::len).sum();
    let named = circles.iter().map(|circle| {
        let names: Vec<&str> = circle.iter().map(|file| short_name(plan, *file)).collect();
        format!("{} files ({})", names.len(), names.join(" "))
    });
    let named: Vec<String> = named.collect();
    let message = format!(
        "circles of more than {FILES_MAX} files: {}; see `cargo xtask tidy --rooms {}`",
        named.join(", "),
        plan.name
    );
    let place = format!("crates/{}", plan.name);
    vec![Finding { rule: "circles", place, line: 0, measure: Some(files), message }]
}

/// The path of a file from the folder of sources.
pub(crate) fn short_name<'a>(plan: &'a Plan<'_>, file: usize) -> &'a str {
    let path = &plan.files[file].source.path;
    path.split_once("/src/").map_or(path, |(_, name)| name)
}

/// The circles of more than [`FILES_MAX`] files, the largest first.
pub(crate) fn circles(plan: &Plan<'_>, arrows: &[Arrow]) -> Vec<Vec<usize>> {
    let mut next = vec![Vec::new(); plan.files.len()];
    for arrow in arrows {
        let is_root = |file: usize| plan.files[file].module.is_empty();
        if !is_root(arrow.from) && !is_root(arrow.to) {
            next[arrow.from].push(arrow.to);
        }
    }
    let mut circles = components(&next);
    circles.retain(|circle| circle.len() > FILES_MAX);
    circles.sort_by_key(|circle| (std::cmp::Reverse(circle.len()), circle[0]));
    circles
}

/// The strongly connected components of a graph, by Kosaraju's two walks.
fn components(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut before = vec![Vec::new(); next.len()];
    for (from, targets) in next.iter().enumerate() {
        targets.iter().for_each(|&to| before[to].push(from));
    }
    let mut seen = vec![false; next.len()];
    let mut finished = Vec::new();
    for node in 0..next.len() {
        walk(next, node, &mut seen, &mut finished);
    }
    let mut seen = vec![false; next.len()];
    let mut components = Vec::new();
    for &node in finished.iter().rev() {
        let mut component = Vec::new();
        walk(&before, node, &mut seen, &mut component);
        component.sort_unstable();
        components.push(component);
    }
    components
}

/// Adds the nodes that are reached from `node` and were not seen, each after those it leads to.
fn walk(next: &[Vec<usize>], node: usize, seen: &mut [bool], finished: &mut Vec<usize>) {
    if std::mem::replace(&mut seen[node], true) {
        return;
    }
    for &to in &next[node] {
        walk(next, to, seen, finished);
    }
    finished.push(node);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::plan::arrows;
    use crate::tidy::source::Source;

    fn found(files: &[(&str, &str)]) -> Vec<Option<usize>> {
        let parse = |(path, text): &(&str, &str)| {
            Source::parse(&format!("crates/pool/src/{path}"), text).expect("the snippet parses")
        };
        let sources: Vec<Source> = files.iter().map(parse).collect();
        let plan = Plan::new("pool", &sources);
        let findings = large_circles(&plan, &arrows(&plan));
        findings.into_iter().map(|finding| finding.measure).collect()
    }

    #[test]
    fn four_files_that_import_one_another_are_found() {
        let ring = |last| {
            found(&[
                ("lib.rs", "mod a; mod b; mod c; mod d; pub use a::A;"),
                ("a.rs", "use crate::b::B; pub struct A;"),
                ("b.rs", "use crate::c::C; pub struct B;"),
                ("c.rs", "use crate::d::D; pub struct C;"),
                ("d.rs", last),
            ])
        };
        assert_eq!(ring("use crate::A; pub struct D;"), [Some(4)]);
        assert!(ring("use crate::b::B; pub struct D;").is_empty());
    }

    #[test]
    fn calls_of_methods_close_a_circle() {
        let ring = |last| {
            found(&[
                ("lib.rs", "mod a; mod b; mod c; mod d;"),
                ("a.rs", "use crate::b::B; pub struct A; impl A { fn grow(&self) {} }"),
                ("b.rs", "use crate::c::C; pub struct B;"),
                ("c.rs", "use crate::d::D; pub struct C;"),
                ("d.rs", last),
            ])
        };
        assert_eq!(ring("pub struct D; fn f(x: &X) { x.grow() }"), [Some(4)]);
        assert_eq!(ring("pub struct D; fn f(x: &X) { assert!(x.grow()) }"), [Some(4)]);
        assert!(ring("pub struct D; fn f(x: &X) { x.grown() }").is_empty());
    }

    #[test]
    fn methods_that_many_types_have_close_nothing() {
        let ring = |method: &str| {
            let first =
                format!("use crate::b::B; pub struct A; impl A {{ fn {method}(&self) {{}} }}");
            let last = format!("pub struct D; impl D {{ fn f(x: &X) {{ x.{method}() }} }}");
            found(&[
                ("lib.rs", "mod a; mod b; mod c; mod d;"),
                ("a.rs", &first),
                ("b.rs", "use crate::c::C; pub struct B; impl B { fn twice(&self) {} }"),
                ("c.rs", "use crate::d::D; pub struct C; trait T { fn given(&self); }"),
                ("d.rs", &last),
            ])
        };
        assert_eq!(ring("grow"), [Some(4)]);
        assert!(ring("twice").is_empty());
        assert!(ring("given").is_empty());
        assert!(ring("push").is_empty());
    }
}
