"""Exports small models, runs them (by the interpreter of this folder, and by husk-run if it is
built) and compares with eager PyTorch."""

import copy
import pathlib
import re
import subprocess

import built_tools
import hir_interpreter
import husk
import models
import pytest
import torch
from function_module import FunctionModule
from husk.hir import huskc
from husk.host import kernels as host_kernels
from torch.export import Dim

ISAS = host_kernels.isas()
pytestmark = pytest.mark.skipif(not ISAS, reason="this machine has neither AVX2 nor AVX-512")
CASES = {
  "sum": [{"x": (rows, 5), "y": (rows, 5)} for rows in (1, 2, 1000)],
  "mlp": [{"x": (rows, 32)} for rows in (1, 3, 64)],
  "gpt": [{"tokens": shape} for shape in ((1, 1), (2, 16), (3, 77), (8, 128))],
  "branches": [
    {"x": (rows, 48), "y": (rows, 48), "power": power}
    for rows, power in ((2, 1), (8, 3), (512, 100))
  ],
}


def inputs_of(what):
  """An input: a number, or a tensor of a shape; tokens are ints."""
  torch.manual_seed(7)
  return {
    name: shape
    if isinstance(shape, int)
    else torch.randint(0, 256, shape)
    if name == "tokens"
    else torch.randn(shape)
    for name, shape in what.items()
  }


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
  """The folder of a model's text, images and weights. Each model is exported once."""
  folders = {}

  def folder_of(name, isa=None):
    key = name, isa or ISAS[0]
    if key not in folders:
      model, args, shapes = models.MODELS[name]()
      folders[key] = tmp_path_factory.mktemp(f"{name}-{key[1]}")
      husk.write(model, args, folders[key], dynamic_shapes=shapes, targets=(f"host:{key[1]}",))
    return folders[key]

  return folder_of


def close(results, expected):
  for one, other in zip(results, torch.utils._pytree.tree_leaves(expected), strict=True):
    if isinstance(other, torch.Tensor):
      torch.testing.assert_close(one, other, rtol=2e-5, atol=5e-5)
    else:
      assert one == other


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", CASES)
def test_text_equals_eager(name, isa, exported):
  model, _, _ = models.MODELS[name]()
  program = hir_interpreter.Program(exported(name, isa) / "model.hir")
  assert program.targets == {f"host_{isa}": ("host", isa)}
  for case in CASES[name]:
    inputs = inputs_of(case)
    with torch.no_grad():
      close(program.run(f"host_{isa}", **inputs).values(), model(**copy.deepcopy(inputs)))


@pytest.mark.parametrize("name", CASES)
def test_artifact_equals_eager(name, exported, tmp_path):
  model, _, _ = models.MODELS[name]()
  artifact = tmp_path / "model.husk"
  built_tools.built("huskc")
  huskc.compile(exported(name) / "model.hir", artifact)
  for case in CASES[name]:
    inputs = inputs_of(case)
    code, outputs, text = built_tools.husk_run(artifact, tmp_path, inputs)
    assert code == 0, text
    model, _, _ = models.MODELS[name]()  # each process begins with the state of the model
    with torch.no_grad():
      expected = torch.utils._pytree.tree_leaves(model(**inputs))
    close([outputs[str(index)] for index in range(len(expected))], expected)


@pytest.mark.parametrize("name", CASES)
def test_huskc_accepts_the_text(name, exported, tmp_path):
  def printed(source):
    return subprocess.run(
      [built_tools.built("huskc"), "--root", str(exported(name)), "--print", str(source)],
      check=True,
      capture_output=True,
      text=True,
    ).stdout

  (tmp_path / "once.hir").write_text(printed(exported(name) / "model.hir"))
  (tmp_path / "twice.hir").write_text(printed(tmp_path / "once.hir"))
  assert (tmp_path / "twice.hir").read_text() == (tmp_path / "once.hir").read_text()


def test_state_persists_between_runs(exported, tmp_path):
  built_tools.built("huskc")
  huskc.compile(exported("mlp") / "model.hir", tmp_path / "mlp.husk")
  code, outputs, text = built_tools.husk_run(
    tmp_path / "mlp.husk", tmp_path, inputs_of({"x": (2, 32)}), "--repeat", "3"
  )
  assert code == 0, text
  assert outputs["1"].item() == 3


