"""Random programs whose parameters, buffers, constants and inputs share memory and are written,
compared with eager mode on the host and by Triton's interpreter.

    python tests/torch/nets/aliased_programs.py [--seconds S] [--seed N] [--host | --cuda]

runs new programs for S seconds and prints each program that differs or is refused.
`test_aliases.py` runs a few of them."""

import argparse
import pathlib
import random
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "helpers"))

import artifact_runner
import built_tools  # noqa: F401  (where the exporter lies)
import husk
import torch

SHAPES = ((2, 3), (4, 2), (6,), (2, 2, 2))
RUNS = 3


def a_view(choose, tensor):
  """A function of a tensor like `tensor` that returns a view of it, and the text of the function.
  The text begins with the tensor's place: it is applied to a name."""
  kinds = ["all", "flat"]
  if tensor.dim():
    kinds += ["select", "slice", "step", "flip_dims"]
  if tensor.dim() > 1:
    kinds += ["transpose", "diagonal"]
  kind = choose.choice(kinds)
  dim = choose.randrange(tensor.dim()) if tensor.dim() else 0
  size = tensor.shape[dim] if tensor.dim() else 1
  if kind == "select" and size:
    return f".select({dim}, {choose.randrange(size)})"
  if kind == "slice" and size:
    begin = choose.randrange(size)
    return f".narrow({dim}, {begin}, {choose.randint(1, size - begin)})"
  if kind == "step" and size > 1:
    return f"[{':, ' * dim}{choose.randrange(2)}::2]"
  if kind == "transpose":
    return f".transpose({dim}, {choose.randrange(tensor.dim())})"
  if kind == "diagonal" and tensor.dim() > 1:
    return ".diagonal(0, 0, 1)"
  if kind == "flat" and tensor.is_contiguous():
    return ".view(-1)"
  return "[...]"


class Program:
  """A random program: the text of its states and of its statements."""

  def __init__(self, seed):
    choose = self.choose = random.Random(seed)
    self.seed = seed
    self.bases = [choose.choice(SHAPES) for _ in range(choose.randint(1, 2))]
    self.offsets = [choose.choice((0, 0, 0, 5)) for _ in self.bases]
    tensors = self._base_tensors()
    self.states = []  # of a name: the kind, the base and the view
    for index in range(choose.randint(2, 4)):
      base = choose.randrange(len(tensors))
      view = a_view(choose, tensors[base])
      if choose.random() < 0.3:
        view += a_view(choose, eval(f"t{view}", {"t": tensors[base]}))
      kind = choose.choice(("buffer", "buffer", "buffer", "parameter", "attribute"))
      self.states.append((f"s{index}", kind, base, view))
    self.inputs = {f"x{index}": choose.choice(SHAPES) for index in range(choose.randint(1, 2))}
    self.together = choose.random() < 0.3  # the examples of the inputs share memory
    self.lines = self._statements()

  def _base_tensors(self):
    tensors = []
    for shape, offset in zip(self.bases, self.offsets):
      count = torch.Size(shape).numel()
      tensors.append(torch.arange(offset + count, dtype=torch.float32)[offset:].view(shape))
    return tensors

  def model(self):
    """A new model, in the state before the first run."""
    tensors = self._base_tensors()
    model = Model()
    for name, kind, base, view in self.states:
      tensor = eval(f"t{view}", {"t": tensors[base]})
      if kind == "buffer":
        model.register_buffer(name, tensor)
      elif kind == "parameter":
        setattr(model, name, torch.nn.Parameter(tensor, requires_grad=False))
      else:
        setattr(model, name, tensor)
    model.code = compile(self.text(), f"<program {self.seed}>", "exec")
    names = ", ".join(self.inputs)
    space = {"torch": torch}
    exec(model.code, space)
    model.run = space["run"]
    exec(f"def forward(self, {names}): return self.run(self, {names})", space)
    model.forward = space["forward"].__get__(model)
    return model

  def text(self):
    return "\n".join(
      [f"def run(self, {', '.join(self.inputs)}):", *(f"  {line}" for line in self.lines)]
    )

  def _statements(self):
    choose = self.choose
    tensors = self._base_tensors()
    known = {
      f"self.{name}": eval(f"t{view}", {"t": tensors[base]}) for name, _, base, view in self.states
    }
    known |= {name: torch.zeros(shape) for name, shape in self.inputs.items()}
    lines, results = [], []
    for index in range(choose.randint(3, 7)):
      name = choose.choice(list(known))
      value = known[name]
      view = a_view(choose, value)
      target = eval(f"t{view}", {"t": value})
      other = choose.choice(list(known))
      kind = choose.choice(("add", "mul", "copy", "assign", "read", "read", "copy_of", "view"))
      if kind == "add":
        lines.append(f"{name}{view}.add_({other}.sum())")
      elif kind == "mul":
        lines.append(f"{name}{view}.mul_(2)")
      elif kind == "copy":
        lines.append(f"{name}{view}.copy_({other}.flatten()[0] + 1)")
      elif kind == "assign" and value.dim():
        lines.append(f"{name}[-1] = {other}.mean() - 1")
      elif kind == "view":
        known[f"v{index}"] = target
        lines.append(f"v{index} = {name}{view}")
        continue
      elif kind == "copy_of":
        known[f"c{index}"] = target.clone()
        lines.append(f"c{index} = {name}{view} * 1")
        continue
      lines.append(f"r{index} = {other} + 1")
      results.append(f"r{index}")
    results += [f"{name} * 1" for name in known if name.startswith("self.")]
    results += [name for name in known if name[0] == "v"]
    lines.append(f"return {', '.join(results)},")
    return lines

  def arguments(self, run):
    choose = random.Random((self.seed, run).__hash__())
    return [
      torch.tensor([float(choose.randint(-3, 3)) for _ in range(torch.Size(shape).numel())]).view(
        shape
      )
      for shape in self.inputs.values()
    ]

  def examples(self):
    """Arguments for the export."""
    if not self.together:
      return tuple(self.arguments(0))
    shared = torch.zeros(16)
    return tuple(shared[: torch.Size(s).numel()].view(s) for s in self.inputs.values())

  def __str__(self):
    states = "\n".join(
      f"{name} = {kind} of base{base}{view}, base{base}: {self.bases[base]} at {self.offsets[base]}"
      for name, kind, base, view in self.states
    )
    return f"program {self.seed}\n{states}\n{self.text()}\n"


