use std::ffi::CStr;
use std::fmt;
use std::mem::MaybeUninit;
use std::os::raw::c_char;

use husk_sys::*;

/// The reason of a failure, by which a program decides what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// The call is wrong: an index out of range, a callback that uses its own session.
    InvalidArgument,
    /// The artifact breaks a rule of the format.
    InvalidFile,
    /// This build or device lacks a version, feature, target or operator.
    Unsupported,
    /// A value of this run is wrong: dtype, rank, size, stride, alignment or range.
    InvalidInput,
    /// Host or device memory is exhausted.
    OutOfMemory,
    /// The operating system failed to open, map or read a file.
    Io,
    /// The driver failed.
    Device,
    /// No function, constant, state, operator or image has that name.
    NotFound,
    /// A check inside a kernel failed.
    Kernel,
    /// The shapes need more memory than the session has.
    NeedsResize,
    /// A limit of the engine or of the session is reached.
    Limit,
    /// A callback of the application ended the call.
    Cancelled,
    /// A status that this version of the crate does not know.
    Other(i32),
}

impl Status {
    fn from_code(code: i32) -> Status {
        match code {
            HUSK_INVALID_ARGUMENT => Status::InvalidArgument,
            HUSK_INVALID_FILE => Status::InvalidFile,
            HUSK_UNSUPPORTED => Status::Unsupported,
            HUSK_INVALID_INPUT => Status::InvalidInput,
            HUSK_OUT_OF_MEMORY => Status::OutOfMemory,
            HUSK_IO => Status::Io,
            HUSK_DEVICE => Status::Device,
            HUSK_NOT_FOUND => Status::NotFound,
            HUSK_KERNEL => Status::Kernel,
            HUSK_NEEDS_RESIZE => Status::NeedsResize,
            HUSK_LIMIT => Status::Limit,
            HUSK_CANCELLED => Status::Cancelled,
            other => Status::Other(other),
        }
    }

    pub(crate) fn code(self) -> i32 {
        match self {
            Status::InvalidArgument => HUSK_INVALID_ARGUMENT,
            Status::InvalidFile => HUSK_INVALID_FILE,
            Status::Unsupported => HUSK_UNSUPPORTED,
            Status::InvalidInput => HUSK_INVALID_INPUT,
            Status::OutOfMemory => HUSK_OUT_OF_MEMORY,
            Status::Io => HUSK_IO,
            Status::Device => HUSK_DEVICE,
            Status::NotFound => HUSK_NOT_FOUND,
            Status::Kernel => HUSK_KERNEL,
            Status::NeedsResize => HUSK_NEEDS_RESIZE,
            Status::Limit => HUSK_LIMIT,
            Status::Cancelled => HUSK_CANCELLED,
            Status::Other(code) => code,
        }
    }
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: Status,
    driver_code: i32,
    step: Option<u32>,
    text: String,
}

impl Error {
    /// An error of the application, for the function of an operator.
    pub fn new(status: Status, text: impl Into<String>) -> Error {
        Error { status, driver_code: 0, step: None, text: text.into() }
    }
    /// The reason.
    pub fn status(&self) -> Status {
        self.status
    }
    /// The error number of the driver; 0 if no call of the driver failed.
    pub fn driver_code(&self) -> i32 {
        self.driver_code
    }
    /// The index of the failed step in its body.
    pub fn step(&self) -> Option<u32> {
        self.step
    }
    /// What failed and, if there is one, the remedy.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// Calls `call` with a record for its error.
pub(crate) fn check(call: impl FnOnce(*mut husk_error) -> i32) -> Result<(), Error> {
    let mut error = MaybeUninit::<husk_error>::uninit();
    if call(error.as_mut_ptr()) == HUSK_OK {
        return Ok(());
    }
    let error = unsafe { error.assume_init() }; // a call that fails has filled it
    Err(Error {
        status: Status::from_code(error.code),
        driver_code: error.driver_code,
        step: u32::try_from(error.step).ok(),
        text: text_in(&error.text),
    })
}

/// The text in an array that ends with the first zero.
pub(crate) fn text_in(array: &[c_char]) -> String {
    let mut bytes: Vec<u8> = array.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
    if let Err(error) = std::str::from_utf8(&bytes) {
        if error.error_len().is_none() {
            bytes.truncate(error.valid_up_to()); // the array was too short for the last letter
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The text that the library returns. It is valid as long as the handle that was asked.
pub(crate) unsafe fn text_of<'a>(text: *const c_char) -> &'a str {
    if text.is_null() {
        return "";
    }
    CStr::from_ptr(text).to_str().unwrap_or("")
}
