//! A small change in a large file: what a fork, a diff and a merge of it cost.

use super::super::contender::{Contender, Measured, Pool, Way};
use super::super::interruption;
use super::asking::making;
use super::table::Table;
use marram_lab::failure::{Result, fail};
use marram_lab::process::{command, run};
use marram_lab::subject::{self, Kind, Making};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const NAME: &str = "large";
const CHANGED: [u8; 4096] = [b'x'; 4096];

/// On our mount, and by Btrfs with zstd:1, whose stream tells what differs. Both compress: the
/// content is text.
pub(super) fn measure(work: &Path, is_quick: bool, table: &mut Table) -> Result<()> {
    let bytes = if is_quick { 64 * MIB } else { 10 * GIB };
    println!("a change in a file of {} MiB", bytes / MIB);
    let folder = tempfile::Builder::new().prefix("scale").tempdir_in(work)?;
    ours(folder.path(), bytes, table)?;
    drop(folder);
    let folder = tempfile::Builder::new().prefix("scale").tempdir_in(work)?;
    btrfs(folder.path(), bytes, table)
}

fn fill(path: &Path, bytes: u64) -> Result<()> {
    let line = "one line of a text that is repeated until the file is large enough\n";
    let chunk: Vec<u8> =
        line.bytes().cycle().take(usize::try_from(MIB).expect("a chunk fits")).collect();
    let mut file = File::create_new(path)?;
    for _ in 0..bytes / MIB {
        interruption::check()?;
        file.write_all(&chunk)?;
    }
    Ok(file.sync_all()?)
}

fn change(path: &Path, bytes: u64) -> Result<()> {
    let file = File::options().write(true).open(path)?;
    file.write_all_at(&CHANGED, bytes / 2)?;
    Ok(file.sync_all()?)
}

fn ours(folder: &Path, bytes: u64, table: &mut Table) -> Result<()> {
    const FILES: u64 = 1_000_000;
    let mut pool = Pool::make(folder, &making(Way::Marram, FILES))?;
    fill(&pool.origin().join(NAME), bytes)?;
    pool.settle()?;
    table.add_large("a writable second tree", Way::Marram, pool.fork("fork")?);
    change(&pool.forked("fork").join(NAME), bytes)?;
    let Some((told, _)) = pool.diff("fork")? else { return fail("a diff tells something") };
    table.add_large("what differs", Way::Marram, told);
    let Some(merged) = pool.merge("fork")? else { return fail("a merge tells something") };
    table.add_large("brought back", Way::Marram, merged);
    let mut found = [0; CHANGED.len()];
    File::open(pool.origin().join(NAME))?.read_exact_at(&mut found, bytes / 2)?;
    if found != CHANGED {
        return fail("the change was not brought back");
    }
    pool.end()
}

fn btrfs(folder: &Path, bytes: u64, table: &mut Table) -> Result<()> {
    let making = Making { on_direct_loop: true, ..Making::sized(6 * GIB) };
    let mut subject = subject::make(Kind::BtrfsZstd, &folder.join("btrfs"), &making)?;
    let at = |name: &str| subject.root().join(name);
    let snapshot = |words: &[&str], from: &str, to: &str| {
        let began = Instant::now();
        let mut snapshot = command(&["btrfs", "subvolume", "snapshot"]);
        run(snapshot.args(words).arg(at(from)).arg(at(to)))?;
        Ok::<_, marram_lab::failure::Failure>(Measured::command(began.elapsed()))
    };
    run(command(&["btrfs", "subvolume", "create"]).arg(at("tree")))?;
    fill(&at("tree").join(NAME), bytes)?;
    subject.sync()?;
    snapshot(&["-r"], "tree", "base")?;
    table.add_large("a writable second tree", Way::BtrfsSubvolume, snapshot(&[], "tree", "fork")?);
    change(&at("fork").join(NAME), bytes)?;
    let began = Instant::now();
    snapshot(&["-r"], "fork", "state")?;
    let stream = folder.join("stream");
    let mut send = command(&["btrfs", "send", "-q", "-p"]);
    run(send.arg(at("base")).arg(at("state")).arg("-f").arg(&stream))?;
    let sent = Measured {
        bytes: Some(std::fs::metadata(&stream)?.len()),
        ..Measured::command(began.elapsed())
    };
    table.add_large("what differs", Way::BtrfsSubvolume, sent);
    subject.unmount()?;
    subject.check()
}
