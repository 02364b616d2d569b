use std::marker::PhantomData;
use std::ptr::null_mut;

use husk_sys::*;

use crate::dtype::Element;
use crate::error::{check, Error};
use crate::program::{fits, Program};
use crate::tensor::{invalid, Layout, Output, TensorMut, TensorView, Value};

/// How a session runs functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As a graph if the device and the function allow it, else as a list.
    Auto,
    /// As a launch list.
    List,
    /// As a graph.
    Graph,
}

/// The options of a session.
#[derive(Clone, Copy)]
pub struct SessionOptions(husk_session_options);

impl Default for SessionOptions {
    fn default() -> Self {
        let mut options: husk_session_options = unsafe { std::mem::zeroed() };
        options.struct_size = std::mem::size_of_val(&options) as u32;
        SessionOptions(options)
    }
}

impl SessionOptions {
    /// How functions run.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.0.mode = match mode {
            Mode::Auto => HUSK_MODE_AUTO,
            Mode::List => HUSK_MODE_LIST,
            Mode::Graph => HUSK_MODE_GRAPH,
        };
        self
    }
    /// The bytes of device memory that the session may use besides its state.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.0.memory_limit = bytes;
        self
    }
    /// The number of times that one run may return to the start of a loop.
    pub fn loop_limit(mut self, turns: u64) -> Self {
        self.0.loop_limit = turns;
        self
    }
    /// Copies misaligned inputs instead of refusing them.
    pub fn copy_misaligned(mut self) -> Self {
        self.0.copy_misaligned = 1;
        self
    }
    /// Copies tensors between slices and the device, so that a program for a GPU takes
    /// [`Tensor::new`](crate::Tensor::new), and [`Session::run_into`] writes to slices. A run that
    /// writes to slices returns when its work is done.
    pub fn stage_host_tensors(mut self) -> Self {
        self.0.stage_host_tensors = 1;
        self
    }
    /// Creates a session.
    pub fn session(&self, program: &Program) -> Result<Session, Error> {
        let mut session = null_mut();
        check(|error| unsafe { husk_session_create(program.get(), &self.0, &mut session, error) })?;
        Ok(Session {
            session,
            program: program.clone(),
            layouts: Vec::new(),
            tensors: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
        })
    }
}

/// What a session has done, and the memory that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Steps of the function.
    pub steps: u32,
    /// Whether the function runs as a graph.
    pub is_graph: bool,
    /// Bytes that the plan takes.
    pub arena_bytes: u64,
    /// Memory of the session outside of the arena.
    pub dynamic_bytes: u64,
    /// Runs since the session was created.
    pub runs: u64,
}

/// The state and memory of one user of a program. One thread at a time may use it.
pub struct Session {
    session: *mut husk_session,
    program: Program,
    // What a run passes to the library. They are kept, so that a run allocates nothing.
    layouts: Vec<Layout>,
    tensors: Vec<DLTensor>,
    inputs: Vec<husk_value>,
    outputs: Vec<husk_value>,
}

unsafe impl Send for Session {}

impl Drop for Session {
    fn drop(&mut self) {
        unsafe { husk_session_release(self.session) }
    }
}

const NO_VALUE: husk_value =
    husk_value { kind: HUSK_VALUE_NONE, reserved: 0, as_: husk_value_as { i: 0 } };

