//! An `ndarray` whose buffers are pinned: bytes that are asked for by the buffer protocol stay in
//! memory until they are released.
//!
//! ```text
//!   os.write(fd, a) --> get --> ndarray's own slot: address, shape, strides
//!                        |----> a.base.base.. is a Fold? pin the bytes from the first to the last,
//!                        |      unless a thread serves faults in system calls too
//!                        '----> view.internal = the pin
//!   buffer released --> release --> the pin is taken off
//! ```
//!
//! Python asks the slot for most of what ends in a system call on an array: `write`, `send`,
//! `readinto`, pickles with buffers. Such a call would fail on pages that are out. A type with
//! slots can be made only by the C interface of Python, so it is a part of the border.
//!
//! Invariant: `internal` of a buffer that `get` filled is null or a `Pin` that was leaked for it.
//! NumPy leaves it null, which `get` checks.

use crate::fold::Fold;
use crate::refusal::of_region;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// A pinned range of a fold.
struct Pin {
    fold: Py<Fold>,
    range: Range<usize>,
}

/// The most arrays between an array and the fold that it lies in. NumPy joins views of views.
const BASES_MAX: usize = 64;

/// Makes the type: `ndarray` with the two slots.
#[pyfunction]
pub(crate) fn exporting_type<'py>(ndarray: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
    let py = ndarray.py();
    let mut slots = [
        slot(ffi::Py_bf_getbuffer, get as ffi::getbufferproc as *mut c_void),
        slot(ffi::Py_bf_releasebuffer, release as ffi::releasebufferproc as *mut c_void),
        slot(0, ptr::null_mut()),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"ramfold._ramfold.exporting".as_ptr(),
        // That of the base.
        basicsize: 0,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_BASETYPE) as _,
        slots: slots.as_mut_ptr(),
    };
    let plain = py.import("numpy")?.call_method1("empty", (0,))?.get_type();
    if !ndarray.is_subclass(&plain)? {
        return Err(PyTypeError::new_err("only a subclass of numpy.ndarray can export folds"));
    }
    let bases = PyTuple::new(py, [ndarray])?;
    // SAFETY: the interpreter is held. The spec is whole, its slots end with a zero, and both are
    // copied. The name is static, which older versions ask for.
    unsafe {
        let made = ffi::PyType_FromSpecWithBases(&raw mut spec, bases.as_ptr());
        Bound::from_owned_ptr_or_err(py, made)
    }
}

fn slot(number: c_int, function: *mut c_void) -> ffi::PyType_Slot {
    ffi::PyType_Slot { slot: number, pfunc: function }
}

/// Fills a buffer, and pins what it leads to.
///
/// # Safety
///
/// Python calls it, with an array of the type and a buffer to fill.
unsafe extern "C" fn get(
    array: *mut ffi::PyObject,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> c_int {
    // SAFETY: Python holds the interpreter when it calls a slot.
    let py = unsafe { Python::assume_attached() };
    let filled = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller's contract.
        unsafe {
            fill(py, array, view, flags)?;
            pin(py, array, &mut *view).inspect_err(|_| ffi::PyBuffer_Release(view))
        }
    }));
    let filled = filled.unwrap_or_else(|_| Err(PyBufferError::new_err("a defect of ramfold")));
    match filled {
        Ok(()) => 0,
        Err(error) => {
            error.restore(py);
            -1
        }
    }
}

/// The slot that ours stands in for: that of the next type whose slot is not `get`, on the way from
/// the array's type to its bases. Null if there is none.
///
/// # Safety
///
/// `array` is an object.
unsafe fn inherited(array: *mut ffi::PyObject) -> *mut c_void {
    let ours = get as ffi::getbufferproc as *mut c_void;
    let mut is_below = true;
    // SAFETY: the caller's contract. A type has its base in this slot, or null.
    unsafe {
        let mut at = ffi::Py_TYPE(array);
        while !at.is_null() {
            let found = ffi::PyType_GetSlot(at, ffi::Py_bf_getbuffer);
            if found != ours && !is_below {
                return found;
            }
            is_below &= found != ours;
            at = ffi::PyType_GetSlot(at, ffi::Py_tp_base).cast();
        }
    }
    ptr::null_mut()
}

