"""`python -m husk`: exports from the command line, and calls the tools."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import husk

from . import check, tools
from .errors import CompileError, Unsupported, message
from .inductor import libraries
from .progress import ERASE
from .version import VERSION

# The tools of the package, as `python -m husk NAME ...`: the program and its first arguments.
TOOLS = {
  "run": ("husk-run",),
  "dump": ("husk-dump",),
  "check": ("husk-dump", "--output=sizes", "--check"),
  "bench": ("husk-bench",),
  "compile": ("huskc",),
}


# Exceptions whose text says all that one has to know.
_OWN = (Unsupported, CompileError, ImportError, ValueError, OSError)


def parser() -> argparse.ArgumentParser:
  arguments = argparse.ArgumentParser(
    prog="python -m husk",
    description="Exports a PyTorch model to a Husk artifact.",
    epilog="example: python -m husk examples/models.py:gpt -o gpt.husk --target host:avx2 "
    "--target cuda:h200. Other commands: `python -m husk tune` measures kernels for later exports; "
    "`run`, `dump`, `check`, `bench` and `compile` call husk-run, husk-dump, husk-dump --check, "
    "husk-bench and huskc; each has --help. `check FILE --target NAME` says whether an artifact "
    "will run on a device that is not there.",
  )
  arguments.add_argument(
    "model",
    help="FILE.py:FUNCTION, which returns (model, args), (model, args, dynamic_shapes) or (model, "
    "args, dynamic_shapes, kwargs), or, for several functions in one artifact, {name: "
    "husk.Function(...)}; or a .pt2 file of torch.export.save",
  )
  arguments.add_argument(
    "-o",
    "--output",
    help="the artifact to write; without it only the .hir is written, into the folder of --keep",
  )
  arguments.add_argument(
    "--target",
    action="append",
    metavar="TARGET",
    help="host (the default), host:avx2, host:avx512, host:aarch64 or cuda:NAME; may be given "
    "several times",
  )
  arguments.add_argument(
    "--keep", metavar="DIR", help="a folder in which the .hir, the images and the weights stay"
  )
  arguments.add_argument(
    "--function", help="the name of the function in the artifact; forward by default"
  )
  arguments.add_argument(
    "--attention",
    choices=("flash", "decompose"),
    default="flash",
    help="on CUDA targets: attention is one kernel if that covers the call (the default), or "
    "products and a softmax",
  )
  arguments.add_argument(
    "--gemm",
    choices=libraries.CHOICES["gemm"],
    help="on CUDA targets: matrix products are kernels of the artifact (the default), or calls of "
    "cuBLASLt, which must be installed where the artifact runs",
  )
  arguments.add_argument(
    "--conv",
    choices=libraries.CHOICES["conv"],
    help="on CUDA targets: convolutions are kernels of the artifact (the default), or calls of "
    "cuDNN 9, which must be installed where the artifact runs",
  )
  arguments.add_argument(
    "--fft",
    choices=libraries.CHOICES["fft"],
    help="on CUDA targets: Fourier transforms are products with constant matrices (the default), "
    "or calls of cuFFT, which must be installed where the artifact runs",
  )
  arguments.add_argument(
    "--linalg",
    choices=libraries.CHOICES["linalg"],
    help="on CUDA targets: factorizations of matrices, eigenvalues, singular values and systems of "
    "equations run on the CPU (the default), or are calls of cuSOLVER, which must be installed "
    "where the artifact runs",
  )
  arguments.add_argument(
    "--libraries",
    action="store_true",
    help="on CUDA targets: what no other option decides is left to libraries, as with "
    "--gemm=cublaslt --conv=cudnn --fft=cufft --linalg=cusolver",
  )
  arguments.add_argument(
    "--tune",
    choices=("none", "rules", "heuristic", "max"),
    help="on CUDA targets: the first configuration of each kernel, or the one that rules choose, "
    "or one of a record of measurements where there is one, or the fastest, measured on the GPU of "
    "this machine; by default max if that GPU is the target, else heuristic",
  )
  arguments.add_argument(
    "--records",
    action="append",
    default=[],
    metavar="FILE",
    help="on CUDA targets: measured configurations that `python -m husk tune` wrote, in place of "
    "those of the package; may be given several times",
  )
  arguments.add_argument(
    "--asserts",
    choices=("status", "trap", "off"),
    default="status",
    help="on CUDA targets: an index out of range fails the run (the default), ends the CUDA "
    "context, or is not checked",
  )
  arguments.add_argument(
    "--op",
    action="append",
    default=[],
    metavar="NAME",
    help="an operator of PyTorch that the application registers, as aten::topk, or a pattern, as "
    "'aten::*'; may be given several times",
  )
  arguments.add_argument(
    "--host-ops",
    choices=("allow", "forbid"),
    default="allow",
    help="on CUDA targets: operators that the target lacks and hosts have run on the CPU (the "
    "default), or the model is refused",
  )
  arguments.add_argument(
    "--linkable",
    action="store_true",
    help="on host targets: keep the kernels in a form that `huskc --emit=obj` links into a program "
    "as code, too",
  )
  arguments.add_argument(
    "--metadata",
    action="append",
    default=[],
    metavar="KEY=VALUE",
    help="a text of the author's; may be given several times",
  )
  arguments.add_argument(
    "--traceback",
    action="store_true",
    help="print the whole traceback of an error, with the frames of PyTorch",
  )
  arguments.add_argument("--version", action="version", version=f"husk {VERSION}")
  return arguments


def load_model(text: str) -> tuple[Any, Any, Any, Any]:
  """(model, args, dynamic_shapes, kwargs) of the command line's first argument; (functions, None,
  None, None) if it names several functions."""
  if text.endswith(".pt2"):
    import torch

    return torch.export.load(text), None, None, None
  path, _, function = text.rpartition(":")
  if not path or not pathlib.Path(path).is_file():
    raise ValueError(f"{text!r}: give FILE.py:FUNCTION or a .pt2 file")
  spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
  if spec is None or spec.loader is None:
    raise ValueError(f"{path} is not a Python file")
  module = importlib.util.module_from_spec(spec)
  sys.modules[spec.name] = module
  spec.loader.exec_module(module)
  if not hasattr(module, function):
    raise ValueError(f"{path} has no function {function}")
  result = getattr(module, function)()
  if isinstance(result, dict):
    return result, None, None, None
  if not isinstance(result, tuple) or len(result) not in (2, 3, 4):
    raise ValueError(
      f"{text}: returned {type(result).__name__}, give (model, args), "
      "(model, args, dynamic_shapes), (model, args, dynamic_shapes, kwargs) or a dict"
    )
  model, args, shapes, kwargs = (*result, None, None)[:4]
  return model, args, shapes, kwargs


def _call_tool(name: str, arguments: Sequence[str]) -> int:
  """Runs a tool of the package with the rest of the command line; returns its exit status."""
  program, *first = TOOLS[name]
  path = tools.find(program)
  if path is None:
    print(f"husk: {program} was not found: run `pip install ./compiler/torch`", file=sys.stderr)
    return 1
  return subprocess.run([path, *first, *arguments]).returncode


def _tune(words: Sequence[str]) -> int:
  # Other commands need nothing of what this one imports.
  tune = importlib.import_module("husk.tune")
  try:
    return tune.main(words, load_model)
  except _OWN as error:
    print(f"husk: {error}", file=sys.stderr)
    return 1


def _show_log() -> None:
  """Prints what the exporter logs, such as the time that each target took."""
  handler = logging.StreamHandler()
  # On a terminal a record may begin behind the text of a stage.
  begin = ERASE if sys.stderr.isatty() else ""
  handler.setFormatter(logging.Formatter(f"{begin}husk: %(message)s"))
  logger = logging.getLogger("husk")
  logger.handlers[:] = [handler]
  logger.setLevel(logging.INFO)


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command and returns its exit status."""
  words = list(sys.argv[1:] if argv is None else argv)
  if words and words[0] == "check" and any(word.startswith("--target") for word in words):
    return check.main(words[1:])
  if words and words[0] == "tune":
    return _tune(words[1:])
  if words and words[0] in TOOLS:
    return _call_tool(words[0], words[1:])
  options = parser().parse_args(words)
  if not options.output and not options.keep:
    parser().error("give -o FILE, or --keep DIR for the .hir alone")
  wrong = [pair for pair in options.metadata if "=" not in pair]
  if wrong:
    parser().error(f"--metadata {wrong[0]}: give KEY=VALUE")
  _show_log()
  if options.traceback:
    os.environ["HUSK_TRACEBACK"] = "1"
  try:
    model, args, shapes, kwargs = load_model(options.model)
    keywords: dict[str, Any] = {
      "targets": options.target or ("host",),
      "metadata": dict(pair.split("=", 1) for pair in options.metadata),
      "attention": options.attention,
      "gemm": options.gemm,
      "conv": options.conv,
      "fft": options.fft,
      "linalg": options.linalg,
      "libraries": options.libraries,
      "tune": options.tune,
      "asserts": options.asserts,
      "ops": options.op,
      "host_ops": options.host_ops,
      "linkable": options.linkable,
      "records": options.records,
    }
    destination = options.output or options.keep
    if isinstance(model, dict):
      if options.function:
        raise ValueError(
          f"--function {options.function}: the model names its functions itself: {', '.join(model)}"
        )
      positional: tuple[Any, ...] = (model, destination)
    else:
      positional = (model, args, destination)
      keywords.update(dynamic_shapes=shapes, kwargs=kwargs, function=options.function or "forward")
    if options.output:
      husk.export(*positional, keep=options.keep, **keywords)
    else:
      husk.write(*positional, **keywords)
  except Exception as error:
    if options.traceback:
      raise
    if isinstance(error, _OWN) and not type(error).__module__.startswith("torch"):
      print(f"husk: {error}", file=sys.stderr)
    else:
      print(f"husk: {message(error)}\n  --traceback shows all of it", file=sys.stderr)
    return 1
  return 0


if __name__ == "__main__":
  sys.exit(main())
