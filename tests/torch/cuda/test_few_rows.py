"""Linear layers of few rows: values of the template by the interpreter, and the layers that it
computes."""

import dataclasses
import functools
import re

import husk
import pytest
import torch
from cuda_numerics import computed
from husk.cuda import few_rows, few_rows_kernel, pdl
from husk.cuda.target import Target
from husk.rows import node as rows_node
from test_cuda_quantized import E4M3
from test_cuda_quantized import Layer as Codes
from torch import nn
from torch.nn import functional as F

GELU = functools.partial(F.gelu, approximate="tanh")
Eps = functools.partial(nn.RMSNorm, eps=1e-3)


class Steps(nn.Module):
  """A root mean square norm as transformers writes it."""

  def __init__(self, k):
    super().__init__()
    self.weight = nn.Parameter(torch.randn(k))

  def forward(self, x):
    dtype, x = x.dtype, x.to(torch.float32)
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)
    return self.weight * x.to(dtype)


class Layer(nn.Module):
  """What a layer of a decoder does with a token."""

  def __init__(self, k, between, bias, norm, activation):
    super().__init__()
    torch.manual_seed(0)
    self.before = norm(k)
    self.q, self.k, self.v = (nn.Linear(k, n, bias=has) for n, has in zip((k, 96, 72), bias))
    self.gate, self.up = (nn.Linear(k, between, bias=has) for has in bias[:2])
    self.down = nn.Linear(between, k, bias=False)
    self.activation = activation

  def forward(self, x):
    h = self.before(x)
    q, k, v = self.q(h), self.k(h), self.v(h)
    y = x + q
    h = self.before(y)
    return y + self.down(self.activation(self.gate(h)) * self.up(h)), k, v


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch):
  monkeypatch.setattr(few_rows, "LEAST_BYTES", 0)
  monkeypatch.setattr(few_rows, "MOST_ROWS", 4)


def targets(model, *args):
  exported = torch.export.export(model, args)
  program = few_rows.rewrite(exported, Target.load("h100"))
  return [node for node in program.graph.nodes if node.target is few_rows.operator()]


# Triton's interpreter cuts what does not fit into bf16, which a GPU rounds.
@pytest.mark.parametrize(
  "rows, k, between, bias, norm, activation, dtype, bound",
  [
    (1, 256, 200, (False, False, False), Steps, F.silu, torch.bfloat16, 4),
    (1, 328, 128, (True, False, True), Eps, GELU, torch.float16, 1.5),
    (3, 128, 256, (False, True, True), nn.LayerNorm, F.relu, torch.float32, 1.1),
    (4, 136, 128, (False, True, True), Steps, F.silu, torch.float16, 1.5),
  ],
)
def test_values(rows, k, between, bias, norm, activation, dtype, bound, tmp_path):
  model = Layer(k, between, bias, norm, activation).to(dtype).eval()
  x = torch.randn(rows, 1, k, dtype=dtype)
  assert len(targets(model, x)) == 3
  (result,) = computed(model, (x,), None, [{"x": x}], tmp_path)
  with torch.no_grad():
    eager, right = model(x), model.double()(x.double())
  for got, other, wanted in zip(result.values(), eager, right):
    error, of_eager = (
      float((one.double() - wanted).norm() / wanted.norm()) for one in (got, other)
    )
    assert error <= max(bound * of_eager, 1e-6)


class Quantized(nn.Module):
  """Layers of codes of one kind for the same rows, two of which have a gate."""

  def __init__(self, k, norm, **codes):
    super().__init__()
    torch.manual_seed(1)
    self.norm = Steps(k).half() if norm else None
    self.layers = nn.ModuleList(
      Codes(n, k, bias=n == 20, seed=n, **codes) for n in (20, 33, 48, 48)
    )

  def forward(self, x):
    h = x if self.norm is None else self.norm(x)
    one, two, gate, up = (layer(h) for layer in self.layers)
    return one, two, F.silu(gate) * up

  def exact(self, x):
    h = x.double()
    if self.norm is not None:
      h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-3) * self.norm.weight.double()
    one, two, gate, up = (layer.exact(h) for layer in self.layers)
    return one, two, F.silu(gate) * up


