//! The parts that the tests are built from.

mod built;
mod certificates;
mod nbd;
mod pages;
mod scratch;
mod server;
mod spaces;
mod spot;
mod stack;
mod stopped;
mod terminal;
mod tools;
mod tree;
mod way;

pub(crate) use built::built;
pub(crate) use certificates::{certificates, certificates_within, shell_in};
pub(crate) use nbd::Nbd;
pub(crate) use pages::{PAGE_SIZE, noise, real_files};
pub(crate) use scratch::Scratch;
pub(crate) use server::{Process, Server, signal};
pub(crate) use spaces::Space;
pub(crate) use spot::{Spot, needs_mount};
pub(crate) use stack::{Loop, Mount, undo};
pub(crate) use stopped::Stopped;
pub(crate) use terminal::Terminal;
pub(crate) use tools::{
    BINARY, eventually, from_env, needs, needs_device, needs_env, needs_root, ramfold, refusal,
    succeed, tool, within,
};
pub(crate) use tree::{Tree, errno, needs_tree};
pub(crate) use way::{
    Alone, Disabled, Offer, by_io_uring, by_io_uring_too, is_by_io_uring, needs_io_uring,
};
