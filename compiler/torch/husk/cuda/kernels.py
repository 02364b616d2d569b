"""Triton kernels of a CUDA target: from Triton source to a cubin, and to the rows and launches of
the `.hir` that name it.

The parameters of a cubin are the parameters of the kernel's signature in order, except specialised
ones (`constexpr`, ints that equal 1, None), then the address for failed asserts (asserts.py) if the
kernel has asserts, then two pointers to scratch memory (`global_scratch`, `profile_scratch`). The
arena has scratch memory for each block; the pointer is null if the kernel needs none.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import hashlib
import linecache
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy

from .. import prints
from ..errors import CompileError, Unsupported
from ..hir import (
  AssertFlag,
  Backend,
  Buffer,
  Descriptor,
  KernelCall,
  LaunchArg,
  Library,
  NullArg,
  ScratchArg,
  Statement,
  ValueArg,
  View,
  ViewArg,
  launches,
)
from ..inductor import failures, torch_compat
from ..inductor.lines import InductorObject
from . import ahead, asserts, grids, launchable, pdl, rewrites
from .gemm_configs import Config
from .target import Target
from .tuning import Tuning


@dataclasses.dataclass
class Kernel:
  """A compiled kernel.

  arguments: the names of a call's arguments, in order.
  parameters: the (name, type) of the cubin's parameters without the pointers to scratch memory.
  access: "read", "write" or "both" for each pointer.
  scratch: (bytes per block, alignment) of both kinds of scratch memory.
  triton_meta: Inductor's description of the signature and the constants.
  early: the arguments whose memory is read before the wait.
  pdl_in_graph: whether some of that memory is no constant, so that the kernel may overlap with the
    one before it only in a graph, which begins when everything before it has ended.
  """

  name: str
  symbol: str
  cubin: bytes
  ptx: str
  arguments: list[str]
  parameters: list[tuple[str, str]]
  access: dict[str, str]
  block: tuple[int, int, int]
  shared: int
  cluster: int
  pdl_wait_first: bool
  triggers_early: bool
  cooperative: bool
  scratch: list[tuple[int, int]]
  config: dict[str, Any]
  inductor_meta: dict[str, Any]
  triton_meta: dict[str, Any] = dataclasses.field(default_factory=dict)
  early: frozenset[str] = frozenset()
  pdl_in_graph: bool = False

  @property
  def types(self) -> list[str]:
    """The types of all parameters of the cubin."""
    return [kind for _, kind in self.parameters] + ["ptr", "ptr"]

  def grid(self, call_args: Sequence[Any]) -> tuple[Any, Any, Any]:
    """The grid of a call: three SymPy expressions or ints."""
    names = [*self.arguments, *self.inductor_meta.get("extra_launcher_args", ())]
    if len(call_args) != len(names):
      raise Unsupported(
        f"kernel {self.name}: called with {len(call_args)} arguments, it takes "
        f"{len(names)} ({', '.join(names)})"
      )
    scope = {**self.config, **dict(zip(names, call_args))}
    x, y, z = grids.of_call(self.name, self.inductor_meta, self.config, scope)
    return (x * self.cluster, y, z)


@dataclasses.dataclass(frozen=True)
class Heuristics:
  """The arguments of Inductor's `user_autotune`, which makes an autotuner of a Triton function."""

  configs: list[dict[str, Any]]
  triton_meta: dict[str, Any]
  inductor_meta: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Grid:
  """The grid of a kernel: three Python expressions of `arguments`, which a call has after those of
  the kernel. Values of a configuration have their names in braces."""

  sides: tuple[str, str, str]
  arguments: list[str]


