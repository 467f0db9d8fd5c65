//! A file system beside its model: every operation runs on both, and both must agree.

use crate::absent::{expected, lacks};
use crate::compare::{
    Agreement, InodeMap, compare_entries, compare_inodes, compare_results, compare_trees,
};
use crate::execute::{Entry, Value, execute, read_directory};
use crate::operation::{DIRECTORY_SLOTS, FILE_SLOTS, Operation, SLOTS, SPECIAL_SLOTS, Slot};
use crate::random::Random;
use marram_model::Model;
use marram_vfs::{Caller, Error, FileSystem, Ino, Kind, SetAttributes};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One inode in both file systems, and how many pins of it the slot holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    real: Ino,
    model: Ino,
    pins: u64,
}

const NOTHING: Held = Held { real: Ino::ROOT, model: Ino::ROOT, pins: 0 };

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Both did it.
    Done,
    /// Both refused it alike.
    Refused,
    /// The real one had no space for it, and the model did not try.
    NoSpace,
    /// The real one lacks the capability that it needs, and said so; the model did not try.
    Lacking,
}

/// The real file system and the model that says how it should behave.
pub struct Pair {
    real: Arc<dyn FileSystem>,
    model: Model,
    slots: Vec<Held>,
    inodes: InodeMap,
}

