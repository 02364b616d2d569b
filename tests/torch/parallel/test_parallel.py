"""Models for several ranks: what DTensor and functional collectives make, a file for each rank."""

import os
import pathlib
import re
import subprocess
import sys
import threading

import husk
import pytest
import torch
import torch.distributed as dist
from husk.errors import Unsupported
from safetensors.torch import save_file
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
  ColwiseParallel,
  RowwiseParallel,
  SequenceParallel,
  parallelize_module,
)

ROOT = pathlib.Path(__file__).resolve().parents[3]
TARGETS = ("host:avx2",)


class Attention(nn.Module):
  """Attention whose number of heads follows from the projections, as in transformers."""

  def __init__(self, width, heads, groups, head):
    super().__init__()
    self.head = head
    self.repeats = heads // groups
    self.q_proj = nn.Linear(width, heads * head)
    self.k_proj = nn.Linear(width, groups * head, bias=False)
    self.v_proj = nn.Linear(width, groups * head, bias=False)
    self.o_proj = nn.Linear(heads * head, width)

  def forward(self, x):
    rows, length, _ = x.shape

    def heads(projected):
      return projected.view(rows, length, -1, self.head).transpose(1, 2)

    q, k, v = heads(self.q_proj(x)), heads(self.k_proj(x)), heads(self.v_proj(x))
    k, v = k.repeat_interleave(self.repeats, 1), v.repeat_interleave(self.repeats, 1)
    found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return self.o_proj(found.transpose(1, 2).reshape(rows, length, -1))


class Decoder(nn.Module):
  def __init__(self, vocabulary=64, width=16):
    super().__init__()
    self.embed_tokens = nn.Embedding(vocabulary, width)
    self.norm = nn.RMSNorm(width)
    self.attention = Attention(width, 4, 2, 4)
    self.gate_proj = nn.Linear(width, 32, bias=False)
    self.up_proj = nn.Linear(width, 32, bias=False)
    self.down_proj = nn.Linear(32, width, bias=False)
    self.lm_head = nn.Linear(width, vocabulary, bias=False)

  def forward(self, tokens):
    x = self.embed_tokens(tokens)
    x = x + self.attention(self.norm(x))
    y = self.norm(x)
    x = x + self.down_proj(nn.functional.silu(self.gate_proj(y)) * self.up_proj(y))
    return self.lm_head(x)


def whole(kind=Decoder, *args):
  torch.manual_seed(0)
  return kind(*args).eval()