@dataclasses.dataclass
class _Definition:
  """A kernel and its calls. `plain` is the source before its asserts are changed, which is what is
  measured; `heuristics` is None if the source makes its autotuner itself."""

  source: str
  kernel: Kernel
  plain: str
  heuristics: Heuristics | None
  config: Config | None = None  # the fastest configuration; None if nothing was measured
  largest_grid: int | None = 0  # blocks, over all calls; None if not known
  calls: int = 0
  # The memory that launches read before they wait, and whether a step before may have written it.
  reads_early: set[tuple[Buffer, bool]] = dataclasses.field(default_factory=set)

  @property
  def reads_constants(self) -> bool:
    """Whether launches read constants alone before they wait. A constant becomes a state as soon as
    a step of some function writes it."""
    spaces = [buffer.row().space for buffer, _ in self.reads_early]
    return spaces != [] and set(spaces) == {"constant"}

  @property
  def is_early(self) -> bool:
    """Whether launches read before they wait what nothing has written since their function began:
    constants, states and inputs."""
    return self.reads_early != set() and all(
      buffer.row().space == "constant"
      or buffer.row().space in ("state", "input")
      and not is_written
      for buffer, is_written in self.reads_early
    )


class CudaKernels(Backend):
  """The kernels of one CUDA target, for all functions of a program. `fake_cuda.cuda(target)` must
  be open.

  prefix: the beginning of the names of all rows.
  trigger: the policy of `pdl.triggers_early`.
  wait: whether kernels wait for their predecessors themselves, if the target supports it.
  tuned: how configurations are chosen.
  assert_mode: what becomes of asserts, as the option `asserts` of an export.
  texts: the list to which the texts of asserts are appended; other targets may use the same list.
  note: is called with each remark for the user.
  libraries: what computes operators in place of kernels.
  """

  # The machine code assumes this alignment: Inductor marks its own buffers as divisible by it.
  alignment = 16
  is_beside_host = True

  def __init__(
    self,
    target: Target,
    prefix: str = "",
    trigger: str = "never",
    wait: bool = True,
    tuned: Tuning | None = None,
    assert_mode: str = "status",
    texts: list[str] | None = None,
    note: Callable[[str], object] | None = None,
    libraries: Iterable[Library] = (),
  ) -> None:
    self.target, self.prefix, self.trigger = target, prefix, trigger
    self.libraries: Sequence[Library] = tuple(libraries)
    self.tuning = tuned or Tuning("heuristic")
    self.assert_mode = assert_mode
    self.texts = [] if texts is None else texts
    self.note = note or (lambda text: None)
    self.wait = wait and pdl.supported(target.capability)
    pdl.triggers_early(trigger, None, 0)  # refuses an unknown policy
    self._definitions: dict[str, _Definition] = {}  # by the name of the row
    self._by_source: dict[str, str] = {}  # the row, by a hash of everything but the kernel's name
    self._names: dict[str, str] = {}  # the row, by the name in the current function
    self._started: dict[str, ahead.Started] = {}  # what threads compile, by the same hash

  def options(self) -> dict[str, Any]:
    """Inductor's options for this target, in addition to those of `fake_cuda.cuda`."""
    return {}

  def begin_function(self) -> None:
    """Forgets the names of kernels, which are Inductor's and begin anew in every function."""
    self._names = {}

  def assert_number(self, text: str) -> int:
    """The number of an assert of a kernel of Husk's, which the kernel stores in asserts.PARAMETER
    where the assert does not hold. `text` begins with the name of the kernel. 0 if asserts are
    off."""
    if self.assert_mode == "off":
      return 0
    line = f"kernel {self.prefix}{text}"
    if line not in self.texts:
      self.texts.append(line)
    return self.texts.index(line) + 1

  def compile_ahead(self, definitions: Sequence[tuple[str, str]]) -> None:
    if len(definitions) < 2 or self.tuning.measures:
      return
    with ahead.threads() as pool:
      if pool is None:
        return
      for name, body in definitions:
        with contextlib.suppress(Exception):  # which define_kernel raises in its turn
          self._start(pool, name, body)
    self._started = {key: one for key, one in self._started.items() if one.succeeded}

  def _start(self, pool: ahead.Pool, name: str, body: str) -> None:
    """Has a thread compile a kernel as `_define` will. The source of one with asserts depends on
    the kernels before it."""
    symbol, source = source_of(name, body)
    source = rewrites.of_inductor(source, symbol)
    key = _identity(symbol, source, None)
    if key in self._by_source or key in self._started or asserts.CALL in source:
      return
    tuner = _loaded(symbol, source, self.wait, trigger=False)
    configs = self.tuning.ordered(self.target, tuner)
    result = pool.submit(_precompiled, tuner, configs[0])
    self._started[key] = ahead.Started(tuner, configs, result)

  def define_kernel(self, name: str, body: str, metadata: str | None = None) -> None:
    """Compiles the kernel of a KernelDefinitionLine."""
    symbol, source = source_of(name, body)
    self._define(name, symbol, rewrites.of_inductor(source, symbol), None)

  def define(
    self,
    name: str,
    source: str,
    signature: Mapping[str, str],
    constants: Mapping[str, Any],
    aligned: Sequence[str],
    configs: Sequence[Mapping[str, Any]],
    grid: Grid,
  ) -> None:
    """Compiles a kernel that Inductor did not write.

    source: a module that defines the kernel as the Triton function `name`.
    signature: Triton's type of each parameter, in order; "constexpr" for constants.
    constants: the values of the constants that no configuration has.
    aligned: the parameters that are multiples of 16.
    configs: the configurations to choose from, best first.
    """
    from torch._inductor.runtime.hints import DeviceProperties

    target, parameters = self.target, list(signature)
    device = DeviceProperties(
      type="cuda",
      index=0,
      multi_processor_count=target.multi_processor_count,
      cc=target.capability,
      major=target.major,
      regs_per_multiprocessor=target.regs_per_multiprocessor,
      max_threads_per_multi_processor=target.max_threads_per_multi_processor,
      max_threads_per_block=target.max_threads_per_block,
      warp_size=target.warp_size,
    )
    divisible = {(parameters.index(parameter),): [["tt.divisibility", 16]] for parameter in aligned}
    # Inductor finds a grid by the configuration without the limit of registers.
    grids = [
      {
        "config": {key: value for key, value in config.items() if key != "maxnreg"},
        "python": [side.format(**config) for side in grid.sides],
      }
      for config in configs
    ]
    heuristics = Heuristics(
      configs=[dict(config) for config in configs],
      triton_meta={
        "signature": dict(signature),
        "device": device,
        "constants": dict(constants),
        "configs": [divisible],
      },
      inductor_meta={
        "grid_type": "PrecomputedGrid",
        "precomputed_grids": grids,
        "extra_launcher_args": grid.arguments,
        "kernel_name": name,
        "assert_indirect_indexing": False,
      },
    )
    self._define(name, name, rewrites.of_husk(source), heuristics)

  def _define(self, name: str, symbol: str, source: str, heuristics: Heuristics | None) -> None:
    """Compiles the kernel `symbol` of a module unless an equal one exists."""
    key = _identity(symbol, source, heuristics)
    if key not in self._by_source:
      row, n = name, 1
      while row in self._definitions:
        n += 1
        row = f"{name}_{n}"
      with self._explained(name):
        started = self._started.pop(key, None)
        self._definitions[row] = self._defined(symbol, row, source, heuristics, started)
      self._by_source[key] = row
    self._names[name] = self._by_source[key]

  def _defined(
    self,
    name: str,
    row: str,
    source: str,
    heuristics: Heuristics | None,
    started: ahead.Started | None,
  ) -> _Definition:
    """Compiles a kernel, unless a thread does. Its asserts become what the mode of asserts says."""
    from triton.compiler.errors import CompilationError

    if self.assert_mode == "off":
      source = asserts.removed(source)
    if started is None:
      tuner = _loaded(name, source, self.wait, trigger=False, heuristics=heuristics)
    else:
      tuner = started.tuner
    self.tuning.defined(row, tuner)
    if self.assert_mode == "status" and asserts.CALL in source:
      rewrite = asserts.rewrite(source, name, len(self.texts) + 1)
      try:
        changed = _loaded(name, rewrite.source, self.wait, trigger=False, heuristics=heuristics)
        kernel = self._compiled(name, changed)
      except CompilationError as error:
        self.note(
          f"kernel {self.prefix}{row}: its asserts are traps, since without them it does not "
          f"compile: {str(error).strip().splitlines()[-1]}"
        )
      else:
        self.texts += [f"kernel {self.prefix}{row}: {text}" for text in rewrite.texts]
        if rewrite.left:
          self.note(
            f"kernel {self.prefix}{row}: {rewrite.left} of its asserts are traps: what they "
            "protect is not known"
          )
        return _Definition(rewrite.source, kernel, source, heuristics)
    return _Definition(source, self._compiled(name, tuner, started), source, heuristics)

  @contextlib.contextmanager
  def _explained(self, name: str) -> Iterator[None]:
    """Makes a CompileError of what Triton raises."""
    try:
      yield
    except (Unsupported, CompileError, OSError, MemoryError):
      raise
    except Exception as error:
      remedy = _ASSEMBLER if "ptxas" in str(error) else failures.REMEDY
      raise CompileError(
        f"Triton cannot compile the kernel {name} for {self.target.name}: {failures.reason(error)}",
        remedy,
      ) from error

  def _compiled(
    self, name: str, tuner: InductorObject, started: ahead.Started | None = None
  ) -> Kernel:
    configs = started.configs if started else self.tuning.ordered(self.target, tuner)
    return compiled(name, tuner, self.target, self.wait, configs, started)

  def kernel(self, name: str) -> Kernel:
    """The kernel with a name in the current function."""
    return self._definitions[self._names[name]].kernel

  def call_kernel(
    self,
    name: str,
    call_args: Sequence[Any],
    ranges: dict[sympy.Symbol, Any] | None = None,
    extent: Callable[[Any], sympy.Expr] | None = None,
  ) -> KernelCall:
    """The launch of a KernelCallLine. `call_args` has SymPy expressions for ints. `ranges` bounds
    the grid. `extent` returns the bytes of an argument that stands for a buffer, if kernels are
    measured."""
    if name not in self._names:
      raise Unsupported(f"kernel {name}: called but not defined as a Triton kernel")
    row = self._names[name]
    # A SymbolicCallArg is a size that Inductor named for its own launcher.
    call_args = [getattr(argument, "inner_expr", argument) for argument in call_args]
    definition = self._definitions[row]
    if self.tuning.measures and definition.calls == 0:
      self._measure(name, definition, call_args, extent)
    kernel = definition.kernel
    blocks = kernel.grid(call_args)
    values = self._values(kernel, call_args)
    arguments = [
      _launch_argument(kernel, parameter, kind, values) for parameter, kind in kernel.parameters
    ]
    largest = grids.largest(blocks, ranges or {})
    if definition.largest_grid is not None:
      definition.largest_grid = None if largest is None else max(definition.largest_grid, largest)
    definition.calls += 1
    count = sympy.Mul(*blocks)
    for size, alignment in kernel.scratch:
      arguments.append(ScratchArg(count * size, alignment) if size else NullArg())
    return KernelCall(self.prefix + row, blocks, arguments)

  def note_statements(self, statements: Sequence[Statement]) -> None:
    definitions = {
      self.prefix + row: each for row, each in self._definitions.items() if each.kernel.early
    }
    for launch, written in launches(statements) if definitions else ():
      definition = definitions.get(launch.kernel)
      if definition is None:
        continue
      for (parameter, _), argument in zip(definition.kernel.parameters, launch.arguments):
        if parameter in definition.kernel.early:
          assert isinstance(argument, View)
          row = argument.buffer.row()
          definition.reads_early.add((row, row in written))

  @staticmethod
  def _values(kernel: Kernel, call_args: Sequence[Any]) -> dict[str, Any]:
    """The arguments of a call by parameter."""
    values: dict[str, Any] = {}
    for argument, value in zip(kernel.arguments, call_args):
      values.update(
        value.arguments(argument) if isinstance(value, Descriptor) else {argument: value}
      )
    return values

  def _measure(
    self,
    name: str,
    definition: _Definition,
    call_args: Sequence[Any],
    extent: Callable[[Any], sympy.Expr] | None,
  ) -> None:
    """Compiles a kernel again, in the configuration that is fastest on calls like this one."""
    if extent is None:
      raise ValueError(f"kernel {name}: measuring needs the sizes of its buffers")
    kernel, heuristics = definition.kernel, definition.heuristics
    kernel.grid(call_args)  # refuses a wrong number of arguments
    tuner = _loaded(name, definition.plain, self.wait, trigger=False, heuristics=heuristics)
    # The flag of a kernel's asserts is no argument of a call.
    values = {asserts.PARAMETER: None, **self._values(kernel, call_args)}
    named_args = [
      (parameter, values[parameter]) for parameter in tuner.fn.arg_names if parameter in values
    ]
    named_args += zip(
      kernel.inductor_meta.get("extra_launcher_args", ()), call_args[len(kernel.arguments) :]
    )
    definition.config = self.tuning.measured(
      name, self.target, tuner, named_args, torch_compat.size_hint, extent
    )
    if definition.source != definition.plain:
      tuner = _loaded(name, definition.source, self.wait, trigger=False, heuristics=heuristics)
    with self._explained(name):
      definition.kernel = compiled(name, tuner, self.target, self.wait, [definition.config])

  def finish(self) -> None:
    """Decides which kernels trigger early and which read memory before they wait, now that all
    calls of all functions are known, and compiles these again."""
    for definition in self._definitions.values():
      should_trigger, kernel = self._should_trigger(definition), definition.kernel
      if should_trigger or (kernel.early and not definition.is_early):
        tuner = _loaded(
          kernel.name,
          definition.source,
          True,
          should_trigger or kernel.triggers_early,
          definition.heuristics,
          definition.is_early,
        )
        configs = [definition.config]
        if definition.config is None:
          configs = self.tuning.ordered(self.target, tuner)
        with self._explained(kernel.name):
          kernel = compiled(kernel.name, tuner, self.target, True, configs)
      in_graph = bool(kernel.early) and not definition.reads_constants
      definition.kernel = dataclasses.replace(kernel, pdl_in_graph=in_graph)

  def _should_trigger(self, definition: _Definition) -> bool:
    """Whether a kernel is to be compiled again so that it triggers early. Those that read memory
    before they wait do, since they often follow one another."""
    kernel, count = definition.kernel, self.target.multi_processor_count
    return (
      self.wait
      and definition.calls > 0
      and kernel.pdl_wait_first
      and not kernel.triggers_early
      and (
        bool(kernel.early and definition.is_early)
        or pdl.EARLY in definition.source
        or pdl.triggers_early(self.trigger, definition.largest_grid, count)
      )
      and pdl.may_trigger(kernel.ptx)
    )

  def kernels(self) -> list[tuple[str, Kernel]]:
    """The (row name, kernel) of all kernels, in the order of their definition."""
    return [(self.prefix + row, definition.kernel) for row, definition in self._definitions.items()]

  def files(self) -> dict[str, bytes]:
    """The cubins of all kernels by file name."""
    return {_file(name): kernel.cubin for name, kernel in self.kernels()}

  def rows(self, target: str, folder: str = "") -> list[str]:
    """The `image` and `kernel` rows, lines of a `.hir`. `target` is the name of the target's row,
    `folder` the path from the `.hir` to the files ("kernels/")."""
    files = [(name, _file(name), kernel) for name, kernel in self.kernels()]
    lines = [f'image {file} {target} cubin "{folder}{file}"' for _, file, _ in files]
    return lines + [row(name, file, kernel) for name, file, kernel in files]


