//! The server seen by clients: one test per fact.

#[cfg(test)]
mod certificates;
#[cfg(test)]
mod client;
#[cfg(test)]
mod control;
#[cfg(test)]
mod devices;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod handshake;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod listen;
#[cfg(test)]
mod notify;
#[cfg(test)]
mod remote;
#[cfg(test)]
mod stop;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod transmission;
