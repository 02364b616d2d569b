"""torch.compile(backend="husk") for GPUs, on a machine without one: the module of a graph, its
options and refusals. tests/gpu/compile.py runs graphs."""

import gc
import random as random_module
import re
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import built_tools  # noqa: F401  (finds huskc)
import husk
import pytest
import torch
from husk import hir
from husk.cuda import here
from husk.hir import huskc

try:
  import gpu_graphs
  from gpu_graphs import H200, on_gpu, refusal
  from husk import compiled as save
  from husk.jit import backend, module, operators, recording, regions, saved, sections, waits
except ImportError as error:
  pytest.skip(str(error), allow_module_level=True)
pytest.importorskip("triton")


@pytest.fixture
def compiled(monkeypatch, tmp_path):
  return gpu_graphs.Compiler(monkeypatch, tmp_path / "module.py")


def test_kernels_are_launched_and_products_are_cublaslts(compiled):
  hir, source = compiled(
    lambda x, y: torch.softmax(x @ y, -1).relu(), on_gpu(64, 128), on_gpu(128, 32)
  )
  assert 'target cuda_h200 cuda "sm_90a"' in hir
  assert hir.count('extern "husk::matmul"') == 1 and hir.count("launch triton_per_fused") == 1
  assert "load(__file__, 'cuda:0', [], 'auto')" in source
  assert "    output0 = program(arg0_1, arg1_1)\n    return (output0, )\n" in source


def test_the_mode_of_sessions(compiled):
  _, source = compiled(lambda x: x.exp(), on_gpu(64), mode="graph")
  assert "load(__file__, 'cuda:0', [], 'graph')" in source


HALF = {"dtype": torch.float16}


def attend(x, weight, bias, q, k, v):
  y = torch.addmm(bias, x, weight).relu()
  return [y, torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0]]


ATTEND = [
  on_gpu(64, 128, **HALF),
  on_gpu(128, 32, **HALF),
  on_gpu(32, **HALF),
  *[on_gpu(2, 4, 96, 64, **HALF)] * 3,
]


@pytest.mark.parametrize("options", [{"libraries": False}, {"mode": "graph"}])
def test_without_libraries_products_and_attention_are_kernels(compiled, options):
  hir, source = compiled(attend, *ATTEND, **options)
  assert "extern" not in hir and "'cuda:0', []," in source
  assert len(re.findall(r"launch triton_tem_fused", hir)) == 1
  assert len(re.findall(r"launch \w*attention", hir)) == 1


@pytest.mark.parametrize("options", [{}, {"mode": "graph", "libraries": True}])
def test_libraries_are_called_unless_a_graph_is_wanted(compiled, options):
  hir, source = compiled(attend, *ATTEND, **options)
  assert hir.count('extern "husk::matmul"') == 1
  assert "['aten::_scaled_dot_product_flash_attention']" in source


def convolve(x, weight, depthwise=None, **options):
  convolution = torch.nn.functional.conv2d
  x = convolution(x, weight, padding=1, **options).relu()
  return convolution(x, depthwise, groups=64) if depthwise is not None else x


IMAGE, WEIGHT = on_gpu(2, 64, 14, 14, **HALF), on_gpu(64, 64, 3, 3, **HALF)


@pytest.mark.parametrize("options", [{"libraries": False}, {"mode": "graph"}])
def test_without_libraries_convolutions_are_kernels(compiled, options):
  hir, source = compiled(
    lambda *args: convolve(*args, dilation=2), IMAGE, WEIGHT, on_gpu(64, 1, 3, 3, **HALF), **options
  )
  assert "extern" not in hir and "'cuda:0', []," in source
  assert len(re.findall(r"launch triton_tem_fused", hir)) == 2


def test_a_convolution_without_a_template_is_pytorchs(compiled):
  groups = on_gpu(64, 32, 3, 3, **HALF)
  hir, _ = compiled(
    lambda x, w: convolve(x, w, dilation=2, groups=2), IMAGE, groups, libraries=False
  )
  assert hir.count('extern "aten::convolution') == 1
  *_, hir, _ = compiled(convolve, IMAGE, WEIGHT, on_gpu(128, 1, 3, 3, **HALF), mode="graph")
  assert hir.count('extern "aten::convolution') == 2


