//! Texts of language models, with libhusk_text: the feature `text` of this crate.
//!
//! ```no_run
//! # fn main() -> Result<(), husk::Error> {
//! # let engine = unsafe { husk::Engine::builder().allow_host_images() }.build()?;
//! use husk::text::{Generator, Request};
//! let mut generator = Generator::new(&engine.open("smollm2.husk")?)?;
//! let text = generator.generate(Request::text("The capital of France is"))?;
//! # Ok(())
//! # }
//! ```

use std::any::Any;
use std::ffi::CString;
use std::mem::size_of;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};

use husk_sys::*;

use crate::error::{check, text_in, Error, Status};
use crate::program::Program;

/// Why a text has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The model ended the text.
    End,
    /// One of the stop texts came.
    Stop,
    /// It has `max_new_tokens`, or the sequence has no room for more.
    Length,
    /// The application cancelled the request.
    Cancelled,
    /// A run failed, or no token was allowed.
    Failed,
}

/// What a step has added to a text.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// The number of the request.
    pub request: u64,
    /// The number of the text among those of the request.
    pub sample: u32,
    /// What became certain: whole characters, perhaps none.
    pub text: &'a str,
    /// The token, if there is one.
    pub token: Option<i32>,
    /// The logarithm of its probability in the model, if asked for.
    pub logprob: f32,
    /// `None` while more parts will come.
    pub reason: Option<Reason>,
    /// Why the text has failed.
    pub failure: Option<String>,
}

type OnPart = Box<dyn FnMut(&Part) -> bool + Send>;

/// A request. The fields that are numbers have the meaning of `husk_text_request`.
pub struct Request {
    prompt: Prompt,
    part: Option<OnPart>,
    /// Texts that end the generation.
    pub stops: Vec<String>,
    /// The most tokens of a text; 0: as many as there is room for.
    pub max_new_tokens: u64,
    /// How many texts.
    pub samples: u32,
    /// 0 takes the most likely token each time.
    pub temperature: f32,
    /// Draw from so many tokens; 0: no limit.
    pub top_k: i64,
    /// Draw from the most likely tokens that have this probability together; 0: 1.
    pub top_p: f32,
    /// Draw from the tokens with this part of the largest probability.
    pub min_p: f32,
    /// Makes tokens less likely that the text or its prompt has; 0: 1.
    pub repetition_penalty: f32,
    /// Makes tokens less likely that the text has.
    pub presence_penalty: f32,
    /// The same, as often as the text has them.
    pub frequency_penalty: f32,
    /// Equal seeds give equal texts.
    pub seed: i64,
    /// Whether parts have log-probabilities.
    pub logprobs: bool,
    /// How many tokens are tried together.
    pub speculate: u32,
    /// The adapter of `Generator::set_adapter`; 0: none.
    pub adapter: u32,
    /// The tokens with which the decoder begins, if the file has an encoder, which takes the
    /// prompt or the features; empty: those of the file.
    pub decoder_tokens: Vec<i32>,
}

enum Prompt {
    Text(String, u32),
    Tokens(Vec<i32>),
    Features(Vec<f32>),
}

/// How a file takes the input of its encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoder {
    /// A prompt of up to so many tokens.
    Tokens(u64),
    /// So many numbers of features (`Request::features`).
    Features(u64),
}

impl Request {
    fn new(prompt: Prompt) -> Request {
        Request {
            prompt,
            part: None,
            stops: Vec::new(),
            max_new_tokens: 0,
            samples: 1,
            temperature: 0.0,
            top_k: 0,
            top_p: 0.0,
            min_p: 0.0,
            repetition_penalty: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: 0,
            logprobs: false,
            speculate: 0,
            adapter: 0,
            decoder_tokens: Vec::new(),
        }
    }
    /// Continues a text, with the tokens that belong at its beginning.
    pub fn text(text: impl Into<String>) -> Request {
        Request::new(Prompt::Text(text.into(), HUSK_TEXT_ADD_SPECIAL as u32))
    }
    /// Answers what `Generator::chat` gives.
    pub fn chat(text: impl Into<String>) -> Request {
        Request::new(Prompt::Text(text.into(), 0))
    }
    /// Continues tokens.
    pub fn tokens(tokens: impl Into<Vec<i32>>) -> Request {
        Request::new(Prompt::Tokens(tokens.into()))
    }
    /// Gives an encoder of sound its features, in place of a prompt.
    pub fn features(features: impl Into<Vec<f32>>) -> Request {
        Request::new(Prompt::Features(features.into()))
    }
    /// Sets what gets each part; if it returns false, the request is cancelled.
    pub fn on_part(mut self, part: impl FnMut(&Part) -> bool + Send + 'static) -> Request {
        self.part = Some(Box::new(part));
        self
    }
}

