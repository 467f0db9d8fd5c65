//! Sentences of documents: none is too long, and the changes of the unreleased version fit a page.
//! Tables, code and headings are not sentences.

use super::Finding;
use super::source::{files_below, relative};
use crate::failure::{Context, Result};
use std::path::{Path, PathBuf};

/// Pages that are held to it, beside all below `docs`.
const PAGES: [&str; 3] = [CHANGES, "CONTRIBUTING.md", "ARCHITECTURE.md"];

/// The page of changes, and the most lines of its first section.
const CHANGES: &str = "CHANGELOG.md";
const UNRELEASED_LINES_MAX: usize = 40;

/// The most words of a sentence.
const WORDS_MAX: usize = 40;

/// Sentences that are too long, and a list of changes that is.
pub(crate) fn pages(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for page in documents(root)? {
        let text =
            std::fs::read_to_string(&page).context(|| format!("cannot read {}", page.display()))?;
        let place = relative(root, &page);
        findings.extend(long_sentences(&place, &text));
        if place == CHANGES {
            findings.extend(long_list_of_changes(&place, &text));
        }
    }
    Ok(findings)
}

/// The pages that are held to rules of prose.
pub(super) fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let mut pages: Vec<_> = PAGES.iter().map(|page| root.join(page)).collect();
    let documents = files_below(&root.join("docs"))?;
    pages.extend(documents.into_iter().filter(|file| file.extension().is_some_and(|e| e == "md")));
    Ok(pages)
}

fn finding(place: &str, line: usize, message: String) -> Finding {
    Finding { rule: "sentences", place: place.into(), line, measure: None, message }
}

fn long_sentences(place: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, paragraph) in paragraphs(text) {
        for words in sentence_lengths(&paragraph).filter(|words| *words > WORDS_MAX) {
            let message = format!("a sentence of {words} words, at most {WORDS_MAX}: cut it");
            findings.push(finding(place, line, message));
        }
    }
    findings
}

fn long_list_of_changes(place: &str, text: &str) -> Option<Finding> {
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.iter().position(|line| line.starts_with("## Unreleased"))?;
    let after = &lines[start + 1..];
    let count = after.iter().position(|line| line.starts_with("## ")).unwrap_or(after.len());
    let message = format!("{count} lines of changes, at most {UNRELEASED_LINES_MAX}");
    (count > UNRELEASED_LINES_MAX).then(|| finding(place, start + 1, message))
}

/// Paragraphs and items of lists with the numbers of their first lines, without tables, code,
/// headings and definitions of links.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut in_code, mut continues) = (false, false);
    for (index, line) in text.lines().map(str::trim).enumerate() {
        let is_fence = line.starts_with("```");
        in_code ^= is_fence;
        if in_code || is_fence || line.is_empty() || line.starts_with(['#', '|', '[']) {
            continues = false;
            continue;
        }
        let item = line.strip_prefix("- ");
        match found.last_mut() {
            Some((_, paragraph)) if continues && item.is_none() => {
                paragraph.push(' ');
                paragraph.push_str(line);
            }
            _ => found.push((index + 1, item.unwrap_or(line).to_owned())),
        }
        continues = true;
    }
    found
}

/// How many words each sentence has. A name in backquotes is one word.
fn sentence_lengths(paragraph: &str) -> impl Iterator<Item = usize> {
    let plain: String = paragraph
        .split('`')
        .enumerate()
        .map(|(index, part)| if index % 2 == 0 { part } else { "Code" })
        .collect();
    let mut lengths = vec![0];
    for word in plain.split_whitespace() {
        if word.contains(char::is_alphanumeric) {
            *lengths.last_mut().expect("it is never empty") += 1;
        }
        if word.trim_end_matches([')', '*']).ends_with(['.', '!', '?']) {
            lengths.push(0);
        }
    }
    lengths.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_sentence_is_found_where_its_paragraph_begins() {
        let long = "word ".repeat(WORDS_MAX + 1);
        let text = format!("# Head\n\nShort. Short.\n\n- item\n- {long}\n  end.\n");
        let found = long_sentences("page.md", &text);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].rule, found[0].line), ("sentences", 6));
    }

    #[test]
    fn short_sentences_of_a_long_paragraph_are_none_too_long() {
        let text = "A few words (of few). ".repeat(WORDS_MAX);
        assert!(long_sentences("page.md", &text).is_empty());
    }

    #[test]
    fn tables_code_and_names_do_not_count() {
        let long = "word ".repeat(WORDS_MAX + 1);
        let text = format!("| {long} |\n\n```sh\n{long}\n```\n\nA name: `{long}`.\n");
        assert!(long_sentences("page.md", &text).is_empty());
    }

    #[test]
    fn a_long_list_of_changes_is_found() {
        let of = |lines: usize| format!("# Changes\n\n## Unreleased\n{}", "- one\n".repeat(lines));
        assert_eq!(long_list_of_changes(CHANGES, &of(UNRELEASED_LINES_MAX)), None);
        assert!(long_list_of_changes(CHANGES, &of(UNRELEASED_LINES_MAX + 1)).is_some());
        let released = format!("{}\n## 0.0.1\n{}", of(1), "- old\n".repeat(50));
        assert_eq!(long_list_of_changes(CHANGES, &released), None);
    }
}
