//! Algorithms and their parameters: `comp_algorithm`, `recomp_algorithm`, `algorithm_params`.
//!
//! ```text
//!   comp_algorithm      zstd                              -> priority 0
//!   recomp_algorithm    algo=zstd priority=2              -> priority 2
//!   algorithm_params    algo=zstd level=7 dict=/a/file    -> the priority that zstd has
//! ```
//!
//! Invariant: a parameter is judged together with its algorithm when the device gets its size, as
//! in the kernel. It is not judged before, because the algorithm may still change.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use codec::{Algorithm, Codec, ParameterError};

use super::errno::{AttributeError, Errno};
use super::number::signed;
use super::pairs::{Pair, pairs};
use crate::terms::PRIORITIES;

/// A name of an algorithm is shorter than this.
const NAME_MAX: usize = 128;
/// Bytes of the longest dictionary.
const DICTIONARY_MAX: u64 = 16 << 20; // 16 MiB

/// The parameters that were given for an algorithm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) level: Option<i32>,
    pub(crate) winbits: Option<i32>,
    pub(crate) dictionary: Option<Arc<[u8]>>,
}

impl Parameters {
    /// The algorithm with these parameters.
    pub(crate) fn codec(&self, algorithm: Algorithm) -> Result<Codec, AttributeError> {
        let parameters = codec::Parameters {
            level: self.level,
            // The kernel's other algorithms ignore it.
            winbits: self.winbits.filter(|_| algorithm.takes_winbits()),
            dictionary: self.dictionary.as_deref(),
        };
        Codec::with_parameters(algorithm, &parameters).map_err(refusal)
    }
}

fn refusal(error: ParameterError) -> AttributeError {
    let errno = match error {
        ParameterError::NoMemory => Errno::NoMemory,
        error if error.is_unsupported() => Errno::NotSupported,
        _ => Errno::Invalid,
    };
    AttributeError::new(errno, error.to_string())
}

/// All names, the chosen one in brackets, as the kernel prints them.
pub(crate) fn list(chosen: Algorithm) -> String {
    let mut text = String::new();
    for &algorithm in Algorithm::ALL {
        match algorithm == chosen {
            // Writing to a string cannot fail.
            true => _ = write!(text, "[{algorithm}] "),
            false => _ = write!(text, "{algorithm} "),
        }
    }
    text.push('\n');
    text
}

/// The algorithm with a name, which may end in a newline.
pub(crate) fn algorithm(text: &str) -> Result<Algorithm, AttributeError> {
    if text.len() >= NAME_MAX {
        let message = format!("the name of an algorithm is shorter than {NAME_MAX} characters");
        return Err(AttributeError::new(Errno::TooLong, message));
    }
    let name = text.strip_suffix('\n').unwrap_or(text);
    name.parse()
        .map_err(|unknown: codec::UnknownAlgorithm| AttributeError::invalid(unknown.to_string()))
}

/// The text of `recomp_algorithm`: an algorithm, and its priority.
pub(crate) fn recompression(text: &str) -> Result<(usize, Algorithm), AttributeError> {
    let (mut name, mut priority) = (None, 1);
    for pair in pairs(text) {
        let value = pair.required()?;
        match pair.key {
            "algo" => name = Some(value),
            "priority" => priority = number(pair)?,
            _ => {}
        }
    }
    let missing = || AttributeError::invalid("no algorithm; write algo=NAME priority=1..3");
    let name = name.ok_or_else(missing)?;
    let priority = usize::try_from(priority).ok().filter(|p| (1..PRIORITIES).contains(p));
    let none = || AttributeError::invalid("a priority for recompression is 1, 2 or 3");
    Ok((priority.ok_or_else(none)?, algorithm(name)?))
}

/// The text of `algorithm_params`, before its priority is looked up.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) priority: Option<i32>,
    pub(crate) name: Option<String>,
    parameters: Parameters,
    dictionary: Option<PathBuf>,
}

impl Request {
    /// Parses the text.
    pub(crate) fn parse(text: &str) -> Result<Request, AttributeError> {
        let mut request = Request::default();
        for pair in pairs(text) {
            let value = pair.required()?;
            match pair.key {
                "priority" => request.priority = Some(number(pair)?),
                "algo" => request.name = Some(value.to_owned()),
                "level" => request.parameters.level = Some(number(pair)?),
                "deflate.winbits" => request.parameters.winbits = Some(number(pair)?),
                "dict" => request.dictionary = Some(value.into()),
                _ => {}
            }
        }
        Ok(request)
    }

    /// The dictionary's path, if the text names one.
    pub(crate) fn dictionary(&self) -> Option<&Path> {
        self.dictionary.as_deref()
    }

    /// The parameters, with the dictionary's bytes.
    pub(crate) fn into_parameters(self) -> Result<Parameters, AttributeError> {
        let dictionary = self.dictionary.as_deref().map(read_dictionary).transpose()?;
        Ok(Parameters { dictionary, ..self.parameters })
    }
}

fn number(pair: Pair<'_>) -> Result<i32, AttributeError> {
    signed(pair.required()?).map_err(|error| {
        error.with(pair.value.unwrap_or_default(), &format!("a whole number for {}", pair.key))
    })
}

fn read_dictionary(path: &Path) -> Result<Arc<[u8]>, AttributeError> {
    let shown = path.display();
    let failed = |error: std::io::Error| AttributeError::from_io(&shown, &error);
    let found = std::fs::metadata(path).map_err(failed)?;
    if !found.is_file() {
        return Err(AttributeError::invalid(format!("{shown} is not a file")));
    }
    let too_large = || {
        let message = format!("{shown} is larger than 16M, too large for a dictionary");
        AttributeError::new(Errno::FileTooBig, message)
    };
    let empty = || AttributeError::invalid(format!("the dictionary {shown} is empty"));
    match found.len() {
        // It is not read to find out. A file whose content is made while it is read, such as
        // /proc/kmsg, has no length either, and may make its reader wait for ever.
        0 => return Err(empty()),
        1..=DICTIONARY_MAX => {}
        _ => return Err(too_large()),
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(DICTIONARY_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() as u64 {
        0 => Err(empty()),
        1..=DICTIONARY_MAX => Ok(bytes.into()),
        _ => Err(too_large()),
    }
}
