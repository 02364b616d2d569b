"""`save_compiled`: a region of torch.compile(backend="husk") as an artifact."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import artifact, hir, output
from .errors import Unsupported, within
from .hir import huskc
from .inductor import torch_compat
from .jit import recording, regions, saved
from .program import weights
from .runtime import Error, load
from .version import VERSION

if TYPE_CHECKING:
  import torch

Path = str | os.PathLike[str]


def save_compiled(
  compiled: Any,
  path: Path,
  args: tuple[Any, ...] | None = None,
  kwargs: Mapping[str, Any] | None = None,
  *,
  graphs: str = "latest",
  function: str = "forward",
  metadata: Mapping[str, str] | None = None,
  ops: Iterable[str] = (),
  keep: Path | None = None,
) -> pathlib.Path:
  """Saves what a callable of torch.compile(backend="husk") runs to the artifact `path`, and returns
  `path`. Nothing is compiled again: the artifact has the kernels that the process runs.

  Parameters, buffers and other tensors of the model become constants, with the values that they
  have now; a buffer that the graph writes becomes state. Inputs have the names of the callable's
  parameters. Results nest as the callable returns them, in tuples, lists and dicts; other
  containers become a flat tuple. The artifact is for this machine's instruction set or GPU.

  compiled: a result of torch.compile, or a module whose method compile() was called.
  args, kwargs: the arguments of a call whose graph is saved; torch compiles it if no graph fits.
    Without them it is the graph that ran last. To find where inputs and results belong,
    `save_compiled` calls the callable once, with these arguments or else with ones of the shapes
    for which torch compiled the graph. The call does not change buffers of the model.
  graphs: "latest", or "all": each graph of the callable that can still run becomes a function, in
    the order of their compilation: `function`, then `function` with _2, _3, and so on.
  function: the name of the function.
  metadata: texts of the author, by key.
  ops: names or patterns of operators that the application registers where it loads the artifact.
  keep: a folder in which the `.hir`, the images and the weights stay.

  A graph that was compiled for training is saved without what it keeps for the backward; a
  backward is not saved. Unsupported is raised, and nothing is written, if the graph breaks, calls
  an operator that only PyTorch has, assigns tensors to attributes, or if a result or an argument
  of the graph is computed in Python.
  """
  path = pathlib.Path(path)
  if graphs not in ("latest", "all"):
    raise ValueError(f'graphs={graphs!r}: give "latest" or "all"')
  if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.:]*", function):
    raise ValueError(f"{function!r} is no name of a function: give letters, digits and `_`")
  if graphs == "all" and args is not None:
    raise ValueError('graphs="all" saves the graphs that torch has: give no args')
  huskc.require()
  output.require(path)
  callee = regions.callee(compiled)
  calls: list[tuple[regions.Entry | None, tuple[Any, ...], dict[str, Any]]]
  if args is not None or kwargs is not None:
    calls = [(None, tuple(args or ()), dict(kwargs or {}))]
  else:
    entries = regions.entries(callee)
    if not entries:
      raise Unsupported(
        f'torch has compiled nothing of {callee.name} with backend="husk": call it first, with '
        "fullgraph=True to see why torch would not compile it"
      )
    chosen = entries[:1] if graphs == "latest" else sorted(entries, key=lambda one: one.number)
    calls = [(entry, *regions.arguments(entry, callee)) for entry in chosen]
  written = _Artifact(callee, function, ops, [function] * len(calls))
  for entry, call_args, call_kwargs in calls:
    written.add(entry, call_args, call_kwargs, skips=graphs == "all")
  with contextlib.ExitStack() as stack:
    if keep is None:
      folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="husk-")))
    else:
      folder = pathlib.Path(keep)
      folder.mkdir(parents=True, exist_ok=True)
    text, tensors = written.write_text(folder, metadata or {})
    if keep is not None:
      weights.save_file(tensors, folder)
    with output.replaced(path) as compiled_file:
      huskc.compile(text, compiled_file, weights.FILE, functools.partial(weights.save, tensors))
      written.check_operators(compiled_file)
  return path


class _Artifact:
  """The functions of an artifact while they are collected."""

  def __init__(
    self, callee: regions.Callee, function: str, ops: Iterable[str], expected: list[str]
  ) -> None:
    self.callee, self.function, self.ops = callee, function, tuple(ops)
    self.expected = expected  # one name for each function
    self.names = hir.Names()
    self.weights = saved.Weights(self.names)
    self.functions: list[saved.FunctionWriter] = []
    self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    self.trees: dict[str, Any] = {}

  def add(
    self,
    entry: regions.Entry | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    skips: bool,
  ) -> None:
    """Adds the graph that a call runs. `entry` is the graph that is expected to run; with `skips`
    another one that runs in its place is none of the functions."""
    if entry is not None:
      self._check_breaks(entry)
    args, kwargs = recording.without_history((args, kwargs))
    run, found, result = self._run(entry, args, kwargs)
    if entry is not None and found.number != entry.number:
      if skips:
        return
      raise Unsupported(
        f"torch runs another graph of {self.callee.name} for the arguments of its last call: give "
        "args="
      )
    number = len(self.functions) + 1
    name = self.function if number == 1 else f"{self.function}_{number}"
    known = recording.names_of_tensors(self.callee.module)
    writer = saved.FunctionWriter(
      name, run, found, self.callee, self.names, self.weights, known, self.ops
    )
    with within(name, self.expected):
      self.trees[name] = writer.write(args, kwargs, result)
    self.functions.append(writer)
    self.calls.append((args, kwargs))

  def _check_breaks(self, entry: regions.Entry) -> None:
    if entry.breaks:
      raise Unsupported(
        f"the graph of {self.callee.name} breaks in {', '.join(entry.breaks)}: a function of a "
        "file is one graph; torch.compile(..., fullgraph=True) says why it breaks"
      )

  def _run(
    self, entry: regions.Entry | None, args: tuple[Any, ...], kwargs: dict[str, Any]
  ) -> tuple[recording.Run, regions.Entry, Any]:
    """The run of the only graph of a call, and the result of the call."""
    import torch

    name = self.callee.name
    attributes = recording.AttributesKept(self.callee.module)
    shapes = recording.ShapesKept((args, kwargs))
    with contextlib.ExitStack() as stack:
      if entry is not None:
        stack.enter_context(torch.inference_mode(entry.region.inference))
        stack.enter_context(torch.set_grad_enabled(entry.region.grad))
      runs = stack.enter_context(recording.recorded())
      result = self.callee.call(*args, **kwargs)
    assigned = attributes.assigned()
    if assigned:
      raise Unsupported(
        f"{name} assigns another tensor to {', '.join(assigned)}: copy into it by copy_()"
      )
    if shapes.changed():
      raise Unsupported(
        f"{name} changes the shape or the strides of an argument in place: return the view instead"
      )
    entries = regions.entries(self.callee)
    if entries:
      self._check_breaks(entries[0])
    if len(runs) != 1 or not entries:
      raise Unsupported(
        f"a call of {name} runs {len(runs)} graphs of Husk, and a function of a file is one graph: "
        "torch.compile(..., fullgraph=True) says why"
      )
    return runs[0], entries[0], result

  def check_operators(self, path: pathlib.Path) -> None:
    """Runs the functions in which an operator of Husk takes the place of PyTorch's: an operator
    tells only when it runs whether it takes the dtypes of a call."""
    import torch
    from torch.utils import _pytree as pytree

    for index, (writer, (args, kwargs)) in enumerate(zip(self.functions, self.calls)):
      if not writer.runs_operators_of_husk():
        continue
      args, kwargs = pytree.tree_map_only(torch.Tensor, _copy, (args, kwargs))
      function = list(load(path).functions.values())[index]
      try:
        function(*args, **kwargs)
      except Error as error:
        raise Unsupported(
          f"the graph calls {', '.join(writer.source.called)} through PyTorch, and Husk's operator "
          f"refuses the call: {error}"
        ) from error

  def write(self, folder: pathlib.Path, metadata: Mapping[str, str]) -> pathlib.Path:
    """Writes the `.hir`, the images and the weights to a folder; returns the path of the `.hir`."""
    text, tensors = self.write_text(folder, metadata)
    weights.save_file(tensors, folder)
    return text

  def write_text(
    self, folder: pathlib.Path, metadata: Mapping[str, str]
  ) -> tuple[pathlib.Path, dict[str, torch.Tensor]]:
    """Writes the `.hir` and the images to a folder; returns the path of the `.hir`, and the tensors
    of its file of weights."""
    targets = {writer.source.target for writer in self.functions}
    if len(targets) > 1:
      raise Unsupported(f"the graphs of {self.callee.name} run on several devices")
    (target,) = targets
    row = target.split()[1]
    program = hir.Program(
      f"husk {VERSION}, torch {torch_compat.torch_version()}", user=dict(metadata)
    )
    program.targets.append(target)
    trees = list(self.trees.values())
    program.tree = json.dumps(trees[0] if len(trees) == 1 else {"functions": self.trees})
    functions: list[str] = []
    for writer in self.functions:
      prefix = "" if len(self.functions) == 1 else f"{writer.name}."
      lines, rows, files = writer.lines(prefix, row)
      functions += ["", *lines]
      program.rows += rows
      compiled = folder / "compiled.husk"
      compiled.write_bytes(writer.run.artifact())
      images = artifact.images(compiled) if files else {}
      compiled.unlink()
      for file, image in files.items():
        (folder / file).write_bytes(images[image])
    program.data, tensors = self.weights.lines()
    text = folder / "model.hir"
    text.write_text(program.text() + "\n".join(functions) + "\n", encoding="utf-8")
    return text, tensors


def _copy(tensor: Any) -> Any:
  return tensor.detach().clone()
