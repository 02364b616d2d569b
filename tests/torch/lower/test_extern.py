"""Operators that are called: every kind of argument and result."""

import export_and_compare
import husk
import pytest
import torch
from torch.export import Dim

pytestmark = pytest.mark.skipif(
  not export_and_compare.ISAS, reason="this machine has neither AVX2 nor AVX-512"
)
ROWS = Dim("rows", min=2, max=64)
X = torch.randn(4, 10)
OWN = ["husk_test::*", "husk_out::*"]  # operators of this file


@pytest.fixture(scope="module", autouse=True)
def custom_ops():
  """One op for each kind of argument."""
  library = torch.library.Library("husk_test", "DEF")

  def define(schema, function, fake=None):
    name = "husk_test::" + schema.partition("(")[0]
    library.define(schema)
    library.impl(schema.partition("(")[0], function, "CompositeExplicitAutograd")
    torch.library.register_fake(name, fake or function, lib=library)

  define(
    "all(Tensor x, Tensor? y, Tensor[] z, int i, int[] ints, float f, float[] fs, bool b, bool[] "
    "bs, ScalarType d, "
    "str s, Device? device=None, Scalar a=1, SymInt n=3) -> Tensor",
    lambda x, y, z, i, ints, f, fs, b, bs, d, s, device=None, a=1, n=3: (
      x * i
      + sum(z) * f
      + (0 if y is None else y)
      + sum(ints) * sum(fs)
      + b
      + bs.count(True)
      + len(s)
      + a
      + n
    ).to(d),
  )
  define(
    "optional(Tensor?[] z, float? f=None, int[]? ints=None, str? s=None) -> Tensor",
    lambda z, f=None, ints=None, s=None: (
      sum(t for t in z if t is not None) + (f or 0) + sum(ints or [])
    ),
  )
  define(
    "several(Tensor x) -> (Tensor, Tensor[], Tensor)",
    lambda x: (x + 1, [x * 2, x[:2] * 3], x.sum(0)),
  )
  define("listed(Tensor[] x) -> Tensor[]", lambda x: [t + 1 for t in x])
  define(
    "in_place(Tensor(a!) x, Tensor y) -> ()", lambda x, y: [x.add_(y)] and None, lambda x, y: None
  )
  define(
    "in_place_too(Tensor(a!) x, Tensor(b!)[] y) -> Tensor",
    lambda x, y: (x.add_(1), [t.mul_(2) for t in y], x.sum())[2],
    lambda x, y: x.new_empty(()),
  )
  define(
    "counted(Tensor x) -> (Tensor, SymInt)",
    lambda x: (x * 2, int((x > 0).sum())),
    lambda x: (x * 2, torch.library.get_ctx().new_dynamic_size(min=0, max=1000)),
  )
  define(
    "number(Tensor x) -> SymInt",
    lambda x: int((x > 0).sum()),
    lambda x: torch.library.get_ctx().new_dynamic_size(min=0, max=1000),
  )
  yield
  library._destroy()


OPS = torch.ops.husk_test


@pytest.mark.parametrize(
  "function",
  [
    lambda self, x: torch.topk(x, 3),
    lambda self, x: torch.sort(x, dim=0),
    lambda self, x: torch.kthvalue(x, 2),
    lambda self, x: torch.mode(x.round()),
    lambda self, x: torch.median(x, 1),
    lambda self, x: torch.histc(x, 5),
    lambda self, x: torch.cummax(x, 1),
  ],
  ids="topk sort kthvalue mode median histc cummax".split(),
)
def test_results(function, tmp_path):
  export_and_compare.run(
    tmp_path,
    function,
    (torch.randn(8, 10),),
    [{0: Dim("rows", min=4, max=64)}],
    others=[(torch.randn(5, 10),)],
  )


def test_results_of_an_operator_without_an_implementation(tmp_path):
  export_and_compare.run(
    tmp_path, lambda self, x: torch.linalg.qr(x), (X,), artifact=False, ops=["aten::linalg_qr"]
  )


def test_unused_results(tmp_path):
  text = export_and_compare.run(tmp_path, lambda self, x: torch.topk(x, 3)[1] + 1, (X,))
  assert text.count("write tensor") == 2


def test_every_kind_of_argument(tmp_path):
  def function(self, x, y):
    return OPS.all(
      x,
      y,
      [x, y * 2],
      3,
      [1, 2],
      0.5,
      [1, 2.5],
      True,
      [True, False],
      torch.float64,
      "text\n",
      x.device,
      a=2.5,
      n=x.shape[0],
    )

  text = export_and_compare.run(
    tmp_path,
    function,
    (X, X + 1),
    [{0: ROWS}, {0: ROWS}],
    others=[(torch.randn(7, 10),) * 2],
    ops=OWN,
  )
  assert (
    '3, [1, 2], 0.5, floats [1.0, 2.5], true, [true, false], dtype f64, "text\\n", none, 2.5, s'
    in text
  ), text
  assert "tensors [read tensor " in text