def _file(name: str) -> str:
  """The name of the file of a cubin. Inductor names a kernel after all of its operators, and file
  systems take up to 255 bytes."""
  if len(name) > _LONGEST_NAME:
    name = f"{name[:_LONGEST_NAME]}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
  return f"{name}.cubin"


_LONGEST_NAME = 200


def _launch_argument(
  kernel: Kernel, parameter: str, kind: str, values: Mapping[str, Any]
) -> LaunchArg:
  """The argument for a parameter of the cubin."""
  if parameter == asserts.PARAMETER:
    return AssertFlag()
  if kind == "ptr":
    return ViewArg(kernel.access[parameter], values[parameter])
  return ValueArg(values[parameter])


def row(name: str, image: str, kernel: Kernel) -> str:
  """The `kernel` row of a `.hir`."""
  x, y, z = kernel.block
  text = f'kernel {name} {image} "{kernel.symbol}" ({", ".join(kernel.types)}) block {x} {y} {z}'
  if kernel.shared:
    text += f" shared {kernel.shared}"
  if kernel.cluster != 1:
    text += f" cluster {kernel.cluster}"
  flags = {
    "pdl_wait_first": kernel.pdl_wait_first and not kernel.pdl_in_graph,
    "pdl_in_graph": kernel.pdl_in_graph,
    "cooperative": kernel.cooperative,
    "triggers_early": kernel.triggers_early,
  }
  text += "".join(f" {flag}" for flag, is_set in flags.items() if is_set)
  return text


