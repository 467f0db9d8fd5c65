//! Package managers on the mount: a virtual environment of Python with pip, npm, and in the long
//! form a Debian root made by debootstrap with apt in it.
//!
//! They unpack many small files, rename and link them, sync them, set modes and owners, and run
//! what they have installed. Packages come from wherever the system's own settings say.

use super::{GIB, Setting, step};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, require, run, text};
use marram_lab::subject::{Making, Subject, make};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages of Python: the short form takes the first one.
const PYTHON: [&str; 4] = ["pygments", "django", "numpy", "sympy"];

/// Packages of npm: the short form takes the first one, the long form some 3,500 in all.
const NODE: [&str; 7] =
    ["express", "react-scripts", "gatsby-cli", "@angular/cli", "@nestjs/cli", "nuxt", "@vue/cli"];

/// What apt installs in the Debian root: a little of everything, with scripts of its own.
const DEBIAN: [&str; 3] = ["git", "openssh-client", "python3-minimal"];

/// All that the form has, run again after a remount.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    require(&[("python3", "python3"), ("npm", "npm"), ("node", "nodejs")])?;
    if !setting.is_short {
        require(&[("debootstrap", "debootstrap"), ("chroot", "coreutils")])?;
    }
    let mut making = Making::sized(12 * GIB);
    if setting.kind.is_marram() {
        making.mount_words =
            ["-o", "suid,dev,allow_other,default_permissions"].map(String::from).into();
    }
    let mut subject = make(setting.kind, &setting.folder.join("subject"), &making)?;
    let count = |all: usize| if setting.is_short { 1 } else { all };
    let (python, node) = (&PYTHON[..count(PYTHON.len())], &NODE[..count(NODE.len())]);
    make_environment(subject.root(), python)?;
    make_modules(subject.root(), node)?;
    if !setting.is_short {
        make_debian(subject.root())?;
    }
    subject.remount()?;
    judge(subject.as_ref(), python, node)?;
    if !setting.is_short {
        use_debian(subject.root())?;
    }
    step("all of it runs after a remount");
    subject.unmount()?;
    subject.check()
}

fn make_environment(root: &Path, packages: &[&str]) -> Result<()> {
    let environment = root.join("python");
    run(command(&["python3", "-m", "venv"]).arg(&environment))?;
    let mut pip = Command::new(environment.join("bin/pip"));
    run(pip.args(["install", "--quiet", "--no-cache-dir"]).args(packages))?;
    step(&format!("pip install {}: {} files", packages.join(" "), files(&environment)?));
    Ok(())
}

/// A project for each package: together they would want different versions of the same one, and
/// npm itself would then call its tree wrong.
fn make_modules(root: &Path, packages: &[&str]) -> Result<()> {
    let mut installed = 0;
    for package in packages {
        let project = project_of(root, package);
        std::fs::create_dir_all(&project)?;
        std::fs::write(project.join("package.json"), "{\"name\": \"trial\", \"private\": true}\n")?;
        let mut npm = command(&["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]);
        npm.arg("--cache").arg(root.join("npm-cache")).args(["--ignore-scripts", package]);
        run(npm.current_dir(&project))?;
        let lock = std::fs::read(project.join("node_modules/.package-lock.json"))?;
        let lock: serde_json::Value = serde_json::from_slice(&lock)?;
        installed += lock["packages"].as_object().map_or(0, serde_json::Map::len);
    }
    let files = files(&root.join("node"))?;
    step(&format!("npm install {}: {installed} packages, {files} files", packages.join(" ")));
    Ok(())
}

fn project_of(root: &Path, package: &str) -> PathBuf {
    root.join("node").join(package.replace('/', "-"))
}

/// What was installed is whole, by the word of each package manager, and runs.
fn judge(subject: &dyn Subject, python: &[&str], node: &[&str]) -> Result<()> {
    let bin = subject.root().join("python/bin");
    run(Command::new(bin.join("pip")).arg("check"))?;
    let imports: Vec<String> = python.iter().map(|name| format!("import {name}")).collect();
    run(Command::new(bin.join("python")).args(["-c", &imports.join("; ")]))?;
    for package in node {
        let project = project_of(subject.root(), package);
        run(command(&["npm", "ls", "--all", "--silent"]).current_dir(&project))?;
    }
    let project = project_of(subject.root(), node[0]);
    let script = format!("require('{}')", node[0]);
    run(command(&["node", "-e", &script]).current_dir(&project))
}

fn make_debian(root: &Path) -> Result<()> {
    let mut targets = command(&["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)"]);
    let source = text(targets.arg("Created-By: Packages"))?;
    let Some((suite, mirror)) = source.lines().next().and_then(|line| line.split_once(' ')) else {
        return fail("apt knows no source of packages");
    };
    let debian = root.join("debian");
    let mut debootstrap = command(&["debootstrap", "--variant=minbase", suite]);
    run(debootstrap.arg(&debian).arg(mirror)).context(|| "debootstrap")?;
    step(&format!("debootstrap: {} files", files(&debian)?));
    let certificates = Path::new("/etc/ssl/certs/ca-certificates.crt");
    if certificates.is_file() {
        std::fs::create_dir_all(debian.join("etc/ssl/certs"))?;
        std::fs::copy(certificates, debian.join("etc/ssl/certs/ca-certificates.crt"))?;
    }
    let apt = |words: &[&str]| {
        let mut apt = command(&["chroot"]);
        apt.arg(&debian).args(["apt-get", "-qq"]).args(words);
        run(apt.env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], &DEBIAN[..]].concat())?;
    step(&format!("apt-get install {}: {} files", DEBIAN.join(" "), files(&debian)?));
    Ok(())
}

/// Every file that dpkg installed has the checksum that dpkg noted.
fn use_debian(root: &Path) -> Result<()> {
    let debian = root.join("debian");
    run(command(&["chroot"]).arg(&debian).args(["dpkg", "--audit"]))?;
    let verified = text(command(&["chroot"]).arg(&debian).args(["dpkg", "--verify"]))?;
    if !verified.is_empty() {
        return fail(format!("dpkg --verify:\n{verified}"));
    }
    run(command(&["chroot"]).arg(&debian).args(["git", "--version"]))
}

fn files(folder: &Path) -> Result<u64> {
    let count = text(command(&["sh", "-c", "find . | wc -l"]).current_dir(folder))?;
    count.parse().context(|| format!("a count of files: {count}"))
}