def test_arguments_that_are_missing(tmp_path):
  text = export_and_compare.run(
    tmp_path,
    lambda self, x: (
      OPS.optional([None, x, None]),
      OPS.optional([x], 1.5, [], "s"),
      OPS.all(x, None, [x], 1, [], 0.5, [], False, [], torch.float32, ""),
    ),
    (X,),
    ops=OWN,
  )
  assert (
    "tensors [none, read tensor" in text and ", floats [], " in text and ', 1.5, [], "s"' in text
  )


def test_results_in_lists(tmp_path):
  text = export_and_compare.run(
    tmp_path, lambda self, x: (*OPS.several(x), *OPS.listed([x, x * 3])), (X,), ops=OWN
  )
  assert "tensors [write tensor" in text


def test_results_that_are_numbers(tmp_path):
  def function(self, x):
    y, n = OPS.counted(x)
    return y + n, n, OPS.number(x)

  text = export_and_compare.run(tmp_path, function, (X,), ops=OWN)
  assert "write tensor" in text and "result int)" in text


@pytest.mark.parametrize(
  "function",
  [
    lambda self, x, y: OPS.in_place(x, y),
    lambda self, x, y: (OPS.in_place(x, y), x * 2)[1:],
    lambda self, x, y: OPS.in_place_too(x, [y]),
  ],
)
def test_operators_that_write_their_arguments(function, tmp_path):
  text = export_and_compare.run(tmp_path, function, (X, X + 1), ops=OWN)
  assert "both tensor" in text


def test_state_that_an_operator_writes(tmp_path):
  def function(self, x):
    OPS.in_place(self.k, x)
    return self.k * 2

  text = export_and_compare.run(
    tmp_path, function, (X,), buffers={"k": torch.zeros(4, 10)}, ops=OWN
  )
  assert "state k f32 [4, 10] fill 0" in text


def test_a_custom_op_in_a_branch(tmp_path):
  yes = torch.tensor(True)

  def function(self, p, x):
    return torch.cond(p, lambda x: OPS.listed([x])[0] + 1, lambda x: OPS.several(x)[0], (x,))

  export_and_compare.run(tmp_path, function, (yes, X), others=[(~yes, X)], ops=OWN)


def test_an_operator_of_a_package_is_refused(tmp_path):
  """The file cannot be opened where nobody registers the operator, so the export refuses it, unless
  `ops` says that somebody does."""

  def function(self, x):
    return OPS.listed([OPS.several(x)[0]])[0] + OPS.listed([x])[0]

  with pytest.raises(husk.Unsupported) as refused:
    export_and_compare.exported(tmp_path, function, (X,), ops=["husk_test::listed"])
  assert "no implementation of husk_test::several" in str(refused.value)
  assert "export with ops=['husk_test::several']" in str(refused.value)
  export_and_compare.run(tmp_path, function, (X,), ops=["husk_test::*"])


@pytest.mark.parametrize("source", ["tensor", "value"])
def test_scatter(source, tmp_path):
  def function(self, x, index, src):
    value = src if source == "tensor" else 3.5
    return (
      x.scatter(0, index, value),
      x.scatter_reduce(0, index, src, "prod"),
      torch.scatter(x, 1, index, src, reduce="multiply") if source == "tensor" else x,
    )

  index = torch.randint(0, 4, (3, 4))
  export_and_compare.run(tmp_path, function, (X, index, torch.randn(3, 4)))


def test_index_put_with_none(tmp_path):
  def function(self, x, i, v):
    put = torch.ops.aten.index_put
    return put(x, [None, i], v, True), put(x.real.int(), [None, i], v.real.int(), True)

  torch.use_deterministic_algorithms(True)
  try:
    text = export_and_compare.run(
      tmp_path,
      function,
      (X.to(torch.complex64), torch.tensor([1, 1, 2]), torch.randn(4, 3).to(torch.complex64)),
    )
  finally:
    torch.use_deterministic_algorithms(False)
  for name in ("aten::index_put", "aten::index_put_"):
    assert f'extern "{name}" (' in text and "tensors [none, read tensor" in text


def test_lists_of_tensors(tmp_path):
  z = X.to(torch.complex64)
  export_and_compare.run(
    tmp_path, lambda self, x, y: (torch.cat([x, y], 1), torch.stack([x, y])), (z, z * 2)
  )


