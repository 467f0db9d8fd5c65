//! Directories: their entries on media, and the index of them in memory.
//!
//! An entry never moves, so its place is its cookie. The index is made when a directory is first
//! looked into, and can be dropped at any time.

use crate::layout::{ENTRY_STATE, EntryWord, PAGE, field};
use crate::state::commit::Plan;
use crate::state::sharing::{Leaves, Way};
use crate::state::tree::{Pages, Tree, UNSIZED};
use crate::state::{Node, State};
use marram_vfs::{Error, Kind, Name, Result};
use std::collections::{BTreeMap, HashMap};

/// Most entries of all indexes together, where an index counts as one more.
pub(crate) const INDEXED_MAX: usize = 1 << 20;
/// Most places at the ends of pages that are remembered.
const ENDS_MAX: usize = 16;
/// Words in a page.
const WORDS: u64 = PAGE / 8;

/// What is known of a directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    /// How many entries it has.
    pub(crate) entries: u64,
    index: Option<Index>,
}

impl Directory {
    /// A directory of which only the number of its entries is known.
    pub(crate) fn with(entries: u64) -> Directory {
        Directory { entries, index: None }
    }
}

/// A place in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The cookie of an entry there: its page may become another.
    pub(crate) cookie: u64,
    /// Words there, 0 for the end of a page.
    units: u64,
}

impl Place {
    fn page(self) -> u64 {
        (self.cookie - 1) / WORDS
    }

    /// The word of the page at which it begins.
    fn unit(self) -> u64 {
        (self.cookie - 1) % WORDS
    }
}

#[derive(Clone, Debug, Default)]
struct Index {
    names: HashMap<Box<[u8]>, Place>,
    /// Places that are free, by their words.
    free: BTreeMap<u64, Vec<Place>>,
    /// Ends of pages that have room, with how many words.
    ends: Vec<(Place, u64)>,
    /// How many pages there are, holes included.
    pages: u64,
}

/// An entry as it was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Where it is.
    pub(crate) place: Place,
    /// Its inode.
    pub(crate) ino: u64,
}

/// An entry of a page.
pub(crate) struct Listed<'p> {
    /// Its address.
    pub(crate) at: u64,
    /// Where it is.
    pub(crate) place: Place,
    /// Its first word.
    pub(crate) word: EntryWord,
    /// Its name.
    pub(crate) name: &'p [u8],
}

/// Goes through a page: entries, free places, and the end if there is room.
///
/// # Errors
/// What `visit` fails with; an entry that makes no sense.
pub(crate) fn parse_page(
    bytes: &[u8],
    (address, page): (u64, u64),
    visit: &mut dyn FnMut(Listed<'_>) -> Result<bool>,
) -> Result<()> {
    let mut unit = 0;
    while unit < WORDS {
        let start = (unit * 8) as usize;
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[start..start + 8]);
        let word = EntryWord::decode(u64::from_le_bytes(word));
        let place = Place { cookie: page * WORDS + unit + 1, units: word.units };
        let at = address + unit * 8;
        let bad = || Error::Damaged(format!("the entry at {at:#x} makes no sense"));
        if unit + word.units > WORDS {
            return Err(bad());
        }
        let needs = EntryWord::units_for(word.name_len);
        if word.units != 0 && word.live && (word.name_len == 0 || needs > word.units) {
            return Err(bad());
        }
        let end = if word.live { start + 8 + word.name_len } else { start + 8 };
        let is_end = word.units == 0;
        let name = if is_end { &[] } else { &bytes[start + 8..end] };
        if !visit(Listed { at, place, word, name })? || is_end {
            return Ok(());
        }
        unit += word.units;
    }
    Ok(())
}

impl State {
    /// Calls `visit` with each page of a directory, from a page on.
    pub(crate) fn each_page(
        &self,
        node: Node,
        from: u64,
        visit: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        let root = self.memory.word(node.field(field::ROOT))?;
        self.walk(root, (from, UNSIZED), &mut |met| match met.height {
            0 => visit(met.at, met.first),
            _ => Ok(()),
        })
    }

