"""The errors of products and convolutions on a GPU against float64, beside those of eager mode with
the same settings, and the time that the rounding of operands costs.

  python tests/gpu/rounding.py run DIR [--target cuda:h200] [--jobs 12] [--again] [--constant]
    [ROW...]
  python tests/gpu/rounding.py show DIR
  python tests/gpu/rounding.py list

A row is a kind of kernel or a model in one of four settings: `tf32` and `fp32` are float32 with and
without tf32, for products and convolutions alike, `f16` and `bf16` are the other types. A ROW is a
name, a setting, or both ("resnet50", "tf32", "resnet50.tf32"). `run` exports each row, runs it with
8 seeds, and writes what it found to DIR/rounding.json after each row; rows that are there already
are left out unless --again. The seed decides weights, statistics of batch norms, and inputs, all of
which are inputs of the program. With --constant weights and statistics are constants, and each seed
has a program of its own. The numbers are divided by the largest exact number of a seed:

- rms: the root of the mean square of the errors of all elements and seeds. It may be 1.1 times that
  of eager mode.
- worst: the largest error of all elements and seeds. It may be 2 times that of eager mode.
- mean, shrink: the mean error, and how much smaller results are than exact ones (the error along
  the exact result). Each seed gives one number, and the mean of the seeds is divided by its
  standard error. Elements of one seed are not independent. Among 8 numbers without a direction,
  one row in twelve is more than two standard errors from 0. Such a row runs with 8 other seeds, and
  has a direction if it is there again, on the same side.

The rows `special` compare NaN, infinity and the largest numbers with eager mode in tf32. The rows
`time.LAYER` measure layers of layer_times.py in tf32: with both operands rounded, with the first
one only (`first`), with cut operands (`cut`), and by NVIDIA's library. Without a GPU, --target
host:avx2 rehearses everything but `special` and `time` on the CPU. On 16 cores and one GPU the rows
`tf32 special time` take about four minutes, and all others about as long.
"""

import argparse
import concurrent.futures
import json
import math
import multiprocessing
import os
import pathlib
import statistics
import sys
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE))
import image_models  # noqa: E402
import layer_times  # noqa: E402
import torch  # noqa: E402
import transformers_models  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

sys.path.append(str(HERE.parents[1] / "examples"))

SEEDS = 8
SETTINGS = {
  "tf32": torch.float32,
  "fp32": torch.float32,
  "f16": torch.float16,
  "bf16": torch.bfloat16,
}


def set_precision(setting):
  torch.backends.cuda.matmul.allow_tf32 = setting == "tf32"
  torch.backends.cudnn.allow_tf32 = setting == "tf32"


# Rows. Each is a function of a seed and a device that returns a module and its inputs in float32.


class Call(nn.Module):
  """A function as a module. All of its operands are inputs."""

  def __init__(self, function):
    super().__init__()
    self.function = function

  def forward(self, *args):
    return self.function(*args)


def of(function, *sizes):
  """A row of a function. The first operand is positive, so that cut operands are seen: the errors
  of products with both signs partly cancel."""

  def row(seed, device):
    torch.manual_seed(seed)
    first, *others = sizes
    args = [torch.rand(first, device=device)]
    args += [torch.randn(size, device=device) / math.sqrt(size[-1]) for size in others]
    return Call(function), args

  return row


def convolution(kind, sizes, image, last=True, **options):
  """A row of a convolution. `last`: whether channels are innermost in memory."""

  def row(seed, device):
    torch.manual_seed(seed)
    module, x = kind(*sizes, bias=False, **options).to(device), torch.rand(image, device=device)
    if last and x.dim() == 4:
      module, x = (each.to(memory_format=torch.channels_last) for each in (module, x))
    return module, [x]

  return row


def attention(queries, keys, causal=False):
  return of(
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
    (1, 4, queries, 64),
    (1, 4, keys, 64),
    (1, 4, keys, 64),
  )


def mlp(x, a, b):
  return F.gelu(x @ a) @ b


