//! What builds and installs take, fetched once and kept under `target/inputs`.

use marram_lab::failure::{Context, Result};
use marram_lab::process::{command, run};
use marram_lab::project;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that cargo builds.
pub(super) const CRATE: &str = "raced";

/// What `npm ci` goes by.
pub(super) const NODE_FILES: [&str; 2] = ["package.json", "package-lock.json"];

const MANIFEST: &str = "[package]\nname = \"raced\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n\
    [workspace]\n\n[dependencies]\nclap = { version = \"4\", features = [\"derive\"] }\n\
    serde = { version = \"1\", features = [\"derive\"] }\nserde_json = \"1\"\ntoml = \"0.9\"\n";
const PROGRAM: &str =
    "fn main() {\n    println!(\"{}\", serde_json::json!({\"built\": true}));\n}\n";
const VENDORED: &str = "[source.crates-io]\nreplace-with = \"vendored\"\n\
    [source.vendored]\ndirectory = \"vendor\"\n";

/// Packages of npm and of Python: the short form has small ones.
const NODE: &str = "react-scripts";
const NODE_QUICK: &str = "express";
const PYTHON: [&str; 3] = ["pygments", "django", "sympy"];

/// A folder on the host with all of it.
pub(super) struct Inputs {
    folder: PathBuf,
    is_quick: bool,
}

impl Inputs {
    /// Fetches what is not there yet.
    pub(super) fn prepare(is_quick: bool) -> Result<Self> {
        let name = if is_quick { "builds-quick" } else { "builds-whole" };
        let inputs = project::target().join("inputs");
        let made = Self { folder: inputs.join(name), is_quick };
        if made.folder.is_dir() {
            return Ok(made);
        }
        std::fs::create_dir_all(&inputs)?;
        let fresh = tempfile::Builder::new().prefix("making").tempdir_in(&inputs)?;
        println!("fetching what is built and installed (once)");
        let making = Self { folder: fresh.path().to_owned(), is_quick };
        making.fetch_crates().context(|| "crates")?;
        making.fetch_node().context(|| "packages of npm")?;
        making.fetch_python().context(|| "packages of Python")?;
        std::fs::rename(fresh.keep(), &made.folder)?;
        Ok(made)
    }

    /// The archive of the crate and all that it depends on.
    pub(super) fn crates(&self) -> PathBuf {
        self.folder.join("crates.tar")
    }

    /// The folder of npm's files.
    pub(super) fn node(&self) -> PathBuf {
        self.folder.join("node")
    }

    /// What npm has fetched.
    pub(super) fn node_cache(&self) -> PathBuf {
        self.folder.join("node-cache")
    }

    /// The folder of Python's packages.
    pub(super) fn wheels(&self) -> PathBuf {
        self.folder.join("wheels")
    }

    /// What npm installs.
    pub(super) fn node_package(&self) -> &'static str {
        if self.is_quick { NODE_QUICK } else { NODE }
    }

    /// What pip installs.
    pub(super) fn python_packages(&self) -> &'static [&'static str] {
        if self.is_quick { &PYTHON[..1] } else { &PYTHON }
    }

    fn fetch_crates(&self) -> Result<()> {
        let place = self.folder.join("crate");
        std::fs::create_dir_all(place.join("src"))?;
        std::fs::create_dir(place.join(".cargo"))?;
        std::fs::write(place.join("Cargo.toml"), MANIFEST)?;
        std::fs::write(place.join("src/main.rs"), PROGRAM)?;
        run(command(&["cargo", "vendor", "--quiet", "vendor"]).current_dir(&place))?;
        std::fs::write(place.join(".cargo/config.toml"), VENDORED)?;
        run(command(&["tar", "--sort=name", "-cf"])
            .arg(self.crates())
            .arg("-C")
            .arg(&place)
            .arg("."))
    }

    fn fetch_node(&self) -> Result<()> {
        let place = self.node();
        std::fs::create_dir(&place)?;
        std::fs::write(place.join("package.json"), "{\"name\": \"raced\", \"private\": true}\n")?;
        run(npm(&place, &self.node_cache()).args(["install", self.node_package()]))?;
        run(command(&["rm", "-rf"]).arg(place.join("node_modules")))
    }

    /// By the pip of an environment of its own: the system's Python may have none.
    fn fetch_python(&self) -> Result<()> {
        let environment = self.folder.join("environment");
        run(command(&["python3", "-m", "venv"]).arg(&environment))?;
        let mut pip = Command::new(environment.join("bin/pip"));
        run(pip
            .args(["download", "--quiet", "--dest"])
            .arg(self.wheels())
            .args(self.python_packages()))?;
        run(command(&["rm", "-rf"]).arg(environment))
    }
}

/// npm in `place` with a cache of its own.
pub(super) fn npm(place: &Path, cache: &Path) -> Command {
    let mut npm = command(&["npm", "--no-audit", "--no-fund", "--ignore-scripts"]);
    // Without the places in the lock file it would ask the registry for them, cache or not.
    npm.arg("--omit-lockfile-registry-resolved=false");
    npm.args(["--loglevel=error", "--cache"]).arg(cache).current_dir(place);
    npm
}
