"""Attention in programs for a GPU: what becomes the kernel, and what the whole computes by Triton's
interpreter."""

import logging
import re
import subprocess

import built_tools
import export_and_compare
import husk
import pytest
import torch
from cuda_numerics import close, computed
from function_module import FunctionModule
from husk.attention import launch, operator
from husk.attention.tiles import Tiles
from husk.cuda import kernels as triton_kernels
from husk.language import caches
from husk.launches import call
from torch.nn import functional as F

SDPA = F.scaled_dot_product_attention
ATEN = torch.ops.aten
AUTO = torch.export.Dim.AUTO
B, L = (torch.export.Dim(name, min=1, max=most) for name, most in (("batch", 8), ("queries", 300)))


def heads(batch=2, count=2, rows=5, size=16, dtype=torch.float32):
  return torch.randn(batch, count, rows, size, dtype=dtype)


def rewritten(function, *args, shapes=None):
  """(targets of the nodes that are attention, notes) of a program."""
  notes = []
  with torch.no_grad():
    program = torch.export.export(FunctionModule(function), args, dynamic_shapes=shapes)
  before = str(program.graph)
  attention_program = operator.rewrite(program, notes.append)
  assert str(program.graph) == before
  attention_program.validate()
  found = [
    str(node.target)
    for node in attention_program.graph.nodes
    if node.op == "call_function" and "attention" in str(node.target)
  ]
  return found, notes


# Attention that becomes the kernel


@pytest.mark.parametrize(
  "function",
  [
    lambda self, q, k, v: SDPA(q, k, v),
    lambda self, q, k, v: SDPA(q[0], k[0], v[0], is_causal=True),
    lambda self, q, k, v: SDPA(q[0, 0], k[0, 0], v[0, 0], scale=0.5),
    lambda self, q, k, v: SDPA(q, k[:, :1], v[:, :1], enable_gqa=True),
    lambda self, q, k, v: SDPA(q, k, v, torch.ones(5, 5, dtype=torch.bool)),
    lambda self, q, k, v: SDPA(q, k, v, torch.zeros(2, 1, 5, 5)),
    lambda self, q, k, v: SDPA(q.half(), k.half(), v.half()),
    lambda self, q, k, v: SDPA(q, k, v[..., :3]),
    lambda self, q, k, v: ATEN._scaled_dot_product_flash_attention_for_cpu(q, k, v)[0],
    lambda self, q, k, v: ATEN._scaled_dot_product_efficient_attention(q, k, v, None, False)[0],
    lambda self, q, k, v: ATEN._scaled_dot_product_attention_math(q, k, v)[0],
  ],
  ids="plain rank3 rank2 group mask bias half other_size flash_for_cpu efficient math".split(),
)
def test_the_kernel_covers(function):
  assert rewritten(function, heads(), heads(), heads()) == (["husk.attention.default"], [])


def test_log_sum_exp_is_computed_only_if_it_is_used():
  flash = ATEN._scaled_dot_product_flash_attention_for_cpu
  q = heads()
  assert rewritten(lambda self, q: flash(q, q, q)[:2], q) == (
    ["husk.attention_with_lse.default"],
    [],
  )
  assert rewritten(lambda self, q: flash(q, q, q)[1], q) == (
    ["husk.attention_with_lse.default"],
    [],
  )
  found, notes = rewritten(
    lambda self, q: ATEN._scaled_dot_product_efficient_attention(q, q, q, None, True)[:2], q
  )
  assert found == ["aten._scaled_dot_product_efficient_attention.default"]
  assert re.match(
    r"attention stays an operator of torch \(.*\): a log-sum-exp that is padded", notes[0]
  )


