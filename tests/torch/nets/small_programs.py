"""Exports small programs, one for each topic of PyTorch's documentation and of public reports, and
compares them with eager mode at the sizes of the example and at others.

  python tests/torch/nets/small_programs.py, with the options of program_table.py

Programs that are refused for a reason are in REFUSED, and count as `told` if the text has its
words."""

import dataclasses
import pathlib
import sys
import typing

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "helpers"), str(HERE.parents[2] / "compiler" / "torch")]

import program_table  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from program_table import Program, of  # noqa: E402
from torch import nn  # noqa: E402

# By program, the words with which Husk refuses it.
REFUSED = {
  "ctc_loss": "aten._ctc_loss.Tensor",
  "custom_operator": "no implementation of small_programs::doubled",
  "fake_quantization": "aten.fake_quantize_per_tensor_affine_cachemask.default",
  "jagged_rows": "does not support tracing",
  "sparse_product": "makes a sparse tensor",
  "cache_that_a_slice_writes": "only integers, slices",
  "gradient_of_a_function": "torch.export cannot trace the model",
  "gradients_of_each_row": "torch.export cannot trace the model",
  "hessian": "torch.export cannot trace the model",
  "jacobian_forward": "torch.export cannot trace the model",
  "jacobian_reverse": "torch.export cannot trace the model",
  "least_squares": "aten.linalg_lstsq.default",
  "none_and_numbers_among_results": "is a str: programs take and return tensors",
  "norms_of_all_kinds": "specialized it to be a constant (4)",
  "packed_sequences": "zeros(): argument 'size' failed to unpack",
  "view_that_is_written": "satisfy the generated guard 3 <=",
  "while_loop_newton": "cond_fn might be aliasing the input or the output",
}

PROGRAMS: dict[str, typing.Callable[[], Program]] = {}


def program(function):
  """Adds a row: a function without arguments that returns a Program."""
  name = function.__name__
  assert name not in PROGRAMS, name
  PROGRAMS[name] = function
  return function


def rows(function, *sizes, n=4, more=(3, 9), tail=()):
  """A program of a tensor whose first size varies."""
  rest = sizes or (5,)
  return of(
    function,
    torch.randn(n, *rest),
    *tail,
    dims=[{0: "n"}, *[None] * len(tail)],
    others=[(torch.randn(m, *rest), *tail) for m in more],
  )


# Control flow and higher-order operators


@program
def cond_of_the_data():
  def function(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x * 2 + 1, (x,))

  return rows(function)


@program
def cond_of_a_size():
  def function(x):
    return torch.cond(x.shape[0] > 5, lambda x: x + 1, lambda x: x - 1, (x,))

  return rows(function)


@program
def cond_inside_of_cond():
  def inner(x):
    return torch.cond(x.max() > 1, lambda x: x.cos(), lambda x: x.exp(), (x,))

  return rows(lambda x: torch.cond(x.mean() > 0, inner, lambda x: -x, (x,)))


@program
def cond_with_layers():
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.one, self.two = (
        nn.Linear(5, 3),
        nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)),
      )

    def forward(self, x):
      return torch.cond(x.sum() > 0, self.one, self.two, (x,))

  return rows(Model())


@program
def while_loop_until_a_number_is_small():
  from torch._higher_order_ops.while_loop import while_loop

  def function(x):
    return while_loop(
      lambda i, x: x.abs().sum() > 1, lambda i, x: (i + 1, x / 2), (torch.tensor(0), x)
    )

  return rows(function)


@program
def while_loop_newton():
  from torch._higher_order_ops.while_loop import while_loop

  def function(x):
    x = x.abs() + 1
    return while_loop(
      lambda i, y: i < 6, lambda i, y: (i + 1, (y + x / y) / 2), (torch.tensor(0), x)
    )

  return rows(function)


@program
def scan_of_sums():
  from torch._higher_order_ops.scan import scan

  def function(x):
    return scan(lambda c, x: (c + x, c * x), torch.zeros(5), x, dim=0)

  return of(function, torch.randn(4, 5))


@program
def scan_of_a_varying_length():
  from torch._higher_order_ops.scan import scan

  return rows(lambda x: scan(lambda c, x: (c * 0.5 + x, c + x), torch.zeros(5), x, dim=0))


@program
def scan_in_reverse():
  from torch._higher_order_ops.scan import scan

  return of(
    lambda x: scan(lambda c, x: (c + x, c.clone()), torch.ones(5), x, dim=0, reverse=True),
    torch.randn(4, 5),
  )


@program
def map_over_rows():
  from torch._higher_order_ops.map import map as mapped

  return rows(lambda x, y: mapped(lambda row, y: row.sin() @ y, x, y), tail=(torch.randn(5, 3),))


@program
def associative_scan_of_products():
  from torch._higher_order_ops.associative_scan import associative_scan

  def function(x):
    return associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic")

  return of(function, torch.randn(6, 5))


@program
def associative_scan_of_pairs():
  from torch._higher_order_ops.associative_scan import associative_scan

  def combine(one, other):
    return one[0] * other[0], other[0] * one[1] + other[1]

  def function(a, b):
    return associative_scan(combine, (a, b), 0, combine_mode="generic")

  return of(function, torch.rand(8, 3), torch.randn(8, 3))


@program
def checkpointed_layers():
  from torch.utils.checkpoint import checkpoint

  layer = nn.Linear(5, 5)

  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.layer = layer

    def forward(self, x):
      return checkpoint(self.layer, x, use_reentrant=False)

  return rows(Model())


# torch.func


@program
def vmap_of_products():
  return rows(lambda x, y: torch.vmap(torch.dot, (0, None))(x, y), tail=(torch.randn(5),))


@program
def vmap_inside_of_vmap():
  def function(x):
    return torch.vmap(lambda a: torch.vmap(lambda b: (a * b).sum())(x))(x)

  return rows(function)


@program
def vmap_with_an_output_dimension():
  return rows(lambda x: torch.vmap(lambda r: (r.cumsum(0), r.max()), out_dims=(1, 0))(x))


@program
def vmap_of_conditions():
  return rows(lambda x: torch.vmap(lambda r: torch.where(r.sum() > 0, r, -r))(x))


@program
def gradient_of_a_function():
  return rows(lambda x: torch.func.grad(lambda x: (x.sin() * x).sum())(x))


