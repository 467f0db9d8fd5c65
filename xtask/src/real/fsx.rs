//! fsx: random operations on one file against its own memory of the file.

use super::{GIB, Setting, step};
use crate::failure::Result;
use crate::process::{command, run};
use crate::project;
use std::path::Path;

const VERSION: &str = "0.3.2";

/// Every operation that a Linux file system of this kind can do.
const CONFIGURATION: &str = "flen = 1048576\n[weights]\nclose_open = 1\ninvalidate = 1\n\
    truncate = 2\nread = 10\nwrite = 10\nmapread = 10\nmapwrite = 10\nfsync = 0.1\n\
    fdatasync = 0.1\npunch_hole = 2\nposix_fallocate = 1\ncopy_file_range = 2\nsendfile = 2\n";

/// 200,000 operations unless told otherwise, in runs of several seeds, with a remount between.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    let fsx = project::registry_tool("fsx", VERSION)?;
    let configuration = setting.folder.join("fsx.toml");
    std::fs::write(&configuration, CONFIGURATION)?;
    let mut subject = setting.subject(GIB)?;
    let runs = setting.sizes.seeds.unwrap_or(4).max(1);
    let all = setting.sizes.operations.unwrap_or(setting.scaled(200_000, 20_000));
    let operations = all.div_ceil(runs);
    for number in 0..runs {
        let seed = setting.seed + number;
        let file = subject.root().join(format!("file-{number}"));
        one(&fsx, &configuration, &file, seed, operations)?;
        step(&format!("seed {seed}: {operations} operations"));
        subject.remount()?;
    }
    subject.unmount()?;
    subject.check()
}

fn one(fsx: &Path, configuration: &Path, file: &Path, seed: u64, operations: u64) -> Result<()> {
    let artifacts = configuration.with_file_name("artifacts");
    std::fs::create_dir_all(&artifacts)?;
    let mut fsx = command(&[&fsx.to_string_lossy()]);
    fsx.args(["-q", "-N", &operations.to_string(), "-S", &seed.to_string(), "-f"]);
    run(fsx.arg(configuration).arg("-P").arg(&artifacts).arg(file))
}
