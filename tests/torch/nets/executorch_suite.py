"""The tests of operators of ExecuTorch's backends, exported by Husk and compared with eager mode.

  pip download --no-deps executorch && unzip -q executorch-*.whl -d WHEEL
  python tests/torch/nets/executorch_suite.py WHEEL [--part 0/4] [--only NAME...] [--models] and
    nothing               artifacts of this host, and runs of them
    --target cuda:h100    exports alone, for that target
    --pack DIR            artifacts for a GPU, inputs and eager's results on the CPU
    --check DIR           runs them on that GPU; needs no wheel

The wheel of ExecuTorch has them in executorch/backends/test/suite; nothing of it is installed, and
its own code does not run. A test gives a model and its inputs to a runner, which is the one of this
net: it exports the model in eval mode, runs the artifact with the inputs and compares the results.
A test can have several models. With `--models` the tests of whole models run, which need
torchvision and torchaudio.

A model has one of these results: equal; differs; exported (if it does not run); torch.export (which
refuses the model); refused (by Husk); crashed (another error); died or late (the process); eager
(which cannot run it)."""

from __future__ import annotations

import argparse
import collections
import copy
import logging
import os
import pathlib
import re
import shutil
import sys
import tempfile
import types
import warnings
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = map(str, (HERE, HERE.parent / "helpers", HERE.parents[2] / "compiler" / "torch"))

import hundred_models  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from random_models import in_a_child, words  # noqa: E402

SUITE = "executorch.backends.test.suite"


class Runner:
  """What a test of the suite gets as `test_runner`."""

  def __init__(self, net: Net, test: str) -> None:
    self.net, self.test, self.models = net, test, 0
    self._flow = types.SimpleNamespace(quantize=False, backend="husk", name="husk")

  def lower_and_run_model(
    self,
    model: torch.nn.Module,
    inputs: Any,
    generate_random_test_inputs: bool = True,
    dynamic_shapes: Any = None,
  ) -> None:
    options = self.net.options
    name = re.sub(r"\W+", "-", f"{self.test} {self.models}")
    self.models += 1
    found = in_a_child(
      lambda: outcome(model.eval(), inputs, dynamic_shapes, options, name), options.limit
    )
    self.net.add(self.test, *found)


def outcome(
  model: torch.nn.Module,
  inputs: tuple[Any, ...],
  dynamic_shapes: Any,
  options: argparse.Namespace,
  name: str,
) -> tuple[str, str]:
  try:
    with torch.no_grad():
      expected = hundred_models.leaves(copy.deepcopy(model)(*copy.deepcopy(inputs)))
  except Exception as error:
    return "eager", f"{type(error).__name__}: {error}"
  with tempfile.TemporaryDirectory(prefix="executorch-suite-") as folder:
    artifact = pathlib.Path(folder) / "model.husk"
    try:
      return attempt(model, inputs, dynamic_shapes, options, name, artifact, expected)
    except Exception as error:
      return hundred_models.named(error)


def attempt(
  model: torch.nn.Module,
  inputs: tuple[Any, ...],
  dynamic_shapes: Any,
  options: argparse.Namespace,
  name: str,
  artifact: pathlib.Path,
  expected: list[torch.Tensor],
) -> tuple[str, str]:
  """Exports a model, and runs it if it can; the result, and a text."""
  import husk

  husk.export(
    copy.deepcopy(model),
    copy.deepcopy(inputs),
    artifact,
    dynamic_shapes=dynamic_shapes,
    targets=(options.target,),
    progress=False,
  )
  if options.pack:
    hundred_models.put(options.pack, name, artifact, [((inputs, {}), expected)])
  if options.target.startswith("cuda"):
    return "exported", ""
  got = husk.load(artifact)(*copy.deepcopy(inputs))
  text = hundred_models.difference(hundred_models.leaves(got), expected)
  return ("differs", text) if text else ("equal", "")