@program
def gradients_of_each_row():
  return rows(
    lambda w, x: torch.vmap(torch.func.grad(lambda w, x: (w * x).sum() ** 2), (None, 0))(w[0], x),
    tail=(torch.randn(4, 5),),
  )


@program
def jacobian_forward():
  return of(lambda x: torch.func.jacfwd(lambda x: x.sin() * x.sum())(x), torch.randn(4))


@program
def jacobian_reverse():
  return of(lambda x: torch.func.jacrev(lambda x: x.exp() * x[0])(x), torch.randn(4))


@program
def hessian():
  return of(lambda x: torch.func.hessian(lambda x: (x**3).sum())(x), torch.randn(3))


@program
def functional_call_with_other_weights():
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.layer = nn.Linear(5, 3)

    def forward(self, x, w, b):
      return torch.func.functional_call(self.layer, {"weight": w, "bias": b}, (x,))

  return rows(Model(), tail=(torch.randn(3, 5), torch.randn(3)))


@program
def gradient_inside_of_a_model():
  def function(x):
    with torch.enable_grad():
      y = x.detach().requires_grad_()
      (gradient,) = torch.autograd.grad((y**3).sum(), y)
    return gradient

  return rows(function)


@program
def custom_autograd_function():
  class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
      return x.round()

    @staticmethod
    def backward(ctx, gradient):
      return gradient

  return rows(lambda x: Straight.apply(x * 3) / 3)


# Autocast and other modes


@program
def autocast_of_layers():
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.layer = nn.Linear(5, 3)

    def forward(self, x):
      with torch.autocast("cpu", torch.bfloat16):
        y = self.layer(x)
      return y.float() + x.sum()

  return rows(Model())


@program
def autocast_switched_off_inside():
  def function(x, y):
    with torch.autocast("cpu", torch.bfloat16):
      a = x @ y
      with torch.autocast("cpu", enabled=False):
        b = x @ y
    return a, b

  return rows(function, tail=(torch.randn(5, 3),))


@program
def no_grad_and_inference():
  def function(x):
    with torch.no_grad():
      y = x * 2
    return y + torch.no_grad()(lambda z: z.sin())(x)

  return rows(function)


@program
def default_dtype_of_constants():
  return rows(lambda x: x + torch.tensor([1.5, 2.5, 3.5, 4.5, 5.5]) * torch.full((5,), 2))


# Attention


def heads(batch=2, length=16, size=16):
  return tuple(torch.randn(batch, 4, length, size) for _ in range(3))


@program
def attention_with_a_causal_mask():
  return of(
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    *heads(),
    dims=[{0: "b", 2: "n"}] * 3,
    others=[heads(3, 9), heads(2, 33)],
  )


@program
def attention_with_fewer_key_heads():
  q = torch.randn(2, 4, 16, 16)
  k, v = torch.randn(2, 2, 16, 16), torch.randn(2, 2, 16, 16)
  return of(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), q, k, v)


@program
def attention_with_a_mask_of_floats():
  return of(
    lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), *heads(), torch.randn(16, 16)
  )


@program
def flex_attention_with_a_score():
  from torch.nn.attention.flex_attention import flex_attention

  def function(q, k, v):
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j) * 0.1)

  return of(function, *heads(2, 128))


@program
def flex_attention_with_a_block_mask():
  from torch.nn.attention.flex_attention import create_block_mask, flex_attention

  def function(q, k, v):
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cpu")
    return flex_attention(q, k, v, block_mask=mask)

  return of(function, *heads(2, 128))


@program
def multi_head_attention():
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x):
      return self.attention(x, x, x, average_attn_weights=False)

  return of(Model(), torch.randn(2, 6, 16), dims=[{1: "n"}], others=[(torch.randn(2, 9, 16),)])


@program
def transformer_layer_with_padding():
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)

    def forward(self, x, lengths):
      padding = torch.arange(x.shape[1]) >= lengths[:, None]
      return self.layer(x, src_key_padding_mask=padding)

  return of(Model(), torch.randn(2, 6, 16), torch.tensor([4, 6]))


@program
def transformer_decoder():
  layer = nn.TransformerDecoderLayer(16, 4, 32, batch_first=True)
  return of(
    nn.TransformerDecoder(layer, 2),
    torch.randn(2, 6, 16),
    torch.randn(2, 5, 16),
    dims=[{1: "n"}, {1: "m"}],
    others=[(torch.randn(2, 3, 16), torch.randn(2, 8, 16))],
  )


@program
def rotary_positions():
  def function(x):
    length, half = x.shape[1], x.shape[2] // 2
    angles = torch.outer(torch.arange(length), 10000 ** (-torch.arange(half) / half))
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

  return of(function, torch.randn(2, 6, 8), dims=[{1: "n"}], others=[(torch.randn(2, 11, 8),)])


@program
def rotary_positions_in_complex_numbers():
  def function(x):
    turned = torch.polar(torch.ones(6, 4), torch.arange(24.0).view(6, 4))
    return torch.view_as_real(torch.view_as_complex(x.view(2, 6, 4, 2)) * turned).flatten(2)

  return of(function, torch.randn(2, 6, 8))


# State, caches and aliases


class Cached(nn.Module):
  def __init__(self):
    super().__init__()
    self.register_buffer("cache", torch.zeros(2, 16, 4))
    self.register_buffer("place", torch.tensor(0))


@program
def cache_that_index_copy_writes():
  class Model(Cached):
    def forward(self, x):
      self.cache.index_copy_(1, self.place.view(1), x[:, None])
      self.place.add_(1)
      return self.cache.sum(1)

  return of(Model(), torch.randn(2, 4))


@program
def cache_that_a_slice_writes():
  class Model(Cached):
    def forward(self, x, start):
      n = start.item()
      torch._check(n >= 0)
      torch._check(n < 16)
      self.cache[:, n] = x
      return self.cache * 2

  return of(Model(), torch.randn(2, 4), torch.tensor(3))


@program
def cache_that_rolls():
  class Model(Cached):
    def forward(self, x):
      self.cache.copy_(torch.cat([self.cache[:, 1:], x[:, None]], 1))
      return self.cache.mean(1)

  return of(Model(), torch.randn(2, 4))


