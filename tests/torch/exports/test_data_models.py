"""Models that combine sizes, numbers from data and checks, as PyTorch's own tests of ahead-of-time
programs do."""

import export_and_compare
import husk
import pytest
import torch
from torch.export import Dim

pytestmark = pytest.mark.skipif(
  not export_and_compare.ISAS, reason="this machine has neither AVX2 nor AVX-512"
)
ROWS = Dim("rows", min=2, max=50)
X = torch.randn(4, 10)
T = torch.tensor


def equal_numbers(self, x, y):
  a, b, c = (y[i].item() for i in range(3))
  torch._check(a == b)
  torch._check(b >= 1)
  torch._check(c == a + 1)
  torch._check(a < 100)
  return torch.ones(a, 3) + torch.ones(b, 3) * 2, torch.zeros(c) + 1


def sum_of_counts(self, a, b, c):
  one, other, both = a.nonzero().size(0), b.nonzero().size(0), c.item()
  torch._check(both == one + other)
  return torch.ones(both) * 2, torch.ones(one + other) + 1


def sums_and_products(self, v, x):
  a, b, c = v.tolist()
  for number in (a, b, c):
    torch._check(number >= 0)
  return torch.ones(a + b, c * 2 + 1).sum(1), torch.zeros(a * b + c)


def strides(self, x):
  return torch.ones(x.nonzero().squeeze(1).size(0), 5, 3).transpose(0, 1) * 2


def a_number_that_sizes_are(self, a, b):
  number = b.item()
  torch._check(number == a.shape[0] + a.shape[1])
  return torch.ones(number) + a.sum(), a * 2


def slices_by_sizes(self, x, y):
  return x[: y.shape[0]] * 2, x[-y.shape[0] :] + 1


def nothing_left(self, x):
  return x.nonzero()[:, 0].float().exp()


def many_numbers(self, v, x):
  numbers = v.tolist()
  for number in numbers:
    torch._check(number >= 0)
  return x + sum(numbers)


def the_same_twice(self, x):
  return x.nonzero().sum(), x.nonzero().sum() * 2, x.nonzero().size(0)


def two_that_are_equal(self, x, y):
  torch._check(x.nonzero().size(0) == y.nonzero().size(0))
  return x.nonzero() + y.nonzero()


def numbers_out(self, a, b, c):
  return a.item(), b.item(), c.item(), a.item() * 2 + 1, a.item() > 3, b.item() * 2


def sizes_to_resize_to(self, x, v):
  height, width = v.tolist()
  for number in (height, width):
    torch._check(number >= 2)
    torch._check(number < 200)
  return torch.nn.functional.interpolate(x, (height, width), mode="bilinear", align_corners=False)


def rows_that_are_chosen(self, x, m):
  return x[m] * 2, x[m].sum(0)


def numbers_in_kernels_and_grids(self, x, v):
  number = v.item()
  torch._check(number >= 1)
  torch._check(number <= 4)
  return x[:number].repeat(2, 1) * number, torch.arange(number)


def parts(self, x, v):
  one, other = v.tolist()
  for number in (one, other):
    torch._check(number >= 0)
  torch._check(one + other == x.shape[0])
  return torch.split(x, [one, other])


def limits(self, x, v):
  number = v.item()
  torch._check(number >= 0)
  torch._check(number <= 1000)
  return torch.ones(torch.sym_max(number, 15)) * 2, torch.ones(torch.sym_min(number, x.shape[0]))


def mask_of_lengths(self, lengths, x):
  most = int(torch.max(lengths).item())
  mask = torch.arange(most).expand(lengths.shape[0], most) >= lengths.unsqueeze(1)
  return x.masked_fill(mask, 0.0)


@pytest.mark.parametrize(
  "function, args, shapes, others",
  [
    (equal_numbers, (X, T([3, 3, 4])), None, []),
    (sum_of_counts, (T([1.0, 0, 1]), T([0.0, 1, 1, 1]), T(5)), None, []),
    (sums_and_products, (T([2, 3, 4]), X), None, [(T([0, 0, 0]), X)]),
    (strides, (T([1.0, 0, 1]),), None, [(T([0.0, 0, 0]),)]),
    (a_number_that_sizes_are, (X, T(14)), [{0: ROWS}, None], [(torch.randn(7, 10), T(17))]),
    (
      slices_by_sizes,
      (torch.randn(9, 10), X),
      [{0: Dim("others", min=2, max=60)}, {0: ROWS}],
      [(X, X + 1)],
    ),
    (nothing_left, (T([0.0, 0, 0]),), None, [(T([1.0, 0, 1]),)]),
    (many_numbers, (torch.arange(130), X), None, []),
    (the_same_twice, (X.round(),), None, []),
    (two_that_are_equal, (T([1.0, 0, 1]), T([1.0, 1, 0])), None, []),
    (numbers_out, (T(3), T(2.5), T(True)), None, [(T(4), T(-0.5), T(False))]),
    (
      sizes_to_resize_to,
      (torch.randn(1, 3, 8, 8), T([5, 12])),
      None,
      [(torch.randn(1, 3, 8, 8), T([2, 2]))],
    ),
    (
      rows_that_are_chosen,
      (X, T([True, False, True, True])),
      [{0: ROWS}, {0: ROWS}],
      [(X, T([False] * 4))],
    ),
    (numbers_in_kernels_and_grids, (X, T(2)), None, [(X, T(4))]),
    (parts, (X, T([1, 3])), None, [(X, T([0, 4]))]),
    (limits, (X, T(20)), [{0: ROWS}, None], [(X, T(3))]),
    (mask_of_lengths, (T([2, 10, 7, 1]), X), None, [(T([10, 10, 7, 0]), X)]),
  ],
  ids=lambda value: getattr(value, "__name__", ""),
)
def test_models(function, args, shapes, others, tmp_path):
  export_and_compare.run(tmp_path, function, args, shapes, others, strides=False)


