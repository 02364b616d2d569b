#!/usr/bin/env bash
# Runs the commands of the README, of the tutorial and of the page about Python as they are printed,
# each page in a shell that starts at the root of the checkout. The folders that the commands make
# are removed first.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf build/husk build/tutorial build/hello build/{mlp,linear,sum}.husk
mkdir -p build
for page in README.md examples/TUTORIAL.md runtime/PYTHON.md; do
  echo "== $page"
  python3 tests/pages.py commands "$page" >build/commands.sh
  bash -x build/commands.sh
done
