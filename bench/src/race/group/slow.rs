//! Data written to a device that is held to 100 MB/s: what compresses well writes less, and that
//! must show as time.

use super::super::line::{Ending, Line};
use super::super::stage::Stage;
use super::fio::Job;
use super::throttle::{RATE, Throttle};
use marram_lab::failure::{Result, fail};
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Nothing where there is no device, or none that can be held back.
pub(super) fn run_all(stage: &mut Stage<'_>) -> Result<()> {
    let Some(device) = stage.device() else { return Ok(()) };
    let Some(throttle) = Throttle::hold(&device)? else {
        println!("  no line of a slow device: this kernel has no blkio.throttle");
        return Ok(());
    };
    for (compressible, key) in [(50, "half"), (75, "three_quarters"), (0, "random")] {
        let folder = stage.folder("slow")?;
        write(stage, &folder, (compressible, key))?;
        std::fs::remove_dir_all(&folder)?;
        stage.settle()?;
    }
    drop(throttle);
    Ok(())
}

fn write(stage: &mut Stage<'_>, folder: &Path, (compressible, key): (u32, &str)) -> Result<()> {
    let size = stage.scaled(512, 64) * MIB;
    let title = format!("write of data, {compressible} % of it compressible, at 100 MB/s");
    let line = Line::seconds(&format!("write_{key}"), title, Ending::Syncfs);
    let job = Job {
        pattern: "write",
        block_bytes: MIB,
        jobs: 1,
        file_bytes: size,
        moved_bytes: size,
        compressible,
    };
    stage.time(line, || {
        let began = Instant::now();
        job.run(folder)?;
        was_held(job, began.elapsed())
    })
}

/// Fails if what cannot be compressed was synced in less time than the rate allows: then it went
/// past the means that holds the device, and so may all else. A little is let through at once.
fn was_held(job: Job, took: Duration) -> Result<()> {
    const AT_LEAST: f64 = 0.8;
    let least = job.moved_bytes as f64 / RATE as f64 * AT_LEAST;
    if job.compressible == 0 && took.as_secs_f64() < least {
        return fail(format!("the device was not held: {took:?} for {} bytes", job.moved_bytes));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_be_compressed_shows_that_a_device_was_not_held() {
        let job = |compressible| Job {
            pattern: "write",
            block_bytes: MIB,
            jobs: 1,
            file_bytes: 512 * MIB,
            moved_bytes: 512 * MIB,
            compressible,
        };
        was_held(job(0), Duration::from_secs(5)).expect("as long as it has to take");
        assert!(was_held(job(0), Duration::from_secs(2)).is_err());
        was_held(job(75), Duration::from_secs(2)).expect("less was written");
    }
}
