"""Ops of the host for layers that are not compiled (pooling, windows, distances, samplers), against
PyTorch."""

import collections

import exactness
import pytest
import torch
from host_ops import (
  INVALID_ARGUMENT,
  INVALID_INPUT,
  UNSUPPORTED,
  close,
  layouts,
  like,
  refused,
)

ATEN = torch.ops.aten
FLOATS = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def random(shape, dtype=torch.float32, seed=0):
  return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(
    dtype
  )


def check(pack, name, expected, *args, tolerance=0.0):
  """Calls an op whose results are `expected`: a tensor or several tensors."""
  expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
  got = [like(result) for result in expected]
  pack(name, *args, *got)
  for result, right in zip(got, expected):
    close(
      result,
      right,
      tolerance if right.is_floating_point() else 0,
      tolerance if right.is_floating_point() else 0,
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_pools(pack, dtype):
  for shape, size in [
    ((2, 3, 9, 11), (4, 5)),
    ((3, 9, 11), (1, 2)),
    ((2, 3, 4, 4), (7, 3)),
    ((0, 3, 4, 4), (2, 2)),
  ]:
    for self in layouts(random(shape, dtype)):
      check(
        pack,
        "aten::_adaptive_avg_pool2d",
        ATEN._adaptive_avg_pool2d(self, size),
        self,
        size,
        tolerance=FLOATS[dtype],
      )
      check(pack, "aten::adaptive_max_pool2d", ATEN.adaptive_max_pool2d(self, size), self, size)
  for self in layouts(random((2, 3, 5, 6, 7), dtype)):
    check(
      pack,
      "aten::_adaptive_avg_pool3d",
      ATEN._adaptive_avg_pool3d(self, (2, 3, 4)),
      self,
      [2, 3, 4],
      tolerance=FLOATS[dtype],
    )
    check(
      pack, "aten::adaptive_max_pool3d", ATEN.adaptive_max_pool3d(self, (2, 3, 4)), self, [2, 3, 4]
    )
  nan = random((1, 1, 6, 6), dtype)
  nan[0, 0, 1, 2] = float("nan")
  check(pack, "aten::adaptive_max_pool2d", ATEN.adaptive_max_pool2d(nan, (2, 2)), nan, [2, 2])
  refused(
    pack,
    INVALID_ARGUMENT,
    "argument out has size 3 along 2, not 2",
    "aten::_adaptive_avg_pool2d",
    nan,
    [2, 3],
    torch.zeros(1, 1, 3, 3, dtype=dtype),
  )
  refused(
    pack,
    INVALID_INPUT,
    "empty",
    "aten::_adaptive_avg_pool2d",
    nan[:, :, :0],
    [2, 3],
    torch.zeros(1, 1, 2, 3, dtype=dtype),
  )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segment_reduce(pack, dtype, reduce):
  for data in layouts(random((9, 3), dtype)):
    for lengths in ([1, 3, 0, 5], [9]):
      for initial in (None, 2.0):
        segment_lengths = torch.tensor(lengths)
        expected = torch.segment_reduce(
          data.contiguous(), reduce, lengths=segment_lengths, initial=initial, unsafe=True
        )
        check(
          pack,
          "aten::segment_reduce",
          expected,
          data,
          reduce,
          segment_lengths,
          None,
          None,
          0,
          False,
          initial,
          tolerance=FLOATS[dtype] * 4,
        )
        offsets = torch.cat([torch.zeros(1).long(), segment_lengths.cumsum(0)])
        check(
          pack,
          "aten::segment_reduce",
          expected,
          data,
          reduce,
          None,
          None,
          offsets,
          0,
          False,
          initial,
          tolerance=FLOATS[dtype] * 4,
        )
  for lengths in ([5, 5], [-1, 3]):
    refused(
      pack,
      INVALID_INPUT,
      "segments that are not in the data",
      "aten::segment_reduce",
      data,
      reduce,
      torch.tensor(lengths),
      None,
      None,
      0,
      False,
      None,
      torch.zeros(2, 3, dtype=dtype),
    )


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include", [False, True])
def test_index_reduce(pack, reduce, include):
  for self in layouts(random((4, 5))):
    for dim in (0, 1):
      index = torch.tensor([0, 2, 2])
      source = random((3, 5) if dim == 0 else (4, 3), seed=1)
      check(
        pack,
        "aten::index_reduce",
        self.index_reduce(dim, index, source, reduce, include_self=include),
        self,
        dim,
        index,
        source,
        reduce,
        include,
        tolerance=1e-6,
      )
  refused(
    pack,
    INVALID_INPUT,
    "index 4 is out of range",
    "aten::index_reduce",
    self,
    0,
    torch.tensor([0, 4, 1]),
    random((3, 5)),
    reduce,
    include,
    torch.zeros(4, 5),
  )


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_distances(pack, p):
  for a, b in [((4, 6), (5, 6)), ((2, 4, 6), (2, 5, 6)), ((0, 6), (3, 6)), ((2, 0), (3, 0))]:
    for dtype in (torch.float32, torch.float64):
      for x in layouts(random(a, dtype)):
        y = random(b, dtype, 1)
        check(
          pack,
          "aten::_cdist_forward",
          ATEN._cdist_forward(x, y, p, None),
          x,
          y,
          p,
          None,
          tolerance=2e-5,
        )
  for x in layouts(random((7, 5))):
    check(
      pack, "aten::_pdist_forward", ATEN._pdist_forward(x.contiguous(), p), x, p, tolerance=1e-5
    )


def test_small(pack):
  for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
    a = torch.tensor([[0, 12, 18, 7, 100, 96]]).to(dtype)
    b = torch.tensor([[8], [0], [36], [125]]).to(dtype)
    if dtype != torch.uint8:
      a, b = torch.cat([a, -a], 1), torch.cat([b, -b])
    check(pack, "aten::gcd", torch.gcd(a, b), a, b)
  for length in (0, 1, 2, 10, 33):
    for dtype in (torch.float32, torch.float64):
      check(
        pack,
        "aten::hann_window",
        torch.hann_window(length, dtype=dtype),
        length,
        dtype,
        None,
        None,
        None,
        tolerance=1e-6,
      )
      check(
        pack,
        "aten::hann_window.periodic",
        torch.hann_window(length, periodic=False, dtype=dtype),
        length,
        False,
        dtype,
        None,
        None,
        None,
        tolerance=1e-6,
      )
  a, b, c = random((4, 6)), random((3, 6, 5)), random((4, 5), seed=1)
  check(
    pack,
    "aten::_trilinear",
    ATEN._trilinear(a, b, c, [1, 3], [0], [1, 2], [2, 3]),
    a,
    b,
    c,
    [1, 3],
    [0],
    [1, 2],
    [2, 3],
    1,
    tolerance=1e-5,
  )
  for scale, zero, low, high in ((0.1, 3, 0, 255), (0.05, -7, -128, 127), (2.0, 0, 0, 15)):
    for self in layouts(random((4, 50)) * 10):
      check(
        pack,
        "aten::fake_quantize_per_tensor_affine_cachemask",
        ATEN.fake_quantize_per_tensor_affine_cachemask(self, scale, zero, low, high),
        self,
        scale,
        zero,
        low,
        high,
      )
  for p in (1.0, 2.0, 3.0, float("inf")):
    for table in layouts(random((6, 5))):
      indices = torch.tensor([[0, 3], [3, 5]])
      expected = torch.embedding_renorm_(table.clone(), indices, 1.0, p)
      check(pack, "aten::embedding_renorm", expected, table, indices, 1.0, p, tolerance=1e-5)
  refused(
    pack,
    INVALID_INPUT,
    "index 6 is out of range for a table of 6 rows",
    "aten::embedding_renorm",
    table,
    torch.tensor([6]),
    1.0,
    2.0,
    torch.zeros(6, 5),
  )


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("align", [False, True])
def test_grid_sampler(pack, mode, padding, align):
  for dims, shape in ((2, (2, 3, 5, 7)), (3, (2, 3, 4, 5, 6)), (2, (1, 2, 1, 4))):
    for dtype in (torch.float32, torch.float64) if (mode, dims) != (2, 3) else ():
      grid = random((shape[0], *([4] * dims), dims), dtype, 1) * 1.2
      grid.view(-1)[3] = 5
      for input in layouts(random(shape, dtype)):
        for places in layouts(grid):
          name = f"grid_sampler_{dims}d"
          check(
            pack,
            "aten::" + name,
            getattr(ATEN, name)(input, grid, mode, padding, align),
            input,
            places,
            mode,
            padding,
            align,
            tolerance=2e-5,
          )
  wild = torch.full((1, 2, 2, 2), float("nan"))
  wild[0, 0] = float("inf")
  got = torch.zeros(1, 2, 2, 2)
  pack("aten::grid_sampler_2d", random((1, 2, 1, 4)), wild, mode, padding, align, got)
  if mode == 2:
    assert got.isnan().all()
    assert ATEN.grid_sampler_2d(random((1, 2, 1, 4)), wild, mode, padding, align).isnan().all()
  refused(
    pack,
    UNSUPPORTED,
    "interpolation_mode",
    "aten::grid_sampler_2d",
    random((1, 2, 1, 4)),
    wild,
    3,
    padding,
    align,
    got,
  )


@pytest.mark.parametrize("name", ["_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"])
def test_antialias(pack, name):
  for shape, size in (
    ((2, 3, 9, 11), (4, 5)),
    ((1, 2, 5, 4), (9, 13)),
    ((1, 1, 20, 20), (3, 30)),
    ((1, 1, 4, 4), (1, 1)),
  ):
    for align in (False, True):
      for scales in ((None, None), (size[0] / shape[2], size[1] / shape[3])):
        for self in layouts(random(shape)):
          expected = getattr(ATEN, name)(self, size, align, *scales)
          check(pack, "aten::" + name, expected, self, size, align, *scales, tolerance=1e-4)


@pytest.mark.parametrize("dtype", FLOATS)
def test_attention(pack, dtype):
  tolerance = FLOATS[dtype] * 2
  for b, h, n, s, e in (
    (2, 3, 10, 10, 8),
    (1, 2, 130, 70, 64),
    (1, 1, 1, 300, 128),
    (1, 1, 40, 40, 256),
  ):
    q, k, v = (
      random((b, h, n, e), dtype, 0),
      random((b, h, s, e), dtype, 1),
      random((b, h, s, e), dtype, 2),
    )
    for causal in (False, True):
      for mask in (
        (None, random((n, s), dtype, 3), random((b, 1, n, s), dtype, 3)) if not causal else (None,)
      ):
        for scale in (None, 0.3):
          expected = ATEN._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, causal, attn_mask=mask, scale=scale
          )
          for layout in layouts(q):
            got = [like(result) for result in expected]
            pack(
              "aten::_scaled_dot_product_flash_attention_for_cpu",
              layout,
              k,
              v,
              0.0,
              causal,
              mask,
              scale,
              *got,
            )
            close(got[0], expected[0], tolerance, tolerance)
            close(
              got[1],
              expected[1],
              1e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-4,
              1e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-4,
            )
  q = random((1, 1, 4, 300))
  refused(
    pack,
    UNSUPPORTED,
    "256",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    q,
    q,
    q,
    0.0,
    False,
    None,
    None,
    q.clone(),
    None,
  )
  q = random((1, 1, 4, 8))
  refused(
    pack,
    UNSUPPORTED,
    "dropout_p",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    q,
    q,
    q,
    0.5,
    False,
    None,
    None,
    q.clone(),
    None,
  )