impl Pair {
    /// Both must hold the same.
    pub fn new(real: Arc<dyn FileSystem>, model: Model) -> Pair {
        Pair { real, model, slots: vec![NOTHING; usize::from(SLOTS)], inodes: InodeMap::default() }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Lets go of the real file system, so that it can be unmounted; the model stands in for it.
    pub fn release(&mut self) {
        self.real = Arc::new(self.model.snapshot());
    }

    /// Goes on with `real`, which holds what the one before it held.
    pub fn resume(&mut self, real: Arc<dyn FileSystem>) {
        self.real = real;
    }

    /// Notes that all pins are gone.
    pub fn forget_all(&mut self) {
        self.model.forget_all();
        for held in &mut self.slots {
            held.pins = 0;
        }
    }

    /// Runs `operation` on both, and compares what it gave and the inodes that it named.
    ///
    /// # Errors
    /// Says what is different.
    pub fn apply(&mut self, operation: &Operation) -> Result<Outcome, String> {
        if let Operation::Forget { subject } = operation {
            self.forget(*subject);
            self.compare_named(operation)?;
            return Ok(Outcome::Done);
        }
        let real = self.execute_real(operation);
        self.agree(operation, &real)
    }

    /// As [`Pair::apply`], on a device with faults: an error of the device, damage, and a pool
    /// that takes no more changes are answers to be judged by the caller. The model does not try
    /// what they stopped.
    ///
    /// # Errors
    /// Says what is different.
    pub fn apply_with_faults(
        &mut self,
        operation: &Operation,
    ) -> Result<Result<Outcome, Error>, String> {
        match self.execute_real(operation) {
            Err(error @ (Error::Io(_) | Error::Damaged(_) | Error::ReadOnly)) => Ok(Err(error)),
            real => self.agree(operation, &real).map(Ok),
        }
    }

    fn execute_real(&self, operation: &Operation) -> marram_vfs::Result<Value> {
        let at = |slot: Slot| self.slots[usize::from(slot.0 % SLOTS)].real;
        execute(&*self.real, operation, &at)
    }

    /// Does what the real one did on the model, and compares.
    fn agree(
        &mut self,
        operation: &Operation,
        real: &marram_vfs::Result<Value>,
    ) -> Result<Outcome, String> {
        if matches!(real, Err(Error::NoSpace)) {
            if matches!(operation, Operation::Unlink { .. } | Operation::RemoveDirectory { .. }) {
                return Err("a removal was refused for want of space".to_owned());
            }
            self.compare_named(operation)?;
            return Ok(Outcome::NoSpace);
        }
        if lacks(&*self.real, operation) {
            compare_results(&mut self.inodes, real, &Err(Error::NotSupported))?;
            self.compare_named(operation)?;
            return Ok(Outcome::Lacking);
        }
        let slots = self.slots.clone();
        let at = |slot: Slot| slots[usize::from(slot.0 % SLOTS)].model;
        let model = expected(&*self.real, &self.model, operation, &at);
        compare_results(&mut self.inodes, real, &model)?;
        let outcome = match (real, &model) {
            (Ok(real), Ok(model)) => {
                self.keep_pins(operation, real, model);
                Outcome::Done
            }
            _ => Outcome::Refused,
        };
        self.compare_named(operation)?;
        Ok(outcome)
    }

    /// Compares everything: the tree, and what only slots still hold.
    ///
    /// # Errors
    /// Says what is different.
    pub fn compare(&mut self) -> Agreement {
        compare_trees(&mut self.inodes, &*self.real, &self.model)?;
        for slot in 0..SLOTS {
            let held = self.slots[usize::from(slot)];
            let places = ((&*self.real, held.real), (&self.model as &dyn FileSystem, held.model));
            compare_inodes(&mut self.inodes, places.0, places.1)
                .map_err(|difference| format!("inode in slot {slot}: {difference}"))?;
        }
        Ok(())
    }

    /// Some directory: its path, and its inode in the real file system and in the model. Rather one
    /// further down.
    ///
    /// # Errors
    /// They differ.
    pub(crate) fn directory(&self, random: &mut Random) -> Result<(String, [Ino; 2]), String> {
        let (mut path, mut at) = ("/".to_owned(), [Ino::ROOT; 2]);
        loop {
            let list = |files: &dyn FileSystem, ino| {
                let listed = read_directory(files, ino, false, usize::MAX);
                let entries = listed.map_err(|error| format!("{path}: {error}"))?;
                let below = entries.into_iter().filter(|entry| entry.kind == Kind::Directory);
                Ok::<_, String>(below.collect::<Vec<Entry>>())
            };
            let (real, model) = (list(&*self.real, at[0])?, list(&self.model, at[1])?);
            let name = |entry: &Entry| entry.name.clone();
            if real.iter().map(name).ne(model.iter().map(name)) {
                return Err(format!("{path} has other directories than in the model"));
            }
            if real.is_empty() || random.once_in(4) {
                return Ok((path, at));
            }
            let which = random.below(real.len() as u64) as usize;
            path += &format!("{}/", String::from_utf8_lossy(&real[which].name));
            at = [real[which].ino, model[which].ino];
        }
    }

    /// Puts some of what is there into the slots.
    ///
    /// # Errors
    /// They differ.
    pub(crate) fn pick_up(&mut self, random: &mut Random) -> Agreement {
        let (mut found, mut left) = (Vec::new(), vec![[Ino::ROOT; 2]]);
        while let Some([real, model]) = left.pop() {
            let list = |files: &dyn FileSystem, ino| {
                read_directory(files, ino, false, usize::MAX).map_err(|error| error.to_string())
            };
            let (real, model) = (list(&*self.real, real)?, list(&self.model, model)?);
            compare_entries(&mut self.inodes, &real, &model)?;
            for (real, model) in real.iter().zip(&model) {
                found.push((model.kind, [real.ino, model.ino]));
                if model.kind == Kind::Directory {
                    left.push([real.ino, model.ino]);
                }
            }
        }
        for into in 0..SLOTS {
            if found.is_empty() {
                break;
            }
            let (kind, [real, model]) = found[random.below(found.len() as u64) as usize];
            let slot = slot_for(kind, into);
            self.forget(slot);
            let pinned = self.real.pin(real).and_then(|_| self.model.pin(model));
            pinned.map_err(|error| format!("what is in a listing: {error}"))?;
            self.slots[usize::from(slot.0)] = Held { real, model, pins: 1 };
        }
        Ok(())
    }

    /// Puts the file at a path of both into a slot.
    ///
    /// # Errors
    /// They differ.
    pub(crate) fn hold_file(&mut self, path: &[u8]) -> Result<Slot, String> {
        let mut at = [Ino::ROOT; 2];
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let below = |files: &dyn FileSystem, directory: Ino| {
                let entries = read_directory(files, directory, false, usize::MAX);
                let entries = entries.map_err(|error| error.to_string())?;
                let found = entries.into_iter().find(|entry| entry.name == name);
                found.map(|entry| entry.ino).ok_or_else(|| format!("nothing at {path:?}"))
            };
            at = [below(&*self.real, at[0])?, below(&self.model, at[1])?];
        }
        let ([real, model], slot) = (at, slot_for(Kind::Regular, 0));
        self.forget(slot);
        let pinned = self.real.pin(real).and_then(|_| self.model.pin(model));
        pinned.map_err(|error| format!("what is at {path:?}: {error}"))?;
        self.slots[usize::from(slot.0)] = Held { real, model, pins: 1 };
        Ok(slot)
    }

