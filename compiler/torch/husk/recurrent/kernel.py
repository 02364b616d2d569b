"""All steps of one direction of a recurrent layer: a Triton kernel, whose text recurrent/node.py
compiles with the constants of one call."""

import triton
import triton.language as tl


@triton.jit
def recurrent_layer(gates, hidden, cell, weight, bias, states, batches, steps,
                    KIND: tl.constexpr, GATES: tl.constexpr, SIZE: tl.constexpr,
                    REVERSE: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
                    BLOCK_K: tl.constexpr):
  """Program 0 computes ROWS batches, since the steps of a batch need no other one.

  `gates` are the products of the inputs, steps x batches x GATES x SIZE; `hidden` and `cell` (None
  unless KIND is "lstm") are the states before the first step, batches x SIZE; `weight` is that of
  the hidden state, GATES x SIZE x SIZE, and `bias` (or None) GATES x SIZE.

  `states` gets the hidden states, steps + 1 of batches x SIZE, the first of which is that before
  all steps, or with REVERSE the last one. A cell state lies behind them, and is the last one in the
  end. Steps take hidden states from there: all threads of a program need all of its elements.
  """
  batch = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
  is_batch = batch < batches
  states_of_step = batches * SIZE
  cells = states + (tl.full((), 1, tl.int64) + steps) * states_of_step
  element = tl.arange(0, BLOCK_N)
  for first in range(0, SIZE, BLOCK_N):
    place = batch[:, None] * SIZE + first + element[None, :]
    mask = is_batch[:, None] & (first + element < SIZE)[None, :]
    start = cells - states_of_step if REVERSE else states
    tl.store(start + place, tl.load(hidden + place, mask=mask), mask=mask)
    if KIND == "lstm":
      tl.store(cells + place, tl.load(cell + place, mask=mask), mask=mask)
  tl.debug_barrier()
  for count in range(steps):
    step = tl.full((), 0, tl.int64) + (steps - 1 - count if REVERSE else count)
    before = states + (step + 1 if REVERSE else step) * states_of_step
    after = states + (step if REVERSE else step + 1) * states_of_step
    for first in range(0, SIZE, BLOCK_N):
      n = first + element
      is_inside = n < SIZE
      place = batch[:, None] * SIZE + n[None, :]
      mask = is_batch[:, None] & is_inside[None, :]
      sum_0 = tl.zeros((ROWS, BLOCK_N, BLOCK_K), tl.float32)
      sum_1 = sum_0
      sum_2 = sum_0
      sum_3 = sum_0
      for column in range(0, SIZE, BLOCK_K):
        k = column + tl.arange(0, BLOCK_K)
        of_hidden = is_batch[:, None] & (k < SIZE)[None, :]
        h = tl.load(before + batch[:, None] * SIZE + k[None, :], mask=of_hidden, other=0)
        h = h.to(tl.float32)[:, None, :]
        w = weight + n[:, None] * SIZE + k[None, :]
        of_weight = is_inside[:, None] & (k < SIZE)[None, :]
        sum_0 += tl.load(w, mask=of_weight, other=0).to(tl.float32)[None] * h
        if GATES > 1:
          sum_1 += tl.load(w + SIZE * SIZE, mask=of_weight, other=0).to(tl.float32)[None] * h
          sum_2 += tl.load(w + 2 * SIZE * SIZE, mask=of_weight, other=0).to(tl.float32)[None] * h
        if GATES > 3:
          sum_3 += tl.load(w + 3 * SIZE * SIZE, mask=of_weight, other=0).to(tl.float32)[None] * h
      x = gates + (step * batches + batch)[:, None] * (GATES * SIZE) + n[None, :]
      x_0, h_0 = _gate(0, sum_0, x, bias, n, mask, is_inside, SIZE)
      if GATES == 1:
        if KIND == "rnn_tanh":
          new = _tanh(x_0 + h_0)
        else:
          new = x_0 + h_0
          new = tl.where(new < 0, 0.0, new)
      else:
        x_1, h_1 = _gate(1, sum_1, x, bias, n, mask, is_inside, SIZE)
        x_2, h_2 = _gate(2, sum_2, x, bias, n, mask, is_inside, SIZE)
        if KIND == "gru":
          old = tl.load(before + place, mask=mask, other=0).to(tl.float32)
          candidate = _tanh(x_2 + tl.sigmoid(x_0 + h_0) * h_2)
          new = candidate + tl.sigmoid(x_1 + h_1) * (old - candidate)
        else:
          x_3, h_3 = _gate(3, sum_3, x, bias, n, mask, is_inside, SIZE)
          kept = tl.load(cells + place, mask=mask, other=0).to(tl.float32)
          kept = tl.sigmoid(x_1 + h_1) * kept + tl.sigmoid(x_0 + h_0) * _tanh(x_2 + h_2)
          tl.store(cells + place, kept.to(states.dtype.element_ty), mask=mask)
          new = tl.sigmoid(x_3 + h_3) * _tanh(kept)
      tl.store(after + place, new.to(states.dtype.element_ty), mask=mask)
    tl.debug_barrier()


@triton.jit
def _gate(number: tl.constexpr, sums, x, bias, n, mask, is_inside, SIZE: tl.constexpr):
  """What the input and the hidden state add to a gate."""
  of_hidden = tl.sum(sums, 2)
  if bias is not None:
    of_hidden += tl.load(bias + number * SIZE + n, mask=is_inside, other=0).to(tl.float32)[None, :]
  return tl.load(x + number * SIZE, mask=mask, other=0).to(tl.float32), of_hidden


@triton.jit
def _tanh(x):
  """Near 0, where the quotient has no exact digits, by the first terms of its series."""
  power = tl.exp(-2.0 * tl.abs(x))
  far = (1.0 - power) / (1.0 + power)
  far = tl.where(x < 0, -far, far)
  square = x * x
  near = 62.0 / 2835.0
  near = near * square - 17.0 / 315.0
  near = near * square + 2.0 / 15.0
  near = near * square - 1.0 / 3.0
  near = x + x * square * near
  return tl.where(square < 0.0625, near, far)
