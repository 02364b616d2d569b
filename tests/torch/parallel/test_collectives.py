"""Collectives as PyTorch's own tests of Inductor and of functional collectives use them: beside
other computation, of tensors that are used again, in place, coalesced, along each dimension, and of
parts of the ranks. Each function is exported for several host ranks, whose results are compared."""

import functools
import re

import husk
import on_host_ranks
import pytest
import torch
import torch.distributed as dist
from husk.errors import CompileError, Unsupported
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
  ColwiseParallel,
  RowwiseParallel,
  parallelize_module,
)

ops = torch.ops._c10d_functional


@pytest.fixture(autouse=True)
def seeded():
  torch.manual_seed(0)


class Model(nn.Module):
  def __init__(self, mesh, function):
    super().__init__()
    self.mesh, self.function = mesh, function

  def forward(self, *args):
    return self.function(self.mesh, *args)


def export(folder, function, args, **options):
  return on_host_ranks.export(folder, lambda mesh: Model(mesh, function), args, **options)


def check(found, expected):
  for rank, values in enumerate(found):
    for one, other in zip(values, expected(rank), strict=True):
      torch.testing.assert_close(one, other)


def rows(shape, count=2):
  return [(torch.randn(*shape),) for _ in range(count)]


def beside_products(mesh, x):
  """A product between a collective and its wait, and results that are used several times."""
  group = mesh.get_group().group_name
  reduced = ops.all_reduce(torch.cat([x @ x, x @ x.t()]), "sum", group)
  product = torch.relu(x) @ x
  reduced = ops.wait_tensor(reduced)
  return reduced + product.repeat(2, 1), reduced * 2


def of_a_shared_tensor(mesh, x):
  """What is reduced is used before and after; nothing may be written over it."""
  group = mesh.get_group().group_name
  y = x + 1
  reduced = ops.all_reduce(y, "sum", group)
  z = y + 2
  reduced = ops.wait_tensor(reduced)
  gathered = ops.all_gather_into_tensor_coalesced([y, x], 2, group)
  w = torch.relu(y) @ y
  of_y, of_x = (ops.wait_tensor(one) for one in gathered)
  return reduced, z, torch.ones_like(x) + 22, of_y, of_x, w, x


def of_views(mesh, x):
  """Of transposed and sliced tensors, and of parts of their results."""
  group = mesh.get_group()
  summed = functional.all_reduce(x.t(), "sum", group)
  part = functional.all_reduce(x[1:3, ::2], "max", group)
  gathered = functional.all_gather_tensor(x.t().contiguous(), 0, group)
  swapped = functional.permute_tensor(x.flatten(), [1, 0], group)
  return summed.t()[1:], part, gathered[2:6], swapped.view(4, 4)


def unused(mesh, x):
  """Collectives whose results nobody reads take place: the other rank waits for them."""
  functional.all_reduce(x * 2, "sum", mesh.get_group())
  return x + functional.all_reduce(x, "avg", mesh.get_group())


def test_beside_other_work(tmp_path):
  inputs = rows((4, 4))
  (a,), (b,) = inputs

  def all_of_them(mesh, x):
    functions = beside_products, of_a_shared_tensor, of_views, unused
    found = [function(mesh, x) for function in functions]
    return tuple(one for part in found for one in (part if isinstance(part, tuple) else [part]))

  text = export(tmp_path, all_of_them, inputs[0])
  assert text.count('extern "husk::all_reduce"') == 6

  def expected(rank):
    x = inputs[rank][0]
    total = torch.cat([a @ a, a @ a.t()]) + torch.cat([b @ b, b @ b.t()])
    y = x + 1
    return (
      *(total + (torch.relu(x) @ x).repeat(2, 1), total * 2),
      *(a + b + 2, y + 2, torch.full((4, 4), 23.0), torch.cat([a, b]) + 1, torch.cat([a, b])),
      *(torch.relu(y) @ y, x),
      *((a + b)[1:], torch.maximum(a, b)[1:3, ::2], torch.cat([a.t(), b.t()])[2:6]),
      *(inputs[1 - rank][0], x + (a + b) / 2),
    )

  check(on_host_ranks.results(tmp_path, inputs), expected)


