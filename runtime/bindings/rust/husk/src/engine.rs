use std::ffi::CString;
use std::os::raw::{c_char, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};

use husk_sys::*;

use crate::error::{check, text_in, text_of, Error};
use crate::op::{self, OpArg, OpFunction};
use crate::program::Program;
use crate::tensor::invalid;

type Log = Box<dyn Fn(bool, &str) + Send + Sync>;
type Cancel = Box<dyn Fn() -> bool + Send + Sync>;

/// What the library keeps pointers to.
#[derive(Default)]
struct Kept {
    threads: Option<Box<husk_threads>>,
    log: Option<Box<Log>>,
    cancel: Option<Box<Cancel>>,
    ops: Mutex<Vec<Box<OpFunction>>>,
}

// The pool of `threads` may be used by any thread.
unsafe impl Send for Kept {}
unsafe impl Sync for Kept {}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(threads) = &mut self.threads {
            unsafe { husk_host_threads_release(&mut **threads) };
        }
    }
}

pub(crate) struct Handle {
    pub engine: *mut husk_engine,
    kept: Kept, // dropped after the engine is released
}

unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        unsafe { husk_engine_release(self.engine) }
    }
}

/// A device and the operators that programs on it may call. Clones refer to the same engine.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Handle>);

impl Engine {
    /// Begins an engine for the CPU.
    pub fn builder() -> EngineBuilder {
        EngineBuilder {
            options: unsafe { std::mem::zeroed() },
            port: "host".to_string(),
            threads: 1,
            kept: Kept::default(),
        }
    }

    /// Opens an artifact, and maps it and the weights beside it. Truncating a file while it is
    /// mapped ends the process.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Program, Error> {
        let path = path.as_ref();
        let text = path.to_str().and_then(|text| CString::new(text).ok());
        let text = text.ok_or_else(|| invalid(format!("the path {:?} is no text", path)))?;
        let mut program = null_mut();
        check(|error| unsafe {
            husk_weights_open(self.0.engine, text.as_ptr(), null(), &mut program, error)
        })?;
        Ok(Program::new(program, self.clone()))
    }

    /// Loads an artifact from memory. The bytes are copied, since the library reads them where they
    /// are and needs them at a multiple of 64.
    pub fn load(&self, bytes: &[u8]) -> Result<Program, Error> {
        let mut lines = vec![Line([0; 64]); (bytes.len() + 63) / 64];
        for (line, part) in lines.iter_mut().zip(bytes.chunks(64)) {
            line.0[..part.len()].copy_from_slice(part);
        }
        let address = lines.as_ptr() as *const c_void;
        let owner = Box::into_raw(Box::new(lines));
        let mut program = null_mut();
        let done = check(|error| unsafe {
            let user = owner as *mut c_void;
            let engine = self.0.engine;
            husk_program_load(engine, address, bytes.len(), Some(free), user, &mut program, error)
        });
        if done.is_err() {
            drop(unsafe { Box::from_raw(owner) }); // the library has not taken it
        }
        done.map(|()| Program::new(program, self.clone()))
    }

    /// Registers an operator of the application for programs that are opened afterwards.
    ///
    /// `contract` names the arguments and says what the operator does with them; op.h describes the
    /// text under husk_op.contract. `function` is called on the thread that runs a session. A
    /// tensor is in the memory of the engine's device.
    pub fn add_op<F>(&self, name: &str, contract: &str, function: F) -> Result<(), Error>
    where
        F: Fn(&mut [OpArg<'_>]) -> Result<(), Error> + Send + Sync + 'static,
    {
        let kept = op::register(self.0.engine, name, contract, Box::new(function))?;
        self.0.kept.ops.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(kept);
        Ok(())
    }

    /// The name of the device, such as "NVIDIA H200".
    pub fn device_name(&self) -> Result<String, Error> {
        let mut properties: husk_port_properties = unsafe { std::mem::zeroed() };
        properties.struct_size = std::mem::size_of_val(&properties) as u32;
        check(|error| unsafe { husk_engine_properties(self.0.engine, &mut properties, error) })?;
        Ok(text_in(&properties.name))
    }
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u8; 64]);

