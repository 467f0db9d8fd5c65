//! A machine with emulated memory that keeps what is stored: QEMU with Debian's kernel, two
//! NVDIMMs and a virtio-pmem device, whose contents are files of the host.

use marram_lab::failure::{Context, Failure, Result, fail};
use marram_lab::process::{OwnedChild, command, run, text};
use marram_lab::project;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The package that depends on Debian's newest kernel.
const KERNEL: &str = "linux-image-amd64";
/// The kernel's modules that the guest loads, with what they need.
const MODULES: [&str; 9] = [
    "nfit",
    "nd_pmem",
    "device_dax",
    "dax_pmem",
    "virtio_pci",
    "virtio_pmem",
    "crc32c_generic",
    "ext4",
    "fuse",
];
/// Programs of the host that the guest has, beside the one under test.
const PROGRAMS: [&str; 3] = ["/bin/busybox", "/usr/bin/ndctl", "/sbin/mkfs.ext4"];
/// Bytes of each memory.
const MEMORY_BYTES: u64 = 256 << 20;
/// The names of the files that are the memory.
const MEMORIES: [&str; 3] = ["file-memory", "device-memory", "virtio-memory"];

/// Whether the caches of the processor survive a power cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Caches {
    Lost,
    Kept,
}

/// What a machine is made of: it lasts while power comes and goes.
pub(super) struct Parts {
    folder: PathBuf,
    kernel: PathBuf,
}

impl Parts {
    /// The kernel, a first file system with `binary` and the script, and empty memory.
    pub(super) fn make(folder: &Path, binary: &Path, script: &str) -> Result<Parts> {
        let kernel = kernel()?;
        let root = folder.join("guest");
        fs::create_dir_all(root.join("bin"))?;
        fs::write(root.join("init"), script)?;
        run(command(&["chmod", "755"]).arg(root.join("init")))?;
        for program in PROGRAMS.map(Path::new).into_iter().chain([binary]) {
            copy_program(program, &root)?;
        }
        copy_modules(&kernel, &root.join("modules"))?;
        let mut pack = command(&["sh", "-c", "find . | cpio --quiet -o -H newc > ../initial"]);
        run(pack.current_dir(&root))?;
        for memory in MEMORIES {
            File::create_new(folder.join(memory))?.set_len(MEMORY_BYTES)?;
        }
        Ok(Parts { folder: folder.to_owned(), kernel })
    }

    /// Power comes: the kernel's command line has these words, which the script sees as variables.
    pub(super) fn start(&self, caches: Caches, words: &[String]) -> Result<Machine> {
        let machine = match caches {
            Caches::Lost => "q35,nvdimm=on,nvdimm-persistence=mem-ctrl",
            Caches::Kept => "q35,nvdimm=on,nvdimm-persistence=cpu",
        };
        // Emulated, since not every machine can virtualise: `max` has `clwb`.
        let fixed = "-accel tcg,thread=multi -cpu max -smp 2 -m 768M,slots=4,maxmem=4G -nodefaults \
                     -vga none -display none -serial stdio -no-reboot";
        let mut qemu = command(&["qemu-system-x86_64", "-machine", machine]);
        qemu.args(fixed.split_whitespace());
        qemu.arg("-kernel").arg(vmlinuz(&self.kernel)?);
        qemu.arg("-initrd").arg(self.folder.join("initial"));
        let line = format!("console=ttyS0 quiet panic=1 {}", words.join(" "));
        qemu.args(["-append", &line]);
        for (memory, device) in MEMORIES.iter().zip(["nvdimm", "nvdimm", "virtio-pmem-pci"]) {
            let path = self.folder.join(memory);
            let backend = "memory-backend-file,share=on";
            let backend = format!("{backend},id={memory},size={MEMORY_BYTES},mem-path=");
            qemu.arg("-object").arg([backend.as_ref(), path.as_os_str()].join("".as_ref()));
            qemu.args(["-device", &format!("{device},memdev={memory},id=of-{memory}")]);
        }
        let log = File::create(self.folder.join("qemu.log"))?;
        qemu.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut qemu = OwnedChild::start(&mut qemu)?;
        let Some(console) = qemu.take_output() else { return fail("QEMU has no console") };
        let (send, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(console).split(b'\n').map_while(std::io::Result::ok) {
                let line = String::from_utf8_lossy(&line).trim().to_owned();
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Machine { qemu, said })
    }
}

/// A machine that runs.
pub(super) struct Machine {
    qemu: OwnedChild,
    said: Receiver<String>,
}

impl Machine {
    /// Gives each line of the console to `hear`, until that says that it has heard enough.
    pub(super) fn hear(
        &self,
        limit: Duration,
        mut hear: impl FnMut(&str) -> Result<bool>,
    ) -> Result<()> {
        let began = Instant::now();
        let mut last = String::from("nothing");
        loop {
            let left = limit.saturating_sub(began.elapsed());
            let line = self.said.recv_timeout(left).map_err(|ended| match ended {
                RecvTimeoutError::Timeout => {
                    Failure::new(format!("not within {limit:?}; the last line was: {last}"))
                }
                RecvTimeoutError::Disconnected => {
                    Failure::new(format!("the machine has ended; the last line was: {last}"))
                }
            })?;
            if hear(&line)? {
                return Ok(());
            }
            last = line;
        }
    }