    /// Compares everything after a step that may have given inodes other numbers, on each side
    /// others: only what is held is the same as before.
    ///
    /// # Errors
    /// Says what is different.
    pub(crate) fn meet_anew(&mut self) -> Agreement {
        self.inodes = InodeMap::default();
        for held in &mut self.slots {
            if held.pins == 0 {
                *held = NOTHING;
            }
        }
        self.compare()
    }

    /// Lets both go back to another state, by `go_back` and in the model to `past`. What was held
    /// is let go of before, and compared are the states after it.
    ///
    /// # Errors
    /// Says what is different.
    pub(crate) fn roll_back(
        &mut self,
        past: &Model,
        go_back: impl FnOnce() -> Agreement,
    ) -> Agreement {
        self.let_go();
        go_back()?;
        self.model.roll_back(past).map_err(|error| error.to_string())?;
        self.meet_anew()
    }

    /// The inodes of its model that another pair has too: under one number in the real file
    /// systems of both, and born at the same time; with their numbers in the model of that one.
    pub(crate) fn common_inodes(&self, other: &Pair) -> BTreeMap<Ino, Ino> {
        let birth = |model: &Model, ino: Ino| {
            model.attributes(ino).ok().map(|found| (found.kind, found.created))
        };
        let common = self.inodes.pairs().filter_map(|(real, own)| {
            let its = other.inodes.model_of(real)?;
            (birth(&self.model, own) == birth(&other.model, its)).then_some((own, its))
        });
        common.collect()
    }

    /// Takes back all pins.
    pub(crate) fn let_go(&mut self) {
        (0..SLOTS).for_each(|slot| self.forget(Slot(slot)));
    }

    fn forget(&mut self, slot: Slot) {
        let held = &mut self.slots[usize::from(slot.0 % SLOTS)];
        if held.pins > 0 {
            self.real.forget(held.real, held.pins);
            self.model.forget(held.model, held.pins);
            held.pins = 0;
        }
    }

    /// Remembers what an operation pinned.
    fn keep_pins(&mut self, operation: &Operation, real: &Value, model: &Value) {
        let (Value::Attributes(real), Value::Attributes(model)) = (real, model) else {
            return;
        };
        match *operation {
            Operation::Lookup { into, .. }
            | Operation::Parent { into, .. }
            | Operation::Create { into, .. }
            | Operation::CreateAnonymous { into, .. } => {
                let slot = slot_for(real.kind, into);
                self.forget(slot);
                self.slots[usize::from(slot.0)] =
                    Held { real: real.ino, model: model.ino, pins: 1 };
            }
            Operation::Pin { subject } | Operation::Link { subject, .. } => {
                self.slots[usize::from(subject.0 % SLOTS)].pins += 1;
            }
            _ => (),
        }
    }

    /// Compares the attributes of the inodes that an operation named.
    fn compare_named(&mut self, operation: &Operation) -> Agreement {
        for slot in operation.slots() {
            let held = self.slots[usize::from(slot.0 % SLOTS)];
            let real = self.real.attributes(held.real).map(Value::Attributes);
            let model = self.model.attributes(held.model).map(Value::Attributes);
            compare_results(&mut self.inodes, &real, &model)
                .map_err(|difference| format!("then the inode in {slot:?}: {difference}"))?;
        }
        Ok(())
    }
}

/// Which slot remembers an inode; never the first, which is the root for good.
fn slot_for(kind: Kind, into: u8) -> Slot {
    match kind {
        Kind::Directory => Slot(1 + into % (DIRECTORY_SLOTS - 1)),
        Kind::Regular => Slot(DIRECTORY_SLOTS + into % FILE_SLOTS),
        _ => Slot(DIRECTORY_SLOTS + FILE_SLOTS + into % SPECIAL_SLOTS),
    }
}

/// Compares a kept state with what the model kept, and makes sure that it refuses changes.
///
/// # Errors
/// Says what is different.
pub(crate) fn compare_snapshot(real: &dyn FileSystem, model: &Model) -> Agreement {
    compare_trees(&mut InodeMap::default(), real, model)?;
    let nobody = Caller { uid: 0, gid: 0 };
    match real.set_attributes(nobody, Ino::ROOT, &SetAttributes::default()) {
        Err(Error::ReadOnly) => Ok(()),
        other => Err(format!("a snapshot answers a change with {other:?}")),
    }
}