# Source


def source_of(name: str, body: str) -> tuple[str, str]:
  """The function's name and the module in `async_compile.triton('name', '''source''',
  device_str='cuda')`, the body of a definition line. The name of a user's own kernel is the user's,
  and differs from the name of the line."""
  try:
    statement: Any = ast.parse(body.strip()).body[0]
    call = statement.value
    maker = ast.unparse(call.func)
    symbol, source = (ast.literal_eval(argument) for argument in call.args[:2])
  except (SyntaxError, AttributeError, IndexError, ValueError) as error:
    raise Unsupported(
      f"kernel {name}: its definition is not understood ({error}): {body.strip()[:80]!r}"
    ) from error
  if maker != "async_compile.triton":
    raise Unsupported(
      f"kernel {name}: made by {maker}, only Triton kernels can go to a CUDA target"
    )
  return symbol, source


def _load(name: str, source: str) -> Any:
  """Executes the module of a kernel, and returns the kernel. The module is not in a file, so that
  no path of this machine gets into the image. Triton finds the text by the name of the module."""
  file = f"{name}.py"
  linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
  module = types.ModuleType(name)
  module.__file__ = file
  exec(compile(source, file, "exec"), vars(module))
  return getattr(module, name)


# Compiling


def _loaded(
  name: str,
  source: str,
  wait: bool,
  trigger: bool,
  heuristics: Heuristics | None = None,
  reads_early: bool = True,
) -> InductorObject:
  """Inductor's autotuner of the kernel `name` of a module."""
  tuner = _load(name, rewrites.to_load(source, name, wait, trigger, reads_early))
  if heuristics is not None:
    tuner = _autotuner(name, tuner, heuristics)
  for attribute in (
    "configs",
    "fn",
    "inductor_meta",
    "triton_meta",
    "size_hints",
    "_precompile_config",
  ):
    if not hasattr(tuner, attribute):
      raise Unsupported(f"kernel {name}: a {type(tuner).__name__} without {attribute}")
  return tuner


