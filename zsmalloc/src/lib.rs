//! A dense, compacting allocator of small objects.
#![forbid(unsafe_code)]
