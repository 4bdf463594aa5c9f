//! Spans, staging and faults, as the system does them: pages move out and come back, and what must
//! not be touched ends the process.
//!
//! Tests that end a process run themselves in a child and read its last words.

mod calls;
mod forks;
mod handlers;
mod moves;
mod setting;
mod signals;
