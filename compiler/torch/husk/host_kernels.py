"""C++ kernels of a host target: all of them in one translation unit, linked into one shared object that needs nothing
but libc, libm and libmvec.

Each kernel has a second entry `husk_<name>(void** params)`, as schema/FORMAT.md says. What Inductor's kernels want
beyond that is in host_prefix.h (checks, reductions, memory) and made by `vector_math.py` (SLEEF's names).
"""

import dataclasses
import pathlib
import platform
import re
import subprocess

from . import vector_math, versions
from .errors import CompileError, Unsupported
from .launch import Launch

_TYPES = {"bool": "bool", "uint8_t": "u8", "int8_t": "i8", "uint16_t": "u16", "int16_t": "i16", "uint32_t": "u32",
          "int32_t": "i32", "uint64_t": "u64", "int64_t": "i64", "float": "f32", "double": "f64"}

_ISAS = {"avx512": (512, "-mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma -mf16c", "CPU_CAPABILITY_AVX512"),
         "avx2": (256, "-mavx2 -mfma -mf16c", "CPU_CAPABILITY_AVX2")}

# Rounding as Inductor's own builds have it: no contraction, infinities and NaNs count.
_FLAGS = ("-std=c++20 -O2 -fPIC -fvisibility=hidden -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-plt "
          "-ffast-math -fno-finite-math-only -fno-unsafe-math-optimizations -ffp-contract=off -fno-math-errno "
          "-ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables -fno-ident -w")
