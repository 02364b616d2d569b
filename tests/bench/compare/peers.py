"""One side of a comparison: makes a case ready to run in one way, and measures it when asked.

  python peers.py PEER CASE THREADS FOLDER

Prints a line of JSON when the model is ready, {"cpu_s": seconds of CPU for making it}, and saves
the outputs of the first run to FOLDER/PEER.THREADS.pt. Each line on stdin, the seconds to run for,
is answered by the median and the minimum of the times of a run, in microseconds. FOLDER is that of
the case; what was made for one number of threads serves the others too.
"""

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def cpu_seconds():
  """The CPU time of this process and of all that it has waited for."""
  own = resource.getrusage(resource.RUSAGE_SELF)
  children = resource.getrusage(resource.RUSAGE_CHILDREN)
  return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def flat(outputs):
  import torch

  return [outputs] if torch.is_tensor(outputs) else [torch.as_tensor(each) for each in outputs]


def measure(run, seconds):
  times = []
  end = time.perf_counter() + seconds
  while not times or time.perf_counter() < end:
    start = time.perf_counter()
    run()
    times.append(time.perf_counter() - start)
  return statistics.median_low(times) * 1e6, min(times) * 1e6


class InPython:
  """A peer that is called from Python: `run` is a function without arguments that returns the
  outputs."""

  def __init__(self, run):
    self.run = run
    self.outputs = flat(run())

  def measure(self, seconds):
    return measure(self.run, seconds)


def eager(model, inputs, threads, folder):
  return InPython(lambda: model(*inputs))


def inductor(model, inputs, threads, folder):
  import torch

  # The weights of an artifact do not change, so Inductor may fold and pack them too.
  torch._inductor.config.freezing = True
  compiled = torch.compile(model, dynamic=False)
  return InPython(lambda: compiled(*inputs))


class Aoti:
  """AOTInductor's package, called by a program in C++."""

  def __init__(self, model, inputs, threads, folder):
    import torch

    package = folder / f"aoti.{threads}.pt2"  # its loops are compiled for a number of threads
    if not package.exists():
      torch._inductor.config.freezing = True
      exported = torch.export.export(model, inputs)
      torch._inductor.aoti_compile_and_package(exported, package_path=str(package))
    self.made_at = cpu_seconds()
    tensors, outputs = folder / "inputs.pt", folder / f"aoti.{threads}.out"
    torch.save(list(inputs), tensors)
    program = runner(ROOT / "build" / "compare")
    self.process = subprocess.Popen(
      [str(program), str(package), str(tensors), str(threads), str(outputs)],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )
    if self.process.stdout.readline() != "ready\n":
      raise RuntimeError("aoti_runner failed")
    self.outputs = flat(torch.load(outputs, weights_only=False))

  def measure(self, seconds):
    self.process.stdin.write(f"{seconds}\n")
    self.process.stdin.flush()
    return [float(word) for word in self.process.stdout.readline().split()]


def runner(folder):
  """Builds FOLDER/aoti_runner, which takes half a minute, once."""
  import torch

  program = folder / "aoti_runner"
  if program.exists():
    return program
  home = pathlib.Path(torch.__file__).parent
  includes = [home / "include", home / "include" / "torch" / "csrc" / "api" / "include"]
  libraries = [
    name for name in ("torch", "torch_cpu", "c10") if (home / "lib" / f"lib{name}.so").exists()
  ]
  part = folder / f"aoti_runner.{os.getpid()}"
  command = ["g++", "-O2", "-std=c++20", str(HERE / "aoti_runner.cpp"), "-o", str(part)]
  command += [word for include in includes for word in ("-isystem", str(include))]
  command += [f"-L{home / 'lib'}", f"-Wl,-rpath,{home / 'lib'}", "-Wl,--no-as-needed"]
  command += ["-Wl,--allow-shlib-undefined", *(f"-l{name}" for name in libraries)]
  command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
  subprocess.run(command, check=True)
  part.rename(program)
  return program


def onnxruntime(model, inputs, threads, folder):
  import onnxruntime as ort
  import torch

  path = folder / "model.onnx"
  if not path.exists():
    torch.onnx.export(model, inputs, str(path), dynamo=True, verbose=False)
  options = ort.SessionOptions()
  options.intra_op_num_threads = threads
  options.inter_op_num_threads = 1
  session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
  names = [each.name for each in session.get_inputs()]
  binding = session.io_binding()
  arrays = [tensor.contiguous().numpy() for tensor in inputs]
  for name, array in zip(names, arrays, strict=True):
    binding.bind_cpu_input(name, array)
  for output in session.get_outputs():
    binding.bind_output(output.name, "cpu")
  session.run_with_iobinding(binding)
  peer = InPython.__new__(InPython)
  peer.outputs = flat(binding.copy_outputs_to_cpu())
  peer.run = lambda: session.run_with_iobinding(binding)
  return peer


