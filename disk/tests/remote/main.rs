//! A disk over NBD, against a small server whose answers a test decides.

mod lanes;
mod server;
mod trouble;
