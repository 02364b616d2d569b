"""Sizes that an export promises: a program runs at every size of its range, at the export nothing
pins one, and a size that the operator refuses is refused."""

import logging
import pathlib
import re

import husk
import pytest
import sympy
import torch
import torch.nn.functional as F
from built_tools import husk_run
from cuda_numerics import computed
from export_and_compare import ISAS, run
from export_operators import uncompiled
from function_module import FunctionModule
from husk.inductor import assumed
from torch._inductor import lowering
from torch._inductor.virtualized import V
from torch.export import Dim

AUTO = Dim.AUTO


def numbers(*shape):
  return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def image(*inside):
  """A tensor of two channels with the sizes `inside`."""
  return (numbers(1, 2, *inside),)


def inside(rank):
  """All sizes but those of batch and channels vary."""
  return dict.fromkeys(range(2, 2 + rank), AUTO)


# Function, arguments of the export, which sizes vary, other arguments.
CASES = {
  "avg_pool1d": (
    lambda self, x: F.avg_pool1d(x, 30, 3, 2),
    1,
    [(31,), (34,), (43,)],
  ),
  "avg_pool2d": (
    lambda self, x: F.avg_pool2d(x, 6, 3, 2, count_include_pad=False),
    2,
    [(13, 7), (16, 10), (31, 13)],
  ),
  "avg_pool2d, rounding up": (
    lambda self, x: F.avg_pool2d(x, 6, 3, 2, ceil_mode=True),
    2,
    [(13, 7), (14, 5), (32, 10), (15, 6)],
  ),
  "max_pool2d": (
    lambda self, x: F.max_pool2d(x, (2, 3), return_indices=True),
    2,
    [(6, 12), (7, 13), (8, 11)],
  ),
  "max_pool2d, rounding up": (
    lambda self, x: F.max_pool2d(x, 3, (2, 3), 1, (1, 2), ceil_mode=True),
    2,
    [(6, 12), (7, 13), (8, 11), (5, 14)],
  ),
  "adaptive_avg_pool1d": (
    lambda self, x: F.adaptive_avg_pool1d(x, 3),
    1,
    [(12,), (2,), (13,), (24,)],
  ),
  "adaptive_avg_pool2d": (
    lambda self, x: F.adaptive_avg_pool2d(x, (2, 3)),
    2,
    [(6, 12), (7, 13), (2, 24), (40, 3)],
  ),
  "adaptive_avg_pool3d": (
    lambda self, x: F.adaptive_avg_pool3d(x, (2, 3, 1)),
    3,
    [(6, 12, 3), (7, 13, 2), (2, 4, 5)],
  ),
  "adaptive_max_pool1d": (
    lambda self, x: F.adaptive_max_pool1d(x, 3),
    1,
    [(12,), (2,), (13,), (24,)],
  ),
  "adaptive_max_pool2d": (
    lambda self, x: F.adaptive_max_pool2d(x, (2, 3), return_indices=True),
    2,
    [(6, 12), (7, 13), (2, 24), (40, 3)],
  ),
  "adaptive_max_pool3d": (
    lambda self, x: F.adaptive_max_pool3d(x, (2, 3, 1)),
    3,
    [(6, 12, 3), (7, 13, 2), (2, 4, 5)],
  ),
  "area": (
    lambda self, x: F.interpolate(x, size=(2, 3), mode="area"),
    2,
    [(6, 12), (7, 13), (2, 24), (40, 3)],
  ),
  "area_of_a_size": (
    lambda self, x: F.interpolate(x[:, :, None], size=(x.shape[2], 4, 3), mode="area"),
    2,
    [(6, 5), (4, 3)],
  ),
  "nearest": (
    lambda self, x: F.interpolate(x, size=5, mode="nearest"),
    1,
    [(12,), (2,), (13,), (64,)],
  ),
  "nearest_exact": (
    lambda self, x: F.interpolate(x, size=(5, 7), mode="nearest-exact"),
    2,
    [(6, 12), (7, 13), (2, 24), (40, 3)],
  ),
  "nearest_by_a_factor": (
    lambda self, x: F.interpolate(x, scale_factor=(1.7, 0.6), mode="nearest"),
    2,
    [(6, 12), (7, 13), (4, 24), (40, 5)],
  ),
  "slice_scatter": (
    lambda self, x: torch.slice_scatter(x, x + 1, 3, 0, 20),
    2,
    [(6, 20), (7, 19), (5, 8)],
  ),
  "diagonal": (lambda self, x: x.diagonal(1, 2, 3), 2, [(3, 8), (8, 3), (6, 6), (9, 4)]),
  "diagonal_below": (lambda self, x: x.diagonal(-1, 2, 3) + 1, 2, [(3, 8), (8, 3), (6, 6), (9, 4)]),
}


