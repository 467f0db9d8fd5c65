//! SQLite: a database in one file, for the daemons of one host.
//!
//! The file is in WAL mode: readers do not wait for the writer. An insertion is a transaction that
//! SQLite syncs; other writes are transactions that it syncs with the next insertion, or when they
//! are to be settled: until then a power cut may take them back, the last ones first.

use crate::database::{Change, Database, Guard, Range, Row, Table};
use bytes::Bytes;
use marram_store::{Error, Result};
use parking_lot::{Mutex, MutexGuard};
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params,
};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, fsync, open, statx};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Marks a SQLite file as ours (`PRAGMA application_id`): "Mrrm".
pub const APPLICATION_ID: i32 = 0x4d72_726d;
/// Connections for reading that are kept open.
const READERS_MAX: usize = 16;
/// How long a call waits for another process that writes.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a page: blocks are long, and items of a directory lie together.
const PAGE_BYTES: u32 = 8192;
/// Memory for the pages of a connection, in KiB.
const CACHE_KIBIBYTES: i32 = 8192;
/// Statements that a connection keeps prepared: a few for each table.
const STATEMENTS_MAX: usize = 128;

/// An open SQLite file.
pub struct SqliteDatabase {
    path: PathBuf,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
}

fn failed(error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::NoSpace,
        Some(ErrorCode::ReadOnly) => Error::ReadOnly(format!("SQLite: {error}")),
        _ => Error::Io(format!("SQLite: {error}")),
    }
}

impl SqliteDatabase {
    /// Makes the tables in a new file, or in an empty one.
    ///
    /// # Errors
    /// The file has other tables, or cannot be written.
    pub fn create(path: &Path) -> Result<SqliteDatabase> {
        let connection = Connection::open(path).map_err(failed)?;
        make_tables(&connection, path)?;
        drop(connection);
        SqliteDatabase::open(path)
    }

    /// Opens a file that has the tables.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    pub fn open(path: &Path) -> Result<SqliteDatabase> {
        let writer = connect(path)?;
        Ok(SqliteDatabase {
            path: path.to_owned(),
            writer: Mutex::new(writer),
            readers: Mutex::default(),
        })
    }

    /// Gives `read` a connection of its own, in a transaction.
    fn reading<T>(&self, read: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T> {
        let kept = self.readers.lock().pop();
        let connection = kept.map_or_else(|| connect(&self.path), Ok)?;
        let answer = connection.unchecked_transaction().and_then(|moment| {
            let answer = read(&moment)?;
            moment.finish().map(|()| answer)
        });
        let mut readers = self.readers.lock();
        if answer.is_ok() && readers.len() < READERS_MAX {
            readers.push(connection);
        }
        answer.map_err(failed)
    }

    fn writing(&self, synchronous: &str) -> Result<MutexGuard<'_, Connection>> {
        let writer = self.writer.lock();
        writer.pragma_update(None, "synchronous", synchronous).map_err(failed)?;
        Ok(writer)
    }
}

fn make_tables(connection: &Connection, path: &Path) -> Result<()> {
    let tables = "SELECT count(*) FROM sqlite_schema";
    let count: i64 = connection.query_row(tables, [], |row| row.get(0)).map_err(failed)?;
    if count > 0 {
        let text = format!("{} has tables already: use a new file", path.display());
        return Err(Error::Invalid(text));
    }
    connection.pragma_update(None, "page_size", PAGE_BYTES).map_err(failed)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
    let mut all = format!("BEGIN; PRAGMA application_id = {APPLICATION_ID};");
    for table in Table::ALL.map(Table::name) {
        let columns = "key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL";
        // Long values lie badly in the tree of a table without row numbers.
        let rest = if table == "blocks" || table == "log" { "" } else { " WITHOUT ROWID" };
        all.push_str(&format!("CREATE TABLE {table} ({columns}){rest};"));
    }
    all.push_str("COMMIT;");
    connection.execute_batch(&all).map_err(failed)
}

fn connect(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(BUSY_PATIENCE).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.pragma_update(None, "cache_size", -CACHE_KIBIBYTES).map_err(failed)?;
    // Rows of a hostile file are not to run anything.
    connection.pragma_update(None, "trusted_schema", false).map_err(failed)?;
    Ok(connection)
}