def test_failed_index_check_is_an_error_not_a_crash(exported, tmp_path):
  program = hir_interpreter.Program(exported("gpt") / "model.hir")
  wrong = torch.tensor([[1, 2, 256]])
  with pytest.raises(hir_interpreter.CheckFailed, match=r"index out of bounds: 0 <= tmp\d+ < 256"):
    program.run(f"host_{ISAS[0]}", tokens=wrong)
  with torch.no_grad():
    right = torch.tensor([[1, 2, 255]])
    close(program.run(f"host_{ISAS[0]}", tokens=right).values(), models.gpt()[0](right))


@pytest.mark.parametrize(
  "name, inputs, text",
  [
    ("gpt", {"tokens": torch.tensor([[1, 2, 256]])}, "index out of bounds"),
    ("sum", {"x": torch.zeros(1025, 5), "y": torch.zeros(1025, 5)}, "1024"),
    ("sum", {"x": torch.zeros(4, 5), "y": torch.zeros(3, 5)}, "size 0 of y"),
    ("branches", {"x": torch.zeros(4, 48), "y": torch.zeros(4, 48), "power": 101}, "power"),
  ],
)
def test_wrong_inputs_are_named_in_the_error(name, inputs, text, exported, tmp_path):
  built_tools.built("huskc")
  huskc.compile(exported(name) / "model.hir", tmp_path / "model.husk")
  code, outputs, printed = built_tools.husk_run(tmp_path / "model.husk", tmp_path, inputs)
  assert code == 4 and text in printed and not outputs


@pytest.mark.parametrize("inputs", [{"x": (1025, 5), "y": (1025, 5)}, {"x": (4, 5), "y": (3, 5)}])
def test_shapes_are_checked(inputs, exported):
  with pytest.raises(hir_interpreter.CheckFailed):
    hir_interpreter.Program(exported("sum") / "model.hir").run(
      f"host_{ISAS[0]}", **inputs_of(inputs)
    )


def test_strides_are_checked(exported):
  program = hir_interpreter.Program(exported("sum") / "model.hir")
  with pytest.raises(hir_interpreter.CheckFailed, match="check_stride"):
    program.run(f"host_{ISAS[0]}", x=torch.randn(5, 4).t(), y=torch.randn(4, 5))


def test_gpt_text(exported):
  text = (exported("gpt") / "model.hir").read_text()
  # Attention is one operator of the host in each of the four layers.
  variants = text.count("\n  variant ")
  assert text.count('extern "aten::_scaled_dot_product_flash_attention_for_cpu"') == 4 * variants
  # Tied weights are one constant, of which the file has the other name.
  assert len(re.findall(r"^constant tokens\.weight ", text, re.M)) == 1
  assert text.count("head.weight") == 1
  assert '\nuser "husk.tied.head.weight" "tokens.weight"\n' in text
  assert "input tokens tensor i64 [1..8, 1..128]" in text
  assert 'at "blocks.3.qkv models.py:' in text
  assert str(pathlib.Path.cwd().anchor + "work") not in text and "/models.py" not in text


def test_branches_are_several_kernels(exported):
  text = (exported("branches") / "model.hir").read_text()
  assert text.count("    launch ") >= 8 and "input power int 1..100" in text


@pytest.mark.parametrize("name", ["mlp", "gpt"])
def test_images_need_only_the_c_library(name, exported):
  (image,) = exported(name).glob("*.so")
  needed = set(
    re.findall(
      r"NEEDED.*\[(.*)\]",
      subprocess.run(["readelf", "-d", image], capture_output=True, text=True, check=True).stdout,
    )
  )
  assert needed <= {"libc.so.6", "libm.so.6", "libmvec.so.1", "ld-linux-x86-64.so.2"}
  names = subprocess.run(
    ["nm", "-D", "--defined-only", image], capture_output=True, text=True, check=True
  ).stdout
  assert all(line.split()[-1].startswith("husk_") for line in names.splitlines())


def test_export_is_deterministic(tmp_path):
  folders = [tmp_path / "one", tmp_path / "other"]
  for folder in folders:
    model, args, shapes = models.mlp()
    husk.write(model, args, folder, dynamic_shapes=shapes)
  names = sorted(path.name for path in folders[0].iterdir())
  assert names == sorted(path.name for path in folders[1].iterdir())
  for name in names:
    assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name


# Single constructs


def run(folder, function, args, shapes=None, runs=1, buffers=None):
  """Exports, runs and compares; returns the text."""
  model = FunctionModule(function, **(buffers or {}))
  path = husk.write(
    copy.deepcopy(model), args, folder, dynamic_shapes=shapes, targets=(f"host:{ISAS[0]}",)
  )
  program = hir_interpreter.Program(path)
  (target,) = program.variants
  for _ in range(runs):
    mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
    with torch.no_grad():
      close(
        program.run(
          target, **{value["name"]: one for value, one in zip(program.inputs, mine)}
        ).values(),
        model(*theirs),
      )
    for one, other in zip(mine, theirs, strict=True):  # inputs that are written
      if isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other)
  return path.read_text()


