"""The headers, the compiler and the tools of binutils for the C++ kernels that Inductor writes."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import subprocess

# Text before and after Inductor's headers of C++ kernels. The headers since torch 2.14, of which
# complex_utils.h is one, throw where earlier ones call a function. Host kernels are compiled
# without exceptions, so `throw` is defined as a call of `fail` (host/prefix.h). The headers of the
# compiler, in which the word must keep its meaning, come first.
_COMPILERS_HEADERS = """
algorithm array atomic bit cassert cfloat climits cmath complex cstddef cstdint cstdlib cstring
exception functional initializer_list iomanip iosfwd iostream iterator limits map memory omp.h
optional ostream ranges sstream stdexcept string string_view tuple type_traits typeinfo
unordered_map utility variant vector
"""
HOST_PRELUDE = "\n".join(
  [
    "#if __has_include(<torch/headeronly/util/complex_utils.h>)",
    *(f"#include <{name}>" for name in _COMPILERS_HEADERS.split()),
    "#if defined(__x86_64__)",
    "#include <immintrin.h>",
    "#elif defined(__aarch64__)",
    "#include <arm_neon.h>",
    "#endif",
    "namespace husk_kernels { [[noreturn]] static void fail(int check); }",
    "#define throw husk_kernels::fail(1), (void)",  # husk_kernels::unnamed
    "#endif",
  ]
)
HOST_POSTLUDE = "#undef throw"

# The functions by which Inductor's C++ templates of products divide their work, with what they keep
# in maps. Compilers instantiate the maps anew in each unit, precompiled headers or not, which takes
# a fifth of the time of a small one. No image can have these functions: they need libstdc++.
_HOST_BLOCKING = r"^inline [^\n;]*\b_get_factors\(.*?(?=^struct amx_tilecfg\b)"

# In C++ kernels of torch 2.15, lines with this name record a division by zero in a global variable,
# which kernels of several sessions would share. These lines are left out: the division is then a
# failed check.
HOST_NOTE = "inductor_cpu_integer_div_error"


@functools.cache
def include_paths() -> list[str]:
  """The folders of the headers of Inductor's C++ kernels."""
  import torch

  return [str(pathlib.Path(torch.__file__).parent / "include")]


@functools.cache
def host_header() -> str:
  """The header of Inductor's C++ kernels, without functions that no image can have."""
  path = pathlib.Path(include_paths()[0], "torch/csrc/inductor/cpp_prefix.h")
  return re.sub(_HOST_BLOCKING, "", path.read_text(), count=1, flags=re.MULTILINE | re.DOTALL)


def compiler() -> str:
  """The C++ compiler: the environment variable CXX, else g++."""
  return os.environ.get("CXX", "g++")


def tool_output(command: list[str]) -> str:
  """The output of a tool of binutils."""
  return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols(command: list[str]) -> list[str]:
  """The first column of the output of a tool of binutils."""
  return [line.split()[0] for line in tool_output(command).splitlines() if line.split()]
