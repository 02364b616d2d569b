"""Control flow: branches, loops and calls, exported and run."""

import re

import export_and_compare
import pytest
import torch
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.map import map as map_
from torch._higher_order_ops.scan import scan
from torch.export import Dim

pytestmark = pytest.mark.skipif(
  not export_and_compare.ISAS, reason="this machine has neither AVX2 nor AVX-512"
)
ROWS = Dim("rows", min=2, max=64)
X, YES, NO = torch.randn(4, 10), torch.tensor(True), torch.tensor(False)


def test_cond_on_a_tensor(tmp_path):
  text = export_and_compare.run(
    tmp_path,
    lambda self, p, x: torch.cond(p, lambda x: x + 1, lambda x: x * 2, (x,)),
    (YES, X),
    others=[(NO, X)],
  )
  assert "when branch {" in text and "} else {" in text and "copy (" not in text


def test_cond_on_a_size(tmp_path):
  text = export_and_compare.run(
    tmp_path,
    lambda self, x: torch.cond(x.shape[0] > 5, lambda x: x + 1, lambda x: x * 2, (x,)),
    (X,),
    [{0: ROWS}],
    others=[(torch.randn(6, 10),)],
  )
  assert "read bool" not in text


def test_cond_on_a_python_bool(tmp_path):
  text = export_and_compare.run(
    tmp_path, lambda self, x: torch.cond(x.dim() == 2, lambda x: x + 1, lambda x: x * 2, (x,)), (X,)
  )
  assert "when " not in text


def test_cond_on_a_number_of_the_data(tmp_path):
  def function(self, n, x):
    return torch.cond(n.item() > 3, lambda x: x + 1, lambda x: x * 2, (x,))

  export_and_compare.run(
    tmp_path, function, (torch.tensor(5), X), others=[(torch.tensor(1), X)], strict=True
  )


def test_cond_without_operands(tmp_path):
  export_and_compare.run(
    tmp_path,
    lambda self, p: torch.cond(p, lambda: torch.zeros(3), lambda: torch.ones(3), ()),
    (YES,),
    others=[(NO,)],
  )


def test_cond_with_closures_and_parameters(tmp_path):
  class Model(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.yes, self.no = torch.nn.Linear(10, 5), torch.nn.Linear(10, 5)

    def forward(self, p, x):
      y = x.sin()
      z = torch.cond(
        p, lambda a: self.yes(a) + y.sum() * a.shape[0], lambda a: self.no(a) - y.mean(), (x,)
      )
      return z * 2, y

  export_and_compare.run(
    tmp_path, Model(), (YES, X), (None, {0: ROWS}), others=[(NO, X), (NO, torch.randn(7, 10))]
  )


def test_cond_with_several_results(tmp_path):
  export_and_compare.run(
    tmp_path,
    lambda self, p, x, y: torch.cond(
      p, lambda x, y: (x + y, x - 1, x.sum()), lambda x, y: (x * y, y.exp(), y.sum()), (x, y)
    ),
    (YES, X, X + 1),
    [None, {0: ROWS}, {0: ROWS}],
    others=[(NO, X, X + 1)],
  )


def test_nested_conds(tmp_path):
  def function(self, p, q, x):
    def inner(x):
      return torch.cond(q, lambda x: x + 1, lambda x: x * 3, (x,))

    return torch.cond(p, inner, lambda x: inner(x) - 2, (x,))

  export_and_compare.run(
    tmp_path,
    function,
    (YES, NO, X),
    others=[(p, q.clone(), X) for p in (YES, NO) for q in (YES, NO)],
  )


def test_conds_that_share_a_predicate(tmp_path):
  def function(self, p, x):
    one = torch.cond(p, lambda x: x + 1, lambda x: x * 2, (x,))
    return one, torch.cond(p, lambda x: x - 1, lambda x: x / 2, (one,))

  export_and_compare.run(tmp_path, function, (YES, X), others=[(NO, X)])


def test_branches_share_kernels(tmp_path):
  def function(self, p, x):
    return (
      torch.cond(p, lambda x: (x * 2 + 1).sum(), lambda x: (x * 2 + 1).sum(), (x,))
      + (x * 2 + 1).sum()
    )

  text = export_and_compare.run(tmp_path, function, (YES, X), others=[(NO, X)])
  assert text.count("\nkernel ") < text.count(" launch ")


def test_branches_of_views(tmp_path):
  def function(self, p, x):
    return torch.cond(p, lambda x: x.t().contiguous() + 1, lambda x: x.flip(0) * 3, (x[1],)).t()

  x = torch.randn(3, 4, 4)
  export_and_compare.run(tmp_path, function, (YES, x), others=[(NO, x)])


def test_results_that_are_operands(tmp_path):
  """A branch that returns its argument makes a copy."""
  text = export_and_compare.run(
    tmp_path,
    lambda self, p, x: torch.cond(p, lambda x: x.clone(), lambda x: x * 2, (x,)),
    (YES, X),
    others=[(NO, X)],
  )
  assert "when branch" in text


def test_results_of_different_sizes(tmp_path):
  text = export_and_compare.run(
    tmp_path,
    lambda self, p, x: torch.cond(p, lambda x: x.repeat(2, 1) + 1, lambda x: x * 2, (x,)) * 3,
    (YES, X),
    others=[(NO, X)],
  )
  assert "select(branch, 8, 4)" in text


def test_results_whose_sizes_a_branch_decides(tmp_path):
  def function(self, p, x):
    return torch.cond(p, lambda x: x[x > 0] + 1, lambda x: x.reshape(-1) * 2, (x,)) * 3

  export_and_compare.run(tmp_path, function, (YES, X), others=[(NO, X), (YES, X * 0)])


def test_a_branch_decides_sizes_of_its_own(tmp_path):
  export_and_compare.run(
    tmp_path,
    lambda self, p, x: torch.cond(
      p, lambda x: x.nonzero().sum() + x.shape[0], lambda x: x.nonzero().sum() * 2, (x,)
    ),
    (YES, X),
    [None, {0: ROWS}],
    others=[(NO, X)],
  )


def test_cond_closes_over_a_number_of_the_data(tmp_path):
  def function(self, n, p, x):
    u = n.item()
    torch._check(u >= 0)
    torch._check(u < 100)
    return torch.cond(p, lambda x: x + u, lambda x: x * u, (x,))

  export_and_compare.run(
    tmp_path, function, (torch.tensor(3), YES, X), others=[(torch.tensor(4), NO, X)], strict=True
  )


def test_custom_op_in_a_branch(tmp_path):
  export_and_compare.run(
    tmp_path,
    lambda self, p, x: torch.cond(p, lambda x: torch.sort(x)[0], lambda x: x.topk(10)[0], (x,)),
    (YES, X),
    others=[(NO, X)],
  )


def test_loop(tmp_path):
  text = export_and_compare.run(
    tmp_path,
    lambda self, i, x: while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2), (i, x)),
    (torch.tensor(0), X),
    others=[(torch.tensor(7), X)],
  )
  # The loop goes on by a number that it has just read.
  assert re.search(
    r"loop \{.*read bool.*let (\w+) = result\(0\)\n\s*while \1\n", text, re.DOTALL
  ), text