class Iree:
  """IREE's compiler and runtime, in an environment of their own."""

  def __init__(self, model, inputs, threads, folder):
    import iree.runtime as rt
    import iree.turbine.aot as aot

    path = folder / "model.vmfb"
    if not path.exists():
      exported = aot.export(model, args=inputs)
      exported.session.set_flags("--iree-llvmcpu-target-cpu=host")
      exported.compile(
        save_to=str(path),
        target_backends=("llvm-cpu",),
      )
    rt.flags.parse_flags(f"--task_topology_group_count={threads}")
    config = rt.Config("local-sync" if threads == 1 else "local-task")
    context = rt.SystemContext(config=config)
    context.add_vm_module(rt.VmModule.mmap(config.vm_instance, str(path)))
    module = context.modules.module
    arrays = [rt.asdevicearray(config.device, tensor.numpy()) for tensor in inputs]
    self.run = lambda: module.main(*arrays)
    outputs = self.run()
    self.outputs = flat(
      [each.to_host() for each in (outputs if isinstance(outputs, (tuple, list)) else [outputs])]
    )

  def measure(self, seconds):
    return measure(self.run, seconds)


def executorch(model, inputs, threads, folder):
  import torch
  from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
  from executorch.exir import to_edge_transform_and_lower
  from executorch.runtime import Runtime

  path = folder / "model.pte"
  if not path.exists():
    exported = torch.export.export(model, inputs)
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    path.write_bytes(edge.to_executorch().buffer)
  from executorch.extension.pybindings import portable_lib

  portable_lib._unsafe_reset_threadpool(threads)
  method = Runtime.get().load_program(str(path)).load_method("forward")
  return InPython(lambda: method.execute(list(inputs)))


class Husk:
  """An artifact, measured by husk-bench, which has no Python in it."""

  def __init__(self, model, inputs, threads, folder):
    import safetensors.torch
    import torch

    sys.path.insert(0, str(ROOT / "compiler" / "torch"))
    import husk

    self.bin = pathlib.Path(os.environ["HUSKC"]).parent
    self.path = folder / "model.husk"
    if not self.path.exists():
      husk.export(model, inputs, self.path)
    self.made_at = cpu_seconds()  # without the programs that run it
    self.inputs = folder / "inputs.safetensors"
    tensors = {str(i): tensor.contiguous() for i, tensor in enumerate(inputs)}
    safetensors.torch.save_file(tensors, self.inputs)
    outputs = folder / f"husk.{threads}.safetensors"
    self.threads = f"--threads={threads}"
    self.tool("husk-run", f"--outputs={outputs}", "--print=none")
    results = safetensors.torch.load_file(outputs)
    self.outputs = [torch.as_tensor(results[str(i)]) for i in range(len(results))]
    self.numbers = folder / f"husk.{threads}.json"

  def tool(self, name, *options):
    command = [str(self.bin / name), str(self.path), f"--inputs={self.inputs}", self.threads]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode:
      raise RuntimeError(done.stderr or done.stdout)

  def measure(self, seconds):
    self.tool("husk-bench", f"--duration-s={seconds}", "--warmup-ms=100", f"--json={self.numbers}")
    times = json.loads(self.numbers.read_text())["results"][0]["run_us"]
    return times["median"], times["least"]


PEERS = {
  "eager": eager,
  "inductor": inductor,
  "aoti": Aoti,
  "onnxruntime": onnxruntime,
  "iree": Iree,
  "executorch": executorch,
  "husk": Husk,
}


def main(name, case, threads, folder):
  warnings.simplefilter("ignore")
  answers = os.fdopen(os.dup(1), "w")  # libraries that print do not disturb the answers
  os.dup2(2, 1)
  import cases
  import torch

  threads = int(threads)
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  torch.set_num_threads(threads)
  torch.set_grad_enabled(False)
  try:
    model, inputs = cases.make(case)
    before = cpu_seconds()
    peer = PEERS[name](model, inputs, threads, folder)
    cost_file = folder / f"{name}.made"  # later calls find the files of the first one
    if not cost_file.exists():
      cost_file.write_text(str(getattr(peer, "made_at", cpu_seconds()) - before))
    answer = {"cpu_s": float(cost_file.read_text())}
    torch.save(peer.outputs, folder / f"{name}.{threads}.pt")
  except Exception as error:  # whatever a library raises, the table says that it failed
    answer = {"error": f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]}
  print(json.dumps(answer), file=answers, flush=True)
  if "error" in answer:
    return
  for line in sys.stdin:
    median, least = peer.measure(float(line))
    print(json.dumps([median, least]), file=answers, flush=True)


if __name__ == "__main__":
  main(*sys.argv[1:])
