"""Checks the Markdown pages of this tree, and prints the commands of a page.

  python tests/pages.py check              checks all pages
  python tests/pages.py commands PAGE.md   prints a shell script with the commands of one page

A page may refer to files and headings of this tree only if they exist. A comment before a fenced
block says how the block is treated:

  <!-- from FILE -->        the block is a part of FILE, line by line
  <!-- not run -->          the block is not part of the page's commands

Without a comment, blocks of `sh` are commands and blocks of `python` are given to `python`.
"""

import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
FENCE = re.compile(
  r"^(?:<!-- (?P<comment>[^\n]*) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
  re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)|(?:src|href)=\"(?P<attribute>[^\"]+)\"")
HEADING = re.compile(r"^#+ +(?P<title>.*)$", re.MULTILINE)


def pages():
  """The Markdown files that git knows or would add."""
  command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
  listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
  return [ROOT / name for name in sorted(set(listed.stdout.split())) if (ROOT / name).exists()]


def without_blocks(text):
  return FENCE.sub(lambda block: "\n" * block.group(0).count("\n"), text)


def anchors(text):
  """The fragments under which a page's headings can be linked to, as GitHub makes them."""
  titles = [match["title"] for match in HEADING.finditer(without_blocks(text))]
  kept = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
  return {title.replace(" ", "-") for title in kept}


def wrong_links(page, text):
  for match in LINK.finditer(without_blocks(text)):
    target = match["target"] or match["attribute"]
    if re.match(r"[a-z]+:", target):
      continue  # an address of the web
    path, _, fragment = target.partition("#")
    linked = (page.parent / path).resolve() if path else page
    if not linked.exists():
      yield f"links to {target}, which does not exist"
    elif fragment and linked.suffix == ".md" and fragment not in anchors(linked.read_text()):
      yield f"links to {target}, but {linked.name} has no such heading"


def wrong_blocks(text):
  for block in FENCE.finditer(text):
    comment = block["comment"] or ""
    if not comment.startswith("from "):
      continue
    source = ROOT / comment.removeprefix("from ")
    if not source.is_file():
      yield f"has a block from {source}, which does not exist"
    elif not contains(source.read_text(), block["text"]):
      yield f"has a block that is not a part of {comment.removeprefix('from ')}"


def contains(text, part):
  """Whether lines of `text` are those of `part`, apart from their common indentation."""
  lines, wanted = text.splitlines(), textwrap.dedent(part).splitlines()
  ranges = (lines[i : i + len(wanted)] for i in range(len(lines) - len(wanted) + 1))
  return any(textwrap.dedent("\n".join(each)).splitlines() == wanted for each in ranges)


def check():
  wrong = 0
  for page in pages():
    text = page.read_text()
    for fault in [*wrong_links(page, text), *wrong_blocks(text)]:
      print(f"{page.relative_to(ROOT)}: {fault}")
      wrong += 1
  print(f"{len(pages())} pages, {wrong} faults")
  return wrong != 0


def commands(page):
  print("set -euo pipefail")
  for block in FENCE.finditer(pathlib.Path(page).read_text()):
    if block["comment"]:
      continue
    if block["language"] == "sh":
      print(block["text"], end="")
    elif block["language"] == "python":
      print(f"python - <<'END_OF_PYTHON'\n{block['text']}END_OF_PYTHON")
  return 0


def main(arguments):
  if arguments == ["check"]:
    return check()
  if len(arguments) == 2 and arguments[0] == "commands":
    return commands(arguments[1])
  sys.exit(__doc__)


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
