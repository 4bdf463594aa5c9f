//! Why a process does not fold, beside the errors of the system, which are positive.

/// Without userfaultfd: it does not have glibc 2.34 or later.
pub const LIBRARY: i32 = -2;
/// Without userfaultfd: the kernel puts libraries at the same addresses in every program.
pub const ADDRESSES: i32 = -3;
/// Without userfaultfd: it is a Go program.
pub const GO: i32 = -5;
/// Valgrind runs it.
pub const VALGRIND: i32 = -6;
/// Without userfaultfd: it did what cannot be served.
pub const MELTED: i32 = -4;