@pytest.mark.parametrize(
  "function",
  [
    lambda self, x: x.permute(1, 0),
    lambda self, x: x[1:],
    lambda self, x: x[:, 2],
    lambda self, x: x.unsqueeze(1),
    lambda self, x: torch.view_as_real(x),
    lambda self, x: x.real,
    lambda self, x: x.imag * 2,
    lambda self, x: x.reshape(-1)[3:],
    lambda self, x: x.unbind(0)[2],
    lambda self, x: x.split(2, 1),
    lambda self, x: x.view(2, 2, 10).squeeze(),
    lambda self, x: torch.view_as_complex(torch.view_as_real(x) * 2)[1],
  ],
  ids=(
    "permute slice select unsqueeze view_as_real real imag reshape unbind split squeeze "
    "view_as_complex"
  ).split(),
)
def test_views_of_complex_numbers(function, tmp_path):
  """An operator whose result is a view of an argument is not called."""
  text = export_and_compare.run(tmp_path, function, (torch.randn(4, 10, dtype=torch.complex64),))
  assert not any(
    f'"aten::{name}' in text
    for name in ("permute", "slice", "select", "view", "real", "unbind", "split")
  )


@pytest.mark.parametrize(
  "function",
  [
    lambda self, x: x.conj() * 2,
    lambda self, x: (x + x.conj()).abs(),
    lambda self, x: x @ x.mH,
    lambda self, x: x.conj(),
    lambda self, x: torch.fft.fft(x),
    lambda self, x: torch.fft.irfft(x).sin(),
    lambda self, x: x.angle(),
    lambda self, x: x.clone(),
    lambda self, x: torch.zeros_like(x) + 1,
  ],
  ids="conj abs matmul conj_only fft irfft angle clone zeros".split(),
)
def test_complex_numbers(function, tmp_path):
  export_and_compare.run(tmp_path, function, (torch.randn(4, 10, dtype=torch.complex64),))


def test_complex_state(tmp_path):
  def function(self, x):
    self.k.copy_(x * 2)
    return self.k + 1

  export_and_compare.run(
    tmp_path,
    function,
    (torch.randn(4, dtype=torch.complex64),),
    buffers={"k": torch.zeros(4, dtype=torch.complex64)},
  )


@pytest.mark.parametrize(
  "function, name",
  [
    (lambda self, x: torch.rand_like(x), "aten::randint.low_out"),
    (lambda self, x: torch.bernoulli(x.sigmoid()), "aten::randint.low_out"),
    (lambda self, x: torch.multinomial(x.exp(), 2), "aten::multinomial"),
    (lambda self, x: torch.randperm(8), "aten::randperm"),
    (lambda self, x: x.clone().bernoulli_(0.5), None),
    (lambda self, x: torch.nn.functional.dropout(x, 0.5, True), "aten::randint.low_out"),
    (lambda self, x: torch.randint(0, 5, (3, 4)), "randint.low_out"),
    (lambda self, x: torch.normal(x, 2.0), None),
  ],
  ids="rand bernoulli multinomial randperm bernoulli_ dropout randint normal".split(),
)
def test_random_numbers(function, name, tmp_path):
  model, text, program = export_and_compare.exported(tmp_path, function, (X,))
  assert "state husk.generator " in text and (name is None or name in text)
  for line in text.splitlines():
    if 'extern "aten::rand' in line or 'extern "aten::multinomial' in line:
      assert (
        "both tensor husk.generator " in line.split(" at ")[0].split(", ")[-2]
        or "husk.generator" in line
      )
  (result,) = program.run(
    f"host_{export_and_compare.ISAS[0]}", **{program.inputs[0]["name"]: X}
  ).values()
  expected = model(X)
  assert (
    result.shape == expected.shape
    and result.dtype == expected.dtype
    and result.stride() == expected.stride()
  )


@pytest.mark.skipif(
  not hasattr(torch.Tag, "out"), reason="no tag for operators that write to what is given"
)
def test_operators_that_write_to_existing_buffers(tmp_path):
  library = torch.library.Library("husk_out", "DEF")
  try:
    library.define("pair(Tensor x) -> (Tensor, Tensor)")
    library.define(
      "pair.out(Tensor x, *, Tensor(a!) one, Tensor(b!) two) -> (Tensor(a!), Tensor(b!))",
      tags=(torch.Tag.out,),
    )
    library.impl("pair", lambda x: (x + 1, x * 2), "CompositeExplicitAutograd")
    library.impl(
      "pair.out",
      lambda x, one, two: (one.copy_(x + 1), two.copy_(x * 2)),
      "CompositeExplicitAutograd",
    )
    torch.library.register_fake("husk_out::pair", lambda x: (x + 1, x * 2), lib=library)
    text = export_and_compare.run(
      tmp_path, lambda self, x: tuple(t * 2 for t in torch.ops.husk_out.pair(x)), (X,), ops=OWN
    )
    assert '"husk_out::pair.out"' in text
  finally:
    library._destroy()


def test_random_operators_equal_eager(tmp_path):
  """The state of the generator begins with PyTorch's default seed."""
  _, _, program = export_and_compare.exported(
    tmp_path, lambda self, x: torch.multinomial(x, 4), (X.abs(),)
  )

  def eager(x):
    torch.manual_seed(67280421310721)
    return torch.multinomial(x, 4)

  export_and_compare.run_artifact(tmp_path, eager, program, (X.abs(),))
