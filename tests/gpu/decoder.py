"""A step of a decoder in bf16 and with weights of 8 and 4 bits, against a read of its own bytes.

  python tests/gpu/decoder.py [--dry] [--folder DIR] [--target cuda:h200] [--layers 16]
                              [--words 32000] [--formats none,int8,int4] [--tokens 512]
                              [--sequences 1] [--tiles 16] [--shape llama-1b] [--places 16]

The decoder has the sizes of Llama 3.2 1B (2048 wide, 32 heads of 64, 8 of them of keys, 8192 wide
in between) or of Qwen3 0.6B (without the norms of queries and keys), and keeps its keys and values
for `tokens` positions as state. A call takes a token and its position, and returns the next token.
A row has the microseconds of a call in a graph at one of `places`, those of a read of the bytes of
all weights and of the keys and values that are seen in another one, what they are divided by each
other, and the time divided by that in bf16. Several sequences have places spread evenly. The first
tokens are compared with those of eager mode for bf16.

`--dry` only exports, and needs no GPU. An artifact that DIR has is not made again.
"""

import argparse
import concurrent.futures
import multiprocessing
import pathlib
import sys
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F

sys.path.append(str(pathlib.Path(__file__).parent))

SHAPES = {"llama-1b": (2048, 32, 8, 64, 8192), "qwen-0.6b": (1024, 16, 8, 128, 3072)}
WIDTH, HEADS, KEYS, SIZE, BETWEEN = SHAPES["llama-1b"]


def take(shape):
  """Makes decoders of another shape from now on."""
  global WIDTH, HEADS, KEYS, SIZE, BETWEEN
  WIDTH, HEADS, KEYS, SIZE, BETWEEN = SHAPES[shape]


def turned(x, cosine, sine):
  one, other = x.chunk(2, -1)
  return x * cosine + torch.cat([-other, one], -1) * sine


class Layer(nn.Module):
  def __init__(self, tokens, sequences):
    super().__init__()
    self.q = nn.Linear(WIDTH, HEADS * SIZE, bias=False)
    self.k = nn.Linear(WIDTH, KEYS * SIZE, bias=False)
    self.v = nn.Linear(WIDTH, KEYS * SIZE, bias=False)
    self.o = nn.Linear(HEADS * SIZE, WIDTH, bias=False)
    self.gate = nn.Linear(WIDTH, BETWEEN, bias=False)
    self.up = nn.Linear(WIDTH, BETWEEN, bias=False)
    self.down = nn.Linear(BETWEEN, WIDTH, bias=False)
    self.before, self.after = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
    for name in ("keys", "values"):
      self.register_buffer(name, torch.zeros(sequences, KEYS, tokens, SIZE))

  def forward(self, x, place, mask, cosine, sine):
    h = self.before(x)
    count = len(x)
    q, k, v = (
      product(h).view(count, 1, -1, SIZE).transpose(1, 2) for product in (self.q, self.k, self.v)
    )
    k = turned(k, cosine, sine)
    if count == 1:
      self.keys.index_copy_(2, place, k)
      self.values.index_copy_(2, place, v)
    else:
      where = (torch.arange(count, device=x.device)[:, None], None, place[:, None])
      for kept, new in ((self.keys, k), (self.values, v)):
        torch.ops.aten.index_put_(kept, where, new.transpose(1, 2))
    h = F.scaled_dot_product_attention(
      turned(q, cosine, sine), self.keys, self.values, mask, enable_gqa=True
    )
    x = x + self.o(h.transpose(1, 2).reshape(count, 1, -1))
    h = self.after(x)
    return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
  def __init__(self, layers, words, tokens, sequences):
    super().__init__()
    self.words = nn.Embedding(words, WIDTH)
    self.layers = nn.ModuleList(Layer(tokens, sequences) for _ in range(layers))
    self.norm = nn.RMSNorm(WIDTH)
    self.head = nn.Linear(WIDTH, words, bias=False)
    rates = 500000.0 ** (-torch.arange(0, SIZE, 2) / SIZE)
    angles = torch.arange(tokens)[:, None] * torch.cat([rates, rates])
    self.register_buffer("cosines", angles.cos())
    self.register_buffer("sines", angles.sin())

  def forward(self, token, place):
    x = self.words(token)
    places = torch.arange(len(self.cosines), device=token.device)
    mask = places[None, None, None, :] <= place[:, None, None, None]
    cosine, sine = (rows[place][:, None, None, :] for rows in (self.cosines, self.sines))
    for layer in self.layers:
      x = layer(x, place, mask, cosine, sine)
    return self.head(self.norm(x)).argmax(-1)


def make(options, sequences):
  torch.manual_seed(0)
  return Decoder(options.layers, options.words, options.tokens, sequences).bfloat16().eval()


def inputs(sequences, device="cpu"):
  token = torch.arange(sequences, dtype=torch.long, device=device)[:, None]
  return token, torch.zeros(sequences, dtype=torch.long, device=device)


