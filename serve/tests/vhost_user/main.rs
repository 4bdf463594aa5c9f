//! The vhost-user server seen by a guest and by its frontend: one test per fact.
//!
//! The guest is a driver of our own over the library's frontend, so that it can do wrong whatever a
//! real one could.

#[cfg(test)]
mod frontends;
#[cfg(test)]
mod guest;
#[cfg(test)]
mod hostile;
mod lost;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod rig;
