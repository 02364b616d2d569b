"""`python -m husk check FILE --target NAME`: whether an artifact will run on a device that is not
there, and why not. Neither PyTorch nor the device is needed."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import pathlib
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from . import artifact, dtypes
from .artifact import readable
from .cuda import operators as cuda_operators
from .host import operators as host_operators
from .runtime.printable import printable

_CUDA_TARGETS = pathlib.Path(__file__).with_name("cuda") / "targets"
# What CPUs run, by their best instruction set, from the lowest to the highest rank.
_HOSTS = {
  "x86-64": ("x86-64",),
  "avx2": ("x86-64", "avx2"),
  "avx512": ("x86-64", "avx2", "avx512"),
  "aarch64": ("aarch64",),
}
_TEGRA = {53, 62, 72, 87, 101, 110}  # see ports/cuda/src/arch_rank.cpp

# The first release of CUDA that knows a device, and the first that reads a version of PTX. Source:
# "PTX ISA", "Release Notes".
_CUDA_OF_DEVICE = {
  75: "10.0", 80: "11.0", 86: "11.1", 87: "11.4", 89: "11.8", 90: "11.8", 100: "12.8",
  101: "12.8", 103: "12.9", 110: "13.0", 120: "12.8", 121: "12.9",
}  # fmt: skip
_CUDA_OF_PTX = {
  "7.0": "11.0", "7.1": "11.1", "7.2": "11.2", "7.3": "11.3", "7.4": "11.4", "7.5": "11.5",
  "7.6": "11.6", "7.7": "11.7", "7.8": "11.8", "8.0": "12.0", "8.1": "12.1", "8.2": "12.2",
  "8.3": "12.3", "8.4": "12.4", "8.5": "12.5", "8.6": "12.7", "8.7": "12.8", "8.8": "12.9",
  "9.0": "13.0", "9.1": "13.1",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Device:
  """A device that an artifact may run on. `arch` is the name of its own code. `limits` has the
  fields of a description in cuda/targets; it is empty for a host."""

  name: str
  port: str
  arch: str
  limits: dict[str, Any]

  @property
  def version(self) -> tuple[int, int]:
    return self.limits["major"], self.limits["minor"]

  def rank(self, arch: str, form: str) -> int:
    """How well code runs here, 0 if it does not: husk_port.arch_rank of the ports."""
    if self.port == "host":
      known = _HOSTS[self.arch]
      return known.index(arch) + 1 if form == "elf" and arch in known else 0
    match = re.fullmatch(r"sm_(\d{1,3})(\d)([af]?)", arch)
    if not match:
      return 0
    major, minor, suffix = int(match[1]), int(match[2]), match[3]
    exact = (major, minor) == self.version
    family = major == self.version[0] and minor <= self.version[1]
    if (suffix == "a" and not exact) or (suffix == "f" and not family):
      return 0
    if form == "ptx":
      if suffix:
        return 400 + 50 * exact + minor
      return 10 + 10 * major + minor if (major, minor) <= self.version else 0
    if exact:
      return {"a": 1000, "f": 950, "": 900}[suffix]
    tegra = _TEGRA & {10 * major + minor, 10 * self.version[0] + self.version[1]}
    return 800 + minor if form == "cubin" and family and not tegra else 0


@dataclasses.dataclass(frozen=True)
class Finding:
  """One line of the report. `ok` is False if the artifact will not run."""

  ok: bool
  subject: str
  text: str

  def __str__(self) -> str:
    return f"  {'ok' if self.ok else 'NO':3} {printable(f'{self.subject}: {self.text}')}"


def device(name: str) -> Device:
  """The device with that name: of cuda/targets, the path of a description, or host:ISA."""
  port, _, detail = name.rpartition(":")
  if port == "host" or name in _HOSTS:
    if detail not in _HOSTS:
      raise ValueError(
        f"no host {detail!r}: known are {', '.join(f'host:{one}' for one in _HOSTS)}"
      )
    return Device(name, "host", detail, {})
  path = _CUDA_TARGETS / f"{detail}.json"
  if not path.is_file():
    path = pathlib.Path(detail)
  if not path.is_file():
    known = sorted(one.stem for one in _CUDA_TARGETS.glob("*.json"))
    raise ValueError(
      f"no target {name!r}: known are {', '.join(known)}, host:ISA, and paths of descriptions"
    )
  limits = json.loads(path.read_text(encoding="utf-8"))
  return Device(name, "cuda", limits["arch"], limits)


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
  described = artifact.describe(path, "--check")
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
        f"no code for {on.port} {on.arch}, only for {held}: export with --target {_export(on)}",
      )
    )
  for name, variant in chosen.items():
    findings.append(Finding(True, f"function {name}", f"runs as {variant['target']}"))
  if not chosen:
    return findings
  targets = {variant["target"] for variant in chosen.values()}
  used = [one for one in described["images"] if _target(described, one) in targets]
  findings += _images(described, used, contents, on)
  findings += _driver(used, contents, on, driver)
  findings += _memory(described, chosen, on, memory)
  findings += _operators(chosen, on, frozenset(ops))
  return findings


def _target(described: Any, image: Any) -> str:
  target = described["targets"][image["target"]]
  return f"{target['port']} {target['arch']}"


def _export(on: Device) -> str:
  return f"host:{on.arch}" if on.port == "host" else f"cuda:{on.name.rpartition(':')[2]}"


def _ranks(described: Any, on: Device) -> dict[str, int]:
  """The best rank of each target; a target without images runs on every device of its port."""
  ranks: dict[str, int] = {}
  for number, target in enumerate(described["targets"]):
    if target["port"] != on.port:
      continue
    forms = [one["format"] for one in described["images"] if one["target"] == number]
    found = [on.rank(target["arch"], form) for form in forms] or [1]
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
  for kernel in described["kernels"]:
    if kernel["image"] not in names or on.port != "cuda":
      continue
    limit = on.limits["shared_memory_per_block_optin"]
    if kernel["shared"] > limit:
      findings.append(
        Finding(
          False,
          f"kernel {kernel['name']}",
          f"it needs {readable(kernel['shared'])} of shared memory, the device has "
          f"{readable(limit)}: export for this device",
        )
      )
    if kernel["cluster"] > 1 and on.version < (9, 0):
      findings.append(
        Finding(False, f"kernel {kernel['name']}", "it has clusters of blocks, as sm_90 has")
      )
  return findings


def _version(text: str) -> tuple[int, ...]:
  return tuple(int(part) for part in text.split("."))


def _driver(
  used: list[Any], contents: dict[str, bytes], on: Device, driver: str | None
) -> list[Finding]:
  """The driver that the device and the images need."""
  if on.port != "cuda" or not used:
    return []
  number = 10 * on.version[0] + on.version[1]
  needed, why = _CUDA_OF_DEVICE.get(number, "11.0"), f"for sm_{number}"
  for one in used:
    if one["format"] != "ptx":
      continue
    match = re.search(rb"^\s*\.version\s+(\d+\.\d+)", contents[one["name"]], re.M)
    version = match[1].decode() if match else ""
    if version not in _CUDA_OF_PTX:
      text = f"image {one['name']} has PTX {version or 'without a version'}, which is unknown here"
      return [Finding(driver is None, "driver", text)]
    if _version(_CUDA_OF_PTX[version]) > _version(needed):
      needed, why = _CUDA_OF_PTX[version], f"for PTX {version} of image {one['name']}"
  if driver is not None and _version(driver) < _version(needed):
    text = f"CUDA {needed} or newer is needed {why}, the driver has {driver}: update it"
    return [Finding(False, "driver", text)]
  return [
    Finding(
      True,
      "driver",
      f"CUDA {needed} or newer {why}; machine code also needs a driver that is not older than the "
      "major version of the toolkit that made it",
    )
  ]


def _memory(
  described: Any, chosen: dict[str, Any], on: Device, memory: int | None
) -> list[Finding]:
  """The device memory of one session, which is compared with that of the device."""
  constants = sum(one["blob"]["size"] for one in described["constants"])
  states = sum(math.prod(one["dims"]) * dtypes.BYTES[one["dtype"]] for one in described["states"])
  peaks = [variant["arena_bytes"] for variant in chosen.values()]
  parts = f"constants {readable(constants)}, states {readable(states)}"
  limit = memory if memory is not None else on.limits.get("total_memory")
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
  needed = sorted({cuda_operators.library_of(name) for name in called & cuda_operators.NAMES})
  on_device = (
    (host_operators.names(), "libhusk_ops")
    if on.port == "host"
    else (cuda_operators.NAMES, f"the port, which needs {' and '.join(needed)} there")
  )
  missing: list[str] = []
  findings = []
  for names, (known, where) in (
    (called, on_device),
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
