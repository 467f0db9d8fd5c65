//! Records of 256 KiB to 2 MiB, files of several sizes, one to five writers, data that can be
//! compressed and data that cannot: the grid by which compression in file systems has been
//! measured.

use super::super::line::{Ending, Line, Unit};
use super::super::stage::Stage;
use super::fio::{Job, spelled};
use marram_lab::failure::Result;

const MIB: u64 = 1 << 20;

/// How much a compressor can take away, in percent, and its name.
const DATA: [(u32, &str); 2] = [(75, "compressible"), (0, "random")];

pub(super) fn run_all(stage: &mut Stage<'_>) -> Result<()> {
    let records: &[u64] = if stage.is_quick() { &[256, 2048] } else { &[256, 512, 1024, 2048] };
    let sizes: &[u64] = if stage.is_quick() { &[16] } else { &[64, 256] };
    let writers: &[u64] = if stage.is_quick() { &[1, 5] } else { &[1, 2, 3, 4, 5] };
    for (compressible, data) in DATA {
        for record in records {
            for size in sizes {
                for jobs in writers {
                    let job = Job {
                        pattern: "write",
                        block_bytes: record << 10,
                        jobs: *jobs,
                        file_bytes: size * MIB,
                        moved_bytes: size * MIB,
                        compressible,
                    };
                    run_job(stage, job, data)?;
                }
            }
        }
    }
    Ok(())
}

fn run_job(stage: &mut Stage<'_>, job: Job, data: &str) -> Result<()> {
    let folder = stage.folder("records")?;
    let (record, size, jobs) = (spelled(job.block_bytes), spelled(job.file_bytes), job.jobs);
    for pattern in ["write", "read"] {
        let ending = if pattern == "read" { Ending::Reading } else { Ending::FileSynced };
        if ending == Ending::Reading {
            stage.chill()?;
        }
        let key = format!("{pattern}_{data}_{record}_{size}_{jobs}");
        let title = format!("{pattern} {data} data, records of {record}, {jobs} files of {size}");
        let line = Line::new(&key, title, Unit::MebibytesPerSecond, ending);
        let job = Job { pattern, ..job };
        stage.rate(line, || Ok(job.run(&folder)?.mib_per_second))?;
    }
    std::fs::remove_dir_all(&folder)?;
    stage.settle()
}