def test_loop_that_swaps(tmp_path):
  def function(self, i, x, y):
    return while_loop(
      lambda i, x, y: i < 5, lambda i, x, y: (i + 1, y.clone(), x.clone()), (i, x, y)
    )

  export_and_compare.run(tmp_path, function, (torch.tensor(0), X, X + 1))


def test_loop_that_carries_an_int(tmp_path):
  text = export_and_compare.run(
    tmp_path,
    lambda self, x: while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * i), (0, x)),
    (X,),
  )
  assert "read i64" in text


def test_loop_that_carries_a_size(tmp_path):
  def function(self, x):
    n, y = while_loop(lambda i, x: i < x.shape[0], lambda i, x: (i + 1, x * i), (x.shape[0] - 3, x))
    return y, n + 1

  export_and_compare.run(tmp_path, function, (X,), [{0: ROWS}], others=[(torch.randn(9, 10),)])


def test_nested_loops(tmp_path):
  def function(self, i, j, x):
    def body(i, j, x):
      k, y = while_loop(lambda k, y: k < 3, lambda k, y: (k + 1, y * 2), (j.clone(), x))
      return i + 1, j.clone(), y + k

    return while_loop(lambda i, j, x: i < 3, body, (i, j, x))

  export_and_compare.run(tmp_path, function, (torch.tensor(0), torch.tensor(1), X))


