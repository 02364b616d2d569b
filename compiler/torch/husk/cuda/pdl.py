"""Programmatic dependent launch: kernels that wait for their predecessors themselves.

A kernel that executes `griddepcontrol.wait` before it accesses memory may be started while its
predecessors still run (a *programmatic* edge of a CUDA graph). Its launch then costs nothing, and
the wait orders it as a full edge would. The wait has to come before every access, and in every
kernel: the data that a kernel reads may have been written any number of kernels ago, and only if
all of these kernels waited is that work finished (waiting is transitive). So `rewrite` puts the
wait at the head of the kernel, and `check` reads in the PTX that the wait is still there after
compilation. Only the result of `check` is written into the file.

A kernel may read memory before it waits that nobody writes: constants of the file; in a graph also
states and inputs that no step before it in its function writes, because a graph begins when
everything before it has ended. Its text then has the line PLACE where the wait belongs, and `check`
finds out which parameters lead to what is read before that. The kernel keeps its wait there only if
that holds for each of its launches (kernels.py). It also triggers early, so that the next one can
read ahead. On an H200, 65 products of one row, each with its own weights, took 569 us so, 631 if
they waited first and triggered, and 633 if they waited first and did not. Small kernels between
such products had better not trigger: eight layers of a decoder took 385 us without, 427 with it,
and 404 if every kernel waited first. Attention that reads the first keys of its cache before it
waits made a step of eight layers with 16 keys 353 to 346 us, with 510 keys 375 to 367.

`griddepcontrol.launch_dependents` lets the successors start even before the kernel is done.
Measured on an H200 with 100 dependent kernels: on a grid of at most one block per multiprocessor it
saves about 10 % more than the wait alone (1 x 128: 62 against 69 us, 132 x 256: 81 against 92; full
edges 95 and 113). With many waves of blocks it can double the time, because waiting blocks occupy
the multiprocessors (16384 x 256: 2024 against 1098 us). The policy "small" therefore lets a kernel
trigger early only if the largest grid of its calls fits the multiprocessors at once. The policy
does not look at the successors: in a GPT whose small kernels precede products with much shared
memory, batch 8 x 128, it made the graph slower than full edges (587 against 439 us), while the wait
alone made it faster (429). So the default is "never".
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from collections.abc import Iterator, Sequence

from . import source_edit

TRIGGERS = ("never", "small")

# The line of a kernel before which it reads constants alone.
PLACE = "# The wait for the preceding kernel stands here."

# The line of a kernel that triggers early, although it reads nothing before it waits.
EARLY = "# The successors of this kernel start early."

_WAIT = "tl.extra.cuda.gdc_wait()"
_TRIGGER = "tl.extra.cuda.gdc_launch_dependents()"


def supported(capability: int) -> bool:
  """Whether a compute capability has `griddepcontrol`, which came with 9.0."""
  return capability >= 90


def triggers_early(policy: str, largest_grid: int | None, multi_processor_count: int) -> bool:
  """Whether a kernel with at most `largest_grid` blocks (None: unknown) lets its successors start
  at once."""
  if policy not in TRIGGERS:
    raise ValueError(f"trigger={policy!r}: give one of {', '.join(map(repr, TRIGGERS))}")
  return policy == "small" and largest_grid is not None and largest_grid <= multi_processor_count


def rewrite(source: str, name: str, trigger: bool, reads_early: bool = True) -> str:
  """The module `source` in which the kernel `name` begins with the wait, and with the trigger
  before the wait if `trigger` is set. If the kernel has the line PLACE, and `reads_early`, it
  waits there."""
  statements = [_TRIGGER] if trigger else []
  if reads_early and PLACE in source:
    source = re.sub(rf"^( *){re.escape(PLACE)}$", rf"\g<0>\n\1{_WAIT}", source, flags=re.M)
    return source_edit.with_statements(source, name, statements) if statements else source
  return source_edit.with_statements(source, name, [*statements, _WAIT])


def may_trigger(ptx: str) -> bool:
  """Whether a kernel may let its successors start early. A kernel that takes tensor memory may not:
  a waiting successor would hold tensor memory that a later block of this kernel needs."""
  return "tcgen05.alloc" not in ptx


# Instructions that may precede the wait: they read parameters and special registers, and compute.
# Any other instruction may access memory, or may branch around the wait.
_HARMLESS = re.compile(
  r"(ld\.param|mov|cvt|cvta|add|sub|mul|mad|mul24|div|rem|abs|neg|min|max|shl|shr|shf|and|or|xor|"
  r"not|cnot|lop3|bfe|bfi|bfind|brev|clz|popc|prmt|setp|selp|set|fma|shfl\.sync|"
  r"griddepcontrol\.launch_dependents)(\.|$)"
)

# From 10.0 on Triton first takes tensor memory and reads from shared memory where it is; tiles that
# were read early may be put into shared memory at once. Only the block itself sees these
# instructions, so they may precede the wait, with a guard too.
_BLOCK_LOCAL = re.compile(
  r"(@!?%p\d+\s+)?(tcgen05\.(alloc|relinquish_alloc_permit)|bar\.sync|(ld|st)\.shared|"
  r"ldmatrix[\w.]*\.shared)(\.|\s|$)"
)


@dataclasses.dataclass(frozen=True)
class WaitCheck:
  """The result of `check`. `first` says whether every path waits before any access but those of
  `reads`, `triggers` whether `launch_dependents` is executed at all. `why_not` is the instruction
  that precedes the wait; None if `first` is set. `reads` are the places of the parameters whose
  memory is read before the wait."""

  first: bool
  triggers: bool
  why_not: str | None
  reads: frozenset[int] = frozenset()


def check(ptx: str, symbol: str, reads_early: bool = False) -> WaitCheck:
  """Reads the entry block of `symbol`. All paths to the rest of the kernel begin in it, so a wait
  there is enough. The first branch may be one that separates the block's warps (`_separated`).
  `reads_early`: whether memory of parameters may be read before the wait."""
  instructions = list(_instructions(_entry(ptx, symbol)))
  triggers = any(i.startswith("griddepcontrol.launch_dependents") for i in instructions)
  at, separated = 0, False
  sources = _Sources(symbol)
  while at < len(instructions):
    instruction = instructions[at]
    if instruction.startswith("griddepcontrol.wait"):
      return WaitCheck(True, triggers, None, sources.read)
    first_warps = None if separated else _separated(instructions, at)
    if first_warps is not None:
      at, separated = first_warps, True
      continue
    is_read = sources.follow(instruction) and reads_early
    if not is_read and not _is_harmless(instruction):
      return WaitCheck(False, triggers, instruction)
    at += 1
  return WaitCheck(False, triggers, "the end of the kernel")


# A read of global memory, with a guard or without: the registers that it sets, and the address.
_READ = re.compile(
  r"(?:@!?%p\d+\s+)?ld\.global(?:\.\w+|::\w+)*\s+(<[^>]*>|%\w+)\s*,\s*\[\s*(%\w+)[^\]]*\]"
)
_REGISTER = re.compile(r"%[a-z]+\d+")


@dataclasses.dataclass(frozen=True)
class _Source:
  """The parameters that decide a number, and those of the memory that decides it besides."""

  given: frozenset[int] = frozenset()
  in_memory: frozenset[int] = frozenset()

  def __or__(self, other: _Source) -> _Source:
    return _Source(self.given | other.given, self.in_memory | other.in_memory)

  @property
  def all(self) -> frozenset[int]:
    return self.given | self.in_memory


class _Sources:
  """What decides the number in a register of the kernel `symbol`. An address is computed of a
  pointer, which is a parameter, and of numbers, which may have been read from memory. `read` are
  the places of the parameters that lead to the memory that was read."""

  def __init__(self, symbol: str) -> None:
    self.read: frozenset[int] = frozenset()
    self._parameter = re.compile(re.escape(symbol) + r"_param_(\d+)\b")
    self._of: dict[str, _Source | None] = {}  # None: of other memory

  def follow(self, instruction: str) -> bool:
    """Takes note of the next instruction. Returns whether it is a read of memory to which a
    parameter leads."""
    read = _READ.fullmatch(instruction)
    if read:
      found = self._of.get(read.group(2))
      is_led = found is not None and found.given != frozenset()
      for register in _REGISTER.findall(read.group(1)):
        self._of[register] = _Source(in_memory=found.all) if found and is_led else None
      if found and is_led:
        self.read |= found.all
      return is_led
    registers = _REGISTER.findall(instruction)
    if not registers or instruction.startswith("st."):
      return False
    given = frozenset(int(place) for place in self._parameter.findall(instruction))
    # A parameter may be read by an address that is one of several parameters'.
    of_parameter = instruction.startswith("ld.param") and self._of.get(registers[-1])
    if instruction.startswith(("ld.", "atom.", "@")) and not given and not of_parameter:
      self._of[registers[0]] = None
      return False
    sources = [self._of.get(register, _Source()) for register in registers[1:]]
    known = [each for each in sources if each is not None]
    is_known = len(known) == len(sources)
    united = functools.reduce(operator.or_, known, _Source(given))
    self._of[registers[0]] = united if is_known else None
    return False


def _is_harmless(instruction: str) -> bool:
  name = instruction.split()[0].rstrip(";")
  return bool(_HARMLESS.match(name) or _BLOCK_LOCAL.match(instruction))


# The instructions that tell the first warps of a block, and the branch that separates them from the
# others.
_SEPARATED = re.compile(
  r"mov\.u32\s+(%\w+), %tid\.x\n(?:.*\n)*?shr\.u32\s+(%\w+), \1, 5\n(?:.*\n)*?"
  r"shfl\.sync\.idx\.b32\s+(%\w+), \2, 0, 31, -1\n(?:.*\n)*?setp\.lt\.u32\s+(%\w+), \3, [1-9]\d*\n"
  r"@(!?)\4\s+bra\s+(\S+)$"
)


def _separated(instructions: Sequence[str], at: int) -> int | None:
  """The index at which the first warps of a warp-specialised kernel go on after the branch at `at`.

  None unless the branch is the one by which Triton separates the warps, and the other warps access
  no memory before they reach a barrier of the whole block. The first warps reach that barrier after
  their wait, which is among the instructions that are read next.
  """
  if not instructions[at].startswith("@"):
    return None
  branch = _SEPARATED.search("\n".join(instructions[: at + 1]))
  if not branch:
    return None
  labels = {
    instruction.removesuffix(":"): index
    for index, instruction in enumerate(instructions)
    if instruction.endswith(":")
  }
  first: int | None = labels.get(branch.group(6))
  others: int | None = at + 1
  if branch.group(5):
    first, others = others, first
  for _ in instructions:
    if first is None or others is None or others >= len(instructions):
      return None
    instruction = instructions[others]
    # A barrier without a number of threads is one of the whole block.
    if re.fullmatch(r"(bar|barrier)\.sync(\.aligned)?\s+\d+", instruction):
      return _after_registers(instructions, first)
    if instruction.startswith("bra.uni"):
      others = labels.get(instruction.split()[1])
    elif (
      instruction.endswith(":")
      or _is_harmless(instruction)
      or instruction.startswith("setmaxnreg.")
    ):
      others += 1
    else:
      return None
  return None


def _after_registers(instructions: Sequence[str], at: int) -> int:
  """Skips labels and `setmaxnreg`, which do not access memory."""
  while at < len(instructions) and (
    instructions[at].endswith(":") or instructions[at].startswith("setmaxnreg.")
  ):
    at += 1
  return at


def _entry(ptx: str, symbol: str) -> str:
  """The body of the entry `symbol`."""
  head = re.search(r"\.entry\s+" + re.escape(symbol) + r"\s*\(", ptx)
  if not head:
    raise ValueError(f"no entry {symbol} in the PTX")
  begin = ptx.index("{", head.end())
  depth = 0
  for match in re.compile(r'"(?:[^"\\]|\\.)*"|[{}]').finditer(ptx, begin):
    depth += {"{": 1, "}": -1}.get(match.group(), 0)
    if depth == 0:
      return ptx[begin + 1 : match.start()]
  raise ValueError(f"the entry {symbol} of the PTX has no end")


def _instructions(body: str) -> Iterator[str]:
  """The instructions in order. A label counts as an instruction, since other code may jump to it.
  Declarations and comments do not count, and the braces of inline assembly only bound its
  registers. A guarded instruction keeps its guard, so that it does not match `_HARMLESS`: it may be
  skipped."""
  body = re.sub(r"//[^\n]*|/\*.*?\*/", "", body, flags=re.S)
  # The braces of a vector of registers or numbers are a part of the instruction.
  body = re.sub(r"\{(\s*[%\w-][^{};\n]*)\}", r"<\1>", body)
  for part in re.split(r"[;{}\n]", body):
    text = part.strip()
    while label := re.match(r"[\w$%]+:", text):
      yield label.group()
      text = text[label.end() :].strip()
    if text and not text.startswith("."):
      yield text
