"""The host backend alone: C++ kernels to a shared object."""

import ctypes
import math
import subprocess

import hir_interpreter
import husk
import numpy
import pytest
import torch
from husk.hir import ValueArg, ViewArg
from husk.host import image as host_image
from husk.host import images as host_images
from husk.host import kernels as host_kernels
from husk.host import vector_math
from husk.inductor import host_toolchain

ISAS = host_image.isas()
pytestmark = pytest.mark.skipif(not ISAS, reason="this machine has neither AVX2 nor AVX-512")


def body(types, signature, code):
  quoted = ", ".join(f"'{kind}'" for kind in types)
  return (
    f"async_compile.cpp_pybinding([{quoted}], r'''\n#include <torch/csrc/inductor/cpp_prefix.h>\n"
    f"extern \"C\"  void  kernel({signature})\n{{\n{code}\n}}\n''')\n"
  )


PLAIN = body(
  ["const float*", "float*", "const int64_t"],
  "const float* in_ptr0, float* out_ptr0, const int64_t ks0",
  "for (int64_t x0 = 0; x0 < ks0; ++x0) { auto tmp0 = in_ptr0[x0]; out_ptr0[x0] = tmp0 * 2; }",
)


def loaded(kernels, folder):
  (image,) = kernels.files().values()
  path = folder / "image.so"
  path.write_bytes(image)
  return ctypes.CDLL(str(path))


def call(image, symbol, *arguments):
  cells = [
    ctypes.c_void_p(a.ctypes.data) if isinstance(a, numpy.ndarray) else ctypes.c_int64(a)
    for a in arguments
  ]
  return getattr(image, symbol)(
    (ctypes.c_void_p * len(cells))(*(ctypes.addressof(cell) for cell in cells))
  )


def image_of(isa, kernel=PLAIN):
  kernels = host_kernels.HostKernels(isa)
  kernels.define_kernel("cpp_fused_a_0", kernel)
  (image,) = kernels.files().values()
  return image


def test_precompiled_headers_change_no_byte(tmp_path, monkeypatch):
  """The second image makes the precompiled headers, and the third uses them. If they are damaged
  or cannot be kept, the compiler reads the headers themselves."""
  monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
  monkeypatch.setattr(host_images, "read", lambda kept: None)  # each image is compiled
  images = [image_of(ISAS[0])]
  assert not list(tmp_path.rglob("*.gch"))
  images.append(image_of(ISAS[0]))
  (headers,) = tmp_path.rglob("*.gch")
  (headers.parent / "husk_headers.h").write_text("#error The precompiled headers are not used.\n")
  images.append(image_of(ISAS[0]))
  headers.write_bytes(headers.read_bytes()[:100_000])
  images.append(image_of(ISAS[0]))
  (tmp_path / "file").write_text("")
  monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file"))
  images.append(image_of(ISAS[0]))
  assert len(set(images)) == 1


BLOCKING = body(
  ["int64_t*"],
  "int64_t* out_ptr0",
  "mm_get_thread_blocking(1, 1, 4, 4, 4, 1, 1, 1, out_ptr0[0], out_ptr0[1], out_ptr0[2]);",
)


def test_functions_that_the_headers_leave_out(tmp_path, monkeypatch):
  """Without them an image has the same bytes, and no image can have them."""
  monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
  monkeypatch.setattr(host_images, "read", lambda kept: None)  # each image is compiled
  headers, images = host_kernels._headers(), [image_of(ISAS[0])]
  whole = headers.replace(
    host_toolchain.host_header(), "#include <torch/csrc/inductor/cpp_prefix.h>"
  )
  assert len(headers) > len(whole) and "mm_get_thread_blocking" not in headers
  monkeypatch.setattr(host_kernels, "_headers", lambda: whole)
  images.append(image_of(ISAS[0]))
  assert images[0] == images[1]
  # The second image of a folder would make the precompiled headers, which takes longer.
  monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "other"))
  with pytest.raises(husk.CompileError, match="which is not in libc, libm or libmvec"):
    image_of(ISAS[0], BLOCKING)