def arguments(name):
  function, rank, sizes = CASES[name]
  return FunctionModule(function), [image(*each) for each in sizes], {"x": inside(rank)}


# The cases of one export, in which each has an input of its own.
GROUPS = {
  "pools": [name for name in CASES if name.startswith(("avg_pool", "max_pool"))],
  "adaptive pools": [name for name in CASES if name.startswith("adaptive")],
  "resized": [name for name in CASES if name.startswith(("area", "nearest"))],
  "parts": [name for name in CASES if name.startswith(("slice", "diagonal"))],
}


def test_groups_have_all_cases():
  assert sorted(sum(GROUPS.values(), [])) == sorted(CASES)


@pytest.mark.parametrize("group", GROUPS)
def test_all_sizes_run_on_hosts(tmp_path, group):
  cases = [CASES[name] for name in GROUPS[group]]
  model = FunctionModule(
    lambda self, *xs: [function(self, x) for (function, *_), x in zip(cases, xs, strict=True)]
  )
  count = max(len(sizes) for *_, sizes in cases)
  first, *others = (
    tuple(*zip(*(image(*sizes[min(i, len(sizes) - 1)]) for *_, sizes in cases)))
    for i in range(count)
  )
  run(tmp_path, model, first, {"xs": tuple(inside(rank) for _, rank, _ in cases)}, others)


@pytest.mark.parametrize("name", CASES)
def test_all_sizes_run_on_a_gpu(tmp_path, name):
  model, argument_sets, shapes = arguments(name)
  results = computed(
    model, argument_sets[0], shapes, [{"x": x} for (x,) in argument_sets], tmp_path
  )
  for (x,), result in zip(argument_sets, results, strict=True):
    torch.testing.assert_close(
      list(result.values()), list(torch.utils._pytree.tree_leaves(model(x))), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
  "function", [lambda x: torch.linalg.norm(x, "nuc", (1, 2)), torch.pinverse], ids=["nuc", "pinv"]
)
def test_the_rank_of_a_matrix_is_not_that_of_the_example(tmp_path, function):
  run(
    tmp_path,
    lambda self, x: function(x),
    (numbers(3, 4, 4),),
    {"x": {0: AUTO, 1: AUTO}},
    [(numbers(2, 13, 4),), (numbers(2, 2, 4),)],
  )


N = Dim("n", min=0, max=20)

# Functions of a tensor of 3 dimensions that refuse an empty last one, and a part of the message.
REFUSED = {
  "nearest": (lambda x: F.interpolate(x, size=4, mode="nearest"), "greater than 0"),
  "linear": (lambda x: F.interpolate(x, size=4, mode="linear"), "greater than 0"),
  "replicate": (lambda x: F.pad(x, (1, 1), mode="replicate"), "non-zero dimensions"),
  "circular": (lambda x: F.pad(x, (1, 1), mode="circular"), "wrapping around more than once"),
  "adaptive_avg_pool": (lambda x: F.adaptive_avg_pool1d(x, 2), "non-zero size"),
  "adaptive_max_pool": (lambda x: F.adaptive_max_pool1d(x, 2), "non-zero size"),
  "largest": (lambda x: x.amax(-1), "zero-size dimension"),
  "place_of_the_largest": (lambda x: x.argmax(-1), "non-zero size"),
  "batch_norm": (
    lambda x: torch.ops.aten.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)[0],
    "at least one element",
  ),
  "clamped_index": (
    lambda x: x[:, :, torch.arange(4).clamp(max=x.shape[2] - 1)],
    "index is out of bounds for dimension with size 0",
  ),
  # No operator of a branch is asked at the export: the kernel itself checks the index.
  "clamped_index_in_a_branch": (
    lambda x: torch.cond(
      x.sum() < 1e9,
      lambda x: x[:, :, torch.arange(4).clamp(max=x.shape[2] - 1)],
      lambda x: x.new_zeros(1, 2, 4),
      (x,),
    ),
    "index out of bounds",
  ),
}


