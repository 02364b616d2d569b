"""Image networks with convolutions on a GPU: values against eager mode, times against CUDA graph
trees.

  python tests/gpu/image_models.py export DIR [--target cuda:h200] [--batch 1,8] [--jobs 4]
                                              [MODEL...]
  python tests/gpu/image_models.py run DIR [--batch 1,8] [--jobs 4] [MODEL...]

`export` writes DIR/MODEL.BATCH.husk, and needs no GPU; kernels are chosen by records and rules.
`run` compares the artifact with eager mode in fp32, beside eager mode in fp16, and measures it as a
graph and as a list beside eager mode and Inductor's CUDA graph trees. Each model is made ready in a
process of its own, some at the same time. One after the other they measure when all are ready. The
models have seeded random weights and are in fp16, channels last. A MODEL is another name of
torchvision, too.
"""

import argparse
import concurrent.futures
import copy
import multiprocessing
import pathlib
import sys
import time
import traceback

import torch
from torch import nn


class Unet(nn.Module):
  """Two halvings and two doublings of the image, with a connection across."""

  def __init__(self, width=64):
    super().__init__()

    def block(inputs, outputs):
      return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
      )

    self.down1, self.down2, self.middle = (
      block(3, width),
      block(width, 2 * width),
      block(2 * width, 4 * width),
    )
    self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
    self.join2 = block(4 * width, 2 * width)
    self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
    self.join1 = block(2 * width, width)
    self.last = nn.Conv2d(width, 2, 1)

  def forward(self, x):
    one = self.down1(x)
    two = self.down2(nn.functional.max_pool2d(one, 2))
    three = self.middle(nn.functional.max_pool2d(two, 2))
    two = self.join2(torch.cat([self.up2(three), two], 1))
    one = self.join1(torch.cat([self.up1(two), one], 1))
    return self.last(one)


class Segmentation(nn.Module):
  """The scores of a model of torchvision that returns a dict."""

  def __init__(self, model):
    super().__init__()
    self.model = model

  def forward(self, x):
    return self.model(x)["out"]


def hide_folder():
  """Takes this folder off the path. A package that transformers looks for has the name of a file of
  it."""
  sys.path[:] = [path for path in sys.path if path != str(pathlib.Path(__file__).parent)]