def test_an_image_is_compiled_once(tmp_path, monkeypatch):
  """A damaged image in the cache is compiled again, and without a cache each image is."""
  compiled = []

  def build(headers, source, *options):
    compiled.append(source)
    return f"image of {source}".encode()

  monkeypatch.setattr(host_image, "_build", build)
  monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
  image = image_of(ISAS[0])
  assert image_of(ISAS[0]) == image and len(compiled) == 1
  (kept,) = (tmp_path / "husk_images").iterdir()
  data = kept.read_bytes()
  for damaged in (data[:-1], data[:-1] + bytes([data[-1] ^ 1]), b""):
    kept.write_bytes(damaged)
    assert image_of(ISAS[0]) == image and kept.read_bytes() == data
  assert len(compiled) == 4
  assert image_of(ISAS[0], PLAIN.replace("* 2", "* 3")) != image
  host_image.build("", compiled[0], host_image.ISAS[ISAS[0]])  # other headers
  host_image.build("", compiled[0], host_image.ISAS[ISAS[0]], linkable=True)
  assert len(compiled) == 7 and len(list((tmp_path / "husk_images").iterdir())) == 4
  (tmp_path / "file").write_text("")
  monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file"))
  assert image_of(ISAS[0]) == image and image_of(ISAS[0]) == image and len(compiled) == 9


def texts(image):
  count = ctypes.c_uint32.in_dll(image, "husk_text_count").value
  return [text.decode() for text in (ctypes.c_char_p * count).in_dll(image, "husk_texts")]


@pytest.mark.parametrize("isa", ISAS)
def test_rows_calls_and_entry(isa, tmp_path):
  kernels = host_kernels.HostKernels(isa, prefix="p_")
  kernels.define_kernel("cpp_double", PLAIN)
  launch = kernels.call_kernel("cpp_double", ["buf0", "buf1", 5])
  assert launch.kernel == "p_cpp_double" and launch.grid == (1, 1, 1)
  assert launch.arguments == [ViewArg("read", "buf0"), ViewArg("write", "buf1"), ValueArg(5)]
  assert kernels.rows("cpu", "k/") == [
    'image p_kernels cpu elf "k/p_kernels.so"',
    'kernel p_cpp_double p_kernels "husk_cpp_double" (ptr, ptr, i64)',
  ]
  x, y = numpy.arange(5, dtype=numpy.float32), numpy.zeros(5, dtype=numpy.float32)
  assert call(loaded(kernels, tmp_path), "husk_cpp_double", x, y, 5) == 0
  assert (y == 2 * x).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ("uint8", "int8"))
def test_bytes_are_transposed(dtype, isa, tmp_path):
  """Shapes that have functions of their own and others. Bytes beside the result stay."""
  kernels = host_kernels.HostKernels(isa)
  shapes = ((16, 16, 19), (16, 16, 16), (8, 8, 11), (3, 16, 3), (3, 8, 3), (3, 16, 5), (5, 16, 5))
  for at, (rows, columns, pitch) in enumerate(shapes):
    code = f"transpose_mxn<{dtype}_t,{rows},{columns},false>(in_ptr0, 21, out_ptr0, {pitch});"
    signature = f"const {dtype}_t* in_ptr0, {dtype}_t* out_ptr0"
    kernels.define_kernel(
      f"cpp_transpose_{at}", body([f"const {dtype}_t*", f"{dtype}_t*"], signature, code)
    )
  image = loaded(kernels, tmp_path)
  x = numpy.random.default_rng(2).integers(0, 256, (16, 21), dtype=numpy.uint8)
  for at, (rows, columns, pitch) in enumerate(shapes):
    y = numpy.full(columns * pitch + 8, 77, dtype=numpy.uint8)
    right = y.copy()
    numpy.lib.stride_tricks.as_strided(right, (columns, rows), (pitch, 1))[:] = x[:rows, :columns].T
    assert call(image, f"husk_cpp_transpose_{at}", x, y) == 0
    assert (y == right).all(), (rows, columns, pitch)


def test_equal_kernels_are_one():
  kernels = host_kernels.HostKernels(ISAS[0])
  kernels.define_kernel("cpp_a", PLAIN)
  kernels.define_kernel("cpp_b", PLAIN)
  kernels.begin_function()
  kernels.define_kernel("cpp_c", PLAIN)
  assert (
    kernels.call_kernel("cpp_c", ["a", "b", 1]).kernel == "cpp_a" and len(kernels.rows("cpu")) == 2
  )
  with pytest.raises(husk.Unsupported, match="cpp_b"):  # the name of another function
    kernels.call_kernel("cpp_b", ["a", "b", 1])