@pytest.mark.parametrize(
  "codes, norm",
  [
    ({"dtype": torch.uint8, "group": 32, "scales": torch.float16}, True),
    ({"dtype": torch.uint8, "group": 64, "zeros": torch.float32}, False),
    ({"dtype": torch.uint8, "zeros": torch.int8}, True),
    ({"dtype": torch.int8}, True),
    ({"dtype": torch.int8, "group": 64, "zeros": torch.int8}, False),
    ({"dtype": E4M3, "group": 16}, True),
  ],
)
def test_values_of_codes(codes, norm, tmp_path, monkeypatch):
  """Those of the template, which has what no tiles compute."""
  monkeypatch.setattr(few_rows, "MOST_ROWS_OF_A_TILE", 0)
  model = Quantized(192, norm, **codes).eval()
  x = torch.randn(1, 192, generator=torch.Generator().manual_seed(3)).half()
  found = targets(model, x)
  assert [len(node.args[1]) for node in found] == [2, 2]
  assert [node.args[6] >= 0 for node in found] == [norm] * 2
  (result,) = computed(model, (x,), None, [{"x": x}], tmp_path)
  with torch.no_grad():
    exact = model.exact(x)
  for value, right in zip(result.values(), exact):
    error = (value.double() - right).norm() / right.norm()
    assert float(error) < torch.finfo(torch.float16).eps


@pytest.mark.parametrize(
  "rows, codes, target, is_tiled",
  [
    (1, {"dtype": torch.int8}, "h100", True),
    (16, {"dtype": torch.int8}, "orin", True),
    (8, {"dtype": E4M3, "group": 16}, "h100", True),
    (1, {"dtype": torch.uint8, "group": 96, "zeros": torch.float32}, "h100", True),
    (16, {"dtype": torch.uint8, "group": 32, "zeros": torch.int8}, "h100", True),
    (2, {"dtype": torch.uint8, "group": 32, "zeros": torch.float16}, "h100", True),
    (3, {"dtype": torch.uint8, "group": 32, "zeros": torch.float16}, "h100", None),
    (17, {"dtype": torch.int8}, "h100", None),
    (1, {"dtype": torch.uint8, "group": 48}, "h100", None),
    (1, {"dtype": torch.int8}, "turing", None),
  ],
)
def test_which_codes(rows, codes, target, is_tiled, monkeypatch):
  """None: the layer keeps the operator for codes."""
  monkeypatch.setattr(few_rows, "MOST_ROWS", 1)
  x = torch.randn(rows, 192, dtype=torch.float16)
  found = few_rows.rewrite(torch.export.export(Codes(64, 192, **codes), (x,)), loaded(target))
  calls = [node for node in found.graph.nodes if node.target is few_rows.operator()]
  assert [node.args[11] for node in calls] == ([] if is_tiled is None else [is_tiled])


def loaded(target):
  """A target, or one that has no tensor cores of bf16."""
  if target != "turing":
    return Target.load(target)
  return dataclasses.replace(Target.load("h100"), major=7, minor=5)


class Activated(nn.Module):
  """Codes whose activation is that of a gate, codes with another one, and codes without."""

  def __init__(self):
    super().__init__()
    self.layers = nn.ModuleList(Codes(64, 64, torch.int8, seed=seed) for seed in range(4))

  def forward(self, x):
    gate, up, one, other = (layer(x) for layer in self.layers)
    return F.silu(gate) * up, F.gelu(one), other + x


@pytest.mark.parametrize("rows, calls", [(1, 3), (2, 2)])
def test_codes_with_activations(rows, calls, monkeypatch):
  """The template has one row with an activation, which Inductor adds to it."""
  monkeypatch.setattr(few_rows, "MOST_ROWS", 1)
  found = targets(Activated(), torch.randn(rows, 64, dtype=torch.float16))
  parts = {
    (node.args[7], len(node.args[1]), node.args[10] is not None, node.args[11]) for node in found
  }
  wanted = {("silu", 2, False, True), ("", 1, True, True), ("", 1, False, False)}
  assert len(found) == calls and parts == (
    wanted if rows == 1 else wanted - {("", 1, False, False)}
  )


