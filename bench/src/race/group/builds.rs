//! Builds and installs: the Linux kernel by make, in part and whole, a small graph of crates by
//! cargo, what npm and pip install. All that they fetch was fetched once, to the host, by their own
//! clients: nothing here waits for a network.

mod inputs;

use super::super::line::{Ending, Line};
use super::super::stage::Stage;
use inputs::Inputs;
use marram_lab::failure::{Result, fail};
use marram_lab::inputs::linux_tree;
use marram_lab::process::{command, require, run};
use std::path::Path;
use std::process::Command;

/// What is built of the kernel, in its smallest configuration: a part that many repetitions can
/// afford, and then all that is left, but in the short form.
const KERNEL_PARTS: [&str; 2] = ["lib/", "kernel/sched/"];
const KERNEL: &str = "vmlinux";

pub(super) fn run_all(stage: &mut Stage<'_>) -> Result<()> {
    require(&[("make", "build-essential"), ("flex", "flex"), ("bison", "bison"), ("bc", "bc")])?;
    require(&[("npm", "npm"), ("node", "nodejs"), ("python3", "python3-venv")])?;
    let inputs = Inputs::prepare(stage.is_quick())?;
    kernel(stage)?;
    cargo(stage, &inputs)?;
    npm(stage, &inputs)?;
    pip(stage, &inputs)
}

/// The whole tree, also in the short form: its make wants all of it.
fn kernel(stage: &mut Stage<'_>) -> Result<()> {
    let linux = linux_tree(false)?;
    let place = stage.folder("kernel")?;
    run(command(&["tar", "-xPf"]).arg(&linux.archive).arg("-C").arg(&place))?;
    let top = place.join(linux.top);
    run(&mut make(&top, &["tinyconfig"]))?;
    stage.settle()?;
    let parts = if stage.is_quick() { &KERNEL_PARTS[..1] } else { &KERNEL_PARTS[..] };
    let title = format!("make of {} in the tree", parts.join(" and "));
    let line = Line::seconds("c", title, Ending::Nothing);
    stage.time(line, || run(make(&top, &["-j2"]).args(parts)))?;
    is_there(&top.join("lib/built-in.a"))?;
    if !stage.is_quick() {
        let title = "make of the rest of the smallest kernel, and linking it";
        stage.time(Line::seconds("kernel", title, Ending::Nothing), || {
            run(make(&top, &["-j2"]).arg(KERNEL))
        })?;
        is_there(&top.join(KERNEL))?;
    }
    run(command(&["rm", "-rf"]).arg(&place))?;
    stage.settle()
}

fn make(top: &Path, words: &[&str]) -> Command {
    let mut make = command(&["make", "--silent"]);
    make.current_dir(top).args(words);
    make
}

fn cargo(stage: &mut Stage<'_>, inputs: &Inputs) -> Result<()> {
    let place = stage.folder("cargo")?;
    run(command(&["tar", "-xf"]).arg(inputs.crates()).arg("-C").arg(&place))?;
    stage.settle()?;
    let line = Line::seconds("cargo", "cargo build of a graph of crates", Ending::Nothing);
    stage.time(line, || {
        let mut cargo = command(&["cargo", "build", "--offline", "--locked", "--quiet"]);
        run(cargo.current_dir(&place).env("CARGO_TARGET_DIR", place.join("target")))
    })?;
    is_there(&place.join("target/debug").join(inputs::CRATE))?;
    stage.settle()
}

fn npm(stage: &mut Stage<'_>, inputs: &Inputs) -> Result<()> {
    let place = stage.folder("npm")?;
    for name in inputs::NODE_FILES {
        std::fs::copy(inputs.node().join(name), place.join(name))?;
    }
    let title = format!("npm ci of {} from its cache", inputs.node_package());
    stage.time(Line::seconds("npm", title, Ending::Nothing), || {
        run(inputs::npm(&place, &inputs.node_cache()).args(["ci", "--offline"]))
    })?;
    is_there(&place.join("node_modules").join(inputs.node_package()))?;
    stage.settle()
}

fn pip(stage: &mut Stage<'_>, inputs: &Inputs) -> Result<()> {
    let place = stage.place("pip");
    let packages = inputs.python_packages();
    let title = format!("python3 -m venv, pip install {}", packages.join(" "));
    stage.time(Line::seconds("pip", title, Ending::Nothing), || {
        run(command(&["python3", "-m", "venv"]).arg(&place))?;
        let mut pip = Command::new(place.join("bin/pip"));
        pip.args(["install", "--quiet", "--no-cache-dir", "--no-index", "--find-links"]);
        run(pip.arg(inputs.wheels()).args(packages))
    })?;
    run(Command::new(place.join("bin/pip")).arg("check"))?;
    stage.settle()
}

fn is_there(path: &Path) -> Result<()> {
    if path.exists() { Ok(()) } else { fail(format!("the build made no {}", path.display())) }
}
