//! The operations of the protocol and their numbers.

/// Defines [`Opcode`] with its numbers both ways.
macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// What a request asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Opcode {
            $($(#[$doc])* $name = $number,)*
        }

        impl Opcode {
            /// All that the protocol has.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name,)*];

            /// The operation of that number, if there is one.
            pub const fn from_number(number: u32) -> Option<Opcode> {
                match number {
                    $($number => Some(Opcode::$name),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    /// Find a name in a directory.
    Lookup = 1,
    /// Take back lookups of one inode; has no reply.
    Forget = 2,
    /// Read attributes.
    GetAttributes = 3,
    /// Change attributes.
    SetAttributes = 4,
    /// Read a symbolic link's target.
    ReadLink = 5,
    /// Make a symbolic link.
    Symlink = 6,
    /// Make a file or device node.
    MakeNode = 8,
    /// Make a directory.
    MakeDirectory = 9,
    /// Remove a name.
    Unlink = 10,
    /// Remove a directory.
    RemoveDirectory = 11,
    /// Move a name.
    Rename = 12,
    /// Add a name.
    Link = 13,
    /// Open a file.
    Open = 14,
    /// Read from a file.
    Read = 15,
    /// Write to a file.
    Write = 16,
    /// Tell how much space there is.
    Space = 17,
    /// The last use of an open file is over.
    Release = 18,
    /// Make a file durable.
    Sync = 20,
    /// Set an extended attribute.
    SetXattr = 21,
    /// Tell an extended attribute.
    GetXattr = 22,
    /// List extended attributes.
    ListXattrs = 23,
    /// Remove an extended attribute.
    RemoveXattr = 24,
    /// One use of an open file is over.
    Flush = 25,
    /// Agree on the protocol.
    Init = 26,
    /// Open a directory.
    OpenDirectory = 27,
    /// List a directory.
    ReadDirectory = 28,
    /// The last use of an open directory is over.
    ReleaseDirectory = 29,
    /// Make a directory durable.
    SyncDirectory = 30,
    /// Ask about a lock.
    GetLock = 31,
    /// Set a lock.
    SetLock = 32,
    /// Set a lock and wait for it.
    SetLockWait = 33,
    /// Check permission.
    Access = 34,
    /// Make a file and open it.
    Create = 35,
    /// Stop waiting for another request; has no reply.
    Interrupt = 36,
    /// Map a block of a file to one of a device.
    MapBlock = 37,
    /// The file system is being unmounted.
    Destroy = 38,
    /// A device control call.
    Ioctl = 39,
    /// Ask for readiness.
    Poll = 40,
    /// Answer to a notification that asked for data; has no reply.
    NotifyReply = 41,
    /// Take back lookups of many inodes; has no reply.
    BatchForget = 42,
    /// Allocate, punch or zero a range.
    Allocate = 43,
    /// List a directory with attributes.
    ReadDirectoryPlus = 44,
    /// Move a name, with flags.
    Rename2 = 45,
    /// Find data or a hole.
    Seek = 46,
    /// Copy a range.
    CopyRange = 47,
    /// Map a range of a file into memory shared with the kernel.
    SetupMapping = 48,
    /// Take such a mapping back.
    RemoveMapping = 49,
    /// Make everything durable.
    SyncAll = 50,
    /// Make a file without a name.
    CreateAnonymous = 51,
    /// Tell attributes, birth too.
    ExtendedAttributes = 52,
    /// Copy a range, with a 64-bit count in the reply.
    CopyRange64 = 53,
}