# (batch, heads, heads of the keys, queries, keys, width, width of the values): more rows than a
# part and more keys than a block, heads that share keys, few rows, and widths that fill no vector.
ATTENTION = [
  (1, 2, 2, 300, 290, 64, 64),
  (2, 6, 2, 50, 40, 32, 32),
  (1, 8, 2, 1, 260, 64, 64),
  (1, 3, 1, 1, 17, 80, 24),
  (1, 4, 1, 70, 5, 7, 33),
  (1, 2, 1, 3, 130, 128, 256),
  (2, 1, 1, 13, 129, 1, 1),
]


def plain_attention(query, key, value, causal, mask):
  """Attention in plain f32."""
  heads = query.shape[1] // key.shape[1]
  key, value = (tensor.float().repeat_interleave(heads, 1) for tensor in (key, value))
  scores = exactness.product(query, key) * query.shape[-1] ** -0.5
  if causal:
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
  if mask is not None and mask.dtype == torch.bool:
    scores = scores.masked_fill(~mask, -torch.inf)
  elif mask is not None:
    scores = scores + mask.float()
  weights = (scores - scores.amax(-1, keepdim=True)).exp()
  sums = exactness.product(weights, torch.ones(1, weights.shape[-1]))
  return exactness.product(weights, value.mT) / sums


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", ATTENTION)
def test_errors_of_attention(pack, dtype, shape):
  """Errors are those of plain f32, with each instruction set."""
  b, h, g, n, s, e, v = shape
  errors = collections.defaultdict(exactness.Errors)
  for seed in exactness.seeds(b * h * n * v):
    query, key, value = (
      random(size, dtype, 10 * seed + i)
      for i, size in enumerate([(b, n, h, e), (b, s, g, e), (b, s, g, v)])
    )
    # The heads of each row are adjacent, as after a linear layer.
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    masks = [
      None,
      random((n, s), dtype, 10 * seed + 3),
      random((b, 1, 1, s), dtype, 10 * seed + 3),
      random((h, n, s), dtype, 10 * seed + 3) > 0,
      torch.ones(n, s, dtype=torch.bool).tril().triu(-150),
    ]
    for number, (causal, mask) in enumerate([(True, None), *((False, mask) for mask in masks)]):
      exact = torch.nn.functional.scaled_dot_product_attention(
        *(tensor.double() for tensor in (query, key, value)),
        attn_mask=mask if mask is None or mask.dtype == torch.bool else mask.double(),
        is_causal=causal,
        enable_gqa=True,
      )
      plain = plain_attention(query, key, value, causal, mask)
      for isa in pack.each_use():
        got = like(exact.to(dtype))
        # The rows come first in the results of every other seed.
        got = got.transpose(1, 2).contiguous().transpose(1, 2) if seed % 2 else got
        pack(
          "aten::_scaled_dot_product_flash_attention_for_cpu",
          *(query, key, value, 0.0, causal, mask, None, got, None),
        )
        # A row that sees no key is zeros here and NaN in plain f32.
        known = ~plain.isnan()
        assert not got[~known].any()
        errors[isa, number].add(exact[known], got[known], plain[known])
  for what, each in errors.items():
    each.check(*what)


