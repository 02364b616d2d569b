"""Draws the charts of the README and writes the tables of measured numbers into the pages.

  python tests/bench/chart.py           writes the charts beside this file and the tables
  python tests/bench/chart.py --check   fails if a chart or table is not what this script writes

tests/bench/measured.json names, for each number, the line of tests/gpu/REPORT.md that holds it:
the first line of a stage that begins with LINE, or the first after one that begins with BLOCK.
The tables and the chart of the CPU come from tests/bench/compare/results.json, which compare.py
wrote. In a page a table stands between the comments `<!-- table NAME -->` and `<!-- end of table
-->`.
"""

import json
import pathlib
import re
import sys

import compare

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("README.md", "tests/bench/PERFORMANCE.md")
FIELDS = {  # how a number is found in a line of the report
  "total": r"total +([\d.]+) us",
  "again": r"again in ([\d.]+)",
  "added": r"\), \+([\d.]+)",
  "after slash": r"/ +([\d.]+)",
  "median": r"median ([\d.]+) us",
  "token": r"then ([\d.]+) us a token",
  "eager": r"eager +([\d.]+)",
  "husk list": r"husk list +([\d.]+)",
  "graph": r"graph +([\d.]+)",
  "rate": r"([\d.]+) +\d+$",
}


class Report:
  """The lines of a report of tests/gpu/run.sh, by stage."""

  def __init__(self, path):
    self.stages = {}
    lines = None
    for line in path.read_text().splitlines():
      if line.startswith("== "):
        lines = self.stages.setdefault(line[3:], [])
      elif lines is not None:
        lines.append(" ".join(line.split()))

  def number(self, citation):
    """The number that a citation of measured.json names."""
    stage, *prefixes, field = citation.split(" | ")
    lines = iter(self.stages.get(stage, ()))
    for prefix in prefixes:
      line = next((line for line in lines if line.startswith(prefix)), None)
      if line is None:
        raise SystemExit(f"the report has no line {prefix!r} for {citation!r}")
    match = re.search(FIELDS[field], line)
    if not match:
      raise SystemExit(f"{citation!r}: there is no such number in {line!r}")
    return float(match[1])


def shown(number):
  return str(int(number + 0.5)) if number >= 100 else f"{number:.1f}"


def table(spec, report):
  """A Markdown table. The optional `ratio` [a, b] adds a last column, column a divided by b."""
  rows = [spec["columns"], ["---", *["---:"] * (len(spec["columns"]) - 1)]]
  for label, *citations in spec["rows"]:
    numbers = [citation and report.number(citation) for citation in citations]
    row = [label, *["" if number is None else shown(number) for number in numbers]]
    if "ratio" in spec:
      above, below = spec["ratio"]
      row.append(f"{numbers[above - 1] / numbers[below - 1]:.2g} ×")
    rows.append(row)
  return "".join(f"| {' | '.join(row)} |\n" for row in rows)


# Colours of the series; grey text is legible on light and on dark pages.
COLOURS, TEXT = ("#9a9a9a", "#7fb2e5", "#1f6fbf"), "#808080"
LEFT, WIDTH, BAR, GAP = 16, 560, 18, 14


def bars(title, series, groups, text=shown):
  """Horizontal bars in groups, as SVG. A group is a label and a number for each of the series."""
  largest = max(max(numbers) for _, numbers in groups)
  parts = [_text(LEFT, 20, title, bold=True)]
  x = LEFT
  for name, colour in zip(series, COLOURS):
    parts += [_bar(x, 34, 12, 12, colour), _text(x + 18, 45, name)]
    x += 40 + 8 * len(name)
  y = 62
  for label, numbers in groups:
    y += GAP
    parts.append(_text(LEFT, y + 4, label))
    y += 10
    for number, colour in zip(numbers, COLOURS):
      length = round(number / largest * WIDTH, 1)
      parts += [_bar(LEFT, y, length, BAR - 3, colour)]
      parts += [_text(LEFT + length + 6, y + 12, text(number))]
      y += BAR
  size = f'width="{LEFT + WIDTH + 64}" height="{y + 10}"'
  style = f'font-family="sans-serif" font-size="13" fill="{TEXT}"'
  body = "\n".join(parts)
  return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{body}\n</svg>\n'


def chart(spec, report):
  """The chart of the numbers of a GPU that `spec` names."""
  groups = [
    (label, [report.number(citation) for citation in cited]) for label, *cited in spec["groups"]
  ]
  return bars(spec["title"], spec["series"], groups)


def cpu_chart(results):
  """For each model of compare.py Husk's time as a share of that of the fastest other."""
  ratios = {}
  for result in results:
    ratios.setdefault(result["case"], []).append(result["ratio"]["median"])
  title = "One run on the CPU: time of Husk as a share of that of the fastest of six others"
  return bars(title, ("1 thread", "2 threads"), ratios.items(), text="{:.2f}".format)


def _bar(x, y, width, height, colour):
  return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{colour}"/>'


def _text(x, y, text, bold=False):
  weight = ' font-weight="bold"' if bold else ""
  return f'<text x="{x:g}" y="{y}"{weight}>{text}</text>'


def with_tables(text, tables):
  """A page's text with the present tables."""

  def replaced(match):
    return f"{match[1]}{tables[match['name']]}{match[3]}"

  pattern = r"(<!-- table (?P<name>\w+) -->\n).*?(<!-- end of table -->)"
  return re.sub(pattern, replaced, text, flags=re.DOTALL)


def main(arguments):
  if arguments not in ([], ["--check"]):
    sys.exit(__doc__)
  data = json.loads((ROOT / "tests/bench/measured.json").read_text())
  report = Report(ROOT / data["source"])
  tables = {name: table(spec, report) for name, spec in data["tables"].items()}
  results = json.loads((ROOT / "tests/bench/compare/results.json").read_text())
  tables["cpu"] = compare.table(results, compare.PEERS) + "\n"
  tables["making"] = compare.making_table(results) + "\n"
  files = {data["chart"]["file"]: chart(data["chart"], report)}
  files["tests/bench/cpu.svg"] = cpu_chart(results)
  files |= {page: with_tables((ROOT / page).read_text(), tables) for page in PAGES}
  stale = 0
  for name, text in files.items():
    path = ROOT / name
    if path.exists() and path.read_text() == text:
      continue
    if arguments:
      print(f"{name} is not what tests/bench/chart.py writes: run it")
      stale += 1
    else:
      path.write_text(text)
  return stale != 0


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
