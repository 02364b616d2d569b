"""How a net of architectures goes through them, and prints what came out."""

import time

import husk

TIE = 1e-4  # between two logits, as a part of the largest one


def text(found, right):
  """Whether tokens are "equal" to those of transformers, or "different". It is a "tie" if the first
  ones that differ had the same logit there up to rounding. `right` has the tokens and the lead of
  each over the next best one."""
  tokens, leads = right
  if found == tokens:
    return "equal"
  at = next((i for i, pair in enumerate(zip(found, tokens)) if len({*pair}) > 1), len(tokens))
  return "tie" if at < len(tokens) and leads[at] <= TIE else "different"


def each(names, compare):
  """Calls `compare` for each architecture. It returns whether texts differ, and a text about them.
  An architecture that is refused by name is counted apart. Returns the exit status: 1 if texts
  differ or another exception is raised."""
  counts = {"equal": 0, "refused": 0, "different": 0, "failed": 0}
  for name in names:
    begin = time.perf_counter()
    try:
      differ, text = compare(name)
      kind = "different" if differ else "equal"
    except husk.Unsupported as error:
      kind, text = "refused", str(error)
    except Exception as error:
      kind, text = "failed", f"{type(error).__name__}: {str(error)[:800]}"
    counts[kind] += 1
    print(f"{name}, {time.perf_counter() - begin:.0f} s, {kind}: {text}", flush=True)
  print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
  return 1 if counts["different"] or counts["failed"] else 0
