"""Host images: the instruction sets of kernels, and the compilation of a translation unit to a
shared object that needs only libc, libm and libmvec. A cross compiler makes images for other
machines."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence

from ..errors import CompileError
from ..inductor import host_toolchain
from . import cpus, images, precompiled, vector_math

REMEDY = (
  "give another compiler in CXX, or write this line of the model with other operators; with "
  "another compiler that fails too it is an error of Husk, please report it"
)


class CompilerFailed(CompileError):
  """A C++ compiler or its linker failed. `output` is all that it printed, `first` its first error,
  without the name of the file, which is temporary."""

  def __init__(self, compiler: str, output: str) -> None:
    self.compiler, self.output = compiler, output
    lines = [line for line in output.splitlines() if "error" in line or "undefined" in line]
    lines = lines or output.splitlines() or ["it printed nothing"]
    self.first = re.sub(r"^(?:\S*[/.]\S*:\s+)+", "", lines[0]).strip()
    super().__init__(f"{compiler} cannot compile the host kernels: {self.first}", REMEDY)


@dataclasses.dataclass(frozen=True)
class Isa:
  """An instruction set. `arch` is the name in the row of a target (husk/port_host.h), `bits` the
  width of a vector, `vectors` the class of Inductor for this width."""

  arch: str
  machine: str
  bits: int
  vectors: str
  flags: str
  macro: str
  cpu: frozenset[str]  # features that /proc/cpuinfo must list

  @property
  def triple(self) -> str:
    return f"{self.machine}-linux-gnu"

  @property
  def native(self) -> bool:
    """True if this machine has the architecture."""
    return _machine() == self.machine

  def tool(self, name: str) -> str:
    """A program of binutils for this machine."""
    return name if self.native else f"{self.triple}-{name}"

  def compiler(self) -> str:
    """CXX or g++ if the images are for a machine like this one, else the g++ that
    cross-compiles."""
    return host_toolchain.compiler() if self.native else f"{self.triple}-g++"


def _isa(arch: str) -> Isa:
  """The instruction set of a target of images."""
  machine, features, options = cpus.SETS[cpus.TARGETS[arch]]
  bits, vectors, macro = cpus.INDUCTOR[arch]
  return Isa(arch, machine, bits, vectors, " ".join(options), macro, frozenset(features))


_ALL = tuple(_isa(arch) for arch in cpus.INDUCTOR)
ISAS = {isa.arch: isa for isa in _ALL}  # The best ISA of each machine comes first.

# Rounding equals that of Inductor's own builds: no contraction, and infinities and NaNs are kept. A
# division of an integer by zero is a failed check. The headers of the library are longer in C++20.
_FLAGS = (
  "-std=c++17 -O2 -fPIC -fvisibility=hidden -fno-exceptions -fno-rtti -fno-threadsafe-statics "
  "-fno-plt -ffast-math -fno-finite-math-only -fno-unsafe-math-optimizations -ffp-contract=off "
  "-fno-math-errno -fopenmp "
  "-fsanitize=integer-divide-by-zero -fno-sanitize-recover=integer-divide-by-zero "
  "-ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables -fno-ident -w"
)
_LIBRARIES = {
  "libc.so.6",
  "libm.so.6",
  "libmvec.so.1",
  "ld-linux-x86-64.so.2",
  "ld-linux-aarch64.so.1",
}
# Weak symbols, which may be absent.
_OPTIONAL = {"_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__gmon_start__"}


def _machine() -> str:
  return {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())


def isas_of_this_machine() -> list[str]:
  """The ISAs of this machine's architecture, best first, whether or not its CPU has them."""
  return [isa.arch for isa in _ALL if isa.native]