/// Has `ndarray` fill the buffer.
///
/// # Safety
///
/// That of `get`.
unsafe fn fill(
    py: Python<'_>,
    array: *mut ffi::PyObject,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    // SAFETY: the type of `array` is made from that of the slot, which has the type of its number.
    unsafe {
        let found = inherited(array);
        if found.is_null() {
            return Err(PyTypeError::new_err("numpy.ndarray has no buffers"));
        }
        let fill = transmute::<*mut c_void, ffi::getbufferproc>(found);
        if fill(array, view, flags) != 0 {
            return Err(PyErr::fetch(py));
        }
    }
    Ok(())
}

/// Pins what a buffer leads to, if that is folded.
///
/// # Safety
///
/// `array` is an object, and `view` was filled for it.
unsafe fn pin(
    py: Python<'_>,
    array: *mut ffi::PyObject,
    view: &mut ffi::Py_buffer,
) -> PyResult<()> {
    // SAFETY: the caller's contract.
    let array = unsafe { Bound::from_borrowed_ptr(py, array) };
    let Some(fold) = fold_of(&array)?.filter(|fold| fold.get().needs_pins()) else {
        return Ok(());
    };
    if !view.internal.is_null() {
        return Err(PyBufferError::new_err(
            "this NumPy keeps something in its buffers that ramfold does not know: use pinned()",
        ));
    }
    // SAFETY: the caller's contract.
    let bytes = unsafe { bytes_of(view) };
    if bytes.is_empty() {
        return Ok(());
    }
    let shared = fold.get();
    let start = shared.start();
    let range = bytes.start.wrapping_sub(start)..bytes.end.wrapping_sub(start);
    py.detach(|| shared.pin(range.clone())).map_err(of_region)?;
    view.internal = Box::into_raw(Box::new(Pin { fold: fold.unbind(), range })).cast();
    Ok(())
}

/// The addresses from the first byte of a buffer to the last.
///
/// # Safety
///
/// The buffer is filled: `shape` and `strides` are null or have `ndim` numbers.
unsafe fn bytes_of(view: &ffi::Py_buffer) -> Range<usize> {
    let start = view.buf.addr();
    if view.len <= 0 {
        return start..start;
    }
    if view.strides.is_null() || view.shape.is_null() {
        return start..start + view.len.unsigned_abs();
    }
    let (mut low, mut high) = (start, start + view.itemsize.unsigned_abs());
    for axis in 0..view.ndim.unsigned_abs() as usize {
        // SAFETY: the caller's contract.
        let (count, stride) = unsafe { (*view.shape.add(axis), *view.strides.add(axis)) };
        let reach = (count - 1).unsigned_abs() * stride.unsigned_abs();
        if stride < 0 {
            low -= reach;
        } else {
            high += reach;
        }
    }
    low..high
}

/// The fold that an array lies in, if there is one.
#[pyfunction]
pub(crate) fn fold_of<'py>(array: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, Fold>>> {
    let py = array.py();
    let base = pyo3::intern!(py, "base");
    let mut at = array.clone();
    for _ in 0..BASES_MAX {
        let Some(next) = at.getattr_opt(base)? else { return Ok(None) };
        match next.cast_into::<Fold>() {
            Ok(fold) => return Ok(Some(fold)),
            Err(other) => at = other.into_inner(),
        }
    }
    Ok(None)
}

/// Takes the pin of a buffer off.
///
/// # Safety
///
/// Python calls it, with a buffer that `get` filled.
unsafe extern "C" fn release(_array: *mut ffi::PyObject, view: *mut ffi::Py_buffer) {
    // SAFETY: Python holds the interpreter when it calls a slot.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the caller's contract, and that of `internal`.
    let pin = unsafe {
        let internal = std::mem::replace(&mut (*view).internal, ptr::null_mut());
        if internal.is_null() {
            return;
        }
        Box::from_raw(internal.cast::<Pin>())
    };
    // A panic has been told by then, and a pin that stays does no harm. A forked child without the
    // region cannot unpin it, and has nothing to unpin.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let Pin { fold, range } = *pin;
        // Bound, so that the last buffer gives the region back now.
        fold.into_bound(py).get().unpin(range)
    }));
}
