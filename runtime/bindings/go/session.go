package husk

/*
#include <stdlib.h>
#include <string.h>
#include <husk/husk.h>

// One call of C for a run, since each costs some 50 ns. The addresses are numbers, because Go
// checks pointers at each call; they are in memory of C.
static husk_status run_and_wait(uintptr_t of_session, uint32_t function, uintptr_t of_inputs,
                                uint32_t input_count, uintptr_t of_outputs, uint32_t output_count,
                                uintptr_t of_error) {
  husk_session* session = (husk_session*)of_session;
  const husk_value* inputs = (const husk_value*)of_inputs;
  husk_value* outputs = (husk_value*)of_outputs;
  husk_error* error = (husk_error*)of_error;
  for (uint32_t i = 0; i < output_count; ++i) outputs[i].kind = HUSK_VALUE_NONE;
  const husk_status status = husk_session_run(session, function, NULL, inputs, input_count, outputs,
                                              output_count, error);
  return status == HUSK_OK ? husk_session_wait(session, error) : status;
}
*/
import "C"

import (
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

const maxRank = 16

// The types of DLPack, in a table, since a call of C takes longer than a run of a small step.
var toDLPack [lastDType + 1]C.DLDataType

func init() {
	for dtype := Bool; dtype <= lastDType; dtype++ {
		toDLPack[dtype] = C.husk_dtype_to_dlpack(C.husk_dtype(dtype))
	}
}

// Element is a type of Go whose values are elements of tensors. Tensors of bools are read and
// written as uint8, since a byte of such a tensor may be neither 0 nor 1.
type Element interface {
	int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64 | float32 | float64
}

func dtypeOf[T Element]() DType {
	var zero T
	switch reflect.TypeOf(zero).Kind() {
	case reflect.Int8:
		return I8
	case reflect.Uint8:
		return U8
	case reflect.Int16:
		return I16
	case reflect.Uint16:
		return U16
	case reflect.Int32:
		return I32
	case reflect.Uint32:
		return U32
	case reflect.Int64:
		return I64
	case reflect.Uint64:
		return U64
	case reflect.Float32:
		return F32
	default:
		return F64
	}
}

func isOf[T Element](dtype DType) bool {
	return dtype == dtypeOf[T]() || dtype == Bool && dtypeOf[T]() == U8
}

func bytesOf[T Element](elements []T) []byte {
	if len(elements) == 0 {
		return nil
	}
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(&elements[0])), len(elements)*int(unsafe.Sizeof(zero)))
}

func fits[T Element](info StorageInfo, elements []T) error {
	if isOf[T](info.DType) && uint64(len(bytesOf(elements))) == info.Bytes {
		return nil
	}
	return invalid("%s is %s %v, %d bytes; %d elements of %s were given", info.Name, info.DType,
		info.Sizes, info.Bytes, len(elements), dtypeOf[T]())
}

// Input is a value that a run reads.
type Input struct {
	kind       Kind
	dtype      DType
	isWritable bool
	bytes      []byte
	sizes      []int64
	i          int64
	f          float64
	err        error
}

// Slice is a contiguous tensor with these sizes. A run copies the elements, since Go's memory must
// not be in tables of C.
func Slice[T Element](elements []T, sizes ...int64) Input {
	return Bytes(bytesOf(elements), dtypeOf[T](), sizes...)
}

// MutableSlice is Slice for an input that the program writes to, as its model did
// (Program.WritesInput). The run copies the new elements back.
func MutableSlice[T Element](elements []T, sizes ...int64) Input {
	input := Slice(elements, sizes...)
	input.isWritable = true
	return input
}

// Bytes is a contiguous tensor of a type that Go does not have, such as bf16.
func Bytes(bytes []byte, dtype DType, sizes ...int64) Input {
	if dtype < Bool || dtype > lastDType {
		return Input{err: invalid("no type %d", dtype)}
	}
	if len(sizes) > maxRank {
		return Input{err: invalid("a tensor of %d dimensions", len(sizes))}
	}
	needed, limit := int64(dtype.Size()), int64(1)<<62
	for _, size := range sizes {
		if size < 0 || size > 0 && needed > limit/size {
			return Input{err: invalid("a tensor of the sizes %v", sizes)}
		}
		needed *= size
	}
	if needed != int64(len(bytes)) {
		return Input{err: invalid("%d bytes for a tensor %s %v, which needs %d", len(bytes), dtype,
			sizes, needed)}
	}
	return Input{kind: KindTensor, dtype: dtype, bytes: bytes, sizes: sizes}
}

// Int is an int.
func Int(value int64) Input { return Input{kind: KindInt, i: value} }

// Float is a float.
func Float(value float64) Input { return Input{kind: KindFloat, f: value} }

