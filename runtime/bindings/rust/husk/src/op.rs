use std::ffi::CString;
use std::marker::PhantomData;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};

use husk_sys::*;

use crate::dtype::{DType, Element};
use crate::error::{check, text_of, Error, Status};
use crate::tensor::{invalid, is_contiguous};

type Function = dyn Fn(&mut [OpArg<'_>]) -> Result<(), Error> + Send + Sync;

/// The most arguments of an operator of the application.
const MAX_ARGS: usize = 32;

/// A function, with the text that the library keeps a pointer to.
pub(crate) struct OpFunction {
    function: Box<Function>,
    contract: CString,
}

/// An argument of a call of an operator.
pub enum OpArg<'a> {
    /// An argument that is missing, or that says only a device, layout or memory format.
    None,
    /// A tensor.
    Tensor(OpTensor<'a>),
    /// An int or a bool.
    Int(i64),
    /// A float.
    Float(f64),
    /// Ints.
    Ints(&'a [i64]),
    /// Floats.
    Floats(&'a [f64]),
    /// A text.
    Text(&'a str),
    /// The type of elements.
    DType(DType),
    /// A list of tensors, or a number that the operator returns: operators of the application in
    /// Rust do not have them yet.
    Other,
}

/// A tensor that an operator reads or writes, in the memory of the engine's device.
pub struct OpTensor<'a> {
    arg: &'a husk_op_arg,
    dtype: DType,
    // Whether memory of the tensor may belong to another argument too, and one of them is written.
    is_shared: bool,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> OpTensor<'a> {
    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// The sizes in elements.
    pub fn sizes(&self) -> &'a [i64] {
        unsafe { slice_of(self.arg.sizes, self.arg.rank as usize) }
    }
    /// The strides in elements.
    pub fn strides(&self) -> &'a [i64] {
        unsafe { slice_of(self.arg.strides, self.arg.rank as usize) }
    }
    /// The address of the first element, in the memory of the device.
    pub fn address(&self) -> *mut c_void {
        self.arg.data
    }
    /// The elements of a contiguous tensor in host memory that no argument writes.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], Error> {
        let count = self.count_of::<T>()?;
        Ok(unsafe { slice_of(self.arg.data as *const T, count) })
    }
    /// The elements of a contiguous tensor in host memory that the operator writes.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], Error> {
        let count = self.count_of::<T>()?;
        if self.arg.access & HUSK_ACCESS_WRITE == 0 {
            return Err(invalid("the operator's contract does not say that it writes this".into()));
        }
        Ok(if count == 0 {
            &mut []
        } else {
            unsafe { std::slice::from_raw_parts_mut(self.arg.data as *mut T, count) }
        })
    }

    fn count_of<T: Element>(&self) -> Result<usize, Error> {
        if !T::fits(self.dtype) {
            return Err(invalid(format!("a tensor of {} is used as {}", self.dtype, T::DTYPE)));
        }
        if self.is_shared {
            return Err(invalid("two arguments share memory that is written".into()));
        }
        if !is_contiguous(self.sizes(), self.strides()) {
            return Err(invalid(format!("a tensor with the strides {:?}", self.strides())));
        }
        Ok(self.sizes().iter().map(|&size| size as usize).product())
    }
}

unsafe fn slice_of<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    std::slice::from_raw_parts(data, count)
}

/// The first byte of a tensor and the one behind its last, as addresses.
fn range_of(arg: &husk_op_arg) -> (usize, usize) {
    let sizes = unsafe { slice_of(arg.sizes, arg.rank as usize) };
    let strides = unsafe { slice_of(arg.strides, arg.rank as usize) };
    let begin = arg.data as usize;
    if sizes.contains(&0) {
        return (begin, begin);
    }
    let reach: i64 = sizes.iter().zip(strides).map(|(size, stride)| (size - 1) * stride).sum();
    let width = DType::from_code(arg.dtype).map_or(1, DType::size);
    (begin, begin + (reach as usize + 1) * width)
}

