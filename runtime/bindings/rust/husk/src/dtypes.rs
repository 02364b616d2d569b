// Written by schema/dtypes.py from dtypes.def.
use husk_sys::*;

/// The type of the elements of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum DType {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    BF16,
    F32,
    F64,
    C64,
    C128,
    F8E4M3FN,
    F8E5M2,
    F8E4M3FNUZ,
    F8E5M2FNUZ,
}

pub(crate) const ALL: [(DType, i32); 19] = [
    (DType::Bool, HUSK_BOOL),
    (DType::U8, HUSK_U8),
    (DType::I8, HUSK_I8),
    (DType::U16, HUSK_U16),
    (DType::I16, HUSK_I16),
    (DType::U32, HUSK_U32),
    (DType::I32, HUSK_I32),
    (DType::U64, HUSK_U64),
    (DType::I64, HUSK_I64),
    (DType::F16, HUSK_F16),
    (DType::BF16, HUSK_BF16),
    (DType::F32, HUSK_F32),
    (DType::F64, HUSK_F64),
    (DType::C64, HUSK_C64),
    (DType::C128, HUSK_C128),
    (DType::F8E4M3FN, HUSK_F8E4M3FN),
    (DType::F8E5M2, HUSK_F8E5M2),
    (DType::F8E4M3FNUZ, HUSK_F8E4M3FNUZ),
    (DType::F8E5M2FNUZ, HUSK_F8E5M2FNUZ),
];