@pytest.mark.parametrize("codes", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("shape", ATTENTION)
def test_attention_of_codes(pack, codes, shape):
  """Keys and values are codes with scales: as exact as with floats, with each instruction set."""
  b, h, g, n, s, e, v = shape
  for dtype in (torch.float32, torch.bfloat16, torch.float16):
    query = random((b, h, n, e), dtype, 0)
    key = random((b, s, g, e), torch.float32, 1).mul(40).to(codes).transpose(1, 2)
    value = random((b, g, s, v), torch.float32, 2).mul(40).to(codes)
    scales = [
      random((b, g, s), torch.float32, 3).abs() / 40,
      random((b, s, g), torch.float32, 4).transpose(1, 2) / 40,
    ]
    masks = [None, random((b, 1, 1, s), dtype, 5), random((h, n, s), dtype, 6) > 0]
    for causal, mask in [(True, None), *((False, mask) for mask in masks)]:
      exact = torch.nn.functional.scaled_dot_product_attention(
        query.double(),
        *(one.double() * scale[..., None] for one, scale in zip((key, value), scales, strict=True)),
        attn_mask=mask if mask is None or mask.dtype == torch.bool else mask.double(),
        is_causal=causal,
        enable_gqa=True,
      )
      for _ in pack.each_use():
        got = like(exact.to(dtype))
        pack("husk::attention_codes", query, key, value, *scales, causal, mask, None, got)
        known = ~exact.isnan()
        assert not got[~known].any()
        tolerance = FLOATS[dtype] * 2
        close(got[known].double(), exact[known], tolerance, tolerance)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", ATTENTION)
def test_attention_of_halves(pack, half, shape):
  """Keys and values of 16 bits for queries in f32 give the bits of the same numbers in f32."""
  b, h, g, n, s, e, v = shape
  query = random((b, h, n, e), torch.float32, 0)
  key = random((b, s, g, e), half, 1).transpose(1, 2)
  value = random((b, g, s, v), half, 2)
  masks = [None, random((b, 1, 1, s), torch.float32, 3), random((h, n, s), torch.float32, 4) > 0]
  for causal, mask in [(True, None), *((False, mask) for mask in masks)]:
    for _ in pack.each_use():
      expected, got = query.new_empty(b, h, n, v), query.new_empty(b, h, n, v)
      name = "aten::_scaled_dot_product_flash_attention_for_cpu"
      rest = 0.0, causal, mask, None
      pack(name, query, key.float(), value.float(), *rest, expected, None)
      pack(name, query, key, value, *rest, got, None)
      assert torch.equal(got, expected)


def test_attention_of_halves_refuses(pack):
  query, key = random((1, 2, 3, 8)), random((1, 2, 5, 8), torch.float16)
  name = "aten::_scaled_dot_product_flash_attention_for_cpu"
  rest = 0.0, False, None, None, query.clone(), None
  refused(pack, INVALID_ARGUMENT, "value", name, query, key, key.float(), *rest)
  refused(pack, INVALID_ARGUMENT, "key", name, query, key.double(), key.double(), *rest)
  rest = 0.0, False, None, None, query.bfloat16(), None
  refused(pack, INVALID_ARGUMENT, "key", name, query.bfloat16(), key, key, *rest)


def test_attention_of_pages(pack):
  """Against the pages of a table one after the other. Rows of few queries and of many."""
  for dtype, heads, count, page, width in [
    (torch.float32, 4, 1, 64, 16),
    (torch.float32, 2, 20, 24, 8),
    (torch.bfloat16, 6, 1, 16, 64),
    (torch.float16, 2, 9, 200, 40),
    (torch.float64, 2, 3, 7, 5),
  ]:
    table = torch.tensor([[3, 0, 5, 1], [2, 5, 5, 4], [0, 0, 0, 6]])[:, ::2]
    query = random((3, heads, count, width), dtype, 0)
    keys = random((7, page, 2, width), dtype, 1).transpose(1, 2)
    values = random((7, 2, page, width + 3), dtype, 2)
    read = [one[table].transpose(1, 2).flatten(2, 3) for one in (keys, values)]
    masks = [None, random((3, 1, count, 2 * page), torch.float32, 3) > 0]
    for mask in masks:
      exact = torch.nn.functional.scaled_dot_product_attention(
        query.double(), *(one.double() for one in read), attn_mask=mask, enable_gqa=True
      )
      for _ in pack.each_use():
        got = like(exact.to(dtype))
        arguments = query, keys, values, None, None, table, mask, None, got
        pack("husk::attention_pages", *arguments)
        known = ~exact.isnan()
        close(got[known].double(), exact[known], FLOATS[dtype] * 2, FLOATS[dtype] * 2)
        if dtype in (torch.float16, torch.bfloat16):
          got, floats = like(exact.float()), like(exact.float())
          for keys_and_values, result in [
            ((keys, values), got),
            ((keys.float(), values.float()), floats),
          ]:
            arguments = query.float(), *keys_and_values, None, None, table, mask, None, result
            pack("husk::attention_pages", *arguments)
          assert torch.equal(got, floats)


def test_attention_of_pages_of_codes(pack):
  table = torch.tensor([[3, 0], [2, 4]])
  for codes in (torch.int8, torch.float8_e4m3fn):
    for count in (1, 20):
      query = random((2, 4, count, 16), torch.float32, 0)
      keys, values = (random((5, 2, 24, 16), torch.float32, at).mul(40).to(codes) for at in (1, 2))
      scales = [random((5, 2, 24), torch.float32, at).abs() / 40 for at in (3, 4)]
      read = [one[table].transpose(1, 2).flatten(2, 3) for one in (keys, values, *scales)]
      exact = torch.nn.functional.scaled_dot_product_attention(
        query.double(),
        read[0].double() * read[2][..., None],
        read[1].double() * read[3][..., None],
        enable_gqa=True,
      )
      for _ in pack.each_use():
        got = like(exact.float())
        arguments = query, keys, values, *scales, table, None, None, got
        pack("husk::attention_pages", *arguments)
        close(got.double(), exact, FLOATS[torch.float32] * 2, FLOATS[torch.float32] * 2)


def test_attention_of_pages_refuses(pack):
  query, keys, name = random((2, 2, 3, 8)), random((5, 2, 4, 8)), "husk::attention_pages"
  table, rest = torch.tensor([[0, 4], [1, 2]]), (None, None, query.clone())
  wrong = table.clone()
  for page in (5, -1, 2**60):
    wrong[1, 1] = page
    refused(pack, INVALID_INPUT, f"page {page}", name, query, keys, keys, None, None, wrong, *rest)
  refused(pack, UNSUPPORTED, "table", name, query, keys, keys, None, None, table.int(), *rest)
  refused(pack, INVALID_ARGUMENT, "table", name, query, keys, keys, None, None, table[:1], *rest)
  refused(pack, INVALID_ARGUMENT, "value", name, query, keys, keys[:4], None, None, table, *rest)


def test_every_code_of_attention(pack):
  """A key is one number: the result is the mean of all 256 values."""
  bits = torch.arange(256, dtype=torch.uint8)
  for dtype in (torch.int8, torch.float8_e4m3fn):
    value = bits.view(dtype)[None, None, None, :]  # one key, a value of 256 codes
    scales = torch.ones(1, 1, 1)
    for width in (1, 5):  # few queries read codes in place, others pack them
      query, got = torch.ones(1, 1, width, 1), torch.empty(1, 1, width, 256)
      key = torch.ones(1, 1, 1, 1).to(dtype)
      for _ in pack.each_use():
        pack("husk::attention_codes", query, key, value, scales, scales, False, None, None, got)
        expected = value.float().expand(got.shape)
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


def test_attention_of_codes_refuses(pack):
  query, key = random((1, 2, 3, 8)), torch.zeros(1, 2, 5, 8, dtype=torch.int8)
  scales, name = torch.ones(1, 2, 5), "husk::attention_codes"
  rest = (False, None, None, query.clone())
  refused(pack, UNSUPPORTED, "key", name, query, key.short(), key.short(), scales, scales, *rest)
  refused(pack, INVALID_ARGUMENT, "value", name, query, key, key.float(), scales, scales, *rest)
  refused(pack, UNSUPPORTED, "key_scales", name, query, key, key, scales.half(), scales, *rest)
  refused(
    pack, INVALID_ARGUMENT, "value_scales", name, query, key, key, scales, scales[..., :4], *rest
  )


def test_attention_passes_nan_and_infinity_on(pack):
  query, key, value = (random((1, 1, 20, 16), torch.float32, seed) for seed in range(3))
  query[0, 0, 3, 0] = float("nan")
  value[0, 0, 5, 1] = float("inf")
  got = like(query)
  pack(
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    *(query, key, value, 0.0, False, None, None, got, None),
  )
  assert got[0, 0, 3].isnan().all() and not got[0, 0, :3].isnan().any()
  assert (got[0, 0, :3, 1] == float("inf")).all() and got[0, 0, :3, 0].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_keys_that_a_mask_hides(pack, dtype):
  """Masks of a prompt give the bits of `is_causal`. What no row sees is not read."""
  query, key, value = (random((1, 2, 300, 64), dtype, seed) for seed in range(3))
  query = query[:, :, :200].contiguous()
  shown = torch.ones(200, 300, dtype=torch.bool).tril()
  name = "aten::_scaled_dot_product_flash_attention_for_cpu"

  def attention(causal, mask):
    got = like(query)
    pack(name, query, key, value, 0.0, causal, mask, None, got, None)
    return got

  expected = attention(True, None)
  masks = [shown, torch.zeros(shown.shape, dtype=dtype).masked_fill(~shown, -torch.inf)]
  masks.append(shown.T.contiguous().T)
  for mask in masks:
    assert torch.equal(attention(False, mask), expected)
  key[:, :, 256:], value[:, :, 256:] = float("nan"), float("nan")
  assert torch.equal(attention(False, shown), expected)
  shown[150:] = False
  got = attention(False, shown)
  assert torch.equal(got[:, :, :150], expected[:, :, :150]) and not got[:, :, 150:].any()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("biases", [False, True])
def test_lstm(pack, reverse, biases):
  for steps, sequences, width, hidden in (
    (4, 1, 6, 5),
    (7, 3, 10, 20),
    (3, 50, 4, 300),
    (40, 3, 20, 300),  # more steps than fit on the stack at a time
    (1, 2, 3, 4),
  ):
    lstm = torch.nn.LSTM(width, hidden, bias=biases)
    input, state, cell = (
      random((steps, sequences, width)),
      random((1, sequences, hidden), seed=1),
      random((1, sequences, hidden), seed=2),
    )
    with torch.no_grad():
      expected, (h, c) = lstm(input.flip(0) if reverse else input, (state, cell))
      expected = expected.flip(0) if reverse else expected
      weights = [
        lstm.weight_ih_l0,
        lstm.weight_hh_l0,
        *([lstm.bias_ih_l0, lstm.bias_hh_l0] if biases else [torch.zeros(4 * hidden)] * 2),
      ]
      for strided_input in layouts(input):
        got = [like(expected), like(h), like(c)]
        pack(
          "aten::mkldnn_rnn_layer",
          strided_input,
          *weights,
          state,
          cell,
          reverse,
          [],
          2,
          hidden,
          1,
          biases,
          False,
          False,
          False,
          *got,
          torch.zeros(0, dtype=torch.uint8),
        )
        for result, right in zip(got, (expected, h, c)):
          close(result, right, 1e-4, 1e-5)
  refused(
    pack,
    UNSUPPORTED,
    "mode is not 2",
    "aten::mkldnn_rnn_layer",
    strided_input,
    *weights,
    state,
    cell,
    reverse,
    [],
    3,
    hidden,
    1,
    biases,
    False,
    False,
    False,
    *got,
    None,
  )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["gru", "rnn_tanh", "rnn_relu"])
