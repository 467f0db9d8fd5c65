//! The statements that are sent.
//!
//! Names are those of the format and of a schema that was checked, so they stand in the texts; all
//! else is handed over as values.

use super::wire::{Step, Value, types};
use crate::database::{Range, Table};
use std::collections::{BTreeMap, BTreeSet};

/// The names of all that lies in a schema: a row without a name if it is empty, none if it is not
/// there.
pub(super) fn schema(name: &str) -> Step<'_> {
    let text = "SELECT relname::text FROM pg_namespace AS n LEFT JOIN pg_class AS c \
                ON c.relnamespace = n.oid AND c.relkind NOT IN ('i', 't') WHERE nspname = $1";
    let values = vec![Value::Bytes(name.as_bytes())];
    Step { text: text.to_owned(), types: &[types::TEXT], values }
}

/// Makes the tables, and the schema if it is not there.
pub(super) fn make_tables(schema: &str, is_there: bool) -> Vec<Step<'static>> {
    let made = (!is_there).then(|| format!("CREATE SCHEMA \"{schema}\""));
    let table = |table: Table| {
        let name = full(schema, table);
        format!("CREATE TABLE {name} (key bytea PRIMARY KEY, value bytea NOT NULL)")
    };
    // Blocks are compressed already.
    let blocks = full(schema, Table::Blocks);
    let plain = format!("ALTER TABLE {blocks} ALTER COLUMN value SET STORAGE EXTERNAL");
    made.into_iter().chain(Table::ALL.map(table)).chain([plain]).map(Step::plain).collect()
}

/// Removes the tables that are there.
pub(super) fn remove_tables(schema: &str) -> Vec<Step<'static>> {
    let one = |table| Step::plain(format!("DROP TABLE IF EXISTS {}", full(schema, table)));
    Table::ALL.map(one).into()
}

/// Removes an empty schema.
pub(super) fn remove_schema(schema: &str) -> Step<'static> {
    Step::plain(format!("DROP SCHEMA IF EXISTS \"{schema}\" RESTRICT"))
}

/// Puts a row if its key is free. Where this was asked before without an answer, a row of the same
/// content is the one that was put then. It is written once more, so that it is as durable as a new
/// one, also on a standby that is waited for.
pub(super) fn insert<'v>(
    schema: &str,
    table: Table,
    (key, value): (&'v [u8], &'v [u8]),
    was_asked: bool,
) -> Step<'v> {
    let name = full(schema, table);
    let taken = match was_asked {
        false => "NOTHING",
        true => "UPDATE SET value = excluded.value WHERE it.value = excluded.value",
    };
    let text = format!(
        "INSERT INTO {name} AS it (key, value) VALUES ($1, $2) ON CONFLICT (key) DO {taken}"
    );
    let values = vec![Value::Bytes(key), Value::Bytes(value)];
    Step { text, types: &[types::BYTES, types::BYTES], values }
}

/// Puts a row; if its key is taken, ends all that is sent with it, by [`GUARD_FAILS`].
pub(super) fn insert_or_end<'v>(
    schema: &str,
    table: Table,
    key: &'v [u8],
    value: &'v [u8],
) -> Step<'v> {
    let name = full(schema, table);
    let text = format!(
        "WITH it AS (INSERT INTO {name} (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING \
         RETURNING 1) SELECT 1 / count(*) FROM it"
    );
    let values = vec![Value::Bytes(key), Value::Bytes(value)];
    Step { text, types: &[types::BYTES, types::BYTES], values }
}

/// Writes a row once more if it is there, so that it is as durable as a new one, also on a standby
/// that is waited for.
pub(super) fn write_again<'v>(
    schema: &str,
    table: Table,
    key: &'v [u8],
    value: &'v [u8],
) -> Step<'v> {
    let name = full(schema, table);
    let text = format!("UPDATE {name} SET value = value WHERE key = $1 AND value = $2");
    let values = vec![Value::Bytes(key), Value::Bytes(value)];
    Step { text, types: &[types::BYTES, types::BYTES], values }
}

/// Ends all that is sent with it, by [`GUARD_FAILS`], unless a row has this value. The row stays as
/// it is until that is done.
pub(super) fn guard<'v>(schema: &str, table: Table, key: &'v [u8], value: &'v [u8]) -> Step<'v> {
    let name = full(schema, table);
    let text = format!(
        "SELECT 1 / count(*) FROM \
         (SELECT 1 FROM {name} WHERE key = $1 AND value = $2 FOR UPDATE) AS it"
    );
    let values = vec![Value::Bytes(key), Value::Bytes(value)];
    Step { text, types: &[types::BYTES, types::BYTES], values }
}

/// The code with which a server refuses to divide by nothing.
pub(super) const GUARD_FAILS: &str = "22012";

