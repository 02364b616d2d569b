// Package husk runs models of PyTorch that were exported to artifacts of Husk.
//
//	engine, err := husk.NewEngine(husk.Options{AllowHostImages: true})  // open only trusted files
//	program, err := engine.Open("mlp.husk")
//	session, err := program.NewSession(husk.SessionOptions{})
//	outputs, err := session.Run(0, husk.Slice(x, 4, 32))
//	y, err := husk.Elements[float32](outputs[0])
//
// An Engine and a Program may be used by all goroutines. A Session has a lock, so that the calls of
// several goroutines on it follow one another. Close releases a handle before the collector does;
// it is called while no other goroutine uses the handle. A session keeps its program and a program
// its engine. Every handle stays usable after an error.
package husk

/*
#cgo pkg-config: husk
#cgo LDFLAGS: -lhusk_ops
#include <stdlib.h>
#include <string.h>
#include <husk/husk.h>
#include <husk/ops.h>
#include <husk/port_host.h>
#include <husk/ports.h>
#include <husk/weights.h>

int32_t huskGoCancel(void*);
void huskGoLog(void*, int32_t, char*);
husk_status huskGoOp(husk_op_context*, husk_op_arg*, uint32_t, husk_error*);

static int32_t cancel(void* user) { return huskGoCancel(user); }
static void log_text(void* user, int32_t level, const char* text) {
  huskGoLog(user, level, (char*)text);
}
static husk_status call_op(const husk_op_context* context, const husk_op_arg* args, uint32_t count,
                           husk_error* error) {
  return huskGoOp((husk_op_context*)context, (husk_op_arg*)args, count, error);
}

// The options stay on this side, since memory of Go must not hold pointers of Go.
static husk_status create_engine(const husk_port* port, int32_t index, int32_t host_images,
                                 int32_t verify, husk_threads* threads, uintptr_t canceller,
                                 uintptr_t logger, husk_engine** engine, husk_error* error) {
  husk_engine_options options = HUSK_ENGINE_OPTIONS_INIT;
  options.port = port;
  options.device_index = index;
  options.allow_host_images = host_images;
  options.require_op_contracts = 1;
  options.verify_content = verify;
  options.threads = threads;
  if (canceller) {
    options.cancel = cancel;
    options.cancel_user = (void*)canceller;
  }
  if (logger) {
    options.log = log_text;
    options.log_user = (void*)logger;
  }
  const husk_status status = husk_engine_create(&options, engine, error);
  return status != HUSK_OK ? status : husk_ops_add_all(*engine, error);
}

static husk_status add_op(husk_engine* engine, const char* name, const char* contract,
                          uintptr_t user, husk_error* error) {
  husk_op op = HUSK_OP_INIT;
  op.name = name;
  op.call = call_op;
  op.user = (void*)user;
  op.contract = contract;
  return husk_engine_add_op(engine, &op, error);
}

static void free_bytes(void* user, const void* bytes) { free(user); }
static husk_status load(husk_engine* engine, void* bytes, size_t size, husk_program** program,
                        husk_error* error) {
  return husk_program_load(engine, bytes, size, free_bytes, bytes, program, error);
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"runtime/cgo"
	"strconv"
	"strings"
	"sync"
	"unsafe"
)

// Status is the reason of a failure, by which a program decides what to do.
type Status int32

// The values of Status; husk/types.h describes them.
const (
	InvalidArgument Status = C.HUSK_INVALID_ARGUMENT
	InvalidFile     Status = C.HUSK_INVALID_FILE
	Unsupported     Status = C.HUSK_UNSUPPORTED
	InvalidInput    Status = C.HUSK_INVALID_INPUT
	OutOfMemory     Status = C.HUSK_OUT_OF_MEMORY
	IO              Status = C.HUSK_IO
	Device          Status = C.HUSK_DEVICE
	NotFound        Status = C.HUSK_NOT_FOUND
	Kernel          Status = C.HUSK_KERNEL
	NeedsResize     Status = C.HUSK_NEEDS_RESIZE
	Limit           Status = C.HUSK_LIMIT
	Cancelled       Status = C.HUSK_CANCELLED
)

// Error is a failed call.
type Error struct {
	Status     Status
	DriverCode int    // the error number of the driver; 0 if no call of the driver failed
	Step       int    // the index of the failed step in its body; -1 if no step failed
	Text       string // what failed and, if there is one, the remedy
}

func (e *Error) Error() string { return e.Text }

func invalid(format string, values ...any) error {
	return &Error{Status: InvalidArgument, Step: -1, Text: fmt.Sprintf(format, values...)}
}

func check(status C.husk_status, failure *C.husk_error) error {
	if status == C.HUSK_OK {
		return nil
	}
	return &Error{
		Status:     Status(failure.code),
		DriverCode: int(failure.driver_code),
		Step:       int(failure.step),
		Text:       strings.ToValidUTF8(C.GoString(&failure.text[0]), ""),
	}
}

// Version is the version of the library, such as "0.1.0".
func Version() string { return C.GoString(C.husk_version()) }

// Options of an engine.
type Options struct {
	// Port is the name of the port that has the device: "host", which "" means too, or "cuda".
	Port string
	// DeviceIndex is the number of the device among those of the port.
	DeviceIndex int
	// AllowHostImages accepts files with native code for the CPU: open only files that you trust.
	AllowHostImages bool
	// VerifyContent compares all images and constants with their hashes.
	VerifyContent bool
	// Threads is the number of threads for kernels and operators of the CPU; 0 means one.
	Threads int
	// Cancel is asked between the steps of a run, and ends the run if it returns true.
	Cancel func() bool
	// Log receives messages.
	Log func(warning bool, text string)
}

// Engine is a device and the operators that programs on it may call.
type Engine struct {
	handle  *C.husk_engine
	threads *C.husk_threads
	lock    sync.Mutex
	kept    []cgo.Handle
	texts   []*C.char
}

// NewEngine opens a device, and registers the operators of libhusk_ops.
func NewEngine(options Options) (*Engine, error) {
	var failure C.husk_error
	port, err := findPort(options.Port)
	if err != nil {
		return nil, err
	}
	engine := &Engine{}
	if options.Threads > 1 {
		engine.threads = (*C.husk_threads)(C.calloc(1, C.sizeof_husk_threads))
		status := C.husk_host_threads_create(C.uint32_t(options.Threads), nil, engine.threads, &failure)
		if err := check(status, &failure); err != nil {
			C.free(unsafe.Pointer(engine.threads))
			return nil, err
		}
	}
	var cancel, log C.uintptr_t
	if options.Cancel != nil {
		cancel = engine.keep(options.Cancel)
	}
	if options.Log != nil {
		log = engine.keep(options.Log)
	}
	status := C.create_engine(port, C.int32_t(options.DeviceIndex),
		flag(options.AllowHostImages), flag(options.VerifyContent), engine.threads, cancel, log,
		&engine.handle, &failure)
	if err := check(status, &failure); err != nil {
		engine.free()
		return nil, err
	}
	runtime.SetFinalizer(engine, (*Engine).free)
	return engine, nil
}

// findPort returns the port of the library with a name; "" is the host.
func findPort(name string) (*C.husk_port, error) {
	if name == "" {
		name = "host"
	}
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	if port := C.husk_port_find(text); port != nil {
		return port, nil
	}
	var known []string
	for i := C.uint32_t(0); C.husk_port_at(i) != nil; i++ {
		known = append(known, strconv.Quote(C.GoString(C.husk_port_at(i).name)))
	}
	return nil, invalid("the library has no port %q: give %s", name, strings.Join(known, " or "))
}

func (e *Engine) keep(value any) C.uintptr_t {
	handle := cgo.NewHandle(value)
	e.kept = append(e.kept, handle)
	return C.uintptr_t(handle)
}

// free releases what the engine has been given. The collector calls it when no program is left.
func (e *Engine) free() {
	C.husk_engine_release(e.handle)
	if e.threads != nil {
		C.husk_host_threads_release(e.threads)
		C.free(unsafe.Pointer(e.threads))
	}
	for _, handle := range e.kept {
		handle.Delete()
	}
	for _, text := range e.texts {
		C.free(unsafe.Pointer(text))
	}
}

// Open opens an artifact, and maps it and the weights beside it. Truncating a file while it is
// mapped ends the process.
func (e *Engine) Open(path string) (*Program, error) {
	text := C.CString(path)
	defer C.free(unsafe.Pointer(text))
	var failure C.husk_error
	var handle *C.husk_program
	err := check(C.husk_weights_open(e.handle, text, nil, &handle, &failure), &failure)
	return newProgram(e, handle, err)
}

// Load loads an artifact from memory. The bytes are copied.
func (e *Engine) Load(data []byte) (*Program, error) {
	size := C.size_t(len(data))
	memory := C.aligned_alloc(64, (size+64)/64*64)
	if memory == nil {
		return nil, &Error{Status: OutOfMemory, Step: -1, Text: "no memory for the artifact"}
	}
	if len(data) > 0 {
		C.memcpy(memory, unsafe.Pointer(&data[0]), size)
	}
	var failure C.husk_error
	var handle *C.husk_program
	err := check(C.load(e.handle, memory, size, &handle, &failure), &failure)
	if err != nil {
		C.free(memory)
	}
	return newProgram(e, handle, err)
}

// AddOp registers an operator of the application for programs that are opened afterwards. Its
// contract names the arguments and says what the operator does with them; husk_op.contract in op.h
// describes the text. The function is called on the thread that runs a session.
func (e *Engine) AddOp(name, contract string, function func(args []Arg) error) error {
	called, described := C.CString(name), C.CString(contract)
	defer C.free(unsafe.Pointer(called))
	e.lock.Lock()
	defer e.lock.Unlock()
	e.texts = append(e.texts, described)
	var failure C.husk_error
	return check(C.add_op(e.handle, called, described, e.keep(function), &failure), &failure)
}

// DeviceName is the name of the device, such as "NVIDIA H200".
func (e *Engine) DeviceName() (string, error) {
	var failure C.husk_error
	properties := C.husk_port_properties{struct_size: C.sizeof_husk_port_properties}
	err := check(C.husk_engine_properties(e.handle, &properties, &failure), &failure)
	return C.GoString(&properties.name[0]), err
}

func flag(value bool) C.int32_t {
	if value {
		return 1
	}
	return 0
}

//export huskGoCancel
func huskGoCancel(user unsafe.Pointer) C.int32_t {
	return flag(cgo.Handle(uintptr(user)).Value().(func() bool)())
}

//export huskGoLog
func huskGoLog(user unsafe.Pointer, level C.int32_t, text *C.char) {
	log := cgo.Handle(uintptr(user)).Value().(func(bool, string))
	log(level == C.HUSK_LOG_WARNING, C.GoString(text))
}
