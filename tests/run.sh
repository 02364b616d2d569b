#!/usr/bin/env bash
# Sets up this machine and runs every test that needs no GPU. Debian 12 or Ubuntu 24.04.
#   tests/run.sh [STAGE...]      by default: dev (g++), fuzz (clang; all tests under ASan and UBSan, and the fuzzers), small
#                                (the libraries' sizes), python (the exporter, end to end); also: asan (g++, ASan and UBSan)
set -euo pipefail
cd "$(dirname "$0")/.."
stages=("$@")
((${#stages[@]})) || stages=(dev fuzz small python)
.ci/setup.sh
summary=build/test-summary.txt
: >"$summary"

# Builds a preset and runs its tests; warnings are errors.
preset() {
  echo "== $1: build"
  cmake --preset "$1" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON >build/"$1".configure.log || { cat build/"$1".configure.log; exit 1; }
  cmake --build build/"$1" -- -k 0 >build/"$1".build.log || { grep -E 'error|warning|FAILED' -A3 build/"$1".build.log | head -60; exit 1; }
  echo "== $1: test"
  ctest --test-dir build/"$1" --output-on-failure "${@:2}" 2>&1 | tee build/"$1".test.log
  echo "$1: $(grep '% tests passed' build/"$1".test.log)" >>"$summary"
}

for stage in "${stages[@]}"; do
  case $stage in
    dev) preset dev -j2 ;;
    asan) preset asan -j2 ;;
    small) preset small -R size -V ;;
    fuzz) preset fuzz -j2 ;;
    python)
      [[ -x build/dev/bin/huskc ]] || preset dev -j2
      HUSKC=$PWD/build/dev/bin/huskc HUSK_RUN=$PWD/build/dev/bin/husk-run HUSK_EXAMPLE_C=$PWD/build/dev/bin/husk_example_c \
        build/venv/bin/python -m pytest tests -q --durations=5 2>&1 | tee build/pytest.log
      echo "python: $(tail -1 build/pytest.log)" >>"$summary"
      ;;
    *) echo "tests/run.sh: no stage '$stage'" >&2; exit 2 ;;
  esac
done
echo "== summary"
cat "$summary"
