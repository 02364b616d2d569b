"""What the runs of random_models.py found, one program a line of a JSON lines file, and the sum of
such files: programs, distinct pairs of operators, refusals by reason, finds."""

import collections
import json
import re

# Results of one program that are finds.
FINDS = ("wrong", "failed", "crashed", "died", "late")
# Results of programs that are not Husk's to run: the generator's limits, and what torch.export
# refuses.
NOT_OURS = ("rejected", "torch.export")


def words(text):
  """A text without names, numbers and places, so that equal reasons are equal."""
  text = " ".join(text.split())[:400]
  text = re.sub(r'"[^"]*"|\'[^\']*\'|`[^`]*`', "_", text)
  text = re.sub(r"[a-z]*\d[\w.:]*", "_", text)
  return " ".join(text.split()[:14])


class Log:
  """The results of programs. With a path, each is appended to the file as it is added, so that a
  run that is ended early counts."""

  def __init__(self, path=None):
    self.path = path
    self.counts = collections.Counter()
    self.reasons = collections.defaultdict(collections.Counter)
    self.finds = []
    self.pairs, self.operators, self.seen = set(), set(), set()
    self.repeated = 0

  def add(self, target, seed, result, text, program=None):
    """Adds the result of a seed; `program` tells its pairs and operators, if it ran."""
    row = {"target": target, "seed": seed, "result": result}
    if result != "equal":
      row["reason"] = " ".join(text.split())[:400]
    if program is not None and result in ("equal", *FINDS):
      row["pairs"] = sorted(map(list, program.pairs()))
      row["operators"] = sorted(program.names())
    if self.path:
      with open(self.path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    self._count(row)

  def read(self, path):
    """Adds what a run has written to a file."""
    with open(path, encoding="utf-8") as file:
      for line in file:
        self._count(json.loads(line))

  def _count(self, row):
    key = row["target"], row["seed"]
    if key in self.seen:
      self.repeated += 1
      return
    self.seen.add(key)
    result, reason = row["result"], row.get("reason", "")
    self.counts[result] += 1
    if result != "equal":
      self.reasons[result][words(reason)] += 1
    if result in FINDS:
      self.finds.append(f"{row['target']} seed {row['seed']}: {result}: {reason[:200]}")
    self.pairs.update(map(tuple, row.get("pairs", ())))
    self.operators.update(row.get("operators", ()))

  def summary(self, brief=False):
    """The lines of a summary."""
    counts = self.counts
    taken = counts.total() - sum(counts[name] for name in NOT_OURS)
    refused = counts["refused"] + counts["narrowed"]
    share = f" ({100 * refused / taken:.1f} %)" if taken else ""
    yield (
      f"{counts.total()} seeds, {taken} programs that torch.export takes: {counts['equal']} equal, "
      f"{refused} refused{share}, {sum(counts[name] for name in FINDS)} finds; "
      f"{len(self.operators)} operators, {len(self.pairs)} distinct pairs of them"
      + (f"; {self.repeated} results of seeds that had one" if self.repeated else "")
    )
    if brief:
      return
    for name, texts in self.reasons.items():
      for text, count in texts.most_common(15):
        yield f"  {name} {count}: {text}"
    for find in self.finds:
      yield f"  {find}"


def summary(paths):
  """The lines of the summary of several files."""
  log = Log()
  for path in paths:
    log.read(path)
  return log.summary()