def test_outputs_that_are_copies(tmp_path):
  """The outputs are an input, a constant, a view, and the same buffer twice."""

  def function(self, x):
    y = x.exp()
    return y, y.t(), x, y[1:], self.c

  text = run(
    tmp_path,
    function,
    (torch.randn(4, 3),),
    [{0: Dim("rows", min=3, max=32)}],
    buffers={"c": torch.randn(3)},
  )
  assert text.count("copy (") == 5


def test_output_is_written_in_place(tmp_path):
  text = run(tmp_path, lambda self, x: {"only": x * 2}, (torch.randn(4, 3),))
  assert "copy (" not in text and "buffer only of output bytes 48" in text


def test_numbers_in_and_out(tmp_path):
  text = run(
    tmp_path,
    lambda self, x, n: (x * n, x.shape[0] * 2 + n, x.shape[0] * 0.5, None),
    (torch.randn(4, 3), 7),
    [{0: Dim("rows", max=32)}, Dim.DYNAMIC],
  )
  assert "output output2 float" in text and "output output3 none" in text


def test_values_taken_for_constants_are_checked(tmp_path):
  text = run(tmp_path, lambda self, x, f, b, n, e: x * f, (torch.randn(3), 2.5, True, None, 4))
  assert "check(feq(" in text and " int 4\n" in text and " none\n" in text


def test_state_with_a_start(tmp_path):
  """A cache that is written at an index, and one that starts with values. Each has a row, and its
  initial value stays constant."""

  def function(self, x, i):
    self.k.index_copy_(1, i, x)
    self.seed.mul_(2)
    return self.k.sum(1), self.seed[0]

  text = run(
    tmp_path,
    function,
    (torch.randn(2, 1, 4), torch.tensor([5])),
    runs=3,
    buffers={"k": torch.zeros(2, 16, 4), "seed": torch.arange(6.0).reshape(2, 3)},
  )
  assert (
    "state k f32 [2, 16, 4] fill 0" in text
    and "state seed f32 [2, 3] constant seed.initial" in text
  )


def test_input_that_is_written(tmp_path):
  run(tmp_path, lambda self, x: x.add_(1), (torch.randn(4, 3),), [{0: Dim("rows", max=32)}])


def test_views_of_one_storage_are_one_row(tmp_path):
  whole = torch.randn(6, 4)
  text = run(
    tmp_path,
    lambda self, x: x + self.whole.sum() + self.part.sum() + self.turned.sum(),
    (torch.randn(3),),
    buffers={"whole": whole, "part": whole[3:], "turned": whole[:2].t()},
  )
  assert len(re.findall("^constant ", text, re.M)) == 1


def test_value_read_from_a_tensor(tmp_path):
  def function(self, x, n):
    v = n.item()
    torch._check(v >= 0)
    torch._check(v < 10)
    return x * v + 1, v

  text = run(tmp_path, function, (torch.randn(4), torch.tensor(3)))
  assert "read i64 (read n[0, 8])" in text and re.search(
    r"let u0 = range\(result\(0\), 0, 9\)", text
  )


def test_sizes_that_are_expressions(tmp_path):
  rows = Dim("quarter", min=2, max=10)
  text = run(tmp_path, lambda self, x: x.view(-1, 4) * 2, (torch.randn(8, 3),), [{0: 4 * rows}])
  assert re.search(r"let \w+ = floordiv\(size\(\w+, 0\), 4\)", text) and "[8..40, 3]" in text


def test_operators_that_are_called(tmp_path):
  text = run(
    tmp_path,
    lambda self, x: (torch.topk(x, 3)[1], torch.sort(x)[0]),
    (torch.randn(4, 10),),
    [{0: Dim("rows", min=2, max=32)}],
  )
  assert re.search(r'extern "aten::topk" \(read tensor [^)]*, 3, -1, true, true, write ', text)


@pytest.mark.parametrize(
  "dtype", [torch.bfloat16, torch.float16, torch.float64, torch.uint8, torch.int32, torch.bool]
)
def test_dtypes(dtype, tmp_path):
  x = (torch.rand(5, 33) * 9).to(dtype)
  run(tmp_path, lambda self, x: (x.float() / 2).to(dtype), (x,), [{0: Dim("rows", max=32)}])


