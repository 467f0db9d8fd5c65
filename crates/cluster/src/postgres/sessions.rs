//! Connections that are kept open, and what is done when one is lost.
//!
//! What was asked on a lost connection may still be at work at the server. It is ended there before
//! anything is asked again, or it could overwrite what came after it.

use super::Access;
use super::failure::{Failure, Outcome};
use super::wire::{Answer, Connection, Step, Value, types};
use crate::server::Attempts;
use marram_store::Result;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};

/// Connections that one store has at most.
const CONNECTIONS_MAX: usize = 8;
/// The oldest version that is taken, as the server counts.
const VERSION_MIN: u32 = 130_000;

/// Settings of each connection, whatever the server's are. A row is found by an index, never by
/// reading a table, also where nobody has counted its rows. What is answered is durable. A host
/// that is gone in the middle of a publication lets go of its rows after half a minute.
const SETTINGS: &str = "SELECT set_config(name, value, false) FROM (VALUES \
     ('search_path', 'pg_catalog'), \
     ('default_transaction_isolation', 'read committed'), \
     ('plan_cache_mode', 'force_generic_plan'), \
     ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'), ('enable_sort', 'off'), \
     ('jit', 'off'), ('statement_timeout', '0'), ('lock_timeout', '0'), \
     ('idle_in_transaction_session_timeout', '0'), \
     ('tcp_keepalives_idle', '10'), ('tcp_keepalives_interval', '5'), \
     ('tcp_keepalives_count', '4'), \
     ('synchronous_commit', CASE current_setting('synchronous_commit') \
        WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END)) AS settings (name, value)";

/// The connections to a place.
pub(super) struct Sessions {
    pub(super) access: Access,
    state: Mutex<State>,
    freed: Condvar,
    /// Calls that were asked, also those that were asked again.
    calls: AtomicU64,
    /// The largest number of an entry that the server has acknowledged.
    acknowledged: Mutex<Option<Vec<u8>>>,
}

#[derive(Default)]
struct State {
    idle: Vec<Connection>,
    open: usize,
    made: u64,
    /// Names of connections that were lost, and may still be at work.
    lost: Vec<String>,
}

impl Sessions {
    /// Connects for the first time.
    pub(super) fn open(access: Access) -> Result<Sessions> {
        let sessions = Sessions {
            access,
            state: Mutex::default(),
            freed: Condvar::new(),
            calls: AtomicU64::new(0),
            acknowledged: Mutex::default(),
        };
        let mut attempts = Attempts::new(&sessions.access);
        let first = loop {
            match sessions.take() {
                Ok(connection) => break connection,
                Err(failure) if failure.is_starting() && attempts.go_on() => {}
                Err(failure) => return Err(failure.into()),
            }
        };
        sessions.give(first);
        Ok(sessions)
    }

