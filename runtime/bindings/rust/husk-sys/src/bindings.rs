// The C interface of Husk, written by runtime/bindings/abi/describe.py from the headers.
// husk.h, op.h, types.h, ports.h, port_host.h, port_cuda.h, ops.h, weights.h, text.h, generate.h
// and sound.h describe what stands here.

use std::os::raw::{c_char, c_void};

pub const kDLCPU: i32 = 1;
pub const kDLCUDA: i32 = 2;
pub const kDLCUDAHost: i32 = 3;
pub const kDLOpenCL: i32 = 4;
pub const kDLVulkan: i32 = 7;
pub const kDLMetal: i32 = 8;
pub const kDLVPI: i32 = 9;
pub const kDLROCM: i32 = 10;
pub const kDLROCMHost: i32 = 11;
pub const kDLExtDev: i32 = 12;
pub const kDLCUDAManaged: i32 = 13;
pub const kDLInt: i32 = 0;
pub const kDLUInt: i32 = 1;
pub const kDLFloat: i32 = 2;
pub const kDLOpaqueHandle: i32 = 3;
pub const kDLBfloat: i32 = 4;
pub const kDLComplex: i32 = 5;
pub const HUSK_DTYPE_NONE: i32 = 0;
pub const HUSK_BOOL: i32 = 1;
pub const HUSK_U8: i32 = 2;
pub const HUSK_I8: i32 = 3;
pub const HUSK_U16: i32 = 4;
pub const HUSK_I16: i32 = 5;
pub const HUSK_U32: i32 = 6;
pub const HUSK_I32: i32 = 7;
pub const HUSK_U64: i32 = 8;
pub const HUSK_I64: i32 = 9;
pub const HUSK_F16: i32 = 10;
pub const HUSK_BF16: i32 = 11;
pub const HUSK_F32: i32 = 12;
pub const HUSK_F64: i32 = 13;
pub const HUSK_C64: i32 = 14;
pub const HUSK_C128: i32 = 15;
pub const HUSK_F8E4M3FN: i32 = 16;
pub const HUSK_F8E5M2: i32 = 17;
pub const HUSK_F8E4M3FNUZ: i32 = 18;
pub const HUSK_F8E5M2FNUZ: i32 = 19;
pub const HUSK_POINTER: i32 = 32;
pub const HUSK_OK: i32 = 0;
pub const HUSK_INVALID_ARGUMENT: i32 = 1;
pub const HUSK_INVALID_FILE: i32 = 2;
pub const HUSK_UNSUPPORTED: i32 = 3;
pub const HUSK_INVALID_INPUT: i32 = 4;
pub const HUSK_OUT_OF_MEMORY: i32 = 5;
pub const HUSK_IO: i32 = 6;
pub const HUSK_DEVICE: i32 = 7;
pub const HUSK_NOT_FOUND: i32 = 8;
pub const HUSK_KERNEL: i32 = 9;
pub const HUSK_NEEDS_RESIZE: i32 = 10;
pub const HUSK_LIMIT: i32 = 11;
pub const HUSK_CANCELLED: i32 = 12;
pub const HUSK_ARG_NONE: i32 = 0;
pub const HUSK_ARG_TENSOR: i32 = 1;
pub const HUSK_ARG_INT: i32 = 2;
pub const HUSK_ARG_FLOAT: i32 = 3;
pub const HUSK_ARG_INTS: i32 = 4;
pub const HUSK_ARG_STRING: i32 = 5;
pub const HUSK_ARG_DTYPE: i32 = 6;
pub const HUSK_ARG_FLOATS: i32 = 7;
pub const HUSK_ARG_TENSORS: i32 = 8;
pub const HUSK_ARG_RESULT: i32 = 9;
pub const HUSK_ACCESS_READ: i32 = 1;
pub const HUSK_ACCESS_WRITE: i32 = 2;
pub const HUSK_ACCESS_ATOMIC: i32 = 4;
pub const HUSK_OP_ON_DEVICE: i32 = 0;
pub const HUSK_OP_ON_HOST: i32 = 1;
pub const HUSK_OP_CAPTURABLE: i32 = 1;
pub const HUSK_OP_WAITS_FIRST: i32 = 2;
pub const HUSK_IMAGE_ELF: i32 = 1;
pub const HUSK_IMAGE_CUBIN: i32 = 2;
pub const HUSK_IMAGE_PTX: i32 = 3;
pub const HUSK_LAUNCH_COOPERATIVE: i32 = 1;
pub const HUSK_LAUNCH_PROGRAMMATIC: i32 = 2;
pub const HUSK_DL_BOOL: i32 = 6;
pub const HUSK_DL_F8E4M3FN: i32 = 10;
pub const HUSK_DL_F8E4M3FNUZ: i32 = 11;
pub const HUSK_DL_F8E5M2: i32 = 12;
pub const HUSK_DL_F8E5M2FNUZ: i32 = 13;
pub const HUSK_LOG_INFO: i32 = 0;
pub const HUSK_LOG_WARNING: i32 = 1;
pub const HUSK_VALUE_NONE: i32 = 0;
pub const HUSK_VALUE_TENSOR: i32 = 1;
pub const HUSK_VALUE_INT: i32 = 2;
pub const HUSK_VALUE_FLOAT: i32 = 3;
pub const HUSK_VALUE_BOOL: i32 = 4;
pub const HUSK_MODE_AUTO: i32 = 0;
pub const HUSK_MODE_LIST: i32 = 1;
pub const HUSK_MODE_GRAPH: i32 = 2;
pub const HUSK_CLOCK_HOST: i32 = 0;
pub const HUSK_CLOCK_DEVICE: i32 = 1;
pub const HUSK_SESSION_MARKS: i32 = 4;
pub const HUSK_HOST_THREADS_MAX: i32 = 1024;
pub const HUSK_TEXT_ADD_SPECIAL: i32 = 1;
pub const HUSK_TEXT_PLAIN: i32 = 2;
pub const HUSK_TEXT_SKIP_SPECIAL: i32 = 4;
pub const HUSK_TEXT_GOES_ON: i32 = 0;
pub const HUSK_TEXT_END: i32 = 1;
pub const HUSK_TEXT_STOP: i32 = 2;
pub const HUSK_TEXT_LENGTH: i32 = 3;
pub const HUSK_TEXT_CANCELLED: i32 = 4;
pub const HUSK_TEXT_FAILED: i32 = 5;
pub const HUSK_TEXT_MEAN: i32 = 0;
pub const HUSK_TEXT_LAST: i32 = 1;

