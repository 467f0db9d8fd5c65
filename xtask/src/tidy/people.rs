//! Words for people, where things act: comments and documents name the thing instead.
//!
//! A file system has callers, threads, commits and batches. A sentence that calls one of them
//! `who`, or says that it was `told` something, leaves open which of them it means.

use super::Finding;
use super::sentences::documents;
use super::source::{Source, relative};
use crate::failure::{Context, Result};
use std::path::Path;

/// Words that stand for a person, or for what only a person can be.
const WORDS: [&str; 8] = ["who", "whoever", "whom", "told", "he", "his", "him", "himself"];

/// The page that is no other rule's.
const README: &str = "README.md";

/// The comments of a file have none of the words. The measure is how many there are.
pub(crate) fn in_comments(source: &Source) -> Option<Finding> {
    finding(&source.path, source.text.lines().map(|line| comment(line).unwrap_or("")))
}

/// Nor do documents.
pub(crate) fn in_documents(root: &Path) -> Result<Vec<Finding>> {
    let mut pages = documents(root)?;
    pages.push(root.join(README));
    let mut findings = Vec::new();
    for page in pages {
        let text =
            std::fs::read_to_string(&page).context(|| format!("cannot read {}", page.display()))?;
        findings.extend(finding(&relative(root, &page), text.lines()));
    }
    Ok(findings)
}

/// The comment of a line; a `//` inside of a string begins none.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    if line.starts_with("//") {
        return Some(line.trim_start_matches(['/', '!']).trim_start());
    }
    let (code, comment) = line.split_once(" // ")?;
    let quotes = code.matches('"').count() - code.matches("\\\"").count();
    (quotes % 2 == 0).then_some(comment)
}

/// What is found in lines of prose, without code between fences and names in backquotes.
fn finding<'t>(place: &str, lines: impl Iterator<Item = &'t str>) -> Option<Finding> {
    let mut found: Vec<(usize, &str)> = Vec::new();
    let mut in_code = false;
    for (index, line) in lines.enumerate() {
        in_code ^= line.trim_start().starts_with("```");
        if !in_code {
            found.extend(words_of(line).map(|word| (index + 1, word)));
        }
    }
    let (line, word) = *found.first()?;
    let count = found.len();
    let message = format!("`{word}`, {count} such in the file: name the thing that acts");
    Some(Finding { rule: "people", place: place.into(), line, measure: Some(count), message })
}

fn words_of(line: &str) -> impl Iterator<Item = &str> {
    let prose = line.split('`').step_by(2);
    let words = prose.flat_map(|part| part.split(|letter: char| !letter.is_alphanumeric()));
    words.filter(|word| WORDS.iter().any(|person| word.eq_ignore_ascii_case(person)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(text: &str) -> Option<usize> {
        let source = Source::parse("crates/pool/src/tree.rs", text).expect("it parses");
        in_comments(&source).and_then(|finding| finding.measure)
    }

    #[test]
    fn words_for_people_are_counted_in_comments_of_every_kind() {
        let text = "//! Whoever commits is told.\n\n/// Who commits.\nfn commit() {} // by whom\n";
        assert_eq!(measure(text), Some(4));
        let source = Source::parse("crates/pool/src/tree.rs", text).expect("it parses");
        let found = in_comments(&source).expect("there are some");
        assert_eq!((found.rule, found.line), ("people", 1));
    }

    #[test]
    fn code_strings_and_names_do_not_count() {
        assert_eq!(measure("/// Whether `who` may.\nfn may(who: u32) {}\n"), None);
        assert_eq!(measure("const URL: &str = \"marram: // who\";\n"), None);
        assert_eq!(measure("//! ```\n//! let who = 1;\n//! ```\n//! The end.\n"), None);
        assert_eq!(measure("//! The whole history, and the others.\n"), None);
    }

    #[test]
    fn documents_are_prose_but_for_their_code() {
        let page = "A page that told it.\n\n```sh\nwho\n```\n\nRun `who`.\n";
        let found = finding("docs/page.md", page.lines()).expect("there is one");
        assert_eq!((found.line, found.measure), (1, Some(1)));
    }
}