    fn read_index(&self, node: Node) -> Result<Index> {
        let mut index = Index::default();
        self.each_page(node, 0, &mut |address, page| {
            index.pages = page + 1;
            parse_page(&self.page(address)?, (address, page), &mut |it| {
                if it.word.units == 0 {
                    index.add_end(it.place);
                } else if it.word.live {
                    index.names.insert(it.name.into(), it.place);
                } else {
                    index.free.entry(it.word.units).or_default().push(it.place);
                }
                Ok(true)
            })
        })?;
        Ok(index)
    }

    /// The index of a directory, made if it is not there.
    fn index(&mut self, node: Node) -> Result<&mut Index> {
        if self.dataset.directories.get(&node.ino).is_none_or(|known| known.index.is_none()) {
            let index = self.read_index(node)?;
            self.shed_indexes(index.names.len());
            let known = self.dataset.directories.entry(node.ino).or_default();
            known.entries = index.names.len() as u64;
            known.index = Some(index);
        }
        let known =
            self.dataset.directories.get_mut(&node.ino).and_then(|known| known.index.as_mut());
        known.ok_or_else(|| Error::Damaged("an index that was just made".to_owned()))
    }

    /// Drops all indexes before a new one when they could have become too large together: names
    /// that were removed since the last time count still.
    fn shed_indexes(&mut self, more: usize) {
        if self.indexed + more > self.indexed_max {
            let others = self.others.values_mut().flat_map(|other| other.directories.values_mut());
            let all = self.dataset.directories.values_mut().chain(others);
            all.for_each(|known| known.index = None);
            self.indexed = 0;
        }
        self.indexed += 1 + more;
    }

    /// How many entries a directory has.
    pub(crate) fn entry_count(&mut self, node: Node) -> Result<u64> {
        if let Some(known) = self.dataset.directories.get(&node.ino) {
            return Ok(known.entries);
        }
        let mut entries = 0;
        self.each_page(node, 0, &mut |address, page| {
            parse_page(&self.page(address)?, (address, page), &mut |it| {
                entries += u64::from(it.word.live && it.word.units != 0);
                Ok(true)
            })
        })?;
        self.dataset.directories.insert(node.ino, Directory::with(entries));
        Ok(entries)
    }

    /// The entry of a name.
    pub(crate) fn find(&mut self, node: Node, name: Name<'_>) -> Result<Option<Found>> {
        let Some(place) = self.index(node)?.names.get(name.as_bytes()).copied() else {
            return Ok(None);
        };
        let word = EntryWord::decode(self.memory.word(self.address(node, place)?)?);
        Ok(Some(Found { place, ino: word.ino }))
    }

    /// Where a place of a directory is now.
    pub(crate) fn address(&self, node: Node, place: Place) -> Result<u64> {
        match self.page_at(self.memory.word(node.field(field::ROOT))?, place.page())? {
            0 => Err(Error::Damaged(format!("directory {} has lost a page", node.ino))),
            page => Ok(page + place.unit() * 8),
        }
    }

    /// As [`State::address`], of a place that is about to change.
    fn own_address(&mut self, node: Node, place: Place) -> Result<u64> {
        self.own_way(directory_way(node), place.page())?;
        self.address(node, place)
    }

    /// As [`State::find`], for a name that must be there.
    pub(crate) fn entry(&mut self, node: Node, name: Name<'_>) -> Result<Found> {
        self.find(node, name)?.ok_or(Error::NotFound)
    }

    /// Prepares a place for a name, and plans the store that makes it an entry.
    pub(crate) fn plan_entry(
        &mut self,
        node: Node,
        name: Name<'_>,
        (ino, kind): (u64, Kind),
        plan: &mut Plan,
    ) -> Result<Place> {
        let needs = EntryWord::units_for(name.as_bytes().len());
        let place = match self.index(node)?.find_room(needs) {
            Some(place) => place,
            None => {
                self.add_page(node)?;
                let room = self.index(node)?.find_room(needs);
                room.ok_or_else(|| Error::Damaged("a new page without room".to_owned()))?
            }
        };
        let at = self.own_address(node, place)?;
        self.memory.fill(at + 8, name.as_bytes())?;
        let units = if place.units == 0 { needs } else { place.units };
        let next = at + needs * 8;
        let ends_page = next.is_multiple_of(PAGE);
        if place.units == 0 && !ends_page && self.memory.byte(next)? != 0 {
            self.memory.store(next, 1, 0)?;
        }
        let word = entry_word(units, name, (ino, kind));
        plan.edit(at, word.encode());
        Ok(Place { units, ..place })
    }

