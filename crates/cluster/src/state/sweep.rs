//! Blocks that no row refers to, and objects that no block needs, are taken away.
//!
//! They are seen by nobody, so nothing is published: a crash leaves work that is done again. What
//! is asked of each is asked for many at once.

use super::prune::{ASKED_AT_ONCE, Swept};
use super::{Cluster, Shared};
use crate::blocks::LetGo;
use crate::database::{Change, Range, Table};
use crate::format::{BlockId, ObjectName};
use crate::rows::UncertainRow;
use bytes::Bytes;
use marram_store::{Error, Result};

/// Loose blocks that one step looks at.
const LOOSE_A_STEP: usize = 256;
/// Bytes of the longest key of what is loose, and one more.
const LOOSE_KEY_BYTES: usize = 41;
/// Seconds for which a block stays to which nothing refers: a reader may have found it just before.
const GRACE_SECONDS: i64 = 60;

impl Cluster {
    /// Takes away some of the blocks, behind `after`, to which nothing has referred for a while,
    /// and objects outside of the database that no block needs.
    /// Returns where the next step begins, if there is more. Does nothing while another client is
    /// there: one that publishes may have found a block just before it goes. What one row or object
    /// has wrong keeps it where it is, and no other: the first such error comes with the last step.
    ///
    /// # Errors
    /// The database fails, or the place of the blocks does; or the store is open for reading only.
    pub fn sweep_step(&self, after: Vec<u8>) -> Result<(Swept, Vec<u8>)> {
        let shared = &*self.shared;
        refuse_read_only(shared)?;
        let nothing = || Ok((Swept::default(), Vec::new()));
        if has_company(shared)? {
            // A copy of the database that was made before lacks what is put now.
            shared.blocks.hold.take_after_uploads(shared.session())?;
            return nothing();
        }
        // The place of the objects may be far: nobody waits for its list, or for removals there.
        let is_first = after.is_empty();
        let listed = if is_first { shared.blocks.next_part() } else { Ok(Vec::new()) };
        let is_listed = is_first && listed.is_ok();
        let (mut sweep, next) = {
            let publisher = shared.publisher.lock();
            if has_company(shared)? {
                return nothing();
            }
            shared.blocks.hold.take_to_remove(shared.session())?;
            let mut sweep = Sweep::new(shared);
            let strays = listed.and_then(|listed| shared.blocks.strays(&listed, sweep.now));
            let strays = strays.and_then(|(strays, error)| {
                sweep.last.extend(strays);
                error.map_or(Ok(()), Err)
            });
            sweep.note(strays);
            let next = sweep.look_behind(after)?;
            if !shared.rows.write_after(publisher.number, &sweep.changes())? {
                // Another client comes.
                return nothing();
            }
            if is_listed {
                shared.blocks.part_is_done();
            }
            (sweep, next)
        };
        sweep.unlink();
        let mut failed = shared.blocks.failed_sweep.lock();
        match failed.take().or(sweep.first_error) {
            Some(error) if !sweep.swept.more => Err(error),
            kept => {
                *failed = kept;
                Ok((sweep.swept, next))
            }
        }
    }
}

/// Whether other clients may be there.
fn has_company(shared: &Shared) -> Result<bool> {
    shared.state.read().refuse_stopped()?;
    Ok(shared.has_company())
}

fn refuse_read_only(shared: &Shared) -> Result<()> {
    match shared.read_only {
        true => Err(Error::ReadOnly("the store is open for reading only".to_owned())),
        false => Ok(()),
    }
}

/// The first key behind one.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// What a row of the table of what is loose names.
enum Named {
    Object(ObjectName),
    Block(BlockId),
    /// An upload that was given up.
    Nothing,
}

fn named(key: &[u8]) -> Named {
    match (ObjectName::of_key(key), BlockId::try_from(key)) {
        (Some(name), _) => Named::Object(name),
        (None, Ok(block)) => Named::Block(block),
        (None, Err(_)) => Named::Nothing,
    }
}

/// One step.
struct Sweep<'s> {
    shared: &'s Shared,
    now: i64,
    swept: Swept,
    /// What takes blocks away. It comes before their rows here: a crash between the two leaves
    /// them loose.
    first: Vec<Change>,
    last: Vec<Change>,
    /// Objects that nothing needs.
    unneeded: Vec<ObjectName>,
    /// The last block that goes. Its object is loose from then on.
    going: Option<BlockId>,
    first_error: Option<Error>,
}

