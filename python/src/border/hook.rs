//! NumPy's hook for the memory of arrays (NEP 49): while it is set, arrays of unchanged code fold.
//!
//! ```text
//!   Hook --enter--> NumPy's context variable = the capsule "mem_handler"
//!   np.empty(..) -> allocate --> the array is small: the C library gives its bytes
//!                           `--> Arrays has a plot for it
//!   the array ends -> free   by the address: one of the field, or the C library's
//! ```
//!
//! Each array holds the capsule that it came from, so the arrays end before it does. NumPy may call
//! these functions from any thread, and does not say whether that thread has the interpreter. So
//! they call nothing of Python.
//!
//! Invariant: an address that NumPy gives back is one that it got from here, once.

use crate::arrays::{Arrays, Made};
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use region::Field;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

/// The name that NumPy wants of such a capsule.
const NAME: &CStr = c"mem_handler";
/// Where NumPy's table of functions has the one that sets a handler: `PyDataMem_SetHandler`.
const SET_HANDLER: usize = 304;

type SetHandler = unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject;

/// `PyDataMemAllocator`, as NumPy declares it.
#[repr(C)]
struct Allocator {
    context: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

/// `PyDataMem_Handler`, as NumPy declares it.
#[repr(C)]
struct Handler {
    name: [c_char; 127],
    version: u8,
    allocator: Allocator,
}

/// What a capsule has. NumPy reads the handler, and `context` leads to the arrays.
#[repr(C)]
struct Held {
    handler: Handler,
    arrays: Arc<Arrays>,
}

// SAFETY: `context` is the address of `arrays`, which any thread may use.
unsafe impl Send for Held {}

/// See the head of this file.
#[pyclass(frozen, module = "ramfold._ramfold")]
pub(crate) struct Hook {
    capsule: Py<PyCapsule>,
    arrays: Arc<Arrays>,
}

impl Hook {
    /// Arrays from `least` bytes on get plots of the field.
    pub(crate) fn new(py: Python<'_>, field: Arc<Field>, least: usize) -> PyResult<Hook> {
        let arrays = Arc::new(Arrays::new(field, least)?);
        let context = Arc::as_ptr(&arrays).cast_mut().cast();
        let mut name = [0; 127];
        for (to, from) in name.iter_mut().zip(b"ramfold") {
            *to = from.cast_signed();
        }
        let allocator = Allocator { context, malloc: allocate, calloc: zeros, realloc, free };
        let handler = Handler { name, version: 1, allocator };
        let held = Held { handler, arrays: Arc::clone(&arrays) };
        let capsule = PyCapsule::new_with_value(py, held, NAME)?.unbind();
        Ok(Hook { capsule, arrays })
    }
}

#[pymethods]
impl Hook {
    /// Sets it for the current context, and gives the handler that was set before.
    fn enter<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let before = set_handler(self.capsule.bind(py).as_any())?;
        self.arrays.open();
        Ok(before)
    }

    /// Sets the handler that was set before it again. Once for each `enter`.
    fn leave(&self, before: &Bound<'_, PyAny>) -> PyResult<()> {
        set_handler(before)?;
        let py = before.py();
        py.detach(|| self.arrays.close());
        Ok(())
    }

    /// How many arrays there are that fold.
    #[getter]
    fn count(&self) -> usize {
        self.arrays.count()
    }

    /// Compresses all pages that are in memory: how many were, and how many had to stay.
    fn page_out(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let out = py.detach(|| self.arrays.page_out())?;
        Ok((out.stored, out.busy + out.refused))
    }
}

/// Sets a handler for the current context, and gives the one that was set before.
fn set_handler<'py>(handler: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = handler.py();
    let numpy = py.import("numpy._core.multiarray")?;
    let table = numpy.getattr("_ARRAY_API")?.cast_into::<PyCapsule>()?;
    let functions = table.pointer_checked(None)?.cast::<*mut c_void>();
    // SAFETY: NumPy 2 has so many functions in its table, and this one there. The interpreter is
    // held, and the handler lives. A result is a new reference.
    unsafe {
        let function = *functions.as_ptr().add(SET_HANDLER);
        if function.is_null() {
            return Err(PyRuntimeError::new_err("this NumPy has no hook for the memory of arrays"));
        }
        let set = std::mem::transmute::<*mut c_void, SetHandler>(function);
        Bound::from_owned_ptr_or_err(py, set(handler.as_ptr()))
    }
}