class Net:
  """A plugin of pytest: the runner of each test, and the results."""

  def __init__(self, options: argparse.Namespace) -> None:
    self.options = options
    self.found: list[tuple[str, str, str]] = []

  def add(self, test: str, result: str, text: str) -> None:
    self.found.append((test, result, " ".join(text.split())[:600]))
    if result not in hundred_models.RAN:
      print(*self.found[-1], sep=": ", flush=True)

  @pytest.fixture
  def test_runner(self, request: Any) -> Runner:
    torch.manual_seed(0)
    return Runner(self, request.node.nodeid.rsplit("/", 1)[-1])

  def pytest_collection_modifyitems(self, items: list[Any]) -> None:
    begin, step = map(int, self.options.part.split("/"))
    items[:] = items[begin::step]

  def pytest_runtest_logreport(self, report: Any) -> None:
    if report.failed:
      self.add(report.nodeid.rsplit("/", 1)[-1], "crashed", str(report.longrepr).splitlines()[-1])

  def summary(self) -> str:
    counts = collections.Counter(result for _, result, _ in self.found)
    lines = [f"{len(self.found)} models: " + ", ".join(f"{n} {r}" for r, n in counts.most_common())]
    reasons = collections.Counter((r, words(text)) for _, r, text in self.found)
    for (result, text), count in reasons.most_common():
      if result not in hundred_models.RAN:
        lines.append(f"  {result} {count}: {text}")
    return "\n".join(lines)


def stand_in(wheel: pathlib.Path) -> None:
  """Lets tests of the suite be imported without the rest of ExecuTorch."""
  name = ""
  for part in SUITE.split("."):
    name = f"{name}.{part}" if name else part
    package: Any = types.ModuleType(name)
    package.__path__ = [str(wheel.joinpath(*name.split(".")))]
    sys.modules[name] = package
  sys.modules[SUITE].dtype_to_str = lambda dtype: str(dtype)[6:]  # type: ignore[attr-defined]
  flow: Any = types.ModuleType(f"{SUITE}.flow")
  flow.TestFlow = object
  sys.modules[flow.__name__] = flow


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
  parser.add_argument(
    "wheel", type=pathlib.Path, nargs="?", help="the folder of the unpacked wheel"
  )
  parser.add_argument("--target", default="host")
  parser.add_argument("--part", default="0/1", help="every n-th test: 0/4, 1/4 and so on")
  parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="such as test_add")
  parser.add_argument("--models", action="store_true", help="whole models in place of operators")
  parser.add_argument("--limit", type=float, default=300, help="seconds for a model")
  parser.add_argument("--pack", metavar="DIR", help="write artifacts for a GPU into a folder, too")
  parser.add_argument("--check", metavar="DIR", help="only run that folder, on the GPU")
  options = parser.parse_args()
  if options.check:
    return 1 if hundred_models.check(options) else 0
  if not options.wheel:
    parser.error("the folder of the unpacked wheel is missing")
  if options.pack:
    pathlib.Path(options.pack).mkdir(parents=True, exist_ok=True)
    if options.target == "host":
      options.target = "cuda:h100"
  folder = options.wheel.joinpath(*SUITE.split("."), "models" if options.models else "operators")
  if not folder.is_dir():
    parser.error(f"{options.wheel} has no {folder.relative_to(options.wheel)}")
  os.environ.setdefault("HUSK_TRACEBACK", "1")  # which tells whose errors are torch.export's
  warnings.simplefilter("ignore")
  logging.getLogger("husk").propagate = False
  logging.getLogger("torch").setLevel(logging.CRITICAL)
  torch.set_num_threads(1)
  torch.backends.cudnn.allow_tf32 = False  # the expected results are those of a CPU
  stand_in(options.wheel.resolve())
  hundred_models.warm_up(options)  # no child imports what an export needs
  net = Net(options)
  with tempfile.TemporaryDirectory() as copies:  # else pytest imports the packages around a file
    for path in folder.glob("test_*.py"):
      if not options.only or path.stem in options.only:
        shutil.copy(path, copies)
    flags = ("--noconftest", "-p", "no:cacheprovider", "-q", "-s", "--no-header")
    pytest.main([*flags, "--rootdir", copies, copies], plugins=[net])
  print(net.summary())
  return 0 if all(result in hundred_models.RAN for _, result, _ in net.found) else 1


if __name__ == "__main__":
  sys.exit(main())
