//! PostgreSQL: initdb, pgbench, SIGKILL of the server, then of the daemon under it, recovery.
//!
//! pgbench keeps four sums equal in every transaction, and its log tells which transactions were
//! acknowledged: after each kill the sums are equal, no acknowledged row of the history is missing,
//! and `pg_amcheck` finds heap and indexes sound. Page checksums are on.

use super::{GIB, Setting, step};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::postgres::Database;
use marram_lab::process::{OwnedChild, require, run};
use marram_lab::subject::{Kind, Making, Marram, Subject, make};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::time::Duration;

/// Kills and recoveries.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    require(&[("pg_ctlcluster", "postgresql"), ("setpriv", "util-linux")])?;
    let mut making = Making::sized(4 * GIB);
    if setting.kind.is_marram() {
        making.mount_words = ["-o", "allow_other"].map(String::from).into();
    }
    let folder = setting.folder.join("subject");
    let seconds = setting.scaled(30, 3);
    if setting.kind == Kind::Marram {
        let mut marram = Marram::make(&folder, &making)?;
        let database = make_database(setting, marram.root())?;
        survives_its_own_death(&database, seconds)?;
        survives_the_daemon(&database, &mut marram, seconds)?;
        marram.unmount()?;
        return marram.check();
    }
    let mut subject = make(setting.kind, &folder, &making)?;
    let database = make_database(setting, subject.root())?;
    survives_its_own_death(&database, seconds)?;
    subject.unmount()?;
    subject.check()
}

fn make_database(setting: &Setting, root: &Path) -> Result<Database> {
    let scale = setting.scaled(20, 2);
    let database = Database::make(root, &setting.folder.join("host"), setting.seed, scale)?;
    step(&format!("initdb, and pgbench tables at scale {scale}"));
    Ok(database)
}

fn survives_its_own_death(database: &Database, seconds: u64) -> Result<()> {
    let before = database.history()?;
    let server = database.start()?;
    let load = database.load("first")?;
    std::thread::sleep(Duration::from_secs(seconds));
    kill(server)?;
    drop(load);
    let rows = judge(database, before, "first")?;
    step(&format!("the server killed: recovered, sound, {rows} rows of history"));
    Ok(())
}

fn survives_the_daemon(database: &Database, marram: &mut Marram, seconds: u64) -> Result<()> {
    let before = database.history()?;
    let server = database.start()?;
    let load = database.load("second")?;
    std::thread::sleep(Duration::from_secs(seconds));
    marram.kill()?;
    kill(server)?;
    drop(load);
    marram.mount()?;
    let rows = judge(database, before, "second")?;
    step(&format!("the daemon killed: recovered, sound, {rows} rows of history"));
    Ok(())
}

/// Starts the server, which recovers, and checks all; returns the rows of the history.
fn judge(database: &Database, before: u64, name: &str) -> Result<u64> {
    let server = database.start()?;
    let sums = database.query(
        "SELECT (SELECT sum(abalance) FROM pgbench_accounts),
                (SELECT sum(bbalance) FROM pgbench_branches),
                (SELECT sum(tbalance) FROM pgbench_tellers),
                (SELECT coalesce(sum(delta), 0) FROM pgbench_history)",
    )?;
    let mut parts = sums.split('|');
    let first = parts.next();
    if !parts.all(|sum| Some(sum) == first) {
        return fail(format!("the sums differ: {sums}"));
    }
    let rows = database.query("SELECT count(*) FROM pgbench_history")?;
    let rows: u64 = rows.parse().context(|| format!("rows of history: {rows}"))?;
    let acknowledged = database.acknowledged(name)?;
    if rows < before + acknowledged {
        let wanted = before + acknowledged;
        return fail(format!("{rows} rows of history, {wanted} were acknowledged"));
    }
    let mut amcheck = database.command("pg_amcheck");
    amcheck.args(["--install-missing", "--heapallindexed", "--parent-check"]);
    run(amcheck.args(["-d", "postgres"]))?;
    database.stop(server)?;
    Ok(rows)
}

/// SIGKILL for the server and all of its processes. One that waits for a lock of another would wait
/// for ever if only some were killed, and hold the mount under it.
pub(super) fn kill(mut server: OwnedChild) -> Result<()> {
    let process = |id: &str| id.parse().ok().and_then(Pid::from_raw);
    let id = server.id().to_string();
    if let Some(server) = process(&id) {
        kill_process(server, Signal::STOP)?; // It starts no more.
    }
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
    server.kill()?;
    for child in children.split_whitespace().filter_map(process) {
        let _has_ended_itself = kill_process(child, Signal::KILL);
    }
    Ok(())
}
