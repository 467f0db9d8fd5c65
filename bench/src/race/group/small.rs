//! Small files with something in them: made, read and removed, in the sizes of the papers.

use super::super::line::Ending;
use super::super::stage::Stage;
use marram_lab::failure::Result;
use std::fs::File;
use std::io::Write;

/// How many, and how many in a directory.
const FILES: u64 = 10_000;
const FILES_EACH: u64 = 100;

const SIZES_BYTES: [usize; 2] = [4096, 1024];

pub(super) fn run_all(stage: &mut Stage<'_>) -> Result<()> {
    for size_bytes in SIZES_BYTES {
        of_size(stage, size_bytes)?;
    }
    Ok(())
}

fn of_size(stage: &mut Stage<'_>, size_bytes: usize) -> Result<()> {
    let folder = stage.folder("small")?;
    let content = text(size_bytes);
    let path = |number: u64| folder.join(format!("{}/file-{number}", number / FILES_EACH));
    for number in 0..FILES / FILES_EACH {
        std::fs::create_dir(folder.join(number.to_string()))?;
    }
    stage.settle()?;
    let title = |verb: &str| format!("{verb} {FILES} files of {size_bytes} bytes");
    let key = |verb: &str| format!("{verb}_{FILES}_of_{size_bytes}");
    stage.each((&key("create"), title("create"), Ending::Syncfs), FILES, || {
        (0..FILES).try_for_each(|number| Ok(File::create_new(path(number))?.write_all(&content)?))
    })?;
    stage.chill()?;
    let reading = (&*key("read_cold"), title("read, cold,"), Ending::Reading);
    stage.each(reading, FILES, || {
        (0..FILES).try_for_each(|number| std::fs::read(path(number)).map(drop).map_err(Into::into))
    })?;
    stage.each((&key("remove"), title("remove"), Ending::Syncfs), FILES, || {
        Ok(std::fs::remove_dir_all(&folder)?)
    })
}

/// Words, as small files have them.
fn text(size_bytes: usize) -> Vec<u8> {
    let words =
        (0_u32..).flat_map(|number| format!("line {number} of a small file\n").into_bytes());
    words.take(size_bytes).collect()
}