fn change(writer: &Transaction<'_>, change: &Change) -> rusqlite::Result<()> {
    let table = change.table.name();
    match &change.value {
        Some(value) => {
            let text = format!(
                "INSERT INTO {table} (key, value) VALUES (?1, ?2) \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            );
            writer.prepare_cached(&text)?.execute(params![change.key, value])?;
        }
        None => {
            let text = format!("DELETE FROM {table} WHERE key = ?1");
            writer.prepare_cached(&text)?.execute([&change.key])?;
        }
    }
    Ok(())
}

fn insert(writer: &Connection, table: Table, row: (&[u8], &[u8])) -> rusqlite::Result<bool> {
    let text = format!(
        "INSERT INTO {} (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING",
        table.name()
    );
    Ok(writer.prepare_cached(&text)?.execute(params![row.0, row.1])? > 0)
}

/// Makes a step in a transaction in which a guard holds.
fn guarded(
    writer: &mut Connection,
    guard: &Guard,
    step: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<bool>,
) -> Result<bool> {
    // It takes the lock at once: one that reads first may not be let write any more.
    let how = TransactionBehavior::Immediate;
    let made = writer.transaction_with_behavior(how).and_then(|transaction| {
        let made = holds(&transaction, guard)? && step(&transaction)?;
        transaction.commit().map(|()| made)
    });
    made.map_err(failed)
}

fn holds(writer: &Transaction<'_>, guard: &Guard) -> rusqlite::Result<bool> {
    let text = format!("SELECT value FROM {} WHERE key = ?1", guard.table.name());
    let mut statement = writer.prepare_cached(&text)?;
    let found = statement.query_row([&guard.key], |row| row.get::<_, Vec<u8>>(0)).optional()?;
    Ok(found == guard.value)
}

fn rows(reader: &Transaction<'_>, range: &Range) -> rusqlite::Result<Vec<Row>> {
    let order = if range.descending { "DESC" } else { "ASC" };
    let text = format!(
        "SELECT key, value FROM {} WHERE key BETWEEN ?1 AND ?2 ORDER BY key {order} LIMIT ?3",
        range.table.name()
    );
    let limit = i64::try_from(range.limit).unwrap_or(i64::MAX);
    let mut statement = reader.prepare_cached(&text)?;
    let bytes =
        |row: &rusqlite::Row<'_>, column| row.get(column).map(|it: Vec<u8>| Bytes::from(it));
    let rows = statement.query_map(params![range.from, range.to, limit], |row| {
        Ok((bytes(row, 0)?, bytes(row, 1)?))
    })?;
    rows.collect()
}

impl Database for SqliteDatabase {
    fn insert(&self, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        let writer = self.writing("FULL")?;
        insert(&writer, table, (key, value)).map_err(failed)
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        let mut writer = self.writing("NORMAL")?;
        let transaction = writer.transaction().map_err(failed)?;
        changes.iter().try_for_each(|it| change(&transaction, it)).map_err(failed)?;
        transaction.commit().map_err(failed)
    }

    fn read(&self, ranges: &[Range]) -> Result<Vec<Vec<Row>>> {
        self.reading(|moment| ranges.iter().map(|range| rows(moment, range)).collect())
    }

    fn has(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<bool>> {
        let text = format!("SELECT 1 FROM {} WHERE key = ?1", table.name());
        self.reading(|moment| {
            let mut statement = moment.prepare_cached(&text)?;
            let mut is_there = |key: &Vec<u8>| {
                statement.query_row([key], |_| Ok(())).optional().map(|found| found.is_some())
            };
            keys.iter().map(&mut is_there).collect()
        })
    }

    fn insert_if(&self, guard: &Guard, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        let mut writer = self.writing("FULL")?;
        guarded(&mut writer, guard, |writer| insert(writer, table, (key, value)))
    }

    fn write_if(&self, guard: &Guard, changes: &[Change]) -> Result<bool> {
        let mut writer = self.writing("NORMAL")?;
        guarded(&mut writer, guard, |writer| {
            changes.iter().try_for_each(|it| change(writer, it)).map(|()| true)
        })
    }

    /// Syncs the log of SQLite. What is not in it any more has been synced with the database. The
    /// database's own file is never opened here: to close it would let go of SQLite's locks.
    fn settle(&self) -> Result<()> {
        let writer = self.writer.lock();
        // SQLite has followed symbolic links: the log lies beside the file itself.
        let path = writer.path().filter(|path| !path.is_empty()).map(PathBuf::from);
        let mut log = path.unwrap_or_else(|| self.path.clone()).into_os_string();
        log.push("-wal");
        let log = PathBuf::from(log);
        match open(&log, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).and_then(fsync) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(Error::Io(format!("SQLite: cannot sync {}: {error}", log.display()))),
        }
    }

    /// The number of its file, and when that was made. A copy is another file.
    fn identity(&self) -> Result<Vec<u8>> {
        let asked = StatxFlags::INO | StatxFlags::BTIME;
        let found = statx(CWD, &self.path, AtFlags::empty(), asked).map_err(|error| {
            Error::Io(format!("SQLite: cannot look at {}: {error}", self.path.display()))
        })?;
        let mut identity = found.stx_ino.to_le_bytes().to_vec();
        if StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME) {
            identity.extend(found.stx_btime.tv_sec.to_le_bytes());
            identity.extend(found.stx_btime.tv_nsec.to_le_bytes());
        }
        Ok(identity)
    }

    /// Its pages have no checksums: what holds them together is looked at, row by row.
    fn faults(&self) -> Result<Vec<String>> {
        self.reading(|moment| {
            let mut statement = moment.prepare("PRAGMA integrity_check(20)")?;
            let said = statement.query_map([], |row| row.get::<_, String>(0))?;
            let words = |line: rusqlite::Result<String>| line.unwrap_or_else(|it| it.to_string());
            Ok(said.map(words).filter(|line| line != "ok").collect())
        })
    }

    fn bytes(&self) -> Result<u64> {
        self.reading(|moment| {
            let number =
                |name: &str| moment.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            let pages = number("page_count")? - number("freelist_count")?;
            Ok(u64::try_from(pages * number("page_size")?).unwrap_or(0))
        })
    }

    fn engine(&self) -> &'static str {
        "SQLite"
    }
}
