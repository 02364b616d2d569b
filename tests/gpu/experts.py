"""Mixtures of experts on a GPU (husk/experts): a step of a decoder with the layers of
Qwen3-30B-A3B against a read of its bytes, a prompt against eager mode, and values against float64.

  python tests/gpu/experts.py [--dry] [--folder DIR] [--target cuda:h200] [--layers 4]
                              [--words 151936] [--formats none,int8,int4] [--size 256]
                              [--seeds 8] [PART...]
PART: step, prompt, values; all by default

A row of `step` has the microseconds of a token of one sequence in a graph, those of a read of all
bytes that it needs (attention, router, the chosen experts, the head), and how many of 16 tokens are
those of eager mode, for weights as they are and with codes. One of `prompt` has the experts of a
layer with 2,048 tokens, whose rows are sorted, in Husk and in eager mode. `values` compares layers
of all kinds with float64, `--size` wide: an error (rms) may be 1.1 times that of eager mode on the
same GPU, and a list and a graph must give equal bits, of which the exit status tells.

`--dry` only exports, and needs no GPU. `compute-sanitizer python tests/gpu/experts.py --folder DIR
--seeds 2 values` checks the kernels that a dry run has put into DIR."""

import argparse
import copy
import pathlib
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "torch" / part) for part in ("experts", "helpers")]
sys.path.insert(0, str(TESTS.parent / "compiler" / "torch"))

import husk  # noqa: E402
import sharded  # noqa: E402
import test_expert_codes as codes  # noqa: E402
import test_expert_products as floats  # noqa: E402
from decoder import measure, time_of_a_read  # noqa: E402

PROMPT = 2048
FORMATS = {"none": 16, "int8": 8, "int4": 4}


def step_sizes(options):
  none = dict.fromkeys(sharded.DENSE)
  sizes = {**none, "layers": options.layers, "words": options.words}
  return sharded.sizes_of(argparse.Namespace(**sizes), "experts", 1)


def bytes_of_a_step(sizes, bits):
  """The bytes of weights that a token needs, with one scale for 32 codes of 4 bits."""
  expert = 3 * sizes.between * sizes.width
  attention = 2 * sizes.width * sizes.size * (sizes.heads + sizes.keys)
  router = sizes.experts * sizes.width
  of_layers = sizes.layers * (attention + router + sizes.active * expert)
  elements = of_layers + sizes.words * sizes.width
  return elements * (bits + (0.5 if bits == 4 else 0)) / 8


