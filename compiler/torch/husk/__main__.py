"""`python -m husk`: exports from the command line, and calls the tools."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import logging
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import husk

from . import check, options, tools
from .errors import CompileError, Unsupported, message, traceback_is_full
from .progress import ERASE
from .version import VERSION

# The tools of the package, as `python -m husk NAME ...`: the program and its first arguments.
TOOLS = {
  "run": ("husk-run",),
  "dump": ("husk-dump",),
  "check": ("husk-dump", "--output=sizes", "--check"),
  "bench": ("husk-bench",),
  "chat": ("husk-chat",),
  "text": ("husk-text",),
  "compile": ("huskc",),
  "pack": ("husk-pack",),
}


# Exceptions whose text says all that one has to know.
_OWN = (Unsupported, CompileError, ImportError, ValueError, OSError)


def parser() -> argparse.ArgumentParser:
  arguments = argparse.ArgumentParser(
    prog="python -m husk",
    description="Exports a PyTorch model to a Husk artifact.",
    epilog="example: python -m husk examples/models.py:gpt -o gpt.husk --target host:avx2 "
    "--target cuda:h200. Other commands: `python -m husk llm` exports a language model with its "
    "tokenizer; `python -m husk perplexity` says how well it predicts a text; `python -m husk "
    "tune` measures kernels for later exports; "
    "`run`, `dump`, `check`, `bench`, `chat`, `text`, `compile` and `pack` call husk-run, "
    "husk-dump, husk-dump --check, husk-bench, husk-chat, husk-text, huskc and husk-pack; each has "
    "--help. `check FILE "
    "--target NAME` says whether an artifact will run on a device that is not there.",
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
    "--keep", metavar="DIR", help="a folder in which the .hir, the images and the weights stay"
  )
  arguments.add_argument(
    "--function", help="the name of the function in the artifact; forward by default"
  )
  options.add_arguments(arguments)
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
    return _saved(text), None, None, None
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
    names = [name for name, one in vars(module).items() if inspect.isfunction(one)]
    raise ValueError(f"{path} has no function {function}, it has {', '.join(names) or 'none'}")
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


def _saved(path: str) -> Any:
  """The program of a file of torch.export.save."""
  import torch

  try:
    return torch.export.load(path)
  except FileNotFoundError:
    raise
  except Exception as error:
    if traceback_is_full():
      raise
    reason = str(error).splitlines()[:1] or [type(error).__name__]
    raise ValueError(
      f"{path} does not load as a program of torch.export.save ({reason[0]}): save it again, with "
      f"PyTorch {torch.__version__}"
    ) from error


def _call_tool(name: str, arguments: Sequence[str]) -> int:
  """Runs a tool of the package with the rest of the command line; returns its exit status."""
  program, *first = TOOLS[name]
  path = tools.find(program)
  if path is None:
    libraries = "install libpcre2-dev and libutf8proc-dev, and " if name in ("chat", "text") else ""
    remedy = f"{libraries}run `pip install ./compiler/torch`"
    print(f"husk: {program} was not found: {remedy}", file=sys.stderr)
    return 1
  return subprocess.run([path, *first, *arguments]).returncode


def _tune(words: Sequence[str]) -> int:
  # Other commands need nothing of what this one imports.
  tune = importlib.import_module("husk.tune")
  try:
    return tune.main(words, load_model)
  except Exception as error:
    return _failed(error)


def _failed(error: Exception, option: str = "HUSK_TRACEBACK=1 in the environment") -> int:
  """Prints an error, and returns the exit status of a command that fails. The error is raised if
  the environment asks for whole tracebacks, as `option` does."""
  if traceback_is_full():
    raise error
  if isinstance(error, _OWN) and not type(error).__module__.startswith("torch"):
    print(f"husk: {error}", file=sys.stderr)
  else:
    print(f"husk: {message(error)}\n  {option} shows all of it", file=sys.stderr)
  return 1


# Commands with a module of their own, which only they import.
_COMMANDS = {"llm": "husk.language.command", "perplexity": "husk.text.command"}


def _run_command(name: str, words: Sequence[str]) -> int:
  command = importlib.import_module(_COMMANDS[name])
  _show_log()
  try:
    command.main(words)
  except Exception as error:
    return _failed(error)
  return 0


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
  if words and words[0] in _COMMANDS:
    return _run_command(words[0], words[1:])
  if words and words[0] in TOOLS:
    return _call_tool(words[0], words[1:])
  command = parser()
  named = command.parse_args(words)
  if not named.output and not named.keep:
    command.error("give -o FILE, or --keep DIR for the .hir alone")
  chosen = options.from_arguments(command, named)
  _show_log()
  if named.traceback:
    os.environ["HUSK_TRACEBACK"] = "1"
  try:
    model, args, shapes, kwargs = load_model(named.model)
    keywords: dict[str, Any] = {"options": chosen}
    destination = named.output or named.keep
    if isinstance(model, dict):
      if named.function:
        raise ValueError(
          f"--function {named.function}: the model names its functions itself: {', '.join(model)}"
        )
      positional: tuple[Any, ...] = (model, destination)
    else:
      positional = (model, args, destination)
      keywords.update(dynamic_shapes=shapes, kwargs=kwargs, function=named.function or "forward")
    if named.output:
      husk.export(*positional, keep=named.keep, **keywords)
    else:
      husk.write(*positional, **keywords)
  except Exception as error:
    return _failed(error, "--traceback")
  return 0


if __name__ == "__main__":
  sys.exit(main())