def test_long_reductions(tmp_path):
  """With more than one chunk the cascade has several levels."""
  run(
    tmp_path,
    lambda self, x: (x.sum(), x.mean(0), x.var(0), x.var(), x.double().var(1)),
    (torch.randn(20001, 3) + 5,),
    [{0: Dim("rows", max=100000)}],
  )


def test_functions_of_mathematics(tmp_path):
  names = (
    "sin cos tan exp log1p expm1 tanh atan asinh erf erfc lgamma sinh cosh exp2 log log2 log10 "
    "sigmoid"
  ).split()
  run(
    tmp_path,
    lambda self, x: (
      sum(getattr(torch, name)(x) for name in names),
      torch.pow(x, x),
      torch.atan2(x, -x),
      torch.fmod(x, x * 0.3 + 1),
      torch.hypot(x, x),
    ),
    (torch.rand(45) + 0.1,),
  )


def test_limits_of_32_bit_indices_are_checked(tmp_path):
  """Inductor assumes these conditions if the sizes have no upper limit."""
  path = husk.write(
    FunctionModule(lambda self, x: x.softmax(-1)),
    (torch.randn(8, 5),),
    tmp_path,
    targets=("cuda:h200",),
    dynamic_shapes=({0: Dim("rows")},),
  )
  assert re.search(r"check\(le\(mul\(5, s\d+\), 2147483647\)\)", path.read_text())


@pytest.mark.parametrize(
  "function, construct",
  [
    (lambda self, x: (torch.ops.higher_order.print("x {}", 1), x + 1)[1], "the line .*print"),
  ],
)
def test_refusals_name_the_construct(function, construct, tmp_path):
  with pytest.raises(husk.Unsupported, match=construct):
    husk.write(FunctionModule(function), (torch.randn(4, 3),), tmp_path)


def test_unknown_targets_are_refused(tmp_path):
  with pytest.raises(ValueError, match="host:avx2"):
    husk.write(FunctionModule(lambda self, x: x), (torch.randn(3),), tmp_path, targets=("vulkan",))
  with pytest.raises(ValueError, match="avx512"):
    husk.write(
      FunctionModule(lambda self, x: x), (torch.randn(3),), tmp_path, targets=("host:sse",)
    )


def test_an_export_that_fails_leaves_no_hook(tmp_path):
  class Branches(torch.nn.Module):
    def forward(self, x):
      return x if x.sum() > 0 else x + 1

  hooks = torch.nn.modules.module._global_buffer_registration_hooks
  before = dict(hooks)
  with pytest.raises(Exception, match="data-dependent|Could not guard"):
    husk.write(Branches(), (torch.ones(2),), tmp_path)
  assert dict(hooks) == before


class Cache:
  """A class whose constructor needs tensors, as that of a cache of transformers."""

  def __init__(self, values):
    self.values, self.device = values, values.device


torch.utils._pytree.register_pytree_node(
  Cache,
  lambda cache: ([cache.values], None),
  lambda leaves, context: Cache(*leaves),
  serialized_type_name="test_export.Cache",
  flatten_with_keys_fn=lambda cache: (
    [(torch.utils._pytree.GetAttrKey("values"), cache.values)],
    None,
  ),
)


def test_objects_that_need_tensors(tmp_path):
  class Model(torch.nn.Module):
    def forward(self, x, cache):
      return x + cache.values, Cache(x * 2)

  x = torch.randn(3)
  husk.export(Model(), (x, Cache(x)), tmp_path / "made.husk", targets=("host",))
  described = husk.inspect(tmp_path / "made.husk")
  assert [value.name for value in described.functions["forward"].outputs] == [
    "output0", "output1_0"
  ]  # fmt: skip
  results = husk.load(tmp_path / "made.husk")(x, x)
  torch.testing.assert_close([torch.as_tensor(one) for one in results], [2 * x, 2 * x])


def test_types_that_eager_mode_chooses(tmp_path):
  """A tensor of a number has floats, and index_add of bfloat16 gives bfloat16."""

  def function(self, x, y, number):
    rows = torch.tensor([0, 1, 0])
    return torch.scalar_tensor(number), torch.scalar_tensor(True), x.index_add(0, rows, y, alpha=2)

  x, y = (torch.randn(size).to(torch.bfloat16) for size in ((2, 5), (3, 5)))
  model = FunctionModule(function)
  husk.export(model, (x, y, 3), tmp_path / "a.husk", targets=(f"host:{ISAS[0]}",))
  results = husk.load(tmp_path / "a.husk")(x, y, 3)
  for result, expected in zip(results, model(x, y, 3), strict=True):
    torch.testing.assert_close(torch.as_tensor(result), expected, rtol=2e-2, atol=2e-2)
