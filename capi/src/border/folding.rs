//! Pagers and regions, as C calls them.
//!
//! Invariants: those of the border, B1 to B3. The bytes of a region are the program's: nothing here
//! reads or writes them.

use super::pointers::{give, null, report, settings};
use super::structures::{PagerSettings, RegionFigures, RegionSettings};
use super::{Handle, free, guard, hand_over, lookup, text};
use crate::code::{Code, Failure};
use crate::regions::{Advice, Folding, Mapped, bytes, limit};
use codec::Codec;
use region::{Density, Memory, RegionConfig, TiersConfig};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// See `ramfold.h`.
///
/// # Safety
///
/// `config` is NULL or a structure; `pager` is NULL, or a handle may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_pager_new(
    memory: Handle,
    config: *const PagerSettings,
    pager: *mut Handle,
) -> c_int {
    guard(|| {
        let memory = lookup::<Memory>(memory)?;
        // SAFETY: the header's contract for structures.
        let settings = unsafe { settings(config)? };
        // SAFETY: the header's contract for results.
        unsafe {
            hand_over(pager, || {
                let folding = Folding::new(memory, settings.fault_mode, settings.staging_bytes);
                folding.map(Arc::new)
            })
        }
    })
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `mode` is NULL, or a number may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_pager_fault_mode(pager: Handle, mode: *mut c_int) -> c_int {
    guard(|| {
        let found = lookup::<Folding>(pager)?.mode();
        // SAFETY: the header's contract for results.
        unsafe { give(mode, found) }
    })
}

/// See `ramfold.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ramfold_pager_free(pager: Handle) -> c_int {
    guard(|| free::<Folding>(pager))
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `config` is NULL or a structure; `region` is NULL, or a handle may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_region_map(
    pager: Handle,
    size: usize,
    config: *const RegionSettings,
    region: *mut Handle,
) -> c_int {
    guard(|| {
        let pager = lookup::<Folding>(pager)?;
        // SAFETY: the header's contract for structures.
        let settings = unsafe { settings(config)? };
        // SAFETY: the header's contract for strings.
        let config = unsafe { region_config(&settings)? };
        let map = || match config {
            Some(config) => pager.map(size, &config),
            None => pager.map_plain(size),
        };
        // SAFETY: the header's contract for results.
        unsafe { hand_over(region, || map().map(Arc::new)) }
    })
}

/// `RAMFOLD_ELEMENTS_SAMPLED`.
const ELEMENTS_SAMPLED: u64 = 1;

/// The settings of a region; `None` if it has none.
///
/// # Safety
///
/// The texts are NULL or strings.
unsafe fn region_config(settings: &RegionSettings) -> Result<Option<RegionConfig>, Failure> {
    let has_text = !settings.name.is_null() || !settings.codec.is_null();
    let RegionSettings { resident_limit, store_limit, element_bytes, density, .. } = *settings;
    if !has_text && [resident_limit, store_limit, element_bytes, density] == [0; 4] {
        return Ok(None);
    }
    let mut config = RegionConfig {
        store_limit,
        resident_limit: limit(resident_limit),
        tiers: tiers(density)?,
        ..RegionConfig::default()
    };
    let text = |from: *const c_char| {
        // SAFETY: the caller's contract.
        unsafe { text(from) }
    };
    if let Some(name) = text(settings.name)? {
        config.name = name.into();
    }
    if let Some(codec) = text(settings.codec)? {
        config.algorithm = codec.parse::<Codec>()?;
    }
    match element_bytes {
        0 => {}
        ELEMENTS_SAMPLED => config.algorithm = config.algorithm.with_sampled_shuffle(),
        bytes => {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            config.algorithm = config.algorithm.with_shuffle(bytes)?;
        }
    }
    Ok(Some(config))
}

/// The tiers of a density, one of `enum ramfold_density`.
fn tiers(density: u64) -> Result<Option<TiersConfig>, Failure> {
    let density = usize::try_from(density).ok().and_then(|at| Density::ALL.get(at));
    let density =
        density.ok_or_else(|| Code::Unsupported.because("the densities are 0, 1 and 2"))?;
    Ok(Some(TiersConfig::new(*density)))
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `data` and `size` are NULL, or a result may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_region_data(
    region: Handle,
    data: *mut *mut c_void,
    size: *mut usize,
) -> c_int {
    guard(|| {
        if data.is_null() {
            return Err(null());
        }
        let region = lookup::<Mapped>(region)?;
        if !size.is_null() {
            // SAFETY: the header's contract for results.
            unsafe { give(size, region.len())? };
        }
        // SAFETY: as above.
        unsafe { give(data, region.data().cast()) }
    })
}

/// See `ramfold.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ramfold_region_pin(region: Handle, offset: usize, size: usize) -> c_int {
    guard(|| lookup::<Mapped>(region)?.pin(offset, size))
}

/// See `ramfold.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ramfold_region_unpin(region: Handle, offset: usize, size: usize) -> c_int {
    guard(|| lookup::<Mapped>(region)?.unpin(offset, size))
}

/// See `ramfold.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ramfold_region_advise(
    region: Handle,
    offset: usize,
    size: usize,
    advice: c_int,
) -> c_int {
    guard(|| {
        let region = lookup::<Mapped>(region)?;
        region.advise(offset, size, Advice::of(advice)?)
    })
}

/// See `ramfold.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ramfold_region_set_limit(region: Handle, bytes: u64) -> c_int {
    guard(|| lookup::<Mapped>(region)?.set_limit(bytes))
}

/// See `ramfold.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ramfold_region_densify(region: Handle) -> c_int {
    guard(|| lookup::<Mapped>(region)?.densify())
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `stats` is NULL or a structure.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_region_get_stats(
    region: Handle,
    stats: *mut RegionFigures,
) -> c_int {
    guard(|| {
        let found = lookup::<Mapped>(region)?.stats();
        let figures = RegionFigures {
            bytes: bytes(found.pages),
            resident_bytes: bytes(found.resident_pages),
            staged_bytes: bytes(found.staged_pages),
            stored_bytes: bytes(found.stored_pages),
            unwatched_bytes: bytes(found.unregistered_pages),
            compressed_bytes: found.compr_data_size,
            metadata_bytes: found.metadata_bytes,
            limit_bytes: bytes(found.limit_pages.unwrap_or(0)),
            faults: found.faults,
            refaults: found.refaults(),
            pages_in: found.pages_in,
            pages_out: found.pages_out,
            pages_refused: found.refused,
            size: 0,
        };
        // SAFETY: the header's contract for structures.
        unsafe { report(stats, figures) }
    })
}

/// See `ramfold.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ramfold_region_unmap(region: Handle) -> c_int {
    guard(|| free::<Mapped>(region))
}
