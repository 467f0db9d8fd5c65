//! Blocks in memory, their patches, and the waves that write them.
//!
//! Readers always see the newest bytes. What may not be written yet is taken back in the copy that
//! is written, never in the block.

mod bracket;
mod group;

pub use bracket::Bracket;
pub use group::Closed;

use crate::graph::{Bug, Closure, Graph, PatchId, Place, Unit};
use crate::plan::{After, Change, Content, Owner, Plan, SECTOR_BYTES};
use crate::study::Study;
use group::Group;
use marram_device::{Device, Error, Result};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Most bytes of clean blocks that are kept.
const CLEAN_BYTES_MAX: usize = 32 << 20;
/// Bytes of changed blocks above which an operation waits for a wave.
const DIRTY_BYTES_MAX: usize = 64 << 20;
/// Patches above which an operation waits for a wave.
const PATCHES_MAX: usize = 1 << 16;
/// Most bytes that are handed to the device in one write.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// Which order changes are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// Each after all that it depends on.
    SoftUpdates,
    /// In any order.
    Unordered,
    /// In groups: all changes of a group wait for one patch, which is released when a log has them.
    Grouped {
        /// Whether those of users' bytes are among them; else they wait for nothing.
        data: bool,
    },
}

/// What has been done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Patches that were made and that nothing takes back.
    pub hard: u64,
    /// Patches that were made and that can be taken back.
    pub soft: u64,
    /// Changes that joined a patch that nothing takes back.
    pub into_hard: u64,
    /// Changes that joined a patch whose bytes they overwrote.
    pub into_overlapped: u64,
    /// Changes that joined another patch of their unit.
    pub into_near: u64,
    /// Patches taken back in a copy that was written.
    pub rollbacks: u64,
    /// Waves.
    pub waves: u64,
    /// Flushes of the device.
    pub flushes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes written with something taken back: they are written again.
    pub twice_bytes: u64,
    /// Bytes kept to take patches back, in all.
    pub kept_bytes: u64,
    /// Bytes kept to take patches back, at this moment.
    pub undo_bytes: u64,
    /// Patches that are not durable, at this moment.
    pub waiting: u64,
    /// Memory of the patches that are not durable, in bytes.
    pub graph_bytes: u64,
    /// Memory of the blocks that are not durable, in bytes.
    pub dirty_bytes: u64,
}

impl Counters {
    /// Patches that were made.
    pub fn patches(&self) -> u64 {
        self.hard + self.soft
    }

    /// Changes that joined a patch.
    pub fn joined(&self) -> u64 {
        self.into_hard + self.into_overlapped + self.into_near
    }
}

/// A block in memory.
#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    content: Content,
    /// How many of its units have patches.
    dirty_units: usize,
    /// It is among those that are dropped when they are old and clean.
    is_listed: bool,
    /// For what its bytes, as they are, were found to be good.
    good_for: Option<u32>,
}

impl Block {
    fn new(bytes: Vec<u8>, content: Content) -> Block {
        Block { bytes, content, dirty_units: 0, is_listed: false, good_for: None }
    }
}

/// A cache of the blocks of a medium.
pub struct Cache {
    device: Arc<dyn Device>,
    /// Where on the device the first block lies, in bytes.
    base: u64,
    block_bytes: usize,
    pub(crate) discipline: Discipline,
    blocks: HashMap<u64, Block>,
    /// Clean blocks, the longest known first; some may have become dirty since.
    clean: VecDeque<u64>,
    dirty_blocks: usize,
    pub(crate) graph: Graph,
    /// The open group.
    pub(crate) group: Option<Group>,
    failure: Option<Error>,
    counters: Counters,
}

impl Cache {
    /// A cache of the blocks of `block_bytes` that begin at `base` of a device.
    pub fn new(device: Arc<dyn Device>, base: u64, block_bytes: usize) -> Cache {
        Cache {
            device,
            base,
            block_bytes,
            discipline: Discipline::SoftUpdates,
            blocks: HashMap::new(),
            clean: VecDeque::new(),
            dirty_blocks: 0,
            graph: Graph::default(),
            group: None,
            failure: None,
            counters: Counters::default(),
        }
    }

