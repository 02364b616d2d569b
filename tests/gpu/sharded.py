"""Decoders with the sizes of Llama 3.1 8B and of Qwen3-30B-A3B on two GPUs: their time and memory
against one GPU, and against PyTorch on the same two.

  python tests/gpu/sharded.py [--layers 8] [--words 128256] [--tokens 4096] [--prompt 2048]
                              [--folder DIR] [--target cuda:h200] [--gemm cublaslt] [PART...]
PART: decode, prompt, experts; all by default

Each rank has half of the heads, of the MLP or of the experts, and of the words; two all-reduces a
layer add up what the ranks have computed, and the logits are gathered. A step of decoding takes a
token and its position, and keeps keys and values as state; a prompt returns the token that follows
it. `experts` is a step of decoding of four layers with a mixture of experts each. Each rank
is a process. A row has the milliseconds of a call, in a graph where there are graphs: Husk with one
rank and with two, PyTorch's eager mode and torch.compile(mode="reduce-overhead") with two ranks,
all in one run. The tokens of Husk on two ranks are compared with those of eager mode there.

`--gemm cublaslt` gives the products of a prompt to cuBLASLt, which a step of decoding does not use.
`--width`, `--device cpu` and `--target host:avx2` try the script without GPUs. An artifact that DIR
has is not made again."""

import argparse
import concurrent.futures
import functools
import itertools
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "compiler/torch"))

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.nn import functional as F


@functools.cache
def counter():
  return itertools.count(1)


def filled(tensor):
  """Small random numbers, made quickly: a few, again and again. They are others for each tensor,
  since a file has equal tensors once, and equal in each model, which begins to count anew."""
  seed = next(counter())
  some = torch.randn(min(tensor.numel(), 1_000_003), generator=torch.Generator().manual_seed(seed))
  some = (some * 0.02).to(tensor.dtype)
  flat = tensor.view(-1)
  for begin in range(0, len(flat), len(some)):
    part = flat[begin : begin + len(some)]
    part.copy_(some[: len(part)])
  return tensor


class Product(nn.Module):
  """A linear layer of which a rank has some rows or columns, in bf16."""

  def __init__(self, inner, outer):
    super().__init__()
    self.weight = nn.Parameter(filled(torch.empty(outer, inner, dtype=torch.bfloat16)))

  def forward(self, x):
    return F.linear(x, self.weight)


def turned(x, cosine, sine):
  one, other = x.chunk(2, -1)
  return x * cosine + torch.cat([-other, one], -1) * sine


class Mlp(nn.Module):
  """What a rank has of an MLP."""

  def __init__(self, sizes, mesh):
    super().__init__()
    self.mesh = mesh
    between = sizes.between // sizes.ranks
    self.gate = Product(sizes.width, between)
    self.up = Product(sizes.width, between)
    self.down = Product(between, sizes.width)

  def forward(self, x):
    y = self.down(F.silu(self.gate(x)) * self.up(x))
    return y if self.mesh is None else functional.all_reduce(y, "sum", (self.mesh, 0))


class Experts(nn.Module):
  """The experts of a layer, as transformers computes them with the form batched_mm."""

  def __init__(self, sizes):
    super().__init__()
    self.num_experts = sizes.experts
    shapes = (2 * sizes.between, sizes.width), (sizes.width, sizes.between)
    self.gate_up_proj, self.down_proj = (
      nn.Parameter(filled(torch.empty(sizes.experts, *shape, dtype=torch.bfloat16)))
      for shape in shapes
    )

  def forward(self, hidden_states, top_k_index, top_k_weights):
    active = top_k_index.shape[1]
    x, experts = hidden_states.repeat_interleave(active, 0), top_k_index.flatten()
    gate, up = torch.bmm(self.gate_up_proj[experts], x[..., None])[..., 0].chunk(2, -1)
    y = torch.bmm(self.down_proj[experts], (F.silu(gate) * up)[..., None])[..., 0]
    weighted = y * top_k_weights.flatten()[:, None]
    return weighted.view(-1, active, y.shape[1]).sum(1).to(y.dtype)


