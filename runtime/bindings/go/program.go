package husk

/*
#include <stdlib.h>
#include <husk/husk.h>
*/
import "C"

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Kind is what a value of a function is.
type Kind int32

// The values of Kind.
const (
	KindTensor Kind = C.HUSK_VALUE_TENSOR
	KindInt    Kind = C.HUSK_VALUE_INT
	KindFloat  Kind = C.HUSK_VALUE_FLOAT
	KindBool   Kind = C.HUSK_VALUE_BOOL
)

// Size is the number of bytes of one element.
func (d DType) Size() int { return int(C.husk_dtype_size(C.husk_dtype(d))) }

func (d DType) String() string { return C.GoString(C.husk_dtype_name(C.husk_dtype(d))) }

// ValueInfo describes an input or an output of a function.
type ValueInfo struct {
	Name      string
	Kind      Kind
	DType     DType      // of the elements of a tensor
	Rank      int        // the number of dimensions of a tensor
	Ranges    [][2]int64 // the smallest and the largest size of each dimension of an input
	Alignment int        // the address of a tensor must be a multiple of this number of bytes
}

// StorageInfo describes a state or a constant.
type StorageInfo struct {
	Name  string
	DType DType
	Sizes []int64
	Bytes uint64
}

// Program is a loaded artifact.
type Program struct {
	handle *C.husk_program
	engine *Engine
	users  int32 // the caller and the sessions
	closed int32
}

func newProgram(engine *Engine, handle *C.husk_program, err error) (*Program, error) {
	if err != nil {
		return nil, err
	}
	program := &Program{handle: handle, engine: engine, users: 1}
	runtime.SetFinalizer(program, (*Program).Close)
	return program, nil
}

// Close releases the program when its sessions are closed.
func (p *Program) Close() {
	if atomic.SwapInt32(&p.closed, 1) == 0 {
		runtime.SetFinalizer(p, nil)
		p.release()
	}
}

func (p *Program) release() {
	if atomic.AddInt32(&p.users, -1) == 0 {
		C.husk_program_release(p.handle)
		p.handle = nil
	}
}

// Functions are the names of the functions.
func (p *Program) Functions() []string {
	names := make([]string, C.husk_program_function_count(p.handle))
	for i := range names {
		names[i] = C.GoString(C.husk_program_function_name(p.handle, C.uint32_t(i)))
	}
	runtime.KeepAlive(p)
	return names
}

// Function is the number of the function of this name.
func (p *Program) Function(name string) (int, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var failure C.husk_error
	var index C.uint32_t
	err := check(C.husk_program_find_function(p.handle, text, &index, &failure), &failure)
	runtime.KeepAlive(p)
	return int(index), err
}

// Target is the target that runs a function, such as "host avx512".
func (p *Program) Target(function int) string {
	defer runtime.KeepAlive(p)
	return C.GoString(C.husk_program_function_target(p.handle, C.uint32_t(function)))
}

// Inputs describes the inputs of a function.
func (p *Program) Inputs(function int) ([]ValueInfo, error) {
	defer runtime.KeepAlive(p)
	index := C.uint32_t(function)
	return all(C.husk_program_input_count(p.handle, index), func(i C.uint32_t) (ValueInfo, error) {
		var failure C.husk_error
		info := C.husk_value_info{struct_size: C.sizeof_husk_value_info}
		err := check(C.husk_program_input(p.handle, index, i, &info, &failure), &failure)
		return valueInfo(&info), err
	})
}

// Outputs describes the outputs of a function.
func (p *Program) Outputs(function int) ([]ValueInfo, error) {
	defer runtime.KeepAlive(p)
	index := C.uint32_t(function)
	return all(C.husk_program_output_count(p.handle, index), func(i C.uint32_t) (ValueInfo, error) {
		var failure C.husk_error
		info := C.husk_value_info{struct_size: C.sizeof_husk_value_info}
		err := check(C.husk_program_output(p.handle, index, i, &info, &failure), &failure)
		return valueInfo(&info), err
	})
}

// WritesInput tells whether a run writes to the memory of an input, a tensor. Such an input must be
// a MutableSlice.
func (p *Program) WritesInput(function, input int) bool {
	defer runtime.KeepAlive(p)
	info := C.husk_value_info{struct_size: C.sizeof_husk_value_info}
	status := C.husk_program_input(p.handle, C.uint32_t(function), C.uint32_t(input), &info, nil)
	return status == C.HUSK_OK && info.is_written != 0
}

func (p *Program) writtenInputs(function int) []int {
	var written []int
	count := int(C.husk_program_input_count(p.handle, C.uint32_t(function)))
	for input := 0; input < count; input++ {
		if p.WritesInput(function, input) {
			written = append(written, input)
		}
	}
	return written
}

// readOnly is the error for a slice that a run would write to.
func (p *Program) readOnly(function, input int) error {
	infos, err := p.Inputs(function)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("input '%s' is read-only, and the program writes to it: pass a MutableSlice",
		infos[input].Name)
	return &Error{Status: InvalidInput, Step: -1, Text: text}
}