def test_libraries_are_called_in_training_and_beside_other_operators(compiled):
  training, _ = compiled(attend, *ATTEND, mode="graph", inference=False)
  assert training.count('extern "husk::matmul"') == 1
  *_, sorting, _ = compiled(
    lambda x, y: torch.sort(x @ y)[0], on_gpu(64, 128), on_gpu(128, 32), mode="graph"
  )
  assert sorting.count('extern "husk::matmul"') == 1


@torch.library.custom_op("husk_test::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
  return x / 2


@halved.register_fake
def _(x):
  return torch.empty_like(x)


def test_libraries_are_called_beside_operators_of_the_models_own(compiled):
  hir, _ = compiled(
    lambda x, y: torch.ops.husk_test.halved(x @ y), on_gpu(64, 128), on_gpu(128, 32), mode="graph"
  )
  assert 'extern "husk_test::halved' in hir and hir.count('extern "husk::matmul"') == 1


EFFICIENT = torch.ops.aten._scaled_dot_product_efficient_attention
FLASH = torch.ops.aten._scaled_dot_product_flash_attention
WIDE = [on_gpu(2, 4, 96, 512)] * 3
# With is_causal the last query of torch's operator sees all keys.
FEW_QUERIES = [on_gpu(2, 4, n, 64, **HALF) for n in (16, 96, 96)]


@pytest.mark.parametrize("options", [{"libraries": False}, {"mode": "graph"}])
@pytest.mark.parametrize(
  "name, attention, inputs",
  [
    ("efficient", lambda q, k, v: EFFICIENT(q, k, v, None, False)[0], WIDE),
    ("flash", lambda q, k, v: FLASH(q, k, v, 0.0, True)[0], FEW_QUERIES),
  ],
)
def test_attention_that_has_no_kernel_goes_through_torch(
  compiled, options, name, attention, inputs
):
  hir, _ = compiled(
    lambda q, k, v, x: [attention(q, k, v), x @ x], *inputs, on_gpu(64, 64), **options
  )
  assert f'extern "aten::_scaled_dot_product_{name}_attention' in hir
  assert ('extern "husk::matmul"' in hir) == ("mode" in options)


def test_an_option_that_is_no_bool_is_refused():
  with pytest.raises(ValueError, match="libraries='no': give True or False"):
    backend._options(None, {"libraries": "no"})


def test_operators_without_a_kernel_go_through_torch(compiled):
  hir, source = compiled(lambda x: torch.sort(x.exp())[0] + 1, on_gpu(4, 100000))
  assert 'extern "aten::sort' in hir
  assert re.search(r"'cuda:0', \['aten::sort[^']*'\], 'auto'\)", source)


def test_a_product_that_cublaslt_does_not_support_goes_through_torch(compiled):
  hir, _ = compiled(
    lambda x, y: torch._int_mm(x, y),
    on_gpu(32, 32, dtype=torch.int8),
    on_gpu(32, 32, dtype=torch.int8),
  )
  assert "husk::matmul" not in hir and 'extern "aten::_int_mm' in hir


def test_a_tensor_of_the_cpu_without_dimensions_is_a_number(compiled):
  hir, source = compiled(lambda x, y: x * y, on_gpu(64), ((), torch.float64, "cpu"))
  assert re.search(r"input \w+ float\n", hir)
  assert re.search(r"program\(\w+, \w+\.item\(\)\)", source)


def test_two_gpus_are_refused_by_name(compiled):
  said = refusal(compiled, lambda x, y: [x.exp(), y], on_gpu(4), on_gpu(4, device="cuda:1"))
  assert "one GPU of CUDA, this graph uses cuda:0, cuda:1" in said


def test_a_graph_of_a_gpu_becomes_a_file(compiled, tmp_path):
  compiled(lambda x, w: torch.softmax(x @ w, -1).relu(), on_gpu(64, 128), on_gpu(128, 32))
  x, w, y = torch.rand(64, 128), torch.rand(128, 32), torch.rand(64, 32)
  path = str(compiled.path)
  arguments = [weakref.ref(x), weakref.ref(w)]
  run = recording.Run(path, sections.source(path), arguments, [0, 0], [y])
  region = regions.Region("", None, {}, [], {}, False, False)
  callee = regions.callee(torch.compile(lambda x: x, backend="eager"))
  written = save._Artifact(callee, "forward", (), ["forward"])
  writer = saved.FunctionWriter(
    "forward",
    run,
    regions.Entry((0, 0), None, region, []),
    callee,
    written.names,
    written.weights,
    {id(w): "weight"},
    (),
  )
  written.trees["forward"] = writer.write((x,), {}, y)
  written.functions.append(writer)
  huskc.compile(written.write(tmp_path, {}), tmp_path / "model.husk")
  found = husk.inspect(tmp_path / "model.husk")
  assert found.targets == ("cuda sm_90a",) and found.kernels == 1
  assert found.operators == ("husk::matmul",)
  assert [(one.name, one.shape) for one in found.constants] == [("weight", (128, 32))]
  assert str(found.functions["forward"].inputs[0]) == "x: f32[64, 128]"


@pytest.mark.parametrize("on_host", [False, True], ids=["GPU", "host"])
def test_operators_of_the_host_are_not_those_of_a_gpu(compiled, on_host):
  compiled(lambda x: x.relu(), on_gpu(64))
  source = sections.source(str(compiled.path))
  source.called = ["aten::sort.stable"]
  if on_host:
    source.target = 'target host host "avx2"'
  run = recording.Run("", source, [], [0, 0], [])
  writer = saved.FunctionWriter("forward", run, None, None, hir.Names(), None, {}, ("aten::*",))
  assert writer.runs_operators_of_husk() == on_host


def test_the_gpu_of_this_machine_is_a_target(monkeypatch):
  properties = H200.properties()
  monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
  here.target.cache_clear()
  try:
    found = here.target("cuda:1")
  finally:
    here.target.cache_clear()
  assert found.arch == "sm_90a" and found.multi_processor_count == 132 and found.key == "gpu"


@pytest.mark.parametrize("name", ["max_autotune", "coordinate_descent_tuning"])
def test_kernels_are_measured_if_inductor_would_measure_them(name):
  assert not here.tuning({}).measures and here.tuning({name: True}).measures


def test_operators_make_tensors_on_the_device_of_the_program():
  call = operators.function("aten::randperm", "meta", waits.Begun())
  seen = []

  class Output:
    def copy_(self, value):
      seen.append(value.device.type)

  call(5, "i64", None, None, None, Output())
  assert seen == ["meta"]


# Sessions on a GPU


class Session:
  """A session that needs an arena of `needed` bytes."""

  def __init__(self, needed):
    self.arena_bytes, self.arena, self.calls = needed, None, 0
    self.operator = None  # what a run calls
    self.waits = 0

  def __call__(self, *args):
    self.calls += 1
    if self.arena is None or self.arena.nbytes < self.arena_bytes:
      raise module.NeedsResizeError("too small")
    return self.operator(*args) if self.operator else args

  def lend(self, arena):
    self.arena = arena

  def wait(self):
    self.waits += 1


@pytest.fixture
def program_with(monkeypatch):
  """A function that makes a program with these sessions. Its attribute `capturing` says whether a
  caller captures a graph."""

  streams, arenas = [0], {}

  def program_with_(*sessions, unused=()):
    program, left = module.OnGpu(None, "cpu", "auto"), {"auto": [*sessions], "list": [*unused]}
    program.capturing = False
    last = weakref.ref(program)
    monkeypatch.setattr(module, "_is_capturing", lambda: last() is not None and last().capturing)
    monkeypatch.setattr(module, "_current_stream", lambda device: streams[0])
    monkeypatch.setattr(module, "_arenas", arenas)
    program._session = lambda mode: left[mode].pop(0)
    return program

  program_with_.streams = streams
  return program_with_


def test_an_arena_is_a_tensor_of_the_size_that_the_plan_needs(program_with):
  session = Session(1000)
  program = program_with(session, unused=[Session(0)])
  assert program(1, 2) == (1, 2) and program(3) == (3,)
  assert session.arena.nbytes == 1000 and session.calls == 3 and program.sessions == [session]
  session.arena_bytes = 5000
  program(4)
  assert session.arena.nbytes == 5000


def test_a_call_inside_a_capture_has_a_session_that_has_not_run(program_with):
  session, first, second = Session(8), Session(8), Session(8)
  program = program_with(session, unused=[first, second])
  program(1)
  program.capturing = True
  assert program(2) == (2,) and (session.calls, first.calls, second.calls) == (2, 2, 0)
  program.capturing = False
  program(3)
  program.capturing = True
  program(4)
  assert (session.calls, first.calls, second.calls) == (3, 2, 2)


@pytest.mark.parametrize("read, writes, waits", [([], True, 2), ([1], False, 1), ([], False, 0)])
def test_a_call_waits_for_what_the_caller_has_on_the_cpu(program_with, read, writes, waits):
  """Until the program has written it, or read it if the GPU reads it in place."""

  class Tensor:
    def __init__(self, pinned):
      self.is_pinned = lambda: pinned

  session = Session(8)
  program = program_with(session, unused=[Session(8)])
  program.read, program.writes = read, writes
  program(0, Tensor(False))
  program(0, Tensor(True))
  assert session.waits == waits


def test_a_session_whose_arena_does_not_fit_goes(program_with):
  large, small = Session(1 << 60), Session(10)
  program = program_with(large, small, unused=[Session(0)])
  with pytest.raises(RuntimeError):
    program(1)
  assert program.sessions == [] and program(2) == (2,)
  assert program.sessions == [small] and program(3) == (3,)


def test_programs_share_an_arena(program_with):
  small, large = Session(1000), Session(4000)
  one, two = (program_with(each, unused=[Session(0)]) for each in (small, large))
  one(1)
  first = small.arena
  two(2)
  assert large.arena.nbytes == 4000 and small.arena is None  # the smaller memory is not kept
  assert one(3) == (3,) and two(4) == (4,) and one(5) == (5,)
  assert small.arena is large.arena is not first
  assert (small.calls, large.calls) == (5, 3)


def test_a_compilation_finds_the_memory_of_idle_arenas_free(program_with):
  idle, running = Session(1000), Session(4000)
  one, two = (program_with(each, unused=[Session(0)]) for each in (idle, running))
  program_with.streams[0] = 7
  two(1)
  program_with.streams[0] = 0
  one(2)
  lent = running.arena

  def compile_inside(*args):
    module.free_arenas()
    return args

  running.operator = compile_inside
  program_with.streams[0] = 7
  assert two(3) == (3,) and running.arena is lent  # the memory of a run stays
  assert idle.arena is None and [len(each) for each in module._arenas.values()] == [1, 1]
  program_with.streams[0] = 0
  assert one(4) == (4,) and idle.arena.nbytes == 1000


def test_an_arena_goes_with_its_programs(program_with):
  program = program_with(Session(1000), unused=[Session(0)])
  program(1)
  (arenas,) = module._arenas.values()
  assert len(arenas) == 1
  del program
  gc.collect()
  assert len(arenas) == 0


def test_each_stream_has_sessions_and_an_arena(program_with):
  sessions = [Session(1000), Session(1000)]
  program = program_with(*sessions, unused=[Session(0)])
  for stream in (7, 8, 7, 8):
    program_with.streams[0] = stream
    program(stream)
  assert [each.calls for each in sessions] == [3, 3]
  assert sessions[0].arena is not sessions[1].arena


def test_a_call_inside_an_operator_has_another_arena(program_with):
  inner, outer = Session(1000), Session(1000)
  nested = program_with(inner, unused=[Session(0)])
  program = program_with(outer, unused=[Session(0)])
  assert nested(0) == (0,) and program(1) == (1,)
  assert inner.arena is outer.arena
  arenas = []

  def call(*args):
    nested(2)
    arenas.extend([inner.arena, outer.arena])
    return args

  outer.operator = call
  assert program(3) == (3,)
  assert arenas[0] is not arenas[1] and arenas[0].nbytes == 1000
  outer.operator = None
  assert nested(4) == (4,) and program(5) == (5,)


def test_arenas_and_threads(program_with):
  """Runs at the same time never have the same memory, whichever sizes they need."""
  random = random_module.Random(0)
  sessions = [Session(random.randrange(1, 100) * 64) for _ in range(40)]
  programs = [program_with(*sessions[at : at + 10], unused=[Session(0)]) for at in range(0, 40, 10)]
  using, lock, failures = {}, threading.Lock(), []

  def use(session):
    def operator(*args):
      with lock:
        failures.extend([session] * (id(session.arena) in using))
        using[id(session.arena)] = session
      time.sleep(0)
      with lock:
        del using[id(session.arena)]
      return args

    return operator

  for session in sessions:
    session.operator = use(session)

  def work(seed):
    choose = random_module.Random(seed)
    for number in range(300):
      program = choose.choice(programs)
      assert program(number) == (number,)

  with ThreadPoolExecutor(8) as pool:
    list(pool.map(work, range(8)))
  assert not failures
