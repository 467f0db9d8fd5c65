//! Extended attributes: some behind the fields of an inode, the others in a block of their own.
//!
//! Sizes and places are checked before they are used. A changed block is always a new one: the
//! inode leads to it by the same write that changes those in the inode, so all change together.

use crate::bytes::{put_u16, put_u32, u16_at, u32_at};
use crate::checksum;
use crate::inode::Inode;
use crate::state::rules::Rule;
use crate::state::{Work, damaged};
use marram_patch::{After, Content};
use marram_vfs::{Error, Result};

/// What stands before the attributes of an inode and of a block.
const MAGIC: u32 = 0xea02_0000;
/// Where the attributes of a block begin, and those of an inode behind its fields.
const BLOCK_HEAD: usize = 32;
const INODE_HEAD: usize = 4;
/// Bytes of an attribute before its name.
const HEAD: usize = 16;
/// Bytes of the zeros that end the attributes.
const END: usize = 4;
/// The largest inode of old has no room for attributes.
const SMALL_INODE: usize = 128;

/// What a name begins with, by its number in the image. A list of access rights is a whole name.
const PREFIXES: [(u8, &[u8]); 5] = [
    (1, b"user."),
    (ACCESS_LIST, b"system.posix_acl_access"),
    (DEFAULT_LIST, b"system.posix_acl_default"),
    (4, b"trusted."),
    (6, b"security."),
];
pub(crate) const ACCESS_LIST: u8 = 2;
pub(crate) const DEFAULT_LIST: u8 = 3;
/// The file capabilities of a program, dropped with its other privileges.
const CAPABILITY: (u8, &[u8]) = (6, b"capability");

/// An extended attribute as the image has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    index: u8,
    name: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

impl Attribute {
    pub(crate) fn new(index: u8, name: &[u8], value: Vec<u8>) -> Attribute {
        Attribute { index, name: name.to_vec(), value }
    }

    pub(crate) fn is(&self, index: u8, name: &[u8]) -> bool {
        (self.index, &*self.name) == (index, name)
    }

    /// Its name as users see it; none for what this program does not show.
    pub(crate) fn full_name(&self) -> Option<Vec<u8>> {
        let (_, prefix) = PREFIXES.iter().find(|(index, _)| *index == self.index)?;
        Some([prefix, &*self.name].concat())
    }

    fn needs(&self) -> usize {
        HEAD + self.name.len().next_multiple_of(4) + self.value.len().next_multiple_of(4)
    }

    /// The order in a block.
    fn place(&self) -> (u8, usize, &[u8]) {
        (self.index, self.name.len(), &self.name)
    }

    /// What `e2fsck` compares.
    fn hash(&self) -> u32 {
        // The bytes of names have a sign there.
        let byte = |hash: u32, byte: &u8| hash.rotate_left(5) ^ i32::from(*byte as i8) as u32;
        let hash = self.name.iter().fold(0_u32, byte);
        let mut padded = self.value.clone();
        padded.resize(self.value.len().next_multiple_of(4), 0);
        let words = padded.chunks_exact(4).map(|word| u32_at(word, 0));
        words.fold(hash, |hash, word| hash.rotate_left(16) ^ word)
    }
}

/// The number of the namespace of a name, and the rest of the name.
pub(crate) fn split(name: &[u8]) -> Result<(u8, &[u8])> {
    let found = PREFIXES.iter().find(|(_, prefix)| name.starts_with(prefix));
    let Some((index, prefix)) = found else { return Err(Error::NotSupported) };
    let (is_list, rest) = ([ACCESS_LIST, DEFAULT_LIST].contains(index), &name[prefix.len()..]);
    match (is_list, rest.is_empty()) {
        (true, false) => Err(Error::NotSupported),
        (false, true) => Err(Error::InvalidArgument("attribute name")),
        _ => Ok((*index, rest)),
    }
}

