//! The program from outside: studies, tools, peers, and how it ends.

#[cfg(test)]
mod alloc;
#[cfg(test)]
mod breakdown;
#[cfg(test)]
mod cache;
#[cfg(test)]
mod compact;
#[cfg(test)]
mod corpus;
mod cpulists;
#[cfg(test)]
mod far;
#[cfg(test)]
mod faultin;
#[cfg(test)]
mod fio;
#[cfg(test)]
mod fs;
#[cfg(test)]
mod kernel;
#[cfg(test)]
mod locks;
#[cfg(test)]
mod pagealloc;
#[cfg(test)]
mod pagetypeinfo;
#[cfg(test)]
mod report;
#[cfg(test)]
mod run;
#[cfg(test)]
mod studies;
#[cfg(test)]
mod support;
#[cfg(test)]
mod teardown;
mod writeback;
