//! fsx: random operations on one file against its own memory of the file.

use super::{GIB, Setting, step};
use crate::failure::Result;
use crate::process::{command, run};
use crate::project;
use std::path::{Path, PathBuf};

const VERSION: &str = "0.3.2";

/// A file that most operations meet each other in a part of, and one small enough that they meet
/// all the time: odd and even seeds take turns.
const SHAPES: [(&str, &str); 2] =
    [("small", "flen = 262144\n[opsize]\nmax = 16384\n"), ("large", "flen = 1048576\n")];

/// Every operation that fsx has and FUSE passes on.
const WEIGHTS: &str = "[weights]\nclose_open = 1\ninvalidate = 1\ntruncate = 2\n\
    read = 10\nwrite = 10\nmapread = 10\nmapwrite = 10\nfsync = 0.1\n\
    fdatasync = 0.1\npunch_hole = 2\nposix_fallocate = 1\ncopy_file_range = 2\nsendfile = 2\n";

/// Operations of one process. fsx never takes its mappings away: after 43,000 of them an operation
/// took six times as long, and Linux gives a process 65,530.
const PROCESS_OPERATIONS: u64 = 5_000;
/// Processes of one seed draw from seeds that lie this far apart.
const SEED_STRIDE: u64 = 1 << 20;

/// 200,000 operations unless told otherwise, shared by several seeds, with a remount between.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    let fsx = project::registry_tool("fsx", VERSION)?;
    for (name, shape) in SHAPES {
        std::fs::write(configuration(setting, name), format!("{shape}{WEIGHTS}"))?;
    }
    let mut subject = setting.subject(GIB)?;
    let runs = setting.sizes.seeds.unwrap_or(4).max(1);
    let all = setting.sizes.operations.unwrap_or(200_000);
    let operations = all.div_ceil(runs);
    for number in 0..runs {
        let seed = setting.seed + number;
        let file = subject.root().join(format!("file-{number}"));
        let (shape, _) = SHAPES[usize::from(seed % 2 == 1)];
        for part in 0..operations.div_ceil(PROCESS_OPERATIONS) {
            let count = (operations - part * PROCESS_OPERATIONS).min(PROCESS_OPERATIONS);
            let seed = seed + part * SEED_STRIDE;
            one(&fsx, &configuration(setting, shape), &file, seed, count)?;
        }
        step(&format!("seed {seed}: {operations} operations on a {shape} file"));
        subject.remount()?;
    }
    subject.unmount()?;
    subject.check()
}

fn configuration(setting: &Setting, shape: &str) -> PathBuf {
    setting.folder.join(format!("fsx-{shape}.toml"))
}

fn one(fsx: &Path, configuration: &Path, file: &Path, seed: u64, operations: u64) -> Result<()> {
    let artifacts = configuration.with_file_name("artifacts");
    std::fs::create_dir_all(&artifacts)?;
    let mut fsx = command(&[&fsx.to_string_lossy()]);
    fsx.args(["-q", "-N", &operations.to_string(), "-S", &seed.to_string(), "-f"]);
    run(fsx.arg(configuration).arg("-P").arg(&artifacts).arg(file))
}