def export(path, options, format, sequences, tiles):
  import husk
  from husk.cuda import few_rows

  few_rows.MOST_ROWS_OF_A_TILE = tiles
  take(options.shape)
  began = time.time()
  husk.export(
    make(options, sequences),
    inputs(sequences),
    path,
    targets=[options.target],
    tune="heuristic",
    **({} if format == "none" else {"quantize": format}),
  )
  return time.time() - began


def bytes_of(options, format):
  """The bytes of all weights but the embedding, of which a step reads one row."""
  elements = (
    options.layers * (2 * WIDTH * HEADS * SIZE + 2 * WIDTH * KEYS * SIZE + 3 * WIDTH * BETWEEN)
    + WIDTH * options.words
  )
  return int(elements * {"none": 2, "int8": 1, "int4": 0.5 + 2 / 32, "fp8": 1}[format])


def measure(call, count=20, rounds=5):
  """The microseconds of a call, the least of rounds."""
  call()
  torch.cuda.synchronize()
  times = []
  for _ in range(rounds):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
      call()
    end.record()
    torch.cuda.synchronize()
    times.append(begin.elapsed_time(end) * 1e3 / count)
  return min(times)


def time_of_a_read(size):
  from quantized import read

  words = size // 4
  memory = torch.ones(words, dtype=torch.int32, device="cuda")
  result = torch.zeros(1, dtype=torch.int32, device="cuda")
  return measure(lambda: read[(-(-words // 4096),)](memory, result, words, BLOCK=1024))


def main():
  arguments = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  arguments.add_argument("--dry", action="store_true")
  arguments.add_argument("--folder", type=pathlib.Path)
  arguments.add_argument("--target", default="cuda:h200")
  arguments.add_argument("--layers", type=int, default=16)
  arguments.add_argument("--words", type=int, default=32000)
  arguments.add_argument("--tokens", type=int, default=512)
  arguments.add_argument("--formats", default="none,int8,int4")
  arguments.add_argument("--sequences", default="1")
  arguments.add_argument("--tiles", default="16")
  arguments.add_argument("--shape", default="llama-1b", choices=SHAPES)
  arguments.add_argument("--places", default="16")
  options = arguments.parse_args()
  take(options.shape)
  folder = options.folder or pathlib.Path(tempfile.mkdtemp(prefix="husk-decoder-"))
  folder.mkdir(parents=True, exist_ok=True)
  cases = [
    (format, sequences, tiles)
    for sequences in map(int, options.sequences.split(","))
    for tiles in map(int, options.tiles.split(",") if sequences > 1 else ["1"])
    for format in options.formats.split(",")
  ]
  paths = {case: folder / f"decoder.{'.'.join(map(str, case))}.husk" for case in cases}
  with concurrent.futures.ProcessPoolExecutor(
    len(cases), multiprocessing.get_context("spawn")
  ) as pool:
    futures = {
      case: pool.submit(export, path, options, *case)
      for case, path in paths.items()
      if not path.exists()
    }
    for case, future in futures.items():
      size = paths[case].stat().st_size if not future.exception() else 0
      print(f"{case}: exported in {future.result():.1f} s, {size:,} bytes", flush=True)
  if options.dry:
    return 0
  import husk

  print(torch.cuda.get_device_name())
  plain = {}
  of_a_position = 2 * options.layers * KEYS * SIZE * 2  # bytes of keys and values
  for (format, sequences, tiles), path in paths.items():
    session = husk.load(path, device="cuda").session(mode="graph")
    for at in map(int, options.places.split(",") if sequences == 1 else ["16"]):
      token, place = inputs(sequences, "cuda")
      place += at
      if sequences > 1:
        place = torch.linspace(16, options.tokens - 1, sequences, device="cuda").long()
      took = measure(lambda session=session, token=token, place=place: session(token, place))
      seen = of_a_position * int(place.sum() + len(place))
      reads = time_of_a_read(bytes_of(options, format) + seen)
      print(
        f"{format:6}{sequences:3} sequences, tiles of {tiles:2} rows, place {at:4} {took:9.1f} us "
        f"a step, a read {reads:8.1f} us, {took / reads:.2f} of it, "
        f"{took / plain.setdefault(at, took):.2f} of the first row",
        flush=True,
      )
    if format == "none":
      model = make(options, sequences).cuda()
      session = husk.load(path, device="cuda").session(mode="graph")
      token, equal = inputs(sequences, "cuda")[0], 0
      for step in range(16):
        place = torch.full((sequences,), step, device="cuda")
        with torch.no_grad():
          right = model(token, place)
        equal += int((session(token, place) == right).sum())
        token = right
      print(f"{equal} of {16 * sequences} tokens are those of eager mode", flush=True)
      del model
  return 0


if __name__ == "__main__":
  sys.exit(main())
