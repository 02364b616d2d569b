"""The C++ kernels of a host target: one translation unit, linked into one shared object that needs
only libc, libm and libmvec.

Each kernel has a second entry `husk_<name>(void** params)` according to schema/FORMAT.md. prefix.h
has what Inductor's kernels call besides (checks, reductions, memory), vectors.h what they compute
one lane at a time; `vector_math.py` defines SLEEF's functions."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from .. import dtypes, prints
from ..errors import CompileError, Unsupported
from ..hir import Backend, KernelCall, LaunchArg, ValueArg, ViewArg
from ..inductor import host_loops, host_toolchain
from . import image

# The types of parameters by their C++ names; Inductor has two names for some of them.
_TYPES = {cpp: name for name, cpp in dtypes.INDUCTOR.items()} | {"half": "f16", "bfloat16": "bf16"}
_INTEGERS = {name for name, kind in dtypes.KINDS.items() if kind not in ("float", "complex")}

# According to this number Inductor decides which loops are parallel. The number of threads that run
# a loop is decided at run time.
_THREADS = 16


@dataclasses.dataclass
class Kernel:
  """A kernel. `name` is the name of its row."""

  name: str
  source: str
  parameters: list[Parameter]
  access: list[str]  # of each parameter: read, write or both; empty for a value
  types: list[str]  # of each parameter, as a `.hir` writes it


@dataclasses.dataclass(frozen=True)
class Parameter:
  """A parameter of a C++ function."""

  name: str
  type: str


class HostKernels(Backend):
  """The kernels of one host target, for all functions of a program. The names of their rows begin
  with `prefix`."""

  # Inductor's C++ kernels assume nothing of the address of a buffer but the alignment of its dtype.
  alignment = 1

  def __init__(self, isa: str, prefix: str = "", linkable: bool = False) -> None:
    if isa not in image.ISAS:
      raise ValueError(f"no host ISA {isa!r}: known are {', '.join(image.ISAS)}")
    self.isa, self.prefix, self.linkable = image.ISAS[isa], prefix, linkable
    self._kernels: dict[str, Kernel] = {}  # by the name of the row
    self._by_source: dict[str, str] = {}  # source -> the name of the row
    self._names: dict[str, str] = {}  # Inductor's name -> the name of the row
    self._places: dict[str, Callable[[], str]] = {}  # of the first call, by the name of the row
    self._texts: list[str] = [*_TEXTS]  # of checks, by number

  def options(self) -> dict[str, Any]:
    """Inductor's options for this target."""
    return {
      "cpp.threads": _THREADS,
      "cpp.simdlen": self.isa.bits,
      "cpp.vec_isa_ok": True,
      "cpp.dynamic_threads": True,
    }

  def compiling(self) -> contextlib.AbstractContextManager[None]:
    """A context in which Inductor compiles for this target.

    Each loop nest becomes a kernel of its own, so that the planner sees the live range of each
    buffer, and equal kernels of different layers are stored once."""
    return host_loops.host_codegen(self.isa.vectors, _WORK)

  def begin_function(self) -> None:
    """Forgets the names of kernels: Inductor names the kernels of each function from the start."""
    self._names = {}

  def define_kernel(self, name: str, body: str, metadata: str | None = None) -> None:
    """Adds the kernel of a KernelDefinitionLine."""
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

  def call_kernel(
    self,
    name: str,
    call_args: Sequence[Any],
    ranges: Any = None,
    extent: Any = None,
  ) -> KernelCall:
    """The launch of a KernelCallLine."""
    if name not in self._names:
      raise Unsupported(f"kernel {name}: called but not defined as a C++ kernel")
    kernel = self._kernels[self._names[name]]
    if len(call_args) != len(kernel.types):
      raise Unsupported(
        f"kernel {name}: called with {len(call_args)} arguments, it takes {len(kernel.types)}"
      )
    arguments: list[LaunchArg] = [
      ViewArg(access, argument) if kind == "ptr" else ValueArg(argument)
      for kind, access, argument in zip(kernel.types, kernel.access, call_args)
    ]
    return KernelCall(self.prefix + kernel.name, (1, 1, 1), arguments)

  def note_call(self, kernel: str, place: Callable[[], str]) -> None:
    self._places.setdefault(kernel.removeprefix(self.prefix), place)

  def finish(self) -> None:
    """Nothing is left to do: `files` compiles."""

  def files(self) -> dict[str, bytes]:
    """The bytes of the images by file name."""
    return {f"{self.prefix}kernels.so": self._image()} if self._kernels else {}

  def rows(self, target: str, folder: str = "") -> list[str]:
    """The `image` and `kernel` rows. `target` is the name of the target's row, `folder` the folder
    of the files."""
    if not self._kernels:
      return []
    name = f"{self.prefix}kernels"
    lines = [f'image {name} {target} elf "{folder}{name}.so"']
    for kernel in self._kernels.values():
      lines.append(
        f'kernel {self.prefix}{kernel.name} {name} "husk_{kernel.name}" ({", ".join(kernel.types)})'
      )
    return lines

  def source(self) -> str:
    """The translation unit without the headers of all images."""
    parts = []
    for kernel in self._kernels.values():
      parts += [kernel.source, _entry(kernel)]
    quoted = ",\n  ".join(_c_string(text) for text in self._texts)
    parts.append(
      'extern "C" {\n'
      f"HUSK_EXPORT extern const uint32_t husk_text_count = {len(self._texts)};\n"
      f"HUSK_EXPORT extern const char* const husk_texts[] = {{\n  {quoted}\n}};\n}}\n"
    )
    return "\n".join(parts)

  def _kernel(self, name: str, source: str) -> Kernel:
    head = re.search(r'extern "C"\s+void\s+kernel\s*\(', source)
    if not head:
      raise Unsupported(f"kernel {name}: its C++ source has no function `kernel`")
    end = _closing(source, head.end() - 1)
    parameters = []
    for text in filter(None, (part.strip() for part in source[head.end() : end].split(","))):
      match = re.match(r"(.*?)\s*(?:__restrict__\s*)?(\w+)$", text, re.S)
      assert match is not None
      parameters.append(Parameter(match.group(2), match.group(1)))
    body = source[end + 1 :]
    types = [_type(name, parameter.type) for parameter in parameters]
    access = [_access(parameter, body) for parameter in parameters]
    declared = ", ".join(f"{parameter.type} {parameter.name}" for parameter in parameters)
    cpp_types = {parameter.name: parameter.type for parameter in parameters}
    body = _with_threads(_in_vectors(_without_static_helpers(body)), cpp_types)
    text = f"{source[: head.start()]}static void {name}({declared}){self._checks(body)}"
    return Kernel(name, text, parameters, access, types)

  def _checks(self, body: str) -> str:
    """Numbers the checks in the body of a kernel and replaces each by HUSK_CHECK."""
    pattern = re.compile(r"\b(?:AOTI_TORCH_CHECK|TORCH_CHECK)\s*\(")
    position = 0
    while match := pattern.search(body, position):
      end = _closing(body, match.end() - 1)
      inner = body[match.end() : end]
      condition, text = _split_check(inner)
      if text not in self._texts:
        self._texts.append(text)
      new = f"HUSK_CHECK({self._texts.index(text) + 1}, {condition})"
      body = body[: match.start()] + new + body[end + 1 :]
      position = match.start() + len(new)
    return body

  def _image(self) -> bytes:
    try:
      return image.build(_headers(), self.source(), self.isa, self.linkable)
    except image.CompilerFailed as error:
      raise self._explained(error) from error

  def _explained(self, error: image.CompilerFailed) -> CompileError:
    """The failure of the C++ compiler, with the operators of the kernel that it names."""
    prints.append(error.output)
    kernel = self._kernel_of(error.output)
    what = f"the kernel {kernel.name}" if kernel else "the kernels"
    place = self._places.get(kernel.name) if kernel else None
    return CompileError(
      f"{error.compiler} cannot compile {what} for host:{self.isa.arch}: {error.first}",
      image.REMEDY,
      place() if place else "",
    )

  def _kernel_of(self, output: str) -> Kernel | None:
    """The kernel that the output of the C++ compiler or of the linker names; None if it names
    none."""
    if len(self._kernels) == 1:
      return next(iter(self._kernels.values()))
    if match := re.search(r"\bkernels\.cpp:(\d+):\d+: (?:internal compiler |fatal )?error", output):
      last = 1  # the line of the #include
      for kernel in self._kernels.values():
        last += f"{kernel.source}\n{_entry(kernel)}\n".count("\n")
        if int(match.group(1)) <= last:
          return kernel
    for one in self._kernels.values():
      if re.search(rf"\b(?:husk_)?{one.name}\b", output):
        return one
    symbols = re.findall(r"`(\w+)['`]", output)
    used = (one for one in self._kernels.values() if any(name in one.source for name in symbols))
    return next(used, None)