class Mixture(nn.Module):
  """A router, which every rank has, and what a rank has of the experts."""

  def __init__(self, sizes, mesh):
    super().__init__()
    self.active = sizes.active
    self.router = Product(sizes.width, sizes.experts)
    self.experts = Experts(sizes)
    if mesh is not None:
      from husk.parallel import experts

      experts.divide(self.experts, mesh)

  def forward(self, x):
    rows = x.flatten(0, 1)
    weights, experts = self.router(rows).softmax(-1, torch.float32).topk(self.active, -1)
    weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
    return self.experts(rows, experts, weights).view(x.shape)


class Layer(nn.Module):
  def __init__(self, sizes, mesh):
    super().__init__()
    self.sizes, self.mesh = sizes, mesh
    ranks, width, size = sizes.ranks, sizes.width, sizes.size
    self.heads, self.keys_heads = sizes.heads // ranks, sizes.keys // ranks
    self.q = Product(width, self.heads * size)
    self.k = Product(width, self.keys_heads * size)
    self.v = Product(width, self.keys_heads * size)
    self.o = Product(self.heads * size, width)
    self.mlp = Mixture(sizes, mesh) if sizes.experts else Mlp(sizes, mesh)
    self.before = nn.RMSNorm(width, dtype=torch.bfloat16)
    self.after = nn.RMSNorm(width, dtype=torch.bfloat16)
    if sizes.tokens:
      shape = (1, self.keys_heads, sizes.tokens, size)
      self.register_buffer("keys", torch.zeros(shape, dtype=torch.bfloat16))
      self.register_buffer("values", torch.zeros(shape, dtype=torch.bfloat16))

  def summed(self, x):
    return x if self.mesh is None else functional.all_reduce(x, "sum", (self.mesh, 0))

  def forward(self, x, place, mask, cosine, sine):
    h = self.before(x)
    q, k, v = (
      product(h).view(1, x.shape[1], -1, self.sizes.size).transpose(1, 2)
      for product in (self.q, self.k, self.v)
    )
    q, k = turned(q, cosine, sine), turned(k, cosine, sine)
    if self.sizes.tokens:
      self.keys.index_copy_(2, place, k)
      self.values.index_copy_(2, place, v)
      h = F.scaled_dot_product_attention(q, self.keys, self.values, mask, enable_gqa=True)
    else:
      h = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    x = x + self.summed(self.o(h.transpose(1, 2).reshape(1, x.shape[1], -1)))
    return x + self.mlp(self.after(x))


