"""Kernels that wait first.

A kernel that executes `griddepcontrol.wait` before it touches memory may be started while its predecessors still run
(a *programmatic* edge of a CUDA graph): its launch then costs nothing, and the wait orders it as a full edge would.
The wait has to come before every access, and in every kernel: what this one reads may have been written any number of
kernels ago, and only if all of them waited is that work finished (waiting is transitive). So `rewritten` puts the
wait at the head of the kernel, and `waits_first` reads in the PTX that it is still there after compilation. Only what
it finds is written into the file.

`griddepcontrol.launch_dependents` lets the successors start even before this kernel is done. Measured on an H200 with
100 dependent kernels: on a grid of at most one block a multiprocessor it saves some 10 % more than the wait alone
(1 x 128: 62 against 69 us, 132 x 256: 81 against 92; full edges 95 and 113). With many waves it can double the time,
because waiting blocks take the room of working ones (16384 x 256: 2024 against 1098 us). Policy "small" therefore lets
a kernel trigger early only where the largest grid that its calls may have fits the multiprocessors in one go. That
looks at one side only: in a GPT whose small kernels stand before products with much shared memory, batch 8 x 128, it
made the graph slower than full edges (587 against 439 us), where the wait alone made it faster (429). So the default is
"never".
"""

import re

from . import sources

TRIGGERS = ("never", "small")

_WAIT = "tl.extra.cuda.gdc_wait()"
_TRIGGER = "tl.extra.cuda.gdc_launch_dependents()"


def supported(capability):
  """`griddepcontrol` came with compute capability 9.0; earlier assemblers refuse it."""
  return capability >= 90


def triggers_early(policy, largest_grid, multi_processor_count):
  """Whether a kernel with at most `largest_grid` blocks (None: unknown) lets its successors start at once."""
  if policy not in TRIGGERS:
    raise ValueError(f"trigger={policy!r}: give one of {', '.join(map(repr, TRIGGERS))}")
  return policy == "small" and largest_grid is not None and largest_grid <= multi_processor_count


def rewritten(source, name, trigger):
  """The module `source` with the wait (before it the trigger, if asked for) as the first statements of kernel
  `name`."""
  return sources.with_statements(source, name, ([_TRIGGER] if trigger else []) + [_WAIT])


def may_trigger(ptx):
  """Whether a kernel may let its successors start early. Not if it takes tensor memory: a successor that waits would hold
  some that a block of this kernel has yet to get."""
  return "tcgen05.alloc" not in ptx


# What may stand before the wait: reading parameters and special registers, and computing. Whoever is not on the list
# may touch memory, or may leave the way to the wait.
_HARMLESS = re.compile(
    r"(ld\.param|mov|cvt|cvta|add|sub|mul|mad|mul24|div|rem|abs|neg|min|max|shl|shr|shf|and|or|xor|not|cnot|lop3|bfe|"
    r"bfi|bfind|brev|clz|popc|prmt|setp|selp|set|fma|shfl\.sync|griddepcontrol\.launch_dependents)(\.|$)")

# So may what Triton puts first from 10.0 on, to take tensor memory and read from shared memory where it is: only the block
# itself sees that. Guards do not matter there.
_OWN = re.compile(r"(@!?%p\d+\s+)?(tcgen05\.(alloc|relinquish_alloc_permit)|bar\.sync|ld\.shared)(\.|\s|$)")


class Waits:
  """What the PTX of an entry says: `first`, whether every path waits before any access; `triggers`, whether
  `launch_dependents` is executed at all; `why_not`, the instruction that stands in the way."""

  def __init__(self, first, triggers, why_not):
    self.first, self.triggers, self.why_not = first, triggers, why_not


