//! Words that do not belong in the tree: marks of unfinished work, and bytes that are not ASCII.

use super::Finding;
use super::source::{Source, files_below, relative};
use crate::failure::{Context, Result};
use std::path::Path;

/// Marks of unfinished work. Written in halves, so that this file does not find itself.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Whole files, beside Rust's, that are held to ASCII and to finished work.
const PLAIN_FILES: [&str; 7] = [
    "Makefile",
    ".ci/run",
    "Cargo.toml",
    "clippy.toml",
    "deny.toml",
    "rust-toolchain.toml",
    "rustfmt.toml",
];

/// Rust sources are ASCII and carry no marks of unfinished work.
pub(crate) fn forbidden_words(source: &Source) -> Vec<Finding> {
    in_text(&source.path, &source.text)
}

/// The same for the project's other sources; documents may use any letters.
pub(crate) fn other_files(root: &Path) -> Result<Vec<Finding>> {
    let mut files: Vec<_> = PLAIN_FILES.iter().map(|file| root.join(file)).collect();
    let manifests = files_below(&root.join("crates"))?;
    files.extend(manifests.into_iter().filter(|file| file.ends_with("Cargo.toml")));
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        let text =
            std::fs::read_to_string(file).context(|| format!("cannot read {}", file.display()))?;
        findings.extend(in_text(&relative(root, file), &text));
    }
    Ok(findings)
}

fn in_text(place: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |rule, line: usize, message: String| {
        findings.push(Finding { rule, place: place.into(), line, measure: None, message });
    };
    for (index, line) in text.lines().enumerate() {
        if let Some(letter) = line.chars().find(|letter| !letter.is_ascii()) {
            add("ascii", index + 1, format!("{letter:?} is not ASCII"));
        }
        let mut words = line.split(|letter: char| !letter.is_ascii_alphanumeric());
        if let Some(word) = words.find(|word| UNFINISHED.contains(word)) {
            add("unfinished", index + 1, format!("`{word}`: finish it, or file an issue"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_beyond_ascii_are_found() {
        let found = in_text("crates/pool/src/tree.rs", "// fine\n// na\u{ef}ve\n");
        assert_eq!((found[0].rule, found[0].line), ("ascii", 2));
    }

    #[test]
    fn marks_of_unfinished_work_are_found_as_whole_words() {
        let text = format!("// {}: later\n// a{}\n", UNFINISHED[0], UNFINISHED[0]);
        let found = in_text("crates/pool/src/tree.rs", &text);
        assert_eq!((found.len(), found[0].rule, found[0].line), (1, "unfinished", 1));
    }
}