KERNELS = {
  "mm": of(torch.matmul, (256, 512), (512, 384)),
  "mm_few_rows": of(torch.matmul, (8, 1024), (1024, 512)),
  "mm_one_row": of(torch.matmul, (1, 1024), (1024, 512)),
  "mm_deep": of(torch.matmul, (128, 8192), (8192, 128)),
  "mm_transposed": of(lambda a, b: a @ b.t(), (256, 512), (384, 512)),
  "mm_odd": of(torch.matmul, (77, 99), (99, 51)),
  "mlp": of(mlp, (256, 256), (256, 512), (512, 128)),
  "bmm": of(torch.matmul, (8, 128, 256), (8, 256, 128)),
  "baddbmm": of(lambda a, b, c: torch.baddbmm(c, a, b), (8, 128, 64), (8, 64, 128), (8, 128, 128)),
  "mm_plus_mm": of(
    lambda a, b, c, d: a @ b + c @ d, (256, 256), (256, 256), (256, 256), (256, 256)
  ),
  "conv1d": convolution(nn.Conv1d, (64, 128, 3), (2, 64, 500), False),
  "conv3d": convolution(nn.Conv3d, (16, 32, 3), (1, 16, 12, 12, 12), False),
  "conv_wide": convolution(nn.Conv2d, (64, 64, 3), (8, 64, 56, 56), padding=1),
  "conv_small": convolution(nn.Conv2d, (512, 512, 3), (1, 512, 7, 7), padding=1),
  "conv_stem": convolution(nn.Conv2d, (3, 64, 7), (2, 3, 112, 112), stride=2, padding=3),
  "conv_dilated": convolution(nn.Conv2d, (256, 64, 3), (1, 256, 28, 28), padding=12, dilation=12),
  "conv_1x1": convolution(nn.Conv2d, (256, 128, 1), (2, 256, 28, 28)),
  "conv_1x1_s2": convolution(nn.Conv2d, (256, 128, 1), (2, 256, 28, 28), stride=2),
  "conv_first": convolution(nn.Conv2d, (64, 64, 3), (2, 64, 28, 28), False),
  "conv_grouped": convolution(nn.Conv2d, (128, 128, 3), (2, 128, 28, 28), groups=4),
  "conv_depthwise": convolution(nn.Conv2d, (96, 96, 7), (2, 96, 28, 28), groups=96),
  "conv_transposed": convolution(nn.ConvTranspose2d, (64, 64, 2), (2, 64, 28, 28), stride=2),
  "attention": attention(256, 256),
  "attention_causal": attention(512, 512, True),
  "attention_decode": attention(1, 2048),
}

MODELS = (
  "resnet50",
  "squeezenet1_1",
  "convnext_tiny",
  "efficientnet_b0",
  "mobilenet_v3_large",
  "swin_t",
  "vit_b_16",
  "deeplabv3_resnet50",
  "unet",
  "whisper",
  "bert",
  "gpt",
)
IMAGES = 2


def model(name, seed, device):
  """A model and its inputs in float32, in the order of MODELS."""
  if name == "bert":
    image_models.hide_folder()
    network, _, cases = transformers_models.make("bert", False, seed)
    torch.manual_seed(1000 + seed)
    tokens, mask = cases[0]
    return network.float().to(device), [
      torch.randint_like(tokens, 1000).to(device),
      mask.to(device),
    ]
  if name == "gpt":
    import models

    torch.manual_seed(seed)
    network = (
      models.Gpt(vocabulary=256, width=256, layers=6, heads=8, context=128).eval().to(device)
    )
    return network, [torch.randint(0, 256, (2, 128)).to(device)]
  network = image_models.model(name, seed, device)
  if name == "vit_b_16":
    nn.init.normal_(network.heads.head.weight, std=0.02)  # torchvision's first weights are 0
  x = image_models.image(IMAGES, name)
  torch.manual_seed(1000 + seed)
  return network, [torch.randn_like(x).to(device)]


def row_of(name):
  return KERNELS.get(name) or (lambda seed, device: model(name, seed, device))


