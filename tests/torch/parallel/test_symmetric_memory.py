"""Operators of PyTorch's symmetric memory: they are functional collectives and products in a
program."""

import re

import on_host_ranks
import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
from husk.errors import Unsupported
from torch import nn

RANKS = 2
ops = torch.ops.symm_mem
functional = torch.ops._c10d_functional


@pytest.fixture(autouse=True)
def seeded():
  torch.manual_seed(0)


class Model(nn.Module):
  """Calls `function` with the name of the group of all ranks."""

  def __init__(self, mesh, function):
    super().__init__()
    self.group, self.function = mesh.get_group().group_name, function

  def forward(self, *args):
    return self.function(self.group, *args)


def export(folder, function, args, **options):
  return on_host_ranks.export(folder, lambda mesh: Model(mesh, function), args, **options)


def operators(text):
  return re.findall(r'extern "husk::(\w+)"', text)


def all_reduces(group, x, y):
  """Each way to add up a tensor. `y` is an input that is written."""
  one = ops.one_shot_all_reduce(x * 2, "sum", group)
  two = ops.one_shot_all_reduce_out(x, "sum", group, torch.empty_like(x))
  three = ops.one_shot_all_reduce_copy(torch.empty_like(x), x + 1, "sum", group)
  four, out = torch.zeros(2, *x.shape), torch.empty_like(x)
  ops.one_shot_all_reduce_copy_out(torch.empty_like(x), x, "sum", group, four[1])
  five = ops.two_shot_all_reduce_(x * 3, "sum", group)
  ops.two_shot_all_reduce_out(x - 1, "sum", group, out)
  ops.multimem_all_reduce_(y, "sum", group)
  seven = ops.multimem_one_shot_all_reduce(x.t(), "sum", group)
  eight = ops.multimem_one_shot_all_reduce_out(x * x, "sum", group, torch.empty_like(x))
  return one, two, three, four, five, out, y + 1, seven, eight


def test_all_reduces(tmp_path):
  inputs = [(torch.randn(4, 6), torch.randn(3)) for _ in range(RANKS)]
  text = export(tmp_path, all_reduces, inputs[0])
  assert operators(text) == ["all_reduce"] * 9 and "symm_mem" not in text
  (a, c), (b, d) = inputs
  total, expected_y = a + b, c + d
  for number, found in enumerate(on_host_ranks.results(tmp_path, inputs)):
    expected = (
      total * 2,
      total,
      total + 2,
      torch.stack([torch.zeros(4, 6), total]),
      total * 3,
      total - 2,
      expected_y + 1,
      total.t(),
      a * a + b * b,
    )
    for one, other in zip(found, expected, strict=True):
      torch.testing.assert_close(one, other)
    torch.testing.assert_close(inputs[number][1], expected_y)


def parts(group, x, y):
  """Operators after which ranks have different parts, or one rank alone has a result."""
  gathered = ops._low_contention_all_gather(x, group)
  scattered = ops._low_contention_reduce_scatter(x, "avg", group)
  into = ops.multimem_all_gather_out(x, group, x.new_empty(8, 6))
  rows, columns = x.new_empty(2, 6), x.new_empty(4, 3)
  ops.reduce_scatter_out(x * 2, group, False, rows)
  ops.reduce_scatter_out(x * 3, group, True, columns)
  root, tile, tiles = torch.zeros_like(x), torch.zeros(8, 6), torch.zeros_like(x)
  ops.multimem_one_shot_reduce_out(x, "sum", 1, group, root)
  ops.tile_reduce(x.t(), tile[2:6].t(), 0, group)
  ops.multi_root_tile_reduce([x, y], tiles, [1, 0], group)
  sent = ops.nvshmem_broadcast(y.clone(), 1, group)
  moved = ops.nvshmem_all_to_all(x, torch.empty_like(x), group)
  return gathered, scattered, into, rows, columns, root, tile, tiles, sent, moved


def test_parts(tmp_path):
  inputs = [(torch.randn(4, 6), torch.randn(4, 6)) for _ in range(RANKS)]
  text = export(tmp_path, parts, inputs[0])
  assert "symm_mem" not in text
  (a, c), (b, d) = inputs
  zero, total = torch.zeros(4, 6), a + b
  for rank, found in enumerate(on_host_ranks.results(tmp_path, inputs)):
    rows, columns = slice(2 * rank, 2 * rank + 2), slice(3 * rank, 3 * rank + 3)
    tile = torch.zeros(8, 6)
    tile[2:6] = zero if rank else total
    expected = (
      torch.cat([a, b]),
      total[rows] / 2,
      torch.cat([a, b]),
      total[rows] * 2,
      total[:, columns] * 3,
      total if rank else zero,
      tile,
      total if rank else c + d,
      d,
      torch.cat([a[rows], b[rows]]),
    )
    for one, other in zip(found, expected, strict=True):
      torch.testing.assert_close(one, other)


