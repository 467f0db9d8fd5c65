//! Extended attributes: all of an inode lie in one tree, which a change replaces.

use crate::layout::{FLAG_XATTRS, PAGE, field, pages_of, split_root};
use crate::state::commit::Plan;
use crate::state::sharing::{Branch, Leaves};
use crate::state::tree::Pages;
use crate::state::{Basics, Node, State};
use marram_vfs::{
    Error, Ino, Result, Timestamp, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XattrMode,
};

/// Most bytes of all extended attributes of an inode.
const XATTRS_BYTES_MAX: usize = 8 << 20;
/// Bytes before the attributes: how many bytes they are.
const HEAD: usize = 8;
/// The file capabilities of a program, dropped with its other privileges.
const CAPABILITY: &[u8] = b"security.capability";

/// Names and values.
type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

fn damaged(node: Node) -> Error {
    Error::Damaged(format!("the extended attributes of inode {} make no sense", node.ino))
}

fn encode(attributes: &Attributes) -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    for (name, value) in attributes {
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend((value.len() as u32).to_le_bytes());
        bytes.extend(name);
        bytes.extend(value);
    }
    let len = (bytes.len() - HEAD) as u64;
    bytes[..HEAD].copy_from_slice(&len.to_le_bytes());
    bytes
}

fn decode(mut bytes: &[u8]) -> Option<Attributes> {
    let mut attributes = Attributes::new();
    while !bytes.is_empty() {
        let (lengths, rest) = bytes.split_first_chunk::<8>()?;
        let lengths = u64::from_le_bytes(*lengths);
        let name = rest.get(..(lengths & 0xffff_ffff) as usize)?;
        let value = rest.get(name.len()..)?.get(..(lengths >> 32) as usize)?;
        attributes.push((name.to_vec(), value.to_vec()));
        bytes = &rest[name.len() + value.len()..];
    }
    Some(attributes)
}

impl State {
    /// The root pointer of an inode's extended attributes, and how many pages they have.
    pub(crate) fn xattr_tree(&self, node: Node) -> Result<(u64, u64)> {
        let root = self.memory.word(node.field(field::XATTRS))?;
        let first = self.page_at(root, 0)?;
        if split_root(root).0 == 0 || first == 0 {
            return Err(damaged(node));
        }
        let bytes = self.memory.word(first)?;
        if bytes > XATTRS_BYTES_MAX as u64 {
            return Err(damaged(node));
        }
        Ok((root, pages_of(HEAD as u64 + bytes)))
    }

    fn all_xattrs(&self, node: Node, basics: &Basics) -> Result<Attributes> {
        if !basics.has_xattrs() {
            return Ok(Attributes::new());
        }
        let (root, pages) = self.xattr_tree(node)?;
        let mut bytes = Vec::new();
        self.walk(root, (0, pages), &mut |met| {
            if met.height == 0 {
                bytes.extend(self.page(met.at)?);
            }
            Ok(())
        })?;
        let len = self.memory.word(self.page_at(root, 0)?)? as usize;
        let bytes = bytes.get(HEAD..HEAD + len).ok_or_else(|| damaged(node))?;
        decode(bytes).ok_or_else(|| damaged(node))
    }

    /// Plans that an inode has these extended attributes.
    fn plan_xattrs(
        &mut self,
        node: Node,
        basics: &Basics,
        attributes: &Attributes,
        plan: &mut Plan,
    ) -> Result<()> {
        let flags_at = node.field(field::FLAGS);
        let old = if basics.has_xattrs() { Some(self.xattr_tree(node)?) } else { None };
        if attributes.is_empty() {
            plan.narrow(flags_at, 2, u64::from(basics.flags & !FLAG_XATTRS));
        } else {
            let bytes = encode(attributes);
            if bytes.len() > XATTRS_BYTES_MAX {
                return Err(Error::NoSpace);
            }
            let mut pages = Pages::new();
            for (place, part) in bytes.chunks(PAGE as usize).enumerate() {
                let page = self.take_page()?;
                self.memory.fill(page, part)?;
                pages.insert(place as u64, page);
            }
            let root = self.fresh_tree(&pages)?;
            if old.is_some() {
                plan.edit(node.field(field::XATTRS), root);
            } else {
                self.memory.store(node.field(field::XATTRS), 8, root)?;
                plan.narrow(flags_at, 2, u64::from(basics.flags | FLAG_XATTRS));
            }
        }
        if let Some((root, pages)) = old {
            self.freed.extend(Branch::top(root, pages, Leaves::Bytes)?);
        }
        Ok(())
    }

    /// Plans that file capabilities go, as every change of content and owner takes them away.
    pub(crate) fn plan_no_capability(
        &mut self,
        node: Node,
        basics: &Basics,
        plan: &mut Plan,
    ) -> Result<()> {
        if basics.is_directory() || !basics.has_xattrs() {
            return Ok(());
        }
        let mut attributes = self.all_xattrs(node, basics)?;
        let before = attributes.len();
        attributes.retain(|(name, _)| name != CAPABILITY);
        if attributes.len() == before {
            return Ok(());
        }
        self.plan_xattrs(node, basics, &attributes, plan)
    }

    /// The value of an extended attribute.
    pub(crate) fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let (node, basics) = self.inode(ino)?;
        let attributes = self.all_xattrs(node, &basics)?;
        let found = attributes.into_iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value).ok_or(Error::NoAttribute)
    }

    /// The names of all extended attributes.
    pub(crate) fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let (node, basics) = self.inode(ino)?;
        Ok(self.all_xattrs(node, &basics)?.into_iter().map(|(name, _)| name).collect())
    }

    /// Sets an extended attribute.
    pub(crate) fn set_xattr(
        &mut self,
        ino: Ino,
        (name, value): (&[u8], &[u8]),
        mode: XattrMode,
        now: Timestamp,
    ) -> Result<()> {
        let (node, basics) = self.inode(ino)?;
        if name.is_empty() {
            return Err(Error::InvalidArgument("attribute name"));
        }
        if name.len() > XATTR_NAME_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Error::ValueTooLarge);
        }
        let mut attributes = self.all_xattrs(node, &basics)?;
        let known = attributes.iter().position(|(known, _)| known == name);
        match (mode, known) {
            (XattrMode::Create, Some(_)) => return Err(Error::Exists),
            (XattrMode::Replace, None) => return Err(Error::NoAttribute),
            (_, Some(which)) => attributes[which].1 = value.to_vec(),
            (_, None) => attributes.push((name.to_vec(), value.to_vec())),
        }
        self.change_xattrs(node, &basics, &attributes, now)
    }

    /// Removes an extended attribute.
    pub(crate) fn remove_xattr(&mut self, ino: Ino, name: &[u8], now: Timestamp) -> Result<()> {
        let (node, basics) = self.inode(ino)?;
        let mut attributes = self.all_xattrs(node, &basics)?;
        let before = attributes.len();
        attributes.retain(|(known, _)| known != name);
        if attributes.len() == before {
            return Err(Error::NoAttribute);
        }
        self.change_xattrs(node, &basics, &attributes, now)
    }

    fn change_xattrs(
        &mut self,
        node: Node,
        basics: &Basics,
        attributes: &Attributes,
        now: Timestamp,
    ) -> Result<()> {
        let node = self.own(Ino(node.ino))?;
        let mut plan = Plan::default();
        self.plan_xattrs(node, basics, attributes, &mut plan)?;
        self.commit(&plan)?;
        self.stamp_change(node, now)
    }
}
