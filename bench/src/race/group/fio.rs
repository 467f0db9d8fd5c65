//! fio: blocks written and read, in order and at random, by one process or several.

use marram_lab::failure::{Result, fail};
use marram_lab::process::{command, output};
use serde_json::Value;
use std::path::Path;

const MIB: f64 = 1_048_576.0;

/// No line takes longer, so that what is very slow is very slow in a bounded time.
const LIMIT_SECONDS: u64 = 60;

/// One run of fio.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// `write`, `read`, `randwrite` or `randread`.
    pub(super) pattern: &'static str,
    /// Bytes of a request.
    pub(super) block_bytes: u64,
    /// Processes, each with a file of its own.
    pub(super) jobs: u64,
    /// Bytes of each file.
    pub(super) file_bytes: u64,
    /// Bytes that each process moves.
    pub(super) moved_bytes: u64,
    /// How much of each block a compressor can take away, in percent.
    pub(super) compressible: u32,
}

/// What fio reported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    pub(super) mib_per_second: f64,
    pub(super) operations_per_second: f64,
}

impl Job {
    /// Runs it in `folder`. Writes end with an fsync of each file, which counts.
    pub(super) fn run(&self, folder: &Path) -> Result<Rates> {
        let mut fio = command(&["fio", "--name=file", "--ioengine=psync", "--group_reporting"]);
        fio.current_dir(folder).args(["--output-format=json", "--end_fsync=1", "--randrepeat=1"]);
        fio.args(["--filename_format=file.$jobnum", "--refill_buffers", "--invalidate=0"]);
        fio.args(["--fallocate=none", "--thread=0"]);
        fio.arg(format!("--buffer_compress_percentage={}", self.compressible));
        fio.arg(format!("--rw={}", self.pattern)).arg(format!("--bs={}", self.block_bytes));
        fio.arg(format!("--numjobs={}", self.jobs)).arg(format!("--size={}", self.file_bytes));
        fio.arg(format!("--io_size={}", self.moved_bytes));
        fio.arg(format!("--runtime={LIMIT_SECONDS}"));
        let said = output(&mut fio)?;
        let direction = if self.pattern.ends_with("write") { "write" } else { "read" };
        rates(&String::from_utf8_lossy(&said.stdout), direction)
    }
}

/// Reads the report: fio may warn before it.
fn rates(said: &str, direction: &str) -> Result<Rates> {
    let report: Value = serde_json::from_str(said.trim_start_matches(|letter| letter != '{'))?;
    let told = &report["jobs"][0][direction];
    match (told["bw_bytes"].as_f64(), told["iops"].as_f64()) {
        (Some(bytes), Some(operations)) if bytes > 0.0 => {
            Ok(Rates { mib_per_second: bytes / MIB, operations_per_second: operations })
        }
        _ => fail(format!("fio printed no {direction}")),
    }
}

/// A size as fio spells it.
pub(super) fn spelled(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 && bytes % (1 << 30) == 0 => format!("{}g", bytes >> 30),
        bytes if bytes >= 1 << 20 && bytes % (1 << 20) == 0 => format!("{}m", bytes >> 20),
        bytes => format!("{}k", bytes >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_behind_its_warnings() {
        let said = "fio: this is a note\n{\"jobs\": [{\"read\": {\"bw_bytes\": 0, \"iops\": 0.0}, \
                    \"write\": {\"bw_bytes\": 2097152, \"iops\": 512.5}}]}";
        let told = Rates { mib_per_second: 2.0, operations_per_second: 512.5 };
        assert_eq!(rates(said, "write").expect("numbers"), told);
        assert!(rates(said, "read").is_err());
        assert_eq!([4096, 65_536, 1 << 20, 3 << 30].map(spelled), ["4k", "64k", "1m", "3g"]);
    }
}
