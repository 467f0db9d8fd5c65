//! Names that say nothing: a drawer for everything is a concept that nobody has named yet.

use super::Finding;
use super::source::Source;
use syn::visit::Visit;

const BANNED: [&str; 8] =
    ["util", "utils", "common", "helper", "helpers", "manager", "managers", "misc"];

/// No file, module or type has one of the banned words in its name.
pub(crate) fn banned_names(source: &Source) -> Vec<Finding> {
    let mut names = Names { source, findings: Vec::new() };
    for folder in source.path.trim_end_matches(".rs").split('/') {
        names.judge("file", folder, 0);
    }
    names.visit_file(&source.syntax);
    names.findings
}

struct Names<'a> {
    source: &'a Source,
    findings: Vec<Finding>,
}

impl Names<'_> {
    fn judge(&mut self, kind: &str, name: &str, line: usize) {
        if let Some(word) = words(name).into_iter().find(|word| BANNED.contains(&word.as_str())) {
            let message = format!("{kind} `{name}`: `{word}` names no concept");
            self.findings.push(Finding::new("names", self.source, line, message));
        }
    }

    fn judge_ident(&mut self, kind: &str, name: &syn::Ident) {
        self.judge(kind, &name.to_string(), name.span().start().line);
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.judge_ident("module", &item.ident);
        syn::visit::visit_item_mod(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.judge_ident("type", &item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.judge_ident("type", &item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.judge_ident("type", &item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.judge_ident("trait", &item.ident);
    }
}

/// The words of a name in snake case, kebab case or camel case, in small letters.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if !letter.is_ascii_alphanumeric() || letter.is_ascii_uppercase() {
            words.push(String::new());
        }
        if letter.is_ascii_alphanumeric() {
            let word = words.last_mut().expect("there is always a last word");
            word.push(letter.to_ascii_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        banned_names(&Source::parse(path, text).expect("the snippet parses")).len()
    }

    #[test]
    fn drawers_are_found_in_files_modules_and_types() {
        assert_eq!(found("crates/pool/src/utils.rs", ""), 1);
        assert_eq!(found("crates/pool/src/tree.rs", "mod tree_misc;"), 1);
        assert_eq!(found("crates/pool/src/tree.rs", "struct CacheManager;"), 1);
        assert_eq!(found("crates/pool/src/tree.rs", "enum Helper {}"), 1);
    }

    #[test]
    fn names_that_only_contain_the_letters_are_fine() {
        assert_eq!(found("crates/pool/src/utility.rs", "struct Commonality;"), 0);
    }
}
