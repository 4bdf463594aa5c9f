//! The doors: NBD server and control socket.
#![forbid(unsafe_code)]