/// What a function of the hook does. A defect is told as memory that there is not.
///
/// # Safety
///
/// `context` is that of a handler, whose capsule lives.
unsafe fn with(context: *mut c_void, work: impl FnOnce(&Arrays) -> *mut c_void) -> *mut c_void {
    // SAFETY: the caller's contract.
    let arrays = unsafe { &*context.cast::<Arrays>() };
    catch_unwind(AssertUnwindSafe(|| work(arrays))).unwrap_or(ptr::null_mut())
}

fn folded(arrays: &Arrays, bytes: usize) -> *mut c_void {
    arrays.make(bytes).map_or(ptr::null_mut(), |made| pointer(&made))
}

fn folded_zeros(arrays: &Arrays, bytes: usize) -> *mut c_void {
    let Some(made) = arrays.make(bytes) else { return ptr::null_mut() };
    let start = pointer(&made);
    if !made.is_zero {
        // SAFETY: the array has as many bytes, and nobody else has it yet.
        unsafe { ptr::write_bytes(start.cast::<u8>(), 0, bytes) };
    }
    start
}

fn pointer(made: &Made) -> *mut c_void {
    ptr::with_exposed_provenance_mut(made.address)
}

/// # Safety
///
/// NumPy calls it, with the context of a handler.
unsafe extern "C" fn allocate(context: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's contract; the C library takes any number.
    unsafe {
        with(context, |arrays| {
            if arrays.folds(bytes) { folded(arrays, bytes) } else { libc::malloc(bytes.max(1)) }
        })
    }
}

/// # Safety
///
/// NumPy calls it, with the context of a handler.
unsafe extern "C" fn zeros(context: *mut c_void, number: usize, size: usize) -> *mut c_void {
    let Some(bytes) = number.checked_mul(size) else { return ptr::null_mut() };
    // SAFETY: as in `allocate`.
    unsafe {
        with(context, |arrays| match arrays.folds(bytes) {
            true => folded_zeros(arrays, bytes),
            false => libc::calloc(1, bytes.max(1)),
        })
    }
}

/// # Safety
///
/// NumPy calls it, with the context of a handler and an address that it got from it, or null.
unsafe extern "C" fn realloc(context: *mut c_void, from: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's contract. Both memories have the bytes that are copied, and a new one is
    // apart from the old one.
    unsafe {
        with(context, |arrays| {
            let folded = arrays.room(from.addr());
            if folded.is_none() && !arrays.folds(bytes) {
                return libc::realloc(from, bytes.max(1));
            }
            let room = folded.unwrap_or_else(|| usable(from));
            if folded.is_some() && bytes <= room {
                arrays.shorten(from.addr(), bytes);
                return from;
            }
            let to = allocate(context, bytes);
            if !to.is_null() {
                ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast(), room.min(bytes));
                free(context, from, room);
            }
            to
        })
    }
}

/// The bytes that the C library gave.
///
/// # Safety
///
/// It gave them, or the address is null.
unsafe fn usable(address: *mut c_void) -> usize {
    // SAFETY: the caller's contract; null has no bytes.
    unsafe { libc::malloc_usable_size(address) }
}

/// # Safety
///
/// NumPy calls it, with the context of a handler and an address that it got from it, or null.
unsafe extern "C" fn free(context: *mut c_void, address: *mut c_void, _bytes: usize) {
    // SAFETY: the caller's contract: what is not of the field is the C library's.
    unsafe {
        with(context, |arrays| {
            match arrays.room(address.addr()) {
                Some(_) => arrays.end(address.addr()),
                None => libc::free(address),
            }
            ptr::null_mut()
        });
    }
}
