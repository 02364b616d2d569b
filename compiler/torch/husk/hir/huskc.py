"""Runs `huskc`, the compiler of `.hir` files, and `husk-pack`."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import re
import subprocess
from collections.abc import Callable
from typing import IO

from .. import tools
from ..errors import CompileError


def huskc() -> str | None:
  """The path of the compiler, None if it is not there."""
  return tools.find("huskc")


def require() -> str:
  """The path of the compiler. An export asks for it before it begins to compile."""
  program = huskc()
  if program is None:
    raise CompileError(
      "huskc was not found: run `pip install ./compiler/torch`, put it on PATH, or name it in HUSKC"
    )
  return program


def require_pack() -> str:
  """The path of `husk-pack`. An export with packed weights asks for it before it begins."""
  program = tools.find("husk-pack")
  if program is None:
    raise CompileError(
      "husk-pack, which pack=True (--pack) needs, was not found: run `pip install "
      "./compiler/torch`, put it on PATH, or name it in HUSK_PACK"
    )
  return program


def pack(artifact: pathlib.Path) -> None:
  """Adds packed copies of constants to an artifact, for the CPU of this machine."""
  packed = artifact.with_name(artifact.name + ".packed")
  command = [require_pack(), str(artifact), "-o", str(packed)]
  process = subprocess.run(
    command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
  )
  if process.returncode:
    said = process.stderr.strip().removeprefix(f"{artifact}:").strip()
    if process.returncode < 0:
      said = f"signal {-process.returncode} ended it" + (f": {said}" if said else "")
    raise CompileError(
      f"husk-pack cannot pack the weights: {said}",
      "export without pack, and run `python -m husk pack` where the artifact runs",
    )
  packed.replace(artifact)


def compile(
  text: pathlib.Path,
  artifact: pathlib.Path,
  piped: str | None = None,
  send: Callable[[IO[bytes]], None] | None = None,
  place: str = "inside",
) -> str:
  """Compiles the file `text` to the file `artifact`; returns the output of huskc. `send` writes the
  safetensors file that `text` calls `piped`, so that its bytes go from the memory of this process
  into the artifact. `place` says whether weights lie inside of the artifact or beside it. An
  exception ends huskc, which removes what it has written."""
  command = [require(), str(text), "-o", str(artifact), "--weights", place]
  if piped is not None:
    command += ["--stdin", piped]
  process = subprocess.Popen(
    command,
    stdin=subprocess.DEVNULL if send is None else subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
  )
  try:
    if send is not None and process.stdin is not None:
      with contextlib.suppress(BrokenPipeError), process.stdin:  # huskc says why it ended
        send(process.stdin)
      process.stdin = None  # communicate() would flush it
    printed, complaint = (part.decode(errors="replace") for part in process.communicate())
  except BaseException:
    process.terminate()
    process.wait()
    raise
  if process.returncode:
    raise _refusal(text, (complaint or printed).strip(), process.returncode)
  return printed


def join(artifacts: list[pathlib.Path], joined: pathlib.Path) -> None:
  """Writes the artifacts of all ranks, which are in order, into one file."""
  command = [require(), *map(str, artifacts), "-o", str(joined)]
  done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
  if done.returncode:
    raise _refusal(joined, (done.stderr or done.stdout).strip(), done.returncode)


_REPORT = "this is an error of Husk, please report it; keep=FOLDER (--keep) keeps the `.hir`"


def _refusal(text: pathlib.Path, complaint: str, status: int) -> CompileError:
  """The refusal of a `.hir`, with the place in the model of the line that huskc names."""
  said = complaint.replace(f"{text}:", "").replace(f"{text}", text.name).strip()
  match = re.match(r"(\d+):\d+: (.*)", said, re.S)
  if not match:
    if status < 0:
      said = f"signal {-status} ended it" + (f": {said}" if said else "")
    return CompileError(
      f"huskc cannot write the artifact: {said or 'it printed nothing'}",
      "see whether the disk has room and may be written; else " + _REPORT,
    )
  line, what = int(match.group(1)), match.group(2)
  with text.open(encoding="utf-8") as lines:
    step = next(itertools.islice(lines, line - 1, None), "").strip()
  place = re.search(r' at "((?:[^"\\]|\\.)*)"$', step)
  step = step[: place.start()] if place else step
  return CompileError(
    f"huskc refuses line {line} of the `.hir`, `{step[:200]}`: {what}",
    _REPORT,
    f"near {place.group(1)}" if place else "",
  )
