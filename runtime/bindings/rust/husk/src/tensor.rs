use std::marker::PhantomData;
use std::os::raw::c_void;

use husk_sys::*;

use crate::dtype::{DType, Element};
use crate::error::{Error, Status};

/// The most dimensions of a tensor.
pub const MAX_RANK: usize = 16;

/// Memory with a type, sizes and strides. Both are in elements.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub data: *mut c_void,
    pub dtype: DType,
    pub device: DLDevice,
    pub rank: usize,
    pub sizes: [i64; MAX_RANK],
    pub strides: [i64; MAX_RANK],
}

impl Layout {
    fn contiguous(
        data: *mut c_void,
        dtype: DType,
        sizes: &[usize],
        device: DLDevice,
    ) -> Result<Layout, Error> {
        let mut layout = Layout {
            data,
            dtype,
            device,
            rank: sizes.len(),
            sizes: [0; MAX_RANK],
            strides: [0; MAX_RANK],
        };
        if sizes.len() > MAX_RANK {
            return Err(invalid(format!("a tensor of {} dimensions", sizes.len())));
        }
        let mut stride: i64 = 1;
        for (d, &size) in sizes.iter().enumerate().rev() {
            let size = i64::try_from(size).map_err(|_| invalid("a size over 2^63".into()))?;
            layout.sizes[d] = size;
            layout.strides[d] = stride;
            stride = stride
                .checked_mul(size.max(1))
                .ok_or_else(|| invalid("a tensor of more than 2^63 elements".into()))?;
        }
        Ok(layout)
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.sizes[..self.rank].iter().map(|&size| size as usize).product()
    }

    /// The tensor for the library, which reads the sizes through the pointers.
    pub fn dlpack(&mut self) -> DLTensor {
        DLTensor {
            data: self.data,
            device: self.device,
            ndim: self.rank as i32,
            dtype: self.dtype.dlpack(),
            shape: self.sizes.as_mut_ptr(),
            strides: self.strides.as_mut_ptr(),
            byte_offset: 0,
        }
    }

    fn fits<T: Element>(&self) -> Result<(), Error> {
        if self.device.device_type != kDLCPU as u32 {
            return Err(invalid("the tensor is in the memory of another device".into()));
        }
        if !T::fits(self.dtype) {
            let text = format!("a tensor of {} is read as {}", self.dtype, T::DTYPE);
            return Err(invalid(text));
        }
        Ok(())
    }
}

/// Whether strides are those of a contiguous tensor. That of a single element does not matter.
pub(crate) fn is_contiguous(sizes: &[i64], strides: &[i64]) -> bool {
    let mut stride = 1;
    sizes.iter().zip(strides).rev().all(|(&size, &actual_stride)| {
        let fits = size <= 1 || actual_stride == stride;
        stride *= size.max(1);
        fits
    })
}

pub(crate) fn invalid(text: String) -> Error {
    Error::new(Status::InvalidArgument, text)
}

pub(crate) const CPU: DLDevice = DLDevice { device_type: kDLCPU as u32, device_id: 0 };

fn same_count(count: usize, layout: &Layout) -> Result<(), Error> {
    if count == layout.count() {
        return Ok(());
    }
    let sizes = &layout.sizes[..layout.rank];
    let text =
        format!("{} elements for the sizes {:?}, which need {}", count, sizes, layout.count());
    Err(invalid(text))
}

/// A tensor that is the input of a run.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    pub(crate) layout: Layout,
    /// Whether a run may write to the memory.
    pub(crate) is_writable: bool,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> Tensor<'a> {
    /// A contiguous tensor in a slice, with these sizes.
    pub fn new<T: Element>(elements: &'a [T], sizes: &[usize]) -> Result<Tensor<'a>, Error> {
        let layout = Layout::contiguous(elements.as_ptr() as *mut c_void, T::DTYPE, sizes, CPU)?;
        same_count(elements.len(), &layout)?;
        Ok(Tensor { layout, is_writable: false, memory: PhantomData })
    }

    /// A contiguous tensor in a slice to which a run may write. Some programs write to an input, as
    /// their model did ([`ValueInfo::is_written`](crate::ValueInfo::is_written)); such an input
    /// must be a tensor of this function.
    pub fn from_mut<T: Element>(
        elements: &'a mut [T],
        sizes: &[usize],
    ) -> Result<Tensor<'a>, Error> {
        let address = elements.as_mut_ptr() as *mut c_void;
        let layout = Layout::contiguous(address, T::DTYPE, sizes, CPU)?;
        same_count(elements.len(), &layout)?;
        Ok(Tensor { layout, is_writable: true, memory: PhantomData })
    }

    /// A contiguous tensor of a type that Rust does not have, such as bf16.
    pub fn from_bytes(bytes: &'a [u8], dtype: DType, sizes: &[usize]) -> Result<Tensor<'a>, Error> {
        let layout = Layout::contiguous(bytes.as_ptr() as *mut c_void, dtype, sizes, CPU)?;
        if Some(bytes.len()) != layout.count().checked_mul(dtype.size()) {
            return Err(invalid(format!(
                "{} bytes for a tensor {} {:?}",
                bytes.len(),
                dtype,
                sizes
            )));
        }
        Ok(Tensor { layout, is_writable: false, memory: PhantomData })
    }

    /// A contiguous tensor in the memory of a CUDA device.
    ///
    /// # Safety
    ///
    /// `address` is memory of the device `index` that holds the elements until the run has ended.
    /// If the program writes to the input, nothing else uses the memory meanwhile.
    pub unsafe fn from_cuda(
        address: u64,
        dtype: DType,
        sizes: &[usize],
        index: i32,
    ) -> Result<Tensor<'a>, Error> {
        let device = DLDevice { device_type: kDLCUDA as u32, device_id: index };
        let layout = Layout::contiguous(address as *mut c_void, dtype, sizes, device)?;
        Ok(Tensor { layout, is_writable: true, memory: PhantomData })
    }
}

