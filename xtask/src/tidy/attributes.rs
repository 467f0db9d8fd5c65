//! Attributes and macros that weaken a check: each with its reason, and some never.

use super::Finding;
use super::source::Source;
use syn::spanned::Spanned;
use syn::visit::Visit;

/// Crates that may hold unsafe code.
const UNSAFE_CRATES: [&str; 4] = ["device", "fuse", "pmem", "client-c"];

/// Macros of unfinished work.
const UNFINISHED_MACROS: [&str; 3] = ["dbg", "todo", "unimplemented"];

/// Lints are silenced with a reason, tests are never switched off, unsafe code stays in its crates,
/// and every file opens with what it is for.
pub(crate) fn attributes(source: &Source) -> Vec<Finding> {
    let mut seen = Attributes { source, findings: Vec::new() };
    if !source.syntax.attrs.iter().any(|attribute| attribute.path().is_ident("doc")) {
        seen.add("module-docs", 1, "the file does not say what it is for (`//!`)");
    }
    seen.visit_file(&source.syntax);
    seen.findings
}

struct Attributes<'a> {
    source: &'a Source,
    findings: Vec<Finding>,
}

impl Attributes<'_> {
    fn add(&mut self, rule: &'static str, line: usize, message: &str) {
        self.findings.push(Finding::new(rule, self.source, line, message));
    }

    fn judge_unsafe(&mut self, line: usize) {
        if !UNSAFE_CRATES.contains(&self.source.crate_name()) {
            self.add("unsafe", line, "unsafe code outside its crates");
        }
    }

    /// Whether the attribute at `line` has a comment on its line or the line above it.
    fn is_explained(&self, line: usize) -> bool {
        let lines: Vec<&str> = self.source.text.lines().collect();
        let above = line.checked_sub(2).and_then(|above| lines.get(above));
        let here = lines.get(line - 1);
        above.is_some_and(|text| text.trim_start().starts_with("//"))
            || here.is_some_and(|text| text.contains("//"))
    }
}

impl<'ast> Visit<'ast> for Attributes<'_> {
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let line = attribute.span().start().line;
        let path = attribute.path();
        if path.is_ident("ignore") && !needs_root(attribute) {
            self.add("ignored-test", line, "only a test that `needs root` may wait for CI");
        }
        if !path.is_ident("allow") && !path.is_ident("expect") {
            return;
        }
        let syn::Meta::List(list) = &attribute.meta else { return };
        let words = list.tokens.to_string();
        if !words.contains("reason") && !self.is_explained(line) {
            self.add("allow", line, "a lint is silenced without a reason");
        }
        if words.contains("unsafe_code") {
            self.judge_unsafe(line);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if UNFINISHED_MACROS.iter().any(|name| call.path.is_ident(name)) {
            self.add("unfinished", call.span().start().line, "a macro of unfinished work");
        }
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.judge_unsafe(block.span().start().line);
        syn::visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.unsafety.is_some() {
            self.judge_unsafe(item.span().start().line);
        }
        syn::visit::visit_item_impl(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if signature.unsafety.is_some() {
            self.judge_unsafe(signature.span().start().line);
        }
        syn::visit::visit_signature(self, signature);
    }
}

/// Whether a test needs root, as CI has it: there it runs.
fn needs_root(attribute: &syn::Attribute) -> bool {
    let syn::Meta::NameValue(meta) = &attribute.meta else { return false };
    let syn::Expr::Lit(reason) = &meta.value else { return false };
    matches!(&reason.lit, syn::Lit::Str(reason) if reason.value().starts_with("needs root"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<&'static str> {
        let text = format!("//! Words.\n{text}");
        let source = Source::parse(path, &text).expect("the snippet parses");
        attributes(&source).into_iter().map(|finding| finding.rule).collect()
    }

    const PLACE: &str = "crates/pool/src/tree.rs";

    #[test]
    fn a_file_without_a_purpose_is_found() {
        let source = Source::parse(PLACE, "fn f() {}").expect("the snippet parses");
        assert_eq!(attributes(&source)[0].rule, "module-docs");
    }

    #[test]
    fn a_silenced_lint_needs_a_reason() {
        assert_eq!(found(PLACE, "fn g() {}\n#[allow(dead_code)]\nfn f() {}"), ["allow"]);
        assert!(found(PLACE, "// Read by tests.\n#[allow(dead_code)]\nfn f() {}").is_empty());
        assert!(found(PLACE, "#[expect(dead_code, reason = \"why\")]\nfn f() {}").is_empty());
    }

    #[test]
    fn switched_off_tests_and_unfinished_macros_are_found() {
        assert_eq!(found(PLACE, "#[test]\n#[ignore]\nfn f() {}"), ["ignored-test"]);
        assert_eq!(found(PLACE, "#[test]\n#[ignore = \"slow\"]\nfn f() {}"), ["ignored-test"]);
        assert!(found(PLACE, "#[test]\n#[ignore = \"needs root\"]\nfn f() {}").is_empty());
        assert_eq!(found(PLACE, "fn f() { todo!() }"), ["unfinished"]);
        assert_eq!(found(PLACE, "fn f() { dbg!(1); }"), ["unfinished"]);
    }

    #[test]
    fn unsafe_code_stays_in_its_crates() {
        let text = "fn f() { unsafe { g() } }";
        assert_eq!(found(PLACE, text), ["unsafe"]);
        assert_eq!(found(PLACE, "unsafe fn f() {}"), ["unsafe"]);
        assert_eq!(found(PLACE, "// Why.\n#![allow(unsafe_code)]\n"), ["unsafe"]);
        assert!(found("crates/device/src/file.rs", text).is_empty());
    }
}
