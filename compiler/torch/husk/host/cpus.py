"""What code of hosts is compiled for. Written by schema/cpus.py from cpus.def.

FEATURES are the names of all features in /proc/cpuinfo, in the order of their numbers. SETS has the
named sets: the machine in GNU triples, all features, and all options of compilers. TARGETS are the
sets of the targets of images by their names in files. INDUCTOR has the targets for which there are
kernels, those of one machine from the best to the worst: the width of vectors in bits, the class of
Inductor for this width, and the macro that selects it in PyTorch's headers.
"""

FEATURES: tuple[str, ...] = (
  "lm",
  "asimd",
  "avx",
  "fma",
  "f16c",
  "avx2",
  "avx_vnni",
  "avx512f",
  "avx512dq",
  "avx512bw",
  "avx512vl",
  "avx512_vnni",
  "avx512_bf16",
  "amx_tile",
  "amx_bf16",
  "amx_int8",
  "asimddp",
  "i8mm",
  "bf16",
)

SETS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
  "Baseline": (
    "x86_64",
    ("lm",),
    (),
  ),
  "Avx2": (
    "x86_64",
    (
      "lm",
      "avx",
      "avx2",
      "fma",
      "f16c",
    ),
    (
      "-mavx2",
      "-mfma",
      "-mf16c",
    ),
  ),
  "AvxVnni": (
    "x86_64",
    (
      "lm",
      "avx",
      "avx2",
      "fma",
      "f16c",
      "avx_vnni",
    ),
    (
      "-mavx2",
      "-mfma",
      "-mf16c",
      "-mavxvnni",
    ),
  ),
  "Avx512": (
    "x86_64",
    (
      "lm",
      "avx",
      "avx2",
      "fma",
      "f16c",
      "avx512f",
      "avx512bw",
      "avx512dq",
      "avx512vl",
    ),
    (
      "-mavx2",
      "-mfma",
      "-mf16c",
      "-mavx512f",
      "-mavx512bw",
      "-mavx512dq",
      "-mavx512vl",
    ),
  ),
  "Avx512Vnni": (
    "x86_64",
    (
      "lm",
      "avx",
      "avx2",
      "fma",
      "f16c",
      "avx512f",
      "avx512bw",
      "avx512dq",
      "avx512vl",
      "avx512_vnni",
    ),
    (
      "-mavx2",
      "-mfma",
      "-mf16c",
      "-mavx512f",
      "-mavx512bw",
      "-mavx512dq",
      "-mavx512vl",
      "-mavx512vnni",
    ),
  ),
  "Avx512Bf16": (
    "x86_64",
    (
      "lm",
      "avx",
      "avx2",
      "fma",
      "f16c",
      "avx512f",
      "avx512bw",
      "avx512dq",
      "avx512vl",
      "avx512_bf16",
    ),
    (
      "-mavx2",
      "-mfma",
      "-mf16c",
      "-mavx512f",
      "-mavx512bw",
      "-mavx512dq",
      "-mavx512vl",
      "-mavx512bf16",
    ),
  ),
  "Amx": (
    "x86_64",
    (
      "lm",
      "avx",
      "avx2",
      "fma",
      "f16c",
      "avx512f",
      "avx512bw",
      "avx512dq",
      "avx512vl",
      "avx512_bf16",
      "amx_tile",
      "amx_bf16",
    ),
    (
      "-mavx2",
      "-mfma",
      "-mf16c",
      "-mavx512f",
      "-mavx512bw",
      "-mavx512dq",
      "-mavx512vl",
      "-mavx512bf16",
      "-mamx-tile",
      "-mamx-bf16",
    ),
  ),
  "AmxInt8": (
    "x86_64",
    (
      "lm",
      "avx",
      "avx2",
      "fma",
      "f16c",
      "avx512f",
      "avx512bw",
      "avx512dq",
      "avx512vl",
      "avx512_bf16",
      "amx_tile",
      "amx_bf16",
      "amx_int8",
      "avx512_vnni",
    ),
    (
      "-mavx2",
      "-mfma",
      "-mf16c",
      "-mavx512f",
      "-mavx512bw",
      "-mavx512dq",
      "-mavx512vl",
      "-mavx512bf16",
      "-mamx-tile",
      "-mamx-bf16",
      "-mamx-int8",
    ),
  ),
  "ArmBaseline": (
    "aarch64",
    ("asimd",),
    ("-march=armv8-a",),
  ),
  "ArmDotprod": (
    "aarch64",
    (
      "asimd",
      "asimddp",
    ),
    (
      "-march=armv8-a",
      "-march=armv8.2-a+dotprod",
    ),
  ),
  "ArmI8mm": (
    "aarch64",
    (
      "asimd",
      "asimddp",
      "i8mm",
    ),
    (
      "-march=armv8-a",
      "-march=armv8.2-a+dotprod",
      "-march=armv8.2-a+dotprod+i8mm",
    ),
  ),
  "ArmBf16": (
    "aarch64",
    (
      "asimd",
      "bf16",
    ),
    (
      "-march=armv8-a",
      "-march=armv8.2-a+bf16",
    ),
  ),
}

TARGETS: dict[str, str] = {
  "x86-64": "Baseline",
  "avx2": "Avx2",
  "avx512": "Avx512",
  "aarch64": "ArmBaseline",
}

INDUCTOR: dict[str, tuple[int, str, str]] = {
  "avx512": (512, "VecAVX512", "CPU_CAPABILITY_AVX512"),
  "avx2": (256, "VecAVX2", "CPU_CAPABILITY_AVX2"),
  "aarch64": (128, "VecNEON", "CPU_CAPABILITY_NEON"),
}