@pytest.mark.parametrize(
  "codes, name",
  [
    ({"dtype": torch.int8}, "int8"),
    ({"dtype": torch.uint8, "group": 32, "scales": torch.float16}, "int4_32"),
    ({"dtype": E4M3}, "float8_e4m3fn"),
  ],
)
def test_launches_of_codes(codes, name, tmp_path):
  """A layer of codes is one launch with its norm, its bias and those beside it, which reads
  constants before it waits."""
  x = torch.randn(1, 192, dtype=torch.float16)
  husk.write(Quantized(192, True, **codes), (x,), tmp_path, targets=("cuda:h100",))
  found = launches(tmp_path)
  assert [(kernel, grid) for kernel, grid, _ in found] == [
    (f"few_rows_{name}_f16_1_192_20_33", "5"),
    (f"few_rows_{name}_f16_1_192_48_48_silu", "6"),
  ]
  assert [arguments.count("scales") for *_, arguments in found] == [2, 2]
  text = (tmp_path / "model.hir").read_text()
  # The third one converts the bias to f16.
  assert len(re.findall("^ *launch ", text, re.M)) == 3
  rows = re.findall(r"^kernel h100_few_rows.*$", text, re.M)
  assert len(rows) == 2 and all(row.endswith("pdl_wait_first triggers_early") for row in rows)


@pytest.mark.parametrize(
  "k, bits, rows, columns, gate, tiles",
  [
    (2048, 8, 1, (8192, 8192), "silu", (32, 4, 4)),
    (2048, 4, 1, (2048, 512, 512), "", (16, 4, 8)),
    (8192, 8, 1, (2048,), "", (16, 16, 8)),
    (8192, 4, 8, (2048,), "", (16, 8, 8)),
    (8192, 4, 8, (32000,), "", (32, 8, 4)),
    (16384, 8, 1, (32000,), "", (16, 16, 8)),
  ],
)
def test_tiles_of_codes(k, bits, rows, columns, gate, tiles):
  found = rows_node._config_of_codes(Target.load("h100"), k, bits, rows, columns, gate)
  assert tuple(found[name] for name in ("TILE", "WARPS", "DEPTH")) == tiles


def test_rows_of_a_model_are_read_once(tmp_path):
  model = Layer(256, 128, (False,) * 3, Steps, F.silu).eval()
  both, gated, last = targets(model, torch.randn(1, 256))
  assert [len(node.args[1]) for node in (both, gated, last)] == [3, 2, 1]
  assert [node.args[7] for node in (both, gated, last)] == ["", "silu", ""]
  assert [node.args[6] for node in (both, gated, last)] == [1e-3, 1e-3, -1.0]


class Flattened(nn.Module):
  """A router of a mixture: the rows of a norm in another shape, with a residual before it."""

  def __init__(self, shape):
    super().__init__()
    torch.manual_seed(0)
    self.before, self.norm = nn.Linear(128, 128), nn.RMSNorm(128, eps=1e-3)
    self.router, self.shape = nn.Linear(128, 24), shape

  def forward(self, x):
    x = x + self.before(x)
    return self.router(self.norm(x).reshape(self.shape))


@pytest.mark.parametrize("shape", [(-1, 128), (1, 3, 1, 128), (-1, 1, 128)])
def test_other_shapes_of_a_norm(shape, tmp_path):
  model, x = Flattened(shape).eval(), torch.randn(1, 3, 128)
  assert [node.args[6] for node in targets(model, x)] == [-1.0, 1e-3]
  (result,) = computed(model, (x,), None, [{"x": x}], tmp_path)
  (found,) = result.values()
  assert found.shape == model(x).shape
  torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-5)


def test_a_shape_of_other_rows_is_no_norm():
  """Rows of 64 elements of a norm over 128."""
  model = Flattened((-1, 64))
  model.router = nn.Linear(64, 24)
  assert [node.args[6] for node in targets(model.eval(), torch.randn(1, 1, 128))] == [-1.0, -1.0]