isas = image.isas

# The texts of the checks that every image has. runtime.h has their numbers.
_TEXTS = ("a check of the C++ headers", "no host memory", "an integer was divided by 0")


@functools.cache
def _headers() -> str:
  """What the translation units of all images begin with."""
  here = pathlib.Path(__file__).parent
  return "\n".join(
    [
      host_toolchain.HOST_PRELUDE,
      host_toolchain.host_header(),
      host_toolchain.HOST_POSTLUDE,
      (here / "runtime.h").read_text(),
      (here / "prefix.h").read_text(),
      (here / "vectors.h").read_text(),
    ]
  )


def _source_of(name: str, body: str) -> str:
  """The C++ source in Inductor's definition of a kernel."""
  match = re.match(
    r"async_compile\.cpp_pybinding\(\[.*?\],\s*r?'''(.*)'''\s*\)\s*$", body.strip(), re.S
  )
  if not match:
    raise Unsupported(
      f"kernel {name}: only C++ kernels can go to a host target, this is {body.strip()[:60]!r}"
    )
  return (
    re.sub(
      r"^\s*#include <torch/csrc/inductor/cpp_prefix.h>\s*$", "", match.group(1), flags=re.M
    ).strip()
    + "\n"
  )


def _short(name: str) -> str:
  """A shorter name for a kernel.

  Inductor's name lists all fused operators (cpp_fused_add_arange_embedding_native_layer_norm_0),
  and the text of an error has only 240 bytes."""
  match = re.fullmatch(r"cpp_fused_+(\w+?)(_\d+)", name)
  return f"cpp_{match.group(1)[:28]}{match.group(2)}" if match else name