# Programs that are exported


class Program(nn.Module):
  """A module whose numbers are inputs: a list of tensors, in the order of `numbers`."""

  def __init__(self, module):
    super().__init__()
    self.inner = [module]  # in a list, so that its parameters are not those of the program
    self.names = list(numbers(module))

  def forward(self, state, *args):
    return torch.func.functional_call(self.inner[0], dict(zip(self.names, state)), args)


def numbers(module):
  """The parameters and buffers of floating-point numbers by name."""
  found = {**dict(module.named_parameters()), **dict(module.named_buffers())}
  return {name: x.detach() for name, x in found.items() if x.is_floating_point()}


def as_dtype(tensors, dtype):
  return [x.to(dtype) if x.is_floating_point() else x for x in tensors]


def flat(results):
  """The floating-point results as one list."""
  if isinstance(results, torch.Tensor):
    return [results]
  if isinstance(results, dict):
    results = list(results.values())
  return [x for result in results for x in flat(result)]


def device_of(target):
  return "cuda" if target.startswith("cuda") else "cpu"


def write(module, args, path, setting, options):
  import husk

  set_precision(setting)
  targets = [options.target]
  husk.export(module, tuple(args), path, targets=targets, tune="heuristic", progress=False)


def row_path(name, setting, seed, options):
  return options.folder / f"{name}.{setting}.{seed if options.constant else 'all'}.husk"


def export_row(name, setting, options):
  dtype = SETTINGS[setting]
  for seed in range(2 * SEEDS if options.constant else 1):
    module, args = row_of(name)(seed, "cpu")
    module, args = module.eval().requires_grad_(False).to(dtype), as_dtype(args, dtype)
    if not options.constant:
      module, args = Program(module), [list(numbers(module).values()), *args]
    write(module, args, row_path(name, setting, seed, options), setting, options)


# Errors


class Sums:
  """The errors of one side."""

  def __init__(self):
    self.squares, self.count, self.worst = 0.0, 0, 0.0
    self.means, self.shrinks = [], []

  def add(self, results, exact):
    total = along = size = energy = 0.0
    for result, right in zip(results, exact, strict=True):
      scale = right.abs().max().item() or 1.0
      right = right / scale
      error = result.double() / scale - right
      self.squares += error.square().sum().item()
      largest = error.abs().max().item()
      self.worst = max(self.worst, largest) if math.isfinite(largest) else math.nan
      self.count += error.numel()
      total += error.sum().item()
      along -= (error * right).sum().item()
      size += error.numel()
      energy += right.square().sum().item()
    self.means.append(total / size)
    self.shrinks.append(along / energy)

  def result(self):
    return {
      "rms": math.sqrt(self.squares / self.count),
      "worst": self.worst,
      "mean": statistics.fmean(self.means),
      "shrink": statistics.fmean(self.shrinks),
      "mean_t": in_standard_errors(self.means),
      "shrink_t": in_standard_errors(self.shrinks),
    }


def in_standard_errors(values):
  """The mean of some numbers in units of its standard error."""
  error = statistics.stdev(values) / math.sqrt(len(values))
  return statistics.fmean(values) / error if error else 0.0


def measured(name, setting, seeds, options):
  """The errors of Husk and of eager mode for some seeds."""
  import husk

  set_precision(setting)
  dtype, sides = SETTINGS[setting], {"husk": Sums(), "eager": Sums()}
  device, path, session = device_of(options.target), None, None
  with torch.no_grad():
    for seed in seeds:
      if path != row_path(name, setting, seed, options):
        path = row_path(name, setting, seed, options)
        session = husk.load(path, device=device).session(mode="auto")
      module, args = row_of(name)(seed, device)
      module = module.eval().requires_grad_(False).to(dtype)
      args = as_dtype(args, dtype)
      state = [] if options.constant else [list(numbers(module).values())]
      own = [x.clone() for x in flat(session(*state, *args))]
      eager = flat(module(*args))
      exact = flat(module.double()(*as_dtype(args, torch.float64)))
      sides["husk"].add(own, exact)
      sides["eager"].add(eager, exact)
  return {side: sums.result() for side, sums in sides.items()}