// Boolean is a bool.
func Boolean(value bool) Input { return Input{kind: KindBool, i: int64(flag(value))} }

// Output is a value that a run has written. A tensor is memory of the session: it is valid until
// the next run, and Elements copies it.
type Output struct {
	Kind    Kind
	DType   DType
	Sizes   []int64
	Strides []int64 // in elements
	Int     int64   // the value of an int; 1 for true
	Float   float64
	address unsafe.Pointer
	onHost  bool
	session *Session
	run     uint64
}

// Elements copies the elements of a tensor, in the order of a contiguous one.
func Elements[T Element](output Output) ([]T, error) {
	if output.Kind != KindTensor {
		return nil, invalid("the output is no tensor")
	}
	if !isOf[T](output.DType) {
		return nil, invalid("a tensor of %s is read as %s", output.DType, dtypeOf[T]())
	}
	if !output.onHost {
		return nil, invalid("the tensor is in the memory of another device")
	}
	output.session.lock.Lock()
	defer output.session.lock.Unlock()
	if output.session.runs != output.run {
		return nil, invalid("the session has run again: read outputs before")
	}
	count := int64(1)
	for _, size := range output.Sizes {
		count *= size
	}
	out := make([]T, count)
	index := make([]int64, len(output.Sizes))
	for i := range out {
		offset := int64(0)
		for d, at := range index {
			offset += at * output.Strides[d]
		}
		var zero T
		out[i] = *(*T)(unsafe.Add(output.address, offset*int64(unsafe.Sizeof(zero))))
		for d := len(index) - 1; d >= 0; d-- {
			if index[d]++; index[d] < output.Sizes[d] {
				break
			}
			index[d] = 0
		}
	}
	return out, nil
}

// Mode is how a session runs functions.
type Mode int32

// The values of Mode.
const (
	Auto  Mode = C.HUSK_MODE_AUTO  // as a graph if the device and the function allow it
	List  Mode = C.HUSK_MODE_LIST  // as a launch list
	Graph Mode = C.HUSK_MODE_GRAPH // as a graph
)

// SessionOptions are the options of a session.
type SessionOptions struct {
	Mode        Mode
	MemoryLimit uint64 // bytes of device memory besides the state; 0: no limit
	LoopLimit   uint64 // turns of loops in one run; 0: 2^32
}

// Session is the state and memory of one user of a program.
type Session struct {
	handle  *C.husk_session
	program *Program
	outputs []outputsOf
	failure *C.husk_error // of a run, in C's memory
	lock    sync.Mutex
	runs    uint64
	memory  []buffer // of the tensors that the inputs are copied to
	tensors buffer
	values  buffer
}

// The outputs of a function.
type outputsOf struct {
	dtypes  []DType
	ranks   int   // the sum of the ranks
	written []int // the inputs that a run writes to
}

// Most functions have one output, and one block of memory takes half the time of two.
type oneOutput struct {
	outputs [1]Output
	memory  [8]int64
}

// make returns outputs, and memory for the sizes and strides of all of them.
func (of *outputsOf) make() ([]Output, []int64) {
	if len(of.dtypes) == 1 && 2*of.ranks <= len(oneOutput{}.memory) {
		one := &oneOutput{}
		return one.outputs[:], one.memory[:]
	}
	return make([]Output, len(of.dtypes)), make([]int64, 2*of.ranks)
}

// A block of C's memory that grows.
type buffer struct {
	address unsafe.Pointer
	size    int
}

func (b *buffer) reserve(size int) unsafe.Pointer {
	if size > b.size {
		C.free(b.address)
		b.size = (size + 63) / 64 * 64
		b.address = C.aligned_alloc(64, C.size_t(b.size))
	}
	return b.address
}

// A tensor with its sizes, in C's memory.
type tensorWithSizes struct {
	tensor C.DLTensor
	sizes  [maxRank]C.int64_t
}

// NewSession creates a session.
func (p *Program) NewSession(options SessionOptions) (*Session, error) {
	var failure C.husk_error
	settings := C.husk_session_options{struct_size: C.sizeof_husk_session_options}
	settings.mode = C.int32_t(options.Mode)
	settings.memory_limit = C.uint64_t(options.MemoryLimit)
	settings.loop_limit = C.uint64_t(options.LoopLimit)
	session := &Session{program: p}
	status := C.husk_session_create(p.handle, &settings, &session.handle, &failure)
	if err := check(status, &failure); err != nil {
		return nil, err
	}
	session.failure = (*C.husk_error)(C.calloc(1, C.sizeof_husk_error))
	session.outputs = make([]outputsOf, C.husk_program_function_count(p.handle))
	for i := range session.outputs {
		infos, err := p.Outputs(i)
		if err != nil {
			C.husk_session_release(session.handle)
			C.free(unsafe.Pointer(session.failure))
			return nil, err
		}
		of := &session.outputs[i]
		of.written = p.writtenInputs(i)
		for _, info := range infos {
			of.dtypes = append(of.dtypes, info.DType)
			of.ranks += info.Rank
		}
	}
	atomic.AddInt32(&p.users, 1)
	runtime.SetFinalizer(session, (*Session).Close)
	return session, nil
}