@program
def cache_among_arguments():
  def function(x, cache):
    keys, values = cache["keys"], cache["values"]
    keys, values = torch.cat([keys, x], 1), torch.cat([values, x * 2], 1)
    return keys @ values.mT, {"keys": keys, "values": values}

  return of(
    function, torch.randn(2, 1, 4), {"keys": torch.randn(2, 3, 4), "values": torch.randn(2, 3, 4)}
  )


@program
def batch_norm_in_training():
  layer = nn.BatchNorm1d(5)

  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.layer = layer

    def forward(self, x):
      return F.batch_norm(
        x, self.layer.running_mean, self.layer.running_var, training=True, momentum=0.3
      )

  return rows(Model())


@program
def counter_of_calls():
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
      self.calls += 1
      return x * self.calls

  return rows(Model())


@program
def exponential_moving_average():
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.register_buffer("mean", torch.zeros(5))

    def forward(self, x):
      self.mean.lerp_(x.mean(0), 0.1)
      return x - self.mean

  return rows(Model())


@program
def buffer_that_is_replaced():
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.register_buffer("last", torch.zeros(5))

    def forward(self, x):
      before = self.last
      self.last = x[0].clone()
      return x + before

  return rows(Model())


@program
def argument_that_is_written():
  def function(x):
    x.mul_(2)
    return x + 1

  return rows(function)


@program
def result_that_is_an_argument():
  return rows(lambda x: (x, x * 2, x))


@program
def results_that_share_memory():
  def function(x):
    y = x * 2
    return y, y[1:], y.t(), y.view(-1)

  return of(function, torch.randn(4, 5))


@program
def view_that_is_written():
  def function(x):
    y = x.clone()
    y[1:, ::2] += 10
    y.diagonal().zero_()
    return y

  return rows(function, n=6, more=(5, 9))


@program
def parameters_that_are_tied():
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.table = nn.Embedding(11, 4)
      self.head = nn.Linear(4, 11, bias=False)
      self.head.weight = self.table.weight

    def forward(self, x):
      return self.head(self.table(x))

  return of(Model(), torch.randint(11, (2, 3)))


@program
def weights_with_parametrization():
  layer = nn.utils.parametrizations.weight_norm(nn.Linear(5, 3))
  return rows(layer)


@program
def orthogonal_weights():
  return rows(nn.utils.parametrizations.orthogonal(nn.Linear(5, 5)))


@program
def spectral_norm():
  return rows(nn.utils.parametrizations.spectral_norm(nn.Linear(5, 3)))


# Structured inputs and outputs


@program
def named_tuples():
  return of(lambda p: Pair(p.b + 1, p.a * 2), Pair(torch.randn(3), torch.randn(3)))


class Pair(typing.NamedTuple):
  a: torch.Tensor
  b: torch.Tensor


@program
def data_classes():
  return of(lambda p: Point(p.x * 2, p.y + p.x), Point(torch.randn(3), torch.randn(3)))


@dataclasses.dataclass
class Point:
  x: torch.Tensor
  y: torch.Tensor


@program
def nested_lists_and_dicts():
  def function(x):
    return {"sum": x["a"][0] + x["a"][1], "rest": [x["b"], {"c": x["b"] * 2}]}

  return of(function, {"a": [torch.randn(3), torch.randn(3)], "b": torch.randn(2)})


@program
def none_and_numbers_among_results():
  return rows(lambda x: (None, x.shape[0], 2.5, "text", x + 1))


@program
def numbers_among_arguments():
  return of(lambda x, n, s, flag: (x * n + s) if flag else x, torch.randn(3), 2, 0.5, True)


@program
def keyword_defaults():
  class Model(nn.Module):
    def forward(self, x, y=None, scale: float = 2.0):
      return x * scale if y is None else x + y

  return of(Model(), torch.randn(3))


@program
def empty_lists_and_tuples():
  return of(lambda x: ([], (), {"a": []}, x + 1), torch.randn(3))


# Sizes that the data decides


@program
def nonzero_and_gather():
  return rows(lambda x: x[(x > 0).nonzero(as_tuple=True)] * 2)


@program
def masked_rows():
  return rows(lambda x: x[x.sum(1) > 0].mean(0))


@program
def unique_with_counts():
  return of(
    lambda x: torch.unique(x, return_inverse=True, return_counts=True), torch.randint(5, (20,))
  )


@program
def repeated_by_counts():
  def function(x, counts):
    return torch.repeat_interleave(x, counts, dim=0)

  return of(function, torch.randn(3, 2), torch.tensor([2, 0, 3]))


@program
def slice_up_to_a_number():
  def function(x, n):
    n = n.item()
    torch._check(n >= 0)
    torch._check(n <= x.shape[0])
    return x[:n].sum(0)

  return rows(function, tail=(torch.tensor(2),))


@program
def split_by_sizes_of_the_data():
  def function(x, sizes):
    a, b = sizes.tolist()
    for n in (a, b):
      torch._check(n >= 0)
    torch._check(a + b == 6)
    one, other = x.split([a, b])
    return one.sum(0) + other.mean(0)

  return of(function, torch.randn(6, 3), torch.tensor([2, 4]))


@program
def ones_of_a_size_of_the_data():
  def function(n):
    n = n.item()
    torch._check(n >= 1)
    torch._check(n < 100)
    return torch.ones(n, 3).cumsum(0)

  return of(function, torch.tensor(4))


@program
def padded_rows():
  def function(x):
    return F.pad(x, (0, 0, 0, 8 - x.shape[0] % 8)).view(-1, 8, 5).sum(1)

  return rows(function)


@program
def histogram_of_ids():
  return of(lambda x: torch.bincount(x, minlength=8), torch.randint(8, (30,)))


@program
def topk_and_scatter():
  def function(x):
    values, places = x.topk(2, -1)
    return torch.zeros_like(x).scatter(-1, places, values.softmax(-1))

  return rows(function)


@program
def mixture_of_experts():
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.router = nn.Linear(8, 4)
      self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
      weights, chosen = self.router(x).softmax(-1).topk(2)
      result = torch.zeros_like(x)
      for n, expert in enumerate(self.experts):
        row, place = torch.where(chosen == n)
        result.index_add_(0, row, expert(x[row]) * weights[row, place, None])
      return result

  return rows(Model(), 8, n=6)


# Einsum, indices, scatter


@program
def einsum_of_batches():
  return rows(lambda x, y: torch.einsum("bhd,hde->bhe", x, y), 3, 5, tail=(torch.randn(3, 5, 2),))


