"""Exports PyTorch's database of operators for a CUDA target, and counts what is refused.

  python tests/torch/nets/export_operators.py [--part 0/4] [--only NAME,NAME] [--json FILE]
                                              [--jobs 2] and one of
    --keep DIR                   writes the artifacts and the expected results
    --run                        runs the artifacts on the GPU of this machine
    --run --target host:avx2     runs them by husk-run
    --interpret                  runs the kernels by Triton's interpreter

By default no kernel is compiled: the lines of Inductor's wrapper are written as statements, which
takes minutes for the whole database and needs neither a GPU nor huskc. With `--keep` each operator
becomes DIR/NAME.husk, NAME.in.safetensors and NAME.out.safetensors, for `husk-run --expected` on a
machine with a GPU. With `--run` each operator is exported, run by `husk.load` and compared with
eager mode on the GPU, as a list of launches and in the mode of the session's own choice; HUSK_TUNE
should be `heuristic` then, since measuring kernels takes longer. With `--interpret` its kernels run
on the CPU, which takes half an hour for the whole database. `--sample` takes another sample than
the first of each operator, `--layers` takes PyTorch's database of modules.

An operator has one of these results: ok, host (as ok, but operators that the text names run on the
CPU), refused (by name, at export), crashed (another error of the export), late (no result in time),
wrong or failed (with `--run` or `--interpret`), and not applicable (eager mode or torch.export
cannot run the sample, or it does not exist). The file of `--json` has all results that there are at
any time. `--host-ops forbid` refuses what would run on the CPU. `--libraries` leaves products,
convolutions, linear algebra and Fourier transforms to libraries."""

import argparse
import collections
import contextlib
import itertools
import json
import logging
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import re
import sys
import tempfile
import time
import types
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "helpers"), str(HERE.parents[2] / "compiler" / "torch")]

import torch  # noqa: E402
from compile_operators import DTYPE, UNWRITTEN, database  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

# Operators whose results are random: only their shapes are compared.
RANDOM = {
  "bernoulli",
  "cauchy",
  "exponential",
  "geometric",
  "log_normal",
  "multinomial",
  "nn.functional.alpha_dropout",
  "nn.functional.dropout",
  "nn.functional.dropout2d",
  "nn.functional.dropout3d",
  "nn.functional.feature_alpha_dropout",
  "nn.functional.fractional_max_pool2d",
  "nn.functional.fractional_max_pool3d",
  "nn.functional.rrelu",
  "normal",
  "rand_like",
  "randint",
  "randint_like",
  "randn",
  "randn_like",
  "uniform",
}


# Operators whose results are eigenvalues, and perhaps eigenvectors.
EIGENVALUES = {"linalg.eig", "linalg.eigh", "linalg.eigvals"}
# Operators whose results are the factors U, S and V of a matrix.
SINGULAR_VALUES = {"pca_lowrank", "svd", "svd_lowrank"}


class Sample(torch.nn.Module):
  """An operator with the arguments of a sample that are no tensors."""

  def __init__(self, op, sample):
    super().__init__()
    leaves, self.tree = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    self.op = op
    self.leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    self.places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    self.inputs = tuple(leaves[place].detach().clone() for place in self.places)

  def forward(self, *tensors):
    leaves = list(self.leaves)
    for place, tensor in zip(self.places, tensors, strict=True):
      leaves[place] = tensor
    first, args, kwargs = pytree.tree_unflatten(leaves, self.tree)
    return self.op(first, *args, **kwargs)


class Layer:
  """A module of PyTorch's database of modules, as an operator of the other database."""

  def __init__(self, info):
    self.info, self.name = info, info.name
    self.formatted_name = info.name.replace(".", "_")

  supports_autograd = True

  def supported_dtypes(self, device):
    return set(self.info.dtypes)

  def sample_inputs(self, device, dtype, requires_grad):
    samples = self.info.module_inputs_func(
      self.info, device=device, dtype=dtype, requires_grad=requires_grad, training=False
    )
    for sample in samples:
      constructor_input, forward_input = sample.constructor_input, sample.forward_input
      self.op = (
        self.info.module_cls(*constructor_input.args, **constructor_input.kwargs).eval().to(device)
      )
      if dtype.is_floating_point or dtype.is_complex:
        self.op = self.op.to(dtype)
      named = dict(forward_input.kwargs)
      first, *others = forward_input.args or [named.pop("input")]
      yield types.SimpleNamespace(input=first, args=tuple(others), kwargs=named)

  def __call__(self, *args, **kwargs):
    return self.op(*args, **kwargs)


def all_operators(options):
  return layers() if options.layers else database()


def layers():
  """The modules of PyTorch's database that have DTYPE."""
  database()  # what the import of the other needs
  from torch.testing._internal.common_modules import module_db

  return [Layer(info) for info in module_db if DTYPE in info.dtypes]


