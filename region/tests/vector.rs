//! Vectors: their bytes, their pins, and iterators in both directions.

mod setting;

use ramfold_region::{Pager, PagerConfig, RegionConfig, RegionError, RegionVec};
use std::error::Error;
use std::io::Write;
use std::sync::Arc;

const EFAULT: i32 = 14;

fn signal() -> Option<Arc<Pager>> {
    setting::pager(&PagerConfig::default())
}

fn vector(pager: &Arc<Pager>, elements: std::ops::Range<u32>) -> RegionVec<u32> {
    RegionVec::from_iter_in(pager, elements, &RegionConfig::default()).expect("a vector")
}

/// `std::fs::write` of a vector once failed with `EFAULT`, and a vector had no pin to prevent that.
#[test]
fn a_pinned_vector_is_written_by_a_system_call() {
    let Some(pager) = signal() else { return };
    let words = vector(&pager, 0..4096);
    words.control().page_out(0..16384).expect("out");
    let (_reader, mut pipe) = std::io::pipe().expect("a pipe");
    let refused = pipe.write(words.as_bytes()).expect_err("its pages are out");
    assert_eq!(refused.raw_os_error(), Some(EFAULT));
    let pinned = words.pin(1024..2048).expect("pinned");
    assert_eq!(pipe.write(pinned.as_ref()).ok(), Some(4096));
    assert_eq!((pinned.len(), pinned[0], pinned.as_bytes().len()), (1024, 1024, 4096));
    assert_eq!(words.control().page_out(0..16384).expect("out").stored, 0, "its group is pinned");
    drop(pinned);
    assert_eq!(words.control().page_out(4096..8192).expect("out").stored, 1);
}

#[test]
fn a_pin_is_of_elements_that_are_there() {
    let Some(pager) = signal() else { return };
    let mut words = vector(&pager, 0..100);
    let refused = words.pin(50..101).map(drop);
    assert!(matches!(refused, Err(RegionError::OutOfRange { start: 200, end: 404, len: 400 })));
    #[expect(clippy::reversed_empty_ranges, reason = "what is to be refused")]
    let backwards = words.pin(60..50).is_err();
    assert!(backwards && words.pin(usize::MAX..).is_err() && words.pin(..=usize::MAX).is_err());
    assert_eq!(words.pin(100..).expect("none of them").len(), 0);
    let mut pinned = words.pin_mut(..=9).expect("pinned");
    pinned[9] = 7;
    pinned.as_bytes_mut()[..4].copy_from_slice(&5u32.to_ne_bytes());
    pinned.as_mut()[4..8].copy_from_slice(&6u32.to_ne_bytes());
    drop(pinned);
    assert_eq!((words[0], words[1], words[2], words[9]), (5, 6, 2, 7));
    words.as_bytes_mut()[400 - 4..].fill(0);
    assert_eq!((words[99], words.as_bytes().len()), (0, 400));
}

#[test]
fn elements_go_in_and_come_out_one_by_one() {
    let Some(pager) = signal() else { return };
    let mut words = RegionVec::with_room(&pager, 6000, &RegionConfig::default()).expect("one");
    words.extend(0..2000u32);
    words.extend(&[2000, 2001]);
    for word in &mut words {
        *word *= 2;
    }
    words.control().page_out(0..4096).expect("out");
    let mut sum = 0;
    for word in &words {
        sum += word;
    }
    assert_eq!(sum, 2001 * 2002);
    let mut more = 2002..9000u32;
    let refused = words.try_extend(&mut more).expect_err("there is room for 6000");
    assert_eq!((refused.into_value(), more.next(), words.len()), (6000, Some(6001), 6000));
    words.truncate(5);
    let mut out = words.into_iter();
    assert_eq!((out.len(), out.next_back(), out.next()), (5, Some(8), Some(0)));
    assert!(out.eq([2, 4, 6]));
}

#[test]
#[should_panic(expected = "PushError { room: 3")]
fn extending_a_vector_past_its_room_panics() {
    let Some(pager) = signal() else { panic!("skipped: no PushError {{ room: 3 }}") };
    let mut words = RegionVec::with_room(&pager, 3, &RegionConfig::default()).expect("one");
    words.extend(0..4u32);
}

/// An iterator that says that it gives fewer elements than it does.
struct Liar(u32);

impl Iterator for Liar {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.0 = self.0.checked_sub(1)?;
        Some(self.0)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0 as usize / 2, Some(self.0 as usize / 2))
    }
}

#[test]
fn a_vector_is_made_of_what_an_iterator_gives() {
    let Some(pager) = signal() else { return };
    let empty = vector(&pager, 0..0);
    assert_eq!((empty.len(), empty.room(), empty.as_bytes().len()), (0, 1, 0));
    let config = RegionConfig::default();
    let refused = RegionVec::from_iter_in(&pager, Liar(10), &config);
    assert!(matches!(refused, Err(RegionError::OutOfRange { .. })), "{refused:?}");
    let endless = RegionVec::from_iter_in(&pager, std::iter::repeat(7u8), &config);
    assert!(matches!(endless, Err(RegionError::UnknownLength)), "{endless:?}");
    let some = (0..1000u64).filter(|number| number % 10 == 0);
    let some = RegionVec::from_iter_in(&pager, some, &config).expect("a hundred");
    assert_eq!((some.len(), some[99], some.room()), (100, 990, 1000));
}

/// README's example: `?` on a push once did not compile.
#[test]
fn a_refused_push_is_an_error_like_others() {
    let Some(pager) = signal() else { return };
    let push = || -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut words = RegionVec::<u64>::with_room(&pager, 1, &RegionConfig::default())?;
        words.push(7)?;
        words.push(8)?;
        Ok(())
    };
    let refused = push().expect_err("it has room for one");
    assert!(refused.to_string().contains("full"), "{refused}");
}