def test_failed_check_returns_and_frees_memory(tmp_path):
  kernels = host_kernels.HostKernels(ISAS[0])
  kernels.define_kernel(
    "cpp_check",
    body(
      ["const int64_t*", "float*"],
      "const int64_t* in_ptr0, float* out_ptr0",
      "auto local = std::make_unique<float[]>(1 << 20); local[in_ptr0[0] & 1023] = 1;\n"
      "auto tmp0 = in_ptr0[0];\n"
      'AOTI_TORCH_CHECK((0 <= tmp0) & (tmp0 < 10L), "index out of bounds: 0 <= tmp0 < 10L");\n'
      'auto tmp1 = in_ptr0[1];\nTORCH_CHECK(tmp1 != 7, "seven, \\"of all\\"");\n'
      "out_ptr0[0] = local[tmp0];",
    ),
  )
  image = loaded(kernels, tmp_path)
  out = numpy.zeros(1, dtype=numpy.float32)
  assert call(image, "husk_cpp_check", numpy.array([3, 0]), out) == 0 and out[0] == 1
  failed = call(image, "husk_cpp_check", numpy.array([10, 0]), out)
  assert texts(image)[failed - 1] == "index out of bounds: 0 <= tmp0 < 10"
  failed = call(image, "husk_cpp_check", numpy.array([3, 7]), out)
  assert texts(image)[failed - 1] == 'seven, "of all"'
  resident = _resident()
  for _ in range(2000):  # 8 GB if each run leaked its 4 MB
    assert call(image, "husk_cpp_check", numpy.array([10, 0]), out) != 0
  assert _resident() < resident + (64 << 20)


def _resident():
  with open("/proc/self/statm") as file:
    return int(file.read().split()[1]) * 4096


