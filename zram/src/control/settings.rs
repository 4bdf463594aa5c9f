//! The settings that a device gets before it has a size, and those that outlive a reset.
//!
//! ```text
//!                          a reset clears      fixed once it has a size
//!   algorithms, parameters      x                       x
//!   backing device              x                       x
//!   mem_limit, memory_target    x
//!   compressed_writeback                                x
//!   pages_per_pool_page                                 x
//!   writeback_limit, its enable, batch size
//! ```
//!
//! The right column and the effect of a reset are those of the kernel's code, or of study S1's.
//!
//! Invariant: the primary priority always has an algorithm. `ready` is its codec, and goes as soon
//! as the algorithm or its parameters are set. Settings change only under the lock of their device.

use std::path::PathBuf;
use std::sync::Arc;

use codec::{Algorithm, Codec};
use disk::{Disk, NbdDisk};

use super::shared::DeviceDefaults;
use crate::attributes::AttributeError;
use crate::attributes::algorithms::{Parameters, Request};
use crate::terms::PRIORITIES;

/// The priority of the algorithm that pages are written with.
pub(crate) const PRIMARY: usize = 0;
/// Blocks in flight to the backing device, unless a number is set: as many as in the kernel,
const BATCH_LOCAL: u32 = 32;
/// and more if it is on another machine, where each request waits for the network.
const BATCH_REMOTE: u32 = 1024; // 4 MiB

/// The disk that pages are written back to.
#[derive(Clone)]
pub(crate) struct Backing {
    /// The path as it was written.
    pub(crate) path: PathBuf,
    pub(crate) disk: Arc<dyn Disk>,
    /// The same, if it is that of an NBD server.
    pub(crate) remote: Option<NbdDisk>,
}

/// The settings of a device.
#[derive(Clone)]
pub(crate) struct Settings {
    /// By priority.
    pub(crate) algorithms: [Option<Algorithm>; PRIORITIES],
    /// By priority, including priorities that have no algorithm yet.
    pub(crate) parameters: [Parameters; PRIORITIES],
    /// The primary algorithm of the defaults, until another or its parameters are set.
    ready: Option<Codec>,
    /// Bytes; 0 means no limit.
    pub(crate) mem_limit: u64,
    /// Bytes; 0 means no target.
    pub(crate) memory_target: u64,
    pub(crate) backing: Option<Backing>,
    /// Blocks of 4 KiB that may still be written.
    pub(crate) writeback_limit: u64,
    pub(crate) writeback_limit_enable: bool,
    /// Blocks in flight, once they are set.
    pub(crate) writeback_batch_size: Option<u32>,
    pub(crate) compressed_writeback: bool,
    pub(crate) chain_order: u32,
}

impl Settings {
    /// The settings of a device that was just added.
    pub(crate) fn new(defaults: &DeviceDefaults) -> Settings {
        let mut settings = Settings {
            algorithms: [None; PRIORITIES],
            parameters: std::array::from_fn(|_| Parameters::default()),
            ready: None,
            mem_limit: 0,
            memory_target: 0,
            backing: None,
            writeback_limit: 0,
            writeback_limit_enable: false,
            writeback_batch_size: None,
            compressed_writeback: false,
            chain_order: defaults.chain_order,
        };
        settings.reset(defaults);
        settings
    }

    /// Blocks that are in flight to the backing device.
    pub(crate) fn batch_size(&self) -> u32 {
        let is_remote = self.backing.as_ref().is_some_and(|backing| backing.remote.is_some());
        self.writeback_batch_size.unwrap_or(if is_remote { BATCH_REMOTE } else { BATCH_LOCAL })
    }

    /// Clears the settings that a reset clears.
    pub(crate) fn reset(&mut self, defaults: &DeviceDefaults) {
        self.reset_algorithms(defaults);
        self.mem_limit = defaults.mem_limit;
        self.memory_target = defaults.memory_target.unwrap_or(0);
        self.backing = None;
    }

    /// Goes back to the default algorithm, and to no secondary ones.
    pub(crate) fn reset_algorithms(&mut self, defaults: &DeviceDefaults) {
        self.algorithms = [None; PRIORITIES];
        self.parameters = std::array::from_fn(|_| Parameters::default());
        self.algorithms[PRIMARY] = Some(defaults.algorithm.algorithm());
        self.ready = Some(defaults.algorithm.clone());
    }

    /// Chooses an algorithm. The parameters of the one before are forgotten.
    pub(crate) fn choose(&mut self, priority: usize, algorithm: Algorithm) {
        self.algorithms[priority] = Some(algorithm);
        self.set_parameters(priority, Parameters::default());
    }

    /// Replaces all parameters of a priority's algorithm.
    pub(crate) fn set_parameters(&mut self, priority: usize, parameters: Parameters) {
        self.parameters[priority] = parameters;
        if priority == PRIMARY {
            self.ready = None;
        }
    }

    /// Forgets the dictionaries. The disk has them, digested and counted, and a reset forgets them
    /// anyway.
    pub(crate) fn forget_dictionaries(&mut self) {
        self.parameters.iter_mut().for_each(|parameters| parameters.dictionary = None);
    }

    /// Whether an algorithm or its parameters were chosen, so that tiers are not wanted.
    pub(crate) fn has_chosen_algorithms(&self) -> bool {
        self.ready.is_none() || self.algorithms[PRIMARY + 1..].iter().any(Option::is_some)
    }

    /// The priority of an algorithm.
    pub(crate) fn priority_of(&self, algorithm: &str) -> Option<usize> {
        self.algorithms.iter().position(|known| known.is_some_and(|k| k.name() == algorithm))
    }

    /// The codec of a priority, if it has an algorithm.
    pub(crate) fn codec(&self, priority: usize) -> Result<Option<Codec>, AttributeError> {
        match (&self.ready, self.algorithms[priority]) {
            (Some(ready), _) if priority == PRIMARY => Ok(Some(ready.clone())),
            (_, Some(algorithm)) => self.parameters[priority].codec(algorithm).map(Some),
            (_, None) => Ok(None),
        }
    }

    /// The priority that a request is about: the one that it names, or that of the algorithm that
    /// it names. If it names both, they must agree.
    pub(crate) fn priority_asked(&self, request: &Request) -> Result<usize, AttributeError> {
        let named = request.priority.map(|priority| {
            let found = usize::try_from(priority).ok().filter(|&p| p < PRIORITIES);
            found.ok_or_else(|| AttributeError::invalid("a priority is 0 to 3"))
        });
        let named = named.transpose()?;
        let Some(name) = &request.name else { return Ok(named.unwrap_or(PRIMARY)) };
        let of_name = match named {
            Some(at) => (self.algorithms[at].map(Algorithm::name) == Some(name)).then_some(at),
            None => self.priority_of(name),
        };
        let wrong = || AttributeError::invalid(format!("no such priority has algorithm {name:?}"));
        of_name.ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_the_first_priority_that_has_it() {
        let mut settings = Settings::new(&DeviceDefaults::default());
        assert_eq!(settings.priority_of("zstd"), None);
        settings.choose(1, Algorithm::Zstd);
        settings.choose(3, Algorithm::Zstd);
        assert_eq!(settings.priority_of("zstd"), Some(1));
    }
}
