package husk

import (
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// The tests run tests/bindings/program.hir, which tests/bindings/run.sh compiles.
func artifact(t testing.TB) string {
	path := os.Getenv("HUSK_TEST_PROGRAM")
	if path == "" {
		t.Fatal("run tests/bindings/run.sh")
	}
	return path
}

func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func equal(t testing.TB, got, wanted any) {
	t.Helper()
	if !reflect.DeepEqual(got, wanted) {
		t.Fatalf("got %v, wanted %v", got, wanted)
	}
}

func fails(t testing.TB, err error, status Status, part string) {
	t.Helper()
	known, ok := err.(*Error)
	if !ok || known.Status != status || !strings.Contains(known.Text, part) {
		t.Fatalf("got %v, wanted status %d and a text with %q", err, status, part)
	}
}

// test::scale, which multiplies a tensor by a number.
func scale(args []Arg) error {
	x, err := View[float32](args[0])
	if err != nil {
		return err
	}
	y, err := View[float32](args[2])
	if err != nil {
		return err
	}
	for i := range x {
		y[i] = x[i] * float32(args[1].Float())
	}
	return nil
}

func program(t testing.TB, op func([]Arg) error) *Program {
	t.Helper()
	engine := must[*Engine](t)(NewEngine(Options{}))
	if err := engine.AddOp("test::scale", "x factor y:w", op); err != nil {
		t.Fatal(err)
	}
	return must[*Program](t)(engine.Open(artifact(t)))
}

func TestDescription(t *testing.T) {
	p := program(t, scale)
	equal(t, p.Functions(), []string{"linear", "scale", "accumulate"})
	equal(t, must[int](t)(p.Function("linear")), 0)
	equal(t, strings.HasPrefix(p.Target(0), "host "), true)
	inputs := must[[]ValueInfo](t)(p.Inputs(0))
	ranges := [][2]int64{{1, 8}, {3, 3}}
	equal(t, inputs, []ValueInfo{{"x", KindTensor, F32, 2, ranges, inputs[0].Alignment}})
	outputs := must[[]ValueInfo](t)(p.Outputs(0))
	equal(t, []Kind{outputs[0].Kind, outputs[1].Kind}, []Kind{KindTensor, KindInt})
	states := must[[]StorageInfo](t)(p.States())
	equal(t, states, []StorageInfo{{"total", F32, []int64{4, 2}, 32}})
	constants := must[[]StorageInfo](t)(p.Constants())
	equal(t, []uint64{constants[0].Bytes, constants[1].Bytes}, []uint64{24, 8})
	equal(t, []any{p.Pytree(), len(p.Metadata())}, []any{"", 0})
	equal(t, Version() != "" && must[string](t)(p.engine.DeviceName()) != "", true)
	equal(t, []any{BF16.Size(), BF16.String()}, []any{2, "bf16"})
}

func TestReadOnlyMemoryIsNotWritten(t *testing.T) {
	engine := must[*Engine](t)(NewEngine(Options{}))
	p := must[*Program](t)(engine.Open(os.Getenv("HUSK_TEST_WRITTEN")))
	equal(t, []bool{p.WritesInput(0, 0), p.WritesInput(0, 1), p.WritesInput(0, 9)},
		[]bool{true, false, false})
	s := must[*Session](t)(p.NewSession(SessionOptions{}))
	x, y := []float32{1, 2}, []float32{3, 4}
	_, err := s.Run(0, Slice(x, 2), Slice(y, 2))
	fails(t, err, InvalidInput, "input 'x' is read-only, and the program writes to it")
	equal(t, x, []float32{1, 2})
	equal(t, must[[]Output](t)(s.Run(0, MutableSlice(x, 2), Slice(y, 2)))[0].Int, int64(2))
	equal(t, x, y)
	_, err = s.Run(0, MutableSlice(x, 2))
	fails(t, err, InvalidInput, "")
}

func TestShapes(t *testing.T) {
	s := must[*Session](t)(program(t, scale).NewSession(SessionOptions{}))
	for _, rows := range []int64{1, 8, 2} {
		x := make([]float32, rows*3)
		var wanted []float32
		for i := range x {
			x[i] = float32(i)
		}
		for i := 0; i < len(x); i += 3 {
			wanted = append(wanted, x[i]+3*x[i+2]+0.5, 2*x[i+1]+x[i+2]-0.5)
		}
		outputs := must[[]Output](t)(s.Run(0, Slice(x, rows, 3)))
		equal(t, outputs[0].Sizes, []int64{rows, 2})
		equal(t, must[[]float32](t)(Elements[float32](outputs[0])), wanted)
		equal(t, outputs[1].Int, rows)
		_, err := Elements[int32](outputs[0])
		fails(t, err, InvalidArgument, "a tensor of f32 is read as i32")
		_, err = Elements[int32](outputs[1])
		fails(t, err, InvalidArgument, "no tensor")
		must[[]Output](t)(s.Run(0, Slice(x, rows, 3)))
		_, err = Elements[float32](outputs[0])
		fails(t, err, InvalidArgument, "has run again")
	}
}

func TestRunsThatReuseOutputs(t *testing.T) {
	s := must[*Session](t)(program(t, scale).NewSession(SessionOptions{}))
	var outputs []Output
	for _, rows := range []int64{1, 8, 2} {
		inputs := []Input{Slice(make([]float32, rows*3), rows, 3)}
		before := outputs
		outputs = must[[]Output](t)(s.RunInto(before, 0, inputs...))
		equal(t, before == nil || &before[0] == &outputs[0], true)
		equal(t, outputs[0].Sizes, []int64{rows, 2})
		equal(t, outputs[0].Strides, []int64{2, 1})
		equal(t, len(must[[]float32](t)(Elements[float32](outputs[0]))), int(2*rows))
		equal(t, []any{outputs[1].Kind, outputs[1].Int, len(outputs[1].Sizes)},
			[]any{KindInt, rows, 0})
		equal(t, testing.AllocsPerRun(100, func() {
			outputs, _ = s.RunInto(outputs, 0, inputs...)
		}), 0.0)
	}
	// Outputs of another function, of which the first one had no sizes.
	outputs = outputs[1:]
	outputs = must[[]Output](t)(s.RunInto(outputs, 1, Slice([]float32{1, -2, 3}, 3), Float(2)))
	equal(t, must[[]float32](t)(Elements[float32](outputs[0])), []float32{2, -4, 6})
	equal(t, []any{outputs[0].Sizes, outputs[0].Int}, []any{[]int64{3}, int64(0)})
}

func TestOperator(t *testing.T) {
	s := must[*Session](t)(program(t, scale).NewSession(SessionOptions{}))
	outputs := must[[]Output](t)(s.Run(1, Slice([]float32{1, -2, 3}, 3), Float(2.5)))
	equal(t, must[[]float32](t)(Elements[float32](outputs[0])), []float32{2.5, -5, 7.5})
}

func TestOperatorThatFails(t *testing.T) {
	calls := 0
	s := must[*Session](t)(program(t, func(args []Arg) error {
		calls++
		switch calls {
		case 1:
			return &Error{Status: Limit, Text: strings.Repeat("é", 200)}
		case 2:
			return fmt.Errorf("a reason")
		}
		panic("a panic of the test")
	}).NewSession(SessionOptions{}))
	for _, wanted := range []struct {
		status Status
		text   string
	}{{Limit, "éé"}, {InvalidInput, "a reason"}, {Kernel, "a panic of the test"}} {
		_, err := s.Run(1, Slice([]float32{1}, 1), Float(1))
		fails(t, err, wanted.status, wanted.text)
		equal(t, err.(*Error).Step, 0)
	}
}

func TestState(t *testing.T) {
	p := program(t, scale)
	one := must[*Session](t)(p.NewSession(SessionOptions{}))
	two := must[*Session](t)(p.NewSession(SessionOptions{}))
	inputs := []Input{Slice([]int64{1, 3, 1}, 3), Slice([]float32{2, 5}, 1, 2)}
	equal(t, must[[]Output](t)(one.Run(2, inputs...))[0].Int, int64(3))
	total := make([]float32, 8)
	read := func(s *Session) []float32 {
		if err := GetState(s, "total", total); err != nil {
			t.Fatal(err)
		}
		return total
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	equal(t, read(one), []float32{0, 0, 4, 10, 0, 0, 2, 5})
	equal(t, read(two), make([]float32, 8))
	ok(two.CopyState("total", one))
	equal(t, read(two), []float32{0, 0, 4, 10, 0, 0, 2, 5})
	ok(SetState(two, "total", []float32{1, 1, 1, 1, 1, 1, 1, 1}))
	must[[]Output](t)(two.Run(2, inputs...))
	equal(t, read(two), []float32{1, 1, 5, 11, 1, 1, 3, 6})
	ok(two.ResetState("total"))
	equal(t, read(two), make([]float32, 8))
	fails(t, one.ResetState("other"), NotFound, "other")
	fails(t, SetState(one, "total", []float64{1, 1, 1, 1}), InvalidArgument,
		"total is f32 [4 2], 32 bytes; 4 elements of f64 were given")
}

func TestConstants(t *testing.T) {
	p := program(t, scale)
	s := must[*Session](t)(p.NewSession(SessionOptions{}))
	if err := UpdateConstant(p, "bias", []float32{10, 20}); err != nil {
		t.Fatal(err)
	}
	outputs := must[[]Output](t)(s.Run(0, Slice(make([]float32, 3), 1, 3)))
	equal(t, must[[]float32](t)(Elements[float32](outputs[0])), []float32{10, 20})
	fails(t, UpdateConstant(p, "none", []float32{0}), NotFound, "none")
	fails(t, UpdateConstant(p, "bias", []float32{0, 0, 0}), InvalidArgument, "bias")
	if err := UpdateConstantPart(p, "bias", 1, []float32{30}); err != nil {
		t.Fatal(err)
	}
	outputs = must[[]Output](t)(s.Run(0, Slice(make([]float32, 3), 1, 3)))
	equal(t, must[[]float32](t)(Elements[float32](outputs[0])), []float32{10, 30})
	for _, first := range []uint64{2, 3, 1 << 62, 1<<64 - 1} {
		fails(t, UpdateConstantPart(p, "bias", first, []float32{0}), InvalidArgument,
			"no part of constant 'bias', which has 8")
	}
	fails(t, UpdateConstantPart(p, "bias", 0, []float64{0}), InvalidArgument, "bias")
}

func TestWrongInputs(t *testing.T) {
	s := must[*Session](t)(program(t, scale).NewSession(SessionOptions{}))
	x := make([]float32, 27)
	good := Slice(x[:3], 1, 3)
	for _, inputs := range [][]Input{
		{}, {Int(3)}, {Slice([]int64{1, 2, 3}, 1, 3)}, {Slice(x, 9, 3)}, {Slice(x[:8], 2, 4)},
		{Slice(x, 2, 2)}, {Slice(x, -1)}, {Slice(x[:0], 1<<62, 1<<62, 0)}, {Bytes(nil, BF16, 2)},
		{Slice(x[:1], 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)}, {good, good}, {Boolean(true)},
	} {
		_, err := s.Run(0, inputs...)
		known, ok := err.(*Error)
		equal(t, ok && (known.Status == InvalidInput || known.Status == InvalidArgument), true)
		must[[]Output](t)(s.Run(0, good))
	}
	_, err := s.Run(7, good)
	equal(t, err != nil, true)
	if err := s.SetRange(0, 0, 0, 1, 2); err != nil {
		t.Fatal(err)
	}
	_, err = s.Run(0, Slice(x[:9], 3, 3))
	fails(t, err, InvalidInput, "x")
	if err := s.Resize(0, good); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s.Close()
	_, err = s.Run(0, good)
	fails(t, err, InvalidArgument, "closed")
}

func TestBadFiles(t *testing.T) {
	engine := must[*Engine](t)(NewEngine(Options{}))
	_, err := engine.Open("/nowhere.husk")
	fails(t, err, IO, "nowhere")
	data := must[[]byte](t)(os.ReadFile(artifact(t)))
	_, err = engine.Load(data)
	fails(t, err, NotFound, "test::scale")
	_, err = engine.Load(data[:len(data)/2])
	fails(t, err, InvalidFile, "")
	_, err = engine.Load(nil)
	fails(t, err, InvalidFile, "")
	if err := engine.AddOp("test::scale", "x factor y:w", scale); err != nil {
		t.Fatal(err)
	}
	equal(t, len(must[*Program](t)(engine.Load(data)).Functions()), 3)
	fails(t, engine.AddOp("test::scale", "x factor x:w:w", scale), InvalidArgument, "")
}

func TestGoroutines(t *testing.T) {
	p := program(t, scale)
	shared := must[*Session](t)(p.NewSession(SessionOptions{}))
	var group sync.WaitGroup
	failures := make(chan error, 4)
	for number := 0; number < 4; number++ {
		s := shared
		if number < 2 {
			s = must[*Session](t)(p.NewSession(SessionOptions{}))
		}
		group.Add(1)
		go func(number int) {
			defer group.Done()
			for i := 0; i < 1000; i++ {
				x := float32(number*1000 + i)
				outputs, err := s.Run(0, Slice([]float32{x, x, x}, 1, 3))
				if err == nil && s != shared {
					var y []float32
					y, err = Elements[float32](outputs[0])
					if err == nil && (y[0] != 4*x+0.5 || y[1] != 3*x-0.5) {
						err = fmt.Errorf("wrong values %v for %v", y, x)
					}
				}
				if err != nil {
					failures <- err
					return
				}
			}
		}(number)
	}
	p.Close()
	group.Wait()
	select {
	case err := <-failures:
		t.Fatal(err)
	default:
	}
}

func TestCallbacks(t *testing.T) {
	var stop int32
	engine := must[*Engine](t)(NewEngine(Options{
		Threads: 2, VerifyContent: true,
		Cancel: func() bool { return atomic.LoadInt32(&stop) != 0 },
		Log:    func(bool, string) {},
	}))
	if err := engine.AddOp("test::scale", "x factor y:w", scale); err != nil {
		t.Fatal(err)
	}
	s := must[*Session](t)(must[*Program](t)(engine.Open(artifact(t))).NewSession(SessionOptions{}))
	x := Slice(make([]float32, 3), 1, 3)
	must[[]Output](t)(s.Run(0, x))
	atomic.StoreInt32(&stop, 1)
	_, err := s.Run(0, x)
	fails(t, err, Cancelled, "")
	atomic.StoreInt32(&stop, 0)
	must[[]Output](t)(s.Run(0, x))
}

func TestNoGPU(t *testing.T) {
	if _, err := NewEngine(Options{Port: "cuda"}); err != nil {
		equal(t, len(err.Error()) > 10, true)
	}
}

func TestPorts(t *testing.T) {
	engine := must[*Engine](t)(NewEngine(Options{Port: "host"}))
	equal(t, len(must[string](t)(engine.DeviceName())) > 0, true)
	_, err := NewEngine(Options{Port: "tpu"})
	fails(t, err, InvalidArgument, `the library has no port "tpu": give "host" or "cuda"`)
}

func TestCollectedHandles(t *testing.T) {
	for i := 0; i < 200; i++ {
		s := must[*Session](t)(program(t, scale).NewSession(SessionOptions{}))
		must[[]Output](t)(s.Run(0, Slice(make([]float32, 3), 1, 3)))
	}
	for i := 0; i < 5; i++ {
		runtime.GC()
	}
}

// BenchmarkRun runs the first function of HUSK_BENCH_FILE with tensors of ones.
func BenchmarkRun(b *testing.B) {
	path := os.Getenv("HUSK_BENCH_FILE")
	if path == "" {
		b.Skip("HUSK_BENCH_FILE is not set")
	}
	engine := must[*Engine](b)(NewEngine(Options{AllowHostImages: true}))
	p := must[*Program](b)(engine.Open(path))
	s := must[*Session](b)(p.NewSession(SessionOptions{}))
	var inputs []Input
	for _, info := range must[[]ValueInfo](b)(p.Inputs(0)) {
		var sizes []int64
		count := int64(1)
		for _, bounds := range info.Ranges {
			sizes = append(sizes, bounds[0])
			count *= bounds[0]
		}
		ones := make([]float32, count)
		for i := range ones {
			ones[i] = 1
		}
		inputs = append(inputs, Slice(ones, sizes...))
	}
	b.ResetTimer()
	var outputs []Output
	var err error
	for i := 0; i < b.N; i++ {
		if outputs, err = s.RunInto(outputs, 0, inputs...); err != nil {
			b.Fatal(err)
		}
	}
}
