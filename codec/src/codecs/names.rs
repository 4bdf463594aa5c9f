//! The name of a codec, and the codec of a name.

use super::page_codec::Codec;
use crate::terms::ParseCodecError;
use std::fmt;
use std::str::FromStr;

/// `lz4` at the default level, `zstd:7` at another. Other parameters are not written.
impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level() {
            level if level == self.algorithm().default_level() => self.algorithm().fmt(f),
            level => f.pad(&format!("{}:{}", self.algorithm(), level.unwrap_or_default())),
        }
    }
}

impl FromStr for Codec {
    type Err = ParseCodecError;

    fn from_str(text: &str) -> Result<Self, ParseCodecError> {
        let Some((name, level)) = text.split_once(':') else {
            return Ok(Self::new(text.parse()?));
        };
        let algorithm = name.parse()?;
        let level = level.parse().map_err(|_| ParseCodecError::NotANumber(level.to_owned()))?;
        Ok(Self::with_level(algorithm, level)?)
    }
}
