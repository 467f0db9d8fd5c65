//! The model behind a real mount: what programs see through the kernel. Needs `/dev/fuse` and root;
//! where they are missing every test says so and passes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod appends;
mod attributes;
mod behind;
mod creation;
mod direct;
mod directories;
mod durability;
mod files;
mod fixture;
mod kept;
mod names;
mod privileges;
mod proxy;
mod ranges;
mod rings;
mod rules;
mod sessions;
mod signals;
mod slow_device;
mod watchers;
