"""Operators that only hosts have, in programs for CUDA targets: steps on the CPU between copies.
Programs with kernels run by Triton's interpreter, others on the fake driver."""

import pathlib
import re
import subprocess

import built_tools
import husk
import pytest
import torch
from cuda_numerics import computed
from function_module import FunctionModule
from husk import hir
from husk.lower import host_steps
from husk.recurrent import operator as recurrent_operator

DIM = torch.export.Dim


def check(function, args, folder, shapes=None, others=(), tolerance=1e-4, **buffers):
  """Exports a function of tensors, runs it by the interpreter with `args` and with `others`, and
  compares; returns the text of the program."""
  model = FunctionModule(function, **buffers)
  names = function.__code__.co_varnames[1 : 1 + len(args)]
  runs = [dict(zip(names, arguments)) for arguments in (args, *others)]
  for inputs, result in zip(runs, computed(model, args, shapes, runs, folder)):
    expected = torch.utils._pytree.tree_leaves(model(*inputs.values()))
    for one, other in zip(result.values(), expected, strict=True):
      torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
  return (folder / "model.hir").read_text()


def written(function, args, folder, **options):
  model = function if isinstance(function, torch.nn.Module) else FunctionModule(function)
  return husk.write(model, args, folder, targets=["cuda:h200"], **options).read_text()


def regular(*sizes):
  """Matrices that have an inverse."""
  return torch.randn(*sizes) + 4 * torch.eye(sizes[-1])


def copies(text):
  """The destination and the source of each copy."""
  found = re.findall(r"copy \(write ([^,\[]+)(?:\[.*?\])?, read ([^,)\[]+)", text)
  return [tuple(pair) for pair in found]


# Where memory lies


def test_kernels_and_host_steps(tmp_path):
  torch.manual_seed(3)

  def function(self, x):
    inverse = torch.linalg.inv((x * 2).relu() + 5 * torch.eye(4))
    return (inverse + 1).sin()

  text = check(function, (torch.randn(3, 4, 4),), tmp_path)
  assert text.count("launch") == 2
  assert copies(text) == [("buf0_on_host", "buf0"), ("output", "output_on_host")]
  # No other step uses the second result of the operator.
  assert "buffer buf3 bytes 12 align 64 on host" in text


def test_sizes_that_vary(tmp_path):
  torch.manual_seed(3)

  def function(self, x):
    return torch.linalg.inv(x + 1) * 2, torch.linalg.det(x.transpose(1, 2))

  n = DIM("n", min=1, max=9)
  shapes = {"x": {0: DIM("batch", min=1, max=8), 1: n, 2: n}}
  others = [(regular(batch, n, n),) for batch, n in ((1, 1), (8, 9), (2, 1), (1, 5))]
  text = check(function, (regular(3, 4, 4),), tmp_path, shapes, others)
  assert "min(" not in text  # the bytes of dense tensors are a product


def test_a_chain_passes_its_results_on_the_host(tmp_path):
  torch.manual_seed(3)

  def function(self, x, y):
    inverse = torch.linalg.inv(x)
    solved = torch.linalg.solve(inverse, y)
    return torch.linalg.det(solved)

  text = check(function, (regular(4, 4), regular(4, 4)), tmp_path)
  assert copies(text) == [("x_on_host", "x"), ("y_on_host", "y"), ("output", "output_on_host")]


def test_a_copy_on_the_host_that_is_current_serves_several_steps(tmp_path):
  torch.manual_seed(3)

  def function(self, x):
    twice = x * 2
    inverse = torch.linalg.inv(twice)
    return inverse + 1, torch.linalg.det(inverse), torch.linalg.det(twice)

  text = check(function, (regular(4, 4),), tmp_path)
  downloads = [pair for pair in copies(text) if pair[0].endswith("_on_host")]
  assert downloads == [("buf0_on_host", "buf0")]


def test_constants(tmp_path):
  torch.manual_seed(3)

  def function(self, x):
    return torch.linalg.solve(self.weight, x + 1) * 2

  text = check(function, (torch.randn(4, 2),), tmp_path, weight=regular(4, 4))
  assert ("weight_on_host", "weight") in copies(text)