    /// Puts an empty page into a directory. No caller sees it.
    fn add_page(&mut self, node: Node) -> Result<()> {
        let pages = self.index(node)?.pages;
        self.apart(|state| state.link_page(node, pages))?;
        let index = self.index(node)?;
        index.pages = pages + 1;
        index.add_end(Place { cookie: pages * WORDS + 1, units: 0 });
        Ok(())
    }

    fn link_page(&mut self, node: Node, place: u64) -> Result<()> {
        let page = self.take_page()?;
        self.memory.store(page, 1, 0)?;
        let mut plan = Plan::default();
        let tree = Tree { way: directory_way(node), end: UNSIZED };
        self.put(tree, &Pages::from([(place, page)]), &mut plan)?;
        self.commit(&plan)
    }

    /// An entry that was planned is there.
    pub(crate) fn note_entry(&mut self, node: Node, name: Name<'_>, place: Place) -> Result<()> {
        let index = self.index(node)?;
        // One that was read anew since then knows the entry, and what is behind it.
        if index.names.insert(name.as_bytes().into(), place) != Some(place) {
            index.occupy(place);
        }
        let entries = index.names.len() as u64;
        self.indexed += 1;
        self.note_count(node, entries);
        Ok(())
    }

    /// Plans the store that takes an entry away.
    pub(crate) fn plan_removal(&mut self, node: Node, place: Place, plan: &mut Plan) -> Result<()> {
        let at = self.own_address(node, place)?;
        let kind = EntryWord::decode(self.memory.word(at)?).kind;
        plan.narrow(at + ENTRY_STATE, 1, kind);
        Ok(())
    }

    /// An entry is not there any more, and its place is free.
    pub(crate) fn note_removal(&mut self, node: Node, name: Name<'_>) -> Result<()> {
        let index = self.index(node)?;
        if let Some(place) = index.names.remove(name.as_bytes()) {
            index.free.entry(place.units).or_default().push(place);
        }
        let entries = index.names.len() as u64;
        self.note_count(node, entries);
        Ok(())
    }

    fn note_count(&mut self, node: Node, entries: u64) {
        self.dataset.directories.entry(node.ino).or_default().entries = entries;
    }

    /// Plans that an entry leads to another inode.
    pub(crate) fn plan_target(
        &mut self,
        (node, place): (Node, Place),
        (ino, kind): (u64, Kind),
        plan: &mut Plan,
    ) -> Result<()> {
        let at = self.own_address(node, place)?;
        let word = EntryWord::decode(self.memory.word(at)?);
        let kind = u64::from(kind.mode_bits() >> 12);
        plan.edit(at, EntryWord { ino, kind, ..word }.encode());
        Ok(())
    }
}

fn directory_way(node: Node) -> Way {
    Way { root_at: node.field(field::ROOT), valid: UNSIZED, leaves: Leaves::Bytes, lowest: 0 }
}

fn entry_word(units: u64, name: Name<'_>, (ino, kind): (u64, Kind)) -> EntryWord {
    let name_len = name.as_bytes().len();
    EntryWord { units, name_len, kind: u64::from(kind.mode_bits() >> 12), live: true, ino }
}

impl Index {
    fn add_end(&mut self, place: Place) {
        let room = WORDS - place.unit();
        self.ends.push((place, room));
        if self.ends.len() > ENDS_MAX {
            self.ends.remove(0);
        }
    }

    /// A place with room for this many words.
    fn find_room(&self, needs: u64) -> Option<Place> {
        let free = self.free.range(needs..).find_map(|(_, places)| places.last().copied());
        let end = || self.ends.iter().rev().find(|(_, room)| *room >= needs);
        free.or_else(|| end().map(|(place, _)| *place))
    }

    /// A place that was found is not free any more.
    fn occupy(&mut self, place: Place) {
        if let Some(places) = self.free.get_mut(&place.units)
            && let Some(which) = places.iter().rposition(|free| free.cookie == place.cookie)
        {
            places.swap_remove(which);
            if places.is_empty() {
                self.free.remove(&place.units);
            }
            return;
        }
        self.ends.retain(|(end, _)| end.cookie != place.cookie);
        let next = Place { cookie: place.cookie + place.units, units: 0 };
        if next.page() == place.page() {
            self.add_end(next);
        }
    }
}