def direction(first, second):
  """Whether errors have a direction: in two sets of seeds more than two standard errors."""
  return any(
    min(abs(first[key]), abs(second[key])) > 2 and first[key] * second[key] > 0
    for key in ("mean_t", "shrink_t")
  )


def run_row(name, setting, options):
  """What DIR/rounding.json has of a row."""
  found = measured(name, setting, range(SEEDS), options)
  own, eager = found["husk"], found["eager"]
  wrong = []
  if not own["rms"] <= 1.1 * eager["rms"] + 1e-30:
    wrong.append("rms")
  if not own["worst"] <= 2 * eager["worst"] + 1e-30:
    wrong.append("worst")
  if max(abs(own["mean_t"]), abs(own["shrink_t"])) > 2:
    found["again"] = measured(name, setting, range(SEEDS, 2 * SEEDS), options)["husk"]
    if direction(own, found["again"]):
      wrong.append("direction")
  for seed in range(2 * SEEDS):
    row_path(name, setting, seed, options).unlink(missing_ok=True)
  return {**found, "wrong": wrong}


# Numbers that are not ordinary

LARGEST = torch.finfo(torch.float32).max
VALUES = [math.nan, math.inf, -math.inf, LARGEST, -LARGEST, 1e-40, 0.0, -0.0]
KINDS = ("product", "convolution")


def special_case(kind):
  """A module, and inputs of which each of the first rows has one of VALUES."""
  torch.manual_seed(0)
  x, weight = torch.rand(64, 64) / 64, torch.rand(64, 64)
  for row, value in enumerate(VALUES):
    x[row, 3] = value
  if kind == "product":
    return Call(torch.matmul), (x, weight)
  x = x.reshape(64, 64, 1, 1).expand(-1, -1, 4, 4).contiguous()
  return Call(F.conv2d), (x, torch.rand(64, 64, 3, 3))


def special_path(kind, options):
  return options.folder / f"special.{kind}.husk"


def export_special(options):
  for kind in KINDS:
    module, args = special_case(kind)
    write(module, args, special_path(kind, options), "tf32", options)


def run_special(options):
  """Results of a product and a convolution, by the kind of number."""
  import husk

  set_precision("tf32")
  texts, wrong = {}, []
  for kind in KINDS:
    module, args = special_case(kind)
    args = [x.cuda() for x in args]
    program = husk.load(special_path(kind, options), device="cuda")
    own, eager = (x.reshape(64, -1)[:, 0].cpu() for x in (flat(program(*args))[0], module(*args)))
    for row, value in enumerate(VALUES):
      pair = own[row].item(), eager[row].item()
      texts[f"{kind} with {value}"] = f"{pair[0]:.6g}, eager {pair[1]:.6g}"
      if not torch.isclose(own[row], eager[row], rtol=1e-2, equal_nan=True):
        wrong.append(f"{kind} with {value}")
  return {"texts": texts, "wrong": wrong}


# Times

WAYS = ("both", "first", "cut")
TIMED = [
  *(f"{layer}.{batch}" for layer in layer_times.LAYERS for batch in (1, 8)),
  "plain_128x4096x4096",
  "plain_2048x4096x4096",
  "bias_2048x3072x768",
  "gelu_512x3072x768",
]


def round_less(way):
  """Lets the exporter of this process round less."""
  from husk.cuda import rounding

  if not hasattr(rounding, "husk_original"):
    rounding.husk_original = rounding.rewrite, rounding._operands
  rewrite, operands = rounding.husk_original
  rounding.rewrite = (lambda source: source) if way == "cut" else rewrite
  rounding._operands = (lambda call: operands(call)[:1]) if way == "first" else operands


def time_path(name, way, options):
  return options.folder / f"time.{name}.{way}.husk"


def export_timed(name, options):
  module, args = layer_times.make(name)
  try:
    for way in WAYS:
      round_less(way)
      write(module.eval(), args, time_path(name, way, options), "tf32", options)
  finally:
    round_less("both")