unsafe extern "C" fn free(user: *mut c_void, _: *const c_void) {
    drop(Box::from_raw(user as *mut Vec<Line>));
}

/// The port of the library with a name.
fn find_port(name: &str) -> Result<*const husk_port, Error> {
    let text = CString::new(name).unwrap_or_default();
    let port = unsafe { husk_port_find(text.as_ptr()) };
    if port.is_null() {
        let remedy = "give \"host\", or another one that it was built with";
        return Err(invalid(format!("the library has no port {:?}: {}", name, remedy)));
    }
    Ok(port)
}

/// The options of an engine.
pub struct EngineBuilder {
    options: husk_engine_options,
    port: String,
    threads: u32,
    kept: Kept,
}

impl EngineBuilder {
    /// Runs programs on a GPU.
    pub fn cuda(self, index: i32) -> Self {
        self.port("cuda", index)
    }
    /// Runs programs on the device number `index` of the port with this name, such as "cuda".
    pub fn port(mut self, name: &str, index: i32) -> Self {
        self.port = name.to_string();
        self.options.device_index = index;
        self
    }
    /// Accepts files with native code for the CPU, which are refused otherwise.
    ///
    /// # Safety
    ///
    /// The caller trusts every file that the engine opens, since its code runs in the process.
    pub unsafe fn allow_host_images(mut self) -> Self {
        self.options.allow_host_images = 1;
        self
    }
    /// The number of threads on which kernels and operators of the CPU run; 1 unless it is set.
    pub fn threads(mut self, count: u32) -> Self {
        self.threads = count;
        self
    }
    /// Compares all images and constants with their hashes when a file is opened.
    pub fn verify_content(mut self) -> Self {
        self.options.verify_content = 1;
        self
    }
    /// Receives messages; the first argument tells a warning from information.
    pub fn log(mut self, log: impl Fn(bool, &str) + Send + Sync + 'static) -> Self {
        self.kept.log = Some(Box::new(Box::new(log)));
        self
    }
    /// Is asked between the steps of a run, and ends the run if it returns true.
    pub fn cancel(mut self, cancel: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.kept.cancel = Some(Box::new(Box::new(cancel)));
        self
    }

    /// Opens the device, and registers the operators of libhusk_ops.
    pub fn build(mut self) -> Result<Engine, Error> {
        self.options.struct_size = std::mem::size_of_val(&self.options) as u32;
        self.options.require_op_contracts = 1;
        self.options.port = find_port(&self.port)?;
        if self.threads > 1 {
            let mut threads = Box::new(husk_threads { user: null_mut(), count: 0, parallel: None });
            check(|error| unsafe {
                husk_host_threads_create(self.threads, null(), &mut *threads, error)
            })?;
            self.options.threads = &*threads;
            self.kept.threads = Some(threads);
        }
        if let Some(log) = &self.kept.log {
            self.options.log = Some(call_log);
            self.options.log_user = &**log as *const Log as *mut c_void;
        }
        if let Some(cancel) = &self.kept.cancel {
            self.options.cancel = Some(call_cancel);
            self.options.cancel_user = &**cancel as *const Cancel as *mut c_void;
        }
        let mut engine = null_mut();
        check(|error| unsafe { husk_engine_create(&self.options, &mut engine, error) })?;
        let engine = Engine(Arc::new(Handle { engine, kept: self.kept }));
        check(|error| unsafe { husk_ops_add_all(engine.0.engine, error) })?;
        Ok(engine)
    }
}

unsafe extern "C" fn call_log(user: *mut c_void, level: i32, text: *const c_char) {
    let log = &*(user as *const Log);
    op::guarded(|| log(level == HUSK_LOG_WARNING, text_of(text)));
}

unsafe extern "C" fn call_cancel(user: *mut c_void) -> i32 {
    let cancel = &*(user as *const Cancel);
    op::guarded(|| i32::from(cancel())).unwrap_or(1)
}