@program
def einsum_with_an_ellipsis():
  return rows(lambda x, y: torch.einsum("...ij,kj->...ik", x, y), 3, 5, tail=(torch.randn(2, 5),))


@program
def einsum_of_a_trace():
  return of(lambda x: (torch.einsum("ii->i", x), torch.einsum("ij->", x)), torch.randn(4, 4))


@program
def index_put_that_accumulates():
  def function(x, i):
    return torch.zeros(5, 3).index_put((i,), x, accumulate=True)

  return of(function, torch.randn(4, 3), torch.tensor([0, 2, 0, 4]))


@program
def scatter_reduce_of_all_kinds():
  def function(x, i):
    kinds = ("sum", "prod", "mean", "amax", "amin")
    return [torch.ones(3, 5).scatter_reduce(0, i, x, kind) for kind in kinds]

  return of(function, torch.randn(4, 5), torch.randint(3, (4, 5)))


@program
def indices_in_several_dimensions():
  return of(
    lambda x, i, j: (x[i, :, j], x[:, i[:, None], j[None]], x[..., None, i, 1:3].shape),
    torch.randn(5, 6, 7),
    torch.tensor([0, -1, 2]),
    torch.tensor([1, 3, -2]),
  )


@program
def take_along_a_dimension():
  return rows(lambda x: torch.take_along_dim(x, x.argsort(-1, descending=True), -1))


@program
def index_reduce_and_index_fill():
  def function(x, i):
    return x.index_fill(0, i, 7), torch.zeros(6, 5).index_reduce(0, i, x[:2], "amax")

  return of(function, torch.randn(4, 5), torch.tensor([1, 3]))


@program
def masked_scatter_and_fill():
  return of(
    lambda x, m, y: (x.masked_fill(m, -1), x.masked_scatter(m, y)),
    torch.randn(3, 4),
    torch.rand(3, 4) > 0.5,
    torch.randn(12),
  )


@program
def searched_and_sorted():
  def function(x, y):
    keys = x.flatten().sort().values
    return torch.searchsorted(keys, y), torch.bucketize(y, keys, right=True)

  return of(function, torch.randn(3, 4), torch.randn(6))


@program
def sorted_by_several_keys():
  return of(lambda x: x[x[:, 1].argsort(stable=True)][:, 0], torch.randint(3, (10, 2)))


@program
def cumulative_operations():
  return rows(
    lambda x: (x.cumsum(0), x.cumprod(1), x.cummax(0).values, x.cummin(1), x.logcumsumexp(0))
  )


@program
def windows_of_a_signal():
  return rows(lambda x: x.unfold(1, 3, 2).mean(-1), 9)


@program
def patches_of_an_image():
  return rows(lambda x: F.fold(F.unfold(x, 2, stride=2), (4, 6), 2, stride=2), 3, 4, 6)


# Embeddings and recurrent layers


@program
def embedding_bag_with_offsets():
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.table = nn.EmbeddingBag(11, 4, mode="mean")

    def forward(self, ids, offsets):
      return self.table(ids, offsets)

  return of(Model(), torch.randint(11, (7,)), torch.tensor([0, 3, 5]))


@program
def embedding_bag_with_weights():
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.table = nn.EmbeddingBag(11, 4, mode="sum")

    def forward(self, ids, weights):
      return self.table(ids, per_sample_weights=weights)

  return of(Model(), torch.randint(11, (3, 4)), torch.rand(3, 4))


@program
def embedding_with_a_norm():
  return of(nn.Embedding(11, 4, padding_idx=0, max_norm=1.0), torch.randint(11, (3, 4)))


@program
def lstm_in_both_directions():
  return rows(nn.LSTM(5, 3, 2, batch_first=True, bidirectional=True), 6, 5)


@program
def lstm_with_a_varying_length():
  return of(nn.LSTM(5, 3), torch.randn(6, 2, 5), dims=[{0: "n"}], others=[(torch.randn(9, 2, 5),)])


@program
def gru_with_a_state():
  return of(nn.GRU(5, 3), torch.randn(6, 2, 5), torch.randn(1, 2, 3))


@program
def rnn_of_relu():
  return of(nn.RNN(5, 3, nonlinearity="relu"), torch.randn(6, 2, 5))


@program
def recurrent_cells():
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.lstm, self.gru, self.rnn = nn.LSTMCell(5, 3), nn.GRUCell(5, 3), nn.RNNCell(5, 3)

    def forward(self, x):
      return self.lstm(x), self.gru(x), self.rnn(x)

  return rows(Model())


@program
def packed_sequences():
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.layer = nn.GRU(5, 3, batch_first=True)

    def forward(self, x):
      packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 4]), batch_first=True)
      return self.layer(packed)[1]

  return of(Model(), torch.randn(2, 6, 5))


# Complex numbers and Fourier transforms


@program
def complex_arithmetic():
  return rows(lambda x: torch.view_as_real((x + 1j * x.flip(0)) ** 2 / (2 - 1j)))


@program
def complex_parts():
  def function(x):
    z = torch.complex(x, x.roll(1, 0))
    return z.real, z.imag, z.abs(), z.angle(), z.conj().imag, z.exp().real

  return rows(function)


@program
def complex_products():
  return rows(
    lambda x: torch.view_as_real(torch.complex(x, -x) @ torch.ones(5, 3, dtype=torch.cfloat))
  )


@program
def fourier_there_and_back():
  return rows(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=x.shape[1]), 8)


@program
def fourier_of_images():
  return rows(lambda x: torch.fft.fftshift(torch.fft.fft2(x)).abs(), 6, 8)


@program
def short_time_fourier():
  def function(x):
    window = torch.hann_window(8)
    return torch.stft(x, 8, 4, window=window, return_complex=True).abs()

  return rows(function, 32)


@program
def convolution_by_fourier():
  def function(x, k):
    n = x.shape[-1] + k.shape[-1] - 1
    return torch.fft.irfft(torch.fft.rfft(x, n) * torch.fft.rfft(k, n), n)

  return rows(function, 9, tail=(torch.randn(3),))


# Linear algebra


def square(n=4):
  x = torch.randn(3, n, n)
  return x @ x.mT + n * torch.eye(n)