def along_dimensions(mesh, x):
  """Each rank of a row and of a column of a mesh, along each dimension."""
  for axis in range(2):
    group = (mesh, axis)
    for dim in range(3):
      yield functional.all_gather_tensor(x, dim, group)
      yield functional.reduce_scatter_tensor(x, "sum", dim, group)


def swapped(mesh, x):
  """What the neighbour in a row, and in a column, of a mesh has."""
  for axis in range(2):
    yield functional.permute_tensor(x.flatten(), [1, 0], (mesh, axis)).view_as(x)


def between_products(mesh, x):
  """Gathered along one axis and the other before products, and scattered back after them."""
  rows = x.flatten(0, 1)
  hidden = functional.all_gather_tensor(rows, 0, (mesh, 0)) @ rows.t()
  full = functional.all_gather_tensor(hidden, 0, (mesh, 1))
  full = full / full.pow(2).sum().sqrt()
  part = functional.reduce_scatter_tensor(full, "avg", 0, (mesh, 1))
  return functional.reduce_scatter_tensor(part @ rows, "avg", 0, (mesh, 0))


def expected_between_products(x, rank):
  rows = [one.flatten(0, 1) for one in x]

  def full(one):
    row = one // 2 * 2
    hidden = [
      torch.cat([rows[other % 2], rows[other % 2 + 2]]) @ rows[other].t()
      for other in (row, row + 1)
    ]
    both = torch.cat(hidden)
    return both / both.pow(2).sum().sqrt()

  def part(one):
    row = one // 2 * 2
    return ((full(row) + full(row + 1)) / 2).chunk(2)[one % 2]

  products = [part(one) @ rows[one] for one in (rank % 2, rank % 2 + 2)]
  return (sum(products) / 2).chunk(2)[rank // 2]


def of_two_axes(mesh, x):
  """A sum over both axes of a mesh, one after the other: each has ranks of its own."""
  one = functional.all_reduce(x, "sum", (mesh, 1)) * 10
  return functional.all_reduce(one, "max", (mesh, 0)) + x


def test_a_mesh(tmp_path):
  inputs = rows((2, 4, 6), 4)
  x = [one for (one,) in inputs]
  export(
    tmp_path,
    lambda mesh, x: (
      *along_dimensions(mesh, x),
      *swapped(mesh, x),
      between_products(mesh, x),
      of_two_axes(mesh, x),
    ),
    inputs[0],
    ranks=(2, 2),
    names=("outer", "inner"),
  )

  def expected(rank):
    groups = [rank % 2, rank % 2 + 2], [rank // 2 * 2, rank // 2 * 2 + 1]
    for group in groups:
      for dim in range(3):
        yield torch.cat([x[one] for one in group], dim)
        yield sum(x[one] for one in group).chunk(2, dim)[group.index(rank)]
    for group in groups:
      yield x[group[1 - group.index(rank)]]
    yield expected_between_products(x, rank)
    yield torch.maximum(x[0] + x[1], x[2] + x[3]) * 10 + x[rank]

  check(on_host_ranks.results(tmp_path, inputs), expected)


def writing(mesh, x, counts):
  """Functions of torch.distributed that write to an argument."""
  group = mesh.get_group()
  found = []
  for reduce in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):
    y = x * 2
    dist.all_reduce(y, reduce, group)
    found.append(y)
  gathered, part = x.new_empty(8, 6), x.new_empty(2, 6)
  dist.all_gather_into_tensor(gathered, x, group)
  dist.reduce_scatter_tensor(part, x, group=group)
  pair = [torch.empty_like(x) for _ in range(2)]
  dist.all_gather(pair, x, group)
  moved = torch.empty_like(x)
  dist.all_to_all_single(moved, x, group=group)
  dist.all_reduce(counts, group=group)
  return (*found, gathered, part, *pair, moved, counts + group.rank() * group.size())


def test_functions_that_write(tmp_path):
  inputs = [(torch.randn(4, 6), torch.arange(3) * (1 + rank)) for rank in range(2)]
  (a, c), (b, d) = inputs
  export(tmp_path, writing, inputs[0])
  counts = c + d

  def expected(rank):
    half = slice(2 * rank, 2 * rank + 2)
    return (
      *((a + b) * 2, torch.maximum(a, b) * 2, torch.minimum(a, b) * 2, a * b * 4),
      *(torch.cat([a, b]), (a + b)[half], a, b, torch.cat([a[half], b[half]])),
      counts + rank * 2,
    )

  check(on_host_ranks.results(tmp_path, inputs), expected)
  for _, given in inputs:
    assert torch.equal(given, counts)


def test_coalesced(tmp_path):
  """Several tensors at once, of several dtypes."""

  def function(mesh, x, counts):
    group = mesh.get_group()
    gathered = functional.all_gather_into_tensor_coalesced([x, counts], group)
    parts = functional.reduce_scatter_tensor_coalesced([x, counts], "sum", [1, 0], group)
    largest = functional.all_reduce_coalesced([x, counts, x * 2], "max", group)
    return (*gathered, *parts, *largest)

  inputs = [(torch.randn(2, 4), torch.arange(4) * (3 - rank)) for rank in range(2)]
  (a, c), (b, d) = inputs
  export(tmp_path, function, inputs[0])
  check(
    on_host_ranks.results(tmp_path, inputs),
    lambda rank: (
      *(torch.cat([a, b]), torch.cat([c, d])),
      *((a + b).chunk(2, 1)[rank], (c + d).chunk(2)[rank]),
      *(torch.maximum(a, b), torch.maximum(c, d), torch.maximum(a, b) * 2),
    ),
  )


def test_sizes_that_vary(tmp_path):
  """Each collective between layers, with another number of rows than in the export."""
  torch.manual_seed(1)
  w = torch.randn(6, 6)

  def function(mesh, x):
    group, x = mesh.get_group(), torch.relu(x @ w)
    return (
      functional.all_reduce(x, "sum", group),
      functional.all_gather_tensor(x, 0, group),
      functional.all_gather_tensor(x, 1, group),
      functional.reduce_scatter_tensor(x, "sum", 0, group),
      functional.all_to_all_single(x, None, None, group),
      functional.broadcast(x, 1, group),
    )

  even = {"args": ({0: 2 * torch.export.Dim("half", min=1, max=16)},)}
  export(tmp_path, function, (torch.randn(8, 6),), dynamic_shapes=even)
  for count in (2, 8, 32):
    inputs = rows((count, 6))
    a, b = (torch.relu(x @ w) for (x,) in inputs)

    def expected(rank, a=a, b=b):
      halves = [one.chunk(2)[rank] for one in (a, b)]
      return (
        *(a + b, torch.cat([a, b]), torch.cat([a, b], 1), sum(halves)),
        *(torch.cat(halves), b),
      )

    check(on_host_ranks.results(tmp_path, inputs), expected)


def test_rows_for_each_rank(tmp_path):
  """Ranks that send and receive other numbers of rows."""

  def function(mesh, x):
    group, rank = mesh.get_group(), mesh.get_rank()
    moved = functional.all_to_all_single(x, [[3, 1], [2, 0]][rank], [[3, 2], [1, 0]][rank], group)
    return moved / moved.sum()

  def build(mesh):
    return Model(mesh, function)

  # The numbers of rows of the inputs differ, so each rank is exported with its own.
  class Padded(nn.Module):
    def __init__(self, mesh):
      super().__init__()
      self.model, self.rows = build(mesh), [5, 1][mesh.get_rank()]

    def forward(self, x):
      return self.model(x[: self.rows])

  husk.parallel.export(
    Padded, (torch.ones(5, 3),), tmp_path / "model.husk", targets=on_host_ranks.TARGETS
  )
  inputs = [(torch.rand(5, 3),) for _ in range(2)]
  (a,), (b,) = inputs
  moved = torch.cat([a[:3], b[:1]]), a[3:5]
  check(on_host_ranks.results(tmp_path, inputs), lambda rank: (moved[rank] / moved[rank].sum(),))


def test_rows_that_the_data_decides(tmp_path):
  def function(mesh, x, counts):
    counts = counts.tolist()
    for count in counts:
      torch._check(count >= 0)
    moved = functional.all_to_all_single(x, counts, counts, mesh.get_group())
    return moved / moved.sum(0)

  rows = torch.export.Dim("rows", min=2, max=64)
  shapes = {"args": ({0: rows}, None)}
  export(tmp_path, function, (torch.ones(6, 3), torch.tensor([2, 4])), dynamic_shapes=shapes)
  for counts in ([2, 2], [2, 4]), ([1, 5], [5, 3]):
    inputs = [(torch.rand(sum(one), 3), torch.tensor(one)) for one in counts]
    parts = [x.split(one) for (x, _), one in zip(inputs, counts)]

    def expected(rank, parts=parts):
      moved = torch.cat([one[rank] for one in parts])
      return (moved / moved.sum(0),)

    check(on_host_ranks.results(tmp_path, inputs), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "uint8", "int32", "int64"])
