"""Programs that leave computations to libraries, on a GPU against eager PyTorch: matrix products
(gemm="cublaslt"), convolutions (conv="cudnn"), linear algebra (linalg="cusolver") and Fourier
transforms (fft="cufft").

  python tests/gpu/libraries.py pack DIR [NAME...]
  python tests/gpu/libraries.py check DIR HUSK_RUN [NAME...]
  python tests/gpu/libraries.py sizes
  python tests/gpu/libraries.py find

`pack` exports the programs for an H200 and needs no GPU. `check` runs them on the GPU with shapes
of all kinds and compares the results with eager PyTorch in f64; it also prints the error of eager
PyTorch in the program's dtype. HUSK_RUN may be a command of several words. `sizes` prints how much
scratch memory cuFFT and cuSOLVER want on the GPU of this machine. `find` prints the folders of
the libraries: PyTorch's, or CUDA's.

The name of a program is what it computes and its dtype: `linear_f16`, `matrices_bf16`, `svd_f32`,
`fft2_f64`. NAME may also be `products`, `convolutions`, `linalg` or `fft`. The products are
programs without kernels, so they run on the fake driver too, where there is no eager PyTorch on a
GPU: `check` then compares with the CPU.
"""

import ctypes
import dataclasses
import glob
import pathlib
import sys
from collections.abc import Callable

import attention
import torch
from torch import linalg, nn
from torch.export import Dim

DTYPES = {
  "f16": torch.float16,
  "bf16": torch.bfloat16,
  "f32": torch.float32,
  "f64": torch.float64,
  "tf32": torch.float32,
}
TOLERANCES = {"f16": 4e-3, "bf16": 3e-2, "f32": 2e-5, "f64": 1e-12, "tf32": 1e-2}
# Factorizations of matrices of 200 rows lose more digits, and eager mode loses others.
LINALG_TOLERANCES = {"f32": 2e-3, "f64": 1e-10}


@dataclasses.dataclass
class Kind:
  """Programs that differ in their dtype. `inputs` are random tensors for a shape, `shapes` what is
  checked, `dims` the dynamic shapes, `options` those of the export."""

  model: Callable[[], nn.Module]
  inputs: Callable[..., list[torch.Tensor]]
  shapes: list[tuple[int, ...]]
  dims: tuple[dict[int, Dim] | None, ...]
  dtypes: tuple[str, ...]
  group: str
  options: dict[str, str]
  example: tuple[int, ...]


class Matrices(nn.Module):
  def forward(self, x, y, z):
    return (
      x @ y,
      y.T @ x.T,
      x.T @ z,
      z @ y.T,
      torch.addmm(z, x, y),
      torch.addmm(z[0], x, y),
      torch.addmm(z[0], x, y, alpha=0.5),
      torch.addmm(z, x, y, beta=-0.5, alpha=2),
      x[:, 1:33] @ y[3:35],
      (x @ y) @ z.T,
    )


class Batches(nn.Module):
  def forward(self, x, y, z):
    shared = x[:1].expand(x.shape[0], -1, -1)
    return (
      torch.bmm(x, y),
      torch.bmm(y.transpose(1, 2), x.transpose(1, 2)),
      torch.bmm(x, x.transpose(1, 2)),
      torch.baddbmm(z, x, y, beta=0.5, alpha=2),
      torch.bmm(shared, y),
      torch.bmm(x[:, :, 8:], y[:, 8:]),
    )


class Convolutions(nn.Module):
  """Convolutions of all kinds, with channels in their own order and last."""

  def __init__(self):
    super().__init__()
    self.images = nn.ModuleList(
      [
        nn.Conv2d(16, 24, 3, padding=1),
        nn.Conv2d(16, 32, (3, 5), stride=2, padding=(0, 2), dilation=(2, 1), bias=False),
        nn.Conv2d(16, 24, 3, groups=4),
        nn.Conv2d(16, 16, 5, groups=16, padding=2),
        nn.Conv2d(16, 64, 1, stride=2),
        nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1),
        nn.ConvTranspose2d(16, 8, 2, stride=2, groups=2, bias=False),
      ]
    )
    self.sequences = nn.ModuleList(
      [nn.Conv1d(16, 24, 5, padding=2, dilation=2), nn.ConvTranspose1d(16, 8, 4, stride=2)]
    )
    self.volumes = nn.ModuleList(
      [nn.Conv3d(4, 8, (1, 3, 2), padding=(0, 1, 1)), nn.ConvTranspose3d(4, 8, 2, stride=(1, 2, 1))]
    )

  def forward(self, x):
    outputs = [layer(x) for layer in self.images]
    outputs += [layer(x.to(memory_format=torch.channels_last)) for layer in self.images]
    outputs += [layer(x.flatten(2)) for layer in self.sequences]
    outputs += [layer(x.unflatten(1, (4, 4))) for layer in self.volumes]
    return tuple(torch.relu(one) for one in outputs)


