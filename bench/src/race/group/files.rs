//! Many files without content: made, asked for and removed, in one directory and in many.

use super::super::line::Ending;
use super::super::stage::Stage;
use marram_lab::failure::Result;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Files in each of many directories.
const FILES_EACH: u64 = 100;

/// Files and directories that are there at once, and some more.
pub(super) const FILES_MAX: u64 = 1_100_000;

pub(super) fn run_all(stage: &mut Stage<'_>) -> Result<()> {
    let counts: &[u64] =
        if stage.is_quick() { &[1_000, 10_000] } else { &[10_000, 100_000, 1_000_000] };
    for count in counts {
        empty(stage, *count, &Layout::OneDirectory)?;
        empty(stage, *count, &Layout::ManyDirectories)?;
    }
    Ok(())
}

/// Where files lie.
enum Layout {
    OneDirectory,
    ManyDirectories,
}

impl Layout {
    fn suffix(&self) -> &'static str {
        match self {
            Layout::OneDirectory => "",
            Layout::ManyDirectories => "_in_many",
        }
    }

    fn words(&self) -> String {
        match self {
            Layout::OneDirectory => "in one directory".to_owned(),
            Layout::ManyDirectories => format!("in directories of {FILES_EACH}"),
        }
    }

    fn path(&self, folder: &Path, number: u64) -> PathBuf {
        match self {
            Layout::OneDirectory => folder.join(format!("file-{number}")),
            Layout::ManyDirectories => {
                folder.join(format!("{}/file-{number}", number / FILES_EACH))
            }
        }
    }
}

fn empty(stage: &mut Stage<'_>, count: u64, layout: &Layout) -> Result<()> {
    let folder = stage.folder("many")?;
    if matches!(layout, Layout::ManyDirectories) {
        for number in 0..count.div_ceil(FILES_EACH) {
            std::fs::create_dir(folder.join(number.to_string()))?;
        }
    }
    stage.settle()?;
    let (suffix, place) = (layout.suffix(), layout.words());
    let of_each = |work: &dyn Fn(&Path) -> Result<()>| {
        (0..count).try_for_each(|number| work(&layout.path(&folder, number)))
    };
    let line = |verb: &str, ending| {
        let title = format!("{verb} {count} empty files {place}");
        (format!("{verb}_{count}{suffix}"), title, ending)
    };
    let (key, title, ending) = line("create_empty", Ending::Syncfs);
    stage.each((&key, title, ending), count, || {
        of_each(&|path| File::create_new(path).map(drop).map_err(Into::into))
    })?;
    stage.chill()?;
    let (key, title, ending) = line("stat_cold", Ending::Reading);
    stage.each((&key, title, ending), count, || of_each(&stat))?;
    let (key, title, ending) = line("stat", Ending::Reading);
    stage.each((&key, title, ending), count, || of_each(&stat))?;
    let (key, title, ending) = line("unlink", Ending::Syncfs);
    stage.each((&key, title, ending), count, || {
        of_each(&|path| std::fs::remove_file(path).map_err(Into::into))
    })?;
    std::fs::remove_dir_all(&folder)?;
    stage.settle()
}

fn stat(path: &Path) -> Result<()> {
    std::fs::symlink_metadata(path)?;
    Ok(())
}
