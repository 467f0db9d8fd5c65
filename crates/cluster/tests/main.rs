//! The tests of the cluster store: one binary, a module for each question.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod automatic;
mod blind;
mod bucket;
mod bucket_service;
mod certificates;
mod clients;
mod contract;
mod crashes;
mod directory;
mod dying;
mod engines;
mod histories;
mod holder;
mod hostile;
mod interrupted;
mod item_cache;
mod locks;
mod mongo;
mod mongo_server;
mod numbers;
mod operations;
mod outside;
mod outside_answers;
mod postgres;
mod resting;
mod round_trips;
mod seaweed;
mod server;
mod slices;
mod slices_random;
mod space;
mod specification;
mod stores;
mod tls;
mod together;
mod transactions;
mod transfers;
mod tree;
mod tunnel;