def linear():
  return nn.Sequential(nn.Linear(96, 160), nn.Linear(160, 72, bias=False), nn.Linear(72, 1001))


def square_inputs(batch, rows, columns=None):
  """Well-conditioned matrices, and others."""
  columns = columns or rows
  eye = torch.eye(rows, columns)
  return [torch.randn(batch, rows, columns) / max(rows, columns) ** 0.5 + 2 * eye]


def system_inputs(batch, rows):
  return [*square_inputs(batch, rows), torch.randn(batch, rows, rows), torch.randn(batch, rows)]


class Function(nn.Module):
  """A model of a function without parameters."""

  def __init__(self, function):
    super().__init__()
    self.function = function

  def forward(self, *arguments):
    return self.function(*arguments)


# The results do not depend on the signs of vectors, which each library chooses otherwise.


def eigh(x):
  values, vectors = linalg.eigh((x + x.mT) / 2)
  return (
    values,
    (vectors * values.unsqueeze(-2)) @ vectors.mT,
    vectors.mT @ vectors,
    linalg.eigvalsh(x, UPLO="U"),
  )


def svd(x):
  u, s, vh = linalg.svd(x, full_matrices=False)
  whole_u, _, whole_vh = linalg.svd(x, full_matrices=True)
  return (
    s,
    (u * s.unsqueeze(-2)) @ vh,
    u.mT @ u,
    vh @ vh.mT,
    whole_u @ whole_u.mT,
    whole_vh.mT @ whole_vh,
    linalg.svdvals(x),
  )


def qr(x):
  q, r = linalg.qr(x)
  whole_q, whole_r = linalg.qr(x, mode="complete")
  return q @ r, r.abs(), q.mT @ q, whole_q @ whole_r, linalg.qr(x, mode="r").R.abs()


def reflectors(a, tau, x):
  return (
    linalg.householder_product(a, tau),
    torch.ormqr(a, tau, x),
    torch.ormqr(a, tau, x, transpose=True),
    torch.ormqr(a, tau, x.mT, left=False),
    torch.ormqr(a, tau, x.mT, left=False, transpose=True),
  )


def reflector_inputs(batch, rows, columns):
  a, x = torch.randn(batch, rows, columns) / rows, torch.randn(batch, rows, 3)
  return [a, torch.rand(batch, columns), x]


def geqrf(x):
  a, tau = torch.geqrf(x)
  return a.abs(), tau.abs(), linalg.householder_product(a, tau) @ a[..., : x.shape[-1], :].triu()


def solve(x, y, z):
  return linalg.solve(x, y), linalg.solve(x, y, left=False), linalg.solve(x, z)


def cholesky(x):
  positive = x @ x.mT + torch.eye(x.shape[-1], device=x.device, dtype=x.dtype)
  lower, info = linalg.cholesky_ex(positive)
  return lower, linalg.cholesky(positive, upper=True), info + 0.0


def inverse(x):
  return linalg.inv(x), linalg.inv_ex(x).info + 0.0, linalg.inv(x.mT)


def lu(x):
  factors, pivots = linalg.lu_factor(x)
  return (
    factors,
    pivots + 0.0,
    linalg.lu_solve(factors, pivots, x),
    linalg.lu_solve(factors, pivots, x, adjoint=True),
    linalg.lu_solve(factors, pivots, x, left=False),
    linalg.det(x / 2),
    *linalg.slogdet(x),
  )


def fft(dims):
  """Transforms of real and complex numbers. The factor keeps all numbers about as large."""

  def function(x):
    where = tuple(range(-dims, 0))
    half = torch.fft.rfftn(x, dim=where, norm="ortho")
    whole = torch.fft.fftn(torch.complex(x, x + 1), dim=where, norm="ortho")
    back = torch.fft.ifftn(whole * whole.abs(), dim=where, norm="ortho")
    real = torch.fft.irfftn(half * 2, s=x.shape[-dims:], dim=where, norm="ortho")
    return tuple(map(torch.view_as_real, (half, whole, back))) + (real,)

  return function


