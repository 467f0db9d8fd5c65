//! Databases: SQLite's single inserts, and pgbench on PostgreSQL.

use super::super::line::{Ending, Line, Unit};
use super::super::stage::Stage;
use crate::sync::case::JournalMode;
use crate::sync::inserts;
use marram_lab::failure::{Context, Result};
use marram_lab::postgres::Database;
use marram_lab::process::require;
use std::time::Duration;

/// The same numbers in every run.
const SEED: u64 = 1;

pub(super) fn run_all(stage: &mut Stage<'_>) -> Result<()> {
    let seconds = stage.scaled(10, 1);
    for (key, mode, words) in [
        ("sqlite_wal", JournalMode::Wal, "write-ahead log"),
        ("sqlite_delete", JournalMode::Delete, "rollback journal"),
    ] {
        let folder = stage.folder(key)?;
        let title = format!("SQLite: single inserts, synchronous=FULL, {words}");
        let line = Line::new(key, title, Unit::PerSecond, Ending::EachSynced);
        stage.rate(line, || {
            let times = inserts::run(&folder, mode, Duration::from_secs(seconds))?;
            Ok(times.len() as f64 / times.iter().sum::<Duration>().as_secs_f64())
        })?;
        std::fs::remove_dir_all(&folder)?;
        stage.settle()?;
    }
    pgbench(stage)
}

fn pgbench(stage: &mut Stage<'_>) -> Result<()> {
    require(&[("pg_ctlcluster", "postgresql"), ("setpriv", "util-linux")])?;
    let (seconds, scale) = (stage.scaled(30, 2), stage.scaled(20, 1));
    let folder = stage.folder("postgres")?;
    let database = Database::make(&folder, &stage.host().join("postgres"), SEED, scale)?;
    stage.settle()?;
    let title = format!("pgbench: scale {scale}, four clients, {seconds} s");
    let line = Line::new("pgbench", title, Unit::PerSecond, Ending::EachSynced);
    stage.rate(line, || transactions_per_second(&database.bench(seconds)?))
}

/// `tps = 634.514023 (without initial connection time)`
fn transactions_per_second(said: &str) -> Result<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix("tps = "));
    let word = line.and_then(|line| line.split(' ').next()).unwrap_or_default();
    word.parse().context(|| format!("pgbench printed no rate: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_pgbench_is_found_among_its_words() {
        let said = "scaling factor: 20\nlatency average = 6.304 ms\n\
                    initial connection time = 9.000 ms\n\
                    tps = 634.514023 (without initial connection time)\n";
        assert!((transactions_per_second(said).expect("a rate") - 634.514_023).abs() < 1e-9);
        assert!(transactions_per_second("number of clients: 4\n").is_err());
    }
}
