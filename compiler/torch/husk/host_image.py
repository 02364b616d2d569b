"""Host images: the instruction sets that kernels are compiled for, and from a translation unit to a shared object that
needs nothing but libc, libm and libmvec. Works for machines that this one is not: a cross compiler is all it takes."""

import dataclasses
import os
import pathlib
import platform
import re
import subprocess
import tempfile

from . import vector_math, versions
from .errors import CompileError, Unsupported


@dataclasses.dataclass(frozen=True)
class Isa:
  """`arch` is what a target's row says (husk/port_host.h), `vectors` the class of Inductor that knows the width."""

  arch: str
  machine: str
  bits: int
  vectors: str
  flags: str
  macros: tuple
  cpu: frozenset      # what /proc/cpuinfo must list

  @property
  def triple(self):
    return f"{self.machine}-linux-gnu"

  @property
  def native(self):
    return _machine() == self.machine

  def tool(self, name):
    """A program of binutils for this machine."""
    return name if self.native else f"{self.triple}-{name}"

  def compiler(self):
    """CXX or g++ where the images are for a machine like this one, else the cross compiler g++."""
    return versions.compiler() if self.native else f"{self.triple}-g++"


_ALL = (
    Isa("avx512", "x86_64", 512, "VecAVX512", "-mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma -mf16c",
        ("CPU_CAPABILITY_AVX512",), frozenset({"avx512f", "avx512dq", "avx512vl", "avx512bw", "fma", "f16c"})),
    Isa("avx2", "x86_64", 256, "VecAVX2", "-mavx2 -mfma -mf16c", ("CPU_CAPABILITY_AVX2",),
        frozenset({"avx2", "fma", "f16c"})),
    # Without SLEEF's names: the headers then call libm a lane at a time, as vector_math.py would.
    Isa("aarch64", "aarch64", 128, "VecNEON", "-march=armv8-a", ("CPU_CAPABILITY_NEON",), frozenset({"asimd"})),
)
ISAS = {isa.arch: isa for isa in _ALL}      # for each machine, the best first

# Rounding as Inductor's own builds have it: no contraction, infinities and NaNs count. An integer divided by zero is a
# failed check.
_FLAGS = ("-std=c++20 -O2 -fPIC -fvisibility=hidden -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-plt "
          "-ffast-math -fno-finite-math-only -fno-unsafe-math-optimizations -ffp-contract=off -fno-math-errno -fopenmp "
          "-fsanitize=integer-divide-by-zero -fno-sanitize-recover=integer-divide-by-zero "
          "-ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables -fno-ident -w")
_LIBRARIES = {"libc.so.6", "libm.so.6", "libmvec.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def _machine():
  return {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())


def isas_of_this_machine():
  """The ISAs of this architecture, best first, whether or not this CPU has them."""
  return [isa.arch for isa in _ALL if isa.native]


def isas():
  """Those of them that this CPU has."""
  found = re.search(r"^(?:flags|Features)\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
  flags = set(found.group(1).split()) if found else set()
  return [isa.arch for isa in _ALL if isa.native and isa.cpu <= flags]


def build(source, isa, unnamed_check):
  """Compiles a translation unit to the bytes of a shared object, and checks what it needs. `unnamed_check` is the
  number of the first check that every image has (host_runtime.h)."""
  with tempfile.TemporaryDirectory(prefix="husk-") as folder:
    folder = pathlib.Path(folder)
    (folder / "kernels.cpp").write_text(source)
    macros = [f"-D{macro}" for macro in isa.macros]
    flags = [*_FLAGS.split(), *isa.flags.split(), *macros, "-DC10_USING_CUSTOM_GENERATED_MACROS",
             "-DSTRIP_ERROR_MESSAGES", f"-DHUSK_UNNAMED_CHECK={unnamed_check}"]
    includes = [f"-I{path}" for path in versions.include_paths()]
    _run([isa.compiler(), *flags, *includes, "-c", "kernels.cpp", "-o", "kernels.o"], folder)
    objects = ["kernels.o"]
    wanted = _undefined(isa, folder / "kernels.o")
    shim = vector_math.source({symbol for symbol in wanted if symbol.startswith("Sleef_")}, isa.arch)
    if shim:
      (folder / "vector_math.cpp").write_text(shim)
      _run([isa.compiler(), *flags, "-c", "vector_math.cpp", "-o", "vector_math.o"], folder)
      objects.append("vector_math.o")
    (folder / "exports.map").write_text("{ global: husk_*; local: *; };\n")
    mvec = ["-lmvec"] if isa.machine == "x86_64" else []      # Arm has it from glibc 2.38 on
    _run([isa.compiler(), "-shared", *objects, "-o", "kernels.so", "-nodefaultlibs", "-static-libgcc",
          "-Wl,--as-needed", *mvec, "-lm", "-lc", "-lgcc", "-Wl,--gc-sections", "-Wl,--no-allow-shlib-undefined",
          "-Wl,--version-script=exports.map", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-s"], folder)
    _check(isa, folder / "kernels.so")
    return (folder / "kernels.so").read_bytes()


def _run(command, folder):
  try:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
  except FileNotFoundError as error:
    raise CompileError(f"{command[0]}, which compiles the host kernels, was not found: install it") from error
  if done.returncode:
    lines = [line for line in done.stderr.splitlines() if "error" in line or "undefined" in line] or [done.stderr]
    raise CompileError(f"{command[0]} failed on the host kernels:\n" + "\n".join(lines[:20]))


def _undefined(isa, path):
  return set(versions.tool_output([isa.tool("nm"), "-u", "--format=posix", str(path)], first_column=True))


def _check(isa, path):
  """Nothing but libc, libm and libmvec may be left to the loader."""
  needed = re.findall(r"\(NEEDED\).*\[(.*)\]", versions.tool_output([isa.tool("readelf"), "-d", str(path)]))
  for name in needed:
    if name not in _LIBRARIES:
      raise Unsupported(f"the host kernels need {name}, which an image may not")
  nm = [isa.tool("nm"), "-D", "-u", "--format=posix", str(path)]
  for symbol in versions.tool_output(nm, first_column=True):
    if not re.search(r"@(GLIBC_|GLIBC)", symbol) and symbol not in _OPTIONAL:
      raise Unsupported(f"the host kernels need {symbol}, which is not in libc, libm or libmvec")


_OPTIONAL = {"_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__gmon_start__"}     # weak, may be absent
