#!/usr/bin/env bash
# Sets up this machine and runs every test that needs no GPU. Debian 12 or Ubuntu 24.04.
#   tests/run.sh [STAGE...]
# By default, in this order:
#   dev           g++
#   fuzz          clang; all tests under ASan and UBSan, and the fuzzers
#   small         the libraries' sizes
#   tsan          clang; what runs on threads
#   aarch64       cross-built, run by qemu; where it was built, python runs artifacts for 64-bit Arm too
#   python        the exporter, end to end, with torch 2.11
#   python-2.15   with torch 2.15 what shows a difference between the two soonest: whole exports of each kind, for the host without
#                 AVX-512, for which the same code is written
# By name only:
#   python-2.15-all   all of them that torch has a part in, with 2.15
#   asan              g++, ASan and UBSan
set -euo pipefail
cd "$(dirname "$0")/.."
stages=("$@")
((${#stages[@]})) || stages=(dev fuzz small tsan aarch64 python python-2.15)
mkdir -p build
summary=build/test-summary.txt
: >"$summary"
trap '(($? == 0)) || echo "${name:-}: failed" >>"$summary"; echo "== summary"; cat "$summary"' EXIT

# Builds a preset, or the `targets` of it, and runs its tests; warnings are errors.
targets=(all)
preset() {
  echo "== $1: build"
  cmake --preset "$1" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON >build/"$1".configure.log || { cat build/"$1".configure.log; exit 1; }
  cmake --build build/"$1" --target "${targets[@]}" -- -k 0 >build/"$1".build.log || { grep -E 'error|warning|FAILED' -A3 build/"$1".build.log | head -60; exit 1; }
  echo "== $1: test"
  ctest --test-dir build/"$1" --output-on-failure "${@:2}" 2>&1 | tee build/"$1".test.log
  said=$(grep '% tests passed' build/"$1".test.log)
}

# Tests that torch has a part in; for others, those of the host's ops, it only says what is right.
of_torch=$(grep -L '^from host_pack' tests/torch/test_*.py)

# python ENVIRONMENT TEST...: the exporter's tests with the PyTorch of an environment.
python() {
  [[ -x build/dev/bin/huskc ]] || preset dev -j2
  [[ ! -x build/aarch64/bin/husk-run ]] ||
    export HUSK_RUN_AARCH64="qemu-aarch64 -L /usr/aarch64-linux-gnu $PWD/build/aarch64/bin/husk-run"
  local bin=$PWD/build/dev/bin
  export HUSKC=$bin/huskc HUSK_RUN=$bin/husk-run HUSK_EXAMPLE_C=$bin/husk_example_c HUSK_EXAMPLE_GENERATE=$bin/husk_example_generate
  echo "== python: torch $(build/"$1"/bin/python -c 'import torch; print(torch.__version__)')"
  build/"$1"/bin/python -m pytest "${@:2}" -q -n 2 --dist worksteal --durations=5 2>&1 | tee build/pytest-"$1".log
  said=$(tail -1 build/pytest-"$1".log)
}

stage() {
  case $1 in
    setup)
      .ci/setup.sh $([[ " ${stages[*]}" != *" python-2.15"* ]] || echo --torch-2.15)
      said=done
      ;;
    dev) preset dev -j2 ;;
    asan) preset asan -j2 ;;
    small) preset small -R size -V ;;
    fuzz) preset fuzz -j2 ;;
    tsan)
      targets=(husk_host_threads_test husk_host_sessions_test husk_runtime_threads_test)
      preset tsan -R '^husk_(host_threads|host_sessions|runtime_threads)_test$'
      targets=(all)
      ;;
    aarch64)   # what depends on the machine; texts and random programs do not, and qemu is slow
      targets=(husk_runtime_test husk_graph_test husk_host_test husk_host_threads_test husk_port_test husk-run huskc)
      preset aarch64 -j2 -R '^(runtime\.|graph\.|port\.|husk_host_test$|husk_host_threads_test$)'
      targets=(all)
      ;;
    python)
      python venv tests/torch
      said+="; $(build/venv/bin/python tests/torch/upstream.py | tail -1)"
      ;;
    python-2.15) python venv215 -k 'not avx512' tests/torch/test_{export,control,extern,cuda_export}.py ;;
    python-2.15-all) python venv215 $of_torch ;;
    *) echo "tests/run.sh: no stage '$1'" >&2; exit 2 ;;
  esac
}

# Wall and CPU time of a stage say whether it became slow or the machine was busy.
TIMEFORMAT='%0lR (CPU %0lU + %0lS)'
for name in setup "${stages[@]}"; do
  { time stage "$name" 2>&3; } 3>&2 2>build/stage.time
  echo "$name: $said; $(cat build/stage.time)" | tee -a "$summary"
done