def _autotuner(name: str, function: Any, heuristics: Heuristics) -> InductorObject:
  """Inductor's autotuner of a Triton function."""
  from torch._inductor.runtime import triton_heuristics

  arguments = copy.deepcopy(heuristics)  # Inductor changes them
  decorate: Any = triton_heuristics.user_autotune(
    configs=arguments.configs,
    triton_meta=arguments.triton_meta,
    filename=f"{name}.py",
    inductor_meta=arguments.inductor_meta,
  )
  tuner = decorate(function)
  # Inductor reads the limit of registers from a configuration, but does not pass it on.
  compile_options = tuner._create_compile_options
  tuner._create_compile_options = lambda config, meta: {
    **compile_options(config, meta),
    "maxnreg": config.maxnreg,
  }
  return tuner


def _identity(symbol: str, source: str, heuristics: Heuristics | None) -> str:
  """A hash of all of a kernel but its name."""
  identity = source if heuristics is None else f"{source}{heuristics}"
  identity = re.sub(rf"\b{re.escape(symbol)}\b", "kernel", identity)
  return hashlib.sha256(identity.encode()).hexdigest()


def _precompiled(tuner: InductorObject, config: Config) -> InductorObject:
  with prints.kept():
    return tuner._precompile_config(config)


def compiled(
  name: str,
  tuner: InductorObject,
  target: Target,
  wait: bool,
  configs: Sequence[Config],
  started: ahead.Started | None = None,
) -> Kernel:
  """Compiles a kernel in the first configuration that fits the target. `started`: one that a thread
  compiles."""
  from triton.runtime.errors import OutOfResources, PTXASError

  refused = []
  for config in configs:
    try:
      if started is not None and config is configs[0]:
        result = started.result.result()
      else:
        result = _precompiled(tuner, config)
    except (OutOfResources, PTXASError) as error:
      refused.append(f"{config}: {failures.reason(error)}")
      continue
    shared = result.kernel.metadata.shared
    if shared <= target.shared_memory_per_block_optin:
      return _kernel(name, tuner, result, target, wait)
    refused.append(f"{config} wants {shared} bytes of shared memory")
  raise Unsupported(
    f"kernel {name}: no configuration fits {target.name}, which has "
    f"{target.shared_memory_per_block_optin} bytes of shared memory: "
    f"{'; '.join(refused) or 'none given'}"
  )


