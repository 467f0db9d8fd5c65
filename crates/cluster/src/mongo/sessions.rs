//! Transactions of a server, and what is done when one is lost.
//!
//! What was asked in a transaction that was lost may still be at work at the server. Its session is
//! ended there before anything is asked again, and what it had not committed with it. Where a
//! commit was asked for, the content says whether that was done.

use super::Access;
use super::failure::{Failure, Outcome};
use crate::server::Attempts;
use mongodb::bson::{Document, doc};
use mongodb::options::{Acknowledgment, ReadConcern, TransactionOptions, WriteConcern};
use mongodb::{Client, ClientSession, Database};
use parking_lot::{Condvar, Mutex};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Calls of one store that are at work at a time.
pub(super) const CALLS_MAX: u32 = 8;
/// The pause after the first transaction that was overtaken by another one.
const CONFLICT_PAUSE: Duration = Duration::from_millis(2);
/// The longest such pause.
const CONFLICT_PAUSE_MAX: Duration = Duration::from_millis(50);
/// How long a server keeps the transaction of a client that says no more, unless it is set
/// otherwise (`transactionLifetimeLimitSeconds`); and what is in its way waits.
const TRANSACTION_LIFETIME: Duration = Duration::from_secs(60);

/// The way to a database, and what is under way there.
pub(super) struct Sessions {
    pub(super) access: Access,
    pub(super) database: Database,
    client: Client,
    runtime: Runtime,
    /// Sessions that were lost, and may still be at work.
    lost: Mutex<Vec<Document>>,
    at_work: Mutex<u32>,
    freed: Condvar,
    /// Commands that were sent.
    calls: AtomicU64,
    /// A connection was made since the server was last asked for what it had acknowledged.
    is_new: Arc<AtomicBool>,
    /// The largest number of an entry that the server has acknowledged.
    acknowledged: Mutex<Option<Vec<u8>>>,
    /// Held while lost sessions are ended, and while the server is asked for what it has
    /// acknowledged: nothing is committed meanwhile.
    looking: tokio::sync::Mutex<()>,
}

impl Sessions {
    pub(super) fn new(
        access: Access,
        client: Client,
        runtime: Runtime,
        is_new: Arc<AtomicBool>,
    ) -> Sessions {
        Sessions {
            database: client.database(&access.place.database),
            access,
            client,
            runtime,
            lost: Mutex::default(),
            at_work: Mutex::default(),
            freed: Condvar::new(),
            calls: AtomicU64::new(0),
            is_new,
            acknowledged: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
        }
    }

    /// Does something in a transaction, and again where that is lost or overtaken. `work` hears
    /// whether a commit was asked for before of which the answer was lost.
    pub(super) fn in_transaction<T>(
        &self,
        mut work: impl AsyncFnMut(&mut Turn<'_>, bool) -> Outcome<T>,
    ) -> Outcome<T> {
        let mut was_asked = false;
        self.patiently(async || self.attempt(&mut was_asked, &mut work).await)
    }

    /// Sends a command that is no part of a transaction and changes nothing, and reads what it
    /// answers with.
    pub(super) fn read(&self, command: &Document) -> Outcome<Vec<Document>> {
        self.patiently(async || {
            self.settle().await?;
            self.documents(command).await
        })
    }

    /// Does what does the same however often it is done.
    pub(super) fn patiently<T>(&self, mut attempt: impl AsyncFnMut() -> Outcome<T>) -> Outcome<T> {
        let mut attempts = Attempts::new(&self.access);
        let mut conflicts = Attempts::new(&self.access).longer(TRANSACTION_LIFETIME);
        let mut pause = CONFLICT_PAUSE;
        loop {
            let done = {
                let _at_work = self.enter();
                self.runtime.block_on(attempt())
            };
            let goes_on = match &done {
                Err(Failure::Conflict) => {
                    pause = (pause * 2).min(CONFLICT_PAUSE_MAX);
                    conflicts.go_on_after(pause)
                }
                Err(failure) if failure.passes() => attempts.go_on(),
                _ => false,
            };
            if !goes_on {
                return done;
            }
        }
    }

    /// Sends a command to the database once, outside of transactions.
    pub(super) async fn command(&self, command: Document) -> Outcome<Document> {
        let answer = self.database.run_command(command);
        unless_refused(self.limited(answer.into_future()).await?)
    }

    /// Sends a command once, and reads what it answers with, of one moment.
    pub(super) async fn documents(&self, command: &Document) -> Outcome<Vec<Document>> {
        let mut command = command.clone();
        command.insert("readConcern", doc! { "level": "snapshot" });
        let asked = self.database.run_cursor_command(command);
        let mut cursor = self.limited(asked.into_future()).await?;
        let mut found = Vec::new();
        while self.waited(cursor.advance()).await? {
            found.push(cursor.deserialize_current()?);
        }
        Ok(found)
    }

    /// Commands up to now.
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

    fn enter(&self) -> AtWork<'_> {
        let mut at_work = self.at_work.lock();
        while *at_work == CALLS_MAX {
            self.freed.wait(&mut at_work);
        }
        *at_work += 1;
        AtWork { sessions: self }
    }