@pytest.mark.parametrize(
  "options",
  [
    {"batch_first": True},
    {"num_layers": 2, "bidirectional": True},
    {"bias": False},
    {"proj_size": 3, "bias": False},
  ],
  ids=str,
)
def test_lstm(options, tmp_path):
  export_and_compare.run(
    tmp_path, torch.nn.LSTM(4, 5, **options).eval(), (torch.randn(2, 3, 4),), strides=False
  )


def test_lstm_of_varying_sequences(tmp_path):
  sequences = torch.export.Dim("sequences", min=1, max=8)
  export_and_compare.run(
    tmp_path,
    torch.nn.LSTM(4, 5, num_layers=2).eval(),
    (torch.randn(7, 3, 4),),
    shapes=({1: sequences},),
    others=[(torch.randn(7, 1, 4),), (torch.randn(7, 8, 4),)],
    strides=False,
  )


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_networks_of_varying_steps(kind, tmp_path):
  steps = torch.export.Dim("steps", min=1, max=16)
  export_and_compare.run(
    tmp_path,
    kind(4, 5, num_layers=2, bidirectional=True).eval(),
    (torch.randn(7, 3, 4),),
    shapes=({0: steps},),
    others=[(torch.randn(1, 3, 4),), (torch.randn(16, 3, 4),)],
    strides=False,
    strict=None,
  )


@pytest.mark.parametrize(
  ("model", "words"),
  [
    (torch.nn.GRU(4, 5).double(), "gru whose number of steps varies"),
    (torch.nn.RNN(4, 5).bfloat16(), "rnn_tanh whose number of steps varies"),
    (torch.nn.LSTM(4, 5, proj_size=3), "an LSTM whose number of steps varies, with a projection"),
  ],
)
def test_other_networks_of_varying_steps_are_refused(model, words, tmp_path):
  shapes = ({0: torch.export.Dim("steps", min=2, max=16)},)
  x = torch.randn(7, 3, 4, dtype=next(model.parameters()).dtype)
  with pytest.raises(husk.Unsupported, match=words):
    husk.write(model.eval(), (x,), tmp_path, dynamic_shapes=shapes)


class EncoderAndDecoder(torch.nn.Module):
  """An LSTM that goes on where another one ended."""

  def __init__(self):
    super().__init__()
    self.encoder = torch.nn.LSTM(4, 5, num_layers=2, batch_first=True)
    self.decoder = torch.nn.LSTM(5, 5, num_layers=2, batch_first=True)

  def forward(self, x):
    past, state = self.encoder(x)
    return self.decoder(past[:, -1:], state)


def test_states_of_an_lstm_are_those_of_another(tmp_path):
  export_and_compare.run(
    tmp_path,
    EncoderAndDecoder().eval(),
    (torch.randn(3, 4, 4),),
    shapes=({0: Dim("sequences", min=1, max=8)},),
    others=[(torch.randn(1, 4, 4),), (torch.randn(8, 4, 4),)],
    strides=False,
  )


@pytest.mark.parametrize(
  "function, args",
  [
    (lambda self, x: torch.stft(x, 16, return_complex=True).abs(), (torch.randn(100),)),
    (
      lambda self, x, g: torch.nn.functional.grid_sample(x, g, align_corners=False),
      (torch.randn(1, 2, 3, 4, 5), torch.rand(1, 2, 2, 2, 3)),
    ),
    (
      lambda self, w, i, o: torch.nn.functional.embedding_bag(i, w, o, mode="mean"),
      (torch.randn(10, 3), T([1, 2, 4, 5]), T([0, 2])),
    ),
    (lambda self, x: torch.sort(torch.softmax(x, -1), descending=True)[0].cumsum(-1)[:, :3], (X,)),
  ],
  ids="stft grid_sample embedding_bag sampling".split(),
)
def test_operators_in_models(function, args, tmp_path):
  export_and_compare.run(tmp_path, function, args, strides=False)
