//! Runs models of PyTorch that were exported to artifacts of Husk.
//!
//! ```no_run
//! # fn main() -> Result<(), husk::Error> {
//! // The file holds native code: open only files that you trust.
//! let engine = unsafe { husk::Engine::builder().allow_host_images() }.build()?;
//! let program = engine.open("mlp.husk")?;
//! let mut session = program.session()?;
//! let x = vec![0.5f32; 4 * 32];
//! let outputs = session.run(0, &[husk::Tensor::new(&x, &[4, 32])?.into()])?;
//! let y: &[f32] = outputs.tensor(0)?.as_slice()?;
//! # Ok(())
//! # }
//! ```
//!
//! | type        | what it is                                           | threads              |
//! |-------------|------------------------------------------------------|----------------------|
//! | [`Engine`]  | a device and the operators that programs may call    | `Send` and `Sync`    |
//! | [`Program`] | a loaded artifact: kernels and constants             | `Send` and `Sync`    |
//! | [`Session`] | the state and memory of one user of a program        | `Send`               |
//!
//! `Engine` and `Program` are references that can be cloned. A session keeps its program and a
//! program its engine. Every value stays usable after an error.

mod dtype;
mod dtypes;
mod engine;
mod error;
mod op;
mod program;
mod session;
#[cfg(feature = "text")]
pub mod sound;
mod tensor;
#[cfg(feature = "text")]
pub mod text;

pub use dtype::{DType, Element};
pub use engine::{Engine, EngineBuilder};
pub use error::{Error, Status};
pub use op::{OpArg, OpTensor};
pub use program::{Program, StorageInfo, ValueInfo, ValueKind};
pub use session::{Mode, Outputs, Session, SessionOptions, Stats};
pub use tensor::{Output, Tensor, TensorMut, TensorView, Value, MAX_RANK};

/// The version of the library, such as "0.1.0".
pub fn version() -> &'static str {
    // The text is a constant of the library.
    unsafe { error::text_of(husk_sys::husk_version()) }
}