/// Reads attributes that begin at `at` of an area; places of values count from `base` of it.
fn decode(area: &[u8], at: usize, base: usize) -> Option<Vec<Attribute>> {
    let (mut at, mut found) = (at, Vec::new());
    loop {
        let entry = area.get(at..)?;
        if entry.get(..END)?.iter().all(|byte| *byte == 0) {
            return Some(found);
        }
        let name_len = usize::from(entry[0]);
        let name = entry.get(HEAD..)?.get(..name_len)?.to_vec();
        let (value_at, value_len) = (usize::from(u16_at(entry, 2)), u32_at(entry, 8) as usize);
        let is_elsewhere = u32_at(entry, 4) != 0;
        let value = match value_len {
            0 => Vec::new(),
            _ => area.get(base + value_at..)?.get(..value_len)?.to_vec(),
        };
        if is_elsewhere || found.len() > area.len() / HEAD {
            return None;
        }
        found.push(Attribute { index: entry[1], name, value });
        at += HEAD + name_len.next_multiple_of(4);
    }
}

/// Writes attributes into an empty area.
fn encode(area: &mut [u8], at: usize, base: usize, attributes: &[Attribute], with_hash: bool) {
    let (mut at, mut end) = (at, area.len());
    for attribute in attributes {
        end -= attribute.value.len().next_multiple_of(4);
        area[end..end + attribute.value.len()].copy_from_slice(&attribute.value);
        area[at] = attribute.name.len() as u8;
        area[at + 1] = attribute.index;
        let place = if attribute.value.is_empty() { 0 } else { end - base };
        put_u16(area, at + 2, place as u16);
        put_u32(area, at + 8, attribute.value.len() as u32);
        put_u32(area, at + 12, if with_hash { attribute.hash() } else { 0 });
        area[at + HEAD..at + HEAD + attribute.name.len()].copy_from_slice(&attribute.name);
        at += HEAD + attribute.name.len().next_multiple_of(4);
    }
}

/// The bytes of a block of attributes that one inode has.
fn encode_block(attributes: &[Attribute], block_bytes: usize) -> Vec<u8> {
    let mut block = vec![0; block_bytes];
    encode(&mut block, BLOCK_HEAD, 0, attributes, true);
    let mix = |hash: u32, it: &Attribute| hash.rotate_left(16) ^ it.hash();
    let is_shareable = attributes.iter().all(|it| it.hash() != 0);
    put_u32(&mut block, 0, MAGIC);
    put_u32(&mut block, 4, 1);
    put_u32(&mut block, 8, 1);
    put_u32(&mut block, 12, if is_shareable { attributes.iter().fold(0, mix) } else { 0 });
    block
}

/// Where attributes in an inode begin, with what stands before them; none if there is no room.
fn attributes_at(inode: &Inode) -> Option<usize> {
    let extra = usize::from(u16_at(inode.bytes.get(..130)?, 128));
    let at = SMALL_INODE + extra;
    (extra >= 4 && at.is_multiple_of(4) && at + INODE_HEAD + END + HEAD <= inode.bytes.len())
        .then_some(at)
}