/// What a request needs until its last part has come.
struct Call {
    part: Option<OnPart>,
    left: u32,
    panic: Option<Box<dyn Any + Send>>,
}

/// The requests for texts of one program. One thread uses it at a time.
pub struct Generator {
    handle: *mut husk_generator,
    calls: Vec<*mut Call>, // those that are not done, and perhaps others
    _program: Program,     // keeps its engine, which outlives the generator
}

// The library has no state of a thread.
unsafe impl Send for Generator {}

impl Drop for Generator {
    fn drop(&mut self) {
        unsafe {
            husk_generator_release(self.handle);
            for &call in &self.calls {
                drop(Box::from_raw(call));
            }
        }
    }
}

impl Generator {
    /// Opens a program for texts.
    pub fn new(program: &Program) -> Result<Generator, Error> {
        Generator::with_options(program, false)
    }
    /// The same; with `reuse_prefixes`, prompts begin after what a cache has of them already.
    pub fn with_options(program: &Program, reuse_prefixes: bool) -> Result<Generator, Error> {
        let mut options: husk_generator_options = unsafe { std::mem::zeroed() };
        options.struct_size = size_of::<husk_generator_options>() as u32;
        options.reuse_prefixes = reuse_prefixes as i32;
        let mut handle = null_mut();
        check(|error| unsafe {
            let engine = program.0.engine.0.engine;
            husk_generator_create(engine, program.0.program, &options, &mut handle, error)
        })?;
        Ok(Generator { handle, calls: Vec::new(), _program: program.clone() })
    }

    /// Adds a request, and returns its number.
    pub fn submit(&mut self, request: Request) -> Result<u64, Error> {
        let stops: Vec<husk_text_slice> = request.stops.iter().map(|stop| slice_of(stop)).collect();
        let mut asked: husk_text_request = unsafe { std::mem::zeroed() };
        asked.struct_size = size_of::<husk_text_request>() as u32;
        match &request.prompt {
            Prompt::Text(text, options) => {
                asked.text = text.as_ptr() as *const c_char;
                asked.bytes = text.len();
                asked.options = *options;
            }
            Prompt::Tokens(tokens) => {
                asked.tokens = tokens.as_ptr();
                asked.token_count = tokens.len();
            }
            Prompt::Features(features) => {
                asked.features = features.as_ptr();
                asked.feature_count = features.len();
            }
        }
        asked.decoder_tokens = request.decoder_tokens.as_ptr();
        asked.decoder_token_count = request.decoder_tokens.len();
        asked.max_new_tokens = request.max_new_tokens;
        asked.samples = request.samples;
        asked.temperature = request.temperature;
        asked.top_k = request.top_k;
        asked.top_p = request.top_p;
        asked.min_p = request.min_p;
        asked.repetition_penalty = request.repetition_penalty;
        asked.presence_penalty = request.presence_penalty;
        asked.frequency_penalty = request.frequency_penalty;
        asked.seed = request.seed;
        asked.logprobs = request.logprobs as i32;
        asked.speculate = request.speculate;
        asked.adapter = request.adapter;
        asked.stops = stops.as_ptr();
        asked.stop_count = stops.len();
        asked.part = Some(give);
        let left = request.samples.max(1);
        let call = Box::into_raw(Box::new(Call { part: request.part, left, panic: None }));
        asked.user = call as *mut c_void;
        let mut number = 0;
        let status = check(|error| unsafe {
            husk_generator_submit(self.handle, &asked, &mut number, error)
        });
        if let Err(error) = status {
            drop(unsafe { Box::from_raw(call) });
            return Err(error);
        }
        self.calls.push(call);
        Ok(number)
    }

