//! The one batch of a merge: names and files that were judged, turned into items.
//!
//! Records are read once and changed in memory, so that link counts, sizes of directories and what
//! owners use come out as sums of all that happens to them. Blocks of the fork are adopted, each
//! once.

use crate::change_set::{ChangeSet, ChangedInode, content_by_size, hull};
use crate::changes::Pair;
use crate::merge_files::{ContentEdit, FileEdit};
use crate::merge_names::{Home, MergeNames, NameEdit};
use crate::parent::HeldParent;
use crate::three_way::ThreeWay;
use marram_format::record::{
    Entry, Inode, InodeKind, NAME_SLOTS, OrphanReason, Time, XattrRecord, state,
};
use marram_records::directory::entry_key;
use marram_records::failure::{from_record, from_store};
use marram_records::inode::{content_keys, inode_key};
use marram_records::lists::ListName;
use marram_records::orphans::{orphan_item, orphan_key};
use marram_records::section_edits::SectionEdits;
use marram_records::sections::{Section, record_bytes, section_key};
use marram_records::state::{Named, State};
use marram_records::usage::{Share, UsageChange};
use marram_records::xattr::{CAPABILITY, xattr_item, xattr_key};
use marram_store::{Batch, Block, Item, Key, View, kind};
use marram_vfs::{Error, Ino, LINKS_MAX, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Items of an inode that are removed together with its last name.
const INLINE_ITEMS_MAX: usize = 64;

/// A record before and after; none after is one that goes.
struct Record {
    before: Option<Inode>,
    after: Option<Inode>,
}

/// The batch in the making.
pub(crate) struct MergeBatch<'a, 's> {
    view: &'a dyn View,
    held: &'a dyn HeldParent,
    sides: &'a ThreeWay<'s>,
    names: &'a MergeNames<'a, 's>,
    now: Time,
    /// First number that is free in the parent.
    first_number: u64,
    /// Numbers of inodes that the fork made with a number below its base's next, as after a
    /// rollback, or that are shown by others than its own.
    odd_numbers: BTreeMap<u64, u64>,
    next_number: u64,
    records: BTreeMap<u64, Record>,
    items: BTreeMap<Key, Option<Item>>,
    adopted: HashMap<BlockName, Block>,
    /// Names that lead elsewhere then: directory and name.
    changed_names: Vec<(u64, Vec<u8>)>,
    /// Between which bytes content is written, by inode of the parent.
    contents: BTreeMap<u64, Range<u64>>,
    /// Inodes that have lost their last name, and stay for now.
    pub(crate) orphans: Vec<u64>,
}

/// What distinguishes blocks of the fork.
#[derive(PartialEq, Eq, Hash)]
enum BlockName {
    Fresh(usize),
    Stored(Vec<u8>),
}

fn name_of(block: &Block) -> BlockName {
    match block {
        Block::Fresh(fresh) => BlockName::Fresh(Arc::as_ptr(fresh) as usize),
        Block::Stored(token) => BlockName::Stored(token.place.to_vec()),
    }
}

impl<'a, 's> MergeBatch<'a, 's> {
    /// Turns all that was judged into items.
    pub(crate) fn prepare(
        (view, held): (&'a dyn View, &'a dyn HeldParent),
        sides: &'a ThreeWay<'s>,
        names: &'a MergeNames<'a, 's>,
        files: &BTreeMap<u64, FileEdit>,
    ) -> Result<MergeBatch<'a, 's>> {
        let first_number = held.first_number();
        let next = sides.fork.counters.next_inode;
        let span = match sides.is_renumbered {
            true => 0,
            false => next.saturating_sub(sides.base.counters.next_inode),
        };
        let mut writing = MergeBatch {
            view,
            held,
            sides,
            names,
            now: held.now(),
            first_number,
            odd_numbers: BTreeMap::new(),
            next_number: first_number.checked_add(span).ok_or(Error::NoSpace)?,
            records: BTreeMap::new(),
            items: BTreeMap::new(),
            adopted: HashMap::new(),
            changed_names: Vec::new(),
            contents: BTreeMap::new(),
            orphans: Vec::new(),
        };
        let arrivals = names.edits.values().filter_map(|edit| edit.new.as_ref());
        let new: BTreeSet<u64> =
            arrivals.map(|new| new.ino).filter(|ino| writing.is_made(*ino)).collect();
        for ino in new {
            writing.add_inode(ino)?;
        }
        writing.write_names()?;
        for (ino, edit) in files {
            writing.write_file(*ino, edit)?;
        }
        writing.remove_nameless()?;
        Ok(writing)
    }

    /// The next number that is free when the batch has been applied.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Whether the merge makes an inode of the fork.
    fn is_made(&self, ino: u64) -> bool {
        self.sides.is_new(ino) && !self.names.aliases.contains_key(&ino)
    }

    /// The parent's number of an inode of the fork.
    fn number(&mut self, ino: u64) -> Result<u64> {
        if let Some(alias) = self.names.aliases.get(&ino) {
            return Ok(*alias);
        }
        if !self.sides.is_new(ino) || self.sides.keeps_number(ino) {
            return Ok(ino);
        }
        let by = ino.checked_sub(self.sides.base.counters.next_inode);
        if let Some(by) = by.filter(|_| !self.sides.is_renumbered) {
            return self.first_number.checked_add(by).ok_or(Error::NoSpace);
        }
        let next = self.next_number;
        let number = *self.odd_numbers.entry(ino).or_insert(next);
        self.next_number = next.max(number.checked_add(1).ok_or(Error::NoSpace)?);
        Ok(number)
    }

    /// A record of the parent, to be changed.
    fn record(&mut self, ino: u64) -> Result<&mut Inode> {
        let record = match self.records.entry(ino) {
            std::collections::btree_map::Entry::Occupied(record) => record.into_mut(),
            std::collections::btree_map::Entry::Vacant(free) => {
                let missing = || Error::Damaged(format!("inode {ino} has a name but no record"));
                let mut inode = self.sides.now.inode(ino)?.ok_or_else(missing)?;
                let before = Some(inode.clone());
                self.held.complete(ino, &mut inode);
                inode.changed = self.now;
                free.insert(Record { before, after: Some(inode) })
            }
        };
        Ok(record.after.as_mut().expect("records go last"))
    }

    /// A block of the fork, for the parent.
    fn adopt(&mut self, block: &Block) -> Result<Block> {
        if let Some(known) = self.adopted.get(&name_of(block)) {
            return Ok(known.clone());
        }
        let adopted = self.view.adopt(&*self.sides.fork.view, block).map_err(from_store)?;
        self.adopted.insert(name_of(block), adopted.clone());
        Ok(adopted)
    }

    fn adopt_section(&mut self, section: &Section) -> Result<Section> {
        let block = section.block.as_ref().map(|block| self.adopt(block)).transpose()?;
        Ok(Section { block, ..section.clone() })
    }

    /// Makes an inode that the fork made; names come later.
    fn add_inode(&mut self, fork: u64) -> Result<()> {
        let ino = self.number(fork)?;
        let missing = || Error::Damaged(format!("inode {fork} has a name but no record"));
        let mut inode = self.sides.fork.inode(fork)?.ok_or_else(missing)?;
        let is_directory = inode.kind == InodeKind::Directory;
        inode.links = if is_directory { 2 } else { 0 };
        inode.changed = self.now;
        inode.state &= !state::TAIL;
        (inode.data_bytes, inode.reserved_bytes) = (0, 0);
        for (key, item) in self.sides.fork.items(fork)? {
            let Some(item) = self.item_for(key, item, &mut inode)? else { continue };
            self.items.insert(Key { object: ino, ..key }, Some(item));
        }
        if is_directory {
            inode.size = 0;
        }
        self.records.insert(ino, Record { before: None, after: Some(inode) });
        Ok(())
    }

    /// An item of a new inode, without what lies past the end of the file and waits to be removed.
    fn item_for(&mut self, key: Key, item: Item, inode: &mut Inode) -> Result<Option<Item>> {
        if key.kind == kind::SECTION {
            let section =
                Section::decode(key, &item).map_err(|error| from_record(key.object, &error))?;
            let is_tail = section.block.is_some() && section.at >= inode.size;
            if is_tail {
                return Ok(None);
            }
            match section.block {
                Some(_) => inode.data_bytes += section.len,
                None => inode.reserved_bytes += section.len,
            }
        }
        let block = item.block.as_ref().map(|block| self.adopt(block)).transpose()?;
        Ok(Some(Item { value: item.value, block }))
    }

    fn write_names(&mut self) -> Result<()> {
        let names = self.names;
        // What goes is taken first, so that its places are free.
        for ((home, _), edit) in &names.edits {
            if let (Home::In(directory), Some(old)) = (home, &edit.old) {
                self.items.insert(entry_key(*directory, old.offset), None);
            }
        }
        for ((home, _), edit) in &names.edits {
            let directory = match home {
                Home::In(directory) => *directory,
                Home::New(directory) => self.number(*directory)?,
                Home::Gone => unreachable!("nothing is done in a directory that is gone"),
            };
            self.write_name(directory, matches!(home, Home::New(_)), edit)?;
        }
        Ok(())
    }

    fn write_name(&mut self, directory: u64, is_made: bool, edit: &NameEdit) -> Result<()> {
        let is_directory = |entry: &Named| entry.kind == InodeKind::Directory;
        let subdirectory =
            |entry: &Option<Named>| u32::from(entry.as_ref().is_some_and(&is_directory));
        let now = self.now;
        let record = self.record(directory)?;
        let (came, went) = (u64::from(edit.new.is_some()), u64::from(edit.old.is_some()));
        record.size = (record.size + came).saturating_sub(went);
        record.links =
            (record.links + subdirectory(&edit.new)).saturating_sub(subdirectory(&edit.old));
        if record.links > LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        if !is_made {
            record.modified = now;
        }
        if let Some(old) = &edit.old {
            self.changed_names.push((directory, old.name.clone()));
            let is_gone = self.sides.is_gone(old.ino);
            let record = self.record(old.ino)?;
            if !is_directory(old) {
                record.links = record.links.saturating_sub(1);
            } else if is_gone {
                record.links = 0;
            }
        }
        let Some(new) = &edit.new else {
            return Ok(());
        };
        let ino = self.number(new.ino)?;
        let place = match &edit.old {
            Some(old) => old.offset,
            None if is_made => new.offset,
            None => self.free_place(directory, new)?,
        };
        let entry = Entry { ino, kind: new.kind, name: &new.name };
        self.items.insert(entry_key(directory, place), Some(Item::plain(entry.encode())));
        self.changed_names.push((directory, new.name.clone()));
        let record = self.record(ino)?;
        (record.parent, record.name_place) = (directory, place);
        if !is_directory(new) {
            record.links += 1;
            if record.links > LINKS_MAX {
                return Err(Error::TooManyLinks);
            }
        }
        Ok(())
    }

    /// A free place for a name, that of the fork if it is free.
    fn free_place(&self, directory: u64, new: &Named) -> Result<u64> {
        let base = self.sides.now.base_of(&new.name);
        let places = std::iter::once(new.offset).chain(base..base + NAME_SLOTS);
        for place in places {
            let free = match self.items.get(&entry_key(directory, place)) {
                Some(item) => item.is_none(),
                None => self.sides.now.entry_at(directory, place)?.is_none(),
            };
            if free {
                return Ok(place);
            }
        }
        Err(Error::NoSpace)
    }

    fn write_file(&mut self, ino: u64, edit: &FileEdit) -> Result<()> {
        self.record(ino)?;
        if let Some(content) = &edit.content {
            self.write_content(ino, edit.fork, content)?;
        }
        let record = self.record(ino)?;
        record.permissions = edit.permissions.unwrap_or(record.permissions);
        record.uid = edit.uid.unwrap_or(record.uid);
        record.gid = edit.gid.unwrap_or(record.gid);
        record.flags = edit.flags.unwrap_or(record.flags);
        record.project = edit.project.unwrap_or(record.project);
        if let Some(modified) = edit.modified {
            record.modified = record.modified.max(modified);
        }
        if let Some((accessed, modified)) = edit.times {
            (record.accessed, record.modified) = (accessed, modified);
        }
        for (name, value) in &edit.xattrs {
            self.write_xattr(ino, name, value.as_deref())?;
        }
        Ok(())
    }

    fn write_xattr(&mut self, ino: u64, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let bit = match ListName::of(name) {
            Some(list) => list.bit(),
            None if name == CAPABILITY => state::CAPABILITY,
            None => 0,
        };
        let record = self.record(ino)?;
        match value {
            Some(_) => record.state |= bit,
            None => record.state &= !bit,
        }
        let (mut offset, found) = self.sides.now.probe_xattr(ino, name)?;
        let Some(value) = value else {
            if found.is_some() {
                self.items.insert(xattr_key(ino, offset), None);
            }
            return Ok(());
        };
        // A place of equal hash may have been taken by this batch.
        while found.is_none() && self.is_taken(xattr_key(ino, offset), name)? {
            offset += 1;
        }
        self.items.insert(xattr_key(ino, offset), Some(xattr_item(name, value)));
        Ok(())
    }

    /// Whether the batch puts another attribute there.
    fn is_taken(&self, key: Key, name: &[u8]) -> Result<bool> {
        let Some(Some(item)) = self.items.get(&key) else {
            return Ok(false);
        };
        let record = XattrRecord::decode(&item.value);
        Ok(record.map_err(|error| from_record(key.object, &error))?.name != name)
    }

    fn write_content(&mut self, ino: u64, fork: u64, content: &ContentEdit) -> Result<()> {
        let sides = self.sides;
        let missing = || Error::Damaged(format!("inode {fork} has a name but no record"));
        let theirs = sides.fork.inode(fork)?.ok_or_else(missing)?;
        let written = match content {
            ContentEdit::Changed => content_of(sides.changed_sections(fork)),
            _ => ChangedInode::ALL,
        };
        self.contents.insert(ino, written);
        match content {
            ContentEdit::Changed => self.write_changed(ino, fork, &theirs),
            ContentEdit::Whole => {
                let sections = sides.fork.sections(fork, theirs.size)?;
                let sections: Vec<Section> =
                    sections.iter().map(|one| self.adopt_section(one)).collect::<Result<_>>()?;
                self.replace(ino, sections, theirs.size)
            }
            ContentEdit::Bytes(bytes) => {
                let record_bytes = record_bytes(&self.view.properties());
                let record_bytes = usize::try_from(record_bytes).expect("1 MiB");
                let section = |(index, chunk): (usize, &[u8])| Section {
                    at: (index * record_bytes) as u64,
                    len: chunk.len() as u64,
                    block_start: 0,
                    block: Some(Block::fresh(chunk.to_vec())),
                };
                let sections = bytes.chunks(record_bytes).enumerate().map(section).collect();
                self.replace(ino, sections, bytes.len() as u64)
            }
            ContentEdit::Ranges(ranges, size) => {
                let mut edits = SectionEdits::default();
                let present = sides.now.sections(ino, u64::MAX)?;
                let sections = sides.fork.sections(fork, theirs.size)?;
                let mut old = present;
                for range in ranges {
                    edits.cut(&old, range.start, range.end);
                    old = cut_out(&old, range.start, range.end);
                    let meets =
                        |section: &&Section| section.at < range.end && section.end() > range.start;
                    for section in sections.iter().filter(meets) {
                        let part = section.part(range.start, range.end.min(theirs.size));
                        edits.put(self.adopt_section(&part)?);
                    }
                }
                self.apply(ino, edits, *size)
            }
        }
    }

    /// The file has the base's sections: those that the fork changed are changed.
    fn write_changed(&mut self, ino: u64, fork: u64, theirs: &Inode) -> Result<()> {
        let sides = self.sides;
        let pairs = sides.changed_sections(fork);
        let own = OwnBlocks::of(sides.now, ino, pairs)?;
        for Pair { before, after } in pairs {
            match (before, after) {
                (_, Some(section)) => {
                    let block = section.block.as_ref();
                    let own = block.and_then(|block| own.find(sides.fork, block));
                    let section = match own {
                        Some(block) => Section { block: Some(block), ..section.clone() },
                        None => self.adopt_section(section)?,
                    };
                    self.items.insert(section_key(ino, section.at), Some(section.into_item()));
                }
                (Some(section), None) => {
                    self.items.insert(section_key(ino, section.at), None);
                }
                (None, None) => (),
            }
        }
        let record = self.record(ino)?;
        record.size = theirs.size;
        (record.data_bytes, record.reserved_bytes) = (theirs.data_bytes, theirs.reserved_bytes);
        let (had, has) = (record.state & state::TAIL != 0, theirs.state & state::TAIL != 0);
        record.state = record.state & !state::TAIL | theirs.state & state::TAIL;
        if has {
            let item = orphan_item(OrphanReason::Tail);
            self.items.insert(orphan_key(ino), Some(item));
            self.orphans.push(ino);
        } else if had {
            self.items.insert(orphan_key(ino), None);
        }
        Ok(())
    }

    /// Gives a file other sections for all that it has.
    fn replace(&mut self, ino: u64, sections: Vec<Section>, size: u64) -> Result<()> {
        let mut edits = SectionEdits::default();
        edits.cut(&self.sides.now.sections(ino, u64::MAX)?, 0, u64::MAX);
        sections.into_iter().for_each(|section| edits.put(section));
        self.apply(ino, edits, size)
    }

    fn apply(&mut self, ino: u64, edits: SectionEdits, size: u64) -> Result<()> {
        let mut inode = self.record(ino)?.clone();
        for (offset, section) in edits.settle(&mut inode) {
            self.items.insert(section_key(ino, offset), section.map(Section::into_item));
        }
        inode.size = size;
        if inode.state & state::TAIL != 0 && inode.data_bytes + inode.reserved_bytes == 0 {
            inode.state &= !state::TAIL;
            self.items.insert(orphan_key(ino), None);
        }
        *self.record(ino)? = inode;
        Ok(())
    }

    /// Removes inodes that have lost their last name, or leaves them to be reclaimed.
    fn remove_nameless(&mut self) -> Result<()> {
        let is_nameless = |(ino, record): (&u64, &Record)| {
            record.after.as_ref().is_some_and(|inode| inode.links == 0).then_some(*ino)
        };
        let nameless: Vec<u64> = self.records.iter().filter_map(is_nameless).collect();
        for ino in nameless {
            let keys = content_keys(self.view, ino, INLINE_ITEMS_MAX)?;
            if self.held.is_in_use(ino) || keys.len() >= INLINE_ITEMS_MAX {
                let item = orphan_item(OrphanReason::Nameless);
                self.items.insert(orphan_key(ino), Some(item));
                self.orphans.push(ino);
                continue;
            }
            for key in keys {
                self.items.insert(key, None);
            }
            // Also what the merge has changed of it would be left without an inode.
            let (first, last) = (Key::new(ino, kind::ENTRY, 0), Key::new(ino, u8::MAX, u64::MAX));
            self.items.range_mut(first..=last).for_each(|(_, item)| *item = None);
            let record = self.records.get_mut(&ino).expect("it was found there");
            let inode = record.after.take().expect("records go last");
            if inode.state & state::TAIL != 0 {
                self.items.insert(orphan_key(ino), None);
            }
        }
        Ok(())
    }

    /// Puts everything into a batch. Returns by how much the number of inodes changes, and what
    /// owners use.
    pub(crate) fn fill(&mut self, batch: &mut Batch<'_>) -> (i64, UsageChange) {
        let mut usage = UsageChange::default();
        let mut count = 0;
        for (ino, record) in &self.records {
            let share = |inode: &Option<Inode>| inode.as_ref().map(Share::of);
            usage.note(share(&record.before), share(&record.after));
            count += i64::from(record.after.is_some()) - i64::from(record.before.is_some());
            match &record.after {
                Some(inode) => batch.put(inode_key(*ino), Item::plain(inode.encode().to_vec())),
                None => batch.remove(inode_key(*ino)),
            };
        }
        for (key, item) in std::mem::take(&mut self.items) {
            match item {
                Some(item) => batch.put(key, item),
                None => batch.remove(key),
            };
        }
        (count, usage)
    }

    /// What of the parent is not as it was.
    pub(crate) fn change_set(&mut self) -> ChangeSet {
        let inodes = self.records.iter().filter_map(|(ino, record)| {
            let content = match (record.before.as_ref()?, &record.after) {
                (before, Some(after)) => content_by_size(before, after),
                (_, None) => ChangedInode::ALL,
            };
            let written = self.contents.get(ino).unwrap_or(&ChangedInode::ATTRIBUTES);
            Some(ChangedInode { ino: Ino(*ino), content: hull(&content, written) })
        });
        let inodes = inodes.collect();
        let names = std::mem::take(&mut self.changed_names).into_iter();
        ChangeSet { inodes, names: names.map(|(ino, name)| (Ino(ino), name)).collect() }
    }
}

/// The bytes between which sections differ.
fn content_of(pairs: &[Pair<Section>]) -> Range<u64> {
    let sections = pairs.iter().flat_map(|pair| [&pair.before, &pair.after]).flatten();
    let ranges = sections.map(|section| section.at..section.end());
    ranges.fold(ChangedInode::ATTRIBUTES, |all, range| hull(&all, &range))
}

/// What is left of sections without a range.
fn cut_out(sections: &[Section], from: u64, to: u64) -> Vec<Section> {
    let mut left = Vec::new();
    for section in sections {
        if section.at < from {
            left.push(section.part(section.at, from));
        }
        if section.end() > to {
            left.push(section.part(to, section.end()));
        }
    }
    left
}

/// The blocks that the parent has where the fork's changes touch a file: a section of the fork that
/// is a slice of one of them is one of the parent's too. The batch has all items that refer to it,
/// as a store wants.
///
/// They are not the base's: of a file that was removed and brought back, or got its content back
/// from a snapshot, the parent has the same blocks, but has adopted them since.
struct OwnBlocks {
    by_name: HashMap<BlockName, Block>,
    by_address: HashMap<(u16, u64), Block>,
}

impl OwnBlocks {
    fn of(now: &State, ino: u64, pairs: &[Pair<Section>]) -> Result<OwnBlocks> {
        let mut own = OwnBlocks { by_name: HashMap::new(), by_address: HashMap::new() };
        for before in pairs.iter().filter_map(|pair| pair.before.as_ref()) {
            let Some(block) = now.section_at(ino, before.at)?.and_then(|section| section.block)
            else {
                continue;
            };
            if let Some(address) = now.view.place_of(&block).address {
                own.by_address.insert(address, block.clone());
            }
            own.by_name.insert(name_of(&block), block);
        }
        Ok(own)
    }

    fn find(&self, fork: &State, block: &Block) -> Option<Block> {
        let by_address = || {
            let address = fork.view.place_of(block).address?;
            self.by_address.get(&address).filter(|own| own.len() == block.len())
        };
        self.by_name.get(&name_of(block)).or_else(by_address).cloned()
    }
}
