//! Rules of measure: a file, a function and a line that can be read at a sitting.

use super::Finding;
use super::source::Source;
use syn::spanned::Spanned;
use syn::visit::Visit;

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_COLUMNS_MAX: usize = 100;

/// No file is longer than 800 lines.
pub(crate) fn file_length(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().count();
    if lines <= FILE_LINES_MAX {
        return Vec::new();
    }
    let message = format!("{lines} lines, at most {FILE_LINES_MAX}: split it by concept");
    vec![Finding { measure: Some(lines), ..Finding::new("file-length", source, 0, message) }]
}

/// No line is wider than 100 columns.
pub(crate) fn line_width(source: &Source) -> Vec<Finding> {
    let widths = source.text.lines().map(|line| line.chars().count());
    widths
        .enumerate()
        .filter(|(_, width)| *width > LINE_COLUMNS_MAX)
        .map(|(line, width)| {
            let message = format!("{width} columns, at most {LINE_COLUMNS_MAX}");
            Finding::new("line-width", source, line + 1, message)
        })
        .collect()
}

/// No function is longer than 70 lines, from its signature to its closing brace.
pub(crate) fn function_length(source: &Source) -> Vec<Finding> {
    let mut functions = Functions { source, findings: Vec::new() };
    functions.visit_file(&source.syntax);
    functions.findings
}

struct Functions<'a> {
    source: &'a Source,
    findings: Vec<Finding>,
}

impl Functions<'_> {
    fn measure(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.span().start().line;
        let lines = block.span().end().line - first + 1;
        if lines > FUNCTION_LINES_MAX {
            let name = &signature.ident;
            let message = format!("`{name}` has {lines} lines, at most {FUNCTION_LINES_MAX}");
            self.findings.push(Finding {
                place: format!("{}::{name}", self.source.path),
                measure: Some(lines),
                ..Finding::new("function-length", self.source, first, message)
            });
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig, &item.block);
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig, &item.block);
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.measure(&item.sig, block);
        }
        syn::visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::parse("crates/pool/src/tree.rs", text).expect("the snippet parses")
    }

    #[test]
    fn a_file_of_801_lines_is_found() {
        assert!(file_length(&source(&"//\n".repeat(800))).is_empty());
        let found = file_length(&source(&"//\n".repeat(801)));
        assert_eq!(found[0].measure, Some(801));
    }

    #[test]
    fn a_line_of_101_columns_is_found() {
        let line = format!("// {}\n// {}\n", "x".repeat(97), "x".repeat(98));
        let found = line_width(&source(&line));
        assert_eq!((found.len(), found[0].line), (1, 2));
    }

    #[test]
    fn a_function_of_71_lines_is_found_wherever_it_stands() {
        let body = |lines: usize| format!("fn long() {{\n{}}}\n", "();\n".repeat(lines - 2));
        assert!(function_length(&source(&body(70))).is_empty());
        let found = function_length(&source(&format!("impl T {{\n{}}}\n", body(71))));
        assert_eq!(found[0].place, "crates/pool/src/tree.rs::long");
        assert_eq!(found[0].measure, Some(71));
        assert_eq!(function_length(&source(&format!("trait T {{\n{}}}\n", body(71)))).len(), 1);
    }
}