    /// What the encoder of the file takes; `None` if it has none.
    pub fn encoder(&self) -> Option<Encoder> {
        let mut found: husk_text_encoder = unsafe { std::mem::zeroed() };
        found.struct_size = size_of::<husk_text_encoder>() as u32;
        let status = unsafe { husk_generator_encoder_get(self.handle, &mut found, null_mut()) };
        match (found.positions, found.features) {
            _ if status != HUSK_OK => None,
            (0, _) => None,
            (positions, 0) => Some(Encoder::Tokens(positions)),
            (_, features) => Some(Encoder::Features(features)),
        }
    }
    /// Sets an adapter (LoRA), whose numbers begin with 1: the content of
    /// `adapter_model.safetensors` and of `adapter_config.json`. No request may use it.
    pub fn set_adapter(&mut self, adapter: u32, weights: &[u8], config: &str) -> Result<(), Error> {
        check(|error| unsafe {
            husk_generator_set_adapter(
                self.handle,
                adapter,
                weights.as_ptr().cast(),
                weights.len(),
                config.as_ptr().cast(),
                config.len(),
                error,
            )
        })
    }
    /// Removes an adapter.
    pub fn remove_adapter(&mut self, adapter: u32) -> Result<(), Error> {
        check(|error| unsafe { husk_generator_remove_adapter(self.handle, adapter, error) })
    }
    /// Cancels a request. Returns false if there is none, since it is done.
    pub fn cancel(&mut self, number: u64) -> bool {
        unsafe { husk_generator_cancel(self.handle, number, null_mut()) == HUSK_OK }
    }

    /// Generates tokens of all texts that have a slot. Returns whether there is more to do. A panic
    /// of a function of a request goes on here, after the step.
    pub fn step(&mut self) -> Result<bool, Error> {
        let mut more = 0;
        let status = check(|error| unsafe { husk_generator_step(self.handle, &mut more, error) });
        let mut panic = None;
        self.calls.retain(|&call| unsafe {
            if let Some(payload) = (*call).panic.take() {
                panic.get_or_insert(payload);
            }
            let is_done = (*call).left == 0;
            if is_done {
                drop(Box::from_raw(call));
            }
            !is_done
        });
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
        status.map(|_| more != 0)
    }

    /// Finishes all requests.
    pub fn run(&mut self) -> Result<(), Error> {
        while self.step()? {}
        Ok(())
    }

    /// Generates the first text of a request, and works on the others meanwhile.
    pub fn generate(&mut self, mut request: Request) -> Result<String, Error> {
        let state = Arc::new(Mutex::new((String::new(), None)));
        let (shared, mut user) = (state.clone(), request.part.take());
        request.samples = 1;
        self.submit(request.on_part(move |part| {
            let mut state = shared.lock().unwrap();
            state.0.push_str(part.text);
            if part.reason.is_some() {
                state.1 = Some(part.failure.clone());
            }
            drop(state);
            user.as_mut().map_or(true, |user| user(part))
        }))?;
        loop {
            self.step()?;
            let mut state = state.lock().unwrap();
            if let Some(failure) = state.1.take() {
                return match failure {
                    Some(text) => Err(Error::new(Status::Kernel, text)),
                    None => Ok(std::mem::take(&mut state.0)),
                };
            }
        }
    }

