use std::ffi::CString;
use std::os::raw::c_char;
use std::ptr::null_mut;
use std::sync::Arc;

use husk_sys::*;

use crate::dtype::{DType, Element};
use crate::engine::Engine;
use crate::error::{check, text_of, Error, Status};
use crate::session::{Session, SessionOptions};
use crate::tensor::{invalid, Value};

pub(crate) struct Handle {
    pub program: *mut husk_program,
    pub(crate) engine: Engine,
    written: Vec<Vec<u32>>, // by function: the inputs that a run writes to
}

unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        unsafe { husk_program_release(self.program) }
    }
}

/// A loaded artifact. Clones refer to the same program.
#[derive(Clone)]
pub struct Program(pub(crate) Arc<Handle>);

/// What a value of a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A tensor.
    Tensor,
    /// An int.
    Int,
    /// A float.
    Float,
    /// A bool.
    Bool,
}

/// An input or an output of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueInfo {
    /// The name in the model.
    pub name: String,
    /// What it is.
    pub kind: ValueKind,
    /// The type of a tensor's elements.
    pub dtype: Option<DType>,
    /// The number of dimensions of a tensor.
    pub rank: usize,
    /// The smallest and the largest size of each dimension of an input.
    pub ranges: Vec<(i64, i64)>,
    /// The address of a tensor must be a multiple of this number of bytes.
    pub alignment: u32,
    /// Whether a run writes to the memory of the tensor, that of an input too.
    pub is_written: bool,
}

/// A state or a constant of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageInfo {
    /// The name in the model.
    pub name: String,
    /// The type of the elements.
    pub dtype: Option<DType>,
    /// The sizes in elements.
    pub sizes: Vec<i64>,
    /// The size in bytes.
    pub bytes: u64,
}

type Find =
    unsafe extern "C" fn(*const husk_program, *const c_char, *mut u32, *mut husk_error) -> i32;
type Describe =
    unsafe extern "C" fn(*const husk_program, u32, *mut husk_storage_info, *mut husk_error) -> i32;

