//! The layout of a version never changes: each example encodes to the bytes that are kept in
//! `golden/` for the newest version that has changed it, and what earlier versions wrote is still
//! read. `WRITE_GOLDEN=1` writes the files that are not there yet; it overwrites none.

use crate::{document, example, hex};
use marram_format::version::FormatVersion;
use std::collections::BTreeMap;
use std::path::PathBuf;

fn examples() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    example::all().into_iter().chain(example::records())
}

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn folder_of(version: FormatVersion) -> PathBuf {
    golden().join(format!("v{version}"))
}

/// The folders of all versions, the oldest first.
fn folders() -> Vec<PathBuf> {
    let version = |minor| folder_of(FormatVersion { minor, ..FormatVersion::CURRENT });
    let folders: Vec<_> = (0..=FormatVersion::CURRENT.minor).map(version).collect();
    let found = std::fs::read_dir(golden()).expect("the golden folder").count();
    assert_eq!(found, folders.len(), "golden/ has one folder for each version");
    folders
}

/// Example and bytes of each dump of a version.
fn dumps(folder: &PathBuf) -> BTreeMap<String, Vec<u8>> {
    let mut dumps = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("a file").path();
        if path.extension().is_some_and(|kind| kind == "image") {
            continue; // A whole pool, which the simulator's tests open.
        }
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        dumps.insert(name, hex::parse(&std::fs::read_to_string(&path).expect("a dump")));
    }
    dumps
}

#[test]
fn the_layout_is_the_one_of_its_version() {
    let folders = folders();
    for (name, bytes) in examples() {
        let found = hex::dump(&bytes);
        let file = format!("{name}.hex");
        let mut path = folder_of(FormatVersion::CURRENT).join(&file);
        if !path.exists() {
            let earlier = folders.iter().rev().map(|folder| folder.join(&file));
            let newest = earlier.into_iter().find(|path| path.exists());
            let is_kept = |path: &PathBuf| std::fs::read_to_string(path).unwrap() == found;
            if std::env::var_os("WRITE_GOLDEN").is_some() && !newest.as_ref().is_some_and(is_kept) {
                std::fs::write(&path, &found).unwrap();
            } else {
                path = newest.unwrap_or(path);
            }
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            found,
            kept,
            "the bytes of {name} are not those of {}: a layout change needs a change of \
             FormatVersion::CURRENT or a feature flag, of the page in docs/ that describes it, \
             and new golden files beside the old ones",
            path.display()
        );
    }
}

#[test]
fn no_golden_file_is_without_its_example() {
    let names: Vec<_> = examples().map(|example| example.0).collect();
    for folder in folders() {
        for name in dumps(&folder).keys() {
            assert!(names.contains(&name.as_str()), "{name} in {} has none", folder.display());
        }
    }
}

#[test]
fn what_earlier_versions_wrote_is_read() {
    let decodable: Vec<_> = example::all().into_iter().map(|example| example.0).collect();
    for folder in folders() {
        for (name, bytes) in dumps(&folder) {
            if decodable.contains(&name.as_str()) {
                assert_eq!(document::again(&name, &bytes).unwrap(), bytes, "{name}");
            }
        }
    }
}
