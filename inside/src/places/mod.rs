//! Where each page of a process is.

#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(unused_imports, reason = "the rooms that use them are for 64-bit Intel and AMD")
)]

mod bits;
mod book;
mod density;
mod news;
mod spans;
mod terms;

pub(crate) use bits::{aligned, bits, ones, page_in_group, runs};
pub(crate) use book::{Book, CHUNK};
pub(crate) use density::{Density, is_watched};
pub(crate) use news::{News, Step};
pub(crate) use spans::{Kind, Spans};
#[cfg(all(target_arch = "x86_64", not(loom)))]
pub(crate) use terms::SMALL_MIN;
pub(crate) use terms::{GROUP, GROUP_PAGES, MAPPING_MIN, PAGE, Place, Word};