class SortedExperts(nn.Module):
  """The experts of a layer, as transformers computes them with the form grouped_mm."""

  def __init__(self, sizes):
    super().__init__()
    sharded.counter.cache_clear()  # each has the same weights
    self.experts, self.active = sizes.experts, sizes.active
    shapes = (2 * sizes.between, sizes.width), (sizes.width, sizes.between)
    self.up, self.down = (
      nn.Parameter(sharded.filled(torch.empty(sizes.experts, *shape, dtype=torch.bfloat16)))
      for shape in shapes
    )

  def forward(self, x, numbers, weights):
    order = torch.argsort(numbers.reshape(-1), stable=True)
    sorted_numbers = numbers.reshape(-1)[order]
    counts = torch.histc(sorted_numbers.float(), bins=self.experts, min=0, max=self.experts - 1)
    ends = counts.cumsum(0, dtype=torch.int32)
    both = torch._grouped_mm(x[order // self.active], self.up.transpose(-2, -1), offs=ends)
    gate, up = both.chunk(2, -1)
    y = torch._grouped_mm(F.silu(gate) * up, self.down.transpose(-2, -1), offs=ends)
    y = y * weights.reshape(-1)[order].unsqueeze(-1)
    places = torch.empty_like(order).index_put((order,), torch.arange(len(order), device=x.device))
    return y[places].view(len(x), self.active, -1).sum(1)


def prompt_inputs(sizes, device="cpu"):
  generator = torch.Generator().manual_seed(0)
  x = torch.randn(PROMPT, sizes.width, generator=generator).bfloat16()
  scores = torch.randn(PROMPT, sizes.experts, generator=generator)
  weights, numbers = scores.softmax(-1).topk(sizes.active, -1)
  return tuple(each.to(device) for each in (x, numbers, weights.bfloat16()))


class Forms(nn.Module):
  """A layer of experts in both forms: numbers of experts, and sorted rows."""

  def __init__(self, mixture, stack):
    super().__init__()
    self.mixture, self.stack = mixture, stack

  def forward(self, x, rows, ends):
    if isinstance(self.stack, codes.Codes):
      both = self.stack(rows, ends=ends)
    elif rows.dtype == torch.float64:  # for which PyTorch has no such product
      sizes = ends.diff(prepend=ends.new_zeros(1)).tolist()
      both = torch.cat([x @ w.T for x, w in zip(rows.split(sizes), self.stack, strict=True)])
    else:
      both = torch._grouped_mm(rows, self.stack.transpose(-2, -1), ends)
    gate, up = both.chunk(2, -1)
    return self.mixture(x), F.silu(gate) * up


def value_models(size):
  """(name, model, dtype) of layers of several kinds."""
  for dtype in (torch.bfloat16, torch.float16):
    for norm in (False, True):
      mixture = floats.Mixture(width=size, between=size // 2 + 64, dtype=dtype, norm=norm)
      stack = mixture.up if dtype == torch.bfloat16 else None
      yield f"{str(dtype)[6:]}{', norm' * norm}", mixture, stack, dtype
  for name, kind in codes.FORMATS.items():
    mixture = codes.Mixture(torch.bfloat16, size, size // 2 + 64, norm=True, **kind)
    yield f"{name}, bfloat16", mixture, mixture.up, torch.bfloat16


def error(found, right):
  return float(((found.double() - right).norm() / right.norm()).detach())


def paths_of(folder, options):
  for part in options.parts:
    if part == "step":
      for name in options.formats.split(","):
        yield (part, name), folder / f"step_{name}.husk"
    elif part == "prompt":
      yield (part, ""), folder / "prompt.husk"
    else:
      for name, *_ in value_models(options.size):
        yield (part, name), folder / f"values_{name.replace(', ', '_').replace(' ', '_')}.husk"


def export(key, path, options):
  part, name = key
  common = {"targets": [options.target], "tune": "heuristic"}
  sizes = step_sizes(options)
  if part == "step":
    quantize = {} if name == "none" else {"quantize": name}
    model = sharded.Decoder(sizes, None).eval()
    husk.export(model, sharded.inputs(sizes), path, **common, **quantize)
  elif part == "prompt":
    husk.export(SortedExperts(sizes).eval(), prompt_inputs(sizes), path, **common)
  else:
    model = next(one for other, *one in value_models(options.size) if other == name)
    husk.export(*exported_values(model, options.size), path, **common)
  print(f"{part} {name}: exported, {path.stat().st_size:,} bytes", flush=True)


def exported_values(model, size, seed=0):
  mixture, stack, dtype = model
  x = torch.randn(1, 3, size, generator=torch.Generator().manual_seed(seed)).to(dtype)
  if isinstance(mixture, codes.Mixture):
    x = x[0]
  if stack is None:
    return mixture.eval(), (x,)
  rows = torch.randn(70, size, generator=torch.Generator().manual_seed(seed)).to(dtype)
  count = codes.EXPERTS if isinstance(stack, codes.Codes) else floats.EXPERTS
  ends = torch.tensor([3, 3, 20, 20, 70, 70][-count:], dtype=torch.int32)
  return Forms(mixture, stack).eval(), (x, rows, ends)


def run_step(name, path, options):
  sizes = step_sizes(options)
  session = husk.load(path, device="cuda:0").session(mode="graph")
  token, place = sharded.inputs(sizes, "cuda")
  place += 16
  took = measure(lambda: session(token, place))
  read = time_of_a_read(int(bytes_of_a_step(sizes, FORMATS[name])))
  text = f"step, {name}: {took:.1f} us, a read {read:.1f} us, {took / read:.2f} of it"
  if name == "none":
    model, equal = sharded.Decoder(sizes, None).eval().cuda(), 0
    with torch.no_grad():
      for step in range(16):
        place.fill_(step)
        right = model(token, place)
        equal += int(torch.equal(session(token, place), right))
        token = right
    text += f"; {equal} of 16 tokens are those of eager mode"
  print(text, flush=True)
  return True


def run_prompt(path, options):
  sizes = step_sizes(options)
  args = prompt_inputs(sizes, "cuda")
  session = husk.load(path, device="cuda:0").session(mode="graph")
  model = SortedExperts(sizes).eval().cuda()
  with torch.no_grad():
    found, right = session(*args), model(*args)
    took, eager = (measure(lambda call=call: call(*args)) for call in (session, model))
  difference = error(found, right.double())
  print(
    f"prompt of {PROMPT}: {took:.0f} us, eager mode {eager:.0f} us, {took / eager:.2f} of it; they "
    f"differ by {difference:.1e}",
    flush=True,
  )
  return difference < 1e-2


def run_values(name, path, options):
  """Prints a row; whether it is good."""
  model = next(one for other, *one in value_models(options.size) if other == name)
  program = husk.load(path, device="cuda:0")
  sessions = [program.session(mode=mode) for mode in ("list", "graph")]
  worst, total, of_eager, is_equal = 0.0, 0.0, 0.0, True
  for seed in range(options.seeds):
    module, args = exported_values(model, options.size, seed)
    exact = exactly(module)(*[one.double() if one.is_floating_point() else one for one in args])
    on_gpu = copy.deepcopy(module).cuda()
    args = [one.cuda() for one in args]
    with torch.no_grad():
      eager = on_gpu(*args)
    found, other = (session(*args) for session in sessions)
    for one, again, theirs, right in zip(*map(listed, (found, other, eager, exact)), strict=True):
      is_equal &= torch.equal(one, again)
      worst = max(worst, error(one.cpu(), right))
      total += error(one.cpu(), right)
      of_eager += error(theirs.cpu(), right)
  ratio = total / of_eager
  print(
    f"values, {name}: error {worst:.1e}, {ratio:.2f} of eager mode's; list and graph are "
    f"{'equal' if is_equal else 'DIFFERENT'}",
    flush=True,
  )
  return is_equal and ratio <= 1.1


def listed(result):
  return result if isinstance(result, (tuple, list)) else [result]


def exactly(module):
  """A module that computes in float64, with the numbers of its codes."""
  exact = copy.deepcopy(module).double()
  mixture = exact.mixture if isinstance(exact, Forms) else exact
  mixture.dtype = torch.float64
  return exact


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--dry", action="store_true")
  parser.add_argument("--folder", type=pathlib.Path)
  parser.add_argument("--target", default="cuda:h200")
  parser.add_argument("--layers", type=int, default=4)
  parser.add_argument("--words", type=int, default=151936)
  parser.add_argument("--formats", default="none,int8,int4")
  parser.add_argument("--size", type=int, default=256)
  parser.add_argument("--seeds", type=int, default=8)
  parser.add_argument("parts", nargs="*", default=["step", "prompt", "values"])
  options = parser.parse_args()
  folder = options.folder or pathlib.Path(tempfile.mkdtemp(prefix="husk-experts-"))
  folder.mkdir(parents=True, exist_ok=True)
  good = True
  for key, path in paths_of(folder, options):
    if not path.exists():
      export(key, path, options)
  if options.dry:
    return 0
  print(torch.cuda.get_device_name(), flush=True)
  for (part, name), path in paths_of(folder, options):
    if part == "step":
      good &= run_step(name, path, options)
    elif part == "prompt":
      good &= run_prompt(path, options)
    else:
      good &= run_values(name, path, options)
  return 0 if good else 1


if __name__ == "__main__":
  sys.exit(main())
