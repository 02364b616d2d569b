"""Sizes, offsets and conditions that depend on data."""

import re

import export_and_compare
import hir_interpreter
import husk
import pytest
import torch
from cuda_numerics import computed
from function_module import FunctionModule
from torch.export import Dim

pytestmark = pytest.mark.skipif(
  not export_and_compare.ISAS, reason="this machine has neither AVX2 nor AVX-512"
)
ROWS = Dim("rows", min=2, max=64)
X = torch.randn(4, 10)
ZERO = torch.zeros(4, 10)


def n(*values):
  return [torch.tensor(value) for value in values]


@pytest.mark.parametrize(
  "function",
  [
    lambda self, x: x.nonzero() * 2,
    lambda self, x: x[x > 0] + 1,
    lambda self, x: torch.masked_select(x, x > 0.5),
    lambda self, x: x.flatten().nonzero().squeeze(1).sum(),
    lambda self, x: torch.argwhere(x),
    lambda self, x: x[x.nonzero(as_tuple=True)],
    lambda self, x: torch.where(x > 0),
    lambda self, x: (x[x > 0].sum(), x[x > 0].unsqueeze(1) @ torch.ones(1, 3)),
  ],
  ids="nonzero mask masked_select sum argwhere index where matmul".split(),
)
def test_sizes_of_the_data(function, tmp_path):
  text = export_and_compare.run(
    tmp_path,
    function,
    (X,),
    [{0: ROWS}],
    others=[(ZERO,), (torch.randn(9, 10).round(),)],
    strides=False,
  )
  assert re.search(
    r':sizes" \(read tensor .*\n +let u\d+ = range\(result\(0\), 0, (min\(640, )?mul\(10, s', text
  )


def test_unique(tmp_path):
  def function(self, x):
    return torch.unique(x.long(), return_inverse=True, return_counts=True)

  text = export_and_compare.run(tmp_path, function, (X,), [{0: ROWS}], others=[(ZERO,)])
  assert text.count("result int") == 1


@pytest.mark.parametrize(
  ("dtype", "is_traced_before"),
  ((torch.float32, True), (torch.float32, False), (torch.int32, True)),
)
def test_places_of_unique_are_int64(dtype, is_traced_before, tmp_path):
  """torch.export traces them with the dtype of the argument."""

  def function(self, x):
    every = torch.unique(x, return_inverse=True, return_counts=True)
    rows = torch.unique(x, return_inverse=True, return_counts=True, dim=0)
    runs = torch.unique_consecutive(x, return_inverse=True, return_counts=True)
    counts = torch.bincount(x.flatten().to(torch.int32))
    return *every, *rows, *runs, every[1] + 0.5, rows[1][0] * 2, counts, counts / 2

  x = torch.tensor([[3, 1, 3], [0, 1, 1], [3, 1, 3]]).to(dtype)
  export_and_compare.run(tmp_path, function, (x,), strict=is_traced_before, strides=False)


@pytest.mark.parametrize("is_traced_before", (True, False))
def test_norms_of_one_element_have_the_ranks_of_eager_mode(is_traced_before, tmp_path):
  """torch.export and Inductor keep a dimension of one element that is counted from the last."""

  def function(self, x, row):
    norm = torch.linalg.vector_norm
    last, both = norm(x, 3, -1), norm(row.unsqueeze(0), 3, (-1, -2))
    return last, last.unsqueeze(-1) + x, both, norm(row, 3, [-1]), norm(x, 3, -1, keepdim=True)

  export_and_compare.run(
    tmp_path,
    function,
    (torch.randn(4, 1), X[0, :1]),
    [{0: ROWS}, None],
    others=[(torch.randn(7, 1), X[1, :1])],
    strict=is_traced_before,
    strides=False,
  )


def test_repeat_interleave(tmp_path):
  export_and_compare.run(
    tmp_path,
    lambda self, x, r: x.repeat_interleave(r, 0) * 2,
    (X, torch.tensor([1, 2, 0, 3])),
    others=[(X, torch.tensor([0, 0, 0, 0]))],
  )


@pytest.mark.parametrize("value", n(3, 2.5, True) + [torch.tensor(3, dtype=torch.int32)])
def test_item(value, tmp_path):
  text = export_and_compare.run(
    tmp_path,
    lambda self, x, v: (x * v.item(), v.item()),
    (X, value),
    others=[(X, torch.zeros_like(value))],
  )
  assert "read " in text


