#!/usr/bin/env bash
# Runs the commands of the README and of the tutorial as they are printed, each page in a shell that
# starts at the root of the checkout. The folders that the commands make are removed first.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf build/husk build/tutorial build/hello build/mlp.husk
mkdir -p build
for page in README.md examples/TUTORIAL.md; do
  echo "== $page"
  python3 tests/pages.py commands "$page" >build/commands.sh
  bash -x build/commands.sh
done
