//! Memory of Python objects, used without a copy. The only unsafe code of this crate.
#![allow(unsafe_code)]

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;

/// Contiguous memory of an object: `bytes`, `bytearray`, `memoryview`, an array of numpy. Until it
/// is dropped, the object neither frees nor moves it.
///
/// Other threads of Python may change it during a call. Then the call uses any mix of old and new
/// bytes, as `write(2)` would.
pub(crate) struct Memory(PyUntypedBuffer);

impl Memory {
    /// Takes the memory of an object that is only read.
    pub(crate) fn to_read(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the buffer is not contiguous"));
        }
        Ok(Self(buffer))
    }

    /// Takes the memory of an object that may be changed.
    pub(crate) fn to_fill(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let memory = Self::to_read(object)?;
        if memory.0.readonly() {
            return Err(PyTypeError::new_err("the buffer is read-only"));
        }
        Ok(memory)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: The buffer is contiguous, so its memory is `len_bytes` initialized bytes from
        // `buf_ptr` on. They stay until the buffer is released, which takes `self`. A thread that
        // changes them meanwhile races with the reader. The engine only copies bytes or hands them
        // to the kernel: it decides nothing by their value and reads none of them twice.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(!self.0.readonly(), "taken by `to_fill`");
        if self.0.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: As in `bytes`; the object lets its memory be changed. Another `Memory` of the
        // object may exist. It is a race as that of two threads that call `readinto`: bytes of both
        // mix, and nothing depends on them.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}