@pytest.mark.parametrize(
  "function, why",
  [
    (lambda self, q, k, v: SDPA(q, k, v, dropout_p=0.5), "dropout of 0.5"),
    (lambda self, q, k, v: SDPA(q.double(), k.double(), v.double()), "elements of torch.float64"),
    (lambda self, q, k, v: SDPA(q[None], k[None], v[None]), "rank 5"),
    (
      lambda self, q, k, v: SDPA(q.repeat(1, 1, 1, 20), k.repeat(1, 1, 1, 20), v),
      "a head size of 320; at most 256",
    ),
    (lambda self, q, k, v: SDPA(q, k, v, scale=-1.0), "a scale of -1.0"),
    (lambda self, q, k, v: SDPA(q, k[:1], v[:1]), r"shapes \[2, 2, 5, 16\], \[1, 2, 5, 16\]"),
  ],
  ids="dropout f64 rank5 large negative broadcast".split(),
)
def test_attention_that_is_not_covered_has_a_note(function, why):
  found, notes = rewritten(function, heads(), heads(), heads())
  assert found == ["aten.scaled_dot_product_attention.default"]
  assert re.search(r"attention is products and a softmax \(.*\): .*" + why, notes[0])


def test_causal_attention_of_the_flash_operator_counts_from_the_end():
  def flash(self, q, k):
    return ATEN._scaled_dot_product_flash_attention(q, k, k, is_causal=True)[0]

  assert rewritten(flash, heads(), heads()) == (["husk.attention.default"], [])
  with pytest.raises(
    husk.Unsupported,
    match="flash_attention.default with is_causal and other numbers of queries and keys",
  ):
    rewritten(flash, heads(), heads(rows=7))


def test_a_program_without_attention_is_left_alone():
  program = torch.export.export(FunctionModule(lambda self, x: x + 1), (torch.ones(3),))
  assert operator.rewrite(program, None) is program


def test_attention_in_a_branch():
  def function(self, p, q):
    return torch.cond(p, lambda q: SDPA(q, q, q), lambda q: q + 1, (q,))

  program = torch.export.export(FunctionModule(function), (torch.tensor(True), heads()))
  attention_program = operator.rewrite(program, None)
  targets = {
    str(node.target)
    for module in attention_program.graph_module.modules()
    if isinstance(module, torch.fx.GraphModule)
    for node in module.graph.nodes
  }
  assert "husk.attention.default" in targets


# The text of the program


def causal(self, q, k, v):
  return SDPA(q, k, v, is_causal=True)


def text_of(folder, function, args, *targets, shapes=None, **options):
  targets = targets or ("cuda:h200",)
  return husk.write(
    FunctionModule(function), args, folder, dynamic_shapes=shapes, targets=targets, **options
  ).read_text()


def test_attention_is_one_launch_that_waits(tmp_path):
  args = [heads(dtype=torch.float16, size=64) for _ in range(3)]
  text = text_of(
    tmp_path, causal, tuple(args), "cuda:h200", "cuda:orin", shapes=({0: B, 2: L},) * 3
  )
  for key in ("h200", "orin"):
    body = text[text.index(f"variant cuda_{key}") :].split("\n  }")[0]
    (launch,) = [
      line for line in body.splitlines() if "launch" in line and "attention_f16_64_causal" in line
    ]
    assert "extern" not in body and "(read q, read k, read v, write output, " in launch
    assert (tmp_path / f"{key}_attention_f16_64_causal.cubin").read_bytes().startswith(b"\x7fELF")
  rows = [line for line in text.splitlines() if line.startswith("kernel ")]
  assert len(rows) == 2 and [" pdl_wait_first" in row for row in rows] == [True, False]


def test_an_artifact(tmp_path, monkeypatch):
  monkeypatch.setenv("HUSKC", built_tools.built("huskc"))
  args = tuple(heads(dtype=torch.bfloat16, size=128) for _ in range(3))
  artifact = husk.export(
    FunctionModule(causal),
    args,
    tmp_path / "a.husk",
    dynamic_shapes=({0: B, 2: L},) * 3,
    targets=("cuda:h200", "cuda:orin"),
  )
  shown = subprocess.run(
    [built_tools.built("husk-dump"), artifact], capture_output=True, text=True, check=True
  ).stdout
  for key, arch in (("h200", "sm_90a"), ("orin", "sm_87")):
    assert f"image {key}_attention_bf16_128_causal.cubin cubin for cuda {arch}" in shown
    assert re.search(rf"variant cuda {arch}: 1 segments, .* 1 steps, 4 buffers", shown)


