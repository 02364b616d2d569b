package husk

/*
#include <husk/husk.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime/cgo"
	"unsafe"
)

// Arg is an argument of a call of an operator. It is valid during the call.
type Arg struct {
	arg *C.husk_op_arg
}

// IsTensor tells a tensor from other arguments.
func (a Arg) IsTensor() bool { return a.arg.kind == C.HUSK_ARG_TENSOR }

// IsNone tells an argument that is missing.
func (a Arg) IsNone() bool { return a.arg.kind == C.HUSK_ARG_NONE }

// Int is the value of an int or a bool.
func (a Arg) Int() int64 { return int64(a.arg.i) }

// Float is the value of a float.
func (a Arg) Float() float64 { return float64(a.arg.f) }

// Text is the value of a text.
func (a Arg) Text() string { return C.GoString(a.arg.string) }

// DType is the type of the elements of a tensor.
func (a Arg) DType() DType { return DType(a.arg.dtype) }

// Sizes are those of a tensor, or the ints of a list of ints.
func (a Arg) Sizes() []int64 {
	if a.arg.kind == C.HUSK_ARG_INTS {
		return int64s(a.arg.sizes, int(a.arg.count))
	}
	return int64s(a.arg.sizes, int(a.arg.rank))
}

// Strides are those of a tensor, in elements.
func (a Arg) Strides() []int64 { return int64s(a.arg.strides, int(a.arg.rank)) }

// Address is the address of a tensor's first element, in the memory of the device.
func (a Arg) Address() unsafe.Pointer { return a.arg.data }

func int64s(from *C.int64_t, count int) []int64 {
	if count == 0 {
		return nil
	}
	return append([]int64(nil), unsafe.Slice((*int64)(from), count)...)
}

// View is the memory of a contiguous tensor on a CPU. The operator writes to it only if its
// contract says so.
func View[T Element](a Arg) ([]T, error) {
	if !a.IsTensor() {
		return nil, invalid("the argument is no tensor")
	}
	if !isOf[T](a.DType()) {
		return nil, invalid("a tensor of %s is used as %s", a.DType(), dtypeOf[T]())
	}
	sizes, strides, count := a.Sizes(), a.Strides(), int64(1)
	for d := len(sizes) - 1; d >= 0; d-- {
		if sizes[d] > 1 && strides[d] != count {
			return nil, invalid("a tensor with the strides %v", strides)
		}
		count *= sizes[d]
	}
	if count == 0 {
		return nil, nil
	}
	return unsafe.Slice((*T)(a.arg.data), int(count)), nil
}

//export huskGoOp
func huskGoOp(context *C.husk_op_context, args *C.husk_op_arg, count C.uint32_t,
	failure *C.husk_error) (status C.husk_status) {
	function := cgo.Handle(uintptr(context.user)).Value().(func([]Arg) error)
	arguments := make([]Arg, int(count))
	for i := range arguments {
		arguments[i].arg = (*C.husk_op_arg)(unsafe.Add(unsafe.Pointer(args), i*C.sizeof_husk_op_arg))
	}
	// A panic must not pass through the frames of the library.
	defer func() {
		if reason := recover(); reason != nil {
			status = fail(failure, Kernel, fmt.Sprintf("the operator's function panicked: %v", reason))
		}
	}()
	err := function(arguments)
	if err == nil {
		return C.HUSK_OK
	}
	var known *Error
	if errors.As(err, &known) && known.Status != 0 {
		return fail(failure, known.Status, err.Error())
	}
	return fail(failure, InvalidInput, err.Error())
}

func fail(failure *C.husk_error, status Status, text string) C.husk_status {
	to := unsafe.Slice((*byte)(unsafe.Pointer(&failure.text[0])), len(failure.text))
	to[copy(to[:len(to)-1], text)] = 0
	failure.code = C.husk_status(status)
	return failure.code
}
