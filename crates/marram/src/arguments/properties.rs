//! What properties of datasets there are, at length.

/// Each property, its values with the default first, and what it says.
macro_rules! property_list {
    () => {
        "
  acl=posix|nfsv4|off         which access control lists hold, from the next mount on
  allow=none|LIST             what users and groups may do beside root; see `marram allow`
  atime=relative|off|strict   when reading moves the access time
  casefold=off|on             names that differ in their case alone are one; only when it is made
  checksum=xxh3|blake3        of what is written from then on
  compression=lz4|zstd|lzo|gzip|zle|off
                              of what is written from then on; also with a level: zstd:3
  dedup=off|on                share what is written from then on with what is equal
  delta=auto|on|off           of a cluster home: send slices of what is replaced, and what is new
  quota=none|SIZE             most that it may refer to
  recordsize=128K             largest block of a file from then on: a power of two from 4K to 1M
  reservation=none|SIZE       space that is kept for it
  snapshots=off|RULE          snapshots that are taken by themselves where something has changed:
                              15m:8,1h:24,1d:7 is each quarter of an hour; 8, then 24 hourly
                              and 7 daily ones stay; m, h, d and w are units
  undo=1h|TIME|off            how long what is destroyed is kept for `marram undo`, as in 30m, 7d
  userforks=256|NUMBER        most forks that a user other than root may have, to make one of it"
    };
}

/// What `marram set` takes, at length.
pub(super) const SET_HELP: &str =
    concat!("New values; the default stands first:", property_list!());

/// What `marram create -O` takes, at length.
pub(super) const CREATE_HELP: &str = concat!(
    "Set a property of the root dataset, or of the one that --dataset makes; the default stands \
     first:",
    property_list!()
);
