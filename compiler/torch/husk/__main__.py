"""`python -m husk`: exports from the command line."""

import argparse
import importlib.util
import logging
import pathlib
import sys

from . import CompileError, Unsupported, __version__, export, write


def parser():
  made = argparse.ArgumentParser(
      prog="python -m husk", description="Exports a PyTorch model to a Husk artifact.",
      epilog="example: python -m husk examples/models.py:gpt -o gpt.husk --target host:avx2 --target cuda:h200")
  made.add_argument("model", help="FILE.py:FUNCTION, which returns (model, args) or (model, args, dynamic_shapes), or, for "
                                  "several functions in one artifact, {name: husk.Function(...)}; or a .pt2 file of "
                                  "torch.export.save")
  made.add_argument("-o", "--output", help="the artifact to write; without it only the .hir is written, into --keep")
  made.add_argument("--target", action="append", metavar="TARGET",
                    help="host (the default), host:avx2, host:avx512, cuda:NAME; may be given several times")
  made.add_argument("--keep", metavar="DIR", help="leave the .hir, the images and the weights there")
  made.add_argument("--function", help="what the function is called in the artifact; "
                    "forward by default")
  made.add_argument("--attention", choices=("flash", "decompose"), default="flash",
                    help="on CUDA targets: one kernel where it covers the call (the default), or products and a softmax")
  made.add_argument("--libraries", action="store_true",
                    help="on CUDA targets: matrix products are made by cuBLASLt, which must be where the artifact runs")
  made.add_argument("--tune", choices=("none", "heuristic", "max"),
                    help="on CUDA targets: the first configuration of each kernel, or one by rules, or the fastest, measured on "
                    "the GPU here; by default max where that is the target, else heuristic")
  made.add_argument("--asserts", choices=("status", "trap", "off"), default="status",
                    help="on CUDA targets: an index out of range fails the run (the default), ends the context, is not looked for")
  made.add_argument("--user", action="append", default=[], metavar="KEY=VALUE", help="metadata of the author's own")
  made.add_argument("--version", action="version", version=f"husk {__version__}")
  return made


def loaded(text):
  """(model, args, dynamic_shapes) of the command line's first argument; of several functions the dict, None, None."""
  if text.endswith(".pt2"):
    import torch
    return torch.export.load(text), None, None
  path, _, function = text.rpartition(":")
  if not path or not pathlib.Path(path).is_file():
    raise ValueError(f"{text!r}: give FILE.py:FUNCTION or a .pt2 file")
  spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
  module = importlib.util.module_from_spec(spec)
  sys.modules[spec.name] = module
  spec.loader.exec_module(module)
  if not hasattr(module, function):
    raise ValueError(f"{path} has no function {function}")
  made = getattr(module, function)()
  if isinstance(made, dict):
    return made, None, None
  if not isinstance(made, tuple) or len(made) not in (2, 3):
    raise ValueError(f"{text}: returned {type(made).__name__}, give (model, args), (model, args, dynamic_shapes) or a dict")
  return made if len(made) == 3 else (*made, None)


def _say_times():
  """Shows what the exporter tells, the time that each target took among it."""
  handler = logging.StreamHandler()
  handler.setFormatter(logging.Formatter("husk: %(message)s"))
  logger = logging.getLogger("husk")
  logger.handlers[:] = [handler]
  logger.setLevel(logging.INFO)


def main(argv=None):
  given = parser().parse_args(argv)
  if not given.output and not given.keep:
    parser().error("give -o FILE, or --keep DIR for the .hir alone")
  wrong = [pair for pair in given.user if "=" not in pair]
  if wrong:
    parser().error(f"--user {wrong[0]}: give KEY=VALUE")
  _say_times()
  try:
    model, args, shapes = loaded(given.model)
    options = {"targets": given.target or ("host",), "user": dict(pair.split("=", 1) for pair in given.user),
               "attention": given.attention, "libraries": given.libraries, "tune": given.tune,
               "asserts": given.asserts}
    if isinstance(model, dict):
      if given.function:
        raise ValueError(f"--function {given.function}: the model names its functions itself: {', '.join(model)}")
      arguments = (model,)
    else:
      arguments = (model, args)
      options.update(dynamic_shapes=shapes, function=given.function or "forward")
    if given.output:
      export(*arguments, given.output, keep=given.keep, **options)
    else:
      write(*arguments, given.keep, **options)
  except (Unsupported, CompileError, ValueError, OSError) as error:
    print(f"husk: {error}", file=sys.stderr)
    return 1
  return 0


if __name__ == "__main__":
  sys.exit(main())