def _closing(text: str, opening: int) -> int:
  """The index of the parenthesis that closes the one at `opening`, without regard to strings."""
  depth = 0
  for match in re.compile(r'"(?:[^"\\]|\\.)*"|[()]').finditer(text, opening):
    depth += {"(": 1, ")": -1}.get(match.group(), 0)
    if depth == 0:
      return match.start()
  raise Unsupported("a C++ kernel whose parentheses do not match")


def _split_check(inner: str) -> tuple[str, str]:
  """The condition and the text in the arguments of a check."""
  match = re.match(r'(.*?),\s*"((?:[^"\\]|\\.)*)"\s*$', inner, re.S)
  if not match:
    return inner, "a check failed"
  text = re.sub(r"\\(.)", r"\1", match.group(2))
  return match.group(1), re.sub(r"\b(\d+)L\b", r"\1", text)


def _without_static_helpers(body: str) -> str:
  """Replaces static helper objects by local ones of husk_kernels. All threads that run a kernel
  would share a static object, and a local one costs nothing to construct."""
  body = re.sub(r"\bstatic\s+(WelfordHelper<)", r"\1", body)
  return re.sub(r"\b(WelfordHelper|CascadeSumHelper)<", r"husk_kernels::\1<", body)


# A loop over the lanes of a vector that draws a random number for each (codegen_rand).
_DRAWS = re.compile(
  r"for\(\s*\w+ offset_idx = 0; offset_idx < (\d+); offset_idx\+\+\s*\)\s*\{\s*"
  r"result\[offset_idx\] = (\w+)\((\w+), offset\[offset_idx\]([^;]*)\);\s*\}"
)