class Whisper(nn.Module):
  """The encoder of Whisper-tiny."""

  def __init__(self):
    super().__init__()
    hide_folder()
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    tiny = dict(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
    self.encoder = WhisperEncoder(WhisperConfig(attn_implementation="sdpa", **tiny))

  def forward(self, features):
    return self.encoder(features).last_hidden_state


def model(name, seed=0, device="cpu"):
  """A model with the weights of a seed. The statistics of its batch norms are computed on a device,
  where the model stays."""
  torch.manual_seed(seed)
  if name == "whisper":
    return Whisper().eval().to(device)
  if name == "unet":
    network = Unet()
  else:
    import torchvision

    if name in torchvision.models.list_models(torchvision.models.segmentation):
      network = torchvision.models.get_model(name, weights=None, weights_backbone=None)
      network = Segmentation(network)
    else:
      network = torchvision.models.get_model(name, weights=None)
  # Random weights let values grow or vanish in deep networks, unless batch norms know their scale.
  network = network.train().to(device)
  norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
  for norm in norms:
    norm.momentum = None
  with torch.no_grad():
    for _ in range(2 if norms else 0):
      network(torch.randn(4, 3, 96, 96).to(device))
  return network.eval().to(memory_format=torch.channels_last)


MODELS = (
  "resnet50",
  "convnext_tiny",
  "efficientnet_b0",
  "mobilenet_v3_large",
  "swin_t",
  "deeplabv3_resnet50",
  "unet",
  "whisper",
)


def image(batch, name=""):
  torch.manual_seed(1)
  if name == "whisper":
    return torch.randn(batch, 80, 3000)
  return torch.randn(batch, 3, 224, 224).to(memory_format=torch.channels_last)


def export(name, folder, target, batch):
  import husk

  begin = time.perf_counter()
  path = pathlib.Path(folder) / f"{name}.{batch}.husk"
  husk.export(model(name).half(), (image(batch, name).half(),), path, targets=[target])
  return f"{path.name}: {time.perf_counter() - begin:.1f} s, {path.stat().st_size >> 20} MiB"


def compare(title, result, eager, expected):
  """Prints the error of a result, which may be twice that of eager mode in fp16."""
  scale = expected.abs().max()
  own, other = (((x.float() - expected).abs().max() / scale).item() for x in (result, eager))
  print(f"  {title}: error {own:.5f}, eager in fp16 {other:.5f}", flush=True)
  if not own <= max(2 * other, 1e-3):
    raise AssertionError(f"{title} differs from eager mode by {own}")


def prepare(name, folder, batch):
  """Compares an artifact with eager mode. Returns what is to be measured."""
  import husk

  torch.backends.cudnn.allow_tf32 = False  # products in fp32 have it off by default
  network, x = model(name).cuda(), image(batch, name).cuda()
  expected = network(x)
  half, small = network.half(), x.half()
  program = husk.load(pathlib.Path(folder) / f"{name}.{batch}.husk", device="cuda")
  sessions = {mode: program.session(mode=mode) for mode in ("graph", "list")}
  eager = half(small)
  sides = {}
  for mode, session in sessions.items():
    compare(f"{name}.{batch} {mode}", session(small), eager, expected)
    sides[f"husk {mode}"] = lambda session=session: session(small)
  sides["eager"] = lambda: half(small)
  call = torch.compile(copy.deepcopy(half), options={"triton.cudagraphs": True})
  for _ in range(3):
    call(small)
  torch.cuda.synchronize()
  sides["graph trees"] = lambda: call(small)
  return sides


def show(name, batch, times):
  from compile_bench import report

  report(f"{name} in fp16, {batch} images", times, "husk graph")


def measure(prepare, show, name, folder, batch, turn):
  """Makes a model ready, says so, and measures it when told to."""
  from compile_bench import timed

  torch.set_num_threads(1)
  with torch.no_grad():
    try:
      sides = prepare(name, folder, batch)
    except Exception:
      print(f"FAILED  {name}.{batch}\n{traceback.format_exc()[-2000:]}", flush=True)
      sides = None
    turn.send(sides is not None)
    if not sides:
      return
    turn.recv()
    show(name, batch, timed(sides))
    sys.stdout.flush()
    turn.send(True)


def answered(turn):
  """Waits for the other process, and returns whether it says that all is well."""
  try:
    return turn.recv()
  except EOFError:  # it has ended
    return False


def run(cases, folder, jobs, prepare=prepare, show=show):
  """Measures models, pairs of a name and a number of images. `prepare` returns what is to be
  measured of one, `show` prints its times. Returns the number of those that failed."""
  context = multiprocessing.get_context("spawn")
  waiting, ready, failed = cases, [], 0
  while waiting:
    some, waiting = waiting[:jobs], waiting[jobs:]
    started = []
    for name, batch in some:
      turn, other = context.Pipe()
      process = context.Process(target=measure, args=(prepare, show, name, folder, batch, other))
      process.start()
      other.close()
      started.append((process, turn))
    for process, turn in started:
      if answered(turn):
        ready.append((process, turn))
      else:
        failed += 1
  for process, turn in ready:
    turn.send(None)
    failed += not answered(turn)
    process.join()
  return failed


def main():
  arguments = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  arguments.add_argument("command", choices=("export", "run"))
  arguments.add_argument("folder")
  arguments.add_argument("names", nargs="*", metavar="MODEL")
  arguments.add_argument("--target", default="cuda:h200")
  arguments.add_argument("--batch", default="1", help="numbers of images, with commas between them")
  arguments.add_argument("--jobs", type=int, default=4)
  options = arguments.parse_intermixed_args()
  names = options.names or MODELS
  batches = [int(word) for word in options.batch.split(",")]
  if options.command == "run":
    cases = [(name, batch) for batch in batches for name in names]
    return run(cases, options.folder, options.jobs) != 0
  failed = 0
  pathlib.Path(options.folder).mkdir(parents=True, exist_ok=True)
  context = multiprocessing.get_context("spawn")
  with concurrent.futures.ProcessPoolExecutor(options.jobs, context) as pool:
    pending_exports = {
      f"{name}.{batch}": pool.submit(export, name, options.folder, options.target, batch)
      for batch in batches
      for name in names
    }
    for name, result in pending_exports.items():
      error = result.exception()
      failed += error is not None
      print(f"{name}: {error}" if error else result.result(), flush=True)
  return failed != 0


if __name__ == "__main__":
  sys.exit(main())
