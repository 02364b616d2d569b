"""The partitions of a block, their barriers and shared memory, and the rules, for
gluon_interpreter.py."""

import collections
import random
import threading

import torch
from gluon_values import Block, Either

SHARED_BYTES = 227 << 10  # of a block on compute capability 9.0
FOREVER = 1 << 60


class Race(AssertionError):
  """Two partitions access a tile, and no barrier orders them."""


class Deadlock(AssertionError):
  """All partitions wait."""


class _Ended(BaseException):
  """Another partition failed."""


class Barrier:
  """An mbarrier. `begun` joins the clocks of the arrivals in the current phase, `seen` those of all
  completed phases."""

  def __init__(self, number):
    self.number, self.count = number, None

  def init(self, count):
    self.count = self.pending = int(count)
    self.phase, self.begun, self.seen = 0, [], []

  def arrive(self, count, clock):
    assert self.count is not None, f"barrier {self.number} is used before its init"
    if count > self.pending:
      raise AssertionError(
        f"barrier {self.number} counts {self.count}: {count} more where {self.pending} were left"
      )
    self.pending -= count
    self.begun = _joined(self.begun, clock)
    if not self.pending:
      self.seen, self.begun, self.pending, self.phase = (
        _joined(self.seen, self.begun),
        [],
        self.count,
        self.phase + 1,
      )

  def __str__(self):
    pending = f"{self.pending} of {self.count} to come"
    return f"barrier {self.number}, whose phase is {self.phase} with {pending}"

  def passes(self, parity):
    assert self.count is not None, f"barrier {self.number} is used before its init"
    return self.phase % 2 != parity


def _joined(one, other):
  return [max(pair) for pair in zip(one, other)] if one and other else list(one or other)


class Tile:
  """Shared memory that is written as a whole. `written` is the writer and the clock of the write,
  `reads` has the clock of the last read by reader."""

  def __init__(self, name, data):
    self.name, self.data, self.written, self.reads, self.tile = name, data, (None, 0), {}, self

  def permute(self, order):
    view = Tile(self.name, self.data.permute(order))
    view.tile = self.tile
    return view


class Slice:
  """A part of shared memory of a block without partitions, whose threads wait for each other
  between a store and a load, as the compiler makes them."""

  def __init__(self, data):
    self.data = data

  def slice(self, first, count, dim):
    assert first + count <= self.data.shape[dim]
    return Slice(self.data.narrow(dim, first, count))

  def load(self, layout):
    return Block(self.data.clone())

  def store(self, value):
    assert value.data.dtype == self.data.dtype and value.shape == tuple(self.data.shape)
    self.data.copy_(value.data)


class Shared:
  def __init__(self, parts, whole=None):
    self.parts, self.whole = parts, whole

  def store(self, value):
    Slice(self.whole).store(value)

  def slice(self, first, count, dim):
    return Slice(self.whole).slice(first, count, dim)

  def index(self, i):
    if not 0 <= i < len(self.parts):
      raise IndexError(f"part {i} of shared memory of {len(self.parts)} parts")
    return self.parts[i]


class Product:
  """An asynchronous wgmma. `result` is None until a partition has waited for the product."""

  def __init__(self, a, b, acc, use_acc):
    self.a, self.b, self.acc, self.use_acc, self.result = a, b, acc, use_acc, None
    self.tiles = [x.tile for x in (a, b) if isinstance(x, Tile)]
    self.shape = (a.data.shape[0], b.data.shape[1])

  @property
  def data(self):
    raise AssertionError("a product is used before it was waited for")

  def finish(self):
    product = Block(self.a.data.float() @ self.b.data.float())
    acc = self.acc.result if isinstance(self.acc, Product) else self.acc
    self.result = product + acc if self.use_acc else product


class Partition:
  def __init__(self, number, of, name, warps):
    self.number, self.name, self.threads = number, f"{name} ({number})", 32 * warps
    self.clock, self.fenced = [int(i == number) for i in range(of)], [0] * of
    self.copies, self.landings, self.products = [], collections.deque(), []
    self.waits, self.ended, self.turn = None, False, threading.Semaphore(0)

  def goes_on(self):
    return not self.ended and (self.waits is None or self.waits[0].passes(self.waits[1]))