def test_tensors_that_are_not_dense(tmp_path):
  torch.manual_seed(3)

  def function(self, x):
    return torch.linalg.inv(x[:, 1:5, ::2]) * 2

  others = [(regular(3, 8, 8),)]
  shapes = {"x": {0: DIM("batch", min=1, max=8)}}
  check(function, (torch.randn(2, 8, 8),), tmp_path, shapes, others, tolerance=1e-3)


def test_sizes_that_the_data_decides(tmp_path):
  def function(self, x):
    rows, _, _ = torch.unique(x * 2, dim=0, return_inverse=True, return_counts=True)
    return rows + 1

  args = (torch.tensor([[1.0, 2], [3, 4], [1, 2]]),)
  text = check(function, args, tmp_path, others=[(torch.zeros(3, 2),), (torch.randn(3, 2),)])
  assert text.index("aten::unique_dim:sizes") < text.index('"aten::unique_dim"')
  downloads = [pair for pair in copies(text) if pair[0].endswith("_on_host")]
  assert downloads == [("buf0_on_host", "buf0")]  # both calls read one copy


def test_a_state_that_a_host_step_reads(tmp_path):
  def function(self, x):
    self.total.add_(x)
    return torch.linalg.det(self.total)

  model = FunctionModule(function, total=torch.eye(3))
  runs = [{"x": regular(3, 3)} for _ in range(3)]
  total = torch.eye(3)
  for inputs, result in zip(runs, computed(model, (runs[0]["x"],), None, runs, tmp_path)):
    total = total + inputs["x"]
    torch.testing.assert_close(result["output"], torch.linalg.det(total), rtol=1e-4, atol=1e-4)


def test_branches_and_loops(tmp_path):
  torch.manual_seed(3)

  def function(self, x):
    def body(i, x):
      return i + 1, torch.linalg.inv(x).contiguous() + torch.eye(3)

    start = torch.zeros((), dtype=torch.int64)
    _, looped = torch.while_loop(lambda i, x: i < 3, body, (start, x * 1))
    chosen = torch.cond(
      x.sum() > 0, lambda x: torch.linalg.inv(x) * 2, lambda x: torch.linalg.inv(-x), (x,)
    )
    return looped, chosen, torch.linalg.inv(x) + 1

  check(function, (regular(3, 3),), tmp_path, others=[(-regular(3, 3),)], tolerance=1e-3)


def test_complex_numbers(tmp_path):
  torch.manual_seed(3)

  def function(self, x, y):
    return torch.view_as_real(torch.linalg.inv(torch.complex(x, y)) * 2)

  text = check(function, (regular(3, 3), torch.randn(3, 3)), tmp_path)
  assert "on_host c64 [3, 3]" in text


# On the fake driver


@pytest.fixture
def driver(monkeypatch):
  folder = pathlib.Path(built_tools.built("husk-run")).parents[1] / "fake_driver"
  if not (folder / "libcuda.so.1").exists():
    pytest.skip("the fake driver is not built")
  monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))


def run(artifact, folder, inputs, *options):
  """The results of an artifact on the fake driver, in the order of its outputs."""
  named = {str(index): value for index, value in enumerate(inputs)}
  code, outputs, text = built_tools.husk_run(artifact, folder, named, "--device=cuda", *options)
  assert code == 0, text
  return [outputs[name] for name in sorted(outputs)]


