//! What a view can do beside the map and its blocks, each apart from the others.
//!
//! A capability is handed out whole: a view that has it keeps its contract, and a view that cannot
//! keep it does not hand it out. So no method here has a body of its own.

use crate::{Batch, Block, HeldLock, Key, LockRequest, Result, View};
use bytes::Bytes;

/// The capabilities of a view; none by default. A view that wraps another may hand on those of the
/// view inside, as long as it changes nothing that they speak of.
#[derive(Clone, Copy, Default)]
pub struct Capabilities<'v> {
    /// The store counts its space.
    pub space: Option<&'v dyn CountedSpace>,
    /// The store keeps space back, and gives back what is freed.
    pub admission: Option<&'v dyn AdmissionControl>,
    /// Blocks have places.
    pub placement: Option<&'v dyn Placement>,
    /// What holds a block can be found out: of views of [`crate::FrozenViews`].
    pub ownership: Option<&'v dyn Ownership>,
    /// Blocks of other views can be shared.
    pub adoption: Option<&'v dyn Adoption>,
    /// Devices below can be given the bytes that hold nothing.
    pub trimming: Option<&'v dyn Trimming>,
    /// The store as a whole has a label.
    pub label: Option<&'v dyn Labelled>,
    /// The store can be stopped as by a power cut.
    pub halting: Option<&'v dyn Halting>,
    /// Other clients can have the store open at the same time.
    pub together: Option<&'v dyn Together>,
    /// Objects can be locked against all clients that have the store open.
    pub locks: Option<&'v dyn Locking>,
    /// Each question is a round trip, and many can be asked at once.
    pub foresight: Option<&'v dyn Foresight>,
}

/// A moment of a dataset, as others change it: it is another one once they have. What goes through
/// this client leaves it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Grows when others have changed the dataset.
    pub changed: u64,
    /// Grows when the store has cut files anew, so that they share blocks: all content is as it
    /// was, in other sections.
    pub recut: u64,
    /// Another one once the dataset has gone back to an earlier state, or once this client has lost
    /// what it had not published: numbers that were set apart before may be in use by others.
    pub history: u64,
}

/// A dataset that other clients change too.
///
/// Between two calls of [`Together::look`] a view shows what was there at the first, or what others
/// have made of it since. An operation that changes something therefore reads, and applies a batch
/// that names the moment that is known; it is refused if others came first. One that only reads
/// looks before. If nothing was [`Together::stirred`] since, all that it has read is of the moment
/// of that look; else it looks once more: if the moment is the same, nobody has changed anything
/// between.
pub trait Together {
    /// Takes in what others have published. The moment is at least that of each publication that
    /// had returned to its client before the call.
    ///
    /// # Errors
    /// A failed read; [`crate::Error::ReadOnly`] once others have taken this client for lost.
    fn look(&self) -> Result<Moment>;

    /// The moment that is known. It asks nobody: others may have published since.
    fn known_moment(&self) -> Moment;

    /// A number that changes whenever this client has read, or takes in, what may be of a later
    /// moment than the one that is known. While it is what it was before a look, all that was read
    /// since is of the moment of that look.
    fn stirred(&self) -> u64;

    /// Whether others may read. Then each batch is durable and seen by them when it has been
    /// applied; and nothing that is kept in memory about the dataset holds beyond a look.
    fn is_shared(&self) -> bool;

    /// Whether others may have the store open, also such as read nothing now: what has lost its
    /// last name may be in use there. True wherever [`Together::is_shared`] is.
    fn has_company(&self) -> bool;
}

/// Locks that exclude users of all clients of a store. They are gone with their client.
pub trait Locking {
    /// Sets a lock of an object, or lets go of one: what the same owner held of the range is
    /// replaced. Never waits for others: returns a lock that is in the way, if one is. Then nothing
    /// has changed, but for a lock of the whole object that was to be held in another way: its
    /// owner has let go of it.
    ///
    /// What others had applied before they let go is seen by each look ([`Together::look`]) from
    /// then on. A client that others have taken for lost is never given a lock; what it held they
    /// may have taken.
    ///
    /// # Errors
    /// [`crate::Error::LimitExceeded`] for more ranges than can be held; a failed read or write;
    /// [`crate::Error::ReadOnly`] once others have taken this client for lost. To let go never
    /// fails: where the database does not answer, it is done later.
    fn set_lock(&self, object: u64, lock: &LockRequest) -> Result<Option<HeldLock>>;

    /// A lock that would be in the way of this one.
    ///
    /// # Errors
    /// As for [`Locking::set_lock`].
    fn find_lock(&self, object: u64, lock: &LockRequest) -> Result<Option<HeldLock>>;
}

/// A store that is far away, as one on a server. What a caller is going to ask for is read in few
/// steps, and kept in memory like all that was read; what is not there by then is asked for alone.
pub trait Foresight {
    /// The items under these keys are asked for next.
    fn foresee_items(&self, keys: &[Key]);

    /// The contents of these blocks are read next. The caller bounds their sum.
    fn foresee_blocks(&self, blocks: &[Block]);
}

/// Space that is counted.
pub trait CountedSpace {
    /// How much space there is.
    fn space(&self) -> Space;
}

/// Space that is kept back and given back.
pub trait AdmissionControl {
    /// How many bytes the holder of this view has promised to later writes. So many, and what items
    /// for them need, are kept back from batches of this and of all other views, but for those that
    /// use them up ([`Batch::promised_bytes`]) or free space. They do not count as free. It is a
    /// number in memory: the next one takes its place, and it goes with the view.
    fn promise(&self, bytes: u64);

