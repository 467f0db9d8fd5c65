//! A log file: small lines appended, each synced before the next one, and the file read back.

use super::super::line::{Ending, Line, Unit};
use super::super::stage::Stage;
use marram_lab::failure::{Result, fail};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

const LINE_BYTES: usize = 80;
const READ_BYTES: usize = 4096;

pub(super) fn run_all(stage: &mut Stage<'_>) -> Result<()> {
    let count = stage.scaled(20_000, 500);
    let path = stage.place("server.log");
    let title = format!("{count} appends of {LINE_BYTES} bytes, each synced");
    stage.time(Line::seconds("append", title, Ending::EachSynced), || append(&path, count))?;
    let bytes = count * LINE_BYTES as u64;
    for (key, word) in [("read_back", "cold"), ("read_again", "warm")] {
        if key == "read_back" {
            stage.chill()?;
        }
        let title = format!("that file read in {READ_BYTES} bytes, {word}");
        let line = Line::new(key, title, Unit::Seconds, Ending::Reading);
        stage.time(line, || read_back(&path, bytes))?;
    }
    Ok(())
}

fn append(path: &Path, count: u64) -> Result<()> {
    let mut file = File::options().create_new(true).append(true).open(path)?;
    for number in 0..count {
        let line = format!("{number:0width$}\n", width = LINE_BYTES - 1);
        file.write_all(line.as_bytes())?;
        file.sync_data()?;
    }
    Ok(())
}

fn read_back(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = [0; READ_BYTES];
    let mut sum = 0;
    loop {
        match file.read(&mut buffer)? {
            0 if sum == bytes => return Ok(()),
            0 => return fail(format!("{sum} bytes of {bytes}")),
            more => sum += more as u64,
        }
    }
}