class Model(torch.nn.Module):
  pass


def valid(seed):
  """The program of a seed, or None if eager mode cannot run it."""
  program = Program(seed)
  model = program.model()
  try:
    with torch.no_grad():
      for run in range(RUNS):
        model(*program.arguments(run))
  except RuntimeError:
    return None
  return program


def compare(program, results, arguments=None):
  """Asserts that the results of all runs are those of eager mode, and if `arguments` are given that
  what is in them after the runs is the same too."""
  model = program.model()
  for run in range(RUNS):
    inputs = program.arguments(run)
    with torch.no_grad():
      expected = model(*inputs)
    for one, other in zip(results[run], expected, strict=True):
      torch.testing.assert_close(one, other, msg=f"run {run}: {one}, not {other}\n{program}")
    if arguments:
      for one, other in zip(arguments[run], inputs, strict=True):
        torch.testing.assert_close(one, other, msg=f"run {run}: {one}, not {other}\n{program}")


def check_on_host(programs, folder, target):
  """Exports the programs as functions of one artifact and compares them."""
  functions = {
    f"p{program.seed}": husk.Function(program.model(), program.examples()) for program in programs
  }
  husk.export(functions, folder / "made.husk", targets=(target,))
  with artifact_runner.Runner(folder / "made.husk") as runner:
    for program in programs:
      arguments = [program.arguments(run) for run in range(RUNS)]
      results = [runner.run(inputs, f"p{program.seed}") for inputs in arguments]
      compare(program, results, arguments)


def check_on_cuda(program, folder):
  import cuda_numerics

  runs = [dict(zip(program.inputs, program.arguments(run))) for run in range(RUNS)]
  results = cuda_numerics.computed(
    program.model(), program.examples(), None, runs, folder, tune="none"
  )
  compare(program, [list(one.values()) for one in results])


def check_alone(program, folder):
  from husk.host import kernels

  check_on_host([program], folder, f"host:{kernels.isas()[0]}")


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--seconds", type=float, default=600)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--host", action="store_true")
  parser.add_argument("--cuda", action="store_true")
  options = parser.parse_args()
  seed, counts, end = options.seed, {"ran": 0, "invalid": 0, "failed": 0}, time.time()
  end += options.seconds
  while time.time() < end:
    program = valid(seed)
    seed += 1
    if program is None:
      counts["invalid"] += 1
      continue
    with tempfile.TemporaryDirectory() as folder:
      for is_left_out, check in ((options.cuda, check_alone), (options.host, check_on_cuda)):
        if not is_left_out:
          try:
            check(program, pathlib.Path(folder))
            counts["ran"] += 1
          except Exception as error:
            counts["failed"] += 1
            print(f"{program}{type(error).__name__}: {str(error)[:1500]}\n", flush=True)
  print(f"seeds {options.seed} to {seed - 1}: {counts}")
  return counts["failed"] > 0


if __name__ == "__main__":
  sys.exit(main())