def test_dtypes(tmp_path, dtype):
  dtype = getattr(torch, dtype)

  def function(mesh, x):
    group = mesh.get_group()
    return (
      functional.all_reduce(x, "sum", group),
      functional.all_reduce(x, "min", group),
      functional.all_gather_tensor(x, 0, group),
      functional.reduce_scatter_tensor(x, "product", 0, group),
    )

  inputs = [(torch.randint(1, 9, (4, 3)).to(dtype),) for _ in range(2)]
  (a,), (b,) = inputs
  export(tmp_path, function, inputs[0])
  check(
    on_host_ranks.results(tmp_path, inputs),
    lambda rank: (a + b, torch.minimum(a, b), torch.cat([a, b]), (a * b).chunk(2)[rank]),
  )


class Mlp(nn.Module):
  def __init__(self):
    super().__init__()
    self.up, self.down = nn.Linear(8, 16, bias=False), nn.Linear(16, 8, bias=False)

  def forward(self, x):
    return self.down(torch.relu(self.up(x)))


@pytest.mark.parametrize("dim", (0, 1))
def test_parts_of_a_sequence(tmp_path, dim):
  """A rank takes and returns its part: gathered before the first layer, scattered behind the
  last one."""

  def whole():
    torch.manual_seed(0)
    return Mlp()

  plan = {
    "up": ColwiseParallel(input_layouts=Shard(dim)),
    "down": RowwiseParallel(output_layouts=Shard(dim), use_local_output=True),
  }
  parts = torch.randn(2, 4, 6, 8)
  husk.parallel.export(
    lambda mesh: parallelize_module(whole(), mesh, plan),
    (parts[0],),
    tmp_path / "model.husk",
    targets=on_host_ranks.TARGETS,
    keep=tmp_path / "kept",
  )
  with torch.no_grad():
    expected = whole()(torch.cat(list(parts), dim)).chunk(2, dim)
  check(on_host_ranks.results(tmp_path, [(one,) for one in parts]), lambda rank: (expected[rank],))
  text = (tmp_path / "kept/rank0/model.hir").read_text()
  assert "all_gather_into_tensor" in text and "reduce_scatter_tensor" in text