def _kernel(
  name: str, tuner: InductorObject, result: InductorObject, target: Target, wait: bool
) -> Kernel:
  metadata, forms = result.kernel.metadata, result.kernel.asm
  ptx = forms["ptx"]
  launchable.refuse(name, metadata)
  signature, constants = result.compile_meta["signature"], result.compile_meta["constants"]
  arguments: list[str] = []
  parameters: list[tuple[str, str]] = []
  for index, argument in enumerate(tuner.fn.arg_names):
    if not (index in tuner.fn.constexprs and argument in constants) and not argument.startswith(
      "husk_"
    ):
      arguments.append(argument)
    if argument in constants or signature.get(argument) == "constexpr":
      continue
    parameters.append((argument, launchable.type_of(name, argument, signature[argument])))
  launchable.check_parameters(
    name, metadata.name, ptx, [kind for _, kind in parameters] + ["ptr", "ptr"]
  )
  pdl_check = pdl.check(ptx, metadata.name, reads_early=pdl.PLACE in tuner.fn.src)
  if wait and not pdl_check.first:
    raise Unsupported(
      f"kernel {name}: the wait was put first, but {pdl_check.why_not!r} stands before it in the "
      "PTX"
    )
  cluster = getattr(metadata, "num_ctas", 1)
  return Kernel(
    name=name,
    symbol=metadata.name,
    cubin=forms["cubin"],
    ptx=ptx,
    arguments=arguments,
    parameters=parameters,
    access=launchable.access(name, forms.get("ttir") or forms["ttgir"], metadata.name, parameters),
    block=(target.warp_size * metadata.num_warps, 1, 1),
    shared=metadata.shared,
    cluster=cluster,
    pdl_wait_first=pdl_check.first,
    triggers_early=pdl_check.triggers,
    early=frozenset(
      name
      for place, (name, kind) in enumerate(parameters)
      if place in pdl_check.reads and kind == "ptr"
    ),
    cooperative=bool(getattr(metadata, "launch_cooperative_grid", False)),
    scratch=launchable.scratch_of(name, metadata),
    config=_config(result.config),
    inductor_meta=tuner.inductor_meta,
    triton_meta={key: tuner.triton_meta[key] for key in _TRITON_META if key in tuner.triton_meta},
  )


_ASSEMBLER = (
  "Triton needs its assembler ptxas: install Triton again, or name an assembler of CUDA in "
  "TRITON_PTXAS_PATH"
)
_TRITON_META = ("signature", "constants", "configs")


def _config(config: Config) -> dict[str, Any]:
  from torch._inductor.runtime.triton_heuristics import config_to_dict

  return config_to_dict(config)