impl Program {
    pub(crate) fn new(program: *mut husk_program, engine: Engine) -> Program {
        let written = unsafe { written_inputs(program) };
        Program(Arc::new(Handle { program, engine, written }))
    }
    /// Fails if a run would write to memory that it may only read.
    pub(crate) fn check_written(&self, function: u32, inputs: &[Value<'_>]) -> Result<(), Error> {
        let written = self.0.written.get(function as usize);
        for &index in written.map_or(&[][..], Vec::as_slice) {
            if matches!(inputs.get(index as usize), Some(Value::Tensor(one)) if !one.is_writable) {
                let name = self.inputs(function)?.swap_remove(index as usize).name;
                let text = format!(
                    "input '{name}' is read-only, and the program writes to it: pass a tensor of \
                     Tensor::from_mut"
                );
                return Err(Error::new(Status::InvalidInput, text));
            }
        }
        Ok(())
    }
    pub(crate) fn get(&self) -> *mut husk_program {
        self.0.program
    }

    /// The engine that opened the program.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }
    /// Creates a session with the default options.
    pub fn session(&self) -> Result<Session, Error> {
        SessionOptions::default().session(self)
    }
    /// The names of the functions.
    pub fn functions(&self) -> Vec<&str> {
        let count = unsafe { husk_program_function_count(self.get()) };
        (0..count).map(|i| unsafe { text_of(husk_program_function_name(self.get(), i)) }).collect()
    }
    /// The number of the function of this name.
    pub fn function(&self, name: &str) -> Result<u32, Error> {
        self.find(husk_program_find_function, name)
    }
    /// The target that runs a function, such as "host avx512".
    pub fn target(&self, function: u32) -> &str {
        unsafe { text_of(husk_program_function_target(self.get(), function)) }
    }
    /// Describes the inputs of a function.
    pub fn inputs(&self, function: u32) -> Result<Vec<ValueInfo>, Error> {
        let count = unsafe { husk_program_input_count(self.get(), function) };
        (0..count)
            .map(|i| {
                self.value(|info, error| unsafe {
                    husk_program_input(self.get(), function, i, info, error)
                })
            })
            .collect()
    }
    /// Describes the outputs of a function.
    pub fn outputs(&self, function: u32) -> Result<Vec<ValueInfo>, Error> {
        let count = unsafe { husk_program_output_count(self.get(), function) };
        (0..count)
            .map(|i| {
                self.value(|info, error| unsafe {
                    husk_program_output(self.get(), function, i, info, error)
                })
            })
            .collect()
    }
    /// Describes the states.
    pub fn states(&self) -> Result<Vec<StorageInfo>, Error> {
        let count = unsafe { husk_program_state_count(self.get()) };
        (0..count).map(|i| self.storage(husk_program_state, i)).collect()
    }
    /// Describes the constants.
    pub fn constants(&self) -> Result<Vec<StorageInfo>, Error> {
        let count = unsafe { husk_program_constant_count(self.get()) };
        (0..count).map(|i| self.storage(husk_program_constant, i)).collect()
    }
    /// Replaces the value of a constant for all sessions. The call waits until no run of the
    /// program is in progress, and runs that start meanwhile wait for it.
    pub fn update_constant<T: Element>(&self, name: &str, elements: &[T]) -> Result<(), Error> {
        let constant = self.find(husk_program_find_constant, name)?;
        let info = self.storage(husk_program_constant, constant)?;
        fits(&info, elements)?;
        let update =
            husk_constant_update { constant, reserved: 0, bytes: elements.as_ptr() as *const _ };
        check(|error| unsafe { husk_program_update_constants(self.get(), &update, 1, error) })
    }
    /// Replaces elements of a constant for all sessions, from the element `first` on, in the way of
    /// `update_constant`.
    pub fn update_constant_part<T: Element>(
        &self,
        name: &str,
        first: u64,
        elements: &[T],
    ) -> Result<(), Error> {
        let constant = self.find(husk_program_find_constant, name)?;
        let info = self.storage(husk_program_constant, constant)?;
        if !info.dtype.map_or(false, T::fits) {
            fits(&info, elements)?;
        }
        let part = husk_constant_part {
            constant,
            reserved: 0,
            bytes: elements.as_ptr() as *const _,
            offset: first.saturating_mul(std::mem::size_of::<T>() as u64),
            size: std::mem::size_of_val(elements) as u64,
        };
        check(|error| unsafe { husk_program_update_constant_parts(self.get(), &part, 1, error) })
    }
    /// What the author of the file added, as keys with values.
    pub fn metadata(&self) -> Vec<(&str, &str)> {
        let count = unsafe { husk_program_metadata_count(self.get()) };
        let text = |i| unsafe {
            let (key, value) = (
                husk_program_metadata_key(self.get(), i),
                husk_program_metadata_value(self.get(), i),
            );
            (text_of(key), text_of(value))
        };
        (0..count).map(text).collect()
    }
    /// How inputs and outputs nest in the model, as JSON; "" if the file does not say.
    pub fn pytree(&self) -> &str {
        unsafe { text_of(husk_program_pytree(self.get())) }
    }

    /// The number and the description of the state of this name.
    pub(crate) fn state(&self, name: &str) -> Result<(u32, StorageInfo), Error> {
        let state = self.find(husk_program_find_state, name)?;
        Ok((state, self.storage(husk_program_state, state)?))
    }

    fn find(&self, find: Find, name: &str) -> Result<u32, Error> {
        let text = CString::new(name).map_err(|_| invalid("a name with a zero byte".into()))?;
        let mut index = 0;
        check(|error| unsafe { find(self.get(), text.as_ptr(), &mut index, error) })?;
        Ok(index)
    }

    fn storage(&self, describe: Describe, index: u32) -> Result<StorageInfo, Error> {
        let mut info: husk_storage_info = unsafe { std::mem::zeroed() };
        info.struct_size = std::mem::size_of_val(&info) as u32;
        check(|error| unsafe { describe(self.get(), index, &mut info, error) })?;
        let sizes = match info.dims.is_null() {
            true => Vec::new(),
            false => unsafe { std::slice::from_raw_parts(info.dims, info.rank as usize) }.to_vec(),
        };
        Ok(StorageInfo {
            name: unsafe { text_of(info.name) }.to_string(),
            dtype: DType::from_code(info.dtype),
            sizes,
            bytes: info.bytes,
        })
    }

    fn value(
        &self,
        describe: impl FnOnce(*mut husk_value_info, *mut husk_error) -> i32,
    ) -> Result<ValueInfo, Error> {
        let mut info: husk_value_info = unsafe { std::mem::zeroed() };
        info.struct_size = std::mem::size_of_val(&info) as u32;
        check(|error| describe(&mut info, error))?;
        let kind = match info.kind {
            HUSK_VALUE_TENSOR => ValueKind::Tensor,
            HUSK_VALUE_INT => ValueKind::Int,
            HUSK_VALUE_FLOAT => ValueKind::Float,
            HUSK_VALUE_BOOL => ValueKind::Bool,
            kind => {
                return Err(invalid(format!("this version does not know values of kind {}", kind)))
            }
        };
        let is_tensor = kind == ValueKind::Tensor;
        let rank = if is_tensor { info.rank as usize } else { 0 };
        let bounds = match info.ranges.is_null() {
            true => &[][..],
            false => unsafe { std::slice::from_raw_parts(info.ranges, 2 * rank) },
        };
        Ok(ValueInfo {
            name: unsafe { text_of(info.name) }.to_string(),
            kind,
            dtype: if is_tensor { DType::from_code(info.dtype) } else { None },
            rank,
            ranges: bounds.chunks(2).map(|pair| (pair[0], pair[1])).collect(),
            alignment: info.alignment,
            is_written: info.is_written != 0,
        })
    }
}

unsafe fn written_inputs(program: *mut husk_program) -> Vec<Vec<u32>> {
    let is_written = |function, input| {
        let mut info: husk_value_info = std::mem::zeroed();
        info.struct_size = std::mem::size_of_val(&info) as u32;
        husk_program_input(program, function, input, &mut info, null_mut()) == HUSK_OK
            && info.is_written != 0
    };
    (0..husk_program_function_count(program))
        .map(|function| {
            let count = husk_program_input_count(program, function);
            (0..count).filter(|&input| is_written(function, input)).collect()
        })
        .collect()
}

/// Fails if the elements are not of the type, or not as many as the storage has.
pub(crate) fn fits<T: Element>(info: &StorageInfo, elements: &[T]) -> Result<(), Error> {
    let bytes = std::mem::size_of_val(elements) as u64;
    if info.dtype.map_or(false, T::fits) && bytes == info.bytes {
        return Ok(());
    }
    let dtype = info.dtype.map_or_else(|| "?".to_string(), |dtype| dtype.to_string());
    Err(invalid(format!(
        "{} is {} {:?}, {} bytes; {} elements of {} were given",
        info.name,
        dtype,
        info.sizes,
        info.bytes,
        elements.len(),
        T::DTYPE
    )))
}