#[repr(C)]
pub struct husk_chat {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct husk_engine {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct husk_generator {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct husk_port {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct husk_program {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct husk_session {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct husk_sound {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct husk_text_decoder {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct husk_tokenizer {
    _opaque: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DLDataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DLDevice {
    pub device_type: u32,
    pub device_id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DLTensor {
    pub data: *mut c_void,
    pub device: DLDevice,
    pub ndim: i32,
    pub dtype: DLDataType,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_allocator {
    pub user: *mut c_void,
    pub allocate: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void>,
    pub release: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_constant_part {
    pub constant: u32,
    pub reserved: u32,
    pub bytes: *const c_void,
    pub offset: u64,
    pub size: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_constant_update {
    pub constant: u32,
    pub reserved: u32,
    pub bytes: *const c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_engine_options {
    pub struct_size: u32,
    pub device_index: i32,
    pub port: *const husk_port,
    pub allocator: *const husk_allocator,
    pub log: Option<unsafe extern "C" fn(*mut c_void, i32, *const c_char)>,
    pub log_user: *mut c_void,
    pub allow_host_images: i32,
    pub reserved: i32,
    pub accept: Option<unsafe extern "C" fn(*mut c_void, *const u8) -> i32>,
    pub accept_user: *mut c_void,
    pub threads: *const husk_threads,
    pub require_op_contracts: i32,
    pub reserved2: i32,
    pub max_metadata_bytes: u64,
    pub max_state_bytes: u64,
    pub verify_content: i32,
    pub reserved3: i32,
    pub progress: Option<unsafe extern "C" fn(*mut c_void, u64, u64) -> i32>,
    pub progress_user: *mut c_void,
    pub max_steps: u64,
    pub max_step_elements: u64,
    pub cancel: Option<unsafe extern "C" fn(*mut c_void) -> i32>,
    pub cancel_user: *mut c_void,
    pub max_packed_bytes: u64,
    pub max_program_bytes: u64,
    pub rank: u32,
    pub world: u32,
    pub group: *const husk_group_id,
    pub group_timeout_ms: u32,
    pub reserved4: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_error {
    pub code: i32,
    pub driver_code: i32,
    pub step: i32,
    pub text: [c_char; 240],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_generator_options {
    pub struct_size: u32,
    pub chunk: u32,
    pub reuse_prefixes: i32,
    pub reserved: i32,
    pub session: *const husk_session_options,
    pub runs: u32,
    pub reserved2: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_generator_stats {
    pub struct_size: u32,
    pub slots: u32,
    pub max_tokens: u64,
    pub vocabulary: u64,
    pub active: u32,
    pub waiting: u32,
    pub requests: u64,
    pub ended: u64,
    pub steps: u64,
    pub prompt_tokens: u64,
    pub reused_tokens: u64,
    pub new_tokens: u64,
    pub model_nanoseconds: u64,
    pub step_nanoseconds: u64,
    pub prompt_runs: u64,
    pub copied_tokens: u64,
    pub drafted_tokens: u64,
    pub accepted_tokens: u64,
    pub pages: u64,
    pub used_pages: u64,
    pub shared_tokens: u64,
    pub repeated_tokens: u64,
    pub runs_ahead: u64,
    pub single_runs: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_group_id {
    pub bytes: [u8; 128],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_op {
    pub struct_size: u32,
    pub reserved: u32,
    pub name: *const c_char,
    pub call: Option<
        unsafe extern "C" fn(
            *const husk_op_context,
            *const husk_op_arg,
            u32,
            *mut husk_error,
        ) -> i32,
    >,
    pub user: *mut c_void,
    pub prepare: Option<
        unsafe extern "C" fn(
            *const husk_op_context,
            *const husk_op_arg,
            u32,
            *mut husk_error,
        ) -> i32,
    >,
    pub contract: *const c_char,
    pub pack: Option<
        unsafe extern "C" fn(
            *const husk_op_context,
            *const husk_op_arg,
            u32,
            *mut husk_packing,
            *mut husk_error,
        ) -> i32,
    >,
    pub place: i32,
    pub flags: u32,
    pub scratch_bytes: u64,
    pub thread_scratch_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_op_arg {
    pub kind: i32,
    pub access: i32,
    pub dtype: i32,
    pub rank: i32,
    pub data: *mut c_void,
    pub sizes: *const i64,
    pub strides: *const i64,
    pub count: i64,
    pub i: i64,
    pub f: f64,
    pub string: *const c_char,
    pub floats: *const f64,
    pub tensors: *const husk_op_arg,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_op_context {
    pub struct_size: u32,
    pub reserved: u32,
    pub user: *mut c_void,
    pub device: *mut c_void,
    pub stream: *mut c_void,
    pub threads: *const husk_threads,
    pub cancel: Option<unsafe extern "C" fn(*mut c_void) -> i32>,
    pub cancel_user: *mut c_void,
    pub packed: *const *mut c_void,
    pub scratch: *mut c_void,
    pub rank: u32,
    pub world: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_packing {
    pub struct_size: u32,
    pub argument: u32,
    pub bytes: u64,
    pub layout: u64,
    pub data: *mut c_void,
    pub name: *const c_char,
    pub stored: *const c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_port_properties {
    pub struct_size: u32,
    pub dl_device_type: i32,
    pub device_index: i32,
    pub host_memory: i32,
    pub name: [c_char; 128],
    pub arch: [c_char; 32],
    pub memory_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_session_options {
    pub struct_size: u32,
    pub mode: i32,
    pub full_edges: i32,
    pub poison_memory: i32,
    pub parallel_memory_percent: i32,
    pub copy_misaligned: i32,
    pub bound_limit: u64,
    pub memory_limit: u64,
    pub loop_limit: u64,
    pub external_arena: i32,
    pub reserved: i32,
    pub trace: Option<unsafe extern "C" fn(*mut c_void, *const husk_trace_event)>,
    pub trace_user: *mut c_void,
    pub stage_host_tensors: i32,
    pub reserved2: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_session_stats {
    pub struct_size: u32,
    pub steps: u32,
    pub graph_nodes: u32,
    pub graph_edges: u32,
    pub programmatic_edges: u32,
    pub bounded: u32,
    pub arena_bytes: u64,
    pub arena_lower_bound: u64,
    pub runs_as_graph: u64,
    pub runs_as_list: u64,
    pub nodes_patched: u64,
    pub dynamic_bytes: u64,
    pub segments: u32,
    pub dynamic: u32,
    pub host_arena_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_sound_format {
    pub struct_size: u32,
    pub reserved: i32,
    pub rate: u64,
    pub samples: u64,
    pub hop: u64,
    pub bins: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_storage_info {
    pub struct_size: u32,
    pub dtype: i32,
    pub rank: i32,
    pub reserved: i32,
    pub name: *const c_char,
    pub dims: *const i64,
    pub bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_text_choice {
    pub struct_size: u32,
    pub sample: u32,
    pub request: u64,
    pub tokens: *const i32,
    pub token_count: usize,
    pub allowed: *mut u32,
    pub word_count: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_text_encoder {
    pub struct_size: u32,
    pub reserved: i32,
    pub positions: u64,
    pub features: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_text_images {
    pub struct_size: u32,
    pub token: i32,
    pub pixels: u64,
    pub rows: u64,
    pub width: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_text_part {
    pub struct_size: u32,
    pub sample: u32,
    pub request: u64,
    pub text: *const c_char,
    pub bytes: usize,
    pub token: i32,
    pub logprob: f32,
    pub reason: i32,
    pub reserved: i32,
    pub tokens: u64,
    pub prompt: u64,
    pub reused: u64,
    pub why: *const husk_error,
    pub top_tokens: *const i32,
    pub top_logprobs: *const f32,
    pub top_count: u32,
    pub reserved2: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_text_request {
    pub struct_size: u32,
    pub options: u32,
    pub text: *const c_char,
    pub bytes: usize,
    pub tokens: *const i32,
    pub token_count: usize,
    pub max_new_tokens: u64,
    pub samples: u32,
    pub temperature: f32,
    pub top_k: i64,
    pub top_p: f32,
    pub logprobs: i32,
    pub ignore_end: i32,
    pub reserved: i32,
    pub seed: i64,
    pub stops: *const husk_text_slice,
    pub stop_count: usize,
    pub part: Option<unsafe extern "C" fn(*mut c_void, *const husk_text_part) -> i32>,
    pub user: *mut c_void,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    pub top_logprobs: u32,
    pub speculate: u32,
    pub allow: Option<unsafe extern "C" fn(*mut c_void, *const husk_text_choice) -> i32>,
    pub adapter: u32,
    pub reserved2: u32,
    pub embeddings: *const f32,
    pub embedding_count: usize,
    pub features: *const f32,
    pub feature_count: usize,
    pub decoder_tokens: *const i32,
    pub decoder_token_count: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_text_slice {
    pub text: *const c_char,
    pub bytes: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_threads {
    pub user: *mut c_void,
    pub count: u32,
    pub parallel: Option<
        unsafe extern "C" fn(
            *mut c_void,
            u32,
            Option<unsafe extern "C" fn(*mut c_void, u32)>,
            *mut c_void,
        ),
    >,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_trace_event {
    pub struct_size: u32,
    pub step: u32,
    pub grid: [u32; 3],
    pub reserved: u32,
    pub function: *const c_char,
    pub kind: *const c_char,
    pub name: *const c_char,
    pub origin: *const c_char,
    pub nanoseconds: u64,
    pub clock: i32,
    pub reserved2: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union husk_value_as {
    pub tensor: *mut DLTensor,
    pub i: i64,
    pub f: f64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_value {
    pub kind: i32,
    pub reserved: i32,
    pub as_: husk_value_as,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct husk_value_info {
    pub struct_size: u32,
    pub kind: i32,
    pub dtype: i32,
    pub rank: i32,
    pub name: *const c_char,
    pub ranges: *const i64,
    pub alignment: u32,
    pub reserved: u32,
    pub on_host: i32,
    pub reserved2: i32,
    pub is_written: i32,
    pub reserved3: i32,
}

#[link(name = "husk")]
extern "C" {
    pub fn husk_dtype_from_dlpack(type_: DLDataType) -> i32;
    pub fn husk_dtype_name(dtype: i32) -> *const c_char;
    pub fn husk_dtype_size(dtype: i32) -> usize;
    pub fn husk_dtype_to_dlpack(dtype: i32) -> DLDataType;
    pub fn husk_engine_add_op(
        engine: *mut husk_engine,
        op: *const husk_op,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_engine_alloc(
        engine: *mut husk_engine,
        bytes: u64,
        memory: *mut *mut c_void,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_engine_alloc_host(
        engine: *mut husk_engine,
        bytes: u64,
        memory: *mut *mut c_void,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_engine_copy(
        engine: *mut husk_engine,
        stream: *mut c_void,
        to: *mut c_void,
        from: *const c_void,
        bytes: u64,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_engine_create(
        options: *const husk_engine_options,
        engine: *mut *mut husk_engine,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_engine_download(
        engine: *mut husk_engine,
        stream: *mut c_void,
        to: *mut c_void,
        from: *const c_void,
        bytes: u64,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_engine_free(engine: *mut husk_engine, memory: *mut c_void);
    pub fn husk_engine_free_host(engine: *mut husk_engine, memory: *mut c_void);
    pub fn husk_engine_properties(
        engine: *const husk_engine,
        out: *mut husk_port_properties,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_engine_release(engine: *mut husk_engine);
    pub fn husk_engine_stream_create(
        engine: *mut husk_engine,
        stream: *mut *mut c_void,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_engine_stream_destroy(engine: *mut husk_engine, stream: *mut c_void);
    pub fn husk_engine_upload(
        engine: *mut husk_engine,
        stream: *mut c_void,
        to: *mut c_void,
        from: *const c_void,
        bytes: u64,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_group_id_create(
        port: *const husk_port,
        id: *mut husk_group_id,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_host_threads_create(
        count: u32,
        allocator: *const husk_allocator,
        out: *mut husk_threads,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_host_threads_release(threads: *mut husk_threads);
    pub fn husk_port_at(index: u32) -> *const husk_port;
    pub fn husk_port_cuda() -> *const husk_port;
    pub fn husk_port_find(name: *const c_char) -> *const husk_port;
    pub fn husk_port_host() -> *const husk_port;
    pub fn husk_port_host_linked() -> *const husk_port;
    pub fn husk_program_constant(
        program: *const husk_program,
        constant: u32,
        out: *mut husk_storage_info,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_program_constant_count(program: *const husk_program) -> u32;
    pub fn husk_program_find_constant(
        program: *const husk_program,
        name: *const c_char,
        constant: *mut u32,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_program_find_function(
        program: *const husk_program,
        name: *const c_char,
        function: *mut u32,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_program_find_state(
        program: *const husk_program,
        name: *const c_char,
        state: *mut u32,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_program_function_count(program: *const husk_program) -> u32;
    pub fn husk_program_function_name(program: *const husk_program, function: u32) -> *const c_char;
    pub fn husk_program_function_target(
        program: *const husk_program,
        function: u32,
    ) -> *const c_char;
    pub fn husk_program_host_step_count(program: *const husk_program, function: u32) -> u32;
    pub fn husk_program_input(
        program: *const husk_program,
        function: u32,
        index: u32,
        out: *mut husk_value_info,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_program_input_count(program: *const husk_program, function: u32) -> u32;
    pub fn husk_program_link(
        engine: *mut husk_engine,
        artifact: *const c_void,
        program: *mut *mut husk_program,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_program_load(
        engine: *mut husk_engine,
        data: *const c_void,
        size: usize,
        release: Option<unsafe extern "C" fn(*mut c_void, *const c_void)>,
        user: *mut c_void,
        program: *mut *mut husk_program,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_program_metadata_count(program: *const husk_program) -> u32;
    pub fn husk_program_metadata_key(program: *const husk_program, entry: u32) -> *const c_char;
    pub fn husk_program_metadata_value(program: *const husk_program, entry: u32) -> *const c_char;
    pub fn husk_program_open(
        engine: *mut husk_engine,
        path: *const c_char,
        program: *mut *mut husk_program,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_program_output(
        program: *const husk_program,
        function: u32,
        index: u32,
        out: *mut husk_value_info,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_program_output_count(program: *const husk_program, function: u32) -> u32;
    pub fn husk_program_packed_bytes(program: *const husk_program) -> u64;
    pub fn husk_program_pytree(program: *const husk_program) -> *const c_char;
    pub fn husk_program_release(program: *mut husk_program);
    pub fn husk_program_state(
        program: *const husk_program,
        state: u32,
        out: *mut husk_storage_info,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_program_state_count(program: *const husk_program) -> u32;
    pub fn husk_program_update_constant_parts(
        program: *mut husk_program,
        parts: *const husk_constant_part,
        count: u32,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_program_update_constants(
        program: *mut husk_program,
        updates: *const husk_constant_update,
        count: u32,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_program_verify(data: *const c_void, size: usize, error: *mut husk_error) -> i32;
    pub fn husk_session_arena_bytes(session: *const husk_session) -> u64;
    pub fn husk_session_create(
        program: *mut husk_program,
        options: *const husk_session_options,
        session: *mut *mut husk_session,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_session_mark(session: *mut husk_session, mark: u32, error: *mut husk_error) -> i32;
    pub fn husk_session_output_shape(
        session: *mut husk_session,
        function: u32,
        index: u32,
        sizes: *mut i64,
        strides: *mut i64,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_session_release(session: *mut husk_session);
    pub fn husk_session_resize(
        session: *mut husk_session,
        function: u32,
        inputs: *const husk_value,
        input_count: u32,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_session_run(
        session: *mut husk_session,
        function: u32,
        stream: *mut c_void,
        inputs: *const husk_value,
        input_count: u32,
        outputs: *mut husk_value,
        output_count: u32,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_session_set_arena(
        session: *mut husk_session,
        memory: *mut c_void,
        bytes: u64,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_session_set_range(
        session: *mut husk_session,
        function: u32,
        input: u32,
        dim: u32,
        min: i64,
        max: i64,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_session_state_copy(
        session: *mut husk_session,
        state: u32,
        from: *mut husk_session,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_session_state_get(
        session: *mut husk_session,
        state: u32,
        bytes: *mut c_void,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_session_state_reset(
        session: *mut husk_session,
        state: u32,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_session_state_set(
        session: *mut husk_session,
        state: u32,
        bytes: *const c_void,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_session_stats_get(
        session: *const husk_session,
        function: u32,
        out: *mut husk_session_stats,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_session_wait(session: *mut husk_session, error: *mut husk_error) -> i32;
    pub fn husk_session_wait_mark(
        session: *mut husk_session,
        mark: u32,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_status_name(status: i32) -> *const c_char;
    pub fn husk_version() -> *const c_char;
}

#[link(name = "husk_ops")]
extern "C" {
    pub fn husk_host_generator_seed(seed: u64, state: *mut c_void);
    pub fn husk_host_ops(count: *mut u32) -> *const husk_op;
    pub fn husk_ops_add_all(engine: *mut husk_engine, error: *mut husk_error) -> i32;
    pub fn husk_weights_open(
        engine: *mut husk_engine,
        path: *const c_char,
        folder: *const c_char,
        program: *mut *mut husk_program,
        error: *mut husk_error,
    ) -> i32;
}

#[cfg(feature = "text")]
#[link(name = "husk_text")]
extern "C" {
    pub fn husk_chat_add(
        chat: *mut husk_chat,
        role: *const c_char,
        content: *const c_char,
        bytes: usize,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_chat_clear(chat: *mut husk_chat);
    pub fn husk_chat_create(
        json: *const c_char,
        bytes: usize,
        chat: *mut *mut husk_chat,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_chat_release(chat: *mut husk_chat);
    pub fn husk_chat_text(
        chat: *mut husk_chat,
        text: *mut *const c_char,
        bytes: *mut usize,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_generator_adapter_count(generator: *const husk_generator) -> u32;
    pub fn husk_generator_cancel(
        generator: *mut husk_generator,
        number: u64,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_generator_chat(
        generator: *const husk_generator,
        chat: *mut *mut husk_chat,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_generator_create(
        engine: *mut husk_engine,
        program: *mut husk_program,
        options: *const husk_generator_options,
        generator: *mut *mut husk_generator,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_generator_embed(
        generator: *mut husk_generator,
        tokens: *const i32,
        token_count: usize,
        pooling: i32,
        embedding: *mut f32,
        capacity: usize,
        count: *mut usize,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_generator_encoder_get(
        generator: *const husk_generator,
        out: *mut husk_text_encoder,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_generator_image(
        generator: *mut husk_generator,
        pixels: *const f32,
        pixel_count: usize,
        rows: *mut f32,
        capacity: usize,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_generator_images_get(
        generator: *const husk_generator,
        out: *mut husk_text_images,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_generator_recommend(
        generator: *const husk_generator,
        request: *mut husk_text_request,
    );
    pub fn husk_generator_release(generator: *mut husk_generator);
    pub fn husk_generator_remove_adapter(
        generator: *mut husk_generator,
        adapter: u32,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_generator_set_adapter(
        generator: *mut husk_generator,
        adapter: u32,
        weights: *const c_void,
        weight_bytes: usize,
        config: *const c_char,
        config_bytes: usize,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_generator_stats_get(
        generator: *mut husk_generator,
        out: *mut husk_generator_stats,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_generator_step(
        generator: *mut husk_generator,
        more: *mut i32,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_generator_submit(
        generator: *mut husk_generator,
        request: *const husk_text_request,
        number: *mut u64,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_generator_tokenizer(generator: *const husk_generator) -> *const husk_tokenizer;
    pub fn husk_sound_create(
        json: *const c_char,
        bytes: usize,
        sound: *mut *mut husk_sound,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_sound_features(
        sound: *const husk_sound,
        samples: *const f32,
        count: usize,
        columns: usize,
        features: *mut f32,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_sound_get(
        sound: *const husk_sound,
        out: *mut husk_sound_format,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_sound_release(sound: *mut husk_sound);
    pub fn husk_text_decoder_create(
        tokenizer: *const husk_tokenizer,
        options: u32,
        decoder: *mut *mut husk_text_decoder,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_text_decoder_finish(
        decoder: *mut husk_text_decoder,
        text: *mut *const c_char,
        bytes: *mut usize,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_text_decoder_push(
        decoder: *mut husk_text_decoder,
        token: i32,
        text: *mut *const c_char,
        bytes: *mut usize,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_text_decoder_release(decoder: *mut husk_text_decoder);
    pub fn husk_tokenizer_create(
        json: *const c_char,
        bytes: usize,
        tokenizer: *mut *mut husk_tokenizer,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_tokenizer_encode(
        tokenizer: *const husk_tokenizer,
        text: *const c_char,
        bytes: usize,
        options: u32,
        tokens: *mut i32,
        capacity: usize,
        count: *mut usize,
        error: *mut husk_error,
    ) -> i32;
    pub fn husk_tokenizer_is_special(tokenizer: *const husk_tokenizer, token: i32) -> i32;
    pub fn husk_tokenizer_release(tokenizer: *mut husk_tokenizer);
    pub fn husk_tokenizer_size(tokenizer: *const husk_tokenizer) -> u32;
    pub fn husk_tokenizer_token(
        tokenizer: *const husk_tokenizer,
        token: i32,
        bytes: *mut usize,
    ) -> *const c_char;
}

#[cfg(test)]
#[test]
fn layouts() {
    use std::mem::{align_of, size_of};
    assert_eq!(size_of::<DLDataType>(), 4);
    assert_eq!(align_of::<DLDataType>(), 2);
    assert_eq!(offset_of!(DLDataType, code), 0);
    assert_eq!(offset_of!(DLDataType, bits), 1);
    assert_eq!(offset_of!(DLDataType, lanes), 2);
    assert_eq!(size_of::<DLDevice>(), 8);
    assert_eq!(align_of::<DLDevice>(), 4);
    assert_eq!(offset_of!(DLDevice, device_type), 0);
    assert_eq!(offset_of!(DLDevice, device_id), 4);
    assert_eq!(size_of::<DLTensor>(), 48);
    assert_eq!(align_of::<DLTensor>(), 8);
    assert_eq!(offset_of!(DLTensor, data), 0);
    assert_eq!(offset_of!(DLTensor, device), 8);
    assert_eq!(offset_of!(DLTensor, ndim), 16);
    assert_eq!(offset_of!(DLTensor, dtype), 20);
    assert_eq!(offset_of!(DLTensor, shape), 24);
    assert_eq!(offset_of!(DLTensor, strides), 32);
    assert_eq!(offset_of!(DLTensor, byte_offset), 40);
    assert_eq!(size_of::<husk_allocator>(), 24);
    assert_eq!(align_of::<husk_allocator>(), 8);
    assert_eq!(offset_of!(husk_allocator, user), 0);
    assert_eq!(offset_of!(husk_allocator, allocate), 8);
    assert_eq!(offset_of!(husk_allocator, release), 16);
    assert_eq!(size_of::<husk_constant_part>(), 32);
    assert_eq!(align_of::<husk_constant_part>(), 8);
    assert_eq!(offset_of!(husk_constant_part, constant), 0);
    assert_eq!(offset_of!(husk_constant_part, reserved), 4);
    assert_eq!(offset_of!(husk_constant_part, bytes), 8);
    assert_eq!(offset_of!(husk_constant_part, offset), 16);
    assert_eq!(offset_of!(husk_constant_part, size), 24);
    assert_eq!(size_of::<husk_constant_update>(), 16);
    assert_eq!(align_of::<husk_constant_update>(), 8);
    assert_eq!(offset_of!(husk_constant_update, constant), 0);
    assert_eq!(offset_of!(husk_constant_update, reserved), 4);
    assert_eq!(offset_of!(husk_constant_update, bytes), 8);
    assert_eq!(size_of::<husk_engine_options>(), 192);
    assert_eq!(align_of::<husk_engine_options>(), 8);
    assert_eq!(offset_of!(husk_engine_options, struct_size), 0);
    assert_eq!(offset_of!(husk_engine_options, device_index), 4);
    assert_eq!(offset_of!(husk_engine_options, port), 8);
    assert_eq!(offset_of!(husk_engine_options, allocator), 16);
    assert_eq!(offset_of!(husk_engine_options, log), 24);
    assert_eq!(offset_of!(husk_engine_options, log_user), 32);
    assert_eq!(offset_of!(husk_engine_options, allow_host_images), 40);
    assert_eq!(offset_of!(husk_engine_options, reserved), 44);
    assert_eq!(offset_of!(husk_engine_options, accept), 48);
    assert_eq!(offset_of!(husk_engine_options, accept_user), 56);
    assert_eq!(offset_of!(husk_engine_options, threads), 64);
    assert_eq!(offset_of!(husk_engine_options, require_op_contracts), 72);
    assert_eq!(offset_of!(husk_engine_options, reserved2), 76);
    assert_eq!(offset_of!(husk_engine_options, max_metadata_bytes), 80);
    assert_eq!(offset_of!(husk_engine_options, max_state_bytes), 88);
    assert_eq!(offset_of!(husk_engine_options, verify_content), 96);
    assert_eq!(offset_of!(husk_engine_options, reserved3), 100);
    assert_eq!(offset_of!(husk_engine_options, progress), 104);
    assert_eq!(offset_of!(husk_engine_options, progress_user), 112);
    assert_eq!(offset_of!(husk_engine_options, max_steps), 120);
    assert_eq!(offset_of!(husk_engine_options, max_step_elements), 128);
    assert_eq!(offset_of!(husk_engine_options, cancel), 136);
    assert_eq!(offset_of!(husk_engine_options, cancel_user), 144);
    assert_eq!(offset_of!(husk_engine_options, max_packed_bytes), 152);
    assert_eq!(offset_of!(husk_engine_options, max_program_bytes), 160);
    assert_eq!(offset_of!(husk_engine_options, rank), 168);
    assert_eq!(offset_of!(husk_engine_options, world), 172);
    assert_eq!(offset_of!(husk_engine_options, group), 176);
    assert_eq!(offset_of!(husk_engine_options, group_timeout_ms), 184);
    assert_eq!(offset_of!(husk_engine_options, reserved4), 188);
    assert_eq!(size_of::<husk_error>(), 252);
    assert_eq!(align_of::<husk_error>(), 4);
    assert_eq!(offset_of!(husk_error, code), 0);
    assert_eq!(offset_of!(husk_error, driver_code), 4);
    assert_eq!(offset_of!(husk_error, step), 8);
    assert_eq!(offset_of!(husk_error, text), 12);
    assert_eq!(size_of::<husk_generator_options>(), 32);
    assert_eq!(align_of::<husk_generator_options>(), 8);
    assert_eq!(offset_of!(husk_generator_options, struct_size), 0);
    assert_eq!(offset_of!(husk_generator_options, chunk), 4);
    assert_eq!(offset_of!(husk_generator_options, reuse_prefixes), 8);
    assert_eq!(offset_of!(husk_generator_options, reserved), 12);
    assert_eq!(offset_of!(husk_generator_options, session), 16);
    assert_eq!(offset_of!(husk_generator_options, runs), 24);
    assert_eq!(offset_of!(husk_generator_options, reserved2), 28);
    assert_eq!(size_of::<husk_generator_stats>(), 176);
    assert_eq!(align_of::<husk_generator_stats>(), 8);
    assert_eq!(offset_of!(husk_generator_stats, struct_size), 0);
    assert_eq!(offset_of!(husk_generator_stats, slots), 4);
    assert_eq!(offset_of!(husk_generator_stats, max_tokens), 8);
    assert_eq!(offset_of!(husk_generator_stats, vocabulary), 16);
    assert_eq!(offset_of!(husk_generator_stats, active), 24);
    assert_eq!(offset_of!(husk_generator_stats, waiting), 28);
    assert_eq!(offset_of!(husk_generator_stats, requests), 32);
    assert_eq!(offset_of!(husk_generator_stats, ended), 40);
    assert_eq!(offset_of!(husk_generator_stats, steps), 48);
    assert_eq!(offset_of!(husk_generator_stats, prompt_tokens), 56);
    assert_eq!(offset_of!(husk_generator_stats, reused_tokens), 64);
    assert_eq!(offset_of!(husk_generator_stats, new_tokens), 72);
    assert_eq!(offset_of!(husk_generator_stats, model_nanoseconds), 80);
    assert_eq!(offset_of!(husk_generator_stats, step_nanoseconds), 88);
    assert_eq!(offset_of!(husk_generator_stats, prompt_runs), 96);
    assert_eq!(offset_of!(husk_generator_stats, copied_tokens), 104);
    assert_eq!(offset_of!(husk_generator_stats, drafted_tokens), 112);
    assert_eq!(offset_of!(husk_generator_stats, accepted_tokens), 120);
    assert_eq!(offset_of!(husk_generator_stats, pages), 128);
    assert_eq!(offset_of!(husk_generator_stats, used_pages), 136);
    assert_eq!(offset_of!(husk_generator_stats, shared_tokens), 144);
    assert_eq!(offset_of!(husk_generator_stats, repeated_tokens), 152);
    assert_eq!(offset_of!(husk_generator_stats, runs_ahead), 160);
    assert_eq!(offset_of!(husk_generator_stats, single_runs), 168);
    assert_eq!(size_of::<husk_group_id>(), 128);
    assert_eq!(align_of::<husk_group_id>(), 1);
    assert_eq!(offset_of!(husk_group_id, bytes), 0);
    assert_eq!(size_of::<husk_op>(), 80);
    assert_eq!(align_of::<husk_op>(), 8);
    assert_eq!(offset_of!(husk_op, struct_size), 0);
    assert_eq!(offset_of!(husk_op, reserved), 4);
    assert_eq!(offset_of!(husk_op, name), 8);
    assert_eq!(offset_of!(husk_op, call), 16);
    assert_eq!(offset_of!(husk_op, user), 24);
    assert_eq!(offset_of!(husk_op, prepare), 32);
    assert_eq!(offset_of!(husk_op, contract), 40);
    assert_eq!(offset_of!(husk_op, pack), 48);
    assert_eq!(offset_of!(husk_op, place), 56);
    assert_eq!(offset_of!(husk_op, flags), 60);
    assert_eq!(offset_of!(husk_op, scratch_bytes), 64);
    assert_eq!(offset_of!(husk_op, thread_scratch_bytes), 72);
    assert_eq!(size_of::<husk_op_arg>(), 88);
    assert_eq!(align_of::<husk_op_arg>(), 8);
    assert_eq!(offset_of!(husk_op_arg, kind), 0);
    assert_eq!(offset_of!(husk_op_arg, access), 4);
    assert_eq!(offset_of!(husk_op_arg, dtype), 8);
    assert_eq!(offset_of!(husk_op_arg, rank), 12);
    assert_eq!(offset_of!(husk_op_arg, data), 16);
    assert_eq!(offset_of!(husk_op_arg, sizes), 24);
    assert_eq!(offset_of!(husk_op_arg, strides), 32);
    assert_eq!(offset_of!(husk_op_arg, count), 40);
    assert_eq!(offset_of!(husk_op_arg, i), 48);
    assert_eq!(offset_of!(husk_op_arg, f), 56);
    assert_eq!(offset_of!(husk_op_arg, string), 64);
    assert_eq!(offset_of!(husk_op_arg, floats), 72);
    assert_eq!(offset_of!(husk_op_arg, tensors), 80);
    assert_eq!(size_of::<husk_op_context>(), 80);
    assert_eq!(align_of::<husk_op_context>(), 8);
    assert_eq!(offset_of!(husk_op_context, struct_size), 0);
    assert_eq!(offset_of!(husk_op_context, reserved), 4);
    assert_eq!(offset_of!(husk_op_context, user), 8);
    assert_eq!(offset_of!(husk_op_context, device), 16);
    assert_eq!(offset_of!(husk_op_context, stream), 24);
    assert_eq!(offset_of!(husk_op_context, threads), 32);
    assert_eq!(offset_of!(husk_op_context, cancel), 40);
    assert_eq!(offset_of!(husk_op_context, cancel_user), 48);
    assert_eq!(offset_of!(husk_op_context, packed), 56);
    assert_eq!(offset_of!(husk_op_context, scratch), 64);
    assert_eq!(offset_of!(husk_op_context, rank), 72);
    assert_eq!(offset_of!(husk_op_context, world), 76);
    assert_eq!(size_of::<husk_packing>(), 48);
    assert_eq!(align_of::<husk_packing>(), 8);
    assert_eq!(offset_of!(husk_packing, struct_size), 0);
    assert_eq!(offset_of!(husk_packing, argument), 4);
    assert_eq!(offset_of!(husk_packing, bytes), 8);
    assert_eq!(offset_of!(husk_packing, layout), 16);
    assert_eq!(offset_of!(husk_packing, data), 24);
    assert_eq!(offset_of!(husk_packing, name), 32);
    assert_eq!(offset_of!(husk_packing, stored), 40);
    assert_eq!(size_of::<husk_port_properties>(), 184);
    assert_eq!(align_of::<husk_port_properties>(), 8);
    assert_eq!(offset_of!(husk_port_properties, struct_size), 0);
    assert_eq!(offset_of!(husk_port_properties, dl_device_type), 4);
    assert_eq!(offset_of!(husk_port_properties, device_index), 8);
    assert_eq!(offset_of!(husk_port_properties, host_memory), 12);
    assert_eq!(offset_of!(husk_port_properties, name), 16);
    assert_eq!(offset_of!(husk_port_properties, arch), 144);
    assert_eq!(offset_of!(husk_port_properties, memory_bytes), 176);
    assert_eq!(size_of::<husk_session_options>(), 80);
    assert_eq!(align_of::<husk_session_options>(), 8);
    assert_eq!(offset_of!(husk_session_options, struct_size), 0);
    assert_eq!(offset_of!(husk_session_options, mode), 4);
    assert_eq!(offset_of!(husk_session_options, full_edges), 8);
    assert_eq!(offset_of!(husk_session_options, poison_memory), 12);
    assert_eq!(offset_of!(husk_session_options, parallel_memory_percent), 16);
    assert_eq!(offset_of!(husk_session_options, copy_misaligned), 20);
    assert_eq!(offset_of!(husk_session_options, bound_limit), 24);
    assert_eq!(offset_of!(husk_session_options, memory_limit), 32);
    assert_eq!(offset_of!(husk_session_options, loop_limit), 40);
    assert_eq!(offset_of!(husk_session_options, external_arena), 48);
    assert_eq!(offset_of!(husk_session_options, reserved), 52);
    assert_eq!(offset_of!(husk_session_options, trace), 56);
    assert_eq!(offset_of!(husk_session_options, trace_user), 64);
    assert_eq!(offset_of!(husk_session_options, stage_host_tensors), 72);
    assert_eq!(offset_of!(husk_session_options, reserved2), 76);
    assert_eq!(size_of::<husk_session_stats>(), 88);
    assert_eq!(align_of::<husk_session_stats>(), 8);
    assert_eq!(offset_of!(husk_session_stats, struct_size), 0);
    assert_eq!(offset_of!(husk_session_stats, steps), 4);
    assert_eq!(offset_of!(husk_session_stats, graph_nodes), 8);
    assert_eq!(offset_of!(husk_session_stats, graph_edges), 12);
    assert_eq!(offset_of!(husk_session_stats, programmatic_edges), 16);
    assert_eq!(offset_of!(husk_session_stats, bounded), 20);
    assert_eq!(offset_of!(husk_session_stats, arena_bytes), 24);
    assert_eq!(offset_of!(husk_session_stats, arena_lower_bound), 32);
    assert_eq!(offset_of!(husk_session_stats, runs_as_graph), 40);
    assert_eq!(offset_of!(husk_session_stats, runs_as_list), 48);
    assert_eq!(offset_of!(husk_session_stats, nodes_patched), 56);
    assert_eq!(offset_of!(husk_session_stats, dynamic_bytes), 64);
    assert_eq!(offset_of!(husk_session_stats, segments), 72);
    assert_eq!(offset_of!(husk_session_stats, dynamic), 76);
    assert_eq!(offset_of!(husk_session_stats, host_arena_bytes), 80);
    assert_eq!(size_of::<husk_sound_format>(), 40);
    assert_eq!(align_of::<husk_sound_format>(), 8);
    assert_eq!(offset_of!(husk_sound_format, struct_size), 0);
    assert_eq!(offset_of!(husk_sound_format, reserved), 4);
    assert_eq!(offset_of!(husk_sound_format, rate), 8);
    assert_eq!(offset_of!(husk_sound_format, samples), 16);
    assert_eq!(offset_of!(husk_sound_format, hop), 24);
    assert_eq!(offset_of!(husk_sound_format, bins), 32);
    assert_eq!(size_of::<husk_storage_info>(), 40);
    assert_eq!(align_of::<husk_storage_info>(), 8);
    assert_eq!(offset_of!(husk_storage_info, struct_size), 0);
    assert_eq!(offset_of!(husk_storage_info, dtype), 4);
    assert_eq!(offset_of!(husk_storage_info, rank), 8);
    assert_eq!(offset_of!(husk_storage_info, reserved), 12);
    assert_eq!(offset_of!(husk_storage_info, name), 16);
    assert_eq!(offset_of!(husk_storage_info, dims), 24);
    assert_eq!(offset_of!(husk_storage_info, bytes), 32);
    assert_eq!(size_of::<husk_text_choice>(), 48);
    assert_eq!(align_of::<husk_text_choice>(), 8);
    assert_eq!(offset_of!(husk_text_choice, struct_size), 0);
    assert_eq!(offset_of!(husk_text_choice, sample), 4);
    assert_eq!(offset_of!(husk_text_choice, request), 8);
    assert_eq!(offset_of!(husk_text_choice, tokens), 16);
    assert_eq!(offset_of!(husk_text_choice, token_count), 24);
    assert_eq!(offset_of!(husk_text_choice, allowed), 32);
    assert_eq!(offset_of!(husk_text_choice, word_count), 40);
    assert_eq!(size_of::<husk_text_encoder>(), 24);
    assert_eq!(align_of::<husk_text_encoder>(), 8);
    assert_eq!(offset_of!(husk_text_encoder, struct_size), 0);
    assert_eq!(offset_of!(husk_text_encoder, reserved), 4);
    assert_eq!(offset_of!(husk_text_encoder, positions), 8);
    assert_eq!(offset_of!(husk_text_encoder, features), 16);
    assert_eq!(size_of::<husk_text_images>(), 32);
    assert_eq!(align_of::<husk_text_images>(), 8);
    assert_eq!(offset_of!(husk_text_images, struct_size), 0);
    assert_eq!(offset_of!(husk_text_images, token), 4);
    assert_eq!(offset_of!(husk_text_images, pixels), 8);
    assert_eq!(offset_of!(husk_text_images, rows), 16);
    assert_eq!(offset_of!(husk_text_images, width), 24);
    assert_eq!(size_of::<husk_text_part>(), 104);
    assert_eq!(align_of::<husk_text_part>(), 8);
    assert_eq!(offset_of!(husk_text_part, struct_size), 0);
    assert_eq!(offset_of!(husk_text_part, sample), 4);
    assert_eq!(offset_of!(husk_text_part, request), 8);
    assert_eq!(offset_of!(husk_text_part, text), 16);
    assert_eq!(offset_of!(husk_text_part, bytes), 24);
    assert_eq!(offset_of!(husk_text_part, token), 32);
    assert_eq!(offset_of!(husk_text_part, logprob), 36);
    assert_eq!(offset_of!(husk_text_part, reason), 40);
    assert_eq!(offset_of!(husk_text_part, reserved), 44);
    assert_eq!(offset_of!(husk_text_part, tokens), 48);
    assert_eq!(offset_of!(husk_text_part, prompt), 56);
    assert_eq!(offset_of!(husk_text_part, reused), 64);
    assert_eq!(offset_of!(husk_text_part, why), 72);
    assert_eq!(offset_of!(husk_text_part, top_tokens), 80);
    assert_eq!(offset_of!(husk_text_part, top_logprobs), 88);
    assert_eq!(offset_of!(husk_text_part, top_count), 96);
    assert_eq!(offset_of!(husk_text_part, reserved2), 100);
    assert_eq!(size_of::<husk_text_request>(), 208);
    assert_eq!(align_of::<husk_text_request>(), 8);
    assert_eq!(offset_of!(husk_text_request, struct_size), 0);
    assert_eq!(offset_of!(husk_text_request, options), 4);
    assert_eq!(offset_of!(husk_text_request, text), 8);
    assert_eq!(offset_of!(husk_text_request, bytes), 16);
    assert_eq!(offset_of!(husk_text_request, tokens), 24);
    assert_eq!(offset_of!(husk_text_request, token_count), 32);
    assert_eq!(offset_of!(husk_text_request, max_new_tokens), 40);
    assert_eq!(offset_of!(husk_text_request, samples), 48);
    assert_eq!(offset_of!(husk_text_request, temperature), 52);
    assert_eq!(offset_of!(husk_text_request, top_k), 56);
    assert_eq!(offset_of!(husk_text_request, top_p), 64);
    assert_eq!(offset_of!(husk_text_request, logprobs), 68);
    assert_eq!(offset_of!(husk_text_request, ignore_end), 72);
    assert_eq!(offset_of!(husk_text_request, reserved), 76);
    assert_eq!(offset_of!(husk_text_request, seed), 80);
    assert_eq!(offset_of!(husk_text_request, stops), 88);
    assert_eq!(offset_of!(husk_text_request, stop_count), 96);
    assert_eq!(offset_of!(husk_text_request, part), 104);
    assert_eq!(offset_of!(husk_text_request, user), 112);
    assert_eq!(offset_of!(husk_text_request, min_p), 120);
    assert_eq!(offset_of!(husk_text_request, repetition_penalty), 124);
    assert_eq!(offset_of!(husk_text_request, presence_penalty), 128);
    assert_eq!(offset_of!(husk_text_request, frequency_penalty), 132);
    assert_eq!(offset_of!(husk_text_request, top_logprobs), 136);
    assert_eq!(offset_of!(husk_text_request, speculate), 140);
    assert_eq!(offset_of!(husk_text_request, allow), 144);
    assert_eq!(offset_of!(husk_text_request, adapter), 152);
    assert_eq!(offset_of!(husk_text_request, reserved2), 156);
    assert_eq!(offset_of!(husk_text_request, embeddings), 160);
    assert_eq!(offset_of!(husk_text_request, embedding_count), 168);
    assert_eq!(offset_of!(husk_text_request, features), 176);
    assert_eq!(offset_of!(husk_text_request, feature_count), 184);
    assert_eq!(offset_of!(husk_text_request, decoder_tokens), 192);
    assert_eq!(offset_of!(husk_text_request, decoder_token_count), 200);
    assert_eq!(size_of::<husk_text_slice>(), 16);
    assert_eq!(align_of::<husk_text_slice>(), 8);
    assert_eq!(offset_of!(husk_text_slice, text), 0);
    assert_eq!(offset_of!(husk_text_slice, bytes), 8);
    assert_eq!(size_of::<husk_threads>(), 24);
    assert_eq!(align_of::<husk_threads>(), 8);
    assert_eq!(offset_of!(husk_threads, user), 0);
    assert_eq!(offset_of!(husk_threads, count), 8);
    assert_eq!(offset_of!(husk_threads, parallel), 16);
    assert_eq!(size_of::<husk_trace_event>(), 72);
    assert_eq!(align_of::<husk_trace_event>(), 8);
    assert_eq!(offset_of!(husk_trace_event, struct_size), 0);
    assert_eq!(offset_of!(husk_trace_event, step), 4);
    assert_eq!(offset_of!(husk_trace_event, grid), 8);
    assert_eq!(offset_of!(husk_trace_event, reserved), 20);
    assert_eq!(offset_of!(husk_trace_event, function), 24);
    assert_eq!(offset_of!(husk_trace_event, kind), 32);
    assert_eq!(offset_of!(husk_trace_event, name), 40);
    assert_eq!(offset_of!(husk_trace_event, origin), 48);
    assert_eq!(offset_of!(husk_trace_event, nanoseconds), 56);
    assert_eq!(offset_of!(husk_trace_event, clock), 64);
    assert_eq!(offset_of!(husk_trace_event, reserved2), 68);
    assert_eq!(size_of::<husk_value>(), 16);
    assert_eq!(align_of::<husk_value>(), 8);
    assert_eq!(offset_of!(husk_value, kind), 0);
    assert_eq!(offset_of!(husk_value, reserved), 4);
    assert_eq!(offset_of!(husk_value, as_), 8);
    assert_eq!(size_of::<husk_value_info>(), 56);
    assert_eq!(align_of::<husk_value_info>(), 8);
    assert_eq!(offset_of!(husk_value_info, struct_size), 0);
    assert_eq!(offset_of!(husk_value_info, kind), 4);
    assert_eq!(offset_of!(husk_value_info, dtype), 8);
    assert_eq!(offset_of!(husk_value_info, rank), 12);
    assert_eq!(offset_of!(husk_value_info, name), 16);
    assert_eq!(offset_of!(husk_value_info, ranges), 24);
    assert_eq!(offset_of!(husk_value_info, alignment), 32);
    assert_eq!(offset_of!(husk_value_info, reserved), 36);
    assert_eq!(offset_of!(husk_value_info, on_host), 40);
    assert_eq!(offset_of!(husk_value_info, reserved2), 44);
    assert_eq!(offset_of!(husk_value_info, is_written), 48);
    assert_eq!(offset_of!(husk_value_info, reserved3), 52);
}
