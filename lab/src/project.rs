//! Where things are in the project, and what is built where.

use crate::failure::{Context, Result, fail};
use crate::process::{command, run_shown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the workspace.
pub fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask is a folder of the workspace").to_owned()
}

/// The folder of build output: `CARGO_TARGET_DIR`, else `target`.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// `cargo` with these arguments, in the root of the workspace.
pub fn cargo(words: &[&str]) -> Command {
    let mut cargo = command(&["cargo"]);
    cargo.args(words).current_dir(root());
    cargo
}

/// The folder of a build of the whole workspace with all its tests, if the chore is part of one:
/// `MARRAM_BUILT` names it. What it has is not built again.
///
/// A package that is built by itself has fewer features of its dependencies, and all of them are
/// built once more. CI can pay that once only.
pub fn built() -> Option<PathBuf> {
    std::env::var_os("MARRAM_BUILT").map(PathBuf::from)
}

/// An example of this package, ready for its words: of the [build](built) that there is, or built
/// now with this profile.
pub fn example(package: &str, name: &str, profile: &str) -> Command {
    if let Some(built) = built() {
        return command(&[&built.join("examples").join(name).to_string_lossy()]);
    }
    let mut cargo = cargo(&["run", "--quiet", "--profile", profile]);
    cargo.args(["--package", package, "--example", name, "--"]);
    cargo
}

/// `cargo test` of what these words name: with them, or of all packages and with the profile of the
/// [build](built) that there is.
pub fn tests(named: &[&str]) -> Command {
    let mut cargo = cargo(&["test", "--quiet", "--locked"]);
    match built().as_deref().and_then(Path::file_name) {
        Some(profile) => cargo.args(["--workspace", "--profile"]).arg(profile),
        None => cargo.args(named),
    };
    cargo
}

/// The release binary, built now unless `MARRAM_BINARY` names another one,
/// or that of the [build](built) that there is.
pub fn release_binary() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("MARRAM_BINARY") {
        let named = PathBuf::from(named);
        return named.canonicalize().context(|| {
            format!("MARRAM_BINARY names `{}`, which cannot be found", named.display())
        });
    }
    let binary = match built() {
        Some(built) => built.join("marram"),
        None => {
            run_shown(&mut cargo(&["build", "--release", "--package", "marram", "--quiet"]))?;
            target().join("release/marram")
        }
    };
    if binary.is_file() { Ok(binary) } else { fail(format!("no {}", binary.display())) }
}

/// A tool of the crate registry at this exact version, from `target/tools`, the path, or installed
/// now into `target/tools` with these words for `cargo install`.
pub fn registry_tool(name: &str, version: &str, options: &[&str]) -> Result<PathBuf> {
    let ours = target().join("tools/bin").join(name);
    for candidate in [&ours, &PathBuf::from(name)] {
        if version_of(candidate).is_some_and(|said| said.contains(version)) {
            return Ok(candidate.clone());
        }
    }
    let tools = target().join("tools");
    println!("installing {name} {version} into {}", tools.display());
    let package = format!("{name}@{version}");
    let mut install = cargo(&["install", "--quiet", "--locked", "--force"]);
    run_shown(install.args(options).arg("--root").arg(tools).arg(package))?;
    Ok(ours)
}

fn version_of(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
