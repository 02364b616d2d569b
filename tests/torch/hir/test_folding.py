"""Steps that depend on constants alone run once, when the file is opened (husk/hir/folding.py)."""

import re

import built_tools
import husk
import numpy
import on_fake_driver
import pytest
import torch
from cuda_numerics import computed
from husk import hir
from husk.hir import huskc
from torch import nn


def parts(text):
  """The text of the model's function, and that of the function that folds; empty if there is
  none."""
  functions = re.split(r"^(?=function )", text, flags=re.M)[1:]
  assert len(functions) <= 2
  return functions[0], functions[1] if len(functions) == 2 else ""


def written(model, args, folder, **options):
  """The text of the .hir for an H200."""
  return husk.write(model.eval(), args, folder, targets=("cuda:h200",), **options).read_text()


def convolutions():
  torch.manual_seed(0)
  return nn.Sequential(nn.Conv2d(16, 32, 3), nn.Conv2d(32, 16, 3)).half().eval()


def test_weights_move_once(tmp_path):
  model, x = convolutions(), torch.randn(1, 16, 12, 12).half()
  function, folding = parts(written(model, (x,), tmp_path))
  assert folding.count("launch") == 2
  assert len(re.findall(r"read _[01]\.weight\.folded", function)) == 2
  assert not re.search(r"read _[01]\.weight\b(?!\.)", function)
  last = model.to(memory_format=torch.channels_last)
  text = written(last, (x.to(memory_format=torch.channels_last),), tmp_path / "last")
  assert "folded" not in text


def test_results(tmp_path):
  model, x = convolutions().float(), torch.randn(1, 16, 12, 12)
  (results,) = computed(model, (x,), None, [{"input": x}], tmp_path)
  torch.testing.assert_close(results["output"], model(x), rtol=1e-2, atol=1e-2)
  assert "folded_by" in (tmp_path / "model.hir").read_text()


def test_the_description_hides_them(tmp_path):
  path = tmp_path / "model.husk"
  husk.export(convolutions(), (torch.randn(1, 16, 12, 12).half(),), path, targets=("cuda:h200",))
  described = husk.inspect(path)
  assert list(described.functions) == ["forward"]
  assert {one.name for one in described.constants} == {
    "_0.weight", "_0.bias", "_1.weight", "_1.bias"
  }  # fmt: skip
  assert described.folded_bytes == 2 * 16 * 32 * 9 * 2


def test_functions_share_what_they_fold(tmp_path):
  model, x = convolutions(), torch.randn(1, 16, 12, 12).half()
  functions = {
    "small": husk.Function(model, (x,)),
    "large": husk.Function(model, (torch.randn(1, 16, 24, 24).half(),)),
  }
  text = husk.write(functions, tmp_path, targets=("cuda:h200",)).read_text()
  assert text.count("folded_by") == 2
  assert len(re.findall(r"read _0\.weight\.folded", text)) == 2


def test_a_written_weight_is_no_constant(tmp_path):
  class Counts(nn.Module):
    def __init__(self):
      super().__init__()
      self.layer = nn.Conv2d(16, 32, 3)
      self.requires_grad_(False)

    def forward(self, x):
      result = self.layer(x)
      self.layer.weight.mul_(0.5)
      return result

  text = written(Counts().half(), (torch.randn(1, 16, 12, 12).half(),), tmp_path)
  assert "folded" not in text


class Expanded(nn.Module):
  """A weight of 8 bits in a product of 16 bits."""

  def __init__(self, rows):
    super().__init__()
    self.register_buffer("weight", torch.randint(-8, 8, (rows, 256), dtype=torch.int8))

  def forward(self, x):
    return x @ self.weight.to(x.dtype).t()


def test_what_takes_more_memory_than_its_constants_stays(tmp_path):
  x = torch.randn(1100, 256).half()  # with fewer rows a kernel multiplies with the codes
  assert not parts(written(Expanded(1024), (x,), tmp_path / "large"))[1]
  assert parts(written(Expanded(64), (x,), tmp_path / "small"))[1]


# The steps of a variant by hand.


def arena(name, size=1024):
  return hir.Buffer(name, "arena", hir.Literal(size))


def launch(kernel, *arguments):
  return hir.Launch(kernel, (hir.Literal(1),) * 3, list(arguments))


def folded(statements, results=()):
  program = hir.Program("a test", targets=['target gpu cuda "sm_90a"'])
  declared = {row: None for one in hir.walk(statements) for row in one.rows()}
  begin = [hir.Declare(row) for row in declared if row.space == "arena"]
  variant = hir.Variant("gpu", [*begin, *statements], list(results))
  program.functions = [hir.Function("f", [], [], [variant])]
  hir.fold(program, ["gpu"], hir.Names())
  kept = [one.kernel for one in hir.walk(variant.statements) if isinstance(one, hir.Launch)]
  moved = [
    one.kernel
    for function in program.functions[1:]
    for one in function.variants[0].statements
    if isinstance(one, hir.Launch)
  ]
  return kept, moved, program


W = hir.Buffer("w", "constant", hir.Literal(4096))
X = hir.Buffer("x", "input", hir.Literal(4096))
S = hir.Buffer("s", "state", hir.Literal(4096))