BATCH, ROWS = Dim("batch", min=1, max=64), Dim("rows", min=1, max=2048)
COLUMNS = Dim("columns", min=1, max=2048)
LENGTHS = tuple(Dim(name, min=2, max=20000) for name in ("first", "second", "third"))
PRODUCTS = ("f16", "bf16", "f32", "f64")
REALS = ("f32", "f64")


def product(model, inputs, shapes, dims, dtypes, example):
  return Kind(model, inputs, shapes, dims, dtypes, "products", {"gemm": "cublaslt"}, example)


def of_squares(function):
  shapes = [(1, 1), (3, 2), (1, 33), (16, 17), (2, 64), (1, 200)]
  dims = ({0: BATCH, 1: ROWS, 2: ROWS},)
  options = {"linalg": "cusolver"}
  return Kind(
    lambda: Function(function), square_inputs, shapes, dims, REALS, "linalg", options, (3, 5)
  )


def of_rectangles(function, shapes):
  dims = ({0: BATCH, 1: ROWS, 2: COLUMNS},)
  options = {"linalg": "cusolver"}
  return Kind(
    lambda: Function(function), square_inputs, shapes, dims, REALS, "linalg", options, shapes[0]
  )


def transforms(dims, shapes):
  return Kind(
    lambda: Function(fft(dims)),
    lambda *sizes: [torch.randn(*sizes)],
    shapes,
    ({0: BATCH, **{1 + d: LENGTHS[d] for d in range(dims)}},),
    REALS,
    "fft",
    {"fft": "cufft"},
    (3, 6, 10, 14)[: 1 + dims],
  )


KINDS = {
  "linear": product(
    linear,
    lambda *sizes: [torch.randn(*sizes, 96)],
    [(1, 1), (3, 17), (16, 128), (1, 1000)],
    ({0: BATCH, 1: ROWS},),
    PRODUCTS,
    (3, 5),
  ),
  "matrices": product(
    Matrices,
    lambda rows: [torch.randn(rows, 64) / 4, torch.randn(64, 96) / 4, torch.randn(rows, 96) / 4],
    [(1,), (7,), (128,), (1000,)],
    ({0: ROWS}, None, {0: ROWS}),
    (*PRODUCTS, "tf32"),
    (5,),
  ),
  "batches": product(
    Batches,
    lambda batch, rows: [
      torch.randn(batch, rows, 64) / 4,
      torch.randn(batch, 64, 48) / 4,
      torch.randn(batch, rows, 48),
    ],
    [(1, 1), (3, 17), (16, 128), (64, 5)],
    ({0: BATCH, 1: ROWS}, {0: BATCH}, {0: BATCH, 1: ROWS}),
    PRODUCTS,
    (3, 5),
  ),
  "convolutions": Kind(
    Convolutions,
    lambda batch, rows: [torch.randn(batch, 16, rows, rows + 3)],
    [(2, 24), (1, 9), (8, 57)],
    ({0: BATCH, 2: Dim("height", min=8, max=64), 3: Dim("width", min=8, max=70)},),
    tuple(DTYPES),
    "convolutions",
    {"conv": "cudnn"},
    (3, 20),
  ),
  "eigh": of_squares(eigh),
  "svd": of_rectangles(svd, [(3, 5, 4), (1, 2, 2), (4, 3, 7), (1, 33, 33), (2, 200, 100)]),
  "qr": of_rectangles(qr, [(3, 5, 4), (1, 2, 2), (4, 3, 7), (1, 33, 33), (2, 200, 100)]),
  "reflectors": Kind(
    lambda: Function(reflectors),
    reflector_inputs,
    [(3, 5, 4), (1, 33, 33), (2, 200, 100)],
    ({0: BATCH, 1: ROWS, 2: COLUMNS}, {0: BATCH, 1: COLUMNS}, {0: BATCH, 1: ROWS}),
    REALS,
    "linalg",
    {"linalg": "cusolver"},
    (3, 5, 4),
  ),
  "geqrf": Kind(
    lambda: Function(geqrf),
    square_inputs,
    [(2, 40, 30)],
    (None,),  # torch.export refuses this operator with sizes that vary
    REALS,
    "linalg",
    {"linalg": "cusolver"},
    (2, 40, 30),
  ),
  "solve": Kind(
    lambda: Function(solve),
    system_inputs,
    [(1, 1), (3, 2), (16, 17), (1, 200)],
    ({0: BATCH, 1: ROWS, 2: ROWS}, {0: BATCH, 1: ROWS, 2: ROWS}, {0: BATCH, 1: ROWS}),
    REALS,
    "linalg",
    {"linalg": "cusolver"},
    (3, 5),
  ),
  "cholesky": of_squares(cholesky),
  "inverse": of_squares(inverse),
  "lu": of_squares(lu),
  "fft1": transforms(1, [(1, 2), (3, 7), (16, 64), (1, 97), (2, 1000), (64, 4096), (2, 10007)]),
  "fft2": transforms(2, [(3, 2, 2), (1, 7, 97), (4, 64, 48), (1, 512, 513)]),
  "fft3": transforms(3, [(2, 2, 3, 5), (1, 16, 32, 64), (3, 7, 9, 97)]),
}
NAMES = [f"{kind}_{dtype}" for kind, one in KINDS.items() for dtype in one.dtypes]