// Close releases the session.
func (s *Session) Close() {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.handle == nil {
		return
	}
	C.husk_session_release(s.handle)
	s.program.release()
	s.handle = nil
	s.runs++
	C.free(unsafe.Pointer(s.failure))
	for _, one := range append(s.memory, s.tensors, s.values) {
		C.free(one.address)
	}
	s.memory, s.tensors, s.values = nil, buffer{}, buffer{}
	runtime.SetFinalizer(s, nil)
}

// take copies the inputs to C's memory, and returns the tables of values for inputs and outputs.
func (s *Session) take(inputs []Input, outputs int) (in, out []C.husk_value, err error) {
	count := len(inputs) + outputs
	values := unsafe.Slice((*C.husk_value)(s.values.reserve((count+1)*C.sizeof_husk_value)), count+1)
	size := int(unsafe.Sizeof(tensorWithSizes{}))
	tensors := unsafe.Slice((*tensorWithSizes)(s.tensors.reserve((len(inputs)+1)*size)), len(inputs)+1)
	for len(s.memory) < len(inputs) {
		s.memory = append(s.memory, buffer{})
	}
	for i := range inputs {
		input, value := &inputs[i], &values[i]
		switch {
		case input.err != nil:
			return nil, nil, input.err
		case input.kind == KindTensor:
			memory := s.memory[i].reserve(len(input.bytes) + 1)
			if len(input.bytes) > 0 {
				copy(unsafe.Slice((*byte)(memory), len(input.bytes)), input.bytes)
			}
			tensor := &tensors[i]
			tensor.tensor = C.DLTensor{data: memory, ndim: C.int32_t(len(input.sizes)),
				dtype: toDLPack[input.dtype], shape: &tensor.sizes[0]}
			tensor.tensor.device.device_type = C.kDLCPU
			for d, size := range input.sizes {
				tensor.sizes[d] = C.int64_t(size)
			}
			value.kind = C.HUSK_VALUE_TENSOR
			*(**C.DLTensor)(unsafe.Pointer(&value.as)) = &tensor.tensor
		case input.kind == KindFloat:
			value.kind = C.HUSK_VALUE_FLOAT
			*(*float64)(unsafe.Pointer(&value.as)) = input.f
		default:
			value.kind = C.int32_t(input.kind)
			*(*int64)(unsafe.Pointer(&value.as)) = input.i
		}
	}
	return values[:len(inputs)], values[len(inputs):count], nil
}

func first(values []C.husk_value) *C.husk_value {
	if len(values) == 0 {
		return nil
	}
	return &values[0]
}

// address is the number of an address in C's memory.
func address[T any](of *T) C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(of))) }

// Run runs a function and waits for it.
func (s *Session) Run(function int, inputs ...Input) ([]Output, error) {
	return s.RunInto(nil, function, inputs...)
}

// RunInto is Run with memory for the outputs. It overwrites `outputs`, those of an earlier run of
// the function, and returns them; a loop of such runs allocates nothing. After an error the
// contents are undefined.
func (s *Session) RunInto(outputs []Output, function int, inputs ...Input) ([]Output, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.handle == nil {
		return nil, invalid("the session is closed")
	}
	s.runs++
	if function < 0 || function >= len(s.outputs) {
		return nil, invalid("function %d of %d", function, len(s.outputs))
	}
	of := &s.outputs[function]
	count := len(of.dtypes)
	for _, input := range of.written {
		if input < len(inputs) && inputs[input].kind == KindTensor && !inputs[input].isWritable {
			return nil, s.program.readOnly(function, input)
		}
	}
	in, values, err := s.take(inputs, count)
	if err != nil {
		return nil, err
	}
	status := C.run_and_wait(address(s.handle), C.uint32_t(function), address(first(in)),
		C.uint32_t(len(in)), address(first(values)), C.uint32_t(count), address(s.failure))
	if err := check(status, s.failure); err != nil {
		return nil, err
	}
	for _, input := range of.written {
		if bytes := inputs[input].bytes; len(bytes) > 0 {
			copy(bytes, unsafe.Slice((*byte)(s.memory[input].address), len(bytes)))
		}
	}
	var memory []int64
	if cap(outputs) < count {
		outputs, memory = of.make()
	}
	outputs = outputs[:count]
	for i := range outputs {
		memory = s.read(&outputs[i], &values[i], of.dtypes[i], memory)
	}
	return outputs, nil
}