def test_recurrent_layer(pack, kind, reverse):
  for steps, sequences, width, hidden in (
    (4, 1, 6, 5),
    (7, 3, 10, 20),
    (3, 50, 4, 700),  # more sequences than fit into scratch memory at a time
    (0, 2, 3, 4),
    (2, 0, 3, 4),
  ):
    options = {} if kind == "gru" else {"nonlinearity": kind.removeprefix("rnn_")}
    network = (torch.nn.GRU if kind == "gru" else torch.nn.RNN)(width, hidden, **options)
    x, state = random((steps, sequences, width)), random((1, sequences, hidden), seed=1)
    with torch.no_grad():
      if steps and sequences:
        outputs, _ = network(x.flip(0) if reverse else x, state)
      else:
        outputs = x.new_empty(steps, sequences, hidden)
      expected = torch.cat([state, outputs])
      expected = expected.flip(0) if reverse else expected
      gates = torch.nn.functional.linear(x, network.weight_ih_l0, network.bias_ih_l0)
      weight, bias = network.weight_hh_l0, network.bias_hh_l0
      for strided_gates in layouts(gates):
        for strided_weight in layouts(weight):
          got = like(expected)
          pack(
            "husk::recurrent_layer",
            *(kind, strided_gates, state[0], None, strided_weight, bias, reverse, got),
          )
          close(got, expected, 1e-4, 1e-5)
      if steps and sequences:
        gates[0, 0, 0] = float("nan")
        pack("husk::recurrent_layer", kind, gates, state[0], None, weight, None, False, got)
        assert got[1, 0, 0].isnan()