def parts(name):
  kind, _, dtype = name.rpartition("_")
  return KINDS[kind], dtype


def chosen(names):
  """The names that are given, with those of groups."""
  if not names:
    return NAMES
  return [one for name in names for one in NAMES if name in (one, parts(one)[0].group)]


def inputs(name, shape):
  """Random tensors with a seed, on the CPU."""
  kind, dtype = parts(name)
  torch.manual_seed(5)
  return [each.to(DTYPES[dtype]) for each in kind.inputs(*shape)]


def model_of(name):
  kind, dtype = parts(name)
  torch.manual_seed(6)
  return kind.model().to(DTYPES[dtype]).eval().requires_grad_(False)


def pack(folder, names):
  import husk

  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  for name in chosen(names):
    kind, _ = parts(name)
    allow_tf32(name.endswith("_tf32"))
    args = tuple(inputs(name, kind.example))
    shapes = kind.dims if kind.group in ("products", "convolutions") else {"arguments": kind.dims}
    husk.export(
      model_of(name),
      args,
      folder / f"{name}.husk",
      dynamic_shapes=shapes,
      targets=("cuda:h200",),
      **kind.options,
    )
    print(name, flush=True)


def allow_tf32(allowed):
  torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


def results(model, arguments, dtype=None):
  if torch.cuda.is_available():
    return attention.eager(model.cuda(), arguments, dtype)
  with torch.no_grad():
    outputs = model(*(each.to(dtype or each.dtype) for each in arguments))
  return [each.double() for each in (outputs if isinstance(outputs, tuple) else (outputs,))]


def check(folder, husk_run, names):
  wrong = 0
  for name in chosen(names):
    kind, dtype = parts(name)
    tolerance = (LINALG_TOLERANCES if kind.group == "linalg" else TOLERANCES)[dtype]
    allow_tf32(dtype == "tf32")
    for shape in kind.shapes:
      arguments = inputs(name, shape)
      try:
        right = results(model_of(name).double(), arguments, torch.float64)
        theirs = results(model_of(name), arguments)
        ours, _ = attention.run(husk_run, pathlib.Path(folder) / f"{name}.husk", arguments)
        (off, worst), (eagers, _) = largest(ours, right), largest(theirs, right)
      except (RuntimeError, ValueError) as error:
        wrong += 1
        print(f"FAILED  {name} {shape}: {str(error).strip()[-300:]}", flush=True)
        continue
      bad = not off <= max(tolerance, 2 * eagers)
      wrong += bad
      which = f", result {worst}" if bad else ""
      print(
        f"{'WRONG  ' if bad else 'ok     '} {name} {shape}: {len(ours)} off by {off:.1e}, eager by "
        f"{eagers:.1e}{which}",
        flush=True,
      )
  print(f"{wrong} wrong")
  return wrong != 0


def largest(outputs, right):
  """The largest difference, and the number of its result."""
  differences = [
    attention.difference(one, other) if other.numel() else 0.0
    for one, other in zip(outputs, right, strict=True)
  ]
  # A NaN is the largest difference of all.
  worst = max(
    range(len(differences)), key=lambda i: (differences[i] != differences[i], differences[i])
  )
  return differences[worst], worst


# Scratch memory of libraries


def sizes():
  torch.zeros(1).cuda()
  for pattern, function in zip(FILES[2:], (cufft_sizes, cusolver_sizes), strict=True):
    function(ctypes.CDLL(sorted(glob.glob(f"{folder_of(pattern)}/{pattern}"))[-1]))