class Machine:
  """One launch. `order` seeds the choice of the partition that continues at a barrier."""

  def __init__(self, programs, order):
    self.programs, self.program, self.random, self.stored = programs, 0, random.Random(order), {}
    self.second = 0  # the number of the program's place in a second axis
    self.running = None

  # The choice of the partition that runs

  def specialize(self, partitions, warps, registers):
    assert len(warps) == len(registers) == len(partitions) - 1 and all(
      24 <= r <= 256 and r % 8 == 0 for r in registers
    )
    self.failed, self.all_ended = None, threading.Semaphore(0)
    self.partitions = [
      Partition(i, len(partitions), act.__name__, 4 if i == 0 else warps[i - 1])
      for i, (act, _) in enumerate(partitions)
    ]
    # The weights of each partition and of its copies: some orders let one partition run far ahead.
    self.weights = [[10 ** self.random.uniform(-2, 2) for _ in range(2)] for _ in partitions]
    threads = [
      threading.Thread(target=self.body, args=(p, *call), daemon=True)
      for p, call in zip(self.partitions, partitions)
    ]
    for thread in threads:
      thread.start()
    self.hand_over(None)
    self.all_ended.acquire()
    for thread in threads:
      thread.join()
    if self.failed:
      raise self.failed
    assert not any(p.landings for p in self.partitions), (
      "copies are under way that nobody waits for"
    )

  def body(self, partition, act, arguments):
    partition.turn.acquire()
    try:
      if not self.failed:
        act(*arguments)
        assert not partition.copies and not partition.products, (
          f"{partition.name} ends with copies or products left"
        )
    except _Ended:
      pass
    except BaseException as error:
      self.failed = self.failed or error
    partition.ended = True
    self.hand_over(partition)

  def hand_over(self, me):
    """Lets a partition continue, which may be `me`. Returns when it is the turn of `me` again."""
    try:
      chosen = self.chosen()
    except Deadlock as error:
      self.failed = self.failed or error
      chosen = next(p for p in self.partitions if not p.ended)
    if chosen is None:
      self.all_ended.release()
    elif chosen is not me:
      self.running = chosen
      chosen.turn.release()
      if me and not me.ended:
        me.turn.acquire()
    if me and not me.ended and self.failed:
      raise _Ended

  def chosen(self):
    while True:
      left = [p for p in self.partitions if not p.ended]
      if self.failed or not left:
        return left[0] if left else None
      choices = [(p, False) for p in left if p.goes_on()] + [
        (p, True) for p in self.partitions if p.landings
      ]
      if not choices:
        raise Deadlock(
          "; ".join(f"{p.name} waits for parity {p.waits[1]} of {p.waits[0]}" for p in left)
        )
      partition, lands = self.random.choices(
        choices, [self.weights[p.number][lands] for p, lands in choices]
      )[0]
      if not lands:
        return partition
      try:
        partition.landings.popleft()()
      except AssertionError as error:
        self.failed = error

  # Barriers and shared memory

  def wait(self, barrier, parity):
    me = self.running
    me.waits = (barrier, int(parity))
    self.hand_over(me)
    me.waits = None
    me.clock = _joined(me.clock, barrier.seen)

  def arrive(self, barrier, count=1):
    me = self.running
    self.hand_over(me)
    barrier.arrive(count, me.clock)
    me.clock[me.number] += 1

  def fence(self):
    self.running.fenced = list(self.running.clock)

  def allocate(self, kind, shape, layout):
    if layout == "barriers":
      return Shared([Barrier(i) for i in range(shape[0])])
    self.bytes += torch.Size(shape).numel() * kind.of.itemsize
    assert self.bytes <= SHARED_BYTES, f"{self.bytes} bytes of shared memory"
    self.allocated += 1
    nothing = torch.full(shape, float("nan") if kind.of.is_floating_point else 99, dtype=kind.of)
    return Shared(
      [Tile(f"part {i} of shared memory {self.allocated}", part) for i, part in enumerate(nothing)],
      nothing,
    )

  def copy(self, to, pointer, mask=None):
    me = self.running
    at, mask = pointer.within(mask)
    assert (
      tuple(to.data.shape) == tuple(at.shape)
      and to.data.dtype == pointer.flat.dtype
      and to.tile is to
    )
    first = at[:, ::8][mask[:, ::8]] * pointer.flat.itemsize + pointer.flat.data_ptr()
    assert not (first % 16).any() and (at[:, 1:] - at[:, :-1] == 1).all(), (
      "16 bytes are copied at once"
    )
    writer, when = to.written
    if when == FOREVER or (writer is not None and me.clock[writer] < when):
      raise Race(f"{me.name} overwrites {to.name}, which is being written")
    for reader, read in to.reads.items():
      if me.clock[reader] < read:
        raise Race(
          f"{me.name} overwrites {to.name}, which {self.partitions[reader].name} may still read"
        )
    to.data.fill_(float("nan"))
    to.written, to.reads = (me.number, FOREVER), {}
    me.copies.append((to, pointer.flat, at, mask))

  def arrive_when_copied(self, barrier, increment_count=True):
    assert not increment_count, "only arrivals that the barrier counts are known"
    me, clock, copies = self.running, list(self.running.clock), self.running.copies

    def land():
      for to, flat, at, mask in copies:
        to.data.copy_(torch.where(mask, flat[torch.where(mask, at, 0)] if flat.numel() else 0, 0))
        to.written = (me.number, clock[me.number])
      barrier.arrive(me.threads, clock)

    me.copies = []
    me.landings.append(land)
    me.clock[me.number] += 1
    self.hand_over(me)

  def multiply(self, a, b, acc, use_acc=True, is_async=False):
    me = self.running
    assert a.data.dtype == b.data.dtype in (torch.float16, torch.bfloat16) and isinstance(b, Tile)
    product = Product(a, b, acc, use_acc)
    assert isinstance(acc, Product) or acc.data.dtype == torch.float32
    assert a.data.shape[0] % 64 == 0 and tuple(acc.shape) == product.shape
    for tile in product.tiles:
      writer, when = tile.written
      if writer is not None and me.clock[writer] < when:
        raise Race(
          f"{me.name} reads {tile.name}, which {self.partitions[writer].name} may still write"
        )
      if writer is not None and me.fenced[writer] < when:
        raise Race(f"{me.name} reads {tile.name} without a fence behind the barrier")
      tile.reads[me.number] = FOREVER
    me.products.append(product)
    if is_async:
      return product
    return self.wait_for_products(0, [product])

  def wait_for_products(self, left, deps):
    me = self.running
    self.hand_over(me)
    while len(me.products) > left:
      product = me.products.pop(0)
      product.finish()
      for tile in product.tiles:
        if not any(tile is other for p in me.products for other in p.tiles):
          tile.reads[me.number] = me.clock[me.number]
    results = [dep.result if isinstance(dep, Product) and dep.result else dep for dep in deps]
    return results[0] if len(results) == 1 else tuple(results)

  def load(self, pointer, mask=None, other=None):
    """The elements at addresses. Where the mask is false, `other` is given, and no address is
    read."""
    if isinstance(pointer, Either):
      one, rest = (self.load(each, mask, other) for each in (pointer.one, pointer.other))
      return Block(torch.where(pointer.first.data, one.data, rest.data))
    at, mask = pointer.within(mask)
    found = torch.full(at.shape, float("nan") if other is None else other)
    found = found.to(pointer.flat.dtype)
    found[mask] = pointer.flat[at[mask]]
    return Block(found)

  def store(self, pointer, value, mask=None):
    at, mask = pointer.within(mask)
    assert value.data.dtype == pointer.flat.dtype and value.shape == tuple(at.shape)
    stored = self.stored.setdefault(
      pointer.flat.data_ptr(), torch.zeros(pointer.flat.numel(), dtype=torch.bool)
    )
    at = at[mask]
    assert not stored[at].any() and at.unique().numel() == at.numel(), (
      f"{self.running.name if self.running else 'a block'} stores a number twice"
    )
    stored[at] = True
    pointer.flat[at] = value.data[mask]
