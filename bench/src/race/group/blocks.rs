//! Large files: written and read in order and at random, in three sizes of block, by one to eight
//! processes with a file each. Reads are cold.

use super::super::line::{Ending, Line, Unit};
use super::super::stage::Stage;
use super::fio::{Job, spelled};
use marram_lab::failure::Result;
use std::path::Path;

const BLOCKS_BYTES: [u64; 3] = [4 << 10, 64 << 10, 1 << 20];

/// Half compressible, as files are; random data would only measure that it is not compressed.
const COMPRESSIBLE: u32 = 50;

pub(super) fn run_all(stage: &mut Stage<'_>) -> Result<()> {
    let jobs: &[u64] = if stage.is_quick() { &[1, 4] } else { &[1, 2, 4, 8] };
    let total_bytes = stage.scaled(1 << 30, 64 << 20);
    for block_bytes in BLOCKS_BYTES {
        for jobs in jobs {
            let folder = stage.folder("blocks")?;
            let file_bytes = total_bytes / jobs;
            run_case(stage, &folder, (block_bytes, *jobs, file_bytes))?;
            std::fs::remove_dir_all(&folder)?;
            stage.settle()?;
        }
    }
    Ok(())
}

fn run_case(
    stage: &mut Stage<'_>,
    folder: &Path,
    (block_bytes, jobs, file_bytes): (u64, u64, u64),
) -> Result<()> {
    for pattern in ["write", "read", "randwrite", "randread"] {
        let is_read = pattern.ends_with("read");
        let is_small = block_bytes == BLOCKS_BYTES[0] && pattern.starts_with("rand");
        if is_read {
            stage.chill()?;
        }
        let ending = if is_read { Ending::Reading } else { Ending::FileSynced };
        let block = spelled(block_bytes);
        let key = format!("{pattern}_{block}_{jobs}");
        let title = format!("fio {pattern}, blocks of {block}, {jobs} jobs");
        let line = Line::new(&key, title, Unit::MebibytesPerSecond, ending);
        let moved_bytes = if is_small { file_bytes / 4 } else { file_bytes };
        let compressible = COMPRESSIBLE;
        let job = Job { pattern, block_bytes, jobs, file_bytes, moved_bytes, compressible };
        stage.rate(line, || Ok(job.run(folder)?.mib_per_second))?;
    }
    Ok(())
}