    /// Whether a batch would be refused now, as a merge, for want of space or over a limit; applies
    /// nothing. What is kept only until its space is needed counts as free.
    ///
    /// # Errors
    /// Those that the merge would give.
    fn dry_run(&self, batch: Batch<'_>) -> Result<()>;

    /// As [`View::sync`]; and the space that those batches freed can be used, and counts as free.
    ///
    /// # Errors
    /// As for [`View::sync`].
    fn commit(&self) -> Result<()>;
}

/// Blocks that have a place in the store.
pub trait Placement {
    /// Bytes that a stored block takes in the store (a fresh one: its length).
    fn stored_bytes(&self, block: &Block) -> u64;

    /// Where a block is.
    fn place_of(&self, block: &Block) -> BlockPlace;

    /// As [`View::read_block`], from the device even if the content is in memory: for a caller that
    /// is going to let go of another copy of it.
    ///
    /// # Errors
    /// A failed read.
    fn read_block_anew(&self, block: &Block) -> Result<Bytes>;

    /// Whether nothing but the items under these keys holds a block, so that its space comes back
    /// when they let go of it: no other item, no snapshot, no other dataset. The answer is that of
    /// the last commit: while one of the items has changed since, it is no; and so it always is of
    /// a view that is not writable.
    ///
    /// # Errors
    /// A failed read.
    fn is_held_only_by(&self, block: &Block, keys: &[Key]) -> Result<bool>;
}

/// What the blocks of a frozen view are held by.
pub trait Ownership {
    /// What holds a block; `None` of a block that takes no place of its own.
    ///
    /// # Errors
    /// A failed read.
    fn holding(&self, block: &Block) -> Result<Option<Holding>>;
}

/// Blocks that several views of a store can share.
pub trait Adoption {
    /// A block of another view of the same store, made fit to be put into a batch of this one:
    /// the store shares what it can. What `from` holds must stay until the batch has been applied:
    /// it is a snapshot that stays open, or nothing changes meanwhile the items that refer to the
    /// block. Within the dataset the block is a new one, not the same as any that it has.
    ///
    /// # Errors
    /// A failed read.
    fn adopt(&self, from: &dyn View, block: &Block) -> Result<Block>;
}

/// Devices that can be given the bytes that hold nothing.
pub trait Trimming {
    /// Tells the devices below which bytes hold nothing any more: those between the bytes `from`
    /// and `to` of a device, in runs of at least `min_bytes`. Returns how many they were.
    ///
    /// # Errors
    /// As for [`AdmissionControl::commit`], or a device failed.
    fn trim(&self, from: u64, to: u64, min_bytes: u64) -> Result<u64>;
}

/// A store that has a label.
pub trait Labelled {
    /// What the store as a whole is called; may be empty.
    fn label(&self) -> String;

    /// Gives the store a label for a user, which is durable when this returns. A store that keeps a
    /// log of operations enters it in the same step.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if it is too long; otherwise as for [`View::sync`].
    fn set_label(&self, label: &str, user: u32) -> Result<()>;
}

/// A store that can be stopped.
pub trait Halting {
    /// The store of this view takes no more changes and writes nothing more, as if the power were
    /// cut now: what is not durable yet will be gone when it is opened again. Reads go on working;
    /// a sync fails with [`crate::Error::Io`].
    fn halt(&self);
}

/// How much space the store of a view has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Size of the store in bytes, without what it keeps for itself.
    pub total_bytes: u64,
    /// Bytes that batches can still take.
    pub free_bytes: u64,
}

impl Space {
    /// Of a store that does not count its space: more than any caller asks for.
    pub const UNCOUNTED: Space =
        Space { total_bytes: UNCOUNTED_BYTES, free_bytes: UNCOUNTED_BYTES };
}

/// See [`Space::UNCOUNTED`].
const UNCOUNTED_BYTES: u64 = 1 << 60;

/// Where a block is: for people, and for callers that want a block of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    /// Number of the device and byte on it where the first copy begins; none of a block that has
    /// not been written, or that lies beside its item.
    pub address: Option<(u16, u64)>,
    /// Byte on that device behind the first copy, if it lies in one piece.
    pub end_address: Option<u64>,
    /// Pieces that the first copy lies in; 0 without an address.
    pub pieces: u64,
    /// Bytes that all copies take in the store.
    pub stored_bytes: u64,
    /// More than one item of the dataset refers to it; of a block that has not been written that
    /// may be so.
    pub may_be_shared: bool,
}

impl BlockPlace {
    /// Of a block that has no place on a device, or whose place its store cannot tell.
    pub fn in_memory(stored_bytes: u64) -> BlockPlace {
        let (address, end_address) = (None, None);
        BlockPlace { address, end_address, pieces: 0, stored_bytes, may_be_shared: true }
    }
}

/// What holds a block, and what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Names the block in the store: no two that are in use have the same.
    pub address: u64,
    /// With the address, names it in its dataset: a block that the dataset has adopted is given
    /// back apart from the same block of old. 0 of one that was not adopted.
    pub adopted: u64,
    /// Bytes that all copies take.
    pub stored_bytes: u64,
    /// Items of the dataset that refer to it under this name.
    pub references: u64,
    /// How many have to give it back before it is free: one for each name in each dataset.
    pub owners: u64,
    /// Whether the dataset gives it back as soon as none of its items refers to it: no snapshot
    /// has it.
    pub comes_back: bool,
}