    /// Power goes. Gives the lines that were still on their way to `hear`.
    pub(super) fn cut_power(mut self, mut hear: impl FnMut(&str) -> Result<bool>) -> Result<()> {
        self.qemu.kill()?;
        for line in self.said {
            hear(&line)?;
        }
        Ok(())
    }

    /// Waits until the machine has turned itself off.
    pub(super) fn wait(mut self, limit: Duration) -> Result<()> {
        self.qemu.wait(limit).map(drop)
    }
}

/// Debian's kernel, unpacked and not installed, kept under `target/inputs`.
fn kernel() -> Result<PathBuf> {
    let folder = project::target().join("inputs/kernel");
    if folder.is_dir() {
        return Ok(folder);
    }
    let dependencies = text(&mut command(&["apt-cache", "depends", "--important", KERNEL]))?;
    let mut words = dependencies.split_whitespace();
    let package = words.find(|word| word.starts_with("linux-image-") && *word != KERNEL);
    let Some(package) = package else {
        return fail(format!("no kernel in the package {KERNEL}: is this Debian?"));
    };
    let inputs = project::target().join("inputs");
    fs::create_dir_all(&inputs)?;
    let fresh = tempfile::Builder::new().prefix("making").tempdir_in(&inputs)?;
    run(command(&["apt-get", "download", "-qq", package]).current_dir(fresh.path()))?;
    let mut unpack = command(&["sh", "-c", "dpkg-deb -x *.deb . && rm *.deb"]);
    run(unpack.current_dir(fresh.path()))?;
    let version = version(fresh.path())?;
    run(command(&["depmod", "-b"]).arg(fresh.path()).arg(version))?;
    fs::rename(fresh.keep(), &folder)?;
    Ok(folder)
}

/// The one entry of a folder.
fn only_entry(folder: &Path) -> Result<fs::DirEntry> {
    let entry = fs::read_dir(folder).context(|| folder.display().to_string())?.next();
    Ok(entry.ok_or_else(|| Failure::new(format!("nothing in {}", folder.display())))??)
}

fn version(kernel: &Path) -> Result<String> {
    let entry = only_entry(&kernel.join("lib/modules"))?;
    Ok(entry.file_name().to_string_lossy().into_owned())
}

fn vmlinuz(kernel: &Path) -> Result<PathBuf> {
    Ok(kernel.join("boot").join(format!("vmlinuz-{}", version(kernel)?)))
}

/// Copies a program with the libraries that it is linked with.
fn copy_program(program: &Path, root: &Path) -> Result<()> {
    let Some(name) = program.file_name() else { return fail("a program without a name") };
    fs::copy(program, root.join("bin").join(name)).context(|| program.display().to_string())?;
    // A static program has none, and `ldd` fails on it.
    let libraries = text(command(&["ldd"]).arg(program)).unwrap_or_default();
    for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        let copy = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().unwrap_or(root))?;
        fs::copy(library, copy)?;
    }
    Ok(())
}

/// Copies the modules, numbered in the order in which they can be loaded.
fn copy_modules(kernel: &Path, to: &Path) -> Result<()> {
    let modules = kernel.join("lib/modules").join(version(kernel)?);
    let list = fs::read_to_string(modules.join("modules.dep"))?;
    let mut order: Vec<&str> = Vec::new();
    for module in MODULES {
        let names_it = |line: &&str| {
            let path = line.split(':').next().unwrap_or_default();
            let name = path.rsplit('/').next().unwrap_or_default();
            name.trim_end_matches(".ko").replace('-', "_") == module
        };
        let Some(line) = list.lines().find(names_it) else {
            return fail(format!("no module {module} in {}", modules.display()));
        };
        let needed: Vec<&str> = line.split([':', ' ']).filter(|word| !word.is_empty()).collect();
        order.extend(needed.iter().rev());
    }
    fs::create_dir_all(to)?;
    let mut copied = BTreeSet::new();
    for path in order.into_iter().filter(|path| copied.insert(*path)) {
        let name = path.rsplit('/').next().unwrap_or_default();
        let number = fs::read_dir(to)?.count();
        fs::copy(modules.join(path), to.join(format!("{number:03}-{name}")))?;
    }
    Ok(())
}