class Decoder(nn.Module):
  def __init__(self, sizes, mesh):
    super().__init__()
    counter.cache_clear()
    self.sizes, self.mesh = sizes, mesh
    self.words = nn.Embedding.from_pretrained(
      filled(torch.empty(sizes.words, sizes.width, dtype=torch.bfloat16))
    )
    self.layers = nn.ModuleList(Layer(sizes, mesh) for _ in range(sizes.layers))
    self.norm = nn.RMSNorm(sizes.width, dtype=torch.bfloat16)
    self.head = Product(sizes.width, sizes.words // sizes.ranks)
    length = sizes.tokens or sizes.prompt
    rates = 500000.0 ** (-torch.arange(0, sizes.size, 2) / sizes.size)
    angles = torch.arange(length)[:, None] * torch.cat([rates, rates])
    self.register_buffer("cosines", angles.cos().bfloat16())
    self.register_buffer("sines", angles.sin().bfloat16())

  def forward(self, token, place):
    x = self.words(token)
    mask = None
    if self.sizes.tokens:
      mask = torch.arange(len(self.cosines), device=token.device)[None, :] <= place[:, None]
    cosine, sine = self.cosines[place], self.sines[place]
    for layer in self.layers:
      x = layer(x, place, mask, cosine, sine)
    logits = self.head(self.norm(x[:, -1:]))
    if self.mesh is not None:
      logits = functional.all_gather_tensor(logits, 2, (self.mesh, 0))
    return logits.argmax(-1)


DENSE = {
  "layers": 8,
  "words": 128256,
  "tokens": 4096,
  "prompt": 2048,
  "width": 4096,
  "heads": 32,
  "keys": 8,
  "size": 128,
  "between": 14336,
  "experts": 0,
  "active": 0,
}
# The sizes of each part.
PARTS = {
  "decode": DENSE,
  "prompt": {**DENSE, "tokens": 0},
  "experts": {
    **DENSE,
    "layers": 4,
    "words": 151936,
    "width": 2048,
    "keys": 4,
    "between": 768,
    "experts": 128,
    "active": 8,
  },
}


def sizes_of(options, part, ranks):
  """The sizes of a part, of which the command line may name others."""
  sizes = {
    name: size if size == 0 or getattr(options, name) is None else getattr(options, name)
    for name, size in PARTS[part].items()
  }
  return argparse.Namespace(**sizes, ranks=ranks)


def inputs(sizes, device="cpu"):
  if sizes.tokens:
    return torch.zeros(1, 1, dtype=torch.long, device=device), torch.zeros(
      1, dtype=torch.long, device=device
    )
  places = torch.arange(sizes.prompt, device=device)
  return (places * 7 % sizes.words)[None], places


def export(path, options, part, ranks):
  import husk

  # Exports run beside each other, and threads that wait for work keep a processor busy.
  torch.set_num_threads(max(1, (os.cpu_count() or 1) // 8))
  began = time.time()
  common = {"targets": [options.target], "tune": "heuristic"}
  if part == "prompt":
    common["gemm"] = options.gemm
  sizes = sizes_of(options, part, ranks)
  if ranks == 1:
    husk.export(Decoder(sizes, None).eval(), inputs(sizes), path, **common)
  else:
    husk.parallel.export(
      lambda mesh: Decoder(sizes, mesh).eval(),
      inputs(sizes),
      path,
      ranks=ranks,
      **common,
    )
  return time.time() - began


def median(call, device, count=20, rounds=5):
  """The milliseconds of a call, the least of rounds, which all ranks begin together."""

  def sync():
    if device != "cpu":
      torch.cuda.synchronize()

  call()
  times = []
  for _ in range(rounds):
    sync()
    if dist.is_initialized():
      dist.barrier()
    sync()
    begin = time.perf_counter()
    for _ in range(count):
      call()
    sync()
    times.append((time.perf_counter() - begin) / count)
  return min(times) * 1e3


def used(device):
  if device == "cpu":
    return 0
  free, total = torch.cuda.mem_get_info()
  return total - free


def opened(path, device, **options):
  """A session in a graph, and the bytes of the device that it took."""
  import husk

  before = used(device)
  session = husk.load(path, device=device, **options).session(
    mode="list" if device == "cpu" else "graph"
  )
  return session, before


def one_rank(options, part, path):
  """In a process of its own, so that all memory is free afterwards."""
  device = "cpu" if options.device == "cpu" else "cuda:0"
  session, before = opened(path, device)
  sizes = sizes_of(options, part, 1)
  args = inputs(sizes, device)
  if sizes.tokens:
    args[1].add_(16)
  took = median(functools.partial(session, *args), device)
  return took, used(device) - before


def rank_of_two(rank, options, part, path, port, results):
  os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
  device = "cpu"
  if options.device != "cpu":
    torch.cuda.set_device(rank)
    device = f"cuda:{rank}"
  dist.init_process_group("gloo" if device == "cpu" else "nccl", rank=rank, world_size=2)
  mesh = dist.device_mesh.init_device_mesh(options.device, (2,))
  import husk

  own = [husk.group_id(options.device, one_machine=True) if rank == 0 else None]
  dist.broadcast_object_list(own, src=0)
  dist.barrier()  # torch's communicator has its memory then
  session, before = opened(path, device, rank=rank, world=2, group=own[0])
  sizes = sizes_of(options, part, 2)
  args = inputs(sizes, device)
  place = args[1].clone()
  if sizes.tokens:
    place += 16
  row = {"husk": median(functools.partial(session, args[0], place), device)}
  row["bytes"] = used(device) - before
  model = Decoder(sizes, mesh).eval().to(device)
  equal = 0
  with torch.no_grad():
    token = args[0]
    for step in range(16 if sizes.tokens else 1):
      place.copy_(torch.tensor([step]) if sizes.tokens else args[1])
      right = model(token, place)
      equal += int(torch.equal(session(token, place), right))
      if sizes.tokens:
        token = right
    row["equal"] = equal
    row["eager"] = median(functools.partial(model, args[0], place), device)
    if not options.no_compile:
      compiled = torch.compile(model, mode="reduce-overhead" if device != "cpu" else None)
      for _ in range(3):
        compiled(args[0], place)
      row["inductor"] = median(functools.partial(compiled, args[0], place), device)
  if rank == 0:
    results.put(row)
    results.close()
    results.join_thread()  # a thread writes the row, and would end with the process
  dist.barrier()
  del session
  os._exit(0)  # graphs that captured NCCL's calls must not be destroyed after its communicator


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  for name in DENSE:
    parser.add_argument(f"--{name}", type=int)
  parser.add_argument("--folder", type=pathlib.Path)
  parser.add_argument("--target", default="cuda:h200")
  parser.add_argument("--gemm", choices=("cublaslt",))
  parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
  parser.add_argument("--no-compile", action="store_true", help="leaves torch.compile out")
  parser.add_argument("parts", nargs="*", default=list(PARTS))
  options = parser.parse_args()
  folder = options.folder or pathlib.Path(tempfile.mkdtemp(prefix="husk-sharded-"))
  folder.mkdir(parents=True, exist_ok=True)
  paths = {
    (part, ranks): folder / f"{part}{ranks}.husk" for part in options.parts for ranks in (1, 2)
  }
  spawn = multiprocessing.get_context("spawn")
  with concurrent.futures.ProcessPoolExecutor(len(paths), spawn) as pool:
    futures = {
      key: pool.submit(export, path, options, *key)
      for key, path in paths.items()
      if not path.exists()
    }
    for (part, ranks), future in futures.items():
      print(f"{part} of {ranks}: exported in {future.result():.1f} s", flush=True)
  for number, part in enumerate(options.parts):
    with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
      one, alone = pool.submit(one_rank, options, part, paths[part, 1]).result()
    results = spawn.Queue()
    port = 29500 + os.getpid() % 400 + number
    ranks = [
      spawn.Process(target=rank_of_two, args=(rank, options, part, paths[part, 2], port, results))
      for rank in range(2)
    ]
    for process in ranks:
      process.start()
    row = results.get(timeout=500)
    for process in ranks:
      process.join(30)
    sizes = sizes_of(options, part, 1)
    replicated = sizes.words * sizes.width * 2  # the embedding
    print(
      f"{part}: one rank {one:.3f} ms, two {row['husk']:.3f} ms, {row['husk'] / one:.2f} of it; "
      + ", ".join(
        f"{name} of two {row[name]:.3f} ms, {row['husk'] / row[name]:.2f} of it"
        for name in ("eager", "inductor")
        if name in row
      )
      + f"; {row['equal']} tokens are those of eager mode",
      flush=True,
    )
    print(
      f"{part}: memory of one rank {alone / 1e9:.3f} GB, of one of two {row['bytes'] / 1e9:.3f}, "
      f"{row['bytes'] / max(1, (alone - replicated) / 2 + replicated):.3f} of half of what is "
      "divided and all of what is not",
      flush=True,
    )


if __name__ == "__main__":
  main()
