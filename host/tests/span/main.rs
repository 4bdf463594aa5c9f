//! Spans, staging and faults on the real system. Pages move out and come back, and a touch that
//! cannot be served ends the process.
//!
//! Tests that end a process run themselves in a child and read its last words.

mod calls;
mod closed;
mod forks;
mod guards;
mod handlers;
mod moves;
mod setting;
mod signals;