    /// Waits for an answer, but not for ever: a server that is silent is lost.
    async fn limited<T>(
        &self,
        answer: impl Future<Output = mongodb::error::Result<T>>,
    ) -> Outcome<T> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.waited(answer).await
    }

    async fn waited<T>(
        &self,
        answer: impl Future<Output = mongodb::error::Result<T>>,
    ) -> Outcome<T> {
        match tokio::time::timeout(self.access.patience, answer).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Failure::Lost("it is silent".to_owned())),
        }
    }

    /// Ends at the server what was lost, and looks whether it is still the server that it was.
    async fn settle(&self) -> Outcome<()> {
        {
            // What one call has ended another may have begun anew.
            let _looking = self.looking.lock().await;
            let lost = self.lost.lock().clone();
            if !lost.is_empty() {
                self.command(doc! { "killSessions": lost.clone() }).await?;
                self.lost.lock().retain(|session| !lost.contains(session));
            }
        }
        self.refuse_loss().await
    }

    async fn attempt<T>(
        &self,
        was_asked: &mut bool,
        work: &mut impl AsyncFnMut(&mut Turn<'_>, bool) -> Outcome<T>,
    ) -> Outcome<T> {
        self.settle().await?;
        let session = self.limited(self.client.start_session().into_future()).await?;
        let mut turn = Turn { sessions: self, session };
        let done = match turn.begin().await {
            Ok(()) => work(&mut turn, *was_asked).await,
            Err(failure) => Err(failure),
        };
        // A connection that was made meanwhile may be to a server that has forgotten something.
        let done = match (done, self.refuse_loss().await) {
            (Ok(_), Err(failure)) => Err(failure),
            (done, _) => done,
        };
        let committed = match done {
            Ok(answer) => {
                let committed = turn.commit().await;
                *was_asked |= committed.is_err();
                committed.map(|()| answer)
            }
            Err(failure) => Err(turn.give_up(failure).await),
        };
        if committed.as_ref().is_err_and(|failure| matches!(failure, Failure::Lost(_))) {
            self.lost.lock().push(turn.session.id().clone());
        }
        committed
    }

    /// A server that was restored from a backup, or a member of a replica set that took over
    /// without having had all, lacks what was acknowledged: nothing goes on there.
    async fn refuse_loss(&self) -> Outcome<()> {
        let _looking = self.looking.lock().await;
        if !self.is_new.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let Some(number) = self.acknowledged.lock().clone() else { return Ok(()) };
        let found = self.documents(&super::documents::from(&number)).await;
        match found {
            Ok(found) if !found.is_empty() => Ok(()),
            found => {
                self.is_new.store(true, Ordering::Release);
                Err(found.err().unwrap_or_else(loss))
            }
        }
    }
}

fn loss() -> Failure {
    Failure::Unfit(
        "the server has lost entries of the log that it had acknowledged: was a backup restored, \
         or has a member taken over that did not have them? Unmount, and check"
            .to_owned(),
    )
}

/// One of the calls that are at work.
struct AtWork<'a> {
    sessions: &'a Sessions,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        *self.sessions.at_work.lock() -= 1;
        self.sessions.freed.notify_one();
    }
}

/// A transaction.
pub(super) struct Turn<'a> {
    sessions: &'a Sessions,
    session: ClientSession,
}

impl Turn<'_> {
    async fn begin(&mut self) -> Outcome<()> {
        let durable = WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build();
        let options = TransactionOptions::builder()
            .read_concern(ReadConcern::snapshot())
            .write_concern(durable)
            .build();
        let begun = self.session.start_transaction().with_options(options);
        self.sessions.waited(begun.into_future()).await
    }

    /// Sends a command.
    pub(super) async fn command(&mut self, command: Document) -> Outcome<Document> {
        let answer = self.sessions.database.run_command(command).session(&mut self.session);
        unless_refused(self.sessions.limited(answer.into_future()).await?)
    }

    /// Sends a command, and reads what it answers with.
    pub(super) async fn documents(&mut self, command: Document) -> Outcome<Vec<Document>> {
        let asked = self.sessions.database.run_cursor_command(command).session(&mut self.session);
        let mut cursor = self.sessions.limited(asked.into_future()).await?;
        let mut found = Vec::new();
        while self.sessions.waited(cursor.advance(&mut self.session)).await? {
            found.push(cursor.deserialize_current()?);
        }
        Ok(found)
    }

    /// After a failure it is not known whether all or nothing is done.
    async fn commit(&mut self) -> Outcome<()> {
        let done = self.session.commit_transaction();
        let done = self.sessions.limited(done.into_future()).await;
        done.map_err(|failure| match failure.is_of_ability() {
            true => Failure::Unfit(format!("the server has no transactions: {failure}")),
            false => Failure::Lost(format!("in a commit: {failure}")),
        })
    }

    /// Takes all back. Where the server does not say that it has, it counts as lost.
    async fn give_up(&mut self, failure: Failure) -> Failure {
        if matches!(failure, Failure::Lost(_)) {
            return failure;
        }
        let gone = self.session.abort_transaction();
        match self.sessions.limited(gone.into_future()).await {
            Ok(()) | Err(Failure::Unfit(_)) => failure,
            Err(_) => {
                self.sessions.lost.lock().push(self.session.id().clone());
                failure
            }
        }
    }
}

/// An answer that says of one of its statements that it failed is a failure.
fn unless_refused(answer: Document) -> Outcome<Document> {
    let refused = answer.get_array("writeErrors").ok().and_then(|all| all.first()?.as_document());
    let refused = refused.or_else(|| answer.get_document("writeConcernError").ok());
    let Some(refused) = refused else { return Ok(answer) };
    let code = refused.get_i32("code").unwrap_or(0);
    Err(Failure::of_code(code, refused.get_str("errmsg").unwrap_or(""), false))
}