def name_of(op):
  return op.formatted_name


def sample_of(op, number):
  """The sample of an operator with this number, from a fixed seed."""
  torch.manual_seed(5)
  samples = op.sample_inputs("cpu", DTYPE, requires_grad=False)
  sample = next(itertools.islice(samples, number, None))
  return Sample(op.op if isinstance(op, Layer) else op, sample)


def tensors_by_position(tree):
  return {
    str(position): leaf.contiguous().clone()
    for position, leaf in enumerate(pytree.tree_leaves(tree))
    if isinstance(leaf, torch.Tensor)
  }


@contextlib.contextmanager
def uncompiled():
  """While open, exports for CUDA targets compile none of Inductor's kernels. Calls of these kernels
  have no arguments."""
  from husk import hir
  from husk.cuda.kernels import CudaKernels

  compiled_call = CudaKernels.call_kernel

  def define(self, name, body, metadata=None):
    pass

  def call(self, name, call_args, *rest):
    if name in self._names:  # attention, which the exporter defines itself
      return compiled_call(self, name, call_args, *rest)
    return hir.KernelCall(self.prefix + name, (1, 1, 1), [])

  before, ahead = CudaKernels.define_kernel, CudaKernels.compile_ahead
  CudaKernels.define_kernel, CudaKernels.call_kernel = define, call
  CudaKernels.compile_ahead = hir.Backend.compile_ahead
  try:
    yield
  finally:
    CudaKernels.define_kernel, CudaKernels.call_kernel = before, compiled_call
    CudaKernels.compile_ahead = ahead


def outcome(op, options, folder):
  """The result of one operator, and a text about it."""
  import husk

  try:
    model = sample_of(op, options.sample)
    if options.run and options.target.startswith("host"):  # husk-run reads contiguous tensors
      model.inputs = tuple(tensor.contiguous() for tensor in model.inputs)
    with torch.no_grad():
      expected = model(*pytree.tree_map(torch.clone, model.inputs))
      exported = torch.export.export(model, model.inputs, strict=False)
  except Exception as error:  # whatever the database's own code and torch.export raise
    return "not applicable", f"{type(error).__name__}: {error}"
  compared = compared_part(op, exported)
  if options.interpret:
    return interpret(model, expected, folder, options.target, compared, options.host_ops)
  artifact = pathlib.Path(options.keep or folder) / f"{name_of(op).replace('.', '_')}.husk"
  named = {"targets": [options.target], "host_ops": options.host_ops, "progress": False}
  if options.libraries:
    named["libraries"] = True
  try:
    if options.keep or options.run:
      husk.export(exported, model.inputs, artifact, keep=folder, **named)
    else:
      with uncompiled():
        husk.write(exported, model.inputs, folder, **named)
  except husk.Unsupported as error:
    return "refused", str(error)
  except Exception as error:
    return "crashed", f"{type(error).__name__}: {error}"
  if options.keep:
    save(artifact, model.inputs, expected, compared)
  if options.run and options.target.startswith("host"):
    return run_on_host(model, expected, artifact, folder, compared)
  result = run(model, expected, artifact, compared) if options.run else ("ok", "")
  return with_host_steps(*result, folder)


def with_host_steps(result, text, folder):
  """The result of an operator, of which `folder` has the `.hir`. It is `host` in place of `ok` if
  operators run on the CPU, which the text then names."""
  found = re.search(
    r'^user "husk\.host_ops\.\w+" "(.*)"$', (folder / "model.hir").read_text(), re.M
  )
  if not found:
    return result, text
  return "host" if result == "ok" else result, f"on the CPU: {found[1]}. {text}"


# These functions return the tensors that are compared in place of a list of results.


def numbers(tensors):
  return tensors


def shapes(tensors):
  return [torch.zeros_like(tensor) for tensor in tensors]


def eigenvalues(tensors):
  """Eigenvalues in the order of their real parts, and of each eigenvector the multiple with a
  positive largest element. Order and factors are not determined, and differ between libraries."""
  values = tensors[0]
  if not values.numel():
    return tensors
  complete = torch.view_as_real(values) if values.is_complex() else values[..., None]
  keys = complete[..., 0].double() + complete[..., -1].double() / 1024
  order = keys.argsort(-1)
  sorted_tensors = [values.gather(-1, order)]
  for vectors in tensors[1:]:
    vectors = vectors.gather(-1, order[..., None, :].expand_as(vectors))
    largest = vectors.gather(-2, vectors.abs().argmax(-2, keepdim=True))
    sorted_tensors.append(vectors * largest.conj() / largest.abs())
  return sorted_tensors


