//! Our way: forks, diffs and merges of a mount.

use super::{Contender, Measured};
use marram_lab::failure::{Result, fail};
use marram_lab::process::text;
use marram_lab::subject::{Making, Marram, Subject};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A pool, and a tree on its mount.
pub(in super::super) struct Pool {
    mount: Marram,
    tree: PathBuf,
}

impl Pool {
    /// Makes it on a loop device.
    pub(in super::super) fn make(folder: &Path, making: &Making) -> Result<Self> {
        let mount = Marram::make_on_loop_device(folder, making)?;
        let tree = mount.root().join("tree");
        std::fs::create_dir(&tree)?;
        Ok(Self { mount, tree })
    }

    /// What is mounted.
    pub(in super::super) fn mount(&self) -> &Marram {
        &self.mount
    }

    /// The root of the mount, as a word of a command.
    pub(in super::super) fn root(&self) -> String {
        self.mount.root().display().to_string()
    }

    /// Runs a command; its answer, and both times.
    pub(in super::super) fn ask(&self, words: &[&str]) -> Result<(Value, Measured)> {
        let began = Instant::now();
        let told = text(self.mount.command(&["--json"]).args(words))?;
        let command = began.elapsed();
        let mut told: Value = serde_json::from_str(&told)?;
        let result = told["result"].take();
        let engine = result["engine_nanoseconds"].as_u64().map(Duration::from_nanos);
        Ok((result, Measured { engine, ..Measured::command(command) }))
    }
}

impl Contender for Pool {
    fn origin(&self) -> &Path {
        &self.tree
    }

    fn settle(&self) -> Result<()> {
        self.ask(&["sync", &self.root()]).map(|_| ())
    }

    /// `syncfs` gives back what was removed, and that takes a group commit.
    fn commit(&self) -> Result<()> {
        self.mount.sync()
    }

    fn commits(&self) -> Result<Option<u64>> {
        let (told, _) = self.ask(&["status", &self.root()])?;
        Ok(told[0]["group"].as_u64())
    }

    fn fork(&mut self, name: &str) -> Result<Measured> {
        let tree = self.tree.display().to_string();
        Ok(self.ask(&["fork", &tree, name])?.1)
    }

    fn forked(&self, name: &str) -> PathBuf {
        self.mount.root().join(".marram/forks").join(name)
    }

    /// What a commit lets go of comes back with the next ones: after some that are small little is
    /// left that waits.
    fn used_bytes(&self) -> Result<u64> {
        const COMMITS: usize = 3;
        self.settle()?;
        let gone = self.mount.root().join("gone");
        for _ in 0..COMMITS {
            File::create_new(&gone)?;
            std::fs::remove_file(&gone)?;
            self.commit()?;
        }
        self.mount.used_bytes()
    }

    fn written_bytes(&self) -> Result<Option<u64>> {
        Ok(self.mount.traffic()?.written_bytes)
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