_LIBRARIES = {"libc.so.6", "libm.so.6", "libmvec.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def isas():
  """The ISAs that this machine has, best first."""
  if platform.machine() not in ("x86_64", "AMD64"):
    return []
  flags = set(pathlib.Path("/proc/cpuinfo").read_text().split("flags", 1)[-1].split("\n", 1)[0].split())
  has = {"avx512": {"avx512f", "avx512dq", "avx512vl", "avx512bw", "fma"}, "avx2": {"avx2", "fma"}}
  return [isa for isa in _ISAS if has[isa] <= flags]


@dataclasses.dataclass
class Kernel:
  """A kernel by the name of its row; `parameters` are (C++ name, C++ type)."""

  name: str
  source: str
  parameters: list
  access: list
  types: list


class HostKernels:
  """The kernels of one host target, for all functions of a program. `prefix` begins the names of its rows."""

  def __init__(self, isa, prefix=""):
    if isa not in _ISAS:
      raise ValueError(f"no host ISA {isa!r}: known are {', '.join(_ISAS)}")
    self.isa, self.prefix = isa, prefix
    self._kernels, self._by_source, self._names, self._texts = {}, {}, {}, []

  def options(self):
    """Inductor's options for this target."""
    return {"cpp.threads": 1, "cpp.simdlen": _ISAS[self.isa][0], "cpp.vec_isa_ok": True,
            "cpp.dynamic_threads": False}

  def compiling(self):
    """To be open while Inductor compiles. Each loop nest becomes a kernel of its own: the planner then sees what is
    live when, and equal kernels of different layers are one."""
    return versions.separate_host_kernels()

  def begin_function(self):
    """Names of kernels are Inductor's, and begin anew in every function."""
    self._names = {}

  def define_kernel(self, name, body, metadata=None):
    """Takes in a KernelDefinitionLine."""
    source = _source_of(name, body)
    if source not in self._by_source:
      base, n = _short(name), 1
      row = base
      while row in self._kernels:
        n += 1
        row = f"{base}_{n}"
      self._kernels[row] = self._kernel(row, source)
      self._by_source[source] = row
    self._names[name] = self._by_source[source]

  def call_kernel(self, name, call_args, ranges=None):
    """The launch of a KernelCallLine."""
    if name not in self._names:
      raise Unsupported(f"kernel {name}: called but not defined as a C++ kernel")
    kernel = self._kernels[self._names[name]]
    if len(call_args) != len(kernel.types):
      raise Unsupported(f"kernel {name}: called with {len(call_args)} arguments, it takes {len(kernel.types)}")
    arguments = [("view", access, given) if kind == "ptr" else ("value", given)
                 for kind, access, given in zip(kernel.types, kernel.access, call_args)]
    return Launch(self.prefix + kernel.name, (1, 1, 1), arguments)

  def finish(self):
    pass

  def files(self):
    """File name -> bytes of the images."""
    return {f"{self.prefix}kernels.so": self._image()} if self._kernels else {}

  def rows(self, target, folder=""):
    """The `image` and `kernel` rows; `target` is the name of the target's row, `folder` where the files will lie."""
    if not self._kernels:
      return []
    image = f"{self.prefix}kernels"
    lines = [f'image {image} {target} elf "{folder}{image}.so"']
    for kernel in self._kernels.values():
      lines.append(f'kernel {self.prefix}{kernel.name} {image} "husk_{kernel.name}" ({", ".join(kernel.types)})')
    return lines

  def source(self):
    """The translation unit."""
    prefix = (pathlib.Path(__file__).parent / "host_prefix.h").read_text()
    parts = ["#include <torch/csrc/inductor/cpp_prefix.h>", prefix]
    for kernel in self._kernels.values():
      parts += [kernel.source, _entry(kernel)]
    texts = [*self._texts, "a check of the C++ headers", "no host memory"]     # the last two: host_prefix.h
    quoted = ",\n  ".join(_c_string(text) for text in texts)
    parts.append('extern "C" {\n'
                 f"HUSK_EXPORT extern const uint32_t husk_text_count = {len(texts)};\n"
                 f"HUSK_EXPORT extern const char* const husk_texts[] = {{\n  {quoted}\n}};\n}}\n")
    return "\n".join(parts)

  def _kernel(self, name, source):
    head = re.search(r'extern "C"\s+void\s+kernel\s*\(', source)
    if not head:
      raise Unsupported(f"kernel {name}: its C++ source has no function `kernel`")
    end = _closing(source, head.end() - 1)
    parameters = []
    for text in filter(None, (part.strip() for part in source[head.end():end].split(","))):
      kind, parameter = re.match(r"(.*?)\s*(?:__restrict__\s*)?(\w+)$", text, re.S).groups()
      parameters.append((parameter, kind))
    body = source[end + 1:]
    types, access = [], []
    for parameter, kind in parameters:
      types.append(_type(name, kind))
      access.append(_access(parameter, kind, body))
    text = f"static void {name}({', '.join(f'{kind} {parameter}' for parameter, kind in parameters)})"
    text = source[:head.start()] + text + self._checks(name, _without_static_helpers(body))
    return Kernel(name, text, parameters, access, types)

  def _checks(self, name, body):
    """Numbers the checks of a body and turns them into HUSK_CHECK."""
    pattern = re.compile(r"\b(?:AOTI_TORCH_CHECK|TORCH_CHECK)\s*\(")
    position = 0
    while found := pattern.search(body, position):
      end = _closing(body, found.end() - 1)
      inner = body[found.end():end]
      condition, text = _split_check(inner)
      if text not in self._texts:
        self._texts.append(text)
      new = f"HUSK_CHECK({self._texts.index(text) + 1}, {condition})"
      body = body[:found.start()] + new + body[end + 1:]
      position = found.start() + len(new)
    return body

  def _image(self):
    return build(self.source(), self.isa, len(self._texts) + 1)


def build(source, isa, unnamed_check):
  """Compiles a translation unit to the bytes of a shared object, and checks what it needs."""
  import tempfile
  _, arch, macro = _ISAS[isa]
  cxx = versions.compiler()
  with tempfile.TemporaryDirectory(prefix="husk-") as folder:
    folder = pathlib.Path(folder)
    (folder / "kernels.cpp").write_text(source)
    includes = [f"-I{path}" for path in versions.include_paths()]
    flags = [*_FLAGS.split(), *arch.split(), f"-D{macro}", "-DC10_USING_CUSTOM_GENERATED_MACROS",
             "-DSTRIP_ERROR_MESSAGES", f"-DHUSK_UNNAMED_CHECK={unnamed_check}"]
    _run([cxx, *flags, *includes, "-c", "kernels.cpp", "-o", "kernels.o"], folder)
    objects = ["kernels.o"]
    wanted = _undefined(folder / "kernels.o")
    shim = vector_math.source({symbol for symbol in wanted if symbol.startswith("Sleef_")}, isa)
    if shim:
      (folder / "vector_math.cpp").write_text(shim)
      _run([cxx, *flags, "-c", "vector_math.cpp", "-o", "vector_math.o"], folder)
      objects.append("vector_math.o")
    (folder / "exports.map").write_text("{ global: husk_*; local: *; };\n")
    _run([cxx, "-shared", *objects, "-o", "kernels.so", "-nodefaultlibs", "-static-libgcc", "-Wl,--as-needed",
          "-lmvec", "-lm", "-lc", "-lgcc", "-Wl,--gc-sections", "-Wl,--no-allow-shlib-undefined",
          "-Wl,--version-script=exports.map", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-s"], folder)
    _check(folder / "kernels.so")
    return (folder / "kernels.so").read_bytes()


def _run(command, folder):
  done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
  if done.returncode:
    lines = [line for line in done.stderr.splitlines() if "error" in line or "undefined" in line] or [done.stderr]
    raise CompileError(f"{command[0]} failed on the host kernels:\n" + "\n".join(lines[:20]))


def _undefined(path):
  return set(versions.tool_output(["nm", "-u", "--format=posix", str(path)], first_column=True))


def _check(path):
  """Nothing but libc, libm and libmvec may be left to the loader."""
  needed = re.findall(r"\(NEEDED\).*\[(.*)\]", versions.tool_output(["readelf", "-d", str(path)]))
  for name in needed:
    if name not in _LIBRARIES:
      raise Unsupported(f"the host kernels need {name}, which an image may not")
  for symbol in versions.tool_output(["nm", "-D", "-u", "--format=posix", str(path)], first_column=True):
    if not re.search(r"@(GLIBC_|GLIBC)", symbol) and symbol not in _OPTIONAL:
      raise Unsupported(f"the host kernels need {symbol}, which is not in libc, libm or libmvec")


_OPTIONAL = {"_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__gmon_start__"}     # weak, may be absent


# Source


def _source_of(name, body):
  found = re.match(r"async_compile\.cpp_pybinding\(\[.*?\],\s*r?'''(.*)'''\s*\)\s*$", body.strip(), re.S)
  if not found:
    raise Unsupported(f"kernel {name}: only C++ kernels can go to a host target, this is {body.strip()[:60]!r}")
  return re.sub(r"^\s*#include <torch/csrc/inductor/cpp_prefix.h>\s*$", "", found.group(1), flags=re.M).strip() + "\n"


def _short(name):
  """cpp_fused_add_arange_embedding_native_layer_norm_0 names all operators that went in; an error message has 240
  bytes."""
  found = re.fullmatch(r"cpp_fused_+(\w+?)(_\d+)", name)
  return f"cpp_{found.group(1)[:28]}{found.group(2)}" if found else name


def _closing(text, opening):
  """The index of the parenthesis that closes the one at `opening`; strings are passed over."""
  depth = 0
  for found in re.compile(r'"(?:[^"\\]|\\.)*"|[()]').finditer(text, opening):
    depth += {"(": 1, ")": -1}.get(found.group(), 0)
    if depth == 0:
      return found.start()
  raise Unsupported("a C++ kernel whose parentheses do not match")


def _split_check(inner):
  """Condition and text of a check's arguments."""
  found = re.match(r'(.*?),\s*"((?:[^"\\]|\\.)*)"\s*$', inner, re.S)
  if not found:
    return inner, "a check failed"
  return found.group(1), re.sub(r"\b(\d+)L\b", r"\1", re.sub(r"\\(.)", r"\1", found.group(2)))


def _without_static_helpers(body):
  """A function-local static would be shared by all threads that run the kernel; the helpers here cost nothing to
  make."""
  body = re.sub(r"\bstatic\s+(WelfordHelper<)", r"\1", body)
  return re.sub(r"\b(WelfordHelper|CascadeSumHelper)<", r"husk_kernels::\1<", body)


def _type(name, kind):
  if kind.endswith("*"):
    return "ptr"
  plain = kind.removeprefix("const ").strip()
  if plain not in _TYPES:
    raise Unsupported(f"kernel {name}: a parameter of type {kind}")
  return _TYPES[plain]


def _access(parameter, kind, body):
  """What a kernel does to a pointer. A pointer to const is only read; of another, a name of its own besides stores
  means that it may be read too."""
  if not kind.endswith("*"):
    return None
  if kind.startswith("const "):
    return "read"
  name = re.escape(parameter)
  if parameter.startswith("in_out_ptr"):
    return "both"
  stores = len(re.findall(rf"\b{name}\[[^;]*\] = ", body)) + len(re.findall(rf"\.store\({name} \+", body))
  return "write" if stores == len(re.findall(rf"\b{name}\b", body)) else "both"


def _entry(kernel):
  arguments = ", ".join(f"*({kind}*)params[{index}]"
                        for index, (_, kind) in enumerate(kernel.parameters))
  head = f'extern "C" HUSK_EXPORT int32_t husk_{kernel.name}(void** params)'
  return f"{head} {{\n  HUSK_ENTRY({kernel.name}({arguments}));\n}}\n"


def _c_string(text):
  return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