def test_recurrent_layer_refuses(pack):
  name, kind = "husk::recurrent_layer", "gru"
  gates, state, weight = torch.zeros(3, 2, 15), torch.zeros(2, 5), torch.zeros(15, 5)
  bias, states = torch.zeros(15), torch.zeros(4, 2, 5)
  rest = (None, weight, bias, False, states)
  refused(pack, UNSUPPORTED, "kind is none of gru", name, "lstm", gates, state, *rest)
  refused(pack, UNSUPPORTED, "gates", name, kind, gates.double(), state, *rest)
  refused(pack, INVALID_ARGUMENT, "gates", name, kind, gates[..., 1:], state, *rest)
  refused(pack, INVALID_ARGUMENT, "hidden", name, kind, gates, state[1:], *rest)
  refused(pack, INVALID_ARGUMENT, "hidden", name, kind, gates, state.double(), *rest)
  wrong = {
    "cell": (state, weight, bias, False, states),
    "weight": (None, weight[:, 1:], bias, False, states),
    "bias": (None, weight, bias[1:], False, states),
    "states": (None, weight, bias, False, states[1:]),
  }
  for argument, values in wrong.items():
    refused(pack, INVALID_ARGUMENT, argument, name, kind, gates, state, *values)
  many = torch.zeros(2, 1).expand(2, 20000)
  refused(pack, UNSUPPORTED, "hidden", name, kind, gates, many, *rest)
