"""AOTInductor and Husk side by side: the same models, exported by both on this machine, run in
turns by one C++ program (aoti.cpp).

  python tests/gpu/aoti.py run DIR BUILD [--seconds 300] [--device cuda] [--small]
  python tests/gpu/aoti.py aoti|husk DIR MODEL [--tune none|heuristic|max] [...]
  python tests/gpu/aoti.py build DIR BUILD

`run` starts the other commands in the background, as processes that end after the given number of
seconds. Then it measures what they made: the time of a run, the time to open, and memory. BUILD has
bin/ and lib/ of Husk (build/gpu). `--tune max` is also AOTInductor's max_autotune with coordinate
descent. --device cpu and --small are for a trial on a machine without a GPU.
"""

import argparse
import glob
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [
  str(ROOT / "compiler" / "torch"),
  str(ROOT / "examples"),
  str(ROOT / "tests" / "gpu"),
]

# The target: the total time of the launch list divided by AOTInductor's.
GOALS = {"gpt": 0.4, "bert": 0.8, "llama": 0.8}
MODELS = ("six", "gpt", "bert", "llama")


# Models


def six(small):
  """Six kernels: each product with the operators after it, and each norm. A small model has no
  products, which a host would call."""
  import torch
  from torch import nn

  layers = [
    layer
    for _ in range(3)
    for layer in (nn.LayerNorm(256), nn.Softmax(-1) if small else nn.Linear(256, 256), nn.GELU())
  ]
  x = torch.randn(32, 256).half()
  return nn.Sequential(*layers).half().eval(), (x,), None, (x,), "forward"


def gpt(small):
  import models
  import torch
  from torch.export import Dim

  model = (
    models.Gpt(
      vocabulary=1024, width=64 if small else 256, layers=2 if small else 12, heads=4, context=256
    )
    .half()
    .eval()
  )
  shapes = {"tokens": {0: Dim("batch", min=1, max=8), 1: Dim("length", min=1, max=256)}}
  return (
    model,
    (torch.randint(0, 1024, (2, 32)),),
    shapes,
    (torch.randint(0, 1024, (1, 32)),),
    "forward",
  )


def transformer(name, small):
  import transformers_models

  model, functions, cases = transformers_models.make(name, small)
  function = "decode" if "decode" in functions else "forward"
  args, shapes = functions[function]
  return model, args, shapes, args if function == "decode" else cases[0], function


def make(name, options):
  """The model, the arguments for its export, dynamic shapes, inputs for the runs, and the name of
  the function."""
  import torch

  torch.manual_seed(0)
  parts = (
    {"six": six, "gpt": gpt}[name](options.small)
    if name in ("six", "gpt")
    else transformer(name, options.small)
  )
  model = parts[0].requires_grad_(False)
  if options.device == "cpu" and name != "llama":
    model = model.float()
  return (model, *parts[1:])


def write_inputs(name, inputs, function, folder):
  import torch
  from husk import hir

  lines = [f"function {function}"]
  for number, tensor in enumerate(inputs):
    file = f"{name}.{number}.bin"
    (folder / file).write_bytes(bytes(tensor.contiguous().view(torch.uint8).flatten().tolist()))
    lines.append(" ".join([hir.dtype(tensor.dtype), file, *map(str, tensor.shape)]))
  (folder / f"{name}.inputs").write_text("\n".join(lines) + "\n")


# Work in the background


def aoti(name, options):
  """Writes DIR/NAME.TUNE.pt2."""
  os.environ.update(toolkit(options.dir))
  import torch

  model, args, shapes, _, _ = make(name, options)
  model = model.to(options.device)
  half = options.device != "cpu"
  args = tuple(
    x.to(options.device) if half or not x.is_floating_point() else x.float() for x in args
  )
  begin = time.perf_counter()
  with torch.no_grad():
    exported = torch.export.export(model, args, dynamic_shapes=shapes, strict=False)
    configs = (
      {"max_autotune": True, "coordinate_descent_tuning": True} if options.tune == "max" else {}
    )
    temporary_path = options.dir / f"{name}.{options.tune}.making.pt2"
    torch._inductor.aoti_compile_and_package(
      exported, package_path=str(temporary_path), inductor_configs=configs
    )
  temporary_path.rename(options.dir / f"{name}.{options.tune}.pt2")
  print(f"{time.perf_counter() - begin:.0f} s")


def husk(name, options):
  """Writes DIR/NAME.TUNE.husk and the inputs."""
  import logging

  import husk as exporter

  logging.basicConfig(level=logging.WARNING, format="%(message)s")
  logging.getLogger("husk").setLevel(logging.INFO)
  model, args, shapes, inputs, function = make(name, options)
  if options.device == "cpu":
    args, inputs = (
      tuple(x.float() if x.is_floating_point() else x for x in each) for each in (args, inputs)
    )
  write_inputs(name, inputs, function, options.dir)
  begin = time.perf_counter()
  temporary_path = options.dir / f"{name}.{options.tune}.making.husk"
  exporter.export(
    model,
    args,
    temporary_path,
    dynamic_shapes=shapes,
    function=function,
    tune=options.tune,
    targets=["host:avx2" if options.device == "cpu" else f"cuda:{options.target}"],
  )
  temporary_path.rename(options.dir / f"{name}.{options.tune}.husk")
  print(f"{time.perf_counter() - begin:.0f} s")