/// A tensor that a run writes.
pub struct TensorMut<'a> {
    pub(crate) layout: Layout,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> TensorMut<'a> {
    /// A contiguous tensor in a slice, with these sizes.
    pub fn new<T: Element>(elements: &'a mut [T], sizes: &[usize]) -> Result<TensorMut<'a>, Error> {
        let address = elements.as_mut_ptr() as *mut c_void;
        let layout = Layout::contiguous(address, T::DTYPE, sizes, CPU)?;
        same_count(elements.len(), &layout)?;
        Ok(TensorMut { layout, memory: PhantomData })
    }

    /// The sizes. A run writes those of an output whose shape only the data decides.
    pub fn sizes(&self) -> &[i64] {
        &self.layout.sizes[..self.layout.rank]
    }
}

/// An input of a run.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// A tensor.
    Tensor(Tensor<'a>),
    /// An int.
    Int(i64),
    /// A float.
    Float(f64),
    /// A bool.
    Bool(bool),
}

impl<'a> From<Tensor<'a>> for Value<'a> {
    fn from(tensor: Tensor<'a>) -> Value<'a> {
        Value::Tensor(tensor)
    }
}
impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}
impl From<f64> for Value<'_> {
    fn from(value: f64) -> Self {
        Value::Float(value)
    }
}
impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

/// An output of a run, in the memory of the session.
pub enum Output<'a> {
    /// A tensor.
    Tensor(TensorView<'a>),
    /// An int.
    Int(i64),
    /// A float.
    Float(f64),
    /// A bool.
    Bool(bool),
}

/// A tensor in the memory of a session, valid until its next run.
pub struct TensorView<'a> {
    layout: Layout,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> TensorView<'a> {
    /// The library's tensor, whose pointers are valid for 'a.
    pub(crate) unsafe fn from_dlpack(tensor: &DLTensor) -> Result<TensorView<'a>, Error> {
        let rank = tensor.ndim as usize;
        let dtype = DType::from_code(husk_dtype_from_dlpack(tensor.dtype));
        let (dtype, rank) = match dtype {
            Some(dtype) if rank <= MAX_RANK => (dtype, rank),
            _ => return Err(invalid("an output that this version does not know".into())),
        };
        let mut layout = Layout {
            data: (tensor.data as *mut u8).wrapping_add(tensor.byte_offset as usize) as *mut c_void,
            dtype,
            device: tensor.device,
            rank,
            sizes: [0; MAX_RANK],
            strides: [0; MAX_RANK],
        };
        let mut stride = 1;
        for d in (0..rank).rev() {
            layout.sizes[d] = *tensor.shape.add(d);
            layout.strides[d] =
                if tensor.strides.is_null() { stride } else { *tensor.strides.add(d) };
            stride *= layout.sizes[d].max(1);
        }
        Ok(TensorView { layout, memory: PhantomData })
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.layout.dtype
    }
    /// The sizes in elements.
    pub fn sizes(&self) -> &[i64] {
        &self.layout.sizes[..self.layout.rank]
    }
    /// The strides in elements.
    pub fn strides(&self) -> &[i64] {
        &self.layout.strides[..self.layout.rank]
    }
    /// The address of the first element, in the memory of the device.
    pub fn address(&self) -> *const c_void {
        self.layout.data
    }
    /// The elements of a contiguous tensor in host memory.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T], Error> {
        self.layout.fits::<T>()?;
        if !is_contiguous(self.sizes(), self.strides()) {
            return Err(invalid(format!("strides {:?}: use to_vec", self.strides())));
        }
        let count = self.layout.count();
        Ok(if count == 0 {
            &[]
        } else {
            unsafe { std::slice::from_raw_parts(self.layout.data as *const T, count) }
        })
    }
    /// The elements in the order of a contiguous tensor.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        self.layout.fits::<T>()?;
        let count = self.layout.count();
        let mut out = Vec::with_capacity(count);
        let mut index = [0i64; MAX_RANK];
        for _ in 0..count {
            let offset: i64 =
                (0..self.layout.rank).map(|d| index[d] * self.layout.strides[d]).sum();
            out.push(unsafe { *(self.layout.data as *const T).offset(offset as isize) });
            for d in (0..self.layout.rank).rev() {
                index[d] += 1;
                if index[d] < self.layout.sizes[d] {
                    break;
                }
                index[d] = 0;
            }
        }
        Ok(out)
    }
}
