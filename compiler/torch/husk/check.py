"""`python -m husk check FILE --target NAME`: whether an artifact will run on a device that is not
there, and why not. Neither PyTorch nor the device is needed."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from . import artifact, dtypes
from .artifact import readable
from .checked import Device, Finding, device
from .host import operators as host_operators


def check(
  path: str | os.PathLike[str],
  on: Device,
  *,
  driver: str | None = None,
  memory: int | None = None,
  ops: Iterable[str] = (),
) -> list[Finding]:
  """What decides whether the artifact runs on the device.

  driver: the version of CUDA that the driver there has, as "12.6"; None: unknown.
  memory: the bytes of device memory that the program may use; None: all of the device.
  ops: names of operators that the application registers.

  Raises InvalidFileError if the file is no valid artifact."""
  described = artifact.describe(path, "--check", f"--on={on.port}:{on.arch}")
  contents = artifact.images(path)
  best = _ranks(described, on)
  chosen, findings = {}, []
  for function in described["functions"]:
    ranked = [(best.get(one["target"], 0), one) for one in function["variants"]]
    rank, variant = max(ranked, key=lambda each: each[0], default=(0, None))
    if rank and variant:
      chosen[function["name"]] = variant
      continue
    held = ", ".join(one["target"] for one in function["variants"]) or "nothing"
    findings.append(
      Finding(
        False,
        f"function {function['name']}",
        f"no code for {on.port} {on.arch}, only for {held}: export with --target {on.target()}",
      )
    )
  for name, variant in chosen.items():
    findings.append(Finding(True, f"function {name}", f"runs as {variant['target']}"))
  if not chosen:
    return findings
  targets = {variant["target"] for variant in chosen.values()}
  used = [one for one in described["images"] if _target(described, one) in targets]
  findings += _images(described, used, contents, on)
  findings += on.driver(used, contents, driver)
  findings += _memory(described, chosen, on, memory)
  findings += _operators(chosen, on, frozenset(ops))
  return findings


def _target(described: Any, image: Any) -> str:
  target = described["targets"][image["target"]]
  return f"{target['port']} {target['arch']}"


def _ranks(described: Any, on: Device) -> dict[str, int]:
  """The best rank of each target; a target without images runs on every device of its port."""
  ranks: dict[str, int] = {}
  for number, target in enumerate(described["targets"]):
    if target["port"] != on.port:
      continue
    found = [one["rank"] for one in described["images"] if one["target"] == number] or [1]
    ranks[f"{target['port']} {target['arch']}"] = max(found)
  return ranks


def _images(
  described: Any, used: list[Any], contents: dict[str, bytes], on: Device
) -> list[Finding]:
  """The images that are loaded, and kernels that the device is too small for."""
  count = sum(len(contents[one["name"]]) for one in used)
  total = len(described["images"])
  findings = [Finding(True, "images", f"{len(used)} of {total} are loaded, {readable(count)}")]
  names = {one["name"] for one in used}
  return findings + on.kernels([one for one in described["kernels"] if one["image"] in names])


def _memory(
  described: Any, chosen: dict[str, Any], on: Device, memory: int | None
) -> list[Finding]:
  """The device memory of one session, which is compared with that of the device."""
  constants = sum(one["blob"]["size"] for one in described["constants"])
  states = sum(math.prod(one["dims"]) * dtypes.BYTES[one["dtype"]] for one in described["states"])
  peaks = [variant["arena_bytes"] for variant in chosen.values()]
  parts = f"constants {readable(constants)}, states {readable(states)}"
  limit = memory if memory is not None else on.memory
  if any(peak is None for peak in peaks):
    text = f"{parts}, and a plan whose size has no limit: give Dim(..., max=...) at export"
    return [Finding(limit is None or constants + states <= limit, "memory", text)]
  total = constants + states + max(peaks, default=0)
  text = f"{parts}, plan {readable(max(peaks, default=0))}: {readable(total)} for one session"
  if limit is None:
    return [Finding(True, "memory", text)]
  return [Finding(total <= limit, "memory", f"{text}, of {readable(limit)}")]


def _operators(chosen: dict[str, Any], on: Device, own: frozenset[str]) -> list[Finding]:
  """The operators that steps call."""
  steps = [
    step for variant in chosen.values() for part in variant["segments"] for step in part["steps"]
  ]
  calls = {call for step in steps if (call := artifact.operator(step)) is not None}
  beside = {name for name, on_host in calls if on_host}
  called = {name for name, on_host in calls if not on_host}
  missing: list[str] = []
  findings = []
  for names, (known, where) in (
    (called, on.operators(frozenset(called))),
    (beside, (host_operators.names(), "libhusk_ops, on the host beside the device")),
  ):
    missing += sorted(names - known - own)
    if found := sorted((names & known) - own):
      findings.append(Finding(True, "operators", f"{', '.join(found)} of {where}"))
  if missing:
    text = f"the application must register {', '.join(missing)} (--op says that it does)"
    findings.append(Finding(False, "operators", text))
  return findings


def _bytes(text: str) -> int:
  match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", text)
  if not match:
    raise argparse.ArgumentTypeError(f"{text!r}: give a number of bytes, or 8G, 512M")
  return int(float(match[1]) * 1024 ** " KMG".index(match[2] or " "))


def _cuda(text: str) -> str:
  if not re.fullmatch(r"\d+\.\d+", text):
    raise argparse.ArgumentTypeError(f"{text!r}: give the version of CUDA, as 12.6")
  return text


def parser() -> argparse.ArgumentParser:
  arguments = argparse.ArgumentParser(
    prog="python -m husk check",
    description="Verifies an artifact, compares its images and constants with their hashes, and "
    "says whether it will run on a device that is not there.",
    epilog="exit codes: 0 it will run; 1 it will not, or the file is damaged; 2 the command line "
    "is wrong",
  )
  arguments.add_argument("file", help="the artifact")
  arguments.add_argument(
    "--target",
    action="append",
    required=True,
    metavar="NAME",
    help="the device: a GPU, as orin, or host:avx2, host:avx512, host:aarch64, or the path of a "
    "description; may be given several times",
  )
  arguments.add_argument(
    "--driver", type=_cuda, metavar="CUDA", help="the version of CUDA that `nvidia-smi` names there"
  )
  arguments.add_argument(
    "--memory", type=_bytes, metavar="BYTES", help="device memory that may be used, as 8G"
  )
  arguments.add_argument(
    "--op", action="append", default=[], metavar="NAME", help="an operator of the application"
  )
  return arguments


def main(words: Sequence[str]) -> int:
  """Prints the report; returns the exit status."""
  options = parser().parse_args(words)
  try:
    devices = [device(name) for name in options.target]
    reports = [
      check(options.file, one, driver=options.driver, memory=options.memory, ops=options.op)
      for one in devices
    ]
  except (ValueError, OSError) as error:
    print(f"husk: {error}", file=sys.stderr)
    return 1
  for one, findings in zip(devices, reports):
    runs = all(finding.ok for finding in findings)
    print(f"{options.file}: {'will run' if runs else 'will NOT run'} on {one.name}")
    for finding in findings:
      print(finding)
  return 0 if all(finding.ok for findings in reports for finding in findings) else 1