class Between(nn.Module):
  """The rows change between two layers, and so does what their norm reads."""

  def __init__(self):
    super().__init__()
    self.a, self.b, self.norm = nn.Linear(64, 64), nn.Linear(64, 64), nn.RMSNorm(64)

  def forward(self, x):
    x = x + 1
    a = self.a(x)
    x.mul_(2)
    h = self.norm(x)
    x.add_(a)
    return a + self.b(x), self.b(h)


def test_rows_that_change_are_read_in_their_place(tmp_path):
  model = Between().eval()
  x = torch.randn(1, 64)
  found = targets(model, x)
  assert [len(node.args[1]) for node in found] == [1, 1, 1]
  assert all(node.args[6] < 0 for node in found)
  (result,) = computed(model, (x,), None, [{"x": x}], tmp_path)
  with torch.no_grad():
    right = model(x)
  for got, wanted in zip(result.values(), right):
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


class LateBias(nn.Module):
  """The bias of the second layer is computed of what the first one results in."""

  def __init__(self):
    super().__init__()
    self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64, bias=False)

  def forward(self, x):
    a = self.a(x)
    return F.linear(x, self.b.weight, a[0] * 2)


def test_operands_that_are_computed_later():
  assert [len(node.args[1]) for node in targets(LateBias().eval(), torch.randn(1, 64))] == [1, 1]


class Others(nn.Module):
  """Layers that keep Inductor's kernels."""

  def __init__(self):
    super().__init__()
    self.layer = nn.Linear(64, 64, bias=False)
    self.odd = nn.Linear(63, 64, bias=False)

  def forward(self, x, rows):
    return self.layer(rows), self.odd(x[..., :63]), F.linear(x, rows[:, :64])


def test_other_layers():
  assert targets(Others().eval(), torch.randn(1, 64), torch.randn(5, 64)) == []


class Decoder(nn.Module):
  """The layers of `Layer`, with one residual that Inductor adds to one row only."""

  def __init__(self, dtype):
    super().__init__()
    self.layer = Layer(128, 64, (False, True, False), Steps, F.silu).to(dtype).eval()
    self.more = nn.ModuleList(nn.Linear(128, 24, bias=False, dtype=dtype) for _ in range(5))

  def forward(self, x):
    y, k, v = self.layer(x)
    return y, k, v, [each(y) for each in self.more]


def launches(folder):
  """The launches of the kernel of several rows, with their grids and arguments."""
  text = (folder / "model.hir").read_text()
  return re.findall(r"launch h100_(few_rows_\S+) grid \((\d+), 1, 1\) \((.*?)\) at", text)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_several_rows(dtype, tmp_path, monkeypatch):
  monkeypatch.setattr(few_rows, "MOST_ROWS", 1)
  x = torch.randn(6, 1, 128, dtype=dtype)
  husk.write(Decoder(dtype), (x,), tmp_path, targets=("cuda:h100",))
  name = {torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]
  found = launches(tmp_path)
  # Five layers of the same rows are one launch of four weights and one of a weight.
  assert [(kernel, grid) for kernel, grid, _ in found] == [
    (f"few_rows_{name}_6_128_128_96_72", "19"),
    (f"few_rows_{name}_6_128_64_64_silu", "8"),
    (f"few_rows_{name}_6_64_128", "8"),
    (f"few_rows_{name}_6_128_24_24_24_24", "8"),
    (f"few_rows_{name}_6_128_24", "2"),
  ]
  *_, down, more, one = (arguments for *_, arguments in found)
  # The residual is an operand of the third one.
  assert [argument.split()[0] for argument in down.split(", ")[:4]] == ["read"] * 3 + ["write"]
  assert sum(argument.startswith("read more.") for argument in more.split(", ")) == 4
  rows = re.findall(r"^kernel h100_few_rows.*$", (tmp_path / "model.hir").read_text(), re.M)
  assert len(rows) == 5 and all(row.endswith("pdl_wait_first triggers_early") for row in rows)