def singular_values(tensors):
  """The singular values of matrices, the product of their factors U, S and V, and the products of
  the columns of U and of V with each other, which show that they are orthonormal. A column of U may
  have any factor of absolute value 1 if that of V has the same one, and columns of equal singular
  values may be mixed."""
  left, values, right = tensors
  count = values.shape[-1]
  product = (left[..., :count] * values.unsqueeze(-2)) @ right[..., :count].mH
  return [values, product, *orthonormal(tensors)]


def orthonormal(tensors):
  """The products of the columns of the factors U and V. An approximation of a matrix of a higher
  rank depends on random numbers, but its columns are orthonormal."""
  left, values, right = tensors
  return [left.mH @ left, right.mH @ right, torch.zeros_like(values)]


def compared_part(op, exported):
  """What equal arguments determine of the results."""
  dropout = torch.ops.aten.dropout.default
  drops = any(
    node.args[1] and node.args[2]
    for node in exported.graph.find_nodes(op="call_function", target=dropout)
  )
  if drops or op.name in UNWRITTEN or op.name in RANDOM:
    return shapes
  if op.name in SINGULAR_VALUES:
    # The database's matrices have the rank that is asked for, unless a third one is subtracted.
    count = sum(
      node.name.startswith("tensors") for node in exported.graph.find_nodes(op="placeholder")
    )
    return orthonormal if count == 3 else singular_values
  return eigenvalues if op.name in EIGENVALUES else numbers


def save(artifact, inputs, expected, compared):
  from safetensors.torch import save_file

  save_file(tensors_by_position(inputs), artifact.with_suffix(".in.safetensors"))
  if compared is numbers:
    save_file(tensors_by_position(expected), artifact.with_suffix(".out.safetensors"))


def run(model, expected, artifact, compared):
  """Runs an artifact on the GPU, and compares with eager mode there, or with `expected` if eager
  mode cannot run the model there."""
  import husk

  model = model.cuda()
  inputs = [tensor.cuda() for tensor in model.inputs]
  try:
    with torch.no_grad(), torch.backends.cudnn.flags(allow_tf32=False):
      expected = model(*map(torch.clone, inputs))
      torch.cuda.synchronize()
  except (RuntimeError, TypeError) as error:
    text = f"compared with the CPU, since eager mode on the GPU says {error}"
  else:
    text = ""
  program = husk.load(artifact, device="cuda")
  for mode in ("list", "auto"):
    session = program.session(mode=mode)
    for repeat in ("first", "second"):
      try:
        outputs = session(*map(torch.clone, inputs))
        torch.cuda.synchronize()
      except Exception as error:
        return "failed", f"{mode}, {repeat} run: {type(error).__name__}: {error}"
      result, difference = compare(outputs, expected, compared)
      if result != "ok":
        return result, f"{mode}, {repeat} run: {difference}; {text}"
  return "ok", text


def run_on_host(model, expected, artifact, folder, compared):
  """Runs an artifact by husk-run, and compares with `expected`."""
  from built_tools import husk_run

  inputs = {f"tensors_{index}": tensor for index, tensor in enumerate(model.inputs)}
  code, outputs, text = husk_run(artifact, folder, inputs)
  if code:
    return "failed", text
  leaves = [leaf for leaf in pytree.tree_leaves(expected) if isinstance(leaf, torch.Tensor)]
  return compare([outputs[str(place)] for place in range(len(leaves))], leaves, compared)


def interpret(model, expected, folder, target, compared, host_ops):
  """Exports an operator, and runs its kernels by Triton's interpreter."""
  import husk
  from cuda_numerics import computed

  inputs = {f"tensors_{index}": tensor for index, tensor in enumerate(model.inputs)}
  try:
    (outputs,) = computed(
      model, model.inputs, None, [inputs], folder, target.partition(":")[2], host_ops=host_ops
    )
  except husk.Unsupported as error:
    return "refused", str(error)
  except Exception as error:
    return "crashed", f"{type(error).__name__}: {str(error)[-400:]}"
  return with_host_steps(*compare([*outputs.values()], expected, compared), folder)


def compare(outputs, expected, compared):
  pairs = zip(pytree.tree_leaves(outputs), pytree.tree_leaves(expected), strict=True)
  # In eager mode a tensor that a model makes without naming a device is on the CPU.
  tensors = [(one.cpu(), other.cpu()) for one, other in pairs if isinstance(other, torch.Tensor)]
  try:
    outputs, expected = (compared([pair[side] for pair in tensors]) for side in (0, 1))
    torch.testing.assert_close(outputs, expected, rtol=1e-3, atol=1e-4, equal_nan=True)
  except (AssertionError, ValueError) as error:
    return "wrong", str(error)
  return "ok", ""


# Processes