def run_timed(name, options):
  import husk

  set_precision("tf32")
  torch.backends.cudnn.benchmark = True
  with torch.no_grad():
    module, args = layer_times.make(name)
    module, args = module.eval().cuda(), tuple(x.cuda() for x in args)
    exact = module.double().by_library(*(x.double() for x in args))
    module = module.float()
    sides, found = {"library": lambda: module.by_library(*args)}, {}
    for way in WAYS:
      session = husk.load(time_path(name, way, options), device="cuda").session(mode="list")
      sides[way] = lambda session=session: session(*args)
    for side, call in sides.items():
      sums = Sums()
      sums.add([call()], [exact])
      found[f"{side}_rms"] = math.sqrt(sums.squares / sums.count)
    graphs = {side: layer_times.graph_of(call) for side, call in sides.items()}
    return {**found, **layer_times.measure(graphs), "wrong": []}


# All rows


def all_rows(target):
  rows = [f"{name}.{setting}" for setting in SETTINGS for name in (*MODELS, *KERNELS)]
  if device_of(target) == "cuda":
    rows += ["special", *(f"time.{name}" for name in TIMED)]
  return rows


def matches(row, words):
  name, _, setting = row.rpartition(".")
  kind = row.split(".")[0]
  return not words or any(word in (row, name, setting, kind) for word in words)


def start(hidden):
  """Begins a process. One that exports sees no GPU, so that it compiles as if there were none."""
  sys.path[:] = [path for path in sys.path if path]
  torch.set_num_threads(1)
  if hidden:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def failure(error):
  text = f"{type(error).__name__}: {str(error).strip()[:300]}"
  return {"failed": text, "trace": traceback.format_exc()[-1500:]}


def export(row, options):
  """Writes the artifacts of a row. Returns what failed, or None."""
  try:
    if row.startswith("time."):
      export_timed(row.removeprefix("time."), options)
    elif row == "special":
      export_special(options)
    else:
      export_row(*row.rsplit(".", 1), options)
  except Exception as error:
    return failure(error)


def check(row, options):
  """What DIR/rounding.json has of a row."""
  try:
    if row.startswith("time."):
      return run_timed(row.removeprefix("time."), options)
    return run_special(options) if row == "special" else run_row(*row.rsplit(".", 1), options)
  except Exception as error:
    return failure(error)


def save(found, options):
  path = options.folder / "rounding.json"
  path.with_suffix(".new").write_text(json.dumps(found, indent=1) + "\n")
  path.with_suffix(".new").replace(path)


def run(rows, found, options):
  def done(row, result):
    found[row] = result
    save(found, options)
    print(line(row, result), flush=True)

  def result_of(future):
    try:
      return future.result()
    except Exception as error:  # the process has ended
      return failure(error)

  def pool(jobs, hidden):
    return concurrent.futures.ProcessPoolExecutor(jobs, context, start, (hidden,))

  context, timed = multiprocessing.get_context("spawn"), []
  with pool(options.jobs, True) as exports, pool(4, False) as checks:
    exporting = {exports.submit(export, row, options): row for row in rows}
    checking = {}
    for future in concurrent.futures.as_completed(exporting):
      row = exporting[future]
      if result := result_of(future):
        done(row, result)
      elif row.startswith("time."):
        timed.append(row)
      else:
        checking[checks.submit(check, row, options)] = row
      for ended in [one for one in checking if one.done()]:
        done(checking.pop(ended), result_of(ended))
    for future in concurrent.futures.as_completed(list(checking)):
      done(checking[future], result_of(future))
  for row in sorted(timed, key=rows.index):  # nothing else uses the GPU now
    done(row, check(row, options))


