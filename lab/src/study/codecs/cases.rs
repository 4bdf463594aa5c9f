//! What is compared: algorithms with levels, with a dictionary of the corpus or none, in units.
//!
//! Invariant: lz4 of single pages is the first case, because all others are compared with it.
//! Locks: none.

use super::packers::{Lz4Units, Packer, Pages, ZstdUnits};
use super::sample::Sample;
use crate::ground::LabError;
use crate::pages::PAGE_SIZE;
use crate::rows::Row;
use codec::{Algorithm, Codec};
use std::fmt;

/// Levels that matter for pages.
const ALL: [&str; 16] = [
    "lz4",
    "lz4:4",
    "lz4hc",
    "lzo-rle",
    "lzo",
    "zstd:-3",
    "zstd:-1",
    "zstd:1",
    "zstd",
    "zstd:9",
    "deflate:1",
    "deflate",
    "pagelz:1",
    "pagelz",
    "lz4hc:4",
    "deflate:9",
];
/// Those that are tried with a dictionary too.
const WITH_DICTIONARY: [&str; 6] = ["lz4", "zstd:-1", "zstd:1", "zstd", "pagelz:1", "pagelz"];
/// Those that are tried in units too.
const IN_UNITS: [&str; 4] = ["lz4", "zstd:-1", "zstd:1", "zstd"];
/// The largest dictionary of content.
const CONTENT_BYTES: usize = 64 << 10;

/// One thing that is measured.
pub(super) struct Case {
    codec: Codec,
    /// Pages of a unit.
    pub(super) unit: usize,
    own_dictionary: bool,
}

/// A case with what it needs of a corpus.
pub(super) enum Kind {
    Pages(Codec),
    Lz4Units,
    ZstdUnits(i32),
}

/// The cases of `named` algorithms, or all of them.
pub(super) fn all(named: &[Codec], units: &[u32]) -> Vec<Case> {
    let parse = |text: &&str| text.parse::<Codec>().expect("a codec");
    let base = Codec::new(Algorithm::Lz4);
    let mut singles: Vec<Codec> = match named {
        [] => ALL.iter().map(parse).collect(),
        named => named.to_vec(),
    };
    singles.retain(|codec| *codec != base);
    singles.insert(0, base);
    let wanted = |list: &[&str], codec: &Codec| list.contains(&codec.to_string().as_str());
    let mut cases: Vec<Case> = Vec::new();
    let case =
        |codec: &Codec, unit, own_dictionary| Case { codec: codec.clone(), unit, own_dictionary };
    cases.extend(singles.iter().map(|codec| case(codec, 1, false)));
    let with = singles.iter().filter(|codec| wanted(&WITH_DICTIONARY, codec));
    cases.extend(with.map(|codec| case(codec, 1, true)));
    for &unit in units.iter().filter(|&&unit| unit > 1) {
        let in_units = singles.iter().filter(|codec| wanted(&IN_UNITS, codec));
        cases.extend(in_units.map(|codec| case(codec, unit as usize, false)));
    }
    cases
}

/// The cases of single pages without a dictionary once more, shuffled by elements of these sizes.
pub(super) fn shuffled(cases: &[Case], elements: &[usize]) -> Result<Vec<Case>, LabError> {
    let plain = cases.iter().filter(|case| case.unit == 1 && !case.own_dictionary);
    let each = plain.flat_map(|case| elements.iter().map(move |&bytes| (case, bytes)));
    each.map(|(case, bytes)| {
        let codec = case.codec.with_shuffle(bytes).map_err(LabError::store("shuffle"))?;
        Ok(Case { codec, unit: 1, own_dictionary: false })
    })
    .collect()
}

impl Case {
    pub(super) fn key(&self, sample: &Sample) -> Row {
        let mut row = Row::default();
        row.set("corpus", sample.name.as_str())
            .set("codec", self.codec.to_string())
            .set("unit_kib", self.unit * PAGE_SIZE / 1024)
            .set("dictionary", if self.own_dictionary { "own" } else { "none" })
            .set("shuffle", self.codec.shuffle().unwrap_or(0))
            .set("pages", sample.judged.len() / PAGE_SIZE);
        row
    }

    /// The case with its dictionary, which is made from the sampled pages of the corpus.
    pub(super) fn ready(&self, sample: &Sample) -> Result<Kind, LabError> {
        if self.unit > 1 {
            return Ok(match self.codec.algorithm() {
                Algorithm::Lz4 => Kind::Lz4Units,
                _ => Kind::ZstdUnits(self.codec.level().unwrap_or_default()),
            });
        }
        if !self.own_dictionary {
            return Ok(Kind::Pages(self.codec.clone()));
        }
        let what = format!("{self}: dictionary of {}", sample.name);
        let algorithm = self.codec.algorithm();
        let content = match algorithm {
            Algorithm::Pagelz => codec::train(algorithm, &sample.for_tables(), CONTENT_BYTES),
            _ => codec::train(algorithm, &sample.sampled, CONTENT_BYTES),
        };
        let content = content.map_err(LabError::store(&what))?;
        let with = self.codec.with_dictionary(&content);
        Ok(Kind::Pages(with.map_err(LabError::store(&what))?))
    }
}

impl Kind {
    /// What does the work, new for each run.
    pub(super) fn packer(&self, unit_bytes: usize) -> Result<Box<dyn Packer>, LabError> {
        Ok(match self {
            Kind::Pages(codec) => Box::new(Pages::new(codec)),
            Kind::Lz4Units => Box::new(Lz4Units::new(unit_bytes)),
            Kind::ZstdUnits(level) => Box::new(ZstdUnits::new(*level, unit_bytes)?),
        })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.codec)?;
        if self.unit > 1 {
            write!(f, " in {} KiB", self.unit * PAGE_SIZE / 1024)?;
        }
        if let Some(bytes) = self.codec.shuffle() {
            write!(f, " shuffled by {bytes}")?;
        }
        f.write_str(if self.own_dictionary { " with its own dictionary" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lz4_comes_first_and_every_algorithm_comes() {
        let cases = all(&[], &[1, 4]);
        assert_eq!(cases[0].to_string(), "lz4");
        for &algorithm in Algorithm::ALL {
            assert!(cases.iter().any(|case| case.codec.algorithm() == algorithm), "{algorithm}");
        }
        let named: Vec<String> =
            all(&["zstd:1".parse().unwrap()], &[4]).iter().map(Case::to_string).collect();
        let expected = [
            "lz4",
            "zstd:1",
            "lz4 with its own dictionary",
            "zstd:1 with its own dictionary",
            "lz4 in 16 KiB",
            "zstd:1 in 16 KiB",
        ];
        assert_eq!(named, expected);
    }

    #[test]
    fn what_is_shuffled_comes_on_top() {
        let plain = all(&["zstd:1".parse().unwrap()], &[4]);
        let added: Vec<String> =
            shuffled(&plain, &[4, 8]).unwrap().iter().map(Case::to_string).collect();
        let expected = [
            "lz4 shuffled by 4",
            "lz4 shuffled by 8",
            "zstd:1 shuffled by 4",
            "zstd:1 shuffled by 8",
        ];
        assert_eq!(added, expected);
        assert!(shuffled(&plain, &[3]).is_err());
    }
}