// all describes each of `count` things, until one fails.
func all[T any](count C.uint32_t, describe func(C.uint32_t) (T, error)) ([]T, error) {
	out := make([]T, count)
	for i := range out {
		var err error
		if out[i], err = describe(C.uint32_t(i)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func valueInfo(info *C.husk_value_info) ValueInfo {
	out := ValueInfo{Name: C.GoString(info.name), Kind: Kind(info.kind)}
	out.Alignment = int(info.alignment)
	if out.Kind != KindTensor {
		return out
	}
	out.DType, out.Rank = DType(info.dtype), int(info.rank)
	if info.ranges != nil {
		bounds := unsafe.Slice((*int64)(info.ranges), 2*out.Rank)
		for d := 0; d < out.Rank; d++ {
			out.Ranges = append(out.Ranges, [2]int64{bounds[2*d], bounds[2*d+1]})
		}
	}
	return out
}

// States describes the states.
func (p *Program) States() ([]StorageInfo, error) {
	return all(C.husk_program_state_count(p.handle), p.state)
}

// Constants describes the constants.
func (p *Program) Constants() ([]StorageInfo, error) {
	return all(C.husk_program_constant_count(p.handle), p.constant)
}

func (p *Program) state(index C.uint32_t) (StorageInfo, error) {
	defer runtime.KeepAlive(p)
	var failure C.husk_error
	info := C.husk_storage_info{struct_size: C.sizeof_husk_storage_info}
	err := check(C.husk_program_state(p.handle, index, &info, &failure), &failure)
	return storageInfo(&info), err
}

func (p *Program) constant(index C.uint32_t) (StorageInfo, error) {
	defer runtime.KeepAlive(p)
	var failure C.husk_error
	info := C.husk_storage_info{struct_size: C.sizeof_husk_storage_info}
	err := check(C.husk_program_constant(p.handle, index, &info, &failure), &failure)
	return storageInfo(&info), err
}

func storageInfo(info *C.husk_storage_info) StorageInfo {
	out := StorageInfo{Name: C.GoString(info.name), DType: DType(info.dtype)}
	out.Bytes = uint64(info.bytes)
	if info.dims != nil {
		out.Sizes = append(out.Sizes, unsafe.Slice((*int64)(info.dims), int(info.rank))...)
	}
	return out
}

// findState is the number and the description of the state of this name.
func (p *Program) findState(name string) (C.uint32_t, StorageInfo, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var failure C.husk_error
	var index C.uint32_t
	err := check(C.husk_program_find_state(p.handle, text, &index, &failure), &failure)
	if err != nil {
		return 0, StorageInfo{}, err
	}
	info, err := p.state(index)
	return index, info, err
}

// UpdateConstant replaces the value of a constant for all sessions. The call waits until no run of
// the program is in progress, and runs that start meanwhile wait for it.
func UpdateConstant[T Element](p *Program, name string, elements []T) error {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var failure C.husk_error
	var index C.uint32_t
	err := check(C.husk_program_find_constant(p.handle, text, &index, &failure), &failure)
	if err != nil {
		return err
	}
	info, err := p.constant(index)
	if err != nil {
		return err
	}
	if err := fits(info, elements); err != nil {
		return err
	}
	update := (*C.husk_constant_update)(C.calloc(1, C.sizeof_husk_constant_update))
	defer C.free(unsafe.Pointer(update))
	bytes := C.CBytes(bytesOf(elements))
	defer C.free(bytes)
	update.constant, update.bytes = index, bytes
	defer runtime.KeepAlive(p)
	return check(C.husk_program_update_constants(p.handle, update, 1, &failure), &failure)
}

// UpdateConstantPart replaces elements of a constant for all sessions, from the element first on,
// in the way of UpdateConstant.
func UpdateConstantPart[T Element](p *Program, name string, first uint64, elements []T) error {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var failure C.husk_error
	var index C.uint32_t
	err := check(C.husk_program_find_constant(p.handle, text, &index, &failure), &failure)
	if err != nil {
		return err
	}
	info, err := p.constant(index)
	if err != nil {
		return err
	}
	if !isOf[T](info.DType) {
		return fits(info, elements)
	}
	data := bytesOf(elements)
	size := uint64(unsafe.Sizeof(*new(T)))
	if most := info.Bytes/size + 1; first > most {
		first = most // so that the product fits; the call refuses it
	}
	part := (*C.husk_constant_part)(C.calloc(1, C.sizeof_husk_constant_part))
	defer C.free(unsafe.Pointer(part))
	bytes := C.CBytes(data)
	defer C.free(bytes)
	part.constant, part.bytes = index, bytes
	part.offset, part.size = C.uint64_t(first*size), C.uint64_t(len(data))
	defer runtime.KeepAlive(p)
	return check(C.husk_program_update_constant_parts(p.handle, part, 1, &failure), &failure)
}

// Metadata is what the author of the file added.
func (p *Program) Metadata() map[string]string {
	defer runtime.KeepAlive(p)
	out := map[string]string{}
	for i := C.uint32_t(0); i < C.husk_program_metadata_count(p.handle); i++ {
		key := C.GoString(C.husk_program_metadata_key(p.handle, i))
		out[key] = C.GoString(C.husk_program_metadata_value(p.handle, i))
	}
	return out
}

// Pytree is how inputs and outputs nest in the model, as JSON; "" if the file does not say.
func (p *Program) Pytree() string {
	defer runtime.KeepAlive(p)
	return C.GoString(C.husk_program_pytree(p.handle))
}