def test_checks_in_several_threads(tmp_path):
  """Each thread has its own target for the jump of a failed check."""
  import threading

  kernels = host_kernels.HostKernels(ISAS[0])
  kernels.define_kernel(
    "cpp_check",
    body(
      ["const int64_t*", "float*"],
      "const int64_t* in_ptr0, float* out_ptr0",
      'auto tmp0 = in_ptr0[0];\nAOTI_TORCH_CHECK(tmp0 < 10L, "no");\nout_ptr0[0] = tmp0;',
    ),
  )
  image = loaded(kernels, tmp_path)
  wrong = []

  def work(value):
    out, inputs = numpy.zeros(1, dtype=numpy.float32), numpy.array([value])
    for _ in range(3000):
      if (call(image, "husk_cpp_check", inputs, out) != 0) != (value >= 10):
        wrong.append(value)

  threads = [threading.Thread(target=work, args=(value,)) for value in (3, 12, 5, 77)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not wrong


@pytest.mark.parametrize(
  "code, access",
  [
    ("out_ptr0[static_cast<int64_t>(x)] = 1;", "write"),
    ("tmp0.store(out_ptr0 + static_cast<int64_t>(x));", "write"),
    ("out_ptr0[x] = 1; auto tmp1 = out_ptr0[x];", "both"),
    ("out_ptr0[x] += 1;", "both"),
    ("atomic_add(&out_ptr0[x], 1);", "both"),
    ("auto tmp0 = Vectorized<float>::loadu(out_ptr0 + x); tmp0.store(out_ptr0 + x);", "both"),
    ("if (out_ptr0[x] == 1) {}", "both"),
  ],
)
def test_access_of_an_output(code, access):
  assert host_kernels._access(host_kernels.Parameter("out_ptr0", "float*"), code) == access


def test_access_by_type():
  assert host_kernels._access(host_kernels.Parameter("in_ptr0", "const float*"), "") == "read"
  in_out = host_kernels.Parameter("in_out_ptr0", "float*")
  assert host_kernels._access(in_out, "tmp.store(in_out_ptr0 + 1);") == "both"


def test_foreign_symbols_are_refused_by_name():
  kernels = host_kernels.HostKernels(ISAS[0])
  kernels.define_kernel(
    "cpp_omp", body(["float*"], "float* out_ptr0", "out_ptr0[0] = omp_get_wtime();")
  )
  with pytest.raises((husk.Unsupported, husk.CompileError), match="omp_get_wtime"):
    kernels.files()


def test_other_kernels_are_refused():
  with pytest.raises(husk.Unsupported, match="only C\\+\\+ kernels"):
    host_kernels.HostKernels(ISAS[0]).define_kernel(
      "triton_x", "async_compile.triton('triton_x', '''pass''')"
    )


def test_compile_error_has_the_message_of_the_compiler():
  kernels = host_kernels.HostKernels(ISAS[0])
  kernels.define_kernel(
    "cpp_broken", body(["float*"], "float* out_ptr0", "out_ptr0[0] = nonsense;")
  )
  with pytest.raises(husk.CompileError, match="nonsense"):
    kernels.files()


# By kind of dtype: the operations that eager PyTorch has, Inductor compiles and a .hir can hold.
OPERATIONS = {
  "any": {
    "cast": lambda x, y: (x.to(torch.float32), x.to(torch.float64)),
    "eq": lambda x, y: x == y,
    "back": lambda x, y: (x.float() * 1).to(x.dtype),
    "transpose": lambda x, y: x.t().contiguous(),
    "cat": lambda x, y: torch.cat([x, y]),
    "index": lambda x, y: x[torch.tensor([1, 0, 2])],
    "full": lambda x, y: torch.full((3, 5), 2, dtype=x.dtype),
  },
  "number": {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "product": lambda x, y: x * 3,
    "quotient": lambda x, y: x / y,
    "floor": lambda x, y: x // y,
    "mod": lambda x, y: x % y,
    "abs": lambda x, y: (-x).abs(),
    "lt": lambda x, y: x < y,
    "maximum": torch.maximum,
    "where": lambda x, y: torch.where(x == y, x, y),
    "sum": lambda x, y: x.sum(),
    "columns": lambda x, y: x.sum(0),
    "amax": lambda x, y: x.amax(1),
    "argmax": lambda x, y: x.argmax(),
    "prod": lambda x, y: x[:2, :2].prod(),
    "clamp": lambda x, y: x.clamp(1, 3),
    "square": lambda x, y: x**2,
    "put": lambda x, y: torch.zeros_like(x).index_put(
      (torch.tensor([1, 0, 1]),), x[:3], accumulate=True
    ),
    "arange": lambda x, y: torch.arange(7).to(x.dtype),
    "exp": lambda x, y: (x / 4).exp(),
  },
  "bits": {"and": lambda x, y: (x & y) | 4, "shift": lambda x, y: x << 1},
  "wide": {"sum": lambda x, y: x.sum(), "product": lambda x, y: x * 3, "and": lambda x, y: x & y},
  "truth": {
    "and": lambda x, y: (x & y) | ~x,
    "where": lambda x, y: torch.where(x, y, x),
    "sum": lambda x, y: x.sum(0),
  },
  "real": {
    "softmax": lambda x, y: x.softmax(-1),
    "var": lambda x, y: x.var(1),
    "tanh": lambda x, y: x.tanh(),
  },
  "eight": {
    "sum": lambda x, y: (x.float() + y.float()).to(x.dtype),
    "half": lambda x, y: (x.half(), x.bfloat16()),
    "put": lambda x, y: torch.zeros_like(x).index_put(
      (torch.tensor([1, 0, 1]),), x[:3], accumulate=True
    ),
  },
}
DTYPES = {
  "integers": ("uint8 int8 int16 int32 int64", ("any", "number", "bits")),
  "wide and truth": ("uint16 uint32 uint64", ("any", "wide")),
  "truth": ("bool", ("any", "truth")),
  "reals": ("float16 bfloat16 float32 float64", ("any", "number", "real")),
  "eight bits": ("float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz", ("any", "eight")),
}


class OfDtypes(torch.nn.Module):
  """Every operation on every pair of inputs."""

  def __init__(self, operations):
    super().__init__()
    self.operations = operations

  def forward(self, pairs):
    return {
      f"{name} {dtype}": operation(*pair)
      for dtype, pair in pairs.items()
      for name, operation in self.operations.items()
    }


def leaves(value):
  return torch.utils._pytree.tree_leaves(value)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", DTYPES)
def test_dtypes(kind, isa, tmp_path):
  names, groups = DTYPES[kind]
  generator = torch.Generator().manual_seed(3)
  pairs = {
    name: tuple(
      (torch.rand(5, 37, generator=generator) * 9 + least).to(getattr(torch, name))
      for least in (0, 1)
    )
    for name in names.split()
  }
  model = OfDtypes(
    {name: operation for group in groups for name, operation in OPERATIONS[group].items()}
  )
  program = hir_interpreter.Program(husk.write(model, (pairs,), tmp_path, targets=(f"host:{isa}",)))
  inputs = {
    value["name"]: one.clone() for value, one in zip(program.inputs, leaves(pairs), strict=True)
  }
  results = program.run(f"host_{isa}", **inputs)
  for (name, result), expected in zip(results.items(), leaves(model(pairs)), strict=True):
    assert result.dtype == expected.dtype, name
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(result.dtype, 1e-5)
    torch.testing.assert_close(
      result.double(),
      expected.double(),
      rtol=tolerance,
      atol=tolerance,
      msg=lambda text, name=name: f"{name}: {text}",
    )


def test_parameters_of_every_dtype():
  kernels = host_kernels.HostKernels(ISAS[0])
  types = {
    "at::Half": "f16",
    "at::BFloat16": "bf16",
    "at::Float8_e5m2": "f8e5m2",
    "at::complex<float>": "c64",
  }
  for index, kind in enumerate(types):
    kernels.define_kernel(
      f"cpp_{index}",
      body(["x"], f"const {kind}* in_ptr0, float* out_ptr0, const {kind} ks0", "out_ptr0[0] = 1;"),
    )
  assert [row.rsplit("(", 1)[1] for row in kernels.rows("cpu")[1:]] == [
    f"ptr, ptr, {name})" for name in types.values()
  ]


FUNCTIONS = {
  "exp": (-80, 80),
  "log": (1e-30, 1e30),
  "sin": (-100, 100),
  "cos": (-100, 100),
  "tanh": (-8, 8),
  "erf": (-4, 4),
  "log1p": (-0.9, 50),
  "expm1": (-5, 20),
  "atan": (-50, 50),
  "exp2": (-100, 100),
  "erfc": (-4, 8),
  "lgamma": (0.5, 30),
  "cosh": (-20, 20),
  "sinh": (-20, 20),
  "tan": (-1.5, 1.5),
}


@pytest.mark.parametrize("isa", ISAS)
def test_vector_functions_are_close(isa, tmp_path):
  """The functions of SLEEF for floats against libm in double: within 4 units in the last place,
  according to libmvec's documentation."""
  lanes = {"avx512": 16, "avx2": 8}[isa]
  vector = {"avx512": "__m512", "avx2": "__m256"}[isa]
  symbols = {
    name: f"Sleef_{name}f{lanes}_u{'15' if name == 'erfc' else '10'}" for name in FUNCTIONS
  }
  source = (
    vector_math.source(set(symbols.values()))
    + 'extern "C" {\n'
    + "".join(
      '__attribute__((visibility("default"))) '
      f"void run_{name}(const float* x, float* y, long n) {{ "
      f"for (long i = 0; i < n; i += {lanes}) *({vector}*)(y + i) = {symbol}(*(const {vector}*)(x "
      f"+ i)); }}\n"
      for name, symbol in symbols.items()
    )
  )
  (tmp_path / "v.cpp").write_text(source + "}\n")
  subprocess.run(
    [
      "g++",
      "-O2",
      "-shared",
      "-fPIC",
      *host_image.ISAS[isa].flags.split(),
      "v.cpp",
      "-o",
      "v.so",
      "-lmvec",
      "-lm",
    ],
    cwd=tmp_path,
    check=True,
  )
  library = ctypes.CDLL(str(tmp_path / "v.so"))
  size = 4096
  memory = numpy.zeros(2 * size + 32, dtype=numpy.float32)
  first = (-memory.ctypes.data // 4) % 16
  x, y = memory[first : first + size], memory[first + size : first + 2 * size]
  for name, (low, high) in FUNCTIONS.items():
    x[:] = numpy.geomspace(low, high, size) if low > 0 else numpy.linspace(low, high, size)
    getattr(library, f"run_{name}")(
      ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_long(size)
    )
    exact = numpy.array(
      [getattr(math, name)(float(value)) if name != "exp2" else 2.0 ** float(value) for value in x]
    )
    ulp = numpy.spacing(numpy.maximum(numpy.abs(exact), 1e-35).astype(numpy.float32)).astype(
      numpy.float64
    )
    assert (numpy.abs(y - exact) / ulp).max() <= 4.5, name


def test_unknown_vector_functions_are_refused():
  with pytest.raises(husk.Unsupported, match="Sleef_zetaf16_u10"):
    vector_math.source({"Sleef_zetaf16_u10"})


_DRAWN = """
  for (int64_t x0 = 0; x0 < 4096; x0 += LANES) {
    auto draws = [&](auto one) { for (int64_t i = x0; i < x0 + LANES; ++i) one(i); };
    int64_t offset[LANES];
    draws([&](int64_t i) { offset[i - x0] = 3 * i - 100; });
    { float result[LANES];
      for( int64_t offset_idx = 0; offset_idx < LANES; offset_idx++ )
      {
        result[offset_idx] = normalized_rand_cpu(ks0, offset[offset_idx]);
      }
      draws([&](int64_t i) { out_ptr0[i] = result[i - x0]; }); }
    { float result[LANES];
      for( int64_t offset_idx = 0; offset_idx < LANES; offset_idx++ )
      {
        result[offset_idx] = randn_cpu(ks0, offset[offset_idx]);
      }
      draws([&](int64_t i) { out_ptr1[i] = result[i - x0]; }); }
    { int64_t result[LANES];
      for( int64_t offset_idx = 0; offset_idx < LANES; offset_idx++ )
      {
        result[offset_idx] = randint64_cpu(ks0, offset[offset_idx], ks1, ks2);
      }
      draws([&](int64_t i) { out_ptr2[i] = result[i - x0]; }); }
  }
  for (int64_t x0 = 4096; x0 < 8192; ++x0) {
    const int64_t offset = 3 * (x0 - 4096) - 100;
    out_ptr0[x0] = normalized_rand_cpu(ks0, offset);
    out_ptr1[x0] = randn_cpu(ks0, offset);
    out_ptr2[x0] = randint64_cpu(ks0, offset, ks1, ks2);
  }
"""


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("seed", [0, 123456789012345, -5])
@pytest.mark.parametrize("bounds", [(0, 1), (-7, 1000), (-(2**62), 2**62 + 11), (5, 2**40)])
def test_random_numbers_of_vectors_are_those_of_single_offsets(tmp_path, isa, seed, bounds):
  """The first half of each array is drawn as the lanes of vectors, the other one number by number.
  Vectors have another cosine, which f32 seldom shows."""
  lanes = str(host_image.ISAS[isa].bits // 32)
  kernels = host_kernels.HostKernels(isa)
  kernels.define_kernel(
    "cpp_fused_a_0",
    body(
      ["float*", "float*", "int64_t*", "const int64_t", "const int64_t", "const int64_t"],
      "float* out_ptr0, float* out_ptr1, int64_t* out_ptr2, const int64_t ks0, const int64_t ks1, "
      "const int64_t ks2",
      _DRAWN.replace("LANES", lanes),
    ),
  )
  (kernel,) = kernels._kernels.values()
  for name in ("normalized_rand_cpu", "randn_cpu", "randint64_cpu"):
    assert f"husk_kernels::{name}<{lanes}>(result, ks0, offset" in kernel.source
  image = loaded(kernels, tmp_path)
  uniform, normal = numpy.zeros((2, 2, 4096), numpy.float32)
  integers = numpy.zeros((2, 4096), numpy.int64)
  assert call(image, "husk_cpp_a_0", uniform, normal, integers, seed, *bounds) == 0
  assert (uniform[0] == uniform[1]).all() and uniform.min() >= 0 and uniform.max() < 1
  assert (integers[0] == integers[1]).all()
  assert integers.min() >= bounds[0] and integers.max() < bounds[1]
  numpy.testing.assert_allclose(normal[0], normal[1], rtol=2**-23, atol=0)
  assert (normal[0] == normal[1]).mean() > 0.999