impl Session {
    /// The program that the session runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs a function, waits for it, and returns its outputs in memory of the session.
    pub fn run(&mut self, function: u32, inputs: &[Value<'_>]) -> Result<Outputs<'_>, Error> {
        self.program.check_written(function, inputs)?;
        self.take(inputs, &[]);
        self.outputs.clear();
        let count = unsafe { husk_program_output_count(self.program.get(), function) };
        self.outputs.resize(count as usize, NO_VALUE);
        self.call(function)?;
        Ok(Outputs { values: &self.outputs, session: PhantomData })
    }

    /// Runs a function of which all outputs are tensors, waits for it, and writes the outputs.
    pub fn run_into(
        &mut self,
        function: u32,
        inputs: &[Value<'_>],
        outputs: &mut [TensorMut<'_>],
    ) -> Result<(), Error> {
        self.program.check_written(function, inputs)?;
        let layouts: Vec<Layout> = outputs.iter().map(|output| output.layout).collect();
        self.take(inputs, &layouts);
        let done = self.call(function);
        let first = self.layouts.len() - outputs.len();
        for (output, layout) in outputs.iter_mut().zip(&self.layouts[first..]) {
            output.layout = *layout;
        }
        done
    }

    /// Plans memory for the shapes of these inputs.
    pub fn resize(&mut self, function: u32, inputs: &[Value<'_>]) -> Result<(), Error> {
        self.take(inputs, &[]);
        let (values, count) = (self.inputs.as_ptr(), self.inputs.len() as u32);
        check(|error| unsafe { husk_session_resize(self.session, function, values, count, error) })
    }
    /// Narrows the range of an input's dimension for this session.
    pub fn set_range(
        &mut self,
        function: u32,
        input: u32,
        dim: u32,
        range: std::ops::RangeInclusive<i64>,
    ) -> Result<(), Error> {
        let (min, max) = range.into_inner();
        check(|error| unsafe {
            husk_session_set_range(self.session, function, input, dim, min, max, error)
        })
    }
    /// What a function has done, and its memory.
    pub fn stats(&self, function: u32) -> Result<Stats, Error> {
        let mut stats: husk_session_stats = unsafe { std::mem::zeroed() };
        stats.struct_size = std::mem::size_of_val(&stats) as u32;
        check(|error| unsafe {
            husk_session_stats_get(self.session, function, &mut stats, error)
        })?;
        Ok(Stats {
            steps: stats.steps,
            is_graph: stats.graph_nodes > 0,
            arena_bytes: stats.arena_bytes,
            dynamic_bytes: stats.dynamic_bytes,
            runs: stats.runs_as_graph + stats.runs_as_list,
        })
    }

    /// Copies a state to the elements.
    pub fn get_state<T: Element>(&mut self, name: &str, to: &mut [T]) -> Result<(), Error> {
        let (state, info) = self.program.state(name)?;
        fits(&info, to)?;
        let bytes = to.as_mut_ptr() as *mut _;
        check(|error| unsafe { husk_session_state_get(self.session, state, bytes, error) })
    }
    /// Copies the elements to a state.
    pub fn set_state<T: Element>(&mut self, name: &str, from: &[T]) -> Result<(), Error> {
        let (state, info) = self.program.state(name)?;
        fits(&info, from)?;
        let bytes = from.as_ptr() as *const _;
        check(|error| unsafe { husk_session_state_set(self.session, state, bytes, error) })
    }
    /// Gives a state its first value again.
    pub fn reset_state(&mut self, name: &str) -> Result<(), Error> {
        let (state, _) = self.program.state(name)?;
        check(|error| unsafe { husk_session_state_reset(self.session, state, error) })
    }
    /// Copies a state from another session of the same program.
    pub fn copy_state(&mut self, name: &str, from: &mut Session) -> Result<(), Error> {
        let (state, _) = self.program.state(name)?;
        check(|error| unsafe { husk_session_state_copy(self.session, state, from.session, error) })
    }

    /// Fills the tables of a call. The addresses in them are set last, since the tables may move
    /// while they grow.
    fn take(&mut self, inputs: &[Value<'_>], outputs: &[Layout]) {
        let tensors = inputs.iter().filter_map(|input| match input {
            Value::Tensor(tensor) => Some(tensor.layout),
            _ => None,
        });
        self.layouts.clear();
        self.layouts.extend(tensors);
        self.layouts.extend_from_slice(outputs);
        self.tensors.clear();
        self.tensors.extend(self.layouts.iter_mut().map(Layout::dlpack));
        let mut next = self.tensors.iter_mut();
        let mut tensor = || husk_value {
            kind: HUSK_VALUE_TENSOR,
            reserved: 0,
            as_: husk_value_as { tensor: next.next().map_or(null_mut(), |one| one) },
        };
        let number = |kind, i| husk_value { kind, reserved: 0, as_: husk_value_as { i } };
        self.inputs.clear();
        self.inputs.extend(inputs.iter().map(|input| match *input {
            Value::Tensor(_) => tensor(),
            Value::Int(value) => number(HUSK_VALUE_INT, value),
            Value::Bool(value) => number(HUSK_VALUE_BOOL, i64::from(value)),
            Value::Float(f) => {
                husk_value { kind: HUSK_VALUE_FLOAT, reserved: 0, as_: husk_value_as { f } }
            }
        }));
        self.outputs.clear();
        self.outputs.extend(outputs.iter().map(|_| tensor()));
    }

    fn call(&mut self, function: u32) -> Result<(), Error> {
        let (inputs, input_count) = (self.inputs.as_ptr(), self.inputs.len() as u32);
        let (outputs, output_count) = (self.outputs.as_mut_ptr(), self.outputs.len() as u32);
        check(|error| unsafe {
            husk_session_run(
                self.session,
                function,
                null_mut(),
                inputs,
                input_count,
                outputs,
                output_count,
                error,
            )
        })?;
        check(|error| unsafe { husk_session_wait(self.session, error) })
    }
}

/// The outputs of a run, which are valid until the next call on the session.
pub struct Outputs<'a> {
    values: &'a [husk_value],
    session: PhantomData<&'a mut Session>,
}

impl<'a> Outputs<'a> {
    /// The number of outputs.
    pub fn len(&self) -> usize {
        self.values.len()
    }
    /// Whether the function has no outputs.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
    /// An output.
    pub fn get(&self, index: usize) -> Result<Output<'a>, Error> {
        let count = self.values.len();
        let value = self.values.get(index);
        let value = value.ok_or_else(|| invalid(format!("output {} of {}", index, count)))?;
        unsafe {
            Ok(match value.kind {
                HUSK_VALUE_TENSOR => Output::Tensor(TensorView::from_dlpack(&*value.as_.tensor)?),
                HUSK_VALUE_INT => Output::Int(value.as_.i),
                HUSK_VALUE_FLOAT => Output::Float(value.as_.f),
                HUSK_VALUE_BOOL => Output::Bool(value.as_.i != 0),
                kind => return Err(invalid(format!("an output of kind {}", kind))),
            })
        }
    }
    /// An output that is a tensor.
    pub fn tensor(&self, index: usize) -> Result<TensorView<'a>, Error> {
        match self.get(index)? {
            Output::Tensor(tensor) => Ok(tensor),
            _ => Err(invalid(format!("output {} is no tensor", index))),
        }
    }
    /// An output that is an int.
    pub fn int(&self, index: usize) -> Result<i64, Error> {
        match self.get(index)? {
            Output::Int(value) => Ok(value),
            _ => Err(invalid(format!("output {} is no int", index))),
        }
    }
}