    /// The tokens of a text, by the tokenizer of the file.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>, Error> {
        let tokenizer = unsafe { husk_generator_tokenizer(self.handle) };
        if tokenizer.is_null() {
            return Err(Error::new(Status::Unsupported, "the file has no tokenizer"));
        }
        let mut tokens = vec![0; text.len() + 16];
        loop {
            let (mut count, slice) = (0, slice_of(text));
            check(|error| unsafe {
                let options = HUSK_TEXT_ADD_SPECIAL as u32;
                let (to, size) = (tokens.as_mut_ptr(), tokens.len());
                husk_tokenizer_encode(
                    tokenizer,
                    slice.text,
                    slice.bytes,
                    options,
                    to,
                    size,
                    &mut count,
                    error,
                )
            })?;
            let fits = count <= tokens.len();
            tokens.resize(count, 0);
            if fits {
                return Ok(tokens);
            }
        }
    }

    /// The text of messages, pairs of a role and a content, up to the beginning of an answer.
    pub fn chat(&self, messages: &[(&str, &str)]) -> Result<String, Error> {
        let mut chat = null_mut();
        check(|error| unsafe { husk_generator_chat(self.handle, &mut chat, error) })?;
        let filled = messages.iter().try_for_each(|(role, content)| {
            let role = CString::new(*role)
                .map_err(|_| Error::new(Status::InvalidArgument, "a role has a zero byte"))?;
            let slice = slice_of(content);
            check(|error| unsafe {
                husk_chat_add(chat, role.as_ptr(), slice.text, slice.bytes, error)
            })
        });
        let text = filled.and_then(|_| {
            let (mut text, mut bytes) = (null(), 0);
            check(|error| unsafe { husk_chat_text(chat, &mut text, &mut bytes, error) })?;
            let bytes = unsafe { std::slice::from_raw_parts(text as *const u8, bytes) };
            Ok(String::from_utf8_lossy(bytes).into_owned())
        });
        unsafe { husk_chat_release(chat) };
        text
    }

    /// The hidden states of the last layer for a text: their mean, or with `last` those of the last
    /// token.
    pub fn embed(&mut self, tokens: &[i32], last: bool) -> Result<Vec<f32>, Error> {
        let pooling = if last { HUSK_TEXT_LAST } else { HUSK_TEXT_MEAN };
        let mut numbers = vec![0.0; 4096];
        loop {
            let mut count = 0;
            check(|error| unsafe {
                let (to, size) = (numbers.as_mut_ptr(), numbers.len());
                let (text, length) = (tokens.as_ptr(), tokens.len());
                husk_generator_embed(
                    self.handle,
                    text,
                    length,
                    pooling,
                    to,
                    size,
                    &mut count,
                    error,
                )
            })?;
            let fits = count <= numbers.len();
            numbers.resize(count, 0.0);
            if fits {
                return Ok(numbers);
            }
        }
    }
}

fn slice_of(text: &str) -> husk_text_slice {
    husk_text_slice { text: text.as_ptr() as *const c_char, bytes: text.len() }
}

/// Gives a part to the function of a request. Nothing unwinds into the library.
unsafe extern "C" fn give(user: *mut c_void, part: *const husk_text_part) -> i32 {
    let (call, part) = (&mut *(user as *mut Call), &*part);
    let reason = match part.reason {
        HUSK_TEXT_GOES_ON => None,
        HUSK_TEXT_END => Some(Reason::End),
        HUSK_TEXT_STOP => Some(Reason::Stop),
        HUSK_TEXT_LENGTH => Some(Reason::Length),
        HUSK_TEXT_CANCELLED => Some(Reason::Cancelled),
        _ => Some(Reason::Failed),
    };
    if reason.is_some() {
        call.left -= 1;
    }
    let bytes = std::slice::from_raw_parts(part.text as *const u8, part.bytes);
    let seen = Part {
        request: part.request,
        sample: part.sample,
        text: std::str::from_utf8(bytes).unwrap_or(""),
        token: Some(part.token).filter(|&token| token >= 0),
        logprob: part.logprob,
        reason,
        failure: part.why.as_ref().map(|why| text_in(&why.text)),
    };
    let function = match &mut call.part {
        Some(function) if call.panic.is_none() => function,
        Some(_) => return 1,
        None => return 0,
    };
    match catch_unwind(AssertUnwindSafe(|| function(&seen))) {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(payload) => {
            call.panic = Some(payload);
            1
        }
    }
}