def toolkit(folder):
  """The environment in which headers and libraries of CUDA are found: those of a toolkit, or of
  Python packages."""
  import sysconfig

  packages = pathlib.Path(sysconfig.get_paths()["purelib"])
  import torch

  packages = {packages, pathlib.Path(torch.__file__).parents[1]}
  homes = [
    os.environ.get("CUDA_HOME"),
    "/usr/local/cuda",
    *(str(pathlib.Path(nvcc).parents[1]) for nvcc in [shutil.which("nvcc")] if nvcc),
  ]
  homes = [
    home
    for home in homes
    if home and (pathlib.Path(home) / "include" / "cuda_runtime_api.h").is_file()
  ]
  includes = [f"{home}/include" for home in homes]
  libraries = [
    f"{home}/{part}"
    for home in homes
    for part in ("lib64", "lib64/stubs", "lib")
    if os.path.isdir(f"{home}/{part}")
  ]
  for package in packages:
    includes += sorted(glob.glob(f"{package}/nvidia/*/include")) + glob.glob(
      f"{package}/triton/backends/nvidia/include"
    )
    libraries += sorted(glob.glob(f"{package}/nvidia/*/lib"))
  links = folder / "cuda" / "lib64"
  links.mkdir(parents=True, exist_ok=True)
  for name in ("libcuda.so", "libcudart.so"):  # for the linker, if only a versioned file exists
    places = (*libraries, "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64")
    found = [file for place in places for file in sorted(glob.glob(f"{place}/{name}*"))]
    if found and not os.path.lexists(links / name):
      try:
        (links / name).symlink_to(found[0])
      except FileExistsError:  # another process made the link
        pass
  if not (folder / "cuda" / "include").exists() and includes:
    try:
      (folder / "cuda" / "include").symlink_to(includes[0])
    except FileExistsError:
      pass

  def joined(variable, more):
    return ":".join([*more, *filter(None, [os.environ.get(variable)])])

  return {
    "CUDA_HOME": homes[0] if homes else str(folder / "cuda"),
    "CPLUS_INCLUDE_PATH": joined("CPLUS_INCLUDE_PATH", includes),
    "LIBRARY_PATH": joined("LIBRARY_PATH", [str(links), *libraries]),
  }


def build(where, options):
  """Builds DIR/husk_aoti from aoti.cpp."""
  import torch

  torch_ = pathlib.Path(torch.__file__).parent
  makes = os.environ | toolkit(options.dir)
  sources = [str(HERE.parent / name) for name in ("aoti.cpp", "gpu.cpp")]
  includes = [f"-I{ROOT / room / 'include'}" for room in ("runtime", "ports/cuda", "ports/host")]
  includes += [
    "-isystem",
    str(torch_ / "include"),
    "-isystem",
    str(torch_ / "include/torch/csrc/api/include"),
  ]
  dlpack = options.dir / "include" / "dlpack" / "dlpack.h"  # PyTorch has a copy under another name
  dlpack.parent.mkdir(parents=True, exist_ok=True)
  shutil.copy(torch_ / "include" / "ATen" / "dlpack.h", dlpack)
  includes += ["-isystem", str(options.dir / "include")]
  lib = pathlib.Path(where).resolve() / "lib"
  libraries = [
    name
    for name in ("torch", "torch_cpu", "torch_cuda", "c10", "c10_cuda")
    if (torch_ / "lib" / f"lib{name}.so").exists()
  ]
  command = [
    "g++",
    "-O1",
    "-std=c++20",
    f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
    *sources,
    *includes,
    f"-L{lib}",
    "-lhusk",
    f"-L{torch_ / 'lib'}",
    "-Wl,--no-as-needed",
    "-Wl,--allow-shlib-undefined",
    *(f"-l{name}" for name in libraries),
    "-ldl",
    f"-Wl,-rpath,{lib}:{torch_ / 'lib'}",
    "-o",
    str(options.dir / "husk_aoti"),
  ]
  begin = time.perf_counter()
  done = subprocess.run(command, env=makes, capture_output=True, text=True)
  if done.returncode:
    errors = [line for line in done.stderr.splitlines() if "error" in line or "cannot" in line]
    print(" ".join(command), *errors[:8], sep="\n")
    sys.exit(1)
  print(f"{time.perf_counter() - begin:.0f} s")


# The whole comparison