def products(group, x, w, v):
  first, of_first = ops.fused_all_gather_matmul(x, [w, v], 0, group)
  second, of_second = ops.fused_all_gather_matmul(x, [w], 1, group)
  third, of_third = ops.fused_all_gather_matmul(x, [torch.cat([w, v], 0)[:16]], 2, group)
  _, alone = ops.fused_all_gather_matmul(x[0], [w], 0, group, return_A=False)
  sums = [ops.fused_matmul_reduce_scatter(x, w, "sum", dim, group) for dim in range(3)]
  average = ops.fused_matmul_reduce_scatter(x[0], w, "avg", 0, group)
  return (first, *of_first, second, *of_second, third, *of_third, *alone, *sums, average)


def expected_products(rank, inputs):
  (x, w, v), (y, other_w, _) = inputs
  _, own_w, own_v = inputs[rank]
  found = []
  for dim, matrices in (0, [own_w, own_v]), (1, [own_w]), (2, [torch.cat([own_w, own_v])[:16]]):
    gathered = torch.cat([x, y], dim)
    found += [gathered, *(gathered @ matrix for matrix in matrices)]
  found.append(torch.cat([x[0], y[0]]) @ own_w)
  total = x @ w + y @ other_w
  found += [total.chunk(RANKS, dim)[rank] for dim in range(3)]
  return [*found, (x[0] @ w + y[0] @ other_w).chunk(RANKS)[rank] / RANKS]