def work(pipe, options):
  """What a process does: it gets indices of operators, and returns results."""
  warnings.simplefilter("ignore")
  logging.disable(logging.ERROR)
  torch.set_num_threads(1)
  torch.backends.cudnn.allow_tf32 = False  # as eager mode, with which results are compared
  sys.stderr = open(os.devnull, "w")
  operators = all_operators(options)
  if options.run and not options.target.startswith("host"):
    torch.zeros(1, device="cuda")  # the context is no part of an operator's time
  pipe.send(None)
  while True:
    index = pipe.recv()
    with tempfile.TemporaryDirectory() as folder:
      try:
        result = outcome(operators[index], options, pathlib.Path(folder))
      except Exception as error:
        result = "failed", f"{type(error).__name__}: {error}"
      pipe.send(result)
    torch._dynamo.reset()


class Process:
  """A process that exports one operator at a time."""

  def __init__(self, context, options):
    self.context, self.options = context, options
    self.start()

  def start(self):
    self.ready = False  # whether it can be given operators
    self.index = None  # the operator that is being exported
    self.begin = 0.0
    self.pipe, other = self.context.Pipe()
    self.process = self.context.Process(target=work, args=(other, self.options), daemon=True)
    self.process.start()
    other.close()

  def give(self, index):
    self.index, self.begin = index, time.monotonic()
    self.pipe.send(index)

  def result(self):
    """The index of an operator, its result and a text, or None if there is none yet."""
    index, result = self.index, None
    if self.pipe.poll():
      try:
        result = self.pipe.recv()
      except (EOFError, OSError):
        self.process.join()
        if not self.ready:
          raise SystemExit(f"a process ended with {self.process.exitcode} at its start") from None
        result = "crashed", f"the process ended with {self.process.exitcode}"
      if not self.ready:
        self.ready = True
        return None
    elif index is not None and time.monotonic() - self.begin > self.options.limit:
      result = "late", f"no result after {self.options.limit} s"
    if not result:
      return None
    self.index = None
    # A kernel that fails leaves its process without a device.
    if result[0] in ("crashed", "failed", "late"):
      self.stop()
      self.start()
    return index, *result

  def stop(self):
    self.process.kill()
    self.process.join()


def results(indices, options):
  """Yields the index, the result and the text of each operator."""
  context = multiprocessing.get_context("spawn")
  waiting = collections.deque(indices)
  processes = [Process(context, options) for _ in range(min(options.jobs, len(indices)))]
  left = len(indices)
  while left:
    for process in processes:
      if result := process.result():
        left -= 1
        yield result
      if process.ready and process.index is None and waiting:
        process.give(waiting.popleft())
    multiprocessing.connection.wait([process.pipe for process in processes], timeout=0.5)
  for process in processes:
    process.stop()


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
  parser.add_argument("--target", default="cuda:h200")
  parser.add_argument("--part", default="0/1", help="every n-th operator: 0/4, 1/4 and so on")
  parser.add_argument("--only", help="names of operators, with commas between them")
  parser.add_argument("--layers", action="store_true", help="the database of modules instead")
  parser.add_argument("--sample", type=int, default=0, help="which sample of each operator")
  parser.add_argument("--json", help="a file for the results by name")
  parser.add_argument("--keep", help="a folder for artifacts, inputs and expected results")
  parser.add_argument("--run", action="store_true", help="run and compare with eager")
  parser.add_argument("--interpret", action="store_true", help="run by Triton's interpreter")
  parser.add_argument("--host-ops", default="allow", help="allow or forbid, as for husk.export")
  parser.add_argument("--libraries", action="store_true", help="libraries=True of husk.export")
  parser.add_argument("--jobs", type=int, default=2, help="processes")
  parser.add_argument("--limit", type=float, default=120, help="seconds for an operator")
  options = parser.parse_args()
  if options.keep:
    pathlib.Path(options.keep).mkdir(parents=True, exist_ok=True)
  begin, step = map(int, options.part.split("/"))
  operators = all_operators(options)
  indices = range(len(operators))[begin::step]
  if options.only:
    names = options.only.split(",")
    indices = [index for index in indices if name_of(operators[index]) in names]
  found, counts, start = {}, collections.Counter(), time.monotonic()
  for index, result, text in results(indices, options):
    name, text = name_of(operators[index]), " ".join(text.split())
    found[name] = {"result": result, "text": text}
    counts[result] += 1
    seconds = time.monotonic() - start
    print(f"{seconds:4.0f} s {len(found)}/{len(indices)} {name}: {result}", text[:200], flush=True)
    if options.json:  # a whole file at any time
      pathlib.Path(f"{options.json}.part").write_text(json.dumps(found, indent=1))
      os.replace(f"{options.json}.part", options.json)
  print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))


if __name__ == "__main__":
  main()