impl Work<'_> {
    fn own_attributes(&self, inode: &Inode) -> Option<Vec<Attribute>> {
        let Some(at) = attributes_at(inode) else { return Some(Vec::new()) };
        match u32_at(&inode.bytes, at) {
            MAGIC => decode(&inode.bytes[at + INODE_HEAD..], 0, 0),
            _ => Some(Vec::new()),
        }
    }

    fn block_attributes(&mut self, inode: &Inode) -> Result<Vec<Attribute>> {
        let block = inode.attribute_block();
        if block == 0 {
            return Ok(Vec::new());
        }
        self.state.check_block(block)?;
        let seed = self.state.geometry.checksums;
        let bytes = self.read(block)?;
        if seed.is_some_and(|seed| !checksum::is_good_attributes(seed, block, bytes)) {
            let what = format!("the checksum of extended attributes in block {block} is wrong");
            return Err(damaged(what));
        }
        let found = match u32_at(bytes, 0) {
            MAGIC => decode(bytes, BLOCK_HEAD, 0),
            _ => None,
        };
        found.ok_or_else(|| damaged(format!("the extended attributes in block {block}")))
    }

    /// All extended attributes of an inode.
    pub(crate) fn attributes_of(&mut self, inode: &Inode) -> Result<Vec<Attribute>> {
        let own = self.own_attributes(inode);
        let mut all = own.ok_or_else(|| damaged("the extended attributes in an inode"))?;
        all.extend(self.block_attributes(inode)?);
        Ok(all)
    }

    /// Gives an inode these extended attributes, and stores it once `after` is durable.
    pub(crate) fn store_attributes(
        &mut self,
        (number, inode): (u64, &mut Inode),
        mut all: Vec<Attribute>,
        after: &[After],
    ) -> Result<Vec<After>> {
        self.for_inode(number);
        all.sort_by(|one, other| one.place().cmp(&other.place()));
        let (own, others) = fit(inode, all);
        if let Some(at) = attributes_at(inode) {
            inode.bytes[at..].fill(0);
            if !own.is_empty() {
                put_u32(&mut inode.bytes, at, MAGIC);
                encode(&mut inode.bytes[at + INODE_HEAD..], 0, 0, &own, false);
            }
        }
        if others == self.block_attributes(inode)? {
            return self.store(number, inode, after);
        }
        let block_bytes = self.state.geometry.block_bytes;
        let needs: usize = others.iter().map(Attribute::needs).sum();
        if BLOCK_HEAD + needs + END > block_bytes {
            return Err(Error::NoSpace);
        }
        let old = inode.attribute_block();
        let (mut block, mut after) = (0, after.to_vec());
        if !others.is_empty() {
            let group = (number - 1) / self.state.geometry.inodes_per_group;
            let goal = self.state.geometry.group_blocks(group).start;
            let (taken, bits) = self.take_block(goal)?;
            let bytes = encode_block(&others, block_bytes);
            let place = (taken, Content::Metadata);
            after.extend(bits);
            after.extend(self.plan.fresh(&self.state.cache, place, &bytes, &[]));
            block = taken;
        }
        inode.set_attribute_block(block);
        inode.add_blocks(i64::from(block != 0) - i64::from(old != 0), block_bytes);
        let after = self.by(Rule::InodeAfterAttributes, after);
        let steps = self.store(number, inode, &after)?;
        let freed = self.release_attributes(old, &steps)?;
        if !freed.is_empty() {
            self.free(freed, None, &steps)?;
        }
        Ok(steps)
    }

    /// Takes file capabilities away, as every change of content and owner does.
    pub(crate) fn drop_capability(&mut self, number: u64, inode: &mut Inode) -> Result<()> {
        let has_none = inode.attribute_block() == 0
            && attributes_at(inode).is_none_or(|at| u32_at(&inode.bytes, at) != MAGIC);
        if inode.is_directory() || has_none {
            return Ok(());
        }
        let mut all = self.attributes_of(inode)?;
        let before = all.len();
        all.retain(|it| !it.is(CAPABILITY.0, CAPABILITY.1));
        if all.len() < before {
            self.store_attributes((number, inode), all, &[])?;
        }
        Ok(())
    }
}

/// Which attributes fit into an inode, and which do not.
fn fit(inode: &Inode, all: Vec<Attribute>) -> (Vec<Attribute>, Vec<Attribute>) {
    let room = attributes_at(inode).map_or(0, |at| inode.bytes.len() - at - INODE_HEAD - END);
    let (mut left, mut own, mut others) = (room, Vec::new(), Vec::new());
    for attribute in all {
        match left.checked_sub(attribute.needs()) {
            Some(rest) => {
                left = rest;
                own.push(attribute);
            }
            None => others.push(attribute),
        }
    }
    (own, others)
}
