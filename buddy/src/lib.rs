//! The page allocator.
#![forbid(unsafe_code)]
