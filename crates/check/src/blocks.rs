//! Reading blocks: every copy against the checksum in the pointer that led to it.

use bytes::Bytes;
use marram_codec::{ChecksumKind, checksum, decompress};
use marram_device::Device;
use marram_format::node::Node;
use marram_format::pointer::{Checksum, Extent, GRAIN_BYTES, Place, Pointer};
use std::collections::{HashMap, VecDeque};

/// Nodes that are kept in memory, at most 32 KiB each.
const CACHED_NODES_MAX: usize = 256;

/// Which copies of a block to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// The first good one.
    First,
    /// All of them.
    All,
}

/// A copy that is not good.
#[derive(Clone, Debug)]
pub(crate) struct BadCopy {
    /// Which one, from 1.
    pub(crate) number: usize,
    pub(crate) offset_bytes: Option<u64>,
    pub(crate) reason: String,
}

/// Why a block has no content.
#[derive(Clone, Debug)]
pub(crate) enum Unreadable {
    /// No copy is good.
    Lost,
    /// The bytes are those that were written, but do not decompress.
    Content(String),
}

/// A block as it was read.
pub(crate) struct Reading {
    pub(crate) bad: Vec<BadCopy>,
    pub(crate) content: Result<Bytes, Unreadable>,
}

/// The blocks of a device.
pub(crate) struct Blocks<'a> {
    device: &'a dyn Device,
    cache: NodeCache,
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(device: &'a dyn Device) -> Blocks<'a> {
        Blocks { device, cache: NodeCache::default() }
    }

    /// Reads a block.
    pub(crate) fn read(&self, pointer: &Pointer, copies: Copies) -> Reading {
        let (checksum, places) = match &pointer.place {
            Place::Embedded(bytes) => {
                return Reading { bad: Vec::new(), content: unpack(pointer, bytes) };
            }
            Place::Stored { checksum, copies } => (checksum, copies),
        };
        let mut bad = Vec::new();
        let mut good: Option<Vec<u8>> = None;
        for (index, copy) in places.iter().enumerate() {
            match self.read_copy(pointer, checksum, copy) {
                Ok(bytes) => good = good.or(Some(bytes)),
                Err(reason) => {
                    let offset_bytes = copy.first().map(|piece| piece.start * GRAIN_BYTES);
                    bad.push(BadCopy { number: index + 1, offset_bytes, reason });
                }
            }
            if good.is_some() && copies == Copies::First {
                break;
            }
        }
        let content = match good {
            Some(bytes) => unpack(pointer, &bytes),
            None => Err(Unreadable::Lost),
        };
        Reading { bad, content }
    }

    fn read_copy(
        &self,
        pointer: &Pointer,
        expected: &Checksum,
        copy: &[Extent],
    ) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; usize_of(pointer.physical_len)];
        let mut rest = &mut bytes[..];
        for piece in copy {
            if piece.device != 0 {
                return Err(format!("it lies on device {}, which there is not", piece.device));
            }
            let piece_len = u64::from(piece.grains) * GRAIN_BYTES;
            let len = usize::try_from(piece_len).map_or(rest.len(), |len| len.min(rest.len()));
            let (now, later) = rest.split_at_mut(len);
            let read = self.device.read(piece.start * GRAIN_BYTES, now);
            read.map_err(|error| error.to_string())?;
            rest = later;
        }
        let Some(kind) = ChecksumKind::from_id(expected.kind) else {
            return Err("its pointer has no checksum".to_owned());
        };
        if checksum(kind, &bytes) == expected.bytes {
            return Ok(bytes);
        }
        Err("its checksum is wrong".to_owned())
    }

    /// A node from the cache, if it is there.
    pub(crate) fn cached(&self, pointer: &Pointer) -> Option<Node> {
        self.cache.nodes.get(&cache_key(pointer)?).cloned()
    }

    /// Keeps a node that was verified.
    pub(crate) fn keep(&mut self, pointer: &Pointer, node: &Node) {
        if let Some(key) = cache_key(pointer) {
            self.cache.insert(key, node.clone());
        }
    }

    /// A node for a look-up beside the walk: nothing that is wrong with it is reported.
    pub(crate) fn node(&mut self, pointer: &Pointer) -> Option<Node> {
        if let Some(node) = self.cached(pointer) {
            return Some(node);
        }
        let content = self.read(pointer, Copies::First).content.ok()?;
        let node = Node::decode(content).ok()?;
        self.keep(pointer, &node);
        Some(node)
    }
}

/// The content of a block from its stored bytes.
fn unpack(pointer: &Pointer, bytes: &[u8]) -> Result<Bytes, Unreadable> {
    match decompress(pointer.codec, bytes, usize_of(pointer.logical_len)) {
        Ok(content) => Ok(Bytes::from(content)),
        Err(error) => Err(Unreadable::Content(error.to_string())),
    }
}

/// Lengths of blocks are at most 2^24.
fn usize_of(len: u32) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

/// Address, birth and the start of the checksum: what a hostile pointer must not have in common
/// with an honest one that leads to the same place.
type CacheKey = (u64, u64, [u8; 32]);

fn cache_key(pointer: &Pointer) -> Option<CacheKey> {
    match &pointer.place {
        Place::Stored { checksum, .. } => {
            Some((pointer.address()?, pointer.birth.0, checksum.bytes))
        }
        Place::Embedded(_) => None,
    }
}

/// The nodes that were verified last.
#[derive(Default)]
struct NodeCache {
    nodes: HashMap<CacheKey, Node>,
    order: VecDeque<CacheKey>,
}

impl NodeCache {
    fn insert(&mut self, key: CacheKey, node: Node) {
        if self.nodes.insert(key, node).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > CACHED_NODES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.nodes.remove(&oldest);
        }
    }
}