impl Sweep<'_> {
    fn new(shared: &Shared) -> Sweep<'_> {
        Sweep {
            shared,
            now: shared.now(),
            swept: Swept::default(),
            first: Vec::new(),
            last: Vec::new(),
            unneeded: Vec::new(),
            going: None,
            first_error: None,
        }
    }

    fn note(&mut self, done: Result<()>) {
        if let Err(error) = done {
            self.first_error.get_or_insert(error);
        }
    }

    /// Looks at the next rows behind a key. Returns where the next step begins.
    fn look_behind(&mut self, after: Vec<u8>) -> Result<Vec<u8>> {
        let range = Range::first(Table::Loose, after, vec![u8::MAX; LOOSE_KEY_BYTES], LOOSE_A_STEP);
        let rows: Vec<UncertainRow> =
            self.shared.rows.read_each(&[range])?.into_iter().flatten().collect();
        self.swept.more = rows.len() == LOOSE_A_STEP;
        let next = rows.last().map_or(Vec::new(), |(key, _)| behind(key));
        let due: Vec<Bytes> = rows.into_iter().filter_map(|row| self.due(row)).collect();
        for some in due.chunks(ASKED_AT_ONCE) {
            if let Err(error) = self.look(some) {
                // A database that does not answer is not asked for the others.
                self.note(Err(error));
                self.swept.more = true;
                return Ok(some.last().map_or(next, |key| behind(key)));
            }
        }
        Ok(next)
    }

    /// The key of a row that has been there for long enough.
    fn due(&mut self, (key, since): UncertainRow) -> Option<Bytes> {
        match since {
            Ok(since) => {
                let since = since.as_ref().try_into().map_or(i64::MIN, i64::from_le_bytes);
                if since > self.now + GRACE_SECONDS {
                    // Of a client whose clock was ahead: it would lie there until then.
                    let now = self.now.to_le_bytes().to_vec();
                    self.last.push(self.shared.rows.put(Table::Loose, key.to_vec(), now));
                }
                (since <= self.now - GRACE_SECONDS).then_some(key)
            }
            Err(error) => {
                self.note(Err(error));
                None
            }
        }
    }

    /// Looks at some rows, by one question about all of them.
    fn look(&mut self, keys: &[Bytes]) -> Result<()> {
        let blocks = &self.shared.blocks;
        let asked = |key: &Bytes| match named(key) {
            Named::Object(name) => blocks.asked_of_object(&name),
            Named::Block(block) => blocks.asked_of(&block),
            Named::Nothing => Vec::new(),
        };
        let ranges: Vec<Vec<Range>> = keys.iter().map(asked).collect();
        let mut answers = match ranges.iter().all(Vec::is_empty) {
            true => Vec::new(),
            false => self.shared.rows.read_each(&ranges.concat())?,
        }
        .into_iter();
        for (key, ranges) in keys.iter().zip(&ranges) {
            let found = answers.by_ref().take(ranges.len()).collect();
            let done = self.decide(key, found);
            self.note(done);
        }
        Ok(())
    }

    fn decide(&mut self, key: &Bytes, answers: Vec<Vec<UncertainRow>>) -> Result<()> {
        let no_more = || Change::remove(Table::Loose, key.to_vec());
        match named(key) {
            Named::Object(name) if self.going == Some(name.block) => {}
            Named::Object(name) => match self.shared.blocks.let_go(&name, answers)? {
                LetGo::Keep => {}
                LetGo::Forget => self.last.push(no_more()),
                LetGo::Unlink => self.unneeded.push(name),
            },
            Named::Block(block) => {
                if let Some(removal) = self.shared.blocks.removal(&block, answers, self.now)? {
                    self.first.extend(removal);
                    self.swept.blocks += 1;
                    self.going = Some(block);
                }
                self.last.push(no_more());
            }
            Named::Nothing => self.last.push(no_more()),
        }
        Ok(())
    }

    fn changes(&mut self) -> Vec<Change> {
        let last = std::mem::take(&mut self.last);
        std::mem::take(&mut self.first).into_iter().chain(last).collect()
    }

    /// Removes the objects that nothing needs, and then their rows. Their names never come again,
    /// so neither needs the log to be where it was.
    fn unlink(&mut self) {
        let (gone, error) = self.shared.blocks.unlink(std::mem::take(&mut self.unneeded));
        self.note(error.map_or(Ok(()), Err));
        if !gone.is_empty() {
            let gone = gone.iter().map(|name| Change::remove(Table::Loose, name.key()));
            let done = self.shared.rows.write(&gone.collect::<Vec<_>>());
            self.note(done);
        }
    }
}
