#!/usr/bin/env bash
# Checks the style of the tree; changes nothing.
#   tests/style.sh [CHECK...]
#     format   clang-format and ruff format
#     ruff     ruff's checks of Python
#     lines    no line of a text file is longer than 100 columns
#     types    basedpyright on the exporter, which needs build/venv
#     surface  private names of PyTorch in the exporter are rows of husk/inductor/surface.py
#     places   no constant of the host's operators is the place of an argument as a number
#     tidy     clang-tidy on runtime and ports; CI runs it as a stage of its own
# By default all but tidy. The tools are those of build/venv-style (.ci/setup.sh --style), or those
# on PATH. CONTRIBUTING.md says how to format a change.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ ! -d build/venv-style ]] || PATH=$PWD/build/venv-style/bin:$PATH
checks=("$@")
((${#checks[@]})) || checks=(format ruff lines types surface places)
failed=()

# Findings that are still allowed. A number may only fall.
long_lines_allowed=5   # texts of tests that one line of a printer writes
ruff_allowed=0
type_errors_allowed=0

sources() {
  git ls-files -z '*.c' '*.cpp' '*.h' '*.hpp'
}

# ratchet NAME COUNT ALLOWED: fails if there are more findings than allowed.
ratchet() {
  echo "$1: $2 findings, $3 are allowed"
  (($2 <= $3))
}

format() {
  sources | xargs -0 clang-format --dry-run -Werror && ruff format --check -q .
}

ruff_checks() {
  # `lines` counts E501.
  ruff check -q --output-format concise --ignore E501 . >build/style-ruff.txt || true
  ratchet "ruff" "$(wc -l <build/style-ruff.txt)" "$ruff_allowed" ||
    { cat build/style-ruff.txt; return 1; }
}

# Prints the long lines as FILE:LINE: COLUMNS. Rows of Markdown tables, lines with an address, bytes
# in hexadecimal, pictures, recorded reports and tables of tokens cannot be wrapped.
long_lines() {
  git ls-files -z | python3 -c '
import pathlib, sys
for name in sys.stdin.read().split("\0")[:-1]:
  path = pathlib.Path(name)
  if path.suffix == ".svg" or path.name in ("REPORT.md", "golden.json"):
    continue
  try:
    lines = path.read_text().splitlines() if path.is_file() else []
  except UnicodeDecodeError:
    continue
  for number, line in enumerate(lines, 1):
    fixed = "://" in line or " bytes \"" in line or path.suffix == ".md" and line.startswith("|")
    if len(line) > 100 and not fixed:
      print(f"{name}:{number}: {len(line)} columns")
'
}

lines() {
  long_lines >build/style-lines.txt
  ratchet "lines over 100 columns" "$(wc -l <build/style-lines.txt)" "$long_lines_allowed" ||
    { tail -n 20 build/style-lines.txt; return 1; }
}

types() {
  basedpyright -p compiler/torch >build/style-types.txt || true
  local count
  count=$(sed -n 's/^\([0-9]*\) errors*,.*/\1/p' build/style-types.txt)
  ratchet "type errors" "${count:?basedpyright did not run}" "$type_errors_allowed" ||
    { grep -B1 ' error: ' build/style-types.txt | tail -n 40; return 1; }
}

surface() {
  python3 tests/surface.py check >build/style-surface.txt ||
    { tail -n 20 build/style-surface.txt; return 1; }
  tail -n 1 build/style-surface.txt
}

# A call with a number does not compile (ArgumentPlace in core/arguments.h), but a constant does.
# kNoArgument, which stands beside ArgumentPlace, is no place.
places() {
  git ls-files -z 'ports/host/ops/*.cpp' 'ports/host/ops/*.h' ':!ports/host/ops/core/arguments.h' |
    python3 -c '
import pathlib, re, sys
number = re.compile(r"\buint32_t [^;{}()]*?\bk[A-Z]\w* = \d[^,;]*")
names = sys.stdin.read().split("\0")[:-1]
found = [f"{name}: {constant}"
         for name in names for constant in number.findall(pathlib.Path(name).read_text())]
sys.exit("\n".join(found) or 0)
'
}

# Needs a compilation database and the generated header, but nothing compiled.
tidy() {
  cmake --preset dev >build/style-tidy.log && cmake --build build/dev --target husk_generated \
    >>build/style-tidy.log || { cat build/style-tidy.log; return 1; }
  local jobs
  jobs=$(nproc)
  git ls-files -z 'runtime/src/*.cpp' 'runtime/signature/*.cpp' 'runtime/text/*.cpp' \
    'runtime/weights/*.cpp' 'ports/*.cpp' |
    xargs -0 -n 3 -P "$jobs" clang-tidy -p build/dev --quiet 2>build/style-tidy.log ||
    { grep -v 'warnings generated' build/style-tidy.log; return 1; }
}

mkdir -p build
for check in "${checks[@]}"; do
  case $check in
    format | lines | types | surface | places | tidy) run=$check ;;
    ruff) run=ruff_checks ;;
    *) echo "tests/style.sh: no check '$check'" >&2; exit 2 ;;
  esac
  "$run" || failed+=("$check")
done
if ((${#failed[@]})); then
  echo "tests/style.sh: failed: ${failed[*]}"
  exit 1
fi
echo "tests/style.sh: passed: ${checks[*]}"
