"""C++ kernels of a host target: all of them in one translation unit, linked into one shared object that needs nothing
but libc, libm and libmvec.

Each kernel has a second entry `husk_<name>(void** params)`, as schema/FORMAT.md says. What Inductor's kernels want
beyond that is in host_prefix.h (checks, reductions, memory) and made by `vector_math.py` (SLEEF's names).
"""

import dataclasses
import pathlib
import re

from . import host_image, versions
from .errors import Unsupported
from .launch import Launch

# C++ types of parameters; Inductor writes some of them in several ways.
_TYPES = {"bool": "bool", "uint8_t": "u8", "int8_t": "i8", "uint16_t": "u16", "int16_t": "i16", "uint32_t": "u32",
          "int32_t": "i32", "uint64_t": "u64", "int64_t": "i64", "float": "f32", "double": "f64", "at::Half": "f16",
          "half": "f16", "at::BFloat16": "bf16", "bfloat16": "bf16", "at::complex<float>": "c64",
          "at::complex<double>": "c128", "at::Float8_e4m3fn": "f8e4m3fn", "at::Float8_e5m2": "f8e5m2",
          "at::Float8_e4m3fnuz": "f8e4m3fnuz", "at::Float8_e5m2fnuz": "f8e5m2fnuz"}
_INTEGERS = {"bool", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"}

# Inductor decides by this number which loops it makes parallel; how many threads run them is found when they run.
_THREADS = 16


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
    if isa not in host_image.ISAS:
      raise ValueError(f"no host ISA {isa!r}: known are {', '.join(host_image.ISAS)}")
    self.isa, self.prefix = host_image.ISAS[isa], prefix
    self._kernels, self._by_source, self._names, self._texts = {}, {}, {}, []

  def options(self):
    """Inductor's options for this target."""
    return {"cpp.threads": _THREADS, "cpp.simdlen": self.isa.bits, "cpp.vec_isa_ok": True, "cpp.dynamic_threads": True}

  def compiling(self):
    """To be open while Inductor compiles. Each loop nest becomes a kernel of its own: the planner then sees what is
    live when, and equal kernels of different layers are one."""
    return versions.host_codegen(self.isa.vectors, _WORK)

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

  def call_kernel(self, name, call_args, ranges=None, extent=None):
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
    here = pathlib.Path(__file__).parent
    parts = [versions.HOST_PRELUDE, "#include <torch/csrc/inductor/cpp_prefix.h>", versions.HOST_POSTLUDE,
             (here / "host_runtime.h").read_text(), (here / "host_prefix.h").read_text()]
    for kernel in self._kernels.values():
      parts += [kernel.source, _entry(kernel)]
    texts = [*self._texts, "a check of the C++ headers", "no host memory", "an integer was divided by 0"]
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
    body = _with_threads(_without_static_helpers(body), dict(parameters))
    text = source[:head.start()] + text + self._checks(name, body)
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
    return host_image.build(self.source(), self.isa, len(self._texts) + 1)


isas = host_image.isas


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


_WORK = "// work: "      # versions.host_codegen writes how many elements the next loops go over


def _with_threads(body, parameters):
  """Each parallel region gets as many threads as its work is worth. Float sums that threads would add to memory in any
  order (`atomic_add`) are made by one."""
  sums = {parameters.get(name, "") for name in re.findall(r"\batomic_add(?:_vec<[^>]*>)?\(\s*&?(\w+)", body)}
  serial = any(_TYPES.get(kind.rstrip("*")) not in _INTEGERS for kind in sums)
  if serial:
    body = re.sub(r"\batomic_(add(?:_vec<)?)", r"husk_kernels::\1", body)
  lines, threads = [], "husk_kernels::thread_count()"
  for line in body.split("\n"):
    if line.strip().startswith(_WORK):
      threads = f"husk_kernels::threads_for({line.strip()[len(_WORK):]})"
    elif versions.HOST_NOTE in line:
      pass
    elif re.fullmatch(r"\s*#pragma omp parallel", line):
      lines.append(f"{line} num_threads({1 if serial else threads})")
    else:
      lines.append(line.replace("omp_get_max_threads()", threads))
  return "\n".join(lines)


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
