//! The C interface of Husk, as its headers declare it. The crate `husk` is the safe interface.
#![allow(non_camel_case_types, non_upper_case_globals)]

#[cfg(test)]
macro_rules! offset_of {
    ($type:ty, $field:ident) => {{
        let base = std::mem::MaybeUninit::<$type>::uninit();
        let start = base.as_ptr();
        unsafe { std::ptr::addr_of!((*start).$field) as usize - start as usize }
    }};
}

#[rustfmt::skip] // describe.py writes the file
mod bindings;
pub use bindings::*;
