//! The Rust files of the project, parsed once for all rules.

use crate::failure::{Context, Result};
use std::path::{Path, PathBuf};

/// A Rust file.
pub(crate) struct Source {
    /// The path from the root of the project, with `/`.
    pub(crate) path: String,
    /// The text as it is.
    pub(crate) text: String,
    /// The text as the compiler sees it.
    pub(crate) syntax: syn::File,
}

impl Source {
    /// Parses `text` as the file at `path`.
    pub(crate) fn parse(path: &str, text: &str) -> Result<Self> {
        let syntax = syn::parse_file(text).context(|| format!("cannot parse {path}"))?;
        Ok(Self { path: path.to_owned(), text: text.to_owned(), syntax })
    }

    /// The folder under `crates/`, or the first folder (`bench`, `fuzz`).
    pub(crate) fn crate_name(&self) -> &str {
        let path = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        path.split('/').next().unwrap_or("")
    }

    /// The file's name without `.rs`.
    pub(crate) fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or("");
        name.strip_suffix(".rs").unwrap_or(name)
    }

    /// Whether the whole file is test code: integration tests, benches, fuzz targets, `tests.rs`.
    pub(crate) fn is_test(&self) -> bool {
        let folders: Vec<&str> = self.path.split('/').collect();
        self.stem() == "tests"
            || self.crate_name() == "fuzz"
            || folders.iter().any(|folder| ["tests", "benches", "examples"].contains(folder))
    }
}

/// All Rust files of the project.
pub(crate) fn rust_files(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for folder in ["crates", "bench", "fuzz", "lab", "suites", "xtask"] {
        for file in files_below(&root.join(folder))? {
            if file.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&file)
                    .context(|| format!("cannot read {}", file.display()))?;
                sources.push(Source::parse(&relative(root, &file), &text)?);
            }
        }
    }
    Ok(sources)
}

/// The path of `file` from `root`, with `/`.
pub(crate) fn relative(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).to_string_lossy().into_owned()
}

/// The files below `folder`, in order, without build output and kept corpora. None if it is absent.
pub(crate) fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        if !folder.is_dir() {
            continue;
        }
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if !entry.file_type()?.is_dir() {
                files.push(entry.path());
            } else if !["target", "corpus", "artifacts"].iter().any(|skip| name == *skip) {
                folders.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Whether these attributes say `#[cfg(test)]` or `#[test]`.
pub(crate) fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        if attribute.path().is_ident("test") {
            return true;
        }
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}
