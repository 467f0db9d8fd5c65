//! Every structure of the format: round trips, hostile bytes, golden bytes, and the examples of
//! the specification.

mod document;
mod example;
mod golden;
mod hex;
mod hostile;
mod log;
mod node;
mod pointer;
mod round_trip;
mod strategy;
mod superblock;
