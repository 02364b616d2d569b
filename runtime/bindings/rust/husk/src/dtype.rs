use std::fmt;

use husk_sys::*;

pub use crate::dtypes::DType;
use crate::dtypes::ALL;
use crate::error::text_of;

impl DType {
    pub(crate) fn from_code(code: i32) -> Option<DType> {
        ALL.iter().find(|(_, value)| *value == code).map(|(dtype, _)| *dtype)
    }
    pub(crate) fn code(self) -> i32 {
        ALL[self as usize].1
    }
    /// The bytes of one element.
    pub fn size(self) -> usize {
        unsafe { husk_dtype_size(self.code()) }
    }
    pub(crate) fn dlpack(self) -> DLDataType {
        unsafe { husk_dtype_to_dlpack(self.code()) }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(unsafe { text_of(husk_dtype_name(self.code())) })
    }
}

/// A type of Rust whose values are elements of tensors.
///
/// # Safety
///
/// Every pattern of `size_of::<Self>()` bytes is a value of the type, and `DTYPE` is its type in
/// Husk. `bool` is not an element, since a byte of a tensor of bools that another program made may
/// be neither 0 nor 1: read such tensors as `u8`.
pub unsafe trait Element: Copy + 'static {
    /// The type in Husk.
    const DTYPE: DType;
    /// Whether a tensor of `dtype` can be read as a slice of this type.
    fn fits(dtype: DType) -> bool {
        dtype == Self::DTYPE
    }
}

macro_rules! elements {
    ($($type:ty => $dtype:ident),*) => { $(
        unsafe impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }
    )* };
}
elements!(i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64,
          f32 => F32, f64 => F64);

unsafe impl Element for u8 {
    const DTYPE: DType = DType::U8;
    fn fits(dtype: DType) -> bool {
        matches!(dtype, DType::U8 | DType::Bool)
    }
}