    /// Asks, and asks again where a connection is lost. `work` hears whether it was asked before,
    /// and has to have the same outcome if that was done.
    pub(super) fn with<T>(
        &self,
        mut work: impl FnMut(&mut Connection, bool) -> Outcome<T>,
    ) -> Result<T> {
        let (mut asked, mut attempts) = (false, Attempts::new(&self.access));
        loop {
            match self.attempt(&mut asked, &mut work) {
                Ok(answer) => return Ok(answer),
                Err(failure) if failure.passes() && attempts.go_on() => {}
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    fn attempt<T>(
        &self,
        asked: &mut bool,
        work: &mut impl FnMut(&mut Connection, bool) -> Outcome<T>,
    ) -> Outcome<T> {
        let mut connection = self.take()?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        match work(&mut connection, std::mem::replace(asked, true)) {
            Ok(answer) => {
                self.give(connection);
                Ok(answer)
            }
            Err(failure) if failure.is_of_guard() => {
                self.give(connection);
                Err(failure)
            }
            Err(failure) => {
                self.drop_lost(connection, &failure);
                Err(failure)
            }
        }
    }

    /// Calls up to now.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The server has acknowledged an entry.
    pub(super) fn acknowledge(&self, number: &[u8]) {
        let mut acknowledged = self.acknowledged.lock();
        if acknowledged.as_deref().is_none_or(|known| known < number) {
            *acknowledged = Some(number.to_vec());
        }
    }

    fn give(&self, connection: Connection) {
        self.state.lock().idle.push(connection);
        self.freed.notify_one();
    }

    fn drop_lost(&self, connection: Connection, failure: &Failure) {
        let mut state = self.state.lock();
        state.open -= 1;
        if failure.passes() {
            state.lost.push(connection.name.clone());
            // Those that wait are of the same server, which may be gone.
            state.open -= state.idle.len();
            state.idle.clear();
        }
        drop(state);
        self.freed.notify_one();
    }

    /// A connection that waits, or a new one. What was lost is at an end then.
    fn take(&self) -> Outcome<Connection> {
        let mut state = self.state.lock();
        let waiting = loop {
            match state.idle.pop() {
                None if state.open == CONNECTIONS_MAX => self.freed.wait(&mut state),
                waiting => break waiting,
            }
        };
        state.open += usize::from(waiting.is_none());
        state.made += 1;
        let (name, lost) = (format!("{}-{}", self.access.name, state.made), state.lost.clone());
        drop(state);
        let ready = match waiting {
            Some(mut connection) => self.end(&mut connection, &lost).map(|()| connection),
            None => self.connect(name, &lost),
        };
        let mut state = self.state.lock();
        match &ready {
            Ok(_) => state.lost.retain(|name| !lost.contains(name)),
            Err(_) => state.open -= 1,
        }
        drop(state);
        self.freed.notify_one();
        ready
    }

    fn connect(&self, name: String, lost: &[String]) -> Outcome<Connection> {
        let mut connection = Connection::open(&self.access, name)?;
        let facts = "SELECT current_setting('server_version_num'), current_setting('fsync')";
        let answers = connection.run(&[Step::plain(facts), Step::plain(SETTINGS)])?;
        refuse_unfit(&answers[0])?;
        self.end(&mut connection, lost)?;
        self.refuse_loss(&mut connection)?;
        Ok(connection)
    }

    /// Ends connections at the server, and waits until they are gone.
    fn end(&self, connection: &mut Connection, lost: &[String]) -> Outcome<()> {
        if lost.is_empty() {
            return Ok(());
        }
        let text = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                    WHERE application_name = ANY($1)";
        let names: Vec<&[u8]> = lost.iter().map(|name| name.as_bytes()).collect();
        let mut attempts = Attempts::new(&self.access);
        loop {
            let values = vec![Value::List(names.clone(), types::TEXT)];
            let step = Step { text: text.to_owned(), types: &[types::TEXT_LIST], values };
            if connection.run(&[step])?[0].count == 0 {
                return Ok(());
            }
            if !attempts.go_on() {
                let text = "a connection that was lost is still at work at the server";
                return Err(std::io::Error::other(text).into());
            }
        }
    }

    /// A server that was restored from a backup, or a standby that took over without having had
    /// all, lacks what was acknowledged: nothing goes on there.
    fn refuse_loss(&self, connection: &mut Connection) -> Outcome<()> {
        let Some(number) = self.acknowledged.lock().clone() else { return Ok(()) };
        let schema = &self.access.place.schema;
        let text = format!("SELECT key FROM \"{schema}\".log WHERE key >= $1 LIMIT 1");
        let values = vec![Value::Bytes(&number)];
        let found = connection.run(&[Step { text, types: &[types::BYTES], values }])?;
        if found[0].count > 0 {
            return Ok(());
        }
        Err(Failure::Unfit(
            "the server has lost entries of the log that it had acknowledged: was a backup \
             restored, or has a standby taken over that did not have them? Unmount, and check"
                .to_owned(),
        ))
    }
}

fn refuse_unfit(facts: &Answer) -> Outcome<()> {
    let version: u32 = facts.text(0).parse().unwrap_or(0);
    if version < VERSION_MIN {
        let (is, least) = (version / 10_000, VERSION_MIN / 10_000);
        let text = format!("the server is of version {is}, and {least} is the oldest that will do");
        return Err(Failure::Unfit(text));
    }
    match facts.text(1).as_str() {
        "on" => Ok(()),
        _ => Err(Failure::Unfit(
            "the server runs with fsync=off, so a power cut loses the database: set fsync = on in \
             postgresql.conf, and reload"
                .to_owned(),
        )),
    }
}
