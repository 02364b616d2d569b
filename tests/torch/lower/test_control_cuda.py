"""The texts for a GPU of control flow and of numbers that depend on data. A machine with a GPU runs
them."""

import re

import built_tools  # noqa: F401
import export_and_compare
import husk
import pytest
import torch
from torch._higher_order_ops import while_loop

X, YES = torch.randn(4, 10), torch.tensor(True)


@pytest.mark.parametrize(
  "function, args, parts",
  [
    (
      lambda self, p, x: torch.cond(p, lambda x: x + 1, lambda x: x * 2, (x,)),
      (YES, X),
      ["read bool (read p[0, 1])", "when branch {", "} else {", "launch h200_triton_poi_fused_mul"],
    ),
    (
      # Inductor removes buffers of the first branch, and uses one of them for another.
      lambda self, p, x: torch.cond(
        p,
        lambda x: torch.special.modified_bessel_k1(x.sin()).clamp(-4, 4),
        lambda x: x * 2,
        (x[:, :1],),
      ),
      (YES, X),
      ["when branch {", "_special_modified_bessel_k1_"],
    ),
    (
      lambda self, i, x: while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2), (i, x)),
      (torch.tensor(0), X),
      [
        "loop {",
        re.compile(r"let (\w+) = result\(0\)\n\s*while \1\n"),
        "copy (write output1, read while_loop_body_graph_0_buf",
      ],
    ),
    (
      lambda self, x: x.nonzero() * 2,
      (X,),
      ["let u0 = range(result(0), 0, 40)", "grid (floordiv(add(mul(2, u0), "],
    ),
    (
      lambda self, x: torch.unique(x, dim=0) * 2,
      (X,),
      ['extern "aten::unique_dim:sizes" (', "grid (floordiv(add(mul(10, u0), "],
    ),
    (
      lambda self, x, v: x * v.item(),
      (X, torch.tensor(3)),
      ["read i64 (read v[0, 8])", ", u0, 40, null, null)"],
    ),
    (
      lambda self, x: (torch.ops.aten._assert_async.msg((x > 0).all(), "positive"), x * 2)[1],
      (X,),
      ['check(ne(result(0), 0)) "positive"'],
    ),
  ],
  ids="cond removed loop nonzero unique item assert".split(),
)
def test_texts(function, args, parts, tmp_path):
  path = husk.write(
    export_and_compare.FunctionModule(function),
    args,
    tmp_path,
    targets=("cuda:h200",),
    ops=["aten::unique_dim"],
  )
  text = path.read_text()
  for part in parts:
    found = part.search(text) if isinstance(part, re.Pattern) else part in text
    assert found, text[text.index("  variant") :]
