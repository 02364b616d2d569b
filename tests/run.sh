#!/usr/bin/env bash
# Sets up this machine and runs every test that needs no GPU. Debian 12 or Ubuntu 24.04.
#   tests/run.sh [STAGE...]      by default: dev (g++), fuzz (clang; all tests under ASan and UBSan, and the fuzzers), small
#                                (the libraries' sizes), python (the exporter, end to end); also: tsan (clang; what runs on
#                                threads), aarch64 (cross-built, run by qemu), asan (g++, ASan and UBSan)
set -euo pipefail
cd "$(dirname "$0")/.."
stages=("$@")
((${#stages[@]})) || stages=(dev fuzz small python)
.ci/setup.sh
summary=build/test-summary.txt
: >"$summary"

# Builds a preset, or the `targets` of it, and runs its tests; warnings are errors.
targets=(all)
preset() {
  echo "== $1: build"
  cmake --preset "$1" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON >build/"$1".configure.log || { cat build/"$1".configure.log; exit 1; }
  cmake --build build/"$1" --target "${targets[@]}" -- -k 0 >build/"$1".build.log || { grep -E 'error|warning|FAILED' -A3 build/"$1".build.log | head -60; exit 1; }
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
      [[ -x build/dev/bin/huskc ]] || preset dev -j2
      [[ ! -x build/aarch64/bin/husk-run ]] ||
        export HUSK_RUN_AARCH64="qemu-aarch64 -L /usr/aarch64-linux-gnu $PWD/build/aarch64/bin/husk-run"
      export HUSKC=$PWD/build/dev/bin/huskc HUSK_RUN=$PWD/build/dev/bin/husk-run HUSK_EXAMPLE_C=$PWD/build/dev/bin/husk_example_c
      # Each version of PyTorch that is set up (.ci/setup.sh --torch-2.15 adds the newest); what needs none of it but to compare with, the ops of the host, runs once.
      for venv in venv venv215; do
        [[ -x build/$venv/bin/python ]] || continue
        build/$venv/bin/python -m pytest tests -q -n 2 --dist worksteal --durations=5 $([[ $venv == venv ]] || ls tests/torch/test_host_*.py |
          xargs grep -l '^from host_pack' | sed 's/^/--ignore=/') 2>&1 | tee build/pytest-$venv.log
        echo "python, torch $(build/$venv/bin/python -c 'import torch; print(torch.__version__)'): $(tail -1 build/pytest-$venv.log)" \
          >>"$summary"
      done
      build/venv/bin/python tests/torch/upstream.py | tail -1 >>"$summary"
      ;;
    *) echo "tests/run.sh: no stage '$stage'" >&2; exit 2 ;;
  esac
done
echo "== summary"
cat "$summary"