@pytest.mark.parametrize(
  "rows, dtype, target, is_ours",
  [
    (2, torch.float16, "h100", True),
    (16, torch.bfloat16, "orin", True),
    (17, torch.float16, "h100", False),
    (8, torch.float32, "h100", False),
    (8, torch.float16, "turing", False),
    (0, torch.float16, "h100", False),
  ],
)
def test_which_rows(rows, dtype, target, is_ours, monkeypatch):
  monkeypatch.setattr(few_rows, "MOST_ROWS", 1)
  model = nn.Linear(64, 64, dtype=dtype)
  exported = torch.export.export(model, (torch.randn(rows, 64, dtype=dtype),))
  program = few_rows.rewrite(exported, loaded(target))
  assert is_ours == any(node.target is few_rows.operator() for node in program.graph.nodes)


def test_several_rows_and_an_activation(monkeypatch):
  """Inductor makes one kernel of a layer and its activation, and ours is no gate."""
  monkeypatch.setattr(few_rows, "MOST_ROWS", 1)
  layers = [nn.Linear(64, 64, dtype=torch.float16) for _ in range(3)]
  model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.GELU(), layers[2])
  x = torch.randn(4, 64, dtype=torch.float16)
  (node,) = targets(model, x)
  assert [str(weight) for weight in node.args[1]] == ["p_4_weight"]
  assert len(targets(model, x[:1])) == 3


def test_a_residual_that_is_written_later(monkeypatch):
  """What is added is computed after the layer, so that the call stands where it is there."""
  monkeypatch.setattr(few_rows, "MOST_ROWS", 1)

  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.layer = nn.Linear(64, 64, dtype=torch.float16)

    def forward(self, x):
      y = self.layer(x)
      return y + x.sin(), x

  class Written(Model):
    def forward(self, x):
      y = self.layer(x)
      x.mul_(2)
      return y + x, x

  x = torch.randn(4, 64, dtype=torch.float16)
  for model, has_residual in ((Model(), True), (Written(), False)):
    (node,) = targets(model, x)
    assert (len(node.args) > 10 and node.args[10] is not None) == has_residual


def test_small_layers(monkeypatch):
  monkeypatch.setattr(few_rows, "LEAST_BYTES", 64 * 64 * 4 + 1)
  assert targets(nn.Linear(64, 64, bias=False), torch.randn(1, 64)) == []


class Updated(nn.Module):
  """A layer whose weight is a state."""

  def __init__(self):
    super().__init__()
    self.register_buffer("weight", torch.randn(64, 64))

  def forward(self, x):
    y = F.linear(x, self.weight)
    self.weight.mul_(0.5)
    return y


class Read(nn.Module):
  """The layer without the update."""

  def __init__(self, updated):
    super().__init__()
    self.updated = updated

  def forward(self, x):
    return F.linear(x, self.updated.weight)


def kernels(folder):
  """The rows of the template's kernels."""
  text = (folder / "model.hir").read_text()
  return re.findall(r"^kernel .*_tem_.*$", text, re.M)


def reads_before_the_wait(folder):
  """The flag of the template's kernel if it reads memory before it waits. Only such kernels trigger
  early."""
  (row,) = kernels(folder)
  flags = re.findall("pdl_wait_first|pdl_in_graph", row)
  assert len(flags) == 1
  return flags[0] if "triggers_early" in row else None


def test_constants_are_read_before_the_wait(tmp_path):
  computed(nn.Linear(64, 64), (torch.randn(1, 64),), None, [], tmp_path)
  assert reads_before_the_wait(tmp_path) == "pdl_wait_first"


def test_states_are_read_before_the_wait_in_graphs(tmp_path):
  computed(Updated().eval(), (torch.randn(1, 64),), None, [], tmp_path)
  assert reads_before_the_wait(tmp_path) == "pdl_in_graph"


def test_states_of_another_function_are_read_before_the_wait_in_graphs(tmp_path):
  model, x = Updated().eval(), torch.randn(1, 64)
  functions = {"read": husk.Function(Read(model), (x,)), "forward": husk.Function(model, (x,))}
  husk.write(functions, tmp_path, targets=("cuda:h100",))
  assert reads_before_the_wait(tmp_path) == "pdl_in_graph"