def test_a_boolean_of_the_data_on_a_gpu(tmp_path):
  model = FunctionModule(lambda self, x, v: (x * v.item(), x + v.item()))
  runs = [{"x": X, "v": value} for value in n(True, False)]
  results = computed(model, (X, *n(True)), None, runs, tmp_path)
  for arguments, result in zip(runs, results, strict=True):
    torch.testing.assert_close(tuple(result.values()), model(**arguments))


def test_tolist(tmp_path):
  """Adjacent numbers are read together."""

  def function(self, v):
    parts = v.tolist()
    for part in parts:
      torch._check(part >= 0)
      torch._check(part <= 20)
    return torch.ones(sum(parts)), parts[0] * 2

  text = export_and_compare.run(
    tmp_path, function, (torch.arange(5),), others=[(torch.tensor([0, 0, 3, 0, 1]),)]
  )
  assert "result(4)" in text
  assert text.count("read i64") == 5


def test_sizes_strides_and_slices(tmp_path):
  def function(self, x, a, b):
    u, v = a.item(), b.item()
    for size in (u, v):
      torch._check(size >= 1)
      torch._check(size <= 9)
    y = torch.ones(u, v + 1)
    return y.t() + 1, y.sum(0), x[:, :1].expand(4, u) * 2, torch.full((u * 3,), 7), u + v

  export_and_compare.run(
    tmp_path, function, (X, *n(2, 3)), others=[(X, *n(1, 1)), (X, *n(9, 9))], strides=False
  )


@pytest.mark.parametrize("step", [1, 2])
def test_slices_with_one_bound(step, tmp_path):
  def function(self, x, a):
    place = a.item()
    return x[:place:step] * 2, x[place::step] * 2, x[:-place:step] * 2

  cases = [(X, *n(place)) for place in (2, 0, 4, 9, -1)]
  export_and_compare.run(tmp_path, function, cases[0], others=cases)


@pytest.mark.parametrize("step", [1, 2])
def test_slices_whose_bounds_the_data_decides(step, tmp_path):
  def function(self, x, a, b):
    return x[a.item() : b.item() : step] * 2

  cases = [
    (X, *n(begin, end))
    for begin, end in ((0, 2), (1, 4), (-2, 4), (-9, 9), (3, 1), (0, -1), (2, 99))
  ]
  export_and_compare.run(tmp_path, function, cases[0], others=cases)


def test_indices_that_the_data_decides(tmp_path):
  def function(self, x, i):
    return x[i.item()] * 2, x.select(1, i.item()) + 1

  text = export_and_compare.run(
    tmp_path,
    function,
    (X, *n(2)),
    [{0: ROWS}, None],
    others=[(X, *n(-1)), (torch.randn(9, 10), *n(8))],
  )
  assert "an index is out of range" in text