def isas() -> list[str]:
  """The ISAs that the CPU of this machine has, best first."""
  line = re.search(r"^(?:flags|Features)\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
  flags = set(line.group(1).split()) if line else set()
  return [isa.arch for isa in _ALL if isa.native and isa.cpu <= flags]


def require(isa: Isa, linkable: bool = False) -> None:
  """Raises CompileError if the compiler of an ISA or its binutils are not there."""
  package = "g++" if isa.native else f"g++-{isa.triple}"
  tools = [isa.compiler(), isa.tool("nm"), isa.tool("readelf")]
  for tool in tools + [isa.tool("objcopy")] * linkable:
    if shutil.which(tool) is None:
      raise CompileError(
        f"host:{isa.arch} needs {tool}, which was not found: run `apt-get install {package}`"
        + (", or name a C++ compiler in CXX" if isa.native else "")
      )


def build(headers: str, source: str, isa: Isa, linkable: bool = False) -> bytes:
  """Compiles a translation unit to a shared object, checks the symbols that it needs and returns
  its bytes. `headers` is the text that the units of all images begin with. A linkable image also
  has the code before it was linked, for `huskc --emit=obj`. An image that was made before is taken
  from Inductor's cache folder."""
  flags = [
    *_FLAGS.split(),
    *isa.flags.split(),
    f"-D{isa.macro}",
    "-DC10_USING_CUSTOM_GENERATED_MACROS",
    "-DSTRIP_ERROR_MESSAGES",
  ]
  kept = images.path([isa.compiler(), *flags], headers, source, linkable)
  if (image := images.read(kept)) is not None:
    return image
  with tempfile.TemporaryDirectory(prefix="husk-") as name:
    image = _build(headers, source, isa, linkable, flags, pathlib.Path(name))
  images.write(kept, image)
  return image


def _build(
  headers: str,
  source: str,
  isa: Isa,
  linkable: bool,
  flags: Sequence[str],
  folder: pathlib.Path,
) -> bytes:
  (folder / "kernels.cpp").write_text(f'#include "{precompiled.NAME}"\n{source}')
  includes = [f"-I{path}" for path in host_toolchain.include_paths()]
  command = [isa.compiler(), *flags, *includes]
  _compile(command, headers, folder)
  objects = ["kernels.o"]
  wanted = _undefined(isa, folder / "kernels.o")
  shim = vector_math.source([symbol for symbol in wanted if symbol.startswith("Sleef_")])
  if shim:
    (folder / "vector_math.cpp").write_text(shim)
    _run([isa.compiler(), *flags, "-c", "vector_math.cpp", "-o", "vector_math.o"], folder)
    objects.append("vector_math.o")
  (folder / "exports.map").write_text("{ global: husk_*; local: *; };\n")
  # glibc has libmvec for Arm only from 2.38 on.
  mvec = ["-lmvec"] if isa.machine == "x86_64" else []
  _run(
    [
      isa.compiler(),
      "-shared",
      *objects,
      "-o",
      "kernels.so",
      "-nodefaultlibs",
      "-static-libgcc",
      "-Wl,--as-needed",
      *mvec,
      "-lm",
      "-lc",
      "-lgcc",
      "-Wl,--gc-sections",
      "-Wl,--no-allow-shlib-undefined",
      "-Wl,--version-script=exports.map",
      "-Wl,--build-id=none",
      "-Wl,-z,noexecstack",
      "-s",
    ],
    folder,
  )
  _check(isa, folder / "kernels.so")
  if linkable:
    _add_object(isa, objects, folder)
  return (folder / "kernels.so").read_bytes()


def _add_object(isa: Isa, objects: Sequence[str], folder: pathlib.Path) -> None:
  """Links `objects` to one relocatable file, without what no entry needs, and puts it into the
  section .husk.object of kernels.so, which loaders skip."""
  _run(
    [
      isa.compiler(),
      "-r",
      "-nostdlib",
      *objects,
      "-o",
      "object.o",
      "-Wl,--gc-sections",
      "-Wl,--gc-keep-exported",
      "-Wl,--force-group-allocation",
      "-Wl,-S,-x",
    ],
    folder,
  )
  _run([isa.tool("objcopy"), "--add-section", ".husk.object=object.o", "kernels.so"], folder)


def _compile(command: Sequence[str], headers: str, folder: pathlib.Path) -> None:
  """Compiles kernels.cpp to kernels.o."""
  try:
    _compile_once(command, headers, folder)
  except CompileError as error:
    if "internal compiler error" not in str(error):
      raise
    # GCC 12 and 13 end while they vectorize a conversion of one f32 to f64, which is the end of
    # some loops. Loops that matter are vectors in the text already.
    _compile_once([*command, "-fno-tree-vectorize"], headers, folder)


def _compile_once(command: Sequence[str], headers: str, folder: pathlib.Path) -> None:
  """Compiles kernels.cpp with precompiled headers, if this machine has them."""
  unit = ["-c", "kernels.cpp", "-o", "kernels.o"]
  if ready := precompiled.folder(command, headers):
    try:
      return _run([*command, f"-I{ready}", *unit], folder)
    except CompileError:
      pass  # A damaged precompiled header is no reason to fail; the kernels themselves may be.
  (folder / precompiled.NAME).write_text(headers)
  _run([*command, *unit], folder)


def _run(command: Sequence[str], folder: pathlib.Path) -> None:
  try:
    done = subprocess.run(
      command, cwd=folder, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
    )
  except FileNotFoundError as error:
    raise CompileError(
      f"{command[0]}, which compiles the host kernels, was not found", REMEDY
    ) from error
  if done.returncode:
    raise CompilerFailed(command[0], done.stderr)


def _undefined(isa: Isa, path: pathlib.Path) -> set[str]:
  return set(host_toolchain.symbols([isa.tool("nm"), "-u", "--format=posix", str(path)]))


def _check(isa: Isa, path: pathlib.Path) -> None:
  """Refuses an image that needs more than libc, libm and libmvec from the loader."""
  needed = re.findall(
    r"\(NEEDED\).*\[(.*)\]", host_toolchain.tool_output([isa.tool("readelf"), "-d", str(path)])
  )
  for name in needed:
    if name not in _LIBRARIES:
      raise CompilerFailed(
        isa.compiler(), f"error: the kernels need the library {name}, which an image may not"
      )
  nm = [isa.tool("nm"), "-D", "-u", "--format=posix", str(path)]
  for symbol in host_toolchain.symbols(nm):
    if not re.search(r"@(GLIBC_|GLIBC)", symbol) and symbol not in _OPTIONAL:
      raise CompilerFailed(
        isa.compiler(),
        f"error: the kernels need `{symbol}`, which is not in libc, libm or libmvec",
      )