def read(buffer):
  return hir.View("read", buffer)


def write(buffer):
  return hir.View("write", buffer)


def test_a_chain_moves_as_a_whole():
  a, b, y = arena("a"), arena("b"), arena("y")
  kept, moved, program = folded(
    [launch("one", read(W), write(a)), launch("two", read(a), write(b)),
     launch("use", read(b), read(X), write(y))]
  )  # fmt: skip
  assert (kept, moved) == (["use"], ["one", "two"])
  assert program.data == ["constant w.folded u8 [1024] folded_by husk.fold.gpu"]
  assert "buffer a bytes" not in program.functions[0].text()
  assert "read w.folded" in program.functions[0].text()


def test_equal_steps_move_once():
  a, b, y = arena("a"), arena("b"), arena("y")
  kept, moved, program = folded(
    [launch("one", read(W), write(a)), launch("one", read(W), write(b)),
     launch("use", read(a), read(b), read(X), write(y))]
  )  # fmt: skip
  assert (kept, moved, len(program.data)) == (["use"], ["one"], 1)


def use(a, y):
  return launch("u", read(a), read(X), write(y))


@pytest.mark.parametrize(
  "steps",
  {
    "reads an input": lambda a, y: [launch("k", read(X), write(a)), use(a, y)],
    "reads a state": lambda a, y: [launch("k", read(S), write(a)), use(a, y)],
    "is written twice": lambda a, y: [
      launch("k", read(W), write(a)), use(a, y),
      launch("k", read(W), write(a)), use(a, y),
    ],
    "is written by a later step": lambda a, y: [
      launch("k", read(W), write(a)), use(a, y), launch("u", read(X), write(a))
    ],
    "is changed in place": lambda a, y: [
      launch("k", read(W), write(a)), launch("u", hir.View("both", a), read(X), write(y))
    ],
    "is read before it is written": lambda a, y: [
      launch("k", hir.View("both", a), read(W)), use(a, y)
    ],
    "has an assert": lambda a, y: [
      launch("k", read(W), write(a), hir.AssertPointer()), use(a, y)
    ],
    "has a size that varies": lambda a, y: [
      launch("k", read(W), write(a), hir.Name("n")), use(a, y)
    ],
    "is written in a loop": lambda a, y: [
      hir.Loop(hir.Literal(1), [launch("k", read(W), write(a))], []), use(a, y)
    ],
    "writes an output": lambda a, y: [
      launch("k", read(W), write(hir.Buffer("out", "output", hir.Literal(8))))
    ],
  }.items(),
  ids=lambda case: case[0],
)  # fmt: skip
def test_what_stays(steps):
  name, make = steps
  kept, moved, program = folded(make(arena("a"), arena("y")))
  assert not moved, name
  assert len(program.functions) == 1 and not program.data


def test_a_loop_reads_what_was_folded():
  a, y = arena("a"), arena("y")
  loop = hir.Loop(hir.Literal(1), [launch("use", read(a), read(X), write(y))], [])
  kept, moved, program = folded([launch("one", read(W), write(a)), loop])
  assert (kept, moved) == (["use"], ["one"])
  assert "read w.folded" in program.functions[0].text()


# The constant w, 1 and 2, with its elements in the other order.
BY_HAND = """hir 1
target cpu host "x86-64"
constant w f32 [2] bytes "0000803f00000040"
constant w.folded u8 [8] folded_by fold
function forward {
  output y tensor f32 rank 1
  variant cpu {
    buffer y of output bytes 8
    copy (write y, read w.folded)
    return (tensor y f32 [2] [1])
  }
}
function fold {
  output out tensor u8 rank 1
  variant cpu {
    buffer out of output bytes 8
    copy (write out[0, 4], read w[4, 4])
    copy (write out[4, 4], read w[0, 4])
    return (tensor out u8 [8] [1])
  }
}
"""


def test_a_program_computes_them(tmp_path):
  """Python, with a file of the host that is written by hand."""
  (tmp_path / "model.hir").write_text(BY_HAND)
  huskc.compile(tmp_path / "model.hir", tmp_path / "model.husk")
  program = husk.load(tmp_path / "model.husk")
  result = program()
  assert numpy.array_equal(numpy.asarray(result), [2.0, 1.0])


def test_a_device_computes_them(tmp_path, monkeypatch):
  """The CUDA port, on the fake driver, which copies but has no kernels."""
  monkeypatch.setenv("LD_LIBRARY_PATH", str(on_fake_driver.folder_of("libcuda.so.1")))
  text = BY_HAND.replace('host "x86-64"', 'cuda "sm_90a"')
  (tmp_path / "model.hir").write_text(text)
  huskc.compile(tmp_path / "model.hir", tmp_path / "model.husk")
  for mode in ("list", "graph"):
    code, outputs, printed = built_tools.husk_run(
      tmp_path / "model.husk", tmp_path, {}, "--device=cuda", f"--mode={mode}", "--repeat=2"
    )
    assert code == 0, printed
    assert outputs["0"].tolist() == [2.0, 1.0]