# A load or a store of as many elements as the loop takes at a time.
_LOADS = re.compile(
  r"\b(at::vec::Vec(?:torized(?:N<\w+,\d+>|<\w+>)(?=::loadu)|Mask<\w+,\d+>(?=::from)))::\w+\("
)
_STORES = re.compile(r"\b([\w.]+)\.store\(")
_COUNT = re.compile(r", static_cast<int64_t>\((\d+)\)$")


def _in_vectors(body: str) -> str:
  """Draws the random numbers of all lanes of a vector at once (vectors.h), and makes the count of a
  load or a store a constant. Inductor's headers copy most types in loops of `count` steps."""
  body = _DRAWS.sub(r"husk_kernels::\2<\1>(result, \3, offset\4);", body)
  parts, done = [], 0
  for match in re.finditer(f"{_LOADS.pattern}|{_STORES.pattern}", body):
    if match.start() < done:
      continue
    end = _closing(body, match.end() - 1)
    arguments = body[match.end() : end]
    count = _COUNT.search(arguments)
    if count is None:
      continue
    kind, value = match.groups()
    rest = arguments[: count.start()]
    if kind:
      text = f"husk_kernels::load<{kind}, {count.group(1)}>({rest})"
    else:
      text = f"husk_kernels::store<{count.group(1)}>({value}, {rest})"
    parts += [body[done : match.start()], text]
    done = end + 1
  return "".join([*parts, body[done:]])


# host_loops.host_codegen writes this and the number of elements that the following loops cover.
_WORK = "// work: "


def _with_threads(body: str, parameters: dict[str, str]) -> str:
  """Gives each parallel region a number of threads according to its work.

  If threads would add floats to memory in any order (`atomic_add`), one thread runs the region.
  `parameters` are the C++ types of the parameters by name.
  """
  sums = {
    parameters.get(name, "")
    for name in re.findall(r"\batomic_add(?:_vec<[^>]*>)?\(\s*&?(\w+)", body)
  }
  serial = any(_TYPES.get(kind.rstrip("*")) not in _INTEGERS for kind in sums)
  if serial:
    body = re.sub(r"\batomic_(add(?:_vec<)?)", r"husk_kernels::\1", body)
  lines, threads = [], "husk_kernels::thread_count()"
  for line in body.split("\n"):
    if line.strip().startswith(_WORK):
      threads = f"husk_kernels::threads_for({line.strip()[len(_WORK) :]})"
    elif host_toolchain.HOST_NOTE in line:
      pass
    elif re.fullmatch(r"\s*#pragma omp parallel", line):
      lines.append(f"{line} num_threads({1 if serial else threads})")
    else:
      lines.append(line.replace("omp_get_max_threads()", threads))
  return "\n".join(lines)


def _type(name: str, kind: str) -> str:
  """The type of a parameter of C++ type `kind`, as a `.hir` writes it."""
  if kind.endswith("*"):
    return "ptr"
  plain = kind.removeprefix("const ").strip()
  if plain not in _TYPES:
    raise Unsupported(f"kernel {name}: a parameter of type {kind}")
  return _TYPES[plain]


def _access(parameter: Parameter, body: str) -> str:
  """The access of a kernel to a pointer: read, write or both; empty for a value.

  A pointer to const is only read. A pointer whose name appears outside of stores may be read too.
  """
  if not parameter.type.endswith("*"):
    return ""
  if parameter.type.startswith("const "):
    return "read"
  name = re.escape(parameter.name)
  if parameter.name.startswith("in_out_ptr"):
    return "both"
  stores = len(re.findall(rf"\b{name}\[[^;]*\] = ", body)) + len(
    re.findall(rf"\.store\({name} \+", body)
  )
  return "write" if stores == len(re.findall(rf"\b{name}\b", body)) else "both"


def _entry(kernel: Kernel) -> str:
  """The entry of a kernel that the port calls (schema/FORMAT.md)."""
  arguments = ", ".join(
    f"*({parameter.type}*)params[{index}]" for index, parameter in enumerate(kernel.parameters)
  )
  head = f'extern "C" HUSK_EXPORT int32_t husk_{kernel.name}(void** params)'
  return f"{head} {{\n  HUSK_ENTRY({kernel.name}({arguments}));\n}}\n"


def _c_string(text: str) -> str:
  return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