def run(where, options):
  options.dir.mkdir(parents=True, exist_ok=True)
  begin = time.monotonic()
  wanted = [("build", where, "")]
  for name in options.models:
    tunes = (
      ("heuristic",)
      if name == "six"
      else ("heuristic", "max")
      if options.device != "cpu"
      else ("heuristic",)
    )
    wanted += [("husk", name, tune) for tune in tunes]
    tuned = name in ("bert", "llama") and options.device != "cpu"
    wanted += [("aoti", name, tune) for tune in (("none", "max") if tuned else ("none",))]
  jobs = []
  for what, name, tune in wanted:
    log = options.dir / f"{what}.{pathlib.Path(name).name}.{tune}.log"
    command = [
      sys.executable,
      str(HERE),
      what,
      str(options.dir),
      name,
      "--device",
      options.device,
      "--target",
      options.target,
    ]
    command += ["--tune", tune] * bool(tune) + ["--small"] * options.small
    environment = os.environ | {
      "OMP_NUM_THREADS": "3",
      "TORCHINDUCTOR_CACHE_DIR": str(options.dir / "cache" / log.stem),
    }
    with open(log, "w") as file:
      jobs.append(
        (
          log,
          subprocess.Popen(
            ["timeout", "-k", "5", str(options.seconds), *command],
            stdout=file,
            stderr=file,
            env=environment,
          ),
          time.monotonic(),
        )
      )
  took = {}
  while len(took) < len(jobs):
    for log, job, started in jobs:
      if log not in took and job.poll() is not None:
        took[log] = time.monotonic() - started
    time.sleep(0.2)
  for log, job, _ in jobs:
    lines = log.read_text().strip().splitlines()
    tail = (
      [line for line in lines if line.startswith("cuda_")] if job.returncode == 0 else lines[-8:]
    )
    state = (
      "made"
      if job.returncode == 0
      else "OUT OF TIME"
      if job.returncode in (124, 137)
      else f"FAILED ({job.returncode})"
    )
    print(
      f"{log.stem}: {state}, {took[log]:.0f} s",
      *(f"    {line[:200]}" for line in tail),
      sep="\n",
      flush=True,
    )
  print(f"made in {time.monotonic() - begin:.0f} s", flush=True)
  return measure(where, options)


def measure(where, options):
  folder, program = options.dir, options.dir / "husk_aoti"
  wrong = 0
  if not program.exists():
    print("no program to compare with")
    return 1
  for name in options.models:
    artifacts, packages = (
      [path for path in sorted(folder.glob(f"{name}.*.{kind}")) if "making" not in path.name]
      for kind in ("husk", "pt2")
    )
    artifacts = [f"husk {path.suffixes[-2][1:]}={path}" for path in artifacts]
    for package in packages if artifacts else ():
      command = [
        program,
        "compare",
        options.device,
        package,
        folder / f"{name}.inputs",
        options.repeats,
        *artifacts,
      ]
      wrong += shown(
        f"{name}: AOTInductor {package.suffixes[-2][1:]}",
        command,
        f"to reach, of the list: {GOALS[name]} x" if name in GOALS else "",
      )
    if not (packages and artifacts):
      print(f"{name}: nothing to compare")
      wrong += 1
    if name in ("six", "llama"):
      for package in packages[:1]:
        wrong += shown(
          f"{name}: opening, AOTInductor",
          [program, "open", options.device, package, folder / f"{name}.inputs"],
        )
      if artifacts and options.device != "cpu":
        command = [
          pathlib.Path(where) / "bin" / "husk_gpu_open",
          artifacts[0].partition("=")[2],
          folder / f"{name}.inputs",
        ]
        wrong += shown(
          f"{name}: opening, Husk", command, "to reach: 1 ms (six), 8 MB over the bare context"
        )
  return int(wrong > 0)


def shown(title, command, end=""):
  try:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=90)
    code, text = done.returncode, done.stdout + done.stderr[-1500:]
  except subprocess.TimeoutExpired as error:
    code, text = 124, f"no end after {error.timeout} s"
  lines = [
    title,
    *text.rstrip().splitlines(),
    *([f"  {end}"] if end else []),
    *([f"  FAILED ({code})"] if code else []),
  ]
  print(*lines, sep="\n", flush=True)
  return int(code != 0)


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("what", choices=("run", "measure", "aoti", "husk", "build"))
  parser.add_argument("dir", type=pathlib.Path)
  parser.add_argument("name", metavar="MODEL|BUILD")
  parser.add_argument("--tune", default="none")
  parser.add_argument("--device", default="cuda")
  parser.add_argument("--target", default="h200")
  parser.add_argument("--seconds", type=int, default=300)
  parser.add_argument("--repeats", type=int, default=300)
  parser.add_argument("--models", nargs="*", default=list(MODELS))
  parser.add_argument("--small", action="store_true")
  options = parser.parse_args()
  options.dir = options.dir.resolve()
  options.dir.mkdir(parents=True, exist_ok=True)
  return {"run": run, "measure": measure, "aoti": aoti, "husk": husk, "build": build}[options.what](
    options.name, options
  ) or 0


if __name__ == "__main__":
  sys.exit(main())
