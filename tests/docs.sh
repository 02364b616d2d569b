#!/usr/bin/env bash
# Checks the documentation: links and quoted code of all pages, the tables of measured numbers, the
# version that all files name, the reference of the interface, and the commands of the README and of
# the tutorial.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
python3 tests/pages.py check
python3 tests/bench/chart.py --check
.ci/release.sh --check
cmake --preset release >build/release.configure.log
cmake --build build/release --target husk_reference
tests/tutorial.sh >build/tutorial.log 2>&1 || { tail -n 40 build/tutorial.log; exit 1; }
pages=$(grep -c '^== ' build/tutorial.log)
echo "pages, tables, version, reference and the commands of $pages pages: passed"