def test_equal_calls_share_a_kernel(tmp_path):
  """The strides are the kernel's own: those of the first and the last call differ from the
  others'."""

  def function(self, q, k, v):
    for _ in range(5):
      q = SDPA(q, k, v)
    return q

  text = text_of(tmp_path, function, (heads(), heads(), heads()))
  assert text.count("\nkernel ") == 3 and text.count("    launch ") == 5


def test_few_queries_over_many_keys_are_split(tmp_path):
  args = (
    heads(1, 8, 1, 64, torch.float16),
    *(heads(1, 2, 4096, 64, torch.float16) for _ in range(2)),
  )
  text = text_of(tmp_path, lambda self, q, k, v: SDPA(q, k, v, enable_gqa=True), args)
  launches = re.findall(r"launch (\S+) grid \((.*?)\) \(", text)
  assert launches == [
    ("h200_attention_f16_64", "2, 16, 1"),
    ("h200_attention_joined_64", "8, 1, 1"),
  ]


def written_out(self, q, k, v, mask):
  scores = q @ k.transpose(-1, -2) / 8.0 + mask
  return torch.softmax(scores, -1) @ v


MANY = {0: B, 2: torch.export.Dim("many", min=1, max=65536)}
KERNEL = "from triton.experimental import gluon"  # where a kernel is one whose warps share the work


def gluon_of(tmp_path, monkeypatch, args, function=causal, shapes=(MANY,) * 3, key="h200"):
  """(whether attention is that kernel, its row, its launch)."""
  sources = []
  compiled = triton_kernels._loaded
  monkeypatch.setattr(
    triton_kernels,
    "_loaded",
    lambda name, source, *rest, **more: (
      sources.append(source) or compiled(name, source, *rest, **more)
    ),
  )
  text = text_of(tmp_path, function, args, f"cuda:{key}", shapes=shapes)
  (row,) = re.findall(r"^kernel \S*attention.*", text, re.M)
  (call,) = re.findall(r"^ *launch \S*attention.*", text, re.M)
  return KERNEL in "".join(sources), row, call


@pytest.mark.parametrize(
  "size, dtype, shared", [(64, torch.float16, 131208), (128, torch.bfloat16, 180328)]
)
def test_many_queries_on_a_hopper(size, dtype, shared, tmp_path, monkeypatch):
  args = tuple(heads(dtype=dtype, size=size, rows=35) for _ in range(3))
  found, row, call = gluon_of(tmp_path, monkeypatch, args)
  assert found and f"block 384 1 1 shared {shared} pdl_wait_first" in row
  assert "grid (min(132, mul(mul(2, " in call and "(read q, read k, read v, write output, " in call


def test_the_log_sum_exp_on_a_hopper(tmp_path, monkeypatch):
  def function(self, q, k, v):
    return ATEN._scaled_dot_product_efficient_attention(q, k, v, None, True)[:2]

  args = tuple(heads(dtype=torch.float16, size=64, rows=512) for _ in range(3))
  found, _, call = gluon_of(tmp_path, monkeypatch, args, function, None)
  assert found and "write output, write output_1" in call.replace("output0", "output").replace(
    "output1", "output_1"
  )


@pytest.mark.parametrize(
  "key, size, dtype, rows, shapes, function",
  [
    ("h200", 64, torch.float16, 256, None, causal),  # few queries
    ("h200", 64, torch.float32, 35, (MANY,) * 3, causal),
    ("h200", 80, torch.float16, 35, (MANY,) * 3, causal),
    ("a100", 64, torch.float16, 35, (MANY,) * 3, causal),  # other multiprocessors
    ("b200", 64, torch.float16, 35, (MANY,) * 3, causal),
    (
      "h200",
      64,
      torch.float16,
      512,
      None,
      lambda self, q, k, v: SDPA(q, k, v, torch.zeros(512, 512, dtype=torch.float16)),
    ),
    ("h200", 64, torch.float16, 512, None, lambda self, q, k, v: SDPA(q, k, v[..., :16])),
  ],
)
def test_calls_that_the_hopper_kernel_does_not_support(
  key, size, dtype, rows, shapes, function, tmp_path, monkeypatch
):
  args = tuple(heads(dtype=dtype, size=size, rows=rows) for _ in range(3))
  assert not gluon_of(tmp_path, monkeypatch, args, function, shapes, key)[0]