def test_a_size_that_lowering_takes_for_another_is_refused_under_its_name(tmp_path):
  """The sizes of the source become those of the tensor, and the index must find a row there."""
  args = numbers(5, 6), torch.tensor([1, 0, 1]), numbers(5, 3)
  program = torch.export.export(
    FunctionModule(lambda self, x, index, source: x.index_reduce(1, index, source, "amin")),
    args,
    dynamic_shapes={"x": {0: AUTO, 1: AUTO}, "index": {0: AUTO}, "source": {0: AUTO, 1: AUTO}},
  )
  for symbol, sizes in program.range_constraints.items():
    program.range_constraints[symbol] = type(sizes)(0, 20)
  text = husk.write(program, args, tmp_path, targets=("cuda:h200",)).read_text()
  (check,) = [line for line in text.splitlines() if "out of range for tensor" in line]
  size = re.search(r"let (\w+) = size\(x, 1\)", text).group(1)
  assert f"lt(0, {size})" in check, check


def of_tensor(function):
  """A module of a function without `self`."""
  return FunctionModule(lambda self, x: function(x))


def exported_together(tmp_path_factory, functions, x, sizes):
  """The artifact of several functions of x, whose kernels are compiled at once. `sizes` are those
  of x that vary, by the name of the function."""
  return husk.export(
    {
      name: husk.Function(of_tensor(function), (x,), dynamic_shapes={"x": sizes[name]})
      for name, (function, *_) in functions.items()
    },
    tmp_path_factory.mktemp("together") / "made.husk",
    targets=(f"host:{ISAS[0]}",),
  )


@pytest.fixture(scope="module")
def refusing(tmp_path_factory):
  sizes = dict.fromkeys(REFUSED, {2: N})
  return exported_together(tmp_path_factory, REFUSED, numbers(1, 2, 6), sizes)


@pytest.mark.parametrize("name", REFUSED)
def test_an_empty_dimension_is_refused_as_in_eager_mode(refusing, tmp_path, name):
  (function, message), option = REFUSED[name], f"--function={name}"
  with pytest.raises((RuntimeError, IndexError)):
    function(numbers(1, 2, 0))
  code, _, text = husk_run(refusing, tmp_path, {"x": numbers(1, 2, 0)}, option)
  assert code and message in text, text
  code, outputs, text = husk_run(refusing, tmp_path, {"x": numbers(1, 2, 9)}, option)
  assert code == 0, text
  torch.testing.assert_close(outputs["0"], function(numbers(1, 2, 9)), rtol=1e-5, atol=1e-5)


def test_an_empty_index_of_an_empty_tensor_runs(tmp_path):
  path = husk.export(
    FunctionModule(lambda self, x, index: x.gather(0, index)),
    (numbers(4, 6), torch.tensor([[1, 3, 2]])),
    tmp_path / "made.husk",
    dynamic_shapes={"x": {1: N}, "index": {1: Dim("m", min=0, max=20)}},
    targets=(f"host:{ISAS[0]}",),
  )
  empty = torch.zeros(1, 0, dtype=torch.int64)
  code, outputs, text = husk_run(path, tmp_path, {"x": numbers(4, 0), "index": empty})
  assert code == 0 and outputs["0"].shape == (1, 0), text
  code, _, text = husk_run(
    path, tmp_path, {"x": numbers(4, 0), "index": torch.zeros(1, 2, dtype=torch.int64)}
  )
  assert code, text


def test_an_empty_batch_runs(tmp_path):
  run(
    tmp_path,
    lambda self, x: (F.pad(x, (1, 1), mode="replicate"), F.interpolate(x, size=4), x.amax(-1)),
    (numbers(2, 2, 6),),
    {"x": {0: N, 2: Dim("m", min=2, max=20)}},
    [(numbers(0, 2, 5),), (numbers(1, 2, 5),)],
  )


def test_the_mean_of_nothing_is_not_a_number(tmp_path):
  run(
    tmp_path,
    lambda self, x: (*torch.var_mean(x, 1), *torch.std_mean(x, (0, 1))),
    (numbers(3, 6),),
    {"x": {0: Dim("m", max=20), 1: N}},
    [(numbers(3, 0),), (numbers(0, 0),), (numbers(0, 4),), (numbers(4, 5),)],
  )