def test_two_tensors_that_one_mask_chooses_from(tmp_path):
  class Masked(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.mask = torch.tensor([True, False, True, True])

    def forward(self, a, b):
      return a[self.mask] - b[self.mask], a.view(1, 4)[:, self.mask]

  model, args = Masked(), (torch.arange(4.0), torch.ones(4))
  target = f"host:{export_and_compare.ISAS[0]}"
  husk.export(model, args, tmp_path / "a.husk", targets=(target,))
  for result, expected in zip(husk.load(tmp_path / "a.husk")(*args), model(*args), strict=True):
    torch.testing.assert_close(torch.as_tensor(result), expected)
  assert vars(model)["mask"].tolist() == [True, False, True, True] and not list(model.buffers())


def test_two_tensors_that_a_literal_mask_chooses_from(tmp_path):
  def function(self, a, b):
    mask = torch.tensor([True, False, True, True])
    return a[mask] - b[mask], a.view(1, 4)[:, mask]

  export_and_compare.run(tmp_path, function, (torch.arange(4.0), torch.ones(4)))


def test_an_index_out_of_range(tmp_path):
  _, _, program = export_and_compare.exported(
    tmp_path, lambda self, x, i: x[i.item()] * 2, (X, *n(2))
  )
  with pytest.raises(hir_interpreter.CheckFailed, match="out of range"):
    program.run(f"host_{export_and_compare.ISAS[0]}", x=X, i=torch.tensor(4))


def failing(tmp_path, function, good, bad, match):
  _, text, program = export_and_compare.exported(tmp_path, function, good)
  program.run(
    f"host_{export_and_compare.ISAS[0]}",
    **{value["name"]: one for value, one in zip(program.inputs, good)},
  )
  with pytest.raises(hir_interpreter.CheckFailed, match=match):
    program.run(
      f"host_{export_and_compare.ISAS[0]}",
      **{value["name"]: one for value, one in zip(program.inputs, bad)},
    )
  return text


def test_checks_of_numbers(tmp_path):
  def function(self, x, v):
    u = v.item()
    torch._check(u >= 2, lambda: "too few")
    torch._check(u * 2 < 50)
    return x * u

  failing(tmp_path / "low", function, (X, *n(5)), (X, *n(1)), ">= 2|not in")
  failing(tmp_path / "high", function, (X, *n(5)), (X, *n(25)), "not in|< 50|< 25")


def test_checks_that_tie_numbers_to_sizes(tmp_path):
  def function(self, x, v):
    u = v.item()
    torch._check(u == x.shape[0] * 2)
    return torch.ones(u) + x.reshape(-1)[:1]

  failing(tmp_path, function, (X, *n(8)), (X, *n(7)), "check|not in")


def test_checks_of_sizes(tmp_path):
  def function(self, x, y):
    part = x[x > 0]
    torch._check(part.shape[0] == y.shape[0])
    return part + y

  failing(
    tmp_path,
    function,
    (torch.tensor([1.0, -1, 2]), torch.ones(2)),
    (torch.tensor([1.0, 1, 2]), torch.ones(2)),
    "check|not in",
  )


def test_assertions_of_tensors(tmp_path):
  def function(self, x):
    torch.ops.aten._assert_async.msg((x > 0).all(), "all must be positive")
    return x * 2

  text = failing(tmp_path, function, (X.abs() + 1,), (-X.abs(),), "all must be positive")
  assert "read bool" in text


def test_memory_that_the_data_bounds(tmp_path):
  """A size that follows from another, and empty results."""

  def function(self, x):
    y = x[x > 0]
    z = y[y > 1]
    return y.cumsum(0), z * 2, torch.cat([y, z])

  export_and_compare.run(tmp_path, function, (X,), [{0: ROWS}], others=[(ZERO,), (X + 3,)])


def test_numbers_that_an_operator_divides(tmp_path):
  def function(self, x, v):
    u = v.item()
    torch._check(u >= 0)
    torch._check(u < 100)
    return torch.ones(u * 4).view(-1, 4) * 2, torch.zeros(u, 2).reshape(-1)

  export_and_compare.run(tmp_path, function, (X, *n(3)), others=[(X, *n(0))])


def test_an_operator_of_our_own_decides_sizes(tmp_path):
  library = torch.library.Library("husk_data", "DEF")
  try:
    library.define("ragged(Tensor x) -> (Tensor, Tensor)")
    library.impl(
      "ragged",
      lambda x: (x[x > 0], x[x < 0].unsqueeze(1).repeat(1, 2)),
      "CompositeExplicitAutograd",
    )

    def fake(x):
      context = torch.library.get_ctx()
      return x.new_empty(context.new_dynamic_size()), x.new_empty(context.new_dynamic_size(), 2)

    torch.library.register_fake("husk_data::ragged", fake, lib=library)
    hir_interpreter.SIZES["husk_data::ragged"] = lambda one, other: [one.shape[0], other.shape[0]]
    text = export_and_compare.run(
      tmp_path,
      lambda self, x: tuple(t * 2 for t in torch.ops.husk_data.ragged(x)),
      (X,),
      ops=["husk_data::ragged"],
    )
    assert '"husk_data::ragged:sizes"' in text and "result int, result int)" in text
  finally:
    library._destroy()


def test_an_operator_asks_for_a_size_in_the_old_way(tmp_path):
  """torch's older method for a size that the data decide begins with 2. The operator of torchvision
  that suppresses boxes uses it."""
  library = torch.library.Library("husk_older", "DEF")
  try:
    library.define("positive(Tensor x) -> Tensor")
    library.impl("positive", lambda x: x[x > 0], "CompositeExplicitAutograd")

    def fake(x):
      return x.new_empty(torch.library.get_ctx().create_unbacked_symint())

    torch.library.register_fake("husk_older::positive", fake, lib=library)
    hir_interpreter.SIZES["husk_older::positive"] = lambda one: [one.shape[0]]
    numbers = torch.tensor([1.0, 2.0, -3.0, 4.0])
    export_and_compare.run(
      tmp_path,
      lambda self, x: torch.ops.husk_older.positive(x) * 2,
      (numbers,),
      others=[(torch.tensor([-1.0, 2.0, -3.0, -4.0]),), (-numbers.abs(),)],
      ops=["husk_older::positive"],
    )
  finally:
    library._destroy()