def run(path, ranks, inputs, expected):
  """Runs the files of the ranks in processes of their own, and compares the results of each."""
  folder = path.parent
  save_file({str(i): x for i, x in enumerate(inputs)}, folder / "in.safetensors")
  save_file({str(i): y.contiguous() for i, y in enumerate(expected)}, folder / "out.safetensors")
  command = [husk.tools.find("husk-run"), path, "--ranks", str(ranks), "--timeout", "30000"]
  command += ["--inputs", folder / "in.safetensors", "--expected", folder / "out.safetensors"]
  done = subprocess.run(command, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr
  assert done.stdout.count("within rtol") == ranks * len(expected)


def test_a_decoder_on_two_ranks(tmp_path):
  tokens = torch.arange(24).reshape(3, 8) % 64
  rows = torch.export.Dim("rows", min=1, max=16)
  files = husk.parallel.export(
    lambda mesh: husk.parallel.shard(whole(), mesh),
    (tokens,),
    tmp_path / "decoder.husk",
    ranks=2,
    dynamic_shapes={"tokens": {0: rows}},
    targets=TARGETS,
    pack=True,
  )
  assert files == [tmp_path / "decoder.husk"] and sorted(tmp_path.iterdir()) == files
  with torch.no_grad():
    run(tmp_path / "decoder.husk", 2, [tokens], [whole()(tokens)])
    run(tmp_path / "decoder.husk", 2, [tokens[:2]], [whole()(tokens[:2])])
  # Each rank has its own copies for this CPU, and is packed before they are joined.
  dump = husk.tools.find("husk-dump")
  sizes = subprocess.run([dump, *files, "--output", "sizes"], capture_output=True, text=True)
  assert re.search(r"packed copies +[1-9]", sizes.stdout), sizes.stdout + sizes.stderr
  pack = [husk.tools.find("husk-pack"), *files, "-o", tmp_path / "again.husk"]
  done = subprocess.run(pack, capture_output=True, text=True)
  assert done.returncode == 1 and "pack that of each rank, and join them then" in done.stderr
  # In threads of one process, and refused alone.
  own = husk.group_id()
  results = {}

  def rank(number):
    program = husk.load(tmp_path / "decoder.husk", rank=number, world=2, group=own, threads=1)
    results[number] = program(tokens).clone()
    sizes.append({name: list(program.weights[name].shape) for name in names})

  # Weights are shards.
  names, sizes = ("attention.q_proj.weight", "down_proj.weight", "embed_tokens.weight"), []
  threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  torch.testing.assert_close(results[0], whole()(tokens).detach())
  assert torch.equal(results[0], results[1])
  assert sizes == [dict(zip(names, ([8, 16], [16, 16], [32, 16])))] * 2
  with pytest.raises(husk.InvalidArgumentError, match="is for rank 0 of 2, .* is rank 0 of 1"):
    husk.load(files[0])


class Calls(nn.Module):
  """Each functional collective, on rows of ones and on all ranks or half of them."""

  def __init__(self, mesh):
    super().__init__()
    self.all, self.half = (mesh, 0), (mesh, 1)
    self.rank = dist.get_rank()

  def forward(self, x):
    summed = functional.all_reduce(x, "sum", self.all)
    largest = functional.all_reduce(x, "max", self.half)
    gathered = functional.all_gather_tensor(x, 0, self.half)
    scattered = functional.reduce_scatter_tensor(x, "avg", 0, self.all)
    rows = [1, 1] if self.rank % 2 == 0 else [3, 3]
    moved = functional.all_to_all_single(x, rows, [1, 3], self.half)
    sent = functional.broadcast(x, 1, self.half)
    one, other = functional.all_reduce_coalesced([x, x], "min", self.half)
    return summed, largest, gathered, scattered, moved, sent, one, other


def test_functional_collectives_on_a_mesh_of_four(tmp_path):
  husk.parallel.export(
    Calls,
    (torch.ones(4, 3),),
    tmp_path / "calls.husk",
    ranks=(2, 2),
    names=("outer", "inner"),
    targets=TARGETS,
    keep=tmp_path,
  )
  text = (tmp_path / "rank3" / "model.hir").read_text()
  assert re.search(r"^world 4 rank 3 set \"[0-9a-f]{64}\"$", text, re.M)
  calls = re.findall(
    r'extern "husk::(\w+)" \(.*?, ("\w+", )?(\[3, 3\], \[1, 3\], |3, )?(\[[^]]*\]), '
    r"write",
    text,
  )
  found = sorted((name, how.strip('", '), ranks) for name, how, _, ranks in calls)
  assert found == [
    ("all_gather_into_tensor", "", "[2, 3]"),
    ("all_reduce", "max", "[2, 3]"),
    ("all_reduce", "min", "[2, 3]"),
    ("all_reduce", "min", "[2, 3]"),
    ("all_reduce", "sum", "[1, 3]"),
    ("all_to_all_single", "", "[2, 3]"),
    ("broadcast", "", "[2, 3]"),
    ("reduce_scatter_tensor", "avg", "[1, 3]"),
  ]
  # All of them write one byte, which keeps their order.
  assert text.count("write tensor order u8 [1] [1]") == 8
  sets = {
    re.search(r"set (.*)", (tmp_path / f"rank{rank}" / "model.hir").read_text())[1]
    for rank in range(4)
  }
  assert len(sets) == 1
  x = torch.arange(12.0).reshape(4, 3)
  own = husk.group_id()
  results = [None] * 4

  def rank(number):
    program = husk.load(tmp_path / "calls.husk", rank=number, world=4, group=own, threads=1)
    results[number] = [value.clone() for value in program(x + number)]

  threads = [threading.Thread(target=rank, args=(number,)) for number in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  for number, found in enumerate(results):
    column, row = number % 2, number // 2 * 2
    pair = x + row, x + row + 1
    assert torch.equal(found[0], x * 2 + 2 * column + 2)
    assert torch.equal(found[1], pair[1])
    assert torch.equal(found[2], torch.cat(pair))
    half = (x * 2 + 2 * column + 2) / 2
    assert torch.equal(found[3], half[:2] if number < 2 else half[2:])
    parts = [one[:1] if column == 0 else one[1:] for one in pair]
    assert torch.equal(found[4], torch.cat(parts))
    assert torch.equal(found[5], pair[1])
    assert torch.equal(found[6], pair[0]) and torch.equal(found[7], pair[0])


class Normed(nn.Module):
  def __init__(self):
    super().__init__()
    self.norm = nn.LayerNorm(8)
    self.up = nn.Linear(8, 16)
    self.down = nn.Linear(16, 8)

  def forward(self, x):
    return self.down(torch.relu(self.up(self.norm(x))))


def test_sequence_parallel(tmp_path):
  """A norm of a part of the sequence, then all of it: gathered before and scattered behind."""

  def build(mesh):
    return parallelize_module(
      whole(Normed),
      mesh,
      {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Replicate()),
      },
    )

  x = torch.randn(2, 4, 8)
  files = husk.parallel.export(
    build, (x,), tmp_path / "normed.husk", targets=TARGETS, one_file=False
  )
  assert files == [tmp_path / f"normed.rank{rank}.husk" for rank in range(2)]
  # Each rank gets its half of the sequence.
  halves = torch.randn(2, 2, 4, 8)
  with torch.no_grad():
    expected = whole(Normed)(torch.cat(list(halves), 1))
  own, results = husk.group_id(), {}

  def rank(number):
    program = husk.load(tmp_path / "normed.husk", rank=number, world=2, group=own, threads=1)
    results[number] = program(halves[number]).clone()

  threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  for number in range(2):
    torch.testing.assert_close(results[number], expected)


def test_refusals(tmp_path):
  def export(build, ranks=2):
    husk.parallel.export(build, (torch.ones(2, 8),), tmp_path / "x.husk", ranks=ranks)

  with pytest.raises(ValueError, match="ranks=1: a program for several ranks has at least 2"):
    export(lambda mesh: nn.Linear(8, 8), 1)
  with pytest.raises(ValueError, match="a weight of codes cannot be divided among ranks"):
    husk.parallel.export(
      lambda mesh: nn.Linear(8, 8), (torch.ones(2, 8),), tmp_path / "x.husk", quantize="int4"
    )
  with pytest.raises(ValueError, match="has its weights inside: give one_file=False too"):
    husk.parallel.export(
      lambda mesh: nn.Linear(8, 8), (torch.ones(2, 8),), tmp_path / "x.husk", weights="beside"
    )
  with pytest.raises(ValueError, match="has no layers named q_proj, .*parallelize_module"):
    export(lambda mesh: husk.parallel.shard(nn.Sequential(nn.Linear(8, 8)), mesh))
  with pytest.raises(ValueError, match="gate_proj: 32 is no multiple of 3"):
    model = whole(Decoder, 64, 15)
    model.attention = nn.Identity()
    export(lambda mesh: husk.parallel.shard(model, mesh), 3)

  class Config:
    num_attention_heads, num_key_value_heads = 4, 1

  with pytest.raises(ValueError, match="num_key_value_heads is 1, no multiple of 2"):
    model = whole()
    model.config = Config()
    export(lambda mesh: husk.parallel.shard(model, mesh))
  assert not dist.is_initialized()
  assert not list(tmp_path.iterdir())


def test_a_group_that_is_gone():
  class Sum(nn.Module):
    def forward(self, x):
      return torch.ops._c10d_functional.wait_tensor(
        torch.ops._c10d_functional.all_reduce(x, "sum", "nowhere")
      )

  program = torch.export.export(Sum(), (torch.ones(2),))
  with pytest.raises(Unsupported, match="the process group 'nowhere' of a collective operator"):
    husk.export(program, (torch.ones(2),), "unwritten.husk", targets=TARGETS)


def test_the_example(tmp_path):
  """examples/several-gpus, on the CPU: two processes print the rows of the whole model."""
  environment = os.environ | {"PYTHONPATH": str(ROOT / "compiler/torch")}

  def script(name, *args):
    done = subprocess.run(
      [sys.executable, ROOT / "examples/several-gpus" / name, *args],
      cwd=tmp_path,
      env=environment,
      capture_output=True,
      text=True,
    )
    assert done.returncode == 0, done.stderr
    return [float(number) for number in re.findall(r"-?\d+\.\d+", done.stdout)]

  expected = script("export_mlp.py", *TARGETS)
  assert len(expected) == 40
  assert script("run_mlp.py") == pytest.approx(expected, abs=1e-4)
