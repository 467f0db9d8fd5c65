//! The program as its users run it: every test runs the real binary, in a folder of its own.
//! One binary for all of them, as linking is what costs, but for those with mount namespaces.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_history;
mod between_homes;
mod branches;
mod buckets;
mod checkouts;
mod cluster;
mod copies;
mod crashes;
mod damage;
mod decisions;
mod dedup;
mod defragment;
mod elsewhere;
mod exchange;
mod ext2;
mod footprints;
mod forks;
mod full;
mod help;
mod hints;
mod history;
mod keeping;
mod known_inodes;
mod loop_devices;
#[allow(dead_code, reason = "these tests use a part of the server")]
#[path = "../../cluster/tests/mongo_server.rs"]
mod mongo_server;
mod mongodb;
mod mounted_streams;
mod mounting;
mod offline;
mod outside;
mod pasts;
mod patches;
mod permissions;
mod pmem;
mod postgres;
mod quotas;
mod ranges;
mod receiving;
mod refusals;
mod reports;
mod resumed;
mod schedules;
#[allow(dead_code, reason = "these tests use a part of the server")]
#[path = "../../cluster/tests/seaweed.rs"]
mod seaweed;
mod selection;
#[allow(dead_code, reason = "these tests use a part of the server")]
#[path = "../../cluster/tests/server.rs"]
mod server;
mod sockets;
mod strange_names;
mod strangers;
mod streams;
mod together;
mod tree;
mod undo;
mod versions;
mod watching;
mod workbench;
mod workspaces;