def test_a_part_of_an_empty_batch_is_empty(tmp_path):
  """A part begins behind the memory of a tensor without elements."""

  def parts(self, x):
    product = x[:, 2] @ x.new_ones(7, 7)
    return x[:, 2], x[:, 1].t(), product, (x + 1)[:, :, 3], x[:, 2:4] * 2

  run(
    tmp_path,
    parts,
    (numbers(3, 6, 7),),
    {"x": {0: N}},
    [(numbers(0, 6, 7),), (numbers(1, 6, 7),), (numbers(5, 6, 7),)],
  )


# Functions of a matrix of 5 columns, each with the numbers of rows that it takes and does not take.
SMALL = {
  "last_two_rows": (lambda x: x[-2:] * 2, (2, 7), (0, 1)),
  "first_row": (lambda x: x[:1] + 1, (1, 7), (0,)),
  "squeezed": (lambda x: x.squeeze(0) + 1, (0, 2), (1,)),
  "two_squeezed": (lambda x: x[:, :1].squeeze() + 1, (0, 7), (1,)),
  "cubes": (lambda x: x.as_strided((2, 2), (5, 1), 3) + 1, (2, 7), (0, 1)),
  "cubes_of_a_part": (lambda x: x[1:].as_strided((2, 2), (5, 1), 5) + 1, (3, 7), (2,)),
  "scattered": (lambda x: x.as_strided_scatter(x[0, 1:3], (2,), (5,), 4), (2, 7), (1,)),
  "largest_of_some": (lambda x: x[x > 0].max() + 1, (1, 7), (0,)),
  "some_squeezed": (lambda x: x[:, 0].nonzero().squeeze(0) + 1, (2, 7), (1,)),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
  sizes = {name: {0: AUTO if name == "cubes_of_a_part" else N} for name in SMALL}
  return exported_together(tmp_path_factory, SMALL, numbers(7, 5).abs(), sizes)


@pytest.mark.parametrize("name", SMALL)
def test_small_sizes_that_torch_takes_for_larger_ones_are_refused(small, tmp_path, name):
  (function, taken, refused), option = SMALL[name], f"--function={name}"
  for rows in refused:
    code, _, text = husk_run(small, tmp_path, {"x": numbers(rows, 5).abs()}, option)
    assert code and "--function" not in text, text
  for rows in taken:
    x = numbers(rows, 5).abs()
    code, outputs, text = husk_run(small, tmp_path, {"x": x}, option)
    assert code == 0, text
    torch.testing.assert_close(outputs["0"], function(x))


def test_a_guard_that_cannot_be_computed_for_a_small_size(tmp_path):
  """torch's remainder takes no negative number, which n - 2 is for n = 0."""
  model = FunctionModule(lambda self, x: F.avg_pool3d(x, 2, 2, 0, True) + x[-2:].sum())
  args = (numbers(1, 2, 6, 4, 4),)
  program = torch.export.export(model, args, dynamic_shapes={"x": {2: AUTO}})
  (symbol,) = program.range_constraints
  assert any("%" in guard for guard in program._guards_code)
  program.range_constraints[symbol] = type(program.range_constraints[symbol])(0, 99)
  husk.write(program, args, tmp_path, targets=(f"host:{ISAS[0]}",))


def test_a_view_by_strides_that_does_not_fit_is_an_error_of_the_export(tmp_path):
  def view(self, x):
    return x.as_strided((2, 2), (5, 1), 3) + 1

  for x, message in (
    (numbers(2, 2), "ends 24 bytes behind the memory"),
    (numbers(40)[2:], "begins inside of its storage: export with a clone"),
  ):
    with pytest.raises(husk.Unsupported, match=message):
      husk.write(FunctionModule(view), (x,), tmp_path, targets=(f"host:{ISAS[0]}",))


def test_a_size_that_the_data_decides_may_be_0(tmp_path):
  def first_two(self, x):
    positive = x[x > 0]
    return positive[torch.arange(2).clamp(max=positive.shape[0] - 1)]

  path = husk.export(
    FunctionModule(first_two),
    (torch.tensor([1.0, -2.0, 3.0]),),
    tmp_path / "made.husk",
    targets=(f"host:{ISAS[0]}",),
  )
  code, outputs, text = husk_run(path, tmp_path, {"x": torch.tensor([-1.0, 5.0, -7.0])})
  assert code == 0 and outputs["0"].tolist() == [5.0, 5.0], text
  code, _, text = husk_run(path, tmp_path, {"x": torch.tensor([-1.0, -5.0, -7.0])})
  assert code and "index is out of bounds for dimension with size 0" in text, text


# Convolutions whose arguments are sizes: function, arguments of the export, sizes that vary, shapes
# of other arguments.
CONVOLUTIONS = {
  "groups": (
    lambda self, x, w: F.conv1d(x, w, groups=x.shape[1]),
    [((2, 4, 16), (4, 1, 5)), ((3, 2, 9), (2, 1, 3)), ((3, 3, 20), (6, 1, 2))],
    {"x": {0: AUTO, 1: AUTO, 2: AUTO}, "w": {0: AUTO, 2: AUTO}},
  ),
  "groups_of_two_channels": (
    lambda self, x, w: F.conv2d(x, w, groups=x.shape[1] // 2, stride=2),
    [((2, 4, 8, 9), (6, 2, 3, 3)), ((3, 6, 8, 5), (3, 2, 3, 3)), ((2, 4, 8, 9), (8, 2, 3, 3))],
    {"x": {0: AUTO, 1: AUTO, 3: AUTO}, "w": {0: AUTO}},
  ),
  "kernel": (
    lambda self, x, w: F.conv2d(x, w, dilation=(1, 2)),
    [((2, 3, 8, 9), (6, 3, 3, 2)), ((2, 4, 6, 7), (6, 4, 2, 3)), ((2, 2, 7, 8), (6, 2, 4, 4))],
    {"x": {1: AUTO, 2: AUTO, 3: AUTO}, "w": {1: AUTO, 2: AUTO, 3: AUTO}},
  ),
  "padding": (
    lambda self, x, w: F.conv1d(x, w, padding=w.shape[2] - 1),
    [((2, 3, 8), (4, 3, 3)), ((4, 3, 6), (4, 3, 5)), ((3, 3, 5), (4, 3, 2))],
    {"x": {0: AUTO, 2: AUTO}, "w": {2: AUTO}},
  ),
  "same_padding": (
    lambda self, x, w: F.conv3d(x, w, padding="same", dilation=2),
    [
      ((1, 2, 8, 8, 8), (3, 2, 2, 3, 2)),
      ((1, 2, 5, 6, 7), (3, 2, 3, 2, 4)),
      ((1, 2, 9, 4, 6), (3, 2, 4, 4, 3)),
    ],
    {"x": {2: AUTO, 3: AUTO, 4: AUTO}, "w": {2: AUTO, 3: AUTO, 4: AUTO}},
  ),
  "unbatched": (
    lambda self, x, w: F.conv1d(x, w, groups=x.shape[0]),
    [((4, 16), (4, 1, 5)), ((2, 9), (4, 1, 3)), ((3, 20), (3, 1, 2))],
    {"x": {0: AUTO, 1: AUTO}, "w": {0: AUTO, 2: AUTO}},
  ),
}


def convolution(name):
  function, shapes, dynamic = CONVOLUTIONS[name]
  return FunctionModule(function), [(numbers(*x), numbers(*w)) for x, w in shapes], dynamic


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_with_sizes_as_arguments_run_on_hosts(tmp_path, name):
  model, (first, *others), shapes = convolution(name)
  run(tmp_path, model, first, shapes, others)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_with_sizes_as_arguments_run_on_a_gpu(tmp_path, name):
  model, argument_sets, shapes = convolution(name)
  named = [{"x": x, "w": w} for x, w in argument_sets]
  results = computed(model, argument_sets[0], shapes, named, tmp_path)
  for one, result in zip(argument_sets, results, strict=True):
    torch.testing.assert_close([*result.values()], [model(*one)], rtol=1e-5, atol=1e-5)


def test_a_pinned_size_is_an_error_of_the_export(tmp_path, monkeypatch):
  def pinning(x):
    assert V.graph.sizevars.guard_int(x.get_size()[0]) == 4
    return original(x)

  original = lowering.lowerings[torch.ops.aten.sin.default]
  monkeypatch.setitem(lowering.lowerings, torch.ops.aten.sin.default, pinning)
  with pytest.raises(husk.Unsupported, match=r"x\.size\(\)\[0\] vary.*sin.*= 4 alone: give this"):
    husk.write(
      FunctionModule(lambda self, x: x.sin()),
      (numbers(4),),
      tmp_path,
      dynamic_shapes={"x": {0: AUTO}},
      targets=(f"host:{ISAS[0]}",),
    )


# Functions of a tensor of three dimensions whose programs for a GPU take all of its sizes.
UNLIMITED = {
  "topk": lambda x: x.topk(2, 1),
  "sort": lambda x: x.sort(1),
  "kthvalue": lambda x: x.kthvalue(2, 2),
  "group_norm": lambda x: F.group_norm(x, 2, x.new_ones(x.shape[1]), x.new_zeros(x.shape[1])),
  "batch_norm": lambda x: F.batch_norm(x, x[0, :, 0], x[0, :, 0], x[0, :, 1], x[0, :, 1]),
}


@pytest.mark.parametrize("name", UNLIMITED)
def test_a_program_for_a_gpu_assumes_no_size(tmp_path, name, caplog):
  function = UNLIMITED[name]
  dynamic = {0: AUTO, 2: AUTO} if name == "batch_norm" else {1: AUTO, 2: AUTO}
  args = (numbers(4, 4, 8),)
  exported = torch.export.export(
    FunctionModule(lambda self, x: function(x)), args, dynamic_shapes={"x": dynamic}
  )
  with caplog.at_level(logging.WARNING, "husk"), uncompiled():
    text = husk.write(exported, args, tmp_path, targets=("cuda:h200",)).read_text()
  assert "runs only with" not in caplog.text and "the kernels assume" not in text


# Functions of a matrix, two indices of columns and two columns. In eager mode they refuse columns
# that are longer than those of the matrix; torch.export asks nothing.
INDEXED = {
  "index_add": lambda x, index, y: x.index_add(1, index, y),
  "index_copy": lambda x, index, y: x.index_copy(1, index, y),
  "index_reduce": lambda x, index, y: x.index_reduce(1, index, y, "amax"),
  "index_put": lambda x, index, y: torch.ops.aten.index_put(x, [None, index], y),
  "select_scatter": lambda x, index, y: x.select_scatter(y[:, 0], 1, 1),
}


@pytest.mark.parametrize("name", INDEXED)
def test_sizes_that_must_be_equal_are_compared(tmp_path, name, caplog):
  model = FunctionModule(lambda self, x, index, y: INDEXED[name](x, index, y))
  args = numbers(4, 3), torch.tensor([1, 0]), numbers(4, 2)
  shapes = {"x": {0: AUTO, 1: AUTO}, "index": None, "y": {0: AUTO}}
  with caplog.at_level(logging.WARNING, "husk"), uncompiled():
    text = husk.write(
      model, args, tmp_path, dynamic_shapes=shapes, targets=("cuda:h200",)
    ).read_text()
  assert caplog.text.count("runs only with sizes for which Eq(") == 1, caplog.text
  assert re.search(r"check_eq\(size\(y, 0\), s\d+\) .size 0 of y", text), text
  path = husk.export(
    model, args, tmp_path / "made.husk", dynamic_shapes=shapes, targets=(f"host:{ISAS[0]}",)
  )
  inputs = {"x": numbers(2, 3), "index": args[1], "y": numbers(70, 2)}
  with pytest.raises((RuntimeError, IndexError)):
    model(**inputs)
  code, _, text = husk_run(path, tmp_path, inputs)
  assert code and "size 0 of y" in text, text


def indices(*values):
  return torch.tensor(values)


# Functions with arguments of the export, arguments that eager mode refuses, and others.
MATCHED = {
  "slice_scatter": (
    lambda x, y: x.slice_scatter(y, 0, 2, 6),
    (numbers(20, 6), numbers(4, 6)),
    [(numbers(20, 6), numbers(3, 6)), (numbers(20, 6), numbers(4, 5))],
    [(numbers(9, 5), numbers(4, 5)), (numbers(4, 6), numbers(2, 6))],
  ),
  "slice_scatter_at_the_end": (
    lambda x, y: x.slice_scatter(y, 0, -5, step=2),
    (numbers(20, 6), numbers(3, 6)),
    [(numbers(20, 6), numbers(5, 6)), (numbers(3, 6), numbers(3, 6))],
    [(numbers(9, 5), numbers(3, 5)), (numbers(3, 6), numbers(2, 6))],
  ),
  "ormqr": (
    torch.ormqr,
    (numbers(5, 4), numbers(4), numbers(5, 3)),
    [(numbers(5, 4), numbers(3), numbers(5, 3))],
    [(numbers(6, 3), numbers(3), numbers(6, 5)), (numbers(3, 5), numbers(3), numbers(3, 5))],
  ),
  "segment_reduce": (
    lambda x, lengths: torch.segment_reduce(x, "sum", lengths=lengths),
    (numbers(8), indices(3, 5)),
    [(numbers(8), indices(3, 4)), (numbers(8), indices(9, -1))],
    [(numbers(9), indices(2, 3, 4)), (numbers(5), indices(0, 5))],
  ),
  "unsafe_segment_reduce": (
    lambda x, lengths: torch.segment_reduce(x, "max", lengths=lengths, unsafe=True),
    (numbers(8), indices(3, 5)),
    [],
    [(numbers(9), indices(2, 3, 2))],
  ),
}


@pytest.mark.parametrize("name", MATCHED)
def test_arguments_that_do_not_fit_are_refused_as_in_eager_mode(tmp_path, name):
  function, args, refused, taken = MATCHED[name]
  model = FunctionModule(lambda self, x, y, z=None: function(*(x, y, z)[: len(args)]))
  shapes = dict(zip("xyz", (dict.fromkeys(range(one.ndim), AUTO) for one in args)))
  targets = (f"host:{ISAS[0]}",)
  path = husk.export(model, args, tmp_path / "made.husk", dynamic_shapes=shapes, targets=targets)
  for inputs in refused:
    with pytest.raises(RuntimeError):
      model(*inputs)
    code, _, text = husk_run(path, tmp_path, dict(zip("xyz", inputs)))
    assert code, text
  for inputs in (args, *taken):
    code, outputs, text = husk_run(path, tmp_path, dict(zip("xyz", inputs)))
    assert code == 0, text
    torch.testing.assert_close(outputs["0"], model(*inputs), rtol=1e-5, atol=1e-5)


def test_a_gpu_checks_lengths_of_segments(tmp_path):
  for unsafe, checks in ((False, 1), (True, 0)):
    with uncompiled():
      text = husk.write(
        FunctionModule(
          lambda self, x, y, unsafe=unsafe: torch.segment_reduce(x, "sum", lengths=y, unsafe=unsafe)
        ),
        (numbers(8), indices(3, 5)),
        tmp_path,
        targets=("cuda:h200",),
      ).read_text()
    assert text.count("the lengths of segments do not add up") == checks, text


def test_masked_indices_of_a_model_stay_inside(tmp_path):
  """The operators check nothing, and eager mode clamps the indices."""
  aten = torch.ops.aten
  mask, index = torch.tensor([[True], [True], [False], [True]]), indices(1, -2, 900, 50)

  def function(self, x, mask, index, values):
    return (
      aten._unsafe_masked_index(x, mask, [index], 7.0),
      aten._unsafe_masked_index_put_accumulate(x, mask, [index], values),
    )

  run(
    tmp_path,
    function,
    (numbers(6, 3), mask, index, numbers(4, 3)),
    {"x": {0: AUTO}, "mask": None, "index": None, "values": None},
    [(numbers(3, 3), mask, index - 30, numbers(4, 3))],
  )


def program(**options):
  """An exported program with the sizes a, which may be 0, and b."""
  return torch.export.export(
    FunctionModule(lambda self, x: x + 1),
    (numbers(4, 6),),
    dynamic_shapes={"x": {0: Dim("a", min=0, max=9), 1: Dim("b", min=2, max=20)}},
    **options,
  )


def facts(shapes):
  return len(shapes.guards), dict(shapes.replacements), dict(shapes.var_to_range)


def test_assumptions_are_found_and_forgotten():
  exported = program()
  shapes = assumed.environment(exported)
  before = facts(shapes)
  a, b = (size.node.expr for size in exported.graph.output_node().args[0][0].meta["val"].shape)
  with assumed.kept([exported]):
    with assumed.restored(shapes):
      assert shapes.evaluate_expr(sympy.Le(b, 7))
      assert shapes.evaluate_expr(sympy.Eq(a, 4))
      conditions = {each.condition for each in assumed.found(shapes)}
      assert conditions == {sympy.Le(b, 7), sympy.Eq(a, 4)}
      assert assumed.pinned(shapes, sympy.Eq(a, 4)) == (a, 4)
      assert assumed.pinned(shapes, sympy.Le(b, 7)) is None
      assert assumed.pinned(shapes, sympy.Eq(a * b, 18)) == (a * b, 18)
      assert assumed.pinned(shapes, sympy.Eq(a - b, 18)) is None
      assert assumed.pinned(shapes, sympy.Eq(sympy.Mod(a * b, 18), 0)) is None
      assert assumed.text(shapes, sympy.Le(b, 7)) == "x.size()[1] <= 7"
      assert assumed.promise(shapes, a) == "0..9"
      assert not assumed.bounds(shapes, b / a).lower.is_Integer  # torch bounds no such quotient
    # Another target begins with what torch.export has promised, and finds the same.
    assert not assumed.found(shapes)
    assert shapes.evaluate_expr(sympy.Eq(a, 4))
    assert [each.condition for each in assumed.found(shapes)] == [sympy.Eq(a, 4)]
  assert facts(shapes) == before


def test_conditions_that_are_deferred_to_a_run_are_found():
  exported = program(prefer_deferred_runtime_asserts_over_guards=True)
  shapes = assumed.environment(exported)
  b = exported.graph.output_node().args[0][0].meta["val"].shape[1].node.expr
  with assumed.kept([exported]), assumed.restored(shapes):
    assert shapes.guard_or_defer_runtime_assert(sympy.Le(b, 7), "")
    assert [each.condition for each in assumed.found(shapes)] == [sympy.Le(b, 7)]


def test_a_question_with_an_answer_for_unknown_sizes_assumes_nothing():
  exported = program()
  shapes = assumed.environment(exported)
  b = exported.graph.output_node().args[0][0].meta["val"].shape[1].node.expr
  with assumed.kept([exported]):
    assert shapes.evaluate_expr(sympy.Eq(b, 6), fallback_value=False) is False
    assert shapes.evaluate_expr(sympy.Ge(b, 2), fallback_value=False)
    assert not assumed.found(shapes)


def test_a_narrowed_range_is_checked_and_announced(tmp_path, monkeypatch, caplog):
  def narrowing(x):
    assert V.graph.sizevars.evaluate_expr(sympy.Le(x.get_size()[0], 8))
    return original(x)

  original = lowering.lowerings[torch.ops.aten.sin.default]
  monkeypatch.setitem(lowering.lowerings, torch.ops.aten.sin.default, narrowing)
  with caplog.at_level(logging.WARNING, "husk"):
    text = husk.write(
      FunctionModule(lambda self, x: x.sin()),
      (numbers(4),),
      tmp_path,
      dynamic_shapes={"x": {0: AUTO}},
      targets=(f"host:{ISAS[0]}", "cuda:h200"),
    ).read_text()
  assert text.count("the kernels assume x.size()[0] <= 8") == 2  # one for each target
  assert "runs only with sizes for which x.size()[0] <= 8, which aten.sin" in caplog.text


def test_a_program_for_a_gpu_checks_that_an_indexed_dimension_is_not_empty(tmp_path):
  """A kernel that read in front of the tensor would trap, and end the context of the process."""

  def function(self, x):
    return x[:, torch.arange(4).clamp(max=x.shape[1] - 1)]

  shapes = ({1: Dim("n", min=0, max=20)},)
  text = husk.write(
    FunctionModule(function),
    (numbers(2, 6),),
    tmp_path,
    dynamic_shapes=shapes,
    targets=("cuda:h200",),
  )
  assert "an index is out of range for a dimension of size 0" in pathlib.Path(text).read_text()


def test_a_view_whose_sizes_are_equal_in_the_example_alone(tmp_path):
  """Four rows are padded to eight, which the view has as one block. Other sizes have several."""

  class Blocks(torch.nn.Module):
    def forward(self, x):
      blocks = F.pad(x, (0, 0, 0, 8 - x.shape[0] % 8)).view(-1, 8, 5)
      return blocks * 2, blocks.sum(1)

  model, shapes = Blocks(), {"x": {0: Dim("n", min=2, max=64)}}
  husk.export(model, (torch.randn(4, 5),), tmp_path / "a.husk", dynamic_shapes=shapes)
  program = husk.load(tmp_path / "a.husk")
  for size in (2, 4, 8, 9, 16, 30):
    x = torch.randn(size, 5)
    for result, expected in zip(program(x), model(x), strict=True):
      torch.testing.assert_close(torch.as_tensor(result), expected)