def test_hopper_kernel_needs_rows_of_16_bytes(tmp_path, monkeypatch):
  def function(self, q, k, v):
    return causal(self, q[..., 4:68], k, v)

  args = (
    heads(dtype=torch.float16, size=72, rows=512),
    *(heads(dtype=torch.float16, size=64, rows=512) for _ in range(2)),
  )
  assert not gluon_of(tmp_path, monkeypatch, args, function, None)[0]


def test_written_out_attention_is_recognised(tmp_path):
  args = *(heads(2, 4, 64, 64, torch.float16) for _ in range(3)), torch.randn(2, 1, 64, 64).half()
  text = text_of(tmp_path, written_out, args)
  assert re.findall(r"launch (\S+) grid", text) == ["h200_attention_f16_64_mask"]
  text = text_of(tmp_path, written_out, args, attention="decompose")
  assert "attention" not in "".join(re.findall(r"launch (\S+) grid", text))


def test_attention_on_a_host_is_one_call(tmp_path):
  """Queries, keys and values are read where a linear layer writes them, and the next layer reads
  the result: nothing is copied."""

  class Layer(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

    def forward(self, x):
      rows = x.shape[:2]
      parts = self.qkv(x).split(32, -1)
      q, k, v = (part.view(*rows, 2, 16).transpose(1, 2) for part in parts)
      return self.out(SDPA(q, k, v, is_causal=True).transpose(1, 2).reshape(*rows, 32))

  args = (torch.randn(2, 5, 32),)
  text = husk.write(Layer().eval(), args, tmp_path, targets=("host:avx2",)).read_text()
  steps = re.findall(r"^ *(?:extern|launch) (\S+)", text, re.M)
  flash = '"aten::_scaled_dot_product_flash_attention_for_cpu"'
  assert steps == ['"husk::linear"', flash, '"husk::linear"']
  text = text_of(tmp_path, causal, [heads()] * 3, "host:avx2", attention="decompose")
  assert flash not in text and "softmax" in text


def test_attention_that_a_host_does_not_cover(tmp_path):
  wide = [heads(size=300) for _ in range(3)]
  text = text_of(tmp_path, causal, wide, "host:avx2")
  assert re.search("# host_avx2: attention is products and a softmax .*: a head size of 300", text)
  assert "flash_attention" not in text


def test_decomposed_attention(tmp_path):
  text = text_of(tmp_path, causal, (heads(), heads(), heads()), attention="decompose")
  assert "h200_attention" not in text and "softmax" in text
  with pytest.raises(ValueError, match="attention='fast': give one of 'flash', 'decompose'"):
    text_of(tmp_path, causal, (heads(), heads(), heads()), attention="fast")


def test_command_line_option_attention(capsys):
  from husk.__main__ import parser

  assert parser().parse_args(["m.py:f"]).attention == "flash"
  assert parser().parse_args(["m.py:f", "--attention", "decompose"]).attention == "decompose"
  with pytest.raises(SystemExit):
    parser().parse_args(["m.py:f", "--attention", "fast"])
  assert "invalid choice: 'fast'" in capsys.readouterr().err


def test_text_and_log_have_the_note_of_uncovered_attention(tmp_path, caplog):
  with caplog.at_level(logging.WARNING, "husk"):
    # The root of the scale is complex, and there are no kernels for complex numbers.
    text = text_of(
      tmp_path,
      lambda self, q: SDPA(q, q, q, scale=-1.0),
      (heads(),),
      ops=["aten::*", "prims::*"],
    )
  note = text.splitlines()[2]
  assert re.match(
    r"# cuda_h200: attention is products and a softmax \(.*\): a scale of -1.0$", note
  )
  assert caplog.messages == [note[2:]] and "h200_attention" not in text


@pytest.mark.parametrize("key", ["orin", "l4", "a100", "h200", "b200"])
@pytest.mark.parametrize("dtype, size", [(torch.float16, 256), (torch.float32, 80)])
def test_targets(key, dtype, size, tmp_path):
  args = tuple(heads(1, 2, 300, size, dtype) for _ in range(3))
  text = text_of(tmp_path, lambda self, q, k, v: SDPA(q, k, v), args, f"cuda:{key}")
  shared = [int(size) for size in re.findall(r"^kernel .* shared (\d+)", text, re.M)]
  assert (
    shared and max(shared) <= husk.cuda.fake_cuda.Target.load(key).shared_memory_per_block_optin
  )


# Results


def check(tmp_path, function, args, runs, shapes=None, tolerance=1e-5, buffers=None, **options):
  model = FunctionModule(function, **(buffers or {}))
  names = [f"{name}" for name in function.__code__.co_varnames[1 : function.__code__.co_argcount]]
  named_runs = [dict(zip(names, run)) for run in runs]
  results = computed(
    FunctionModule(function, **{name: value.clone() for name, value in (buffers or {}).items()}),
    args,
    shapes,
    named_runs,
    tmp_path,
    **options,
  )
  for run, result in zip(runs, results):
    expected = model(*run)
    for one, other in zip(
      result.values(), expected if isinstance(expected, tuple) else (expected,), strict=True
    ):
      close(one, other, tolerance)


def test_masks_groups_and_lengths(tmp_path):
  def function(self, q, k, v, mask, bias):
    return (
      SDPA(q, k, v, mask, enable_gqa=True),
      SDPA(q, k, v, bias, enable_gqa=True, scale=0.3),
      SDPA(q, k, v, (mask & (bias[0] > -1)) | torch.eye(1, dtype=torch.bool), enable_gqa=True),
    )

  def args(batch, queries, keys):
    mask = torch.rand(batch, 1, queries, keys) > 0.4
    mask[..., 0] = True
    return (
      heads(batch, 4, queries, 24),
      heads(batch, 2, keys, 24),
      heads(batch, 2, keys, 24),
      mask,
      torch.randn(4, queries, keys),
    )

  shapes = (
    {0: AUTO, 2: AUTO},
    {0: AUTO, 2: AUTO},
    {0: AUTO, 2: AUTO},
    {0: AUTO, 2: AUTO, 3: AUTO},
    {1: AUTO, 2: AUTO},
  )
  check(
    tmp_path,
    function,
    args(2, 5, 7),
    [args(*sizes) for sizes in ((2, 2, 2), (3, 33, 65), (2, 130, 3))],
    shapes,
  )


def test_rows_of_a_mask_that_the_program_computes(tmp_path, monkeypatch):
  """They begin at multiples of 16 elements, so that the kernel reads several at once."""

  def function(self, q, k, v):
    columns, rows = torch.arange(k.shape[2]), torch.arange(q.shape[2])
    mask = (columns % 3 != 1)[None, :] | (rows % 5 == 2)[:, None]
    return SDPA(q, k, v, mask), SDPA(q, k, v, torch.where(mask, 0.0, -3.0))

  launches = []
  launched = call.Call.launch

  def launch_(self, *args):
    launches.append(list(self.aligned))
    launched(self, *args)

  def args(batch, queries, keys):
    return heads(batch, 2, queries), heads(batch, 2, keys), heads(batch, 2, keys)

  monkeypatch.setattr(call.Call, "launch", launch_)
  runs = [args(*sizes) for sizes in ((2, 2, 2), (3, 33, 65), (2, 7, 130), (2, 5, 16))]
  queries, keys = ({0: B, 2: torch.export.Dim(name, min=1)} for name in ("queries", "keys"))
  check(tmp_path, function, args(2, 5, 7), runs, (queries, keys, keys))
  assert len(launches) == 2 and all("mask_row" in each for each in launches), launches


@pytest.mark.parametrize(
  "mask, is_bound",
  [
    (lambda keys, queries: keys <= queries, True),
    (lambda keys, queries: queries[None, None] >= keys, True),
    (lambda keys, queries: keys < queries, False),
    (lambda keys, queries: (keys <= queries) & (keys > queries - 9), False),
    (lambda keys, queries: keys + 1 <= queries, False),
    (lambda keys, queries: keys <= queries // 2, False),
    (lambda keys, queries: queries <= keys, False),
  ],
)
def test_queries_that_follow_keys_have_a_bound(mask, is_bound, tmp_path):
  """As in a chunk of a prompt, whose first token is at a position that is a number."""

  def function(self, q, k, v, position):
    places = torch.arange(q.shape[2]) + position
    first = places[0:1]  # as language models make it of all positions
    keys, queries = torch.arange(k.shape[2])[None], torch.arange(q.shape[2])[:, None] + first
    return SDPA(q, k, v, mask(keys, queries), enable_gqa=True)

  def args(queries, keys, position):
    tensors = [heads(1, count, rows) for count, rows in ((4, queries), (2, keys), (2, keys))]
    return *tensors, position

  queries, keys = ({2: torch.export.Dim(name, min=1)} for name in ("queries", "keys"))
  shapes = (queries, keys, keys, torch.export.Dim.DYNAMIC)
  runs = [args(5, 20, 15), args(33, 65, 32), args(1, 40, 7), args(40, 30, 0), args(20, 90, 3)]
  check(tmp_path, function, args(5, 7, 2), runs, shapes)
  names = re.findall(r"launch h200_(attention\S*)", (tmp_path / "model.hir").read_text())
  assert names == ["attention_f32_16_causal" if is_bound else "attention_f32_16_mask"]


def test_layouts(tmp_path):
  """Slices of one product, ranks, keys whose rows are not dense, and what follows at once."""

  def function(self, x, k):
    batch, rows, _ = x.shape
    q, key, v = (part.view(batch, rows, 3, 16).transpose(1, 2) for part in x.split(48, -1))
    y = SDPA(q, key, v, is_causal=True)
    strange = k.transpose(-1, -2)
    return (
      y.transpose(1, 2).reshape(batch, rows, 48) * 2,
      y,
      SDPA(q[:, 0], strange[:, 0], v[:, 0, :7, :5]),
      SDPA(q[0, 1], strange[0, 0], v[0, 1, :7]),
    )

  def args(batch, rows):
    return torch.randn(batch, rows, 144), torch.randn(batch, 1, 16, 7)

  check(tmp_path, function, args(2, 9), [args(2, 8), args(3, 40)], ({0: AUTO, 1: AUTO}, {0: AUTO}))


def test_a_layout_that_eager_mode_needs(tmp_path):
  """torch.nn.MultiheadAttention takes heads from tensors of [rows, batch, ...]. It leaves out the
  copy after attention, because the result has the query's order in memory."""

  class Layer(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.inner = torch.nn.MultiheadAttention(48, 3, batch_first=True)

    def forward(self, x):
      return self.inner(x, x, x, need_weights=False)[0]

  layer, x = Layer().eval(), torch.randn(2, 9, 48)
  expected = layer(x)
  for mode in ("flash", "decompose"):
    (result,) = computed(layer, (x,), None, [{"x": x}], tmp_path, attention=mode)
    close(next(iter(result.values())), expected, 1e-5)
    artifact = tmp_path / f"{mode}.husk"
    husk.export(layer, (x,), artifact, attention=mode)
    status, outputs, text = built_tools.husk_run(artifact, tmp_path, {"0": x})
    assert status == 0, text
    torch.testing.assert_close(outputs["0"], expected)


def test_decoding_with_a_cache(tmp_path):
  """One query over the part of a cache that is filled: split, and joined again."""

  def function(self, q, k, v, at):
    n = at.item()
    torch._check(n >= 0)
    torch._check(n < 1024)
    self.keys.index_copy_(2, at.reshape(1), k)
    self.values.index_copy_(2, at.reshape(1), v)
    return (
      SDPA(q, self.keys[:, :, : n + 1], self.values[:, :, : n + 1], enable_gqa=True)
      .transpose(1, 2)
      .reshape(1, 128)
    )

  def args(at):
    return heads(1, 8, 1), heads(1, 2, 1), heads(1, 2, 1), torch.tensor(at)

  cache = {"keys": torch.randn(1, 2, 1024, 16), "values": torch.randn(1, 2, 1024, 16)}
  check(tmp_path, function, args(3), [args(at) for at in (0, 1, 2, 1023, 700)], buffers=cache)
  assert "attention_joined" in (tmp_path / "model.hir").read_text()


def rounded_cache(self, q, k, v, at):
  """One query over caches of codes, which the step writes."""
  n = at.item()
  torch._check(n >= 0)
  torch._check(n < 1024)
  dtype = self.keys.dtype
  for codes, scales, new in ((self.keys, self.k_scales, k), (self.values, self.v_scales, v)):
    written, scale = caches.rounded(new, dtype)
    ATEN.index_put_(scales, (None, None, at.reshape(1)), scale)
    ATEN.index_put_(codes, (None, None, at.reshape(1)), written)
  keys, values = (
    (codes[:, :, : n + 1].float() * scales[:, :, : n + 1].unsqueeze(-1)).to(q.dtype)
    for codes, scales in ((self.keys, self.k_scales), (self.values, self.v_scales))
  )
  return SDPA(q, keys, values, enable_gqa=True)


def rounded_buffers(dtype):
  numbers = torch.randn(2, 1, 2, 1024, 16).mul(30).to(dtype)
  scales = torch.rand(2, 1, 2, 1024) / 30
  return {
    "keys": numbers[0],
    "values": numbers[1],
    "k_scales": scales[0],
    "v_scales": scales[1],
  }


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_attention_reads_codes_of_a_cache(dtype, tmp_path):
  def new():
    if dtype == torch.int8:
      return heads(1, 2, 1)
    # The interpreter loses a carry when it rounds to fp8, and subnormal numbers: these are codes of
    # the scale 1, and 0 or at least 1.
    numbers = heads(1, 2, 1).mul(30).round().to(dtype).float()
    numbers[..., 0] = 448
    return numbers

  def args(at):
    return heads(1, 8, 1), new(), new(), torch.tensor(at)

  torch.manual_seed(0)
  buffers = rounded_buffers(dtype)
  check(tmp_path, rounded_cache, args(3), [args(at) for at in (0, 1, 1023)], buffers=buffers)
  text = (tmp_path / "model.hir").read_text()
  kind = {torch.int8: "i8", torch.float8_e4m3fn: "fp8e4nv"}[dtype]
  assert f"h200_attention_f32_16_{kind}" in text
  model = FunctionModule(rounded_cache, **buffers)
  text = husk.write(model, args(3), tmp_path / "host", targets=("host:avx2",)).read_text()
  assert '"husk::attention_codes"' in text and "flash_attention" not in text


def half_cache(self, q, k, v, at):
  """One query in f32 over caches of 16 bits, which the step writes."""
  n = at.item()
  torch._check(n >= 0)
  torch._check(n < 1024)
  for kept, new in ((self.keys, k), (self.values, v)):
    ATEN.index_put_(kept, (None, None, at.reshape(1)), new.to(kept.dtype))
  keys, values = (kept[:, :, : n + 1].to(q.dtype) for kept in (self.keys, self.values))
  return SDPA(q, keys, values, enable_gqa=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_attention_reads_halves_of_a_cache(dtype, tmp_path):
  torch.manual_seed(0)
  buffers = {"keys": torch.randn(1, 2, 1024, 16).to(dtype)}
  buffers["values"] = torch.randn(1, 2, 1024, 16).to(dtype)
  model = FunctionModule(half_cache, **buffers)

  def args(at):
    return heads(1, 8, 1), heads(1, 2, 1), heads(1, 2, 1), torch.tensor(at)

  text = husk.write(model, args(3), tmp_path / "text", targets=("host:avx2",)).read_text()
  (call,) = re.findall(r"flash_attention_for_cpu.*", text)
  kind = {torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
  assert len(re.findall(rf"\b{kind}\b", call)) == 2, call
  # Each run writes the same position, since an artifact begins with the buffers of the model.
  export_and_compare.run(tmp_path, half_cache, args(700), None, [args(700)], buffers)


def halves_written_meanwhile(self, q, k, v):
  keys, values = self.halves.float(), v.half().float()
  self.halves.zero_()
  return SDPA(q, keys, values)


def halves_of_two_types(self, q, k, v):
  return SDPA(q, k.half().float(), v.bfloat16().float())


@pytest.mark.parametrize("function", [halves_written_meanwhile, halves_of_two_types])
def test_keys_that_are_no_halves_stay_floats(function, tmp_path):
  model = FunctionModule(function, halves=torch.zeros(2, 2, 5, 16, dtype=torch.float16))
  args = [heads() for _ in range(3)]
  text = husk.write(model, args, tmp_path, targets=("host:avx2",)).read_text()
  (call,) = re.findall(r"flash_attention_for_cpu.*", text)
  assert not re.search(r"\bb?f16\b", call), call


def one_scale(self, q, k, v):
  return SDPA(q, k.float() * 0.5, v.float() * 0.5)


def codes_and_floats(self, q, k, v):
  return SDPA(q, k.float() * self.scales.unsqueeze(-1), v.float())


def scales_of_elements(self, q, k, v):
  return SDPA(q, k.float() * q, v.float() * q)


def written_meanwhile(self, q, k, v):
  keys, values = (one.float() * self.scales.unsqueeze(-1) for one in (self.codes, v))
  self.codes.zero_()
  return SDPA(q, keys, values)


@pytest.mark.parametrize(
  "function", [one_scale, codes_and_floats, scales_of_elements, written_meanwhile]
)
def test_keys_that_are_other_products_stay_floats(function, tmp_path):
  codes = torch.zeros(2, 2, 5, 16, dtype=torch.int8)
  model = FunctionModule(function, scales=torch.ones(2, 2, 5), codes=codes.clone())
  text = husk.write(model, (heads(), codes, codes), tmp_path, targets=("host:avx2",)).read_text()
  assert "attention_codes" not in text and "flash_attention" in text


def test_written_out_attention_equals_eager(tmp_path):
  args = *(heads(2, 4, 40, 64, torch.float16) for _ in range(3)), torch.randn(2, 1, 40, 40).half()
  check(tmp_path, written_out, args, [args], tolerance=3e-3)


def test_the_log_sum_exp(tmp_path):
  def function(self, q, k, v):
    return ATEN._scaled_dot_product_flash_attention_for_cpu(q, k, v)[:2]

  model_args = heads(1, 2, 1, 16), heads(1, 2, 600, 16), heads(1, 2, 600, 16)  # split
  check(tmp_path / "split", function, model_args, [model_args])
  check(tmp_path / "whole", function, (heads(), heads(), heads()), [(heads(), heads(), heads())])


@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 3e-3), (torch.bfloat16, 2e-2)])
def test_half(dtype, tolerance, tmp_path):
  def args(batch, rows):
    return tuple(heads(batch, count, rows, 80, dtype) for count in (4, 2, 2))

  check(
    tmp_path,
    lambda self, q, k, v: SDPA(q, k, v, is_causal=True, enable_gqa=True),
    args(2, 70),
    [args(*sizes) for sizes in ((1, 1), (1, 77), (2, 129))],
    ({0: B, 2: L},) * 3,
    tolerance,
    target="orin",
  )


def test_register_limit_reaches_the_compiler(monkeypatch, tmp_path):
  limits, kernel = [], triton_kernels._kernel

  def noted(name, tuner, result, *rest):
    limits.append(result.kernel.metadata.maxnreg)
    return kernel(name, tuner, result, *rest)

  monkeypatch.setattr(triton_kernels, "_kernel", noted)
  monkeypatch.setattr(launch, "tiles", lambda *_: [Tiles(64, 32, 4, 2, 128)])
  q = heads(dtype=torch.float16)
  husk.export(
    FunctionModule(lambda self, q: SDPA(q, q, q)), (q,), tmp_path / "a.husk", targets=("cuda:h200",)
  )
  assert limits == [128]
