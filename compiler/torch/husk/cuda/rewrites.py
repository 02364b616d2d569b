"""The order in which the text of a Triton kernel is rewritten before it is compiled.

1. Constants get whole ranks (`source_edit.with_whole_ranks`). This looks for text as Inductor
   prints it, so it comes before everything that changes the text.
2. Descriptors become pointers, sizes and strides (`descriptors`). The new parameters belong to
   the signature that all later steps see.
3. Products are rounded (`rounding`), but not in kernels of the model's author, which eager mode
   compiles as they are.
4. Sorts of Inductor become others (`sorting`), selections in its scans (`scans`), loads behind
   products of 8 bits (`epilogues`), and loads of 8 and 16 bits that pad (`narrow_loads`).
5. Kernels that are equal up to here, apart from their names, are one kernel
   (`CudaKernels._define`). Later texts hold the numbers of asserts, by which equal kernels would
   differ.
6. Asserts are removed, or become numbers (`asserts`). A kernel whose asserts are traps is kept
   beside it, since it is the one that is measured, and takes its place if it does not compile.
7. The wait for the preceding kernel becomes the first statement (`pdl`). It is added last, since
   the statements of step 2, which write memory, have to come after it; and it is added each time
   that the text is loaded, because a kernel is also compiled with the trigger before the wait.
"""

from __future__ import annotations

from . import descriptors, epilogues, narrow_loads, pdl, rounding, scans, sorting, source_edit


def of_inductor(source: str, symbol: str) -> str:
  """Steps 1 to 4 for a module of Inductor, whose kernel is called `symbol`."""
  source = descriptors.rewrite(source_edit.with_whole_ranks(source), symbol)
  if source_edit.is_users(source):
    return source
  source = of_husk(source)
  for each in (sorting, scans, epilogues, narrow_loads):
    source = each.rewrite(source)
  return source


def of_husk(source: str) -> str:
  """Step 3 for a module of Husk."""
  return rounding.rewrite(source)


def to_load(source: str, name: str, wait: bool, trigger: bool, reads_early: bool) -> str:
  """Step 7."""
  return pdl.rewrite(source, name, trigger, reads_early) if wait else source