def line(row, result):
  if "failed" in result:
    return f"{row:28} FAILED {result['failed'].splitlines()[0]}"
  verdict = f"WRONG: {', '.join(result['wrong'])}" if result["wrong"] else "ok"
  if row == "special":
    return "\n".join([f"special {verdict}", *(f"  {k}: {v}" for k, v in result["texts"].items())])
  if row.startswith("time."):
    sides = ("both", "first", "cut", "library")
    times = ", ".join(f"{side} {result[side]:.2f}" for side in sides)
    errors = ", ".join(f"{side} {result[f'{side}_rms']:.1e}" for side in sides)
    return f"{row:32} us: {times}; both / cut {result['both'] / result['cut']:.2f}; rms: {errors}"
  own, eager = result["husk"], result["eager"]
  again = result.get("again")
  second = f" again {again['mean_t']:+.1f} {again['shrink_t']:+.1f}" if again else ""
  return (
    f"{row:28} rms {own['rms']:.2e} {eager['rms']:.2e} {ratio(own['rms'], eager['rms']):5.2f}; "
    f"worst {own['worst']:.1e} {eager['worst']:.1e} {ratio(own['worst'], eager['worst']):5.2f}; "
    f"mean {own['mean_t']:+5.1f} ({eager['mean_t']:+.1f}), shrink {own['shrink']:+.1e} "
    f"{own['shrink_t']:+5.1f} ({eager['shrink_t']:+.1f}){second}; {verdict}"
  )


def ratio(one, other):
  return one / other if other else (math.inf if one else 1.0)


def show(found, options):
  """The table of all rows. Returns whether one is wrong or failed."""
  print("row: rms of Husk, of eager mode, ratio; worst alike; mean and shrink in standard errors")
  rows = [row for row in all_rows(options.target) if row in found]
  for row in rows:
    print(line(row, found[row]))
  failed = [row for row in rows if "failed" in found[row]]
  wrong = [row for row in rows if found[row].get("wrong")]
  for setting in SETTINGS:
    some = [found[row] for row in rows if row.endswith(f".{setting}") and "husk" in found[row]]
    if some:
      ratios = [ratio(one["husk"]["rms"], one["eager"]["rms"]) for one in some]
      print(
        f"{setting}: {len(some)} rows, rms by eager's median {statistics.median(ratios):.2f}, "
        f"largest {max(ratios):.2f}; {sum('again' in one for one in some)} repeated"
      )
  timed = [found[row] for row in rows if row.startswith("time.") and "both" in found[row]]
  if timed:
    for way in ("both", "first"):
      ratios = [one[way] / one["cut"] for one in timed]
      print(
        f"time {way} / cut: {len(timed)} layers, median {statistics.median(ratios):.2f}, largest "
        f"{max(ratios):.2f}, geometric mean {statistics.geometric_mean(ratios):.3f}"
      )
  print(f"{len(rows)} rows, {len(wrong)} wrong, {len(failed)} failed")
  return bool(wrong or failed)


def default_target():
  if not torch.cuda.is_available():
    return "cuda:h200"
  name = torch.cuda.get_device_name()
  return next((f"cuda:{key}" for key in ("h200", "h100", "a100") if key.upper() in name), "cuda")


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("command", choices=("run", "show", "list"))
  parser.add_argument("folder", nargs="?", type=pathlib.Path)
  parser.add_argument("rows", nargs="*", metavar="ROW")
  parser.add_argument("--target", default=default_target())
  parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1))
  parser.add_argument("--constant", action="store_true", help="weights are constants")
  parser.add_argument("--again", action="store_true", help="run rows that were run before, too")
  options = parser.parse_intermixed_args()
  rows = [row for row in all_rows(options.target) if matches(row, options.rows)]
  if options.command == "list":
    print("\n".join(rows))
    return 0
  if not options.folder:
    parser.error("write a folder after the command")
  options.folder.mkdir(parents=True, exist_ok=True)
  path = options.folder / "rounding.json"
  found = json.loads(path.read_text()) if path.exists() else {}
  if options.command == "run":
    wanted = [row for row in rows if options.again or "failed" in found.get(row, {"failed": ""})]
    run(wanted, found, options)
  return show(found, options)


if __name__ == "__main__":
  sys.exit(main())