def check(ptx, symbol):
  """Reads the entry block of `symbol`. All ways to the rest of the kernel begin in it, so a wait there is enough; but the first
  branch may be one that parts the block's warps (`_parted`)."""
  instructions = list(_instructions(_entry(ptx, symbol)))
  triggers = any(i.startswith("griddepcontrol.launch_dependents") for i in instructions)
  at, parted = 0, False
  while at < len(instructions):
    instruction = instructions[at]
    if instruction.startswith("griddepcontrol.wait"):
      return Waits(True, triggers, None)
    following = None if parted else _parted(instructions, at)
    if following is not None:
      at, parted = following, True
      continue
    if not _is_harmless(instruction):
      return Waits(False, triggers, instruction)
    at += 1
  return Waits(False, triggers, "the end of the kernel")


def _is_harmless(instruction):
  return bool(_HARMLESS.match(instruction.split()[0].rstrip(";")) or _OWN.match(instruction))


# Which warps of a block are its first ones, and the branch that parts them from the others.
_PARTED = re.compile(r"mov\.u32\s+(%\w+), %tid\.x\n(?:.*\n)*?shr\.u32\s+(%\w+), \1, 5\n(?:.*\n)*?"
                     r"shfl\.sync\.idx\.b32\s+(%\w+), \2, 0, 31, -1\n(?:.*\n)*?setp\.lt\.u32\s+(%\w+), \3, [1-9]\d*\n"
                     r"@(!?)\4\s+bra\s+(\S+)$")


def _parted(instructions, at):
  """Where the first warps of a block go on, if the instruction at `at` is where Triton sends the others of a warp-specialised
  kernel elsewhere, and they touch nothing until they come to a barrier of the whole block. The first warps come to it behind what
  is read next, their wait. None if not."""
  if not instructions[at].startswith("@"):
    return None
  found = _PARTED.search("\n".join(instructions[:at + 1]))
  if not found:
    return None
  labels = {instruction.removesuffix(":"): index for index, instruction in enumerate(instructions) if instruction.endswith(":")}
  first, others = labels.get(found.group(6)), at + 1
  if found.group(5):
    first, others = others, first
  for _ in instructions:
    if first is None or others is None or others >= len(instructions):
      return None
    instruction = instructions[others]
    if re.fullmatch(r"(bar|barrier)\.sync(\.aligned)?\s+\d+", instruction):      # no number of threads: all
      return _behind_registers(instructions, first)
    if instruction.startswith("bra.uni"):
      others = labels.get(instruction.split()[1])
    elif instruction.endswith(":") or _is_harmless(instruction) or instruction.startswith("setmaxnreg."):
      others += 1
    else:
      return None
  return None


def _behind_registers(instructions, at):
  """How many registers a thread has is no memory."""
  while at < len(instructions) and (instructions[at].endswith(":") or instructions[at].startswith("setmaxnreg.")):
    at += 1
  return at


def _entry(ptx, symbol):
  head = re.search(r"\.entry\s+" + re.escape(symbol) + r"\s*\(", ptx)
  if not head:
    raise ValueError(f"no entry {symbol} in the PTX")
  begin = ptx.index("{", head.end())
  depth = 0
  for match in re.compile(r'"(?:[^"\\]|\\.)*"|[{}]').finditer(ptx, begin):
    depth += {"{": 1, "}": -1}.get(match.group(), 0)
    if depth == 0:
      return ptx[begin + 1:match.start()]
  raise ValueError(f"the entry {symbol} of the PTX has no end")


def _instructions(body):
  """The instructions in order. A label is one too: other code may jump to it. Declarations and comments are not, and
  the braces of inline assembly only bound its registers. A guarded instruction comes with its guard, so that it is
  none of the harmless ones: it may be skipped."""
  body = re.sub(r"//[^\n]*|/\*.*?\*/", "", body, flags=re.S)
  for part in re.split(r"[;{}\n]", body):
    text = part.strip()
    while label := re.match(r"[\w$%]+:", text):
      yield label.group()
      text = text[label.end():].strip()
    if text and not text.startswith("."):
      yield text
