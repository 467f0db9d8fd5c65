//! fsx: random operations on one file against its own memory of the file.

use super::{GIB, Setting, step};
use marram_lab::failure::{Result, fail};
use marram_lab::process::{command, ended, shown, tail};
use marram_lab::project;
use marram_lab::subject::Kind;
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

/// What an image and a pmem home serve of these: they make no holes.
const WITHOUT_HOLES: &str = "[weights]\nclose_open = 1\ninvalidate = 1\ntruncate = 2\n\
    read = 10\nwrite = 10\nmapread = 10\nmapwrite = 10\nfsync = 1\n\
    fdatasync = 1\npunch_hole = 0\nposix_fallocate = 0\ncopy_file_range = 2\nsendfile = 2\n";

/// Operations of one process. fsx never takes its mappings away: after 43,000 of them an operation
/// took six times as long, and Linux gives a process 65,530.
const PROCESS_OPERATIONS: u64 = 5_000;
/// Processes of one seed draw from seeds that lie this far apart.
const SEED_STRIDE: u64 = 1 << 20;

/// How many processes in turn may draw what fsx itself cannot do, each from a seed that lies
/// `REDRAW_STRIDE` further.
const REDRAWS_MAX: u64 = 4;
const REDRAW_STRIDE: u64 = 1 << 40;

/// 200,000 operations, or 40,000 when short, unless the command line says otherwise; shared by
/// several seeds, with a remount between.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    let fsx = project::registry_tool("fsx", VERSION, &[])?;
    let weights = if setting.kind == Kind::Pmem { WITHOUT_HOLES } else { WEIGHTS };
    for (name, shape) in SHAPES {
        std::fs::write(configuration(setting, name), format!("{shape}{weights}"))?;
    }
    let mut subject = setting.subject(GIB)?;
    let runs = setting.sizes.seeds.unwrap_or(4).max(1);
    let all = setting.sizes.operations.unwrap_or(setting.scaled(200_000, 40_000));
    let operations = all.div_ceil(runs);
    for number in 0..runs {
        let seed = setting.seed + number;
        let file = subject.root().join(format!("file-{number}"));
        let (shape, _) = SHAPES[usize::from(seed % 2 == 1)];
        for part in 0..operations.div_ceil(PROCESS_OPERATIONS) {
            let count = (operations - part * PROCESS_OPERATIONS).min(PROCESS_OPERATIONS);
            let seed = seed + part * SEED_STRIDE;
            some(&fsx, &configuration(setting, shape), &file, seed, count)?;
        }
        step(&format!("seed {seed}: {operations} operations on a {shape} file"));
        subject.remount()?;
    }
    subject.unmount()?;
    subject.check()
}

/// So many operations on a file of an image.
pub(super) fn on_image(setting: &Setting, file: &Path, seed: u64, operations: u64) -> Result<()> {
    let fsx = project::registry_tool("fsx", VERSION, &[])?;
    let (shape, words) = SHAPES[usize::from(seed % 2 == 1)];
    let settings = configuration(setting, &format!("image-{shape}"));
    std::fs::write(&settings, format!("{words}{WITHOUT_HOLES}"))?;
    for part in 0..operations.div_ceil(PROCESS_OPERATIONS) {
        let count = (operations - part * PROCESS_OPERATIONS).min(PROCESS_OPERATIONS);
        some(&fsx, &settings, file, seed.wrapping_add(part * SEED_STRIDE), count)?;
    }
    Ok(())
}

fn configuration(setting: &Setting, shape: &str) -> PathBuf {
    setting.folder.join(format!("fsx-{shape}.toml"))
}

/// How a process of fsx ended.
enum Ending {
    /// All of its operations were as they should be.
    Passed,
    /// It drew a `posix_fallocate` of no bytes, which every file system refuses, and took the
    /// refusal for a failure. All before it were as they should be.
    DrewNothing,
}

/// So many operations in one process; in another one if fsx ended itself before that.
fn some(fsx: &Path, settings: &Path, file: &Path, seed: u64, operations: u64) -> Result<()> {
    for draw in 0..REDRAWS_MAX {
        let seed = seed + draw * REDRAW_STRIDE;
        if let Ending::Passed = one(fsx, settings, file, seed, operations)? {
            return Ok(());
        }
        step(&format!("seed {seed}: fsx drew a posix_fallocate of no bytes; drawn anew"));
    }
    fail(format!("fsx drew a posix_fallocate of no bytes {REDRAWS_MAX} times from seed {seed}"))
}

fn one(fsx: &Path, settings: &Path, file: &Path, seed: u64, operations: u64) -> Result<Ending> {
    let artifacts = settings.with_file_name("artifacts");
    std::fs::create_dir_all(&artifacts)?;
    let mut fsx = command(&[&fsx.to_string_lossy()]);
    fsx.args(["-q", "-N", &operations.to_string(), "-S", &seed.to_string(), "-f"]);
    let output = ended(fsx.arg(settings).arg("-P").arg(&artifacts).arg(file))?;
    if output.status.success() {
        return Ok(Ending::Passed);
    }
    let said = tail(&output);
    if drew_nothing(&said) {
        return Ok(Ending::DrewNothing);
    }
    fail(format!("`{}` failed ({}):\n{said}", shown(&fsx), output.status))
}

/// Whether the last operation that fsx printed reserved no bytes.
fn drew_nothing(said: &str) -> bool {
    let last = said.lines().last().unwrap_or_default();
    last.contains("POSIX_FALLOCATE") && last.trim_end().ends_with(" 0x0 bytes)")
}

#[cfg(test)]
mod tests {
    use super::drew_nothing;

    #[test]
    fn only_a_reservation_of_no_bytes_is_passed_over() {
        let before = "[ERROR fsx] 1810 READ     0x2f304 => 0x31ca6 (0x29a2 bytes)\n";
        let nothing = "[ERROR fsx] 1811 POSIX_FALLOCATE 0x18989 => 0x18988 (   0x0 bytes)";
        assert!(drew_nothing(&format!("{before}{nothing}")));
        assert!(!drew_nothing(&format!("{nothing}\n{before}")));
        assert!(!drew_nothing(&nothing.replace("  0x0", "0x10")));
        assert!(!drew_nothing(&nothing.replace("POSIX_FALLOCATE", "TRUNCATE")));
    }
}
