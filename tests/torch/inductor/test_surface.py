"""The list of PyTorch's private names, compared with the installed PyTorch; and what checks it."""

import ast
import re
import types

import pytest
import surface
import torch
from husk.cuda import fake_cuda, products, tuning
from husk.inductor import replace, shape_functions, torch_compat
from husk.inductor.surface import SURFACE, TESTED

ROOT = surface.ROOT

# The installed PyTorch


def test_every_name_is_there():
  assert surface.missing_paths(torch.__version__, surface.rows()) == {}


def test_no_name_is_there_that_its_row_denies():
  rows = [(module, row) for module, some in SURFACE.items() for row in some]
  denied = [(module, row) for module, row in rows if not row.is_in(torch.__version__)]
  assert denied
  assert [p for module, row in denied for p in row.paths(module) if surface.exists(p)] == []


def test_every_line_of_the_wrapper_is_known():
  assert surface.unknown_lines(surface.rows()) == []


def test_every_place_that_asks_for_sizes_is_there():
  assert list(surface.missing_places()) == []


@pytest.mark.parametrize(
  "path", ["torch._inductor.nothing.here", "torch._inductor.ir.Nothing", "torch._C._nothing"]
)
def test_a_name_that_is_not_there_is_found_missing(path):
  assert not surface.exists(path)


def test_attributes_of_objects_are_there():
  """The class has neither: one is set by its methods, the other by a method of its base class."""
  assert surface.exists("torch._inductor.graph.GraphLowering.removed_buffers")
  assert surface.exists("torch._inductor.graph.SubgraphLowering.removed_buffers")
  assert not surface.exists("torch._inductor.graph.GraphLowering.removed_things")


# Versions


def minor(text):
  major, minor, *_ = text.split(".")
  return int(major), int(minor)


def test_the_package_accepts_the_tested_versions_and_those_between():
  project = (ROOT / "compiler" / "torch" / "pyproject.toml").read_text()
  lower, upper = re.search(r'"torch>=([\d.]+),<([\d.]+)"', project).groups()
  newest = minor(TESTED[-1])
  assert (lower, minor(upper)) == (TESTED[0], (newest[0], newest[1] + 1))


def test_the_environments_have_the_tested_versions():
  folder = ROOT / "compiler" / "torch"
  files = ["requirements.txt", *(f"requirements-{version}.txt" for version in TESTED[1:])]
  pinned = [re.search(r"^torch==(.*)$", (folder / f).read_text(), re.MULTILINE)[1] for f in files]
  assert [minor(version) for version in pinned] == [minor(version) for version in TESTED]


def test_rows_name_versions_from_the_oldest_to_the_newest():
  for row in (row for rows in SURFACE.values() for row in rows):
    first, last = minor(row.first), minor(row.last or TESTED[-1])
    assert minor(TESTED[0]) <= first <= last <= minor(TESTED[-1]), row


# Replacing


def test_what_is_replaced_needs_a_row():
  from torch._inductor import ir

  before = ir.Buffer
  with pytest.raises(LookupError, match="torch._inductor.ir.Buffer is no row of .* replaced"):
    with replace.replaced((ir, "Buffer", None)):
      pass
  assert ir.Buffer is before
  with pytest.raises(LookupError, match="torch._inductor.lowering.fallbacks is no row"):
    with replace.replaced_entries("torch._inductor.lowering.fallbacks", {}):
      pass


@pytest.mark.parametrize("mode", ["heuristic", "max"])
def test_everything_that_is_replaced_for_a_gpu_has_a_row(mode):
  target = fake_cuda.Target.load("h200")
  tuned = tuning.Tuning(mode)
  found = [
    *fake_cuda._stand_ins(target, lambda name: None),
    *fake_cuda._without_a_gpu(target),
    *products.replacements(target, tuned),
    shape_functions.smaller_sizes(),
  ]
  assert len(found) > 30
  for owner, name, _ in found:
    replace.require_row(owner, name, vars(owner).get(name))


