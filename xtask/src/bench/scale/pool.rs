//! Our way: forks, diffs and merges of a mount.

use super::contender::Contender;
use super::table::Measured;
use crate::failure::{Result, fail};
use crate::process::text;
use crate::subject::{Making, Marram, Subject};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

pub(super) struct Pool {
    mount: Marram,
    tree: PathBuf,
}

impl Pool {
    pub(super) fn make(folder: &Path, files: u64) -> Result<Self> {
        let making = Making { on_direct_loop: true, ..Making::sized(image_bytes(files)) };
        let mount = Marram::make_on_loop_device(folder, &making)?;
        let tree = mount.root().join("tree");
        std::fs::create_dir(&tree)?;
        Ok(Self { mount, tree })
    }

    fn root(&self) -> String {
        self.mount.root().display().to_string()
    }

    /// Runs a command; its answer, and both times.
    fn ask(&self, words: &[&str]) -> Result<(Value, Measured)> {
        let began = Instant::now();
        let told = text(self.mount.command(&["--json"]).args(words))?;
        let command = began.elapsed();
        let mut told: Value = serde_json::from_str(&told)?;
        let result = told["result"].take();
        let engine = result["engine_nanoseconds"].as_u64().map(Duration::from_nanos);
        Ok((result, Measured { command, engine, bytes: None }))
    }
}

/// Room for a tree of that many files, and for all that is done to it.
pub(super) fn image_bytes(files: u64) -> u64 {
    const BYTES_EACH: u64 = 6 << 10;
    512 * MIB + (files * BYTES_EACH).next_multiple_of(MIB)
}

impl Contender for Pool {
    fn origin(&self) -> &Path {
        &self.tree
    }

    fn settle(&mut self) -> Result<()> {
        self.ask(&["sync", &self.root()]).map(|_| ())
    }

    fn fork(&mut self, name: &str) -> Result<Measured> {
        let tree = self.tree.display().to_string();
        Ok(self.ask(&["fork", &tree, name])?.1)
    }

    fn forked(&self, name: &str) -> PathBuf {
        self.mount.root().join(".marram/forks").join(name)
    }

    fn used_bytes(&mut self) -> Result<u64> {
        self.settle()?;
        self.mount.used_bytes()
    }

    fn diff(&mut self, name: &str) -> Result<Option<(Measured, Option<u64>)>> {
        let forked = self.forked(name).display().to_string();
        let (told, measured) = self.ask(&["diff", &forked])?;
        let Some(differences) = told["differences"].as_array() else {
            return fail(format!("marram diff tells no differences: {told}"));
        };
        Ok(Some((measured, Some(differences.len() as u64))))
    }

    fn merge(&mut self, name: &str) -> Result<Option<Measured>> {
        let root = self.root();
        Ok(Some(self.ask(&["merge", &root, "--fork", name])?.1))
    }

    fn snapshot(&mut self, name: &str) -> Result<Option<Measured>> {
        let target = format!("{}@{name}", self.root());
        Ok(Some(self.ask(&["snapshot", &target])?.1))
    }

    fn rollback(&mut self, name: &str) -> Result<Option<Measured>> {
        let target = format!("{}@{name}", self.root());
        Ok(Some(self.ask(&["rollback", &target])?.1))
    }

    fn rollback_directory(&mut self, name: &str) -> Result<Option<Measured>> {
        let target = format!("{}@{name}", self.tree.display());
        Ok(Some(self.ask(&["rollback", &target])?.1))
    }

    fn drop_fork(&mut self, name: &str) -> Result<()> {
        let root = self.root();
        self.ask(&["destroy", "fork", "--yes", &root, name]).map(|_| ())
    }

    fn end(&mut self) -> Result<()> {
        self.mount.unmount()?;
        self.mount.check()
    }
}