    /// Plants a bug, for tests of tests.
    pub fn plant(&mut self, bug: Bug) {
        self.graph.planted = Some(bug);
    }

    /// Works another way, for studies. Nothing may wait to be written.
    pub fn set_study(&mut self, study: Study) {
        assert!(self.is_clean(), "a way is chosen before there are changes");
        self.graph.study = study;
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Sets the order of changes that are yet to be made. Nothing may wait to be written.
    pub fn set_discipline(&mut self, discipline: Discipline) {
        assert!(self.is_clean(), "an order is chosen before there are changes");
        self.discipline = discipline;
    }

    /// What has been done so far.
    pub fn counters(&self) -> Counters {
        let made = self.graph.made;
        Counters {
            hard: made.hard,
            soft: made.soft,
            into_hard: made.into_hard,
            into_overlapped: made.into_overlapped,
            into_near: made.into_near,
            kept_bytes: made.kept_bytes,
            undo_bytes: self.graph.undo_bytes() as u64,
            waiting: self.graph.count() as u64,
            graph_bytes: self.graph.memory_bytes() as u64,
            dirty_bytes: (self.dirty_blocks * self.block_bytes) as u64,
            ..self.counters
        }
    }

    /// Whether nothing waits to be written.
    pub fn is_clean(&self) -> bool {
        self.dirty_blocks == 0
    }

    /// Whether a block waits to be written.
    pub fn is_dirty(&self, block: u64) -> bool {
        self.blocks.get(&block).is_some_and(|block| block.dirty_units > 0)
    }

    /// Whether a patch is durable.
    pub fn is_committed(&self, patch: PatchId) -> bool {
        self.graph.is_committed(patch)
    }

    /// How many patches are not durable.
    pub fn waiting(&self) -> usize {
        self.graph.count()
    }

    /// Whether so much waits that there should be a wave before the next operation.
    pub fn is_full(&self) -> bool {
        self.dirty_blocks * self.block_bytes > DIRTY_BYTES_MAX || self.graph.count() > PATCHES_MAX
    }

    /// The failed write or flush, after which nothing is written any more.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    fn address(&self, block: u64) -> Result<u64> {
        let at = block.checked_mul(self.block_bytes as u64);
        at.and_then(|at| at.checked_add(self.base)).ok_or_else(|| Error::PastEnd {
            device: self.device.name(),
            offset: u64::MAX,
            len: self.block_bytes as u64,
            size: 0,
        })
    }