@program
def cholesky_and_solve():
  return of(
    lambda a, b: (torch.linalg.cholesky(a), torch.linalg.solve(a, b)),
    square(),
    torch.randn(3, 4, 2),
  )


@program
def inverse_and_determinant():
  return of(lambda a: (torch.linalg.inv(a), torch.linalg.det(a), torch.slogdet(a)), square())


@program
def singular_values():
  return of(lambda a: torch.linalg.svdvals(a), torch.randn(3, 4, 5))


@program
def eigenvalues_of_symmetric_matrices():
  return of(lambda a: torch.linalg.eigvalsh(a), square())


@program
def least_squares():
  return of(lambda a, b: torch.linalg.lstsq(a, b).solution, torch.randn(6, 3), torch.randn(6, 2))


@program
def triangular_solve():
  return of(
    lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False),
    square(),
    torch.randn(3, 4, 2),
  )


@program
def norms_of_all_kinds():
  return rows(lambda x: [torch.linalg.norm(x, p) for p in ("fro", "nuc", 1, -1, float("inf"), 2)])


@program
def powers_of_a_matrix():
  return of(lambda a: (torch.linalg.matrix_power(a, 3), torch.matrix_exp(a / 10)), square())


@program
def covariance_and_correlation():
  return rows(lambda x: (torch.cov(x), torch.corrcoef(x), torch.cdist(x, x + 1)), 6)


# Images


@program
def interpolation_of_all_kinds():
  def function(x):
    kinds = ("nearest", "bilinear", "bicubic", "area", "nearest-exact")
    return [F.interpolate(x, (7, 9), mode=kind) for kind in kinds]

  return rows(function, 3, 4, 6)


@program
def interpolation_by_a_factor():
  return of(
    lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=True),
    torch.randn(1, 2, 6, 8),
    dims=[{2: "h", 3: "w"}],
    others=[(torch.randn(1, 2, 10, 4),)],
  )


@program
def sampled_at_a_grid():
  def function(x, t):
    grid = F.affine_grid(t, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, align_corners=False, padding_mode="reflection")

  return of(function, torch.randn(2, 3, 4, 6), torch.randn(2, 2, 3))


@program
def convolutions_in_a_row():
  model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding="same"),
    nn.BatchNorm2d(8),
    nn.SiLU(),
    nn.ConvTranspose2d(8, 4, 2, stride=2),
    nn.GroupNorm(2, 4),
    nn.PixelShuffle(2),
  )
  return of(
    model, torch.randn(2, 3, 6, 8), dims=[{0: "b", 2: "h"}], others=[(torch.randn(3, 3, 10, 8),)]
  )


@program
def pooling_of_all_kinds():
  def function(x):
    return (
      F.max_pool2d(x, 2, return_indices=True),
      F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
      F.adaptive_avg_pool2d(x, (3, 2)),
      F.lp_pool2d(x, 2, 2),
    )

  return rows(function, 3, 6, 8)


@program
def unpooled_images():
  def function(x):
    values, places = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(values, places, 2)

  return rows(function, 3, 6, 8)


@program
def pads_of_all_kinds():
  return rows(
    lambda x: [
      F.pad(x, (1, 2), mode=kind) for kind in ("constant", "reflect", "replicate", "circular")
    ],
    3,
    6,
  )


@program
def channels_last_images():
  model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))
  x = torch.randn(2, 3, 6, 8).to(memory_format=torch.channels_last)
  return of(model.to(memory_format=torch.channels_last), x)


# Quantization


@program
def fake_quantization():
  return rows(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127))


@program
def quantization_by_rows():
  def function(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    q = (x / scale).round().clamp(-128, 127).to(torch.int8)
    return q, q.float() * scale

  return rows(function)


@program
def linear_of_int8_weights():
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.register_buffer("weight", torch.randint(-127, 128, (8, 5), dtype=torch.int8))
      self.register_buffer("scale", torch.rand(8) / 50)

    def forward(self, x):
      return F.linear(x, self.weight.float() * self.scale[:, None])

  return rows(Model())


@program
def weights_of_four_bits():
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.register_buffer("packed", torch.randint(0, 256, (8, 4), dtype=torch.uint8))

    def forward(self, x):
      low, high = self.packed & 15, self.packed >> 4
      weight = torch.stack([low, high], -1).flatten(1).to(torch.float32) - 8
      return x @ weight.t()

  return rows(Model(), 8)


@program
def products_of_int8():
  return rows(
    lambda x, y: torch._int_mm((x * 10).to(torch.int8), y),
    32,
    n=32,
    more=(24, 40),
    tail=(torch.randint(-9, 9, (32, 16), dtype=torch.int8),),
  )


@program
def values_in_fp8():
  return rows(lambda x: (x.to(torch.float8_e4m3fn).float(), x.to(torch.float8_e5m2).float()))


@program
def bits_of_numbers():
  return rows(lambda x: (x.view(torch.int32) & 0x7FFFFFFF).view(torch.float32))


# Numbers, dtypes and random functions


@program
def integers_that_are_divided():
  x = torch.randint(-9, 9, (4, 5))
  return of(
    lambda x: (x // 3, x % 3, torch.div(x, 3, rounding_mode="trunc"), x.fmod(3), x / 2, x**2), x
  )


@program
def promoted_dtypes():
  return rows(lambda x: (x + 1, x.int() * 2.5, x.half() + x, x.bool() + 1, x.double() * x, x > 0))


@program
def infinities_and_nans():
  x = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 1.0])
  return of(lambda x: (x.nan_to_num(), x.isfinite(), x.sign(), 1 / x, x.maximum(x.flip(0))), x)


@program
def special_functions():
  def function(x):
    y = x.abs() + 0.1
    s = torch.special
    return (
      s.erfinv(x.tanh()),
      s.gammaln(y),
      s.digamma(y),
      s.i0e(x),
      s.xlog1py(x, y),
      s.ndtri(x.sigmoid()),
    )

  return rows(function)


@program
def losses():
  def function(x):
    target = x.argmax(1).flip(0)
    return (
      F.cross_entropy(x, target, label_smoothing=0.1),
      F.kl_div(x.log_softmax(1), x.flip(0).softmax(1), reduction="batchmean"),
      F.huber_loss(x, x.flip(0)),
      F.cosine_similarity(x, x.flip(0)),
    )

  return rows(function)


