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

/// The release binary, built now unless `MARRAM_BINARY` names another one.
pub fn release_binary() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("MARRAM_BINARY") {
        let named = PathBuf::from(named);
        return named.canonicalize().context(|| {
            format!("MARRAM_BINARY names `{}`, which cannot be found", named.display())
        });
    }
    run_shown(&mut cargo(&["build", "--release", "--package", "marram", "--quiet"]))?;
    let binary = target().join("release/marram");
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
