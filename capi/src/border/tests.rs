//! The border as a C program sees it, as far as one process of tests can see it.

use super::folding::*;
use super::store::*;
use super::*;
use std::cell::Cell;
use std::ptr::{null, null_mut};

thread_local! {
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

/// Panics in the place of a call's work, if this thread's test wants that.
pub(super) fn panic_if_asked() {
    assert!(!PANICS.get(), "as the test asked");
}

/// Each function that answers by a code, called with nothing but NULL and 0.
fn answers() -> Vec<c_int> {
    // SAFETY: NULL is allowed everywhere.
    unsafe {
        vec![
            ramfold_memory_new(null(), null_mut()),
            ramfold_memory_get_stats(null_mut(), null_mut()),
            ramfold_memory_free(null_mut()),
            ramfold_dictionary_train(null(), null(), 0, 0, null_mut()),
            ramfold_dictionary_new(null(), 0, null_mut()),
            ramfold_dictionary_get(null_mut(), null_mut(), null_mut()),
            ramfold_dictionary_free(null_mut()),
            ramfold_pool_new(null_mut(), null(), null_mut()),
            ramfold_pool_put(null_mut(), null(), 0, null_mut()),
            ramfold_pool_get(null_mut(), 0, null_mut(), null_mut()),
            ramfold_pool_size(null_mut(), 0, null_mut()),
            ramfold_pool_delete(null_mut(), 0),
            ramfold_pool_put_many(null_mut(), null(), 0, null_mut(), null_mut()),
            ramfold_pool_get_many(null_mut(), null(), 0, null_mut(), 0, null_mut(), null_mut()),
            ramfold_pool_delete_many(null_mut(), null(), 0, null_mut()),
            ramfold_pool_compact(null_mut(), null_mut()),
            ramfold_pool_set_limit(null_mut(), 0),
            ramfold_pool_check(null_mut()),
            ramfold_pool_get_stats(null_mut(), null_mut()),
            ramfold_pool_free(null_mut()),
            ramfold_pager_new(null_mut(), null(), null_mut()),
            ramfold_pager_fault_mode(null_mut(), null_mut()),
            ramfold_pager_free(null_mut()),
            ramfold_region_map(null_mut(), 0, null(), null_mut()),
            ramfold_region_data(null_mut(), null_mut(), null_mut()),
            ramfold_region_pin(null_mut(), 0, 0),
            ramfold_region_unpin(null_mut(), 0, 0),
            ramfold_region_advise(null_mut(), 0, 0, 0),
            ramfold_region_set_limit(null_mut(), 0),
            ramfold_region_densify(null_mut()),
            ramfold_region_get_stats(null_mut(), null_mut()),
            ramfold_region_unmap(null_mut()),
        ]
    }
}

#[test]
fn a_panic_in_any_function_is_a_code() {
    let sources =
        [include_str!("../border.rs"), include_str!("store.rs"), include_str!("folding.rs")];
    let exported: usize =
        sources.iter().map(|text| text.matches("#[unsafe(no_mangle)]").count()).sum();
    PANICS.set(true);
    let answers = answers();
    PANICS.set(false);
    assert_eq!(answers.len() + 3, exported, "three functions answer otherwise");
    assert!(answers.iter().all(|&code| code == Code::Panicked as c_int), "{answers:?}");
    with_last_message(|text| assert!(text.ends_with(b"as the test asked")));
}

#[test]
fn null_is_refused_except_where_nothing_is_freed() {
    let freed = answers().into_iter().filter(|&code| code == Code::Ok as c_int).count();
    let refused = answers().into_iter().filter(|&code| code == Code::Argument as c_int).count();
    assert_eq!((freed, freed + refused), (5, answers().len()));
}

#[test]
fn a_message_is_cut_to_the_buffer() {
    Code::Argument.because("four words of it").tell();
    let mut buffer = [1; 5];
    // SAFETY: the buffer has as many bytes, and none in the second case.
    let lens = unsafe {
        [ramfold_last_message(buffer.as_mut_ptr(), 5), ramfold_last_message(null_mut(), 9)]
    };
    assert_eq!((lens, buffer.map(|letter| letter as u8)), ([16, 16], *b"four\0"));
}

#[test]
fn a_status_has_a_name() {
    // SAFETY: names are strings that live for ever.
    let name = |status| unsafe { CStr::from_ptr(ramfold_status_name(status)) }.to_bytes();
    assert_eq!(name(0), b"RAMFOLD_OK");
    assert_eq!(name(Code::NoValue as c_int), b"RAMFOLD_ERROR_NO_VALUE");
    assert_eq!(name(7), b"RAMFOLD_UNKNOWN");
}
