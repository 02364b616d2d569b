"""A decoder with the sizes of Llama 3.1 8B on two GPUs: its time and memory against one GPU, and
against PyTorch on the same two.

  python tests/gpu/sharded.py [--layers 8] [--words 128256] [--tokens 4096] [--prompt 2048]
                              [--folder DIR] [--target cuda:h200] [--gemm cublaslt] [PART...]
PART: decode, prompt; both by default

Each rank has half of the heads, of the MLP and of the words; two all-reduces a layer add up what
the ranks have computed, and the logits are gathered. A step of decoding takes a token and its
position, and keeps keys and values as state; a prompt returns the token that follows it. Each rank
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
  flat = tensor.view(-1)
  for begin in range(0, len(flat), len(some)):
    part = flat[begin : begin + len(some)]
    part.copy_(some[: len(part)] * 0.02)
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
    self.gate = Product(width, sizes.between // ranks)
    self.up = Product(width, sizes.between // ranks)
    self.down = Product(sizes.between // ranks, width)
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
    h = self.after(x)
    return x + self.summed(self.down(F.silu(self.gate(h)) * self.up(h)))


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


def sizes_of(options, part, ranks):
  return argparse.Namespace(
    **{name: getattr(options, name) for name in ("layers", "words", "width", "heads", "keys")},
    size=options.size,
    between=options.between,
    prompt=options.prompt,
    ranks=ranks,
    tokens=options.tokens if part == "decode" else 0,
  )


def inputs(options, part, device="cpu"):
  if part == "decode":
    return torch.zeros(1, 1, dtype=torch.long, device=device), torch.zeros(
      1, dtype=torch.long, device=device
    )
  places = torch.arange(options.prompt, device=device)
  return (places * 7 % options.words)[None], places


def export(path, options, part, ranks):
  import husk

  began = time.time()
  common = {"targets": [options.target], "tune": "heuristic"}
  if part == "prompt":
    common["gemm"] = options.gemm
  if ranks == 1:
    model = Decoder(sizes_of(options, part, 1), None).eval()
    husk.export(model, inputs(options, part), path, **common)
  else:
    husk.parallel.export(
      lambda mesh: Decoder(sizes_of(options, part, ranks), mesh).eval(),
      inputs(options, part),
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
  args = inputs(options, part, device)
  if part == "decode":
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
  args = inputs(options, part, device)
  place = args[1].clone()
  if part == "decode":
    place += 16
  row = {"husk": median(functools.partial(session, args[0], place), device)}
  row["bytes"] = used(device) - before
  model = Decoder(sizes_of(options, part, 2), mesh).eval().to(device)
  equal = 0
  with torch.no_grad():
    token = args[0]
    for step in range(16 if part == "decode" else 1):
      place.copy_(torch.tensor([step]) if part == "decode" else args[1])
      right = model(token, place)
      equal += int(torch.equal(session(token, place), right))
      if part == "decode":
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
  dist.barrier()
  del session
  os._exit(0)  # graphs that captured NCCL's calls must not be destroyed after its communicator


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  for name, number in {
    "layers": 8,
    "words": 128256,
    "tokens": 4096,
    "prompt": 2048,
    "width": 4096,
    "heads": 32,
    "keys": 8,
    "size": 128,
    "between": 14336,
  }.items():
    parser.add_argument(f"--{name}", type=int, default=number)
  parser.add_argument("--folder", type=pathlib.Path)
  parser.add_argument("--target", default="cuda:h200")
  parser.add_argument("--gemm", choices=("cublaslt",))
  parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
  parser.add_argument("--no-compile", action="store_true", help="leaves torch.compile out")
  parser.add_argument("parts", nargs="*", default=["decode", "prompt"])
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
    replicated = options.words * options.width * 2  # the embedding
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