    fn load(&self, block: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.block_bytes];
        self.device.read(self.address(block)?, &mut bytes)?;
        Ok(bytes)
    }

    /// A block of metadata as it is now.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&mut self, block: u64) -> Result<&[u8]> {
        if !self.blocks.contains_key(&block) {
            let bytes = self.load(block)?;
            self.trim();
            self.keep(block, Block::new(bytes, Content::Metadata));
        }
        Ok(&self.blocks[&block].bytes)
    }

    /// A block of metadata as it is now, if it is good for `what`; none if it is not. `is_good`
    /// is asked once, and again when the block has changed or was read anew.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_good(
        &mut self,
        block: u64,
        what: u32,
        is_good: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Option<&[u8]>> {
        self.read(block)?;
        let known = self.blocks.get_mut(&block).expect("it has just been read");
        if known.good_for != Some(what) {
            if !is_good(&known.bytes) {
                return Ok(None);
            }
            known.good_for = Some(what);
        }
        Ok(Some(&known.bytes))
    }

    /// A block of data as it is now; it is not kept.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_data(&self, block: u64) -> Result<Vec<u8>> {
        match self.blocks.get(&block) {
            Some(known) => Ok(known.bytes.clone()),
            None => self.load(block),
        }
    }

    /// Fills `out` from neighbouring blocks of data.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read_run(&self, first: u64, within: usize, out: &mut [u8]) -> Result<()> {
        let blocks = (within + out.len()).div_ceil(self.block_bytes) as u64;
        if !(first..first + blocks).any(|block| self.blocks.contains_key(&block)) {
            return self.device.read(self.address(first)? + within as u64, out);
        }
        let (mut block, mut within, mut done) = (first, within, 0);
        while done < out.len() {
            let len = (self.block_bytes - within).min(out.len() - done);
            let bytes = self.read_data(block)?;
            out[done..done + len].copy_from_slice(&bytes[within..within + len]);
            (block, within, done) = (block + 1, 0, done + len);
        }
        Ok(())
    }

    /// Puts a clean block into the cache.
    fn keep(&mut self, number: u64, mut block: Block) {
        if !block.is_listed {
            block.is_listed = true;
            self.clean.push_back(number);
        }
        self.blocks.insert(number, block);
    }

    /// Drops the oldest clean blocks that are too many.
    fn trim(&mut self) {
        while self.clean.len() * self.block_bytes > CLEAN_BYTES_MAX {
            let Some(oldest) = self.clean.pop_front() else { return };
            match self.blocks.get_mut(&oldest) {
                Some(block) if block.dirty_units > 0 => block.is_listed = false,
                _ => drop(self.blocks.remove(&oldest)),
            }
        }
    }

    /// Makes all changes of a plan, and returns the patches that its steps have become.
    ///
    /// # Errors
    /// A failure of before, or a block that cannot be read or is changed as two kinds of content;
    /// then nothing has changed.
    pub fn apply(&mut self, plan: Plan) -> Result<Vec<PatchId>> {
        self.check()?;
        self.prepare(&plan)?;
        let group = self.join_group(&plan);
        let order = self.discipline;
        Ok(self.make(&plan, |cache, change, made| match (order, group) {
            // A set of changes in brackets may not be half there and hide what it comes after.
            (Discipline::Unordered, _) if plan.behind.is_empty() => Vec::new(),
            (Discipline::Grouped { data }, Some(group)) if change.is_grouped(data) => vec![group],
            (Discipline::Grouped { .. }, _) => Vec::new(),
            (Discipline::SoftUpdates | Discipline::Unordered, _) => {
                let mut after = cache.dependencies(change, made);
                after.extend(&plan.behind);
                after
            }
        }))
    }

    /// As [`Cache::apply`] under soft updates, whatever the order of the other changes is: for a
    /// log and for marks.
    ///
    /// # Errors
    /// As for [`Cache::apply`].
    pub fn apply_beside(&mut self, plan: Plan) -> Result<Vec<PatchId>> {
        self.check()?;
        self.prepare(&plan)?;
        Ok(self.make(&plan, Cache::dependencies))
    }

    /// The failure of before.
    fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Writes nothing any more, and answers with this error from now on.
    pub fn fail(&mut self, error: &Error) {
        self.failure.get_or_insert_with(|| error.clone());
    }

    fn make(
        &mut self,
        plan: &Plan,
        after: impl Fn(&Cache, &Change, &[PatchId]) -> Vec<PatchId>,
    ) -> Vec<PatchId> {
        let mut made: Vec<PatchId> = Vec::with_capacity(plan.changes.len());
        for change in &plan.changes {
            let after = match self.graph.planted {
                Some(Bug::Unordered(planted)) if planted == made.len() => Vec::new(),
                _ => after(self, change, &made),
            };
            let patch = self.change(change, &after);
            made.push(patch);
        }
        self.trim();
        made
    }

    /// Brings all blocks of a plan into the cache, so that nothing can fail afterwards.
    fn prepare(&mut self, plan: &Plan) -> Result<()> {
        let mut contents: HashMap<u64, Content> = HashMap::new();
        for change in &plan.changes {
            let planned = *contents.entry(change.block).or_insert(change.content);
            let known = self.blocks.get(&change.block).filter(|known| known.dirty_units > 0);
            let is_other = known.is_some_and(|known| known.content != change.content);
            if is_other || planned != change.content {
                return Err(Error::Unusable {
                    device: self.device.name(),
                    reason: format!("block {} is in use for two things", change.block),
                });
            }
        }
        for change in &plan.changes {
            if let Some(known) = self.blocks.get_mut(&change.block) {
                known.content = change.content;
                continue;
            }
            let bytes = match change.is_fresh {
                true => vec![0; self.block_bytes],
                false => self.load(change.block)?,
            };
            let block = Block::new(bytes, change.content);
            match change.content {
                Content::Metadata => self.keep(change.block, block),
                Content::Data => drop(self.blocks.insert(change.block, block)),
            }
        }
        Ok(())
    }

    /// Whether a block is one of users' bytes.
    pub(crate) fn is_data(&self, block: u64) -> bool {
        self.blocks.get(&block).is_some_and(|known| known.content == Content::Data)
    }

    /// Bytes of a unit of a block.
    fn unit_bytes(&self, block: u64) -> usize {
        let content = self.blocks.get(&block).map_or(Content::Metadata, |known| known.content);
        self.unit_bytes_of(content)
    }

    /// Bytes of what the medium writes whole.
    pub(crate) fn unit_bytes_of(&self, content: Content) -> usize {
        match content {
            Content::Metadata if !self.graph.study.has_whole_blocks => SECTOR_BYTES,
            Content::Metadata | Content::Data => self.block_bytes,
        }
    }

    /// What a change waits for as its plan says.
    fn dependencies(&self, change: &Change, made: &[PatchId]) -> Vec<PatchId> {
        let patches = change.after.iter().flat_map(|after| match *after {
            After::Step(step) => vec![made[step]],
            After::Patch(patch) => vec![patch],
            After::Bytes { block, at, len } => {
                let unit_bytes = self.unit_bytes(block);
                let unit = Unit { block, start: at / unit_bytes * unit_bytes };
                self.graph.patches_of(unit, at % unit_bytes..at % unit_bytes + len)
            }
        });
        patches.collect()
    }

    fn change(&mut self, change: &Change, after: &[PatchId]) -> PatchId {
        let unit = Unit { block: change.block, start: change.start };
        let unit_bytes = self.unit_bytes_of(change.content);
        let block = self.blocks.get_mut(&change.block).expect("it has been prepared");
        block.good_for = None;
        let bytes = &mut block.bytes[change.start..change.start + unit_bytes];
        let was_dirty = self.graph.is_dirty(unit);
        // All changes of a group are durable together, whatever they belong to.
        let is_grouped = self.group.as_ref().is_some_and(|group| after == [group.patch]);
        let owner = if is_grouped { Owner::default() } else { change.owner };
        let place = Place { unit, owner, is_own: change.is_own() };
        let patch = self.graph.change(place, bytes, &change.pieces, after);
        change.pieces.iter().for_each(|piece| piece.put(bytes));
        if !was_dirty {
            self.dirty_blocks += usize::from(block.dirty_units == 0);
            block.dirty_units += 1;
        }
        patch
    }

    /// Writes all that is ready, then flushes; whether anything was written.
    ///
    /// # Errors
    /// A write or the flush failed, now or before: nothing more is written.
    pub fn wave(&mut self) -> Result<bool> {
        let units = self.graph.units_to_write();
        self.wave_over(units, |_| true)
    }

    /// The same for some units, of which those are written whose ready patches are `wanted`.
    fn wave_over(&mut self, units: Vec<Unit>, wanted: impl Fn(&[usize]) -> bool) -> Result<bool> {
        self.check()?;
        let written = self.write_ready(units, wanted).and_then(|written| {
            if !written.is_empty() {
                self.counters.flushes += 1;
                self.device.flush()?;
            }
            Ok(written)
        });
        match written {
            Ok(written) => {
                self.counters.waves += u64::from(!written.is_empty());
                let any = !written.is_empty();
                self.note_durable(written);
                Ok(any)
            }
            Err(error) => {
                self.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Writes the ready part of each unit in which that is wanted; what was written.
    fn write_ready(
        &mut self,
        units: Vec<Unit>,
        wanted: impl Fn(&[usize]) -> bool,
    ) -> Result<Vec<(Unit, Vec<usize>)>> {
        let mut written = Vec::new();
        let (mut run_at, mut run) = (0, Vec::new());
        for unit in units {
            let ready = self.graph.ready(unit);
            if ready.is_empty() || !wanted(&ready) {
                continue;
            }
            let at = self.address(unit.block)? + unit.start as u64;
            if run_at + run.len() as u64 != at || run.len() >= WRITE_BYTES_MAX {
                self.write_run(run_at, &run)?;
                (run_at, run) = (at, Vec::new());
            }
            let unit_bytes = self.unit_bytes(unit.block);
            let block = &self.blocks[&unit.block];
            let from = run.len();
            run.extend_from_slice(&block.bytes[unit.start..unit.start + unit_bytes]);
            let count = self.graph.roll_back(unit, &ready, &mut run[from..]);
            self.counters.rollbacks += count as u64;
            self.counters.twice_bytes += if count > 0 { unit_bytes as u64 } else { 0 };
            written.push((unit, ready));
        }
        self.write_run(run_at, &run)?;
        Ok(written)
    }

    fn write_run(&mut self, at: u64, run: &[u8]) -> Result<()> {
        if run.is_empty() {
            return Ok(());
        }
        self.counters.written_bytes += run.len() as u64;
        self.device.write(at, run)
    }

    fn note_durable(&mut self, written: Vec<(Unit, Vec<usize>)>) {
        self.graph.commit(&written);
        let units = written.into_iter().map(|(unit, _)| unit);
        let clean: Vec<Unit> = units.filter(|unit| !self.graph.is_dirty(*unit)).collect();
        clean.into_iter().for_each(|unit| self.note_clean(unit));
    }

    /// A unit that has no patches any more. Clean data is left to the device's own cache.
    fn note_clean(&mut self, unit: Unit) {
        let block = self.blocks.get_mut(&unit.block).expect("a dirty block is in the cache");
        block.dirty_units -= 1;
        if block.dirty_units > 0 {
            return;
        }
        self.dirty_blocks -= 1;
        let block = self.blocks.remove(&unit.block).expect("it has just been found");
        if block.content == Content::Metadata {
            self.keep(unit.block, block);
        }
        self.trim();
    }

    /// Makes some changes durable, and with them no more than what they wait for and what is ready
    /// in the same units.
    ///
    /// # Errors
    /// As for [`Cache::wave`].
    ///
    /// # Panics
    /// If patches wait for each other, or for an open group: a bug.
    pub fn sync_patches(&mut self, patches: &[PatchId]) -> Result<()> {
        self.check()?;
        // Nothing is added meanwhile: what is left of it is a part of it.
        let mut closure = self.graph.closure(patches);
        while !closure.units.is_empty() {
            let Closure { patches, units } = &closure;
            let is_wanted = |ready: &[usize]| ready.iter().any(|patch| patches.contains(patch));
            let any = self.wave_over(units.iter().copied().collect(), is_wanted)?;
            assert!(any, "patches wait for each other: {}", self.graph.waiting());
            self.graph.drop_committed(&mut closure);
        }
        Ok(())
    }

    /// The changes of these bytes of a block of metadata that may not be durable.
    pub fn patches_at(&self, block: u64, range: Range<usize>) -> Vec<PatchId> {
        let unit_bytes = self.unit_bytes(block);
        let first = range.start / unit_bytes * unit_bytes;
        let units = (first..range.end).step_by(unit_bytes);
        let patches = units.flat_map(|start| {
            let end = range.end.min(start + unit_bytes) - start;
            let within = range.start.saturating_sub(start)..end;
            self.graph.patches_of(Unit { block, start }, within)
        });
        patches.collect()
    }

    /// Makes all changes durable.
    ///
    /// # Errors
    /// As for [`Cache::wave`].
    ///
    /// # Panics
    /// If patches wait for each other, or a group is open: a bug.
    pub fn sync(&mut self) -> Result<()> {
        while !self.is_clean() {
            let any = self.wave()?;
            assert!(any, "patches wait for each other: {}", self.graph.waiting());
        }
        Ok(())
    }
}