def check_on_driver(function, inputs, folder, shapes=None, tolerance=1e-4, **buffers):
  """Exports a program without kernels, and runs it with each of `inputs`; the first is exported."""
  model = FunctionModule(function, **buffers)
  path = folder / "model.husk"
  husk.export(model, inputs[0], path, dynamic_shapes=shapes, targets=["cuda:h200"], keep=folder)
  assert "launch" not in (folder / "model.hir").read_text()
  for arguments in inputs:
    expected = torch.utils._pytree.tree_leaves(model(*arguments))
    for mode in ("list", "auto"):
      results = run(path, folder, arguments, f"--mode={mode}", "--repeat=3")
      for one, other in zip(results, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
  return path


def test_a_chain_on_the_driver(driver, tmp_path):
  torch.manual_seed(3)

  def function(self, x, y):
    inverse = torch.linalg.inv_ex(x)[0]
    solved = torch.linalg.solve_ex(inverse, y)[0]
    return solved, torch.linalg.det(solved), torch.linalg.inv_ex(self.weight)[0]

  batch = DIM("batch", min=1, max=8)
  inputs = [(regular(size, 4, 4), torch.randn(size, 4, 4)) for size in (3, 1, 8)]
  shapes = ({0: batch}, {0: batch})
  path = check_on_driver(function, inputs, tmp_path, shapes, weight=regular(4, 4))
  (variant,) = husk.inspect(path).functions["forward"].variants
  assert variant.ways == {
    "copies": 6,
    "aten::linalg_inv_ex on the host": 2,
    "aten::_linalg_solve_ex on the host": 1,
    "aten::_linalg_det on the host": 1,
  }
  assert variant.host_peak_bytes > 0
  text = husk.inspect(path).summary()
  assert "2 aten::linalg_inv_ex on the host" in text and "KiB on the host" in text


def test_sizes_that_the_data_decides_on_the_driver(driver, tmp_path):
  def function(self, x):
    return torch.unique(x, dim=0)

  inputs = [
    (torch.tensor(rows),) for rows in ([[1.0, 2], [3, 4], [1, 2]], [[0.0, 0]] * 3, [[3.0, 1]] * 3)
  ]
  check_on_driver(function, inputs, tmp_path)


def test_branches_on_the_driver(driver, tmp_path):
  torch.manual_seed(3)

  def inverse(x):
    return torch.linalg.inv_ex(x)[0]

  def function(self, chosen, x):
    return torch.cond(chosen, lambda x: inverse(inverse(x)), inverse, (x,))

  inputs = [(torch.tensor(chosen), regular(3, 3)) for chosen in (True, False)]
  check_on_driver(function, inputs, tmp_path)


def test_numbers_that_host_steps_compute_on_the_driver(driver, tmp_path):
  torch.manual_seed(3)

  def function(self, x):
    return torch.linalg.inv(x), torch.linalg.det(x).item()

  model = FunctionModule(function)
  path = tmp_path / "model.husk"
  husk.export(model, (regular(3, 3),), path, targets=["cuda:h200"], keep=tmp_path)
  text = (tmp_path / "model.hir").read_text()
  assert "launch" not in text and re.search(r"read f32 \(read buf\d+\[0, 4\]\)", text)
  (name,) = re.findall(r"read f32 \(read (buf\d+)", text)
  assert f"buffer {name} bytes 4 align 64 on host" in text
  x = regular(3, 3)
  inverse, determinant = run(path, tmp_path, (x,))
  torch.testing.assert_close(inverse, torch.linalg.inv(x), rtol=1e-4, atol=1e-4)
  assert determinant.item() == pytest.approx(torch.linalg.det(x).item(), rel=1e-4)


def doubling_kernels(folder):
  """Compiles the kernels of a program, all of which compute 2 x, for the fake driver."""
  for row in re.findall(r"^kernel .*$", (folder / "model.hir").read_text(), re.M):
    image, symbol, parameters = re.fullmatch(r'kernel \S+ (\S+) "(\w+)" \((.*?)\).*', row).groups()
    kinds = parameters.split(", ")
    tensors = kinds.index("i32")
    assert kinds[tensors:] == ["i32", "ptr", "ptr"] and tensors in (1, 2)
    sizes = "".join("4, " if kind == "i32" else "8, " for kind in kinds)
    code = f"""
#include "fake.h"
__attribute__((visibility("default"))) const uint32_t {symbol}_param_sizes[] = {{
  {sizes}FAKE_PARAMS_END}};
__attribute__((visibility("default"))) void {symbol}(const fake_grid* grid, void** params) {{
  const float* x = *(const float**)params[0];
  float* y = *(float**)params[{tensors - 1}];
  (void)grid;
  for (int32_t i = 0; i < *(const int32_t*)params[{tensors}]; ++i) y[i] = x[i] * 2;
}}
"""
    command = [
      "cc",
      "-shared",
      "-fPIC",
      "-I",
      built_tools.ROOT / "tests/fake_driver",
      "-x",
      "c",
      "-",
    ]
    subprocess.run([*command, "-o", folder / image], input=code, text=True, check=True)


def test_kernels_between_host_steps_on_the_driver(driver, tmp_path):
  torch.manual_seed(3)

  def function(self, x):
    return torch.linalg.det(torch.linalg.inv(x * 2) * 2), torch.linalg.inv(x) * 2

  model, n = FunctionModule(function), DIM("n", min=1, max=9)
  path, shapes = tmp_path / "model.husk", {"x": {0: n}}
  written(model, (regular(3, 4, 4),), tmp_path, dynamic_shapes=shapes)
  doubling_kernels(tmp_path)
  subprocess.run([built_tools.built("huskc"), tmp_path / "model.hir", "-o", path], check=True)
  for batch in (3, 1, 9):
    x = regular(batch, 4, 4)
    for mode in ("list", "auto"):
      results = run(path, tmp_path, (x,), f"--mode={mode}", "--repeat=3")
      for one, other in zip(results, model(x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


# Texts of refusals and announcements


class TwoInverses(torch.nn.Module):
  def forward(self, x):
    inverse = torch.linalg.inv_ex(x)[0] + 1
    return torch.linalg.inv_ex(inverse)[0], torch.linalg.det(x + 1)


def test_host_steps_are_announced(tmp_path, caplog):
  text = written(TwoInverses(), (regular(3, 3),), tmp_path)
  said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
  assert len(said) == 2
  for line, name in zip(said, ("linalg_inv_ex", "_linalg_det")):
    assert re.search(
      rf"cuda_h200: aten::{name} runs on the CPU, between copies \(near test_host_steps.py:\d+ ",
      line,
    )
    assert f"# {line}" in text
  expected = "2 aten::linalg_inv_ex, 1 aten::_linalg_det"
  assert f'user "husk.host_ops.cuda_h200" "{expected}"' in text


def test_programs_without_host_steps_say_nothing(tmp_path, caplog):
  text = written(lambda self, x: torch.sort(x * 2), (torch.randn(8),), tmp_path)
  assert "on the CPU" not in caplog.text and "host" not in text


def test_host_steps_of_all_functions_are_counted(tmp_path):
  model = TwoInverses()
  functions = {name: husk.Function(model, (regular(3, 3),)) for name in ("one", "two")}
  text = husk.write(functions, tmp_path, targets=["cuda:h200"]).read_text()
  assert '"4 aten::linalg_inv_ex, 2 aten::_linalg_det"' in text


def test_they_are_refused_on_request(tmp_path):
  with pytest.raises(husk.Unsupported) as refused:
    written(TwoInverses(), (regular(3, 3),), tmp_path, host_ops="forbid")
  text = str(refused.value)
  assert "no implementation of aten::linalg_inv_ex (near test_host_steps.py" in text
  assert text.endswith(
    '; host_ops="allow" would run aten::linalg_inv_ex, aten::_linalg_det on the CPU'
  )
  with pytest.raises(ValueError, match="host_ops='never': give one of 'allow', 'forbid'"):
    written(TwoInverses(), (regular(3, 3),), tmp_path, host_ops="never")


def test_on_the_command_line(tmp_path, capsys):
  from husk import __main__ as command

  (tmp_path / "model.py").write_text(
    "import torch\n\nclass Inverse(torch.nn.Module):\n  def forward(self, x):\n"
    "    return torch.linalg.inv(x)\n\ndef model():\n  return Inverse(), (torch.eye(3),)\n"
  )
  words = [f"{tmp_path}/model.py:model", "--keep", str(tmp_path), "--target", "cuda:h200"]
  assert command.main(words) == 0
  assert "husk: cuda_h200: aten::linalg_inv_ex runs on the CPU" in capsys.readouterr().err
  assert command.main([*words, "--host-ops", "forbid"]) == 1
  assert 'host_ops="allow" would run aten::linalg_inv_ex' in capsys.readouterr().err


def test_operators_that_draw_random_numbers_are_refused(tmp_path):
  with pytest.raises(
    husk.Unsupported, match="the CPU has aten::poisson, but draws random"
  ) as refused:
    written(lambda self, x: torch.poisson(x), (torch.ones(3),), tmp_path)
  assert "would run" not in str(refused.value)


def test_an_operator_that_torch_runs_for_the_shapes_of_its_results(tmp_path, monkeypatch):
  from husk.host import operators

  names = operators.names() | {"aten::geqrf", "aten::histogram.bin_ct"}
  monkeypatch.setattr(operators, "names", lambda: names)

  def function(self, x):
    return *torch.geqrf(x * 2), *torch.histogram(x * 3, 4)

  text = check(function, (torch.randn(5, 3),), tmp_path)
  assert 'extern "aten::geqrf" (read tensor buf0_on_host f32 [5, 3] [3, 1]' in text


# Models that move tensors between devices


def parameters_on_the_cpu(self, x):
  return x * torch.tensor(2.0) + self.weight.to("cpu"), x[torch.tensor([1, 0])]


MOVES = {
  "constants and indices": parameters_on_the_cpu,
  "an operator between moves": lambda self, x: torch.linalg.inv((x * 2).cpu()).to(x.device) + 1,
  "device_put": lambda self, x: torch.ops.prims.device_put(x * 2, torch.device("cpu")) + x,
  "a tensor of the CPU": lambda self, x: x + torch.arange(3.0, device="cpu").to("cpu"),
  "a branch": lambda self, x: torch.cond(
    x.sum() > 0,
    lambda x: x.cpu() * 2 + torch.ones(3, 3, device="cpu"),
    lambda x: torch.ops.prims.device_put(x, torch.device("cpu")) * 3,
    (x,),
  ),
}


@pytest.mark.parametrize("name", MOVES)
def test_tensors_lie_on_the_device_of_the_target(name, tmp_path):
  torch.manual_seed(3)
  model = FunctionModule(MOVES[name], weight=torch.randn(3, 3))
  runs = [{"x": sign * regular(3, 3)} for sign in (1, -1)]
  for inputs, result in zip(runs, computed(model, (runs[0]["x"],), None, runs, tmp_path)):
    expected = torch.utils._pytree.tree_leaves(model(inputs["x"]))
    for one, other in zip(result.values(), expected, strict=True):
      torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_model_of_two_devices(tmp_path):
  """What a model exported on a machine with a GPU may have: inputs there, and parts on the CPU."""
  from torch._subclasses import FakeTensorMode

  def function(self, x):
    return torch.linalg.inv((x * 2).cpu()).to("cuda") + x

  with FakeTensorMode():
    x = torch.empty(3, 3, device="cuda")
  exported = torch.export.export(FunctionModule(function), (x,), strict=False)
  text = husk.write(exported, (), tmp_path, targets=["cuda:h200"]).read_text()
  assert text.count("launch ") == 2 and copies(text) == [
    ("buf0_on_host", "buf0"),
    ("output", "output_on_host"),
  ]


# Statements


def buffer(name, elements, space="arena"):
  return hir.Buffer(name, space, hir.Literal(4 * elements), 64)


def tensor(access, memory, sizes, strides, offset=0, dtype="f32"):
  literals = ([hir.Literal(n) for n in part] for part in (sizes, strides))
  return hir.Tensor(access, memory, dtype, *literals, hir.Literal(offset))


def placed(*statements):
  """The lines of statements after `place`. The operators of the namespace `on` run on the host."""
  names = hir.Names()
  for statement in hir.walk(statements):
    for row in statement.rows():
      names.take(row.name)

  def is_host_step(statement):
    return isinstance(statement, hir.Extern) and statement.name.startswith("on::")

  placed = host_steps.place(list(statements), is_host_step, names)
  return [line for statement in placed for line in statement.lines()]


def launch(access, memory):
  return hir.Launch("k", (hir.Literal(1),) * 3, [hir.View(access, memory)])


def test_programs_without_host_steps_stay_as_they_are():
  x = buffer("x", 4)
  statements = [hir.Declare(x), hir.Extern("off::f", [tensor("both", x, [4], [1])])]
  assert host_steps.place(statements, lambda name: False, hir.Names()) is statements
  assert not x.on_host


def test_an_operand_in_place_is_copied_to_the_host_and_back():
  x = buffer("x", 4, "state")
  lines = placed(hir.Extern("on::f", [tensor("both", x, [2, 2], [2, 1])], "model.py:1"))
  assert lines == [
    "buffer x_on_host bytes 16 align 64 on host",
    'copy (write x_on_host, read x) at "model.py:1"',
    'extern "on::f" (both tensor x_on_host f32 [2, 2] [2, 1]) at "model.py:1"',
    'copy (write x, read x_on_host) at "model.py:1"',
  ]


def test_a_tensor_that_a_step_reads_and_writes_has_one_copy():
  x = buffer("x", 4, "state")
  whole = ([4], [1])
  lines = placed(hir.Extern("on::f", [tensor("write", x, *whole), tensor("read", x, *whole)]))
  assert [line.split()[0] for line in lines] == ["buffer", "copy", "extern", "copy"]


def test_parts_of_a_buffer():
  """Only the bytes of a part are copied; those between its elements keep their values."""
  x = buffer("x", 20, "state")
  lines = placed(
    hir.Extern("on::f", [tensor("read", x, [4], [1], 8), tensor("write", x, [3, 2], [4, 2], 1)])
  )
  assert lines == [
    "buffer x_on_host bytes 16 align 64 on host",
    "copy (write x_on_host, read x[32, 16])",
    "buffer x_on_host_2 bytes 44 align 64 on host",
    "copy (write x_on_host_2, read x[4, 44])",
    'extern "on::f" (read tensor x_on_host f32 [4] [1], '
    "write tensor x_on_host_2 f32 [3, 2] [4, 2])",
    "copy (write x[4, 44], read x_on_host_2)",
  ]


def test_a_step_that_writes_two_parts_of_a_buffer():
  x = buffer("x", 8, "state")
  parts = [tensor("write", x, [4], [1], offset) for offset in (0, 4)]
  read = [tensor("read", x, [4], [1], offset) for offset in (0, 4)]
  lines = placed(hir.Extern("on::f", parts), hir.Extern("on::g", read))
  assert sum("copy (write x[" in line for line in lines) == 2
  assert sum(", read x[" in line for line in lines) == 2  # the parts might have overlapped


def test_a_part_that_is_written_makes_copies_of_other_parts_stale():
  x = buffer("x", 8, "state")
  whole, half = ([8], [1]), ([4], [1])
  lines = placed(
    hir.Extern("on::f", [tensor("read", x, *whole)]),
    hir.Extern("on::g", [tensor("write", x, *half)]),
    hir.Extern("on::h", [tensor("read", x, *half)]),
    hir.Extern("on::h", [tensor("read", x, *whole)]),
  )
  assert [line for line in lines if ", read x)" in line] == [
    "copy (write x_on_host, read x)",
    "copy (write x_on_host_3, read x)",
  ]
  assert not any(", read x[" in line for line in lines)


@pytest.mark.parametrize(
  "access, downloads", [("read", 1), ("write", 2), ("both", 2), ("atomic", 2)]
)
def test_a_copy_is_current_until_a_kernel_writes_the_tensor(access, downloads):
  x = buffer("x", 4)
  step = hir.Extern("on::f", [tensor("read", x, [4], [1])])
  again = hir.Extern("on::f", [tensor("read", x, [4], [1])])
  lines = placed(hir.Declare(x), launch("write", x), step, launch(access, x), again)
  assert sum("read x)" in line and "copy" in line for line in lines) == downloads


def test_what_only_host_steps_use_lies_on_the_host():
  x, y, work = buffer("x", 4, "input"), buffer("y", 4), buffer("work", 100)
  result = buffer("result", 4, "output")
  lines = placed(
    hir.Declare(y),
    hir.Declare(work),
    hir.Extern(
      "on::f",
      [
        hir.TensorList([tensor("read", x, [4], [1]), hir.NoneArg()]),
        tensor("write", y, [4], [1]),
        tensor("write", work, [400], [1], dtype="u8"),
      ],
    ),
    hir.Copy(hir.View("write", result), hir.View("read", y)),
    hir.Read("f32", hir.View("read", y)),
  )
  assert lines == [
    "buffer y bytes 16 align 64 on host",
    "buffer work bytes 400 align 64 on host",
    "buffer x_on_host bytes 16 align 64 on host",
    "copy (write x_on_host, read x)",
    'extern "on::f" (tensors [read tensor x_on_host f32 [4] [1], none], '
    "write tensor y f32 [4] [1], write tensor work u8 [400] [1])",
    "copy (write result, read y)",
    "read f32 (read y)",
  ]


def test_what_a_kernel_uses_lies_on_the_device():
  for user in (
    lambda y: launch("read", y),
    lambda y: hir.Fill("f32", hir.View("write", y), hir.Literal(0.0)),
    lambda y: hir.Extern("off::f", [tensor("read", y, [4], [1])]),
    lambda y: hir.Copy(hir.View("write", buffer("z", 4)), hir.View("read", y)),
  ):
    y = buffer("y", 4)
    lines = placed(hir.Declare(y), hir.Extern("on::f", [tensor("write", y, [4], [1])]), user(y))
    assert lines[0] == "buffer y bytes 16 align 64" and "copy (write y, read y_on_host)" in lines


def test_copies_are_made_again_in_blocks():
  x = buffer("x", 4, "input")
  step = [hir.Extern("on::f", [tensor("read", x, [4], [1])]) for _ in range(5)]
  lines = placed(
    step[0],
    hir.When(hir.Literal(1), yes=[step[1]], no=[step[2]]),
    hir.Loop(hir.Literal(1), before=[step[3]], after=[]),
    step[4],
  )
  assert sum("read x)" in line for line in lines) == 5


def test_bytes_of_tensors_of_sizes_that_vary():
  n, m = hir.Name("n"), hir.Name("m")
  nm = hir.op("mul", n, m)

  def lines(sizes, strides, size=None):
    memory = hir.Buffer("x", "input", size or hir.Literal(0))
    step = hir.Extern("on::f", [hir.Tensor("write", memory, "f32", sizes, strides)])
    return placed(step)

  # Dense: in any order of the dimensions, and if strides of empty tensors are at least 1.
  dense = hir.op("mul", hir.op("mul", 4, m), n)
  one = hir.Literal(1)
  for sizes, strides in (
    ([n, m], [m, one]),
    ([m, n], [one, m]),
    ([n, m], [hir.op("max", 1, m), one]),
    ([n, one, m], [m, nm, one]),
  ):
    first, *rest = lines(sizes, strides, dense)
    assert first == "buffer x_on_host bytes mul(mul(4, m), n) align 64 on host"
    assert rest[-1] == "copy (write x, read x_on_host)" and len(rest) == 2
  # The square of a size is its product with itself.
  (first, *_) = lines(
    [n, n, m], [nm, m, one], hir.op("mul", hir.op("pow", n, 2), hir.op("mul", m, 4))
  )
  assert first == "buffer x_on_host bytes mul(pow(n, 2), mul(m, 4)) align 64 on host"
  # Not dense: what lies between the elements is copied first. An empty tensor has no bytes.
  first, download, *_ = lines([n, hir.Literal(3)], [hir.Literal(5), one])
  extent = "mul(mul(min(n, 1), add(add(1, mul(add(n, -1), 5)), 2)), 4)"
  assert first == f"buffer x_on_host bytes {extent} align 64 on host"
  assert download == f"copy (write x_on_host, read x[0, {extent}])"
  (first, *_) = lines([hir.Literal(0), n], [n, one])
  assert first.startswith("buffer x_on_host bytes 0 ")


def test_a_step_computes_with_the_features_of_the_cpu(tmp_path, monkeypatch):
  """Layers of an LSTM multiply matrices by kernels for the CPU's instruction set, which the device
  of the program does not know. Programs without kernels run on the fake driver, so the LSTM gets
  none."""
  torch.manual_seed(0)
  monkeypatch.setattr(recurrent_operator, "rewrite", lambda exported, devices: exported)

  class Layers(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.first, self.second = torch.nn.LSTM(5, 3), torch.nn.LSTM(3, 7)

    def forward(self, x, h, c, h2, c2):
      y, (h, c) = self.first(x, (h, c))
      z, (h2, c2) = self.second(y, (h2, c2))
      return z, h, c, h2, c2

  shapes = ((6, 4, 5), (1, 4, 3), (1, 4, 3), (1, 4, 7), (1, 4, 7))
  inputs = tuple(torch.randn(shape) for shape in shapes)
  model = Layers().eval()
  folder = pathlib.Path(built_tools.built("husk-run")).parents[1] / "fake_driver"
  if not folder.exists():
    pytest.skip("the fake driver is not built")
  monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
  husk.export(model, inputs, tmp_path / "made.husk", targets=("cuda:h200",), keep=tmp_path)
  text = (tmp_path / "model.hir").read_text()
  assert text.count('extern "aten::mkldnn_rnn_layer"') == 2 and " launch " not in text
  named = {str(number): x for number, x in enumerate(inputs)}
  code, outputs, text = built_tools.husk_run(
    tmp_path / "made.husk", tmp_path, named, "--device=cuda"
  )
  assert code == 0, text
  with torch.no_grad():
    for number, right in enumerate(model(*inputs)):
      torch.testing.assert_close(outputs[str(number)], right, rtol=1e-5, atol=1e-5)
