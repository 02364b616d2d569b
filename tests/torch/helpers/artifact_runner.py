"""Runs artifacts in the process of a C program without Python and PyTorch (`artifact_runner.c`),
which receives and returns tensors over pipes."""

import functools
import pathlib
import subprocess
import tempfile

import built_tools
import torch
from husk import dtypes

DTYPES = {name: getattr(torch, other) for name, other in dtypes.TORCH.items()}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Failed(Exception):
  """An error of the C API: the status, and the text as the text of the exception."""

  def __init__(self, status, text):
    super().__init__(text)
    self.status = status


@functools.cache
def program():
  """The runner, compiled once, linked with the library of the same build as the tools."""
  library = pathlib.Path(built_tools.built("huskc")).resolve().parents[1] / "lib"
  binary = pathlib.Path(tempfile.mkdtemp(prefix="husk-runner-")) / "runner"
  include = [f"-I{built_tools.ROOT / path}" for path in ("runtime/include", "ports/host/include")]
  subprocess.run(
    [
      "cc",
      "-std=c11",
      "-O1",
      "-Wall",
      "-Wextra",
      "-Werror",
      str(pathlib.Path(__file__).with_name("artifact_runner.c")),
      *include,
      f"-L{library}",
      "-lhusk",
      "-lhusk_ops",
      f"-Wl,-rpath,{library}",
      "-o",
      str(binary),
    ],
    check=True,
  )
  return str(binary)


class Runner:
  """One artifact in a process of its own, with one session at the start (session 0)."""

  def __init__(self, artifact, *options):
    self._process = subprocess.Popen(
      [program(), str(artifact), *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    self._answer()
    self.session()

  def close(self):
    self._process.stdin.close()
    self._process.stdout.close()
    assert self._process.wait() == 0

  def __enter__(self):
    return self

  def __exit__(self, kind, *rest):
    if kind is None:
      self.close()
    else:
      self._process.kill()
      self._process.wait()

  def session(self):
    return int(self._ask("session")[0])

  def release(self, session):
    self._ask(f"release {session}")

  def run(self, inputs, function="forward", session=0):
    """The outputs for a list of tensors and numbers. Input tensors change if the function writes
    them."""
    request = [f"run {session} {function} {len(inputs)}\n".encode(), *map(_sent, inputs)]
    (count,) = self._ask(b"".join(request))
    outputs = [self._value() for _ in range(int(count))]
    for value in inputs:
      if isinstance(value, torch.Tensor):
        raw = self._process.stdout.read(value.untyped_storage().nbytes())
        _bytes_of(value).copy_(
          torch.frombuffer(bytearray(raw), dtype=torch.uint8) if raw else torch.empty(0).byte()
        )
    return outputs

  def get(self, state, session=0):
    (count,) = self._ask(f"get {session} {state}")
    return self._process.stdout.read(int(count))

  def set(self, state, value, session=0):
    raw = bytes(_bytes_of(value).numpy())
    self._ask(f"set {session} {state} {len(raw)}\n".encode() + raw)

  def reset(self, state, session=0):
    self._ask(f"reset {session} {state}")

  def seed(self, seed, session=0, state="husk.generator"):
    """Seeds the generator as torch.manual_seed does."""
    self._ask(f"seed {session} {state} {seed}")

  def update(self, constant, value):
    raw = bytes(_bytes_of(value).numpy())
    self._ask(f"update {constant} {len(raw)}\n".encode() + raw)

  def copy(self, state, source, session=0):
    self._ask(f"copy {session} {state} {source}")

  def stats(self, function="forward", session=0):
    """The number of segments, and whether a run may allocate."""
    segments, dynamic = self._ask(f"stats {session} {function}")
    return int(segments), bool(int(dynamic))

  def _ask(self, request):
    self._process.stdin.write(request if isinstance(request, bytes) else request.encode() + b"\n")
    self._process.stdin.flush()
    return self._answer()

  def _answer(self):
    line = self._process.stdout.readline().decode().rstrip("\n")
    if not line:
      raise AssertionError(f"the runner ended with {self._process.wait()}")
    word, *rest = line.split(" ")
    if word == "error":
      raise Failed(int(rest[0]), " ".join(rest[1:]))
    return rest

  def _value(self):
    kind, *rest = self._answer_value()
    if kind in ("int", "bool"):
      return bool(int(rest[0])) if kind == "bool" else int(rest[0])
    if kind == "float":
      return float(rest[0])
    if kind == "none":
      return None
    dtype, rank, _, count, *places = rest
    sizes, strides = ([int(n) for n in part] for part in (places[: int(rank)], places[int(rank) :]))
    raw = bytearray(self._process.stdout.read(int(count)))
    flat = (
      torch.frombuffer(raw, dtype=DTYPES[dtype]) if raw else torch.empty(0, dtype=DTYPES[dtype])
    )
    return torch.empty(0, dtype=DTYPES[dtype]).set_(flat.untyped_storage(), 0, sizes, strides)

  def _answer_value(self):
    return self._process.stdout.readline().decode().split()


def _bytes_of(tensor):
  """The storage of a tensor."""
  return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def _sent(value):
  if value is None:
    return b"none\n"
  if isinstance(value, bool):
    return f"bool {int(value)}\n".encode()
  if isinstance(value, int):
    return f"int {value}\n".encode()
  if isinstance(value, float):
    return f"float {value!r}\n".encode()
  value = value.detach()
  raw = bytes(_bytes_of(value).numpy())
  numbers = [
    value.dim(),
    value.storage_offset() * value.element_size(),
    len(raw),
    *value.shape,
    *value.stride(),
  ]
  return f"tensor {_NAMES[value.dtype]} {' '.join(map(str, numbers))}\n".encode() + raw
