//! `cargo xtask quickstart`, which `make run` calls: from a fresh machine to a mounted pool with
//! something real in it and a snapshot to look at. It can be run again; what is there stays.

use crate::failure::{Context, Result, fail};
use crate::process::{command, output, run, run_shown, text};
use crate::project;
use crate::setup;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package with the archive, and the archive.
const SOURCE: (&str, &str) = ("linux-source-6.1", "/usr/src/linux-source-6.1.tar.xz");

/// What goes into the pool where the archive cannot be had.
const INSTEAD: &str = "/usr/share/doc";

/// The snapshot that is made.
const SNAPSHOT: &str = "first";

/// What is asked for on the command line.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where to mount; `~/marram` if left out.
    directory: Option<PathBuf>,
    /// Unmount the quickstart pool and remove it.
    #[arg(long)]
    clean: bool,
}

/// A pool that `marram quickstart` has mounted.
struct Quickstart {
    binary: PathBuf,
    pool: PathBuf,
    directory: PathBuf,
}

/// Sets everything up and shows it.
pub(crate) fn run_all(arguments: &Arguments) -> Result<()> {
    setup::install(&setup::RUN_PACKAGES)?;
    if !Path::new("/dev/fuse").exists() {
        return fail("there is no /dev/fuse: the kernel has no FUSE (try `modprobe fuse`)");
    }
    let binary = project::release_binary().context(|| "building the release")?;
    let quickstart = mount(binary, arguments.directory.as_deref())?;
    if arguments.clean {
        return clean(&quickstart);
    }
    let tree = fill(&quickstart)?;
    snapshot(&quickstart)?;
    change_and_look_back(&quickstart, &tree)?;
    say_what_next(&quickstart)
}

fn mount(binary: PathBuf, directory: Option<&Path>) -> Result<Quickstart> {
    let mut quickstart = Command::new(&binary);
    quickstart.args(["--json", "quickstart"]).args(directory);
    let said: Value = serde_json::from_str(&text(&mut quickstart)?)?;
    let path = |name: &str| match said["result"][name].as_str() {
        Some(path) => Ok(PathBuf::from(path)),
        None => fail(format!("`marram quickstart` told no {name}: {said}")),
    };
    Ok(Quickstart { pool: path("pool")?, directory: path("directory")?, binary })
}

impl Quickstart {
    fn marram(&self, words: &[&str]) -> Command {
        let mut marram = Command::new(&self.binary);
        marram.args(words).stdin(std::process::Stdio::null());
        marram
    }

    /// `DIRECTORY@first`.
    fn snapshot(&self) -> String {
        format!("{}@{SNAPSHOT}", self.directory.display())
    }
}

/// Puts the Linux source, or the machine's documents, into the pool; where it is.
fn fill(quickstart: &Quickstart) -> Result<PathBuf> {
    let (package, archive) = SOURCE;
    if let Err(failure) = setup::install(&[package]) {
        println!("{failure}\ngoing on with {INSTEAD}");
    }
    let has_archive = Path::new(archive).is_file();
    let name = if has_archive { package } else { "doc" };
    let tree = quickstart.directory.join(name);
    if tree.is_dir() {
        println!("{} is there already", tree.display());
        return Ok(tree);
    }
    // The tree appears under its name only when it is whole.
    let partial = quickstart.directory.join("unpacking");
    run(command(&["rm", "-rf"]).arg(&partial))?;
    std::fs::create_dir(&partial)?;
    if has_archive {
        println!("unpacking {archive} into {}", quickstart.directory.display());
        run(command(&["tar", "-xJf", archive, "-C"]).arg(&partial))?;
    } else {
        println!("copying {INSTEAD} into {}", quickstart.directory.display());
        run(command(&["cp", "-a", INSTEAD]).arg(&partial))?;
    }
    std::fs::rename(partial.join(name), &tree)?;
    std::fs::remove_dir(&partial)?;
    run(quickstart.marram(&["sync"]).arg(&quickstart.directory))?;
    Ok(tree)
}

fn snapshot(quickstart: &Quickstart) -> Result<()> {
    let mut list = quickstart.marram(&["list", "--no-header"]);
    let listed = text(list.arg(&quickstart.directory))?;
    let ending = format!("@{SNAPSHOT}");
    if listed.split_whitespace().any(|word| word.ends_with(&ending)) {
        return Ok(());
    }
    println!("$ marram snapshot {}", quickstart.snapshot());
    run_shown(&mut quickstart.marram(&["snapshot", &quickstart.snapshot()]))
}

/// Removes a file from the live tree and reads it from the snapshot.
fn change_and_look_back(quickstart: &Quickstart, tree: &Path) -> Result<()> {
    let find =
        "find . -type f -size -64k -name '[A-Z]*' -printf '%P\\n' | LC_ALL=C sort | head -n 1";
    let file = text(command(&["sh", "-c", find]).current_dir(tree))?;
    let live = tree.join(&file);
    println!("$ rm {}", live.display());
    std::fs::remove_file(&live)?;
    let view = tempfile::tempdir()?;
    println!("$ marram mount {} {}", quickstart.snapshot(), view.path().display());
    let mut mount = quickstart.marram(&["mount", &quickstart.snapshot()]);
    run(mount.arg(view.path()))?;
    let name = tree.file_name().expect("a folder in the mount");
    let kept = view.path().join(name).join(&file);
    println!("$ cp -p {} {}", kept.display(), live.display());
    let copied = run(command(&["cp", "-p"]).arg(&kept).arg(&live));
    run(quickstart.marram(&["unmount"]).arg(view.path()))?;
    copied?;
    Ok(())
}

fn say_what_next(quickstart: &Quickstart) -> Result<()> {
    for words in [["list"], ["status"]] {
        let mut marram = quickstart.marram(&words);
        println!("$ marram {} {}", words[0], quickstart.directory.display());
        run_shown(marram.arg(&quickstart.directory))?;
    }
    let (binary, directory) = (quickstart.binary.display(), quickstart.directory.display());
    println!("\nMounted at {directory}. The program is {binary}; `make install` installs it.");
    println!("Unmount: {binary} unmount {directory}    Remove: make clean-quickstart");
    Ok(())
}

fn clean(quickstart: &Quickstart) -> Result<()> {
    output(quickstart.marram(&["unmount"]).arg(&quickstart.pool))?;
    std::fs::remove_file(&quickstart.pool).context(|| quickstart.pool.display())?;
    println!("unmounted and removed {}", quickstart.pool.display());
    Ok(())
}