def test_earlier_replacements_are_undone_if_a_later_one_is_refused():
  from torch._inductor import graph, ir

  before = graph.is_mkldnn_conv
  with pytest.raises(LookupError):
    with replace.replaced((graph, "is_mkldnn_conv", len), (ir, "Buffer", None)):
      pass
  assert graph.is_mkldnn_conv is before


def test_attributes_and_entries_are_restored():
  from torch._inductor import cpu_vec_isa, lowering

  avx2, op = cpu_vec_isa.VecAVX512, torch.ops.aten.add.Tensor
  inherits, known = "__bool__" not in vars(avx2), dict(lowering.lowerings)
  with (
    replace.replaced((avx2, "__bool__", lambda self: True)),
    replace.replaced_entries("torch._inductor.lowering.lowerings", {op: len, "new": len}),
  ):
    assert avx2() and lowering.lowerings[op] is len and "new" in lowering.lowerings
  assert inherits == ("__bool__" not in vars(avx2))
  assert lowering.lowerings == known


def test_a_function_that_other_modules_import_is_replaced_by_its_own_row():
  from torch._inductor import utils

  other = types.ModuleType("torch._inductor.other")
  other.is_big_gpu = utils.is_big_gpu
  with replace.replaced((other, "is_big_gpu", len)):
    assert other.is_big_gpu is len and utils.is_big_gpu is not len
  assert other.is_big_gpu is utils.is_big_gpu


def test_an_option_needs_a_row():
  assert torch_compat.known_options({"max_autotune": False}) == {"max_autotune": False}
  with pytest.raises(LookupError, match="the option max_autotone is no row"):
    torch_compat.known_options({"max_autotone": False})


# The check of style


@pytest.mark.parametrize(
  ("text", "found"),
  [
    ("from torch._inductor import novelty", "torch._inductor.novelty has no row"),
    ("import torch\ntorch._novel()", "torch._novel has no row"),
    ("from torch._inductor import ir\nnodes: Any = ir\nnodes.Novel()", "ir.Novel has no row"),
    (
      "from torch._inductor.virtualized import V\nV.graph.novel",
      "torch._inductor.virtualized.V.graph.novel has no row",
    ),
    ("from triton.runtime import novel", "triton.runtime.novel has no row"),
    ("def f(tensor): return tensor._novel", "._novel has no row"),
    ("def f(tensor): return getattr(tensor, '_novel', None)", "._novel has no row"),
    ("def f(node): return type(node).__name__ == 'Novel'", "Novel has no row"),
    ("class V:\n  def visit_NovelLine(self, line): pass", "NovelLine has no row"),
    ("TABLE = 'torch._inductor.novel.table'", "torch._inductor.novel.table has no row"),
    (
      "from torch._inductor import graph\ngraph.is_mkldnn_conv = len",
      "torch._inductor.graph.is_mkldnn_conv is replaced without",
    ),
    (
      "from torch._inductor import lowering\nlowering.lowerings[op] = len",
      "torch._inductor.lowering.lowerings is replaced without",
    ),
    (
      "from torch._inductor import lowering\nt = lowering.lowerings\nt.update({})",
      "torch._inductor.lowering.lowerings is replaced without",
    ),
    (
      "import torch\nsetattr(torch.cuda, 'device_count', len)",
      "torch.cuda is replaced without",
    ),
  ],
)
def test_what_has_no_row_is_refused(text, found):
  names = surface.Names(ast.parse(text))
  (fault,) = surface.faults_of(names, surface.Rows(), names.own)
  assert found in fault[1]


@pytest.mark.parametrize(
  "text",
  [
    "import torch\ntorch.zeros(3).sum()",
    "from torch._inductor import ir\nir.TensorBox.create(None)",
    "class Own:\n  def __init__(self): self._own = 1\ndef f(own): return own._own",
    "import torch\ndef f(torch): torch.x = 1",
    "import torch\ntorch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "import sys\nsys._getframe(1)",
  ],
)
def test_other_names_are_allowed(text):
  names = surface.Names(ast.parse(text))
  assert surface.faults_of(names, surface.Rows(), names.own) == []