def cufft_sizes(library):
  """The work area of a transform divided by the bytes of its complex numbers."""
  types = {"c2c": 0x29, "r2c": 0x2A, "c2r": 0x2C, "z2z": 0x69, "d2z": 0x6A, "z2d": 0x6C}
  lengths = [2, 7, 64, 97, 127, 131, 210, 1000, 1009, 4096, 10007, 65536, 65537, 100003, 1 << 20]
  cases = [(n,) for n in lengths] + [(64, 64), (97, 131), (512, 513), (32, 64, 97), (131, 7, 64)]
  print(
    f"cuFFT: bytes of the work area / bytes of complex data\n{'':14}", *map("{:>9}".format, types)
  )
  for size in cases:
    for batch in (1, 16):
      count = batch
      for n in size:
        count *= n
      row = []
      for name, kind in types.items():
        plan, work = ctypes.c_int(-1), ctypes.c_size_t(0)
        library.cufftCreate(ctypes.byref(plan))
        library.cufftSetAutoAllocation(plan, 0)
        dims = (ctypes.c_longlong * len(size))(*size)
        zero, one = ctypes.c_longlong(0), ctypes.c_longlong(1)
        failed = library.cufftMakePlanMany64(
          plan, len(size), dims, None, one, zero, None, one, zero, kind,
          ctypes.c_longlong(batch), ctypes.byref(work),
        )  # fmt: skip
        library.cufftDestroy(plan)
        data = count * (16 if name in ("z2z", "d2z", "z2d") else 8)
        row.append(f"error {failed}" if failed else f"{work.value / data:.2f}")
      print(f"{'x'.join(map(str, size)):>9} {batch:>3} ", *map("{:>9}".format, row))


def cusolver_sizes(library):
  """The bytes of scratch memory on the device and on the host."""
  handle, params = ctypes.c_void_p(), ctypes.c_void_p()
  library.cusolverDnCreate(ctypes.byref(handle))
  library.cusolverDnCreateParams(ctypes.byref(params))
  memory = ctypes.c_void_p(torch.zeros(1 << 22).cuda().data_ptr())
  size = ctypes.c_int64
  print("cuSOLVER: bytes of scratch memory on the device and on the host")
  for kind, name in ((0, "f32"), (1, "f64")):
    for n in (1, 32, 200, 512, 2048):
      row = []
      for function, arguments in (
        ("Xsyevd", (1, 0, size(n), kind, memory, size(n), kind, memory, kind)),
        ("Xpotrf", (0, size(n), kind, memory, size(n), kind)),
        ("Xgeqrf", (size(n), size(n), kind, memory, size(n), kind, memory, kind)),
      ):
        device, host = ctypes.c_size_t(0), ctypes.c_size_t(0)
        failed = getattr(library, f"cusolverDn{function}_bufferSize")(
          handle, params, *arguments, ctypes.byref(device), ctypes.byref(host)
        )
        row.append(
          f"{function} " + (f"error {failed}" if failed else f"{device.value} {host.value}")
        )
      print(f"{name} {n:>5}: {', '.join(row)}")


FILES = ("libcublasLt.so.1[2-9]*", "libcudnn.so.9*", "libcufft.so.1?*", "libcusolver.so.1?*")


def folder_of(pattern):
  """The folder of a library: PyTorch's, or CUDA's; empty if there is none."""
  root = pathlib.Path(torch.__file__).parent.parent
  folders = [
    *root.glob("nvidia/*/lib"),
    root / "torch" / "lib",
    *map(pathlib.Path, sorted(glob.glob("/usr/local/cuda*/lib*"))),
    pathlib.Path("/usr/lib/x86_64-linux-gnu"),
  ]
  return next((str(folder) for folder in folders if any(folder.glob(pattern))), "")


def find():
  """Prints the folders of the libraries, as LD_LIBRARY_PATH takes them; fails if one is missing."""
  found = [folder_of(pattern) for pattern in FILES]
  print(":".join(dict.fromkeys(filter(None, found))))
  return "" in found


def main():
  what, *rest = sys.argv[1:]
  if what == "find":
    return find()
  if what == "sizes":
    return sizes()
  return pack(rest[0], rest[1:]) if what == "pack" else check(rest[0], rest[1], rest[2:])


if __name__ == "__main__":
  sys.exit(main())