def test_devices_without_the_wait(tmp_path):
  computed(nn.Linear(64, 64), (torch.randn(1, 64),), None, [], tmp_path, target="orin")
  (row,) = kernels(tmp_path)
  assert "pdl_wait_first" not in row


def test_pieces():
  for k in (8, 128, 136, 896, 3072, 4864):
    pieces = few_rows_kernel.pieces_of_row(k, 128)
    assert [begin for begin, _ in pieces[1:]] == [sum(pair) for pair in pieces[:-1]]
    assert k <= sum(pieces[-1]) < k + 128


def test_blocks():
  target = Target.load("h100")
  assert few_rows_kernel.columns_of_block(target, 2048, 1, 2, 3072) == 4
  assert few_rows_kernel.columns_of_block(target, 2048, 2, 2, 8192) == 1
  assert few_rows_kernel.columns_of_block(target, 1024, 2, 2, 8192) == 2
  assert few_rows_kernel.columns_of_block(target, 2048, 1, 2, 500) == 1
  assert few_rows_kernel.columns_of_block(target, 8192, 1, 2, 1 << 16) == 2
  assert few_rows_kernel.columns_of_block(target, 1 << 14, 1, 2, 1 << 16) == 1
  assert few_rows_kernel.columns_of_block(target, 1 << 15, 2, 4, 1 << 16) == 1
  assert [few_rows_kernel.warps(1024, columns, 2) for columns in (1, 4, 5, 32)] == [1, 2, 4, 16]
  assert few_rows_kernel.warps(8192, 1, 1) == 4


PTX = """
.visible .entry kernel(
	.param .u64 kernel_param_0,
	.param .u64 kernel_param_1
)
{
	ld.param.b64 	%rd1, [kernel_param_0];
	ld.param.b64 	%rd2, [kernel_param_1];
	mov.u32 	%r1, %ctaid.x;
	mul.wide.s32 	%rd3, %r1, 4;
	add.s64 	%rd4, %rd2, %rd3;
	@@
	griddepcontrol.wait;
	ret;
}
"""


@pytest.mark.parametrize(
  "text, reads",
  [
    ("ld.global.b32 %r2, [%rd4];", {1}),
    ("@%p1 ld.global.v2.b32 { %r2, %r3 }, [ %rd4 + 16 ];", {1}),
    ("ld.global.b32 %r2, [%rd4]; ld.global.nc.b32 %r3, [%rd1];", {0, 1}),
    ("selp.b64 %rd5, %rd1, %rd4, %p1; ld.global.b32 %r2, [%rd5];", {0, 1}),
    # An address that memory alone decides may be that of anything.
    ("ld.global.b64 %rd5, [%rd4]; ld.global.b32 %r2, [%rd5];", None),
    ("ld.global.b64 %rd5, [%rd4]; add.s64 %rd6, %rd5, 4; ld.global.b32 %r2, [%rd6];", None),
    # Memory may have the index of what is read.
    ("ld.global.b64 %rd5, [%rd4]; add.s64 %rd6, %rd5, %rd1; ld.global.b32 %r2, [%rd6];", {0, 1}),
    ("ld.shared.b64 %rd5, [%rd4]; add.s64 %rd6, %rd5, %rd1; ld.global.b32 %r2, [%rd6];", None),
    ("ld.global.b32 %r2, [%rd9];", None),
    ("st.global.b32 [%rd4], %r1;", None),
    ("ld.global.b32 %r2, [%rd4]; st.shared.b32 [%r3], %r2;", {1}),
    ("st.shared::cluster.b32 [%r3], %r2;", None),
    ("atom.global.add.u32 %r2, [%rd4], 1;", None),
    ("@%p1 bra $L1;", None),
  ],
)
def test_check_finds_what_is_read_before_the_wait(text, reads):
  found = pdl.check(PTX.replace("@@", text.replace("; ", ";\n\t")), "kernel", reads_early=True)
  assert found.first == (reads is not None)
  assert found.reads == frozenset(reads or ())
  assert not pdl.check(PTX.replace("@@", text), "kernel").first