@program
def ctc_loss():
  def function(x):
    lengths = torch.tensor([6, 6]), torch.tensor([2, 3])
    return F.ctc_loss(x.log_softmax(-1), torch.tensor([[1, 2, 0], [1, 2, 3]]), *lengths)

  return of(function, torch.randn(6, 2, 5))


@program
def normalizations():
  return rows(
    lambda x: (
      F.layer_norm(x, (6,)),
      F.rms_norm(x, (6,)),
      F.group_norm(x, 2),
      F.instance_norm(x),
      F.normalize(x, dim=1),
      F.local_response_norm(x, 3),
    ),
    4,
    6,
  )


@program
def activations():
  def function(x):
    names = (
      "relu gelu silu mish elu selu celu hardswish softplus softsign logsigmoid tanhshrink glu"
    )
    return [getattr(F, name)(x) for name in names.split()]

  return rows(function, 6)


@program
def statistics():
  def function(x):
    means = x.std(0), torch.var_mean(x, 1), x.quantile(0.3, 1)
    return means, x.median(1), x.mode(1).values, x.kthvalue(2, 1)

  return rows(function)


@program
def sizes_in_arithmetic():
  def function(x):
    n = x.shape[0]
    return x.reshape(n // 2 * 2 * 5 // 5 + n % 2, -1) * (n**0.5) + max(n, 3) - min(n, 7)

  return rows(function)


@program
def loops_of_python():
  def function(x):
    for n in range(5):
      x = x + n if n % 2 else x * 0.5
    return torch.stack([x[:, n] for n in range(x.shape[1])], 1)

  return rows(function)


@program
def grids_of_places():
  def function(x):
    a, b = torch.meshgrid(torch.arange(x.shape[0]), torch.arange(x.shape[1]), indexing="ij")
    return (a * 10 + b).float() + x, torch.cartesian_prod(torch.arange(3), torch.arange(2))

  return rows(function)


@program
def triangles():
  return rows(lambda x: (x.tril(1), x.triu(-1), torch.tril_indices(4, 5), x.diag_embed()))


@program
def joined_and_split():
  def function(x):
    a, b = x.chunk(2, 1)
    return (
      torch.cat([b, a], 1),
      torch.hstack([a, b]),
      x.tensor_split(3, 1),
      torch.block_diag(a[:1], b[:1]),
    )

  return rows(function, 6)


@program
def custom_operator():
  if not hasattr(torch.ops.small_programs, "doubled"):

    @torch.library.custom_op("small_programs::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
      return x * 2

    doubled.register_fake(torch.empty_like)
  return rows(lambda x: torch.ops.small_programs.doubled(x) + 1)


@program
def assertions_about_data():
  def function(x):
    torch._assert_async((x < 100).all())
    return x.sqrt().nan_to_num()

  return rows(function)


@program
def jagged_rows():
  def function(values, offsets):
    x = torch.nested.nested_tensor_from_jagged(values, offsets)
    return (x * 2).values()

  return of(function, torch.randn(6, 3), torch.tensor([0, 2, 6]))


@program
def sparse_product():
  def function(x):
    places = torch.tensor([[0, 1, 2], [2, 0, 1]])
    return torch.sparse_coo_tensor(places, torch.ones(3), (3, 4)) @ x

  return of(function, torch.randn(4, 5))


# Parts of models of 2025 and 2026


@program
def attention_of_latent_keys():
  """Keys and values of all heads come from one short vector, positions from a part of their own."""

  class Latent(nn.Module):
    def __init__(self, width=32, heads=4, size=8, rank=12, turned=4):
      super().__init__()
      self.heads, self.size, self.turned = heads, size, turned
      self.q = nn.Linear(width, heads * (size + turned), bias=False)
      self.down = nn.Linear(width, rank + turned, bias=False)
      self.up = nn.Linear(rank, heads * 2 * size, bias=False)
      self.norm, self.out = nn.RMSNorm(rank), nn.Linear(heads * size, width, bias=False)

    def turn(self, x):
      places = torch.arange(x.shape[-2]).float()[:, None]
      angles = places * 100.0 ** (-torch.arange(0, self.turned, 2).float() / self.turned)
      cos, sin = angles.cos(), angles.sin()
      even, odd = x[..., 0::2], x[..., 1::2]
      return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)

    def forward(self, x):
      b, n, _ = x.shape
      q = self.q(x).view(b, n, self.heads, -1).transpose(1, 2)
      q, q_turned = q.split([self.size, self.turned], -1)
      latent, turned = self.down(x).split([self.down.out_features - self.turned, self.turned], -1)
      k, v = self.up(self.norm(latent)).view(b, n, self.heads, -1).transpose(1, 2).chunk(2, -1)
      turned = self.turn(turned)[:, None].expand(-1, self.heads, -1, -1)
      q, k = torch.cat((q, self.turn(q_turned)), -1), torch.cat((k, turned), -1)
      return self.out(
        F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
      )

  x, others = torch.randn(2, 5, 32), [(torch.randn(2, n, 32),) for n in (3, 11)]
  return of(Latent(), x, dims=[{1: "n"}], others=others)


@program
def gated_delta_rule():
  """A state of keys by values that each token decays and corrects."""

  def step(state, token):
    q, k, v, decay, rate = token
    state = state * decay[..., None, None].exp()
    read = (state * k[..., None]).sum(-2)
    state = state + k[..., None] * ((v - read) * rate[..., None])[..., None, :]
    return state.clone(), (state * q[..., None]).sum(-2)

  def function(q, k, v, decay, rate):
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    start = q.new_zeros(q.shape[1], q.shape[2], v.shape[2])
    tokens = (q, k, v, -F.softplus(decay), rate.sigmoid())
    state, out = torch._higher_order_ops.scan(step, start, tokens)
    return state, out

  def inputs(n):
    return (*(torch.randn(n, 2, 4) for _ in range(3)), torch.randn(n, 2), torch.randn(n, 2))

  return of(function, *inputs(5), dims=[{0: "n"}] * 5, others=[inputs(3), inputs(8)])


@program
def state_space_in_chunks():
  """Mamba 2: sums over segments as a triangle of products."""

  def segments(x):
    n = x.shape[-1]
    x = x[..., None].expand(*x.shape, n).masked_fill(~torch.ones(n, n).tril(-1).bool(), 0)
    sums = x.cumsum(-2)
    return sums.masked_fill(~torch.ones(n, n).tril().bool(), -torch.inf).exp()

  def function(x, a, b, c):
    x, b, c = (one.unflatten(1, (-1, 4)) for one in (x, b, c))
    a = a.unflatten(1, (-1, 4)).permute(0, 3, 1, 2)
    sums = a.cumsum(-1)
    inside = torch.einsum("bcln,bcsn,bhcls,bcshp->bclhp", c, b, segments(a), x)
    decay = (sums[..., -1:] - sums).exp()
    states = torch.einsum("bcln,bhcl,bclhp->bchpn", b, decay, x)
    states = torch.cat((torch.zeros_like(states[:, :1]), states), 1)
    between = segments(F.pad(sums[..., -1], (1, 0)))
    states = torch.einsum("bhzc,bchpn->bzhpn", between, states)[:, :-1]
    outside = torch.einsum("bcln,bchpn,bhcl->bclhp", c, states, sums.exp())
    return (inside + outside).flatten(1, 2)

  return of(
    function,
    torch.randn(2, 12, 2, 3),
    -torch.rand(2, 12, 2),
    torch.randn(2, 12, 5),
    torch.randn(2, 12, 5),
  )


@program
def attention_to_chosen_keys():
  """An indexer scores the keys, and each query attends to the best of them alone."""

  def function(q, k, v, index_q, index_k, weights):
    n = q.shape[1]
    scores = torch.einsum("hnd,md->hnm", index_q, index_k).relu()
    scores = (scores * weights.t()[..., None]).sum(0) + torch.arange(n) * 0.01  # no two are equal
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    best = scores.masked_fill(later, -torch.inf).topk(3, dim=-1).indices
    mask = torch.full((n, n), -torch.inf).scatter(-1, best, 0.0).masked_fill(later, -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), mask

  def inputs(n):
    q, k, v = (torch.randn(2, n, 8) for _ in range(3))
    return q, k, v, torch.randn(4, n, 6), torch.randn(n, 6), torch.randn(n, 4)

  dims = [{1: "n"}] * 4 + [{0: "n"}] * 2
  return of(function, *inputs(5), dims=dims, others=[inputs(4), inputs(9)], least={"n": 3})


@program
def attention_with_sinks():
  """Each head has a logit that takes weight and gives nothing; the window slides."""

  class Sinks(nn.Module):
    def __init__(self):
      super().__init__()
      self.sinks = nn.Parameter(torch.randn(4))

    def forward(self, q, k, v):
      k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
      n = q.shape[2]
      apart = torch.arange(n)[:, None] - torch.arange(n)
      logits = q @ k.mT * 8**-0.5
      logits = logits.masked_fill((apart < 0) | (apart >= 3), torch.finfo(q.dtype).min)
      sinks = self.sinks.view(1, -1, 1, 1).expand(q.shape[0], -1, n, -1)
      logits = torch.cat((logits, sinks), -1)
      weights = (logits - logits.max(-1, keepdim=True).values).softmax(-1)
      return weights[..., :-1] @ v

  def inputs(n):
    return torch.randn(2, 4, n, 8), torch.randn(2, 2, n, 8), torch.randn(2, 2, n, 8)

  return of(Sinks(), *inputs(5), dims=[{2: "n"}] * 3, others=[inputs(3), inputs(9)])


@program
def streams_mixed_by_doubly_stochastic_matrices():
  """Hyper-connections whose mixing Sinkhorn's iterations normalize."""

  class Streams(nn.Module):
    def __init__(self, width=6, streams=4):
      super().__init__()
      self.mix = nn.Linear(width * streams, streams * streams)
      self.norm, self.layer = nn.RMSNorm(width * streams), nn.Linear(width, width)
      self.read = nn.Parameter(torch.randn(streams))

    def forward(self, x):
      n = x.shape[-2]
      matrix = self.mix(self.norm(x.flatten(-2))).unflatten(-1, (n, n)).exp()
      for _ in range(6):
        matrix = matrix / matrix.sum(-1, keepdim=True)
        matrix = matrix / matrix.sum(-2, keepdim=True)
      y = self.layer((self.read.softmax(0)[:, None] * x).sum(-2))
      return matrix @ x + self.read.sigmoid()[:, None] * y[..., None, :]

  others = [(torch.randn(2, n, 4, 6),) for n in (2, 7)]
  return of(Streams(), torch.randn(2, 3, 4, 6), dims=[{1: "n"}], others=others)


@program
def orthogonal_step():
  """Newton and Schulz's iteration of the optimizer Muon."""

  def function(gradient, momentum):
    momentum = momentum * 0.95 + gradient
    x = (gradient + 0.95 * momentum).double()
    x = x.mT if x.shape[0] > x.shape[1] else x
    x = x / (x.norm() + 1e-7)
    for a, b, c in [(3.4445, -4.7750, 2.0315)] * 5:
      square = x @ x.mT
      x = a * x + (b * square + c * square @ square) @ x
    x = x.mT if gradient.shape[0] > gradient.shape[1] else x
    return x.float() * max(1, gradient.shape[0] / gradient.shape[1]) ** 0.5, momentum

  return of(function, torch.randn(12, 5), torch.randn(12, 5))


@program
def embeddings_of_hashed_ngrams():
  """Hashes of the last two and three tokens choose rows of tables."""

  class Hashed(nn.Module):
    def __init__(self):
      super().__init__()
      self.tables = nn.ModuleList(nn.Embedding(size, 4) for size in (31, 37))
      self.register_buffer("factors", torch.tensor([1_000_003, 998_244_353, 6_700_417]))

    def forward(self, tokens):
      shifted = [F.pad(tokens, (back, 0))[:, : tokens.shape[1]] for back in range(3)]
      found = []
      for order, table in zip((2, 3), self.tables):
        mixed = shifted[0] * self.factors[0]
        for back in range(1, order):
          mixed = torch.bitwise_xor(mixed, shifted[back] * self.factors[back])
        found.append(table(torch.remainder(mixed ^ (mixed >> 17), table.num_embeddings)))
      return torch.cat(found, -1)

  def inputs(n):
    return (torch.randint(0, 50_000, (2, n)),)

  return of(Hashed(), *inputs(6), dims=[{1: "n"}], others=[inputs(3), inputs(10)])


@program
def residual_codebooks():
  """Each codebook codes what the ones before have left; the last quantizer rounds to a lattice."""

  class Codebooks(nn.Module):
    def __init__(self):
      super().__init__()
      self.register_buffer("books", torch.randn(3, 16, 6))

    def forward(self, x):
      rest, codes = x, []
      for book in self.books:
        code = (rest[..., None, :] - book).square().sum(-1).argmin(-1)
        rest = rest - book[code]
        codes.append(code)
      levels = torch.tensor([8, 5, 5, 5, 3, 3])
      bounded = (rest.tanh() + 1) * (levels - 1) / 2
      lattice = bounded.round().to(torch.int32)
      basis = F.pad(levels[:-1].cumprod(0), (1, 0), value=1).to(torch.int32)
      return x - rest, torch.stack(codes, -1), (lattice * basis).sum(-1)

  others = [(torch.randn(1, n, 6),) for n in (3, 9)]
  return of(Codebooks(), torch.randn(1, 4, 6), dims=[{1: "n"}], others=others)


@program
def blocks_of_microscaled_floats():
  """Numbers as 4-bit floats with a power of two for each block, by their bits."""

  def function(x):
    blocks = x.unflatten(-1, (-1, 8))
    largest = blocks.abs().amax(-1, keepdim=True)
    exponent = (largest.view(torch.int32) >> 23 & 0xFF) - 2
    scales = exponent.clamp(1, 254).to(torch.uint8)
    scale = (scales.to(torch.int32) << 23).view(torch.float32)
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    steps = (grid[1:] + grid[:-1]) / 2
    codes = torch.bucketize((blocks / scale).abs(), steps).to(torch.uint8)
    codes = codes | (blocks < 0).to(torch.uint8) << 3
    packed = codes[..., 0::2] | codes[..., 1::2] << 4
    low, high = packed & 15, packed >> 4
    back = torch.stack((low, high), -1).flatten(-2)
    values = grid[(back & 7).long()] * torch.where(back > 7, -1.0, 1.0)
    return packed, scales.squeeze(-1), (values * scale).flatten(-2)

  return rows(function, 16)


@program
def step_of_a_flow():
  """A diffusion transformer's block with modulation, and two steps of Heun's method."""

  class Flow(nn.Module):
    def __init__(self, width=16):
      super().__init__()
      self.modulation = nn.Linear(width, 6 * width)
      self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
      self.gate, self.down = nn.Linear(width, 64), nn.Linear(32, width)
      self.q_norm, self.k_norm = nn.RMSNorm(8), nn.RMSNorm(8)

    def velocity(self, x, time):
      width = x.shape[-1]
      waves = time[:, None] * torch.exp(-torch.arange(width // 2) * 0.5)
      parts = self.modulation(F.silu(torch.cat((waves.cos(), waves.sin()), -1)))[:, None]
      shift, scale, gate, shift2, scale2, gate2 = parts.chunk(6, -1)
      y = F.layer_norm(x, (width,)) * (1 + scale) + shift
      q, k, v = self.qkv(y).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4).unbind(0)
      y = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)
      x = x + gate * self.out(y.transpose(1, 2).flatten(-2))
      y = F.layer_norm(x, (width,)) * (1 + scale2) + shift2
      left, right = self.gate(y).chunk(2, -1)
      return x + gate2 * self.down(F.silu(left) * right)

    def forward(self, x, time):
      for step in (0.25, 0.25):
        first = self.velocity(x, time)
        second = self.velocity(x + step * first, time + step)
        x, time = x + step * (first + second) / 2, time + step
      return x

  def inputs(n):
    return torch.randn(2, n, 16), torch.rand(2)

  dims = [{1: "n"}, None]
  return of(Flow(), *inputs(6), dims=dims, others=[inputs(3), inputs(10)])


@program
def image_without_rows():
  """Sizes of 0 in joins, products, reductions, sorts and scans."""

  def function(x, y):
    joined = torch.cat((x, y, x.new_empty(0, 4)), 0)
    sums = x.sum(0), x.mean(-1), x.prod(0), x.logsumexp(-1), x.any(0), x.all(1)
    product = x.t() @ x, torch.einsum("ni,nj->ij", x, x), F.linear(x, torch.ones(3, 4))
    order = x.sort(0).values, x.cumsum(0), x.topk(2, -1).indices, x.flip(0), x.argsort(-1)
    picked = x[x[:, 0] > 0], x.index_select(0, torch.arange(0)), F.one_hot(x.long().abs() % 3, 3)
    return joined, sums, product, order, picked, F.layer_norm(x, (4,)), F.pad(x, (1, 1, 2, 0))

  return of(function, torch.randn(0, 4), torch.randn(3, 4))


@program
def dtypes_that_are_rare():
  def function(bits, short, flags, half):
    wide = bits.view(torch.int16).to(torch.int32) & 0xFFFF
    bytes_ = short.view(torch.uint8)
    counts = flags.cumsum(0, dtype=torch.int16), flags.sum(0), flags.to(torch.int8) - 1
    halves = half.logsumexp(-1), half.cumprod(-1), half.to(torch.float8_e5m2).to(torch.float32)
    wrapped = short * 300 + short, short // 7, short % -5, -short, short.abs(), short.clamp(-9, 9)
    return wide, bytes_, counts, halves, wrapped, bits.to(torch.int64), flags ^ flags.flip(0)

  bits = torch.randint(0, 65_536, (6,)).to(torch.uint16)
  short = torch.randint(-30_000, 30_000, (6,)).to(torch.int16)
  flags = torch.rand(6, 3) > 0.5
  return of(function, bits, short, flags, torch.randn(4, 5).half())


@program
def mask_of_a_tree_of_drafts():
  """Tokens of a tree see their ancestors, by powers of the matrix of parents."""

  def function(parents, x):
    n = parents.shape[0]
    reach = F.one_hot(parents.clamp(min=0), n) * (parents >= 0)[:, None].long()
    mask = torch.eye(n, dtype=torch.bool)
    for _ in range(3):
      mask = mask | ((mask.float() @ reach.float()) > 0)
    depth = mask.sum(-1) - 1
    return mask, depth, F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

  return of(function, torch.tensor([-1, 0, 0, 1, 1, 2]), torch.randn(1, 2, 6, 8))


if __name__ == "__main__":
  program_table.main(__doc__, PROGRAMS, REFUSED)