def test_a_collective_in_a_branch_and_a_loop(tmp_path):
  def function(mesh, x, flag):
    reduce = functools.partial(functional.all_reduce, reduceOp="sum", group=mesh.get_group())
    y = torch.cond(flag > 0, lambda x: reduce(x) * 2, lambda x: x - 1, (x,))

    def step(count, y):
      return count + 1, reduce(y) / 2

    return torch.while_loop(lambda count, y: count < 3, step, (torch.tensor(0), y))[1]

  inputs = [(torch.randn(2, 3), torch.tensor(1)) for _ in range(2)]
  text = export(tmp_path, function, inputs[0])
  assert len(re.findall(r'extern "husk::all_reduce"', text)) == 2
  for flag in 1, 0:
    given = [(x, torch.tensor(flag)) for x, _ in inputs]
    (a, _), (b, _) = given
    expected = (a + b) * 2 if flag else (a + b) / 2 - 1
    check(on_host_ranks.results(tmp_path, given), lambda rank, expected=expected: (expected,))


def waits_later(mesh, x):
  y = x * 1
  work = dist.all_reduce(y, group=mesh.get_group(), async_op=True)
  work.wait()
  return y


def of_bits(mesh, x):
  return functional.all_reduce(x.int(), "bor", mesh.get_group())


def test_refusals(tmp_path):
  with pytest.raises(CompileError, match="async"):
    export(tmp_path, waits_later, (torch.ones(2, 2),))
  with pytest.raises(Unsupported, match="the reduction 'bor'.* give one of avg, max, min, product"):
    export(tmp_path, of_bits, (torch.ones(2, 2),))