// read makes an output of a value. The sizes and strides of a tensor take the memory of those that
// the output has, or a part of `memory`; read returns the rest.
func (s *Session) read(out *Output, value *C.husk_value, dtype DType, memory []int64) []int64 {
	*out = Output{Kind: Kind(value.kind), Sizes: out.Sizes[:0], Strides: out.Strides[:0], session: s,
		run: s.runs}
	switch out.Kind {
	case KindTensor:
		tensor := *(**C.DLTensor)(unsafe.Pointer(&value.as))
		rank := int(tensor.ndim)
		out.DType = dtype
		out.address = unsafe.Add(tensor.data, tensor.byte_offset)
		out.onHost = tensor.device.device_type == C.kDLCPU
		if cap(out.Sizes) < rank || cap(out.Strides) < rank {
			if len(memory) < 2*rank {
				memory = make([]int64, 2*rank)
			}
			out.Sizes, out.Strides = memory[:rank:rank], memory[rank:2*rank:2*rank]
			memory = memory[2*rank:]
		}
		out.Sizes, out.Strides = out.Sizes[:rank], out.Strides[:rank]
		if rank > 0 {
			copy(out.Sizes, unsafe.Slice((*int64)(tensor.shape), rank))
		}
		if tensor.strides != nil {
			copy(out.Strides, unsafe.Slice((*int64)(tensor.strides), rank))
		} else {
			stride := int64(1)
			for d := rank - 1; d >= 0; d-- {
				out.Strides[d] = stride
				stride *= out.Sizes[d]
			}
		}
	case KindFloat:
		out.Float = *(*float64)(unsafe.Pointer(&value.as))
	default:
		out.Int = *(*int64)(unsafe.Pointer(&value.as))
	}
	return memory
}

// Resize plans memory for the shapes of these inputs.
func (s *Session) Resize(function int, inputs ...Input) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.runs++
	in, _, err := s.take(inputs, 0)
	if err != nil {
		return err
	}
	var failure C.husk_error
	status := C.husk_session_resize(s.handle, C.uint32_t(function), first(in), C.uint32_t(len(in)),
		&failure)
	return check(status, &failure)
}

// SetRange narrows the range of an input's dimension for this session.
func (s *Session) SetRange(function, input, dim int, min, max int64) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	var failure C.husk_error
	status := C.husk_session_set_range(s.handle, C.uint32_t(function), C.uint32_t(input),
		C.uint32_t(dim), C.int64_t(min), C.int64_t(max), &failure)
	return check(status, &failure)
}

// GetState copies a state of a session to the elements.
func GetState[T Element](s *Session, name string, to []T) error {
	state, info, err := s.program.findState(name)
	if err != nil {
		return err
	}
	if err := fits(info, to); err != nil {
		return err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	var failure C.husk_error
	var address unsafe.Pointer
	if len(to) > 0 {
		address = unsafe.Pointer(&to[0])
	}
	return check(C.husk_session_state_get(s.handle, state, address, &failure), &failure)
}

// SetState copies the elements to a state of a session.
func SetState[T Element](s *Session, name string, from []T) error {
	state, info, err := s.program.findState(name)
	if err != nil {
		return err
	}
	if err := fits(info, from); err != nil {
		return err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	var failure C.husk_error
	var address unsafe.Pointer
	if len(from) > 0 {
		address = unsafe.Pointer(&from[0])
	}
	return check(C.husk_session_state_set(s.handle, state, address, &failure), &failure)
}

// ResetState gives a state its first value again.
func (s *Session) ResetState(name string) error {
	state, _, err := s.program.findState(name)
	if err != nil {
		return err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	var failure C.husk_error
	return check(C.husk_session_state_reset(s.handle, state, &failure), &failure)
}

// CopyState copies a state from another session of the same program.
func (s *Session) CopyState(name string, from *Session) error {
	state, _, err := s.program.findState(name)
	if err != nil {
		return err
	}
	if s == from {
		return nil
	}
	// Two goroutines may copy in opposite directions, so the locks have an order.
	firstLock, secondLock := &s.lock, &from.lock
	if uintptr(unsafe.Pointer(firstLock)) > uintptr(unsafe.Pointer(secondLock)) {
		firstLock, secondLock = secondLock, firstLock
	}
	firstLock.Lock()
	defer firstLock.Unlock()
	secondLock.Lock()
	defer secondLock.Unlock()
	var failure C.husk_error
	return check(C.husk_session_state_copy(s.handle, state, from.handle, &failure), &failure)
}