/// Sets and removes rows: two statements at most for each table.
pub(super) fn write<'v>(
    schema: &str,
    changes: &BTreeMap<(Table, &'v [u8]), Option<&'v [u8]>>,
) -> Vec<Step<'v>> {
    let mut steps = Vec::new();
    for table in Table::ALL {
        let of_table = || changes.range((table, &[][..])..).take_while(move |it| it.0.0 == table);
        let put = of_table().filter_map(|((_, key), value)| value.map(|value| (*key, value)));
        let (keys, values): (Vec<&[u8]>, Vec<&[u8]>) = put.unzip();
        let gone: Vec<&[u8]> =
            of_table().filter(|it| it.1.is_none()).map(|((_, key), _)| *key).collect();
        if !keys.is_empty() {
            steps.push(put_rows(schema, table, keys, values));
        }
        if !gone.is_empty() {
            let text = format!("DELETE FROM {} WHERE key = ANY($1)", full(schema, table));
            steps.push(Step { text, types: &[types::BYTES_LIST], values: vec![list(gone)] });
        }
    }
    steps
}

fn put_rows<'v>(
    schema: &str,
    table: Table,
    keys: Vec<&'v [u8]>,
    values: Vec<&'v [u8]>,
) -> Step<'v> {
    let name = full(schema, table);
    // A row that is there already is not written anew.
    let text = format!(
        "INSERT INTO {name} AS it (key, value) SELECT * FROM unnest($1, $2) \
         ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE it.value <> excluded.value"
    );
    let values = vec![list(keys), list(values)];
    Step { text, types: &[types::BYTES_LIST, types::BYTES_LIST], values }
}

/// Which of the keys a table has.
pub(super) fn has<'v>(schema: &str, table: Table, keys: &'v [Vec<u8>]) -> Step<'v> {
    let text = format!("SELECT key FROM {} WHERE key = ANY($1)", full(schema, table));
    let keys = keys.iter().map(|key| &key[..]).collect();
    Step { text, types: &[types::BYTES_LIST], values: vec![list(keys)] }
}

/// Bytes that the tables and their indexes take.
pub(super) fn bytes(schema: &str) -> Step<'_> {
    let text = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::text FROM pg_class AS c \
                JOIN pg_namespace AS n ON n.oid = relnamespace \
                WHERE nspname = $1 AND relkind = 'r'";
    let values = vec![Value::Bytes(schema.as_bytes())];
    Step { text: text.to_owned(), types: &[types::TEXT], values }
}

/// The numbers of the server's data, of the database, and of the schema. What is copied into
/// another one has others.
pub(super) fn identity(schema: &str) -> Step<'_> {
    let text = "SELECT concat_ws('/', system_identifier, d.oid, n.oid) \
                FROM pg_control_system(), pg_database AS d, pg_namespace AS n \
                WHERE datname = current_database() AND nspname = $1";
    let values = vec![Value::Bytes(schema.as_bytes())];
    Step { text: text.to_owned(), types: &[types::TEXT], values }
}

/// Whether a range is that of one row.
pub(super) fn is_single(range: &Range) -> bool {
    range.from == range.to && range.limit > 0
}

/// How ranges are read: rows that are named by their keys together, a statement for each table, and
/// then a statement for each other range. More than one see one moment.
pub(super) struct Reading<'r> {
    pub(super) steps: Vec<Step<'r>>,
    /// Statements before the first that reads.
    pub(super) ahead: usize,
    /// The tables of which rows are named, in the order of their statements.
    pub(super) singles: Vec<Table>,
}

impl<'r> Reading<'r> {
    pub(super) fn of(schema: &str, ranges: &'r [Range]) -> Reading<'r> {
        let mut named: BTreeMap<Table, BTreeSet<&[u8]>> = BTreeMap::new();
        for range in ranges.iter().filter(|range| is_single(range)) {
            named.entry(range.table).or_default().insert(&range.from);
        }
        let singles = named.keys().copied().collect();
        let mut steps: Vec<Step<'r>> =
            named.into_iter().map(|(table, keys)| rows(schema, table, keys)).collect();
        steps.extend(ranges.iter().filter(|it| !is_single(it)).map(|it| between(schema, it)));
        let ahead = usize::from(steps.len() > 1);
        if ahead > 0 {
            let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
            steps.insert(0, Step::plain(begin));
            steps.push(Step::plain("COMMIT"));
        }
        Reading { steps, ahead, singles }
    }
}

fn rows<'v>(schema: &str, table: Table, keys: BTreeSet<&'v [u8]>) -> Step<'v> {
    let text = format!("SELECT key, value FROM {} WHERE key = ANY($1)", full(schema, table));
    Step { text, types: &[types::BYTES_LIST], values: vec![list(keys.into_iter().collect())] }
}

fn between<'r>(schema: &str, range: &'r Range) -> Step<'r> {
    let order = if range.descending { "DESC" } else { "ASC" };
    let text = format!(
        "SELECT key, value FROM {} WHERE key BETWEEN $1 AND $2 ORDER BY key {order} LIMIT $3",
        full(schema, range.table)
    );
    let limit = i64::try_from(range.limit).unwrap_or(i64::MAX);
    let values = vec![Value::Bytes(&range.from), Value::Bytes(&range.to), Value::Number(limit)];
    Step { text, types: &[types::BYTES, types::BYTES, types::NUMBER], values }
}

fn list(values: Vec<&[u8]>) -> Value<'_> {
    Value::List(values, types::BYTES)
}

fn full(schema: &str, table: Table) -> String {
    format!("\"{schema}\".{}", table.name())
}