def test_products(tmp_path):
  def inputs(rows):
    return [(torch.randn(4, rows, 8), torch.randn(8, 10), torch.randn(8, 10)) for _ in range(RANKS)]

  shapes = {"args": ({1: 2 * torch.export.Dim("half", min=1, max=9)}, None, None)}
  text = export(tmp_path, products, inputs(6)[0], dynamic_shapes=shapes)
  assert operators(text) == ["all_gather_into_tensor"] * 4 + ["reduce_scatter_tensor"] * 4
  for rows in (6, 2, 18):
    given = inputs(rows)
    for rank, found in enumerate(on_host_ranks.results(tmp_path, given)):
      for one, other in zip(found, expected_products(rank, given), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def scaled(group, x, w, of_all, of_rows, of_columns):
  """Scales of the whole tensor, of the rows of a rank, and of all rows."""
  kind = torch.bfloat16
  found = []
  for scale, other in (of_all, of_all), (of_rows, of_columns), (of_rows.repeat(2, 1), of_columns):
    gathered, result = ops.fused_all_gather_scaled_matmul(
      x, [w], scale, [other], 0, group, [None], [None], [kind], [False]
    )
    found += [gathered.to(kind), *result]
  for scale, other in (of_all, of_all), (of_rows, of_columns):
    found.append(
      ops.fused_scaled_matmul_reduce_scatter(
        x, w, scale, other, "sum", 0, 0, group, [16, 32], None, None, kind, False
      )
    )
  # This tensor has three dimensions, of which the product takes the first two as its rows.
  found.append(
    ops.fused_scaled_matmul_reduce_scatter(
      x.view(2, 8, 64),
      w,
      of_rows.view(2, 8, 1),
      of_columns,
      "avg",
      1,
      0,
      group,
      [2, 8, 32],
      None,
      None,
      kind,
      False,
    )
  )
  return tuple(found)


def test_scaled_products(tmp_path):
  def one():
    x = torch.randn(16, 64).to(torch.float8_e4m3fn)
    w = torch.randn(32, 64).to(torch.float8_e4m3fn).t()
    return x, w, torch.tensor([0.5]).reshape(()), torch.rand(16, 1), torch.rand(1, 32)

  inputs = [one() for _ in range(RANKS)]
  text = export(tmp_path, scaled, inputs[0])
  assert "symm_mem" not in text
  (x, w, s, rows, columns), (y, other_w, _, other_rows, other_columns) = inputs
  for rank, found in enumerate(on_host_ranks.results(tmp_path, inputs)):
    _, own_w, _, own_rows, own_columns = inputs[rank]
    gathered, product = torch.cat([x.float(), y.float()]), own_w.float()
    part = slice(8 * rank, 8 * rank + 8)
    by_rows = (x.float() * rows) @ (w.float() * columns)
    by_rows += (y.float() * other_rows) @ (other_w.float() * other_columns)
    expected = (
      gathered,
      (gathered @ product) * s * s,
      gathered,
      (gathered * torch.cat([rows, other_rows])) @ (product * own_columns),
      gathered,
      (gathered * own_rows.repeat(2, 1)) @ (product * own_columns),
      ((x.float() @ w.float() + y.float() @ other_w.float()) * s * s)[part],
      by_rows[part],
      by_rows.view(2, 8, 32).chunk(2, 1)[rank] / 2,
    )
    for one, other in zip(found, expected, strict=True):
      torch.testing.assert_close(one.float(), other, rtol=2e-2, atol=0.2)


def test_programs_for_gpus(tmp_path):
  """They have the calls of those for hosts, and no memory of a special kind."""

  def all_of_them(group, x, y, a, w, v):
    return (*all_reduces(group, x, y), *parts(group, x, x), *products(group, a, w, v))

  args = (torch.randn(4, 6), torch.randn(3), torch.randn(4, 6, 8))
  args += (torch.randn(8, 10), torch.randn(8, 10))
  found = {}
  for target in "host:avx2", "cuda:h100":
    text = export(tmp_path, all_of_them, args, targets=(target,))
    found[target] = sorted(operators(text))
    assert "symm_mem" not in text and "p2p" not in text
  assert found["cuda:h100"] == found["host:avx2"]


def test_memory_of_a_model(tmp_path):
  """Memory that a model asks for in its forward is ordinary memory."""

  def function(group, x):
    buffer = symmetric.empty(x.shape, dtype=x.dtype, device=x.device)
    symmetric.rendezvous(buffer, group)
    return (ops.one_shot_all_reduce(buffer.copy_(x), "sum", group),)

  inputs = [(torch.randn(5, 3),) for _ in range(RANKS)]
  export(tmp_path, function, inputs[0])
  for (found,) in on_host_ranks.results(tmp_path, inputs):
    torch.testing.assert_close(found, inputs[0][0] + inputs[1][0])
  assert symmetric.empty.__module__ == symmetric.__name__


def writing(group, x, y):
  """Collectives of torch.distributed that write to an argument."""
  one = functional.wait_tensor(functional.all_reduce_(x + 1, "sum", group))
  pair = functional.all_reduce_coalesced_([x * 1, x * 2], "max", group)
  sent = functional.broadcast_(x * 1, 1, group)
  rows = functional.all_gather_into_tensor_out(x, RANKS, group, out=x.new_empty(8, 6))
  part = functional.reduce_scatter_tensor_out(x, "sum", RANKS, group, out=x.new_empty(2, 6))
  dist.all_reduce(y)
  return one, *map(functional.wait_tensor, (*pair, sent, rows, part)), y * 2


def test_operators_that_write(tmp_path):
  inputs = [(torch.randn(4, 6), torch.randn(3)) for _ in range(RANKS)]
  export(tmp_path, writing, inputs[0])
  (a, c), (b, d) = inputs
  expected_y = c + d
  for rank, found in enumerate(on_host_ranks.results(tmp_path, inputs)):
    largest = torch.maximum(a, b)
    expected = (
      *(a + b + 2, largest, largest * 2, b, torch.cat([a, b])),
      *((a + b).chunk(RANKS)[rank], expected_y * 2),
    )
    for one, other in zip(found, expected, strict=True):
      torch.testing.assert_close(one, other)
    torch.testing.assert_close(inputs[rank][1], expected_y)


def of_data(group, x):
  splits = torch.zeros(2, dtype=torch.int64)
  ops.all_to_all_vdev(x, torch.empty_like(x), splits, torch.zeros(2, 2, dtype=torch.int64), group)
  return x


def barrier(group, x):
  symmetric.rendezvous(x, group).barrier()
  return x


@pytest.mark.parametrize(
  ("function", "what"),
  [
    (lambda group, x: ops.get_remote_tensors(x, group), "symm_mem::get_remote_tensors"),
    (lambda group, x: ops.nvshmem_put(x, 1), "symm_mem::nvshmem_put"),
    (lambda group, x: ops.stream_write_value32_(x, 0, 1), "symm_mem::stream_write_value32_"),
    (of_data, "symm_mem::all_to_all_vdev"),
    (barrier, "barrier of symmetric memory"),
  ],
  ids=("remote", "put", "signal", "of_data", "barrier"),
)
def test_refusals(tmp_path, function, what):
  with pytest.raises(Unsupported, match=f"{what}.*: use a collective operator, such as"):
    export(tmp_path, function, (torch.ones(2, 2),))


def test_a_pass_of_inductor_changes_nothing(tmp_path):
  """Inductor's pass that makes such operators of collectives beside products finds none."""

  def function(group, x, w):
    gathered = functional.wait_tensor(functional.all_gather_into_tensor(x, RANKS, group))
    return functional.wait_tensor(
      functional.reduce_scatter_tensor(torch.relu(gathered @ w) @ w.t(), "sum", RANKS, group)
    )

  args = (torch.randn(4, 8), torch.randn(8, 10))
  plain = export(tmp_path, function, args)
  with torch._inductor.config.patch(_micro_pipeline_tp=True), symmetric._test_mode():
    assert export(tmp_path, function, args) == plain
