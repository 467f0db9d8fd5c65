//! The layout of a version never changes: the examples must encode to the bytes that are kept in
//! `golden/`. `WRITE_GOLDEN=1` writes the files that are not there yet; it overwrites none.

use crate::{example, hex};
use marram_format::version::FormatVersion;
use std::path::PathBuf;

fn examples() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    example::all().into_iter().chain(example::records())
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("golden/v{}", FormatVersion::CURRENT))
}

#[test]
fn the_layout_is_the_one_of_its_version() {
    for (name, bytes) in examples() {
        let path = folder().join(format!("{name}.hex"));
        let found = hex::dump(&bytes);
        if std::env::var_os("WRITE_GOLDEN").is_some() && !path.exists() {
            std::fs::write(&path, &found).unwrap();
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
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "image") {
            continue; // A whole pool, which the simulator's tests open.
        }
        let stem = path.file_stem().unwrap().to_str().unwrap();
        assert!(names.contains(&stem), "{} has no example", path.display());
    }
}
