//! An inherent `impl T` stands in the module that defines `T`, or in a child of it.
//!
//! A type whose methods stand all over a crate ties every file to every other, and no import
//! shows it.

use super::Finding;
use super::plan::Plan;
use std::collections::BTreeMap;

/// The inherent impls outside the modules of their types, a finding a file.
pub(crate) fn foreign_impls(plan: &Plan<'_>) -> Vec<Finding> {
    let mut foreign: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for found in plan.inherent_impls() {
        if !found.module.starts_with(&found.owner.0) {
            foreign.entry(found.file).or_default().push(found);
        }
    }
    let findings = foreign.into_iter().map(|(file, found)| {
        let places = found.iter().map(|found| {
            let owner = [found.owner.0.join("::"), found.owner.1.clone()].join("::");
            format!("`impl {owner}` (line {})", found.line)
        });
        let places: Vec<String> = places.collect();
        let message = format!("{}: move it to the module of the type", places.join(", "));
        let source = plan.files[file].source;
        let finding = Finding::new("impls", source, found[0].line, message);
        Finding { measure: Some(found.len()), ..finding }
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::Source;

    fn found(files: &[(&str, &str)]) -> Vec<(String, Option<usize>)> {
        let parse = |(path, text): &(&str, &str)| {
            Source::parse(&format!("crates/pool/src/{path}"), text).expect("the snippet parses")
        };
        let sources: Vec<Source> = files.iter().map(parse).collect();
        let findings = foreign_impls(&Plan::new("pool", &sources));
        findings.into_iter().map(|finding| (finding.place, finding.measure)).collect()
    }

    #[test]
    fn an_impl_outside_the_module_of_its_type_is_found() {
        let foreign = "use super::pool::Pool; impl Pool {} impl<'a> super::pool::View<'a> {}";
        let files = [
            ("lib.rs", "mod pool; mod verbs;"),
            ("pool.rs", "pub struct Pool; pub struct View<'a>(&'a Pool); impl Pool {}"),
            ("verbs.rs", foreign),
        ];
        assert_eq!(found(&files), [("crates/pool/src/verbs.rs".to_owned(), Some(2))]);
    }

    #[test]
    fn children_tests_and_impls_of_traits_may_stand_elsewhere() {
        let files = [
            ("lib.rs", "mod pool; mod verbs;"),
            ("pool.rs", "mod grow; pub struct Pool;"),
            ("pool/grow.rs", "use super::Pool; impl Pool {}"),
            (
                "verbs.rs",
                "impl Drop for crate::pool::Pool {} #[cfg(test)] impl crate::pool::Pool {}",
            ),
        ];
        assert!(found(&files).is_empty());
    }

    #[test]
    fn a_re_export_does_not_make_a_home() {
        let files = [
            ("lib.rs", "mod pool;"),
            ("pool/mod.rs", "mod inner; pub(crate) use inner::Inner; impl Inner {}"),
            ("pool/inner.rs", "pub struct Inner;"),
        ];
        assert_eq!(found(&files), [("crates/pool/src/pool/mod.rs".to_owned(), Some(1))]);
    }
}
