"""Checks compiler/CLI.md: its commands run, and it lists exactly the options of the tools.

python cli_page.py FOLDER    FOLDER contains all tools
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "compiler" / "CLI.md"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def sections(text):
  """The text of each tool's section by the tool's name."""
  parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
  titled = zip(parts[1::2], parts[2::2], strict=True)
  return {title: section for title, section in titled if re.fullmatch(r"husk\S+", title)}


def table_options(section):
  rows = (line for line in section.splitlines() if line.startswith("| `-"))
  return {option for row in rows for option in OPTION.findall(row.split(" | ")[0])}


def help_options(*command):
  """The options of a tool and of its subcommands."""
  text = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
  names = re.findall(r"^  (\w+)  ", text.partition("\nSubcommands:\n")[2], re.MULTILINE)
  if names:
    return set().union(*(help_options(*command, name) for name in names))
  lines = (line for line in text.splitlines() if re.match(r" +-", line))
  return {option for line in lines for option in OPTION.findall(line.strip().split("  ")[0])}


def main(folder):
  faults = []
  for tool, section in sections(PAGE.read_text()).items():
    listed = table_options(section)
    known = help_options(folder / tool) - {"--help", "--version"}
    faults += [f"{tool}: the page does not list {option}" for option in sorted(known - listed)]
    faults += [f"{tool}: there is no option {option}" for option in sorted(listed - known)]
  pages = [sys.executable, ROOT / "tests" / "pages.py", "commands", PAGE]
  commands = subprocess.run(pages, capture_output=True, text=True, check=True).stdout
  environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
  with tempfile.TemporaryDirectory() as empty:
    status = subprocess.run(["bash", "-c", commands], cwd=empty, env=environment, check=False)
  if status.returncode != 0:
    faults.append(f"its commands fail with exit code {status.returncode}")
  for fault in faults:
    print(fault)
  return len(faults) != 0


if __name__ == "__main__":
  sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
