"""`torch.autocast`: the casts of a program are those of torch.export's own program, run in eager
mode."""

import artifact_runner
import husk
import pytest
import row_table
import torch
from cuda_numerics import computed
from function_module import FunctionModule
from husk.host import kernels as host_kernels
from husk.inductor import autocast
from torch.nn import functional

ON_HOST = pytest.mark.skipif(
  row_table.TARGET.partition(":")[2] not in host_kernels.isas(), reason="this machine has no AVX2"
)
X, Y = torch.randn(8, 8, generator=torch.manual_seed(5)) * 3, torch.eye(8) * 2
BF16 = torch.bfloat16
OPERATORS = {
  # Cast to the dtype of the region
  "linear": lambda x: functional.linear(x, Y, X[0]),
  "matmul": lambda x: x @ Y,
  "addmm": lambda x: torch.addmm(Y, x, x),
  "baddbmm": lambda x: torch.baddbmm(x[None], x[None], x[None]),
  "einsum": lambda x: torch.einsum("ij,kj->ik", x, Y),
  "conv1d": lambda x: functional.conv1d(x[None], X[:, :, None], X[0]),
  "conv2d": lambda x: functional.conv2d(x[None, None], X[None, None, :3, :3]),
  "conv_transpose": lambda x: functional.conv_transpose1d(x[None], X[:, :, None]),
  "attention": lambda x: functional.scaled_dot_product_attention(x[None], x[None], Y[None]),
  # Cast to float32
  "mse_loss": lambda x: functional.mse_loss((x @ Y), x),
  "cross_entropy": lambda x: functional.cross_entropy(x @ Y, torch.arange(8)),
  "smooth_l1": lambda x: functional.smooth_l1_loss(x @ Y, x),
  "bce": lambda x: functional.binary_cross_entropy_with_logits(x @ Y, x),
  "prod": lambda x: torch.prod(x @ Y, 0),
  "cdist": lambda x: torch.cdist(x @ Y, x),
  # Cast to the widest dtype of the arguments
  "cat": lambda x: torch.cat([x @ Y, x]),
  "stack": lambda x: torch.stack([x @ Y, x]),
  "index_copy": lambda x: torch.index_copy(x, 0, torch.arange(8), x @ Y),
  # Left alone
  "softmax": lambda x: torch.softmax(x @ Y, -1),
  "norm": lambda x: torch.linalg.vector_norm(x @ Y),
  "add": lambda x: x @ Y + x,
  "layer_norm": lambda x: functional.layer_norm(x @ Y, (8,)),
  "float64": lambda x: x.double() @ Y.double(),
  "ints": lambda x: x.int() + (x @ Y).int(),
}


def operator(name):
  def forward(self, x):
    with torch.autocast("cpu", dtype=BF16):
      return OPERATORS[name](x)

  return FunctionModule(forward)


class Regions(torch.nn.Module):
  """Regions in regions, a disabled one, one of float16, and one for another device."""

  def __init__(self):
    super().__init__()
    torch.manual_seed(2)
    self.linear, self.other = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

  def forward(self, x):
    with torch.autocast("cpu", dtype=BF16):
      a = self.linear(x)
      with torch.autocast("cpu", enabled=False):
        b = self.other(a.float())
        with torch.autocast("cpu", dtype=torch.float16):
          c = self.linear(b)
      d = self.other(a).relu() + b
    with torch.autocast("cuda", dtype=torch.float16):
      e = self.linear(x)
    return a, b, c.float(), d, e, functional.mse_loss(a, x)


class Branches(Regions):
  def forward(self, x):
    with torch.autocast("cpu", dtype=BF16):
      y = torch.cond(x.sum() > 0, lambda x: x @ x.t(), lambda x: self.linear(x), (x,))
      return y * 2, self.linear(x)


def exported(model, *args):
  with torch.no_grad():
    return torch.export.export(model, args, strict=False)


def expected(program, *args):
  with torch.no_grad():
    return torch.utils._pytree.tree_leaves(program.module()(*args))


def check(results, wanted, tolerance=0.02):
  for one, other in zip(results, wanted, strict=True):
    assert one.dtype == other.dtype
    torch.testing.assert_close(
      one, other, rtol=tolerance, atol=tolerance * float(other.abs().max())
    )


def targets_of(program):
  return [node.target for node in program.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("name", OPERATORS)
def test_casts_are_those_of_the_exported_program(name):
  program = exported(operator(name), X)
  written = autocast.written_out(program)
  for one, other in zip(expected(written, X), expected(program, X), strict=True):
    assert one.dtype == other.dtype and torch.equal(one, other)
  assert torch.ops.higher_order.wrap_with_autocast not in targets_of(written)


def test_a_fixed_dtype_as_on_gpus():
  """Operators for which autocast fixes the dtype of the result on a GPU."""
  mode = torch._subclasses.FakeTensorMode()
  for name, function in {
    "softmax": lambda x: torch.softmax(x @ x, -1),
    "sum": lambda x: (x @ x).sum(),
    "cumsum": lambda x: (x @ x).cumsum(0),
    "norm": lambda x: torch.norm(x @ x),
    "exp": lambda x: torch.exp(x @ x),
  }.items():
    with mode, torch.no_grad(), autocast._enabled({"cuda": torch.float16}):
      x = torch.empty(8, 8, device="cuda")
      wanted = function(x)
    with mode, torch.no_grad():
      from torch.fx.experimental.proxy_tensor import make_fx

      module = make_fx(function, pre_dispatch=True)(x)
      for node in module.graph.nodes:  # as torch.export states them
        if node.op == "call_function" and node.target is not torch.ops.aten.mm.default:
          node.meta["val"] = wanted
      product = next(n for n in module.graph.nodes if n.target is torch.ops.aten.matmul.default)
      product.meta["val"] = torch.empty(8, 8, device="cuda", dtype=torch.float16)
      autocast._write_out(module, {"cuda": torch.float16})
      result = module(x)
    assert (result.dtype, result.shape) == (torch.float32, wanted.shape), name


@pytest.mark.parametrize("kind", (Regions, Branches))
def test_regions(kind):
  program = exported(kind(), X)
  written = autocast.written_out(program)
  assert torch.amp.autocast_mode._enter_autocast not in targets_of(written)
  for one, other in zip(expected(written, X), expected(program, X), strict=True):
    assert one.dtype == other.dtype and torch.equal(one, other)


def test_layers_stay_whole():
  written = autocast.written_out(exported(Regions(), X))
  assert targets_of(written).count(torch.ops.aten.linear.default) == 5


@ON_HOST
def test_on_hosts(tmp_path):
  names = ("linear", "conv2d", "attention", "mse_loss", "cat")
  functions = {name: (operator(name), (X,)) for name in names}
  functions["regions"] = (Regions(), (X,))
  husk.export(functions, tmp_path / "made.husk", targets=(row_table.TARGET,))
  with artifact_runner.Runner(tmp_path / "made.husk") as run:
    for name, (model, args) in functions.items():
      check(run.run(list(args), name), expected(exported(model, *args), *args))


def test_on_cuda(tmp_path):
  (result,) = computed(Regions(), (X,), None, [{"x": X}], tmp_path, tune="none")
  check(result.values(), expected(exported(Regions(), X), X))
