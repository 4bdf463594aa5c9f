//! System calls on folded memory: their result in each mode, and with a pin.

mod setting;

use ramfold_region::{FaultMode, PagerConfig, Region, RegionConfig};

const PAGE: usize = 4096;
const EFAULT: i32 = 14;

/// Each mode that this system has.
fn modes() -> impl Iterator<Item = PagerConfig> {
    FaultMode::ALL
        .into_iter()
        .map(|fault_mode| PagerConfig { fault_mode: Some(fault_mode), ..PagerConfig::default() })
}

#[test]
fn a_system_call_needs_a_pin_in_signal_mode_and_nothing_in_thread_mode() {
    for config in modes() {
        let Some(pager) = setting::pager(&config) else { continue };
        let mut region = Region::map(&pager, 64 * PAGE, &RegionConfig::default()).expect("one");
        region.as_mut_slice().fill(7);
        region.control().page_out(0..64 * PAGE).expect("out");
        let (_reader, mut pipe) = std::io::pipe().expect("a pipe");
        let refused = std::io::Write::write(&mut pipe, &region.as_slice()[..PAGE]);
        match pager.fault_mode() {
            FaultMode::Signal | FaultMode::Protection | FaultMode::Guards => {
                assert_eq!(refused.expect_err("the page is out").raw_os_error(), Some(EFAULT));
            }
            FaultMode::Thread => assert_eq!(refused.ok(), Some(PAGE)),
        }
        let pinned = region.pin(0..PAGE).expect("pinned");
        assert_eq!(std::io::Write::write(&mut pipe, &pinned).ok(), Some(PAGE));
    }
}
