"""Language models with states: the recurrences against loops over the tokens, and states in slots
against whole sequences."""

import husk
import pytest
import torch
from husk.host import image as host_image
from husk.language import recurrences, states, steps

ISAS = host_image.isas()
HEADS, SIZE, STATE, CHANNELS, SLOTS, MOST = 2, 4, 3, 8, 3, 40


def scalar_loop(x, dt, A, B, C, state):
  outputs = []
  for t in range(x.shape[1]):
    step = torch.nn.functional.softplus(dt[:, t])[:, :, None, None]
    b, c = (one[:, t].repeat_interleave(HEADS // one.shape[2], dim=1) for one in (B, C))
    state = state * (step * A[:, None, None]).exp() + step * x[:, t, :, :, None] * b[:, :, None]
    outputs.append((state * c[:, :, None]).sum(-1))
  return torch.stack(outputs, 1), state


def scalar_chunk(x, dt, A, B, C, state):
  return recurrences.scalar_state_space(
    x, dt, A, B, C, 0, initial_states=state, dt_softplus=True, return_final_states=True
  )


def scalar_case(count):
  x, dt = torch.randn(1, count, HEADS, SIZE), torch.randn(1, count, HEADS) * 3
  B, C = torch.randn(2, 1, count, 1, STATE)
  return (x, dt, B, C), (-torch.rand(HEADS) * 9,), torch.zeros(1, HEADS, SIZE, STATE)


def diagonal_loop(x, dt, B, C, A, state):
  outputs = []
  for t in range(x.shape[1]):
    step = torch.nn.functional.softplus(dt[:, t])[:, :, None]
    state = state * (step * A).exp() + step * x[:, t, :, None] * B[:, t, None]
    outputs.append((state * C[:, t, None]).sum(-1))
  return torch.stack(outputs, 1), state


def diagonal_chunk(x, dt, B, C, A, state):
  recurrences.give(state)
  found, state = recurrences.diagonal_state_space(
    x.mT, dt.mT, A, B.mT, C.mT, delta_softplus=True, return_last_state=True
  )
  return found.mT, state


def diagonal_case(count):
  x, dt = torch.randn(2, 1, count, CHANNELS)
  B, C = torch.randn(2, 1, count, STATE)
  return (x, dt, B, C), (-torch.rand(CHANNELS, STATE) * 9,), torch.zeros(1, CHANNELS, STATE)


def delta_loop(query, key, value, g, beta, state):
  outputs = []
  for t in range(query.shape[1]):
    q, k, v = (one[:, t] for one in (query, key, value))
    decay = g[:, t].exp().reshape(1, HEADS, -1, 1)
    state = state * decay
    delta = (v - (state * k[..., None]).sum(-2)) * beta[:, t, :, None]
    state = state + k[..., None] * delta[:, :, None]
    outputs.append((state * q[..., None]).sum(-2) * SIZE**-0.5)
  return torch.stack(outputs, 1), state


def delta_chunk(query, key, value, g, beta, state):
  return recurrences.gated_delta_rule(
    query, key, value, g, beta, initial_state=state, output_final_state=True
  )


def delta_case(count, numbers=()):
  query, key = torch.randn(2, 1, count, HEADS, SIZE)
  # Keys that repeat, as those of equal tokens, make the system hard.
  key = torch.nn.functional.normalize(key[:, :1] + key * 0.1, dim=-1)
  g = -torch.rand(1, count, HEADS, *numbers) * torch.tensor([0.01, 9.0])[:, *[None] * len(numbers)]
  tokens = query, key, torch.randn(1, count, HEADS, STATE), g, torch.rand(1, count, HEADS)
  return tokens, (), torch.zeros(1, HEADS, SIZE, STATE)


CASES = {
  "scalar": (
    lambda x, dt, B, C, A, s: scalar_loop(x, dt, A, B, C, s),
    lambda x, dt, B, C, A, s: scalar_chunk(x, dt, A, B, C, s),
    scalar_case,
  ),
  "diagonal": (diagonal_loop, diagonal_chunk, diagonal_case),
  "delta": (delta_loop, delta_chunk, delta_case),
  "delta of each number": (delta_loop, delta_chunk, lambda count: delta_case(count, (SIZE,))),
}


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("count", [1, 2, 7, 33, 64])
def test_chunks_equal_a_loop(kind, count):
  """A sequence in two chunks, of which the second one goes on from the state of the first."""
  torch.manual_seed(count)
  loop, chunk, case = CASES[kind]
  tokens, others, zeros = case(count)
  right, right_state = loop(*tokens, *others, zeros)
  for split in {0, count // 2, count - 1} - {0} | {count}:
    state, found = zeros, []
    for part in (slice(0, split), slice(split, count)):
      if part.start < part.stop:
        one, state = chunk(*(x[:, part] for x in tokens), *others, state)
        found.append(one)
    torch.testing.assert_close(torch.cat(found, 1), right, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state, right_state, rtol=1e-4, atol=1e-5)


class Model(torch.nn.Module):
  """A convolution and a state-space model, with a state of each in every slot."""

  def __init__(self):
    super().__init__()
    random = torch.Generator().manual_seed(3)
    draw = lambda *sizes: torch.randn(*sizes, generator=random)  # noqa: E731
    width = HEADS * SIZE
    self.register_buffer("embedding", draw(32, width))
    self.register_buffer("weight", draw(width, 3))
    self.register_buffer("mixed", draw(width, HEADS + 2 * STATE) / 3)
    self.register_buffer("head", draw(width, 32))
    self.register_buffer("A", -torch.rand(HEADS, generator=random))
    self.register_buffer("inputs", torch.zeros(SLOTS, width, 3))
    self.register_buffer("state", torch.zeros(SLOTS, HEADS, SIZE, STATE))
    self.step = steps.Step()
    self.step.max_tokens = MOST

  def _next(self, tokens):
    rows, count = tokens.shape
    inputs, state = states.State(self.inputs), states.State(self.state)
    x = self.embedding[tokens].mT
    if count == 1:
      x = recurrences.convolution_step(x, inputs.read(self.step), self.weight)
    else:
      x = recurrences.convolution(inputs.join(self.step, x), self.weight)[..., -count:]
    dt, B, C = (x.mT @ self.mixed).split([HEADS, STATE, STATE], -1)
    found, state.value = scalar_chunk(
      x.mT.reshape(rows, count, HEADS, SIZE),
      dt,
      self.A,
      B[:, :, None],
      C[:, :, None],
      state.read(self.step),
    )
    inputs.write(self.step)
    state.write(self.step)
    return found[:, -1].reshape(rows, -1) @ self.head

  def prefill(self, tokens, slot: int, position: int):
    torch._check(slot >= 0)
    torch._check(slot < SLOTS)
    self.step.positions = (torch.arange(tokens.shape[0]) + position)[None]
    self.step.slots = torch.zeros_like(self.step.positions) + slot
    return self._next(tokens[None])

  def decode(self, tokens, positions):
    torch._check(positions.shape[0] == tokens.shape[0])
    self.step.positions = positions[:, None]
    self.step.slots = torch.arange(tokens.shape[0])[:, None]
    return self._next(tokens[:, None])


@pytest.mark.skipif(not ISAS, reason="this machine has no AVX2")
def test_states_in_slots(tmp_path):
  """Chunks and single tokens of sequences that join and leave slots."""
  auto, one = torch.export.Dim.AUTO, torch.zeros(2, dtype=torch.int64)
  rows = torch.export.Dim("rows", min=1, max=SLOTS)
  module = Model().eval()
  functions = {
    "prefill": husk.Function(
      module,
      (torch.zeros(3, dtype=torch.int64), 1, 2),
      dynamic_shapes={
        "tokens": {0: torch.export.Dim("length", min=1, max=16)},
        "slot": auto,
        "position": auto,
      },
      method="prefill",
    ),
    "decode": husk.Function(
      module,
      (one, one + 3),
      dynamic_shapes={"tokens": {0: rows}, "positions": {0: rows}},
      method="decode",
    ),
  }
  husk.export(functions, tmp_path / "model.husk", targets=(f"host:{ISAS[0]}",))
  program = husk.load(tmp_path / "model.husk")
  random = torch.Generator().manual_seed(5)
  taken = [[] for _ in range(SLOTS)]

  def check(slot, logits):
    tokens = torch.tensor(taken[slot])
    fresh = Model()
    right = fresh.prefill(tokens, 0, 0)[0] if len(tokens) > 1 else fresh.decode(tokens, one[:1])[0]
    torch.testing.assert_close(torch.as_tensor(logits), right, rtol=1e-4, atol=1e-4)

  def prefill(slot, count):
    tokens = torch.randint(32, (count,), generator=random)
    found = program.prefill(tokens.numpy(), slot, len(taken[slot]))
    taken[slot] += tokens.tolist()
    check(slot, found[0])

  def decode(*slots):
    count = max(slots) + 1
    tokens = torch.randint(32, (count,), generator=random)
    positions = torch.full((count,), MOST)
    for slot in slots:
      positions[slot] = len(taken[slot])
      taken[slot].append(int(tokens[slot]))
    found = program.decode(tokens.numpy(), positions.numpy())
    for slot in slots:
      check(slot, found[slot])

  prefill(1, 2)
  decode(1)
  prefill(0, 16)
  prefill(0, 5)
  decode(0, 1)
  prefill(2, 3)
  decode(2)  # slots 0 and 1 take no part
  decode(0, 2)
  decode(1)
  taken[1] = []  # a sequence that leaves, and one whose prompt has a single token
  decode(1)
  decode(0, 1, 2)
  taken[0] = []
  prefill(0, 4)
  decode(0, 1)