def test_loop_with_outer_code_parameters_and_buffers(tmp_path):
  class Model(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.step = torch.nn.Linear(10, 10)

    def forward(self, i, x):
      y = x.cos()
      i, x = while_loop(
        lambda i, x: (i < 4) & (x.sum() < 1e9), lambda i, x: (i + 1, self.step(x) + y), (i, x + 1)
      )
      return x * i, y

  export_and_compare.run(
    tmp_path,
    Model(),
    (torch.tensor(0), X),
    (None, {0: ROWS}),
    others=[(torch.tensor(2), torch.randn(9, 10))],
  )


def test_loop_around_cond_and_cond_around_loop(tmp_path):
  def function(self, i, x):
    def body(i, x):
      return i + 1, torch.cond(x.sum() > 0, lambda x: x - 1, lambda x: x + 2, (x,))

    j, y = while_loop(lambda i, x: i < 4, body, (i, x))
    return j, torch.cond(
      y.sum() > 0,
      lambda x: while_loop(
        lambda i, x: i < 2, lambda i, x: (i + 1, x * 2), (torch.zeros((), dtype=torch.int64), x)
      )[1],
      lambda x: x.sin(),
      (y,),
    )

  export_and_compare.run(
    tmp_path, function, (torch.tensor(0), X), others=[(torch.tensor(0), -X), (torch.tensor(4), X)]
  )


def test_loop_over_an_unbacked_number(tmp_path):
  def function(self, n, x):
    u = n.item()
    torch._check(u >= 0)
    torch._check(u < 10)
    return while_loop(
      lambda i, x: i < u, lambda i, x: (i + 1, x + u), (torch.zeros((), dtype=torch.int64), x)
    )

  export_and_compare.run(
    tmp_path, function, (torch.tensor(3), X), others=[(torch.tensor(0), X)], strict=True
  )


def summed(total, row):
  return total + row, (total * row).mT.contiguous().mT


# Loops whose numbers of turns and sizes are no inputs of the loop.
PARTS = {
  "a scan of all but the first": lambda self, x: scan(summed, x[0, :, 1:] * 2, x[1:, :, 1:]),
  "a scan of every second column": lambda self, x: scan(summed, x[:, 0] * 2, x[:, ::2], dim=1),
  "a scan of two parts": lambda self, x: scan(summed, x[0], torch.cat((x[1:], x)), reverse=True),
  "a map of all but two": lambda self, x: map_(lambda row: (row.sin(), row.sum()), x[2:, :, 1:]),
}


@pytest.mark.parametrize("name", PARTS)
def test_loops_over_parts(name, tmp_path):
  sizes = {0: Dim("turns", min=4, max=64), 2: Dim("columns", min=3, max=64)}
  others = [(torch.randn(4, 3, 7),), (torch.randn(8, 3, 3),)]
  export_and_compare.run(tmp_path, PARTS[name], (torch.randn(5, 3, 4),), [sizes], others=others)


def test_called_graphs_are_inlined(tmp_path):
  from torch._higher_order_ops.invoke_subgraph import mark_compile_region

  @mark_compile_region
  def region(x, y):
    return (x @ y).sin() + y.sum()

  text = export_and_compare.run(
    tmp_path, lambda self, x, y: region(region(x, y), y), (torch.randn(4, 4), torch.randn(4, 4))
  )
  assert "when " not in text and "loop " not in text


@pytest.mark.skipif(
  not hasattr(torch, "switch") and not hasattr(torch._higher_order_ops, "switch"),
  reason="no switch",
)
def test_switch(tmp_path):
  switch = getattr(torch, "switch", None) or torch._higher_order_ops.switch
  branches = [lambda x: x + 1, lambda x: x * 2, lambda x: x.sin()]
  export_and_compare.run(
    tmp_path,
    lambda self, i, x: switch(i, branches, (x,)),
    (torch.tensor(0), X),
    others=[(torch.tensor(i), X) for i in (1, 2)],
  )


def test_shape_of_an_output_that_is_written_after_a_branch(tmp_path):
  """The size in bytes of the output is known before the branch, from that of another buffer, and so
  is its shape then, though nothing before the end of the program names it."""

  def function(self, x):
    (y,) = torch.cond(x.mean() > 0, lambda x: (x.erf(),), lambda x: (x.sin(),), (x,))
    return y.transpose(0, 1).flatten()

  sizes = {0: torch.export.Dim("n", min=2, max=64), 1: torch.export.Dim("m", min=2, max=64)}
  others = [(torch.randn(9, 4, 2),), (-torch.rand(3, 8, 2),)]
  export_and_compare.run(tmp_path, function, (torch.randn(5, 6, 2),), (sizes,), others)


def _last(x):
  """A tensor whose stride along dimension 3 is the size of dimension 1. Inductor gives it other
  strides."""
  return x.to(torch.float64, memory_format=torch.channels_last)


def _cond(self, p, x):
  y = _last(x)
  return torch.cond(p, lambda x: x.sin().clone(), lambda x: x.erf().clone(), (y,)).clone()


def _loop(self, n, x):
  return while_loop(lambda n, x: n > 0, lambda n, x: (n - 1, x.sin().clone()), (n, _last(x)))


def _region(self, p, x):
  from torch._higher_order_ops.invoke_subgraph import mark_compile_region

  region = mark_compile_region(lambda x, y: x.sin() + y.flatten(1).sum(1).view(-1, 1, 1, 1))
  return region(_last(x), x.transpose(1, 3))


@pytest.mark.parametrize(
  ("function", "first"), ((_cond, YES), (_loop, torch.tensor(2)), (_region, YES))
)
def test_an_operand_has_other_strides_than_the_subgraph(function, first, tmp_path):
  """A size of the operand is a stride that the subgraph assumes. The operand's own stride there is
  another number, which is not that size."""
  sizes = {1: torch.export.Dim("n", min=2, max=64), 3: torch.export.Dim("m", min=2, max=64)}
  others = [(first, torch.randn(3, n, 2, m)) for n, m in ((17, 9), (4, 5))]
  arguments = (first, torch.randn(3, 6, 2, 3))
  export_and_compare.run(tmp_path, function, arguments, ({}, sizes), others)