fn is_shared(args: &[husk_op_arg], index: usize) -> bool {
    let (begin, end) = range_of(&args[index]);
    let written = args[index].access & HUSK_ACCESS_WRITE != 0;
    args.iter().enumerate().any(|(i, other)| {
        if i == index || other.kind != HUSK_ARG_TENSOR {
            return false;
        }
        let (first, last) = range_of(other);
        (written || other.access & HUSK_ACCESS_WRITE != 0) && first < end && begin < last
    })
}

fn arg_of(args: &[husk_op_arg], index: usize) -> OpArg<'_> {
    let arg = &args[index];
    unsafe {
        match arg.kind {
            HUSK_ARG_NONE => OpArg::None,
            HUSK_ARG_TENSOR => match DType::from_code(arg.dtype) {
                Some(dtype) => OpArg::Tensor(OpTensor {
                    arg,
                    dtype,
                    is_shared: is_shared(args, index),
                    memory: PhantomData,
                }),
                None => OpArg::Other,
            },
            HUSK_ARG_INT => OpArg::Int(arg.i),
            HUSK_ARG_FLOAT => OpArg::Float(arg.f),
            HUSK_ARG_INTS => OpArg::Ints(slice_of(arg.sizes, arg.count as usize)),
            HUSK_ARG_FLOATS => OpArg::Floats(slice_of(arg.floats, arg.count as usize)),
            HUSK_ARG_STRING => OpArg::Text(text_of(arg.string)),
            HUSK_ARG_DTYPE => DType::from_code(arg.dtype).map_or(OpArg::Other, OpArg::DType),
            _ => OpArg::Other,
        }
    }
}

/// Calls a function of the application. A panic must not pass through the frames of the library.
pub(crate) fn guarded<R>(call: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

unsafe extern "C" fn call_op(
    context: *const husk_op_context,
    args: *const husk_op_arg,
    count: u32,
    error: *mut husk_error,
) -> i32 {
    let op = &*((*context).user as *const OpFunction);
    let raw_args = slice_of(args, count as usize);
    let result = if raw_args.len() > MAX_ARGS {
        Err(invalid(format!("{} arguments; at most {} are possible", count, MAX_ARGS)))
    } else {
        let mut args: [OpArg<'_>; MAX_ARGS] = std::array::from_fn(|i| match i < raw_args.len() {
            true => arg_of(raw_args, i),
            false => OpArg::None,
        });
        guarded(|| (op.function)(&mut args[..raw_args.len()]))
            .unwrap_or_else(|| Err(Error::new(Status::Kernel, "the operator's function panicked")))
    };
    match result {
        Ok(()) => HUSK_OK,
        Err(failure) => {
            let error = &mut *error;
            error.code = failure.status().code();
            error.driver_code = failure.driver_code();
            error.text = [0; 240];
            let mut end = failure.text().len().min(error.text.len() - 1);
            while !failure.text().is_char_boundary(end) {
                end -= 1;
            }
            for (to, from) in error.text.iter_mut().zip(failure.text().bytes().take(end)) {
                *to = from as c_char;
            }
            error.code
        }
    }
}

/// Registers an operator. What is returned must outlive the engine.
pub(crate) fn register(
    engine: *mut husk_engine,
    name: &str,
    contract: &str,
    function: Box<Function>,
) -> Result<Box<OpFunction>, Error> {
    let text =
        |text: &str| CString::new(text).map_err(|_| invalid("a text with a zero byte".to_string()));
    let name = text(name)?;
    let kept = Box::new(OpFunction { function, contract: text(contract)? });
    let op = husk_op {
        struct_size: std::mem::size_of::<husk_op>() as u32,
        reserved: 0,
        name: name.as_ptr(),
        call: Some(call_op),
        user: &*kept as *const OpFunction as *mut c_void,
        prepare: None,
        contract: kept.contract.as_ptr(),
        pack: None,
        place: HUSK_OP_ON_DEVICE,
        flags: 0,
        scratch_bytes: 0,
        thread_scratch_bytes: 0,
    };
    check(|error| unsafe { husk_engine_add_op(engine, &op, error) })?;
    Ok(kept)
}
