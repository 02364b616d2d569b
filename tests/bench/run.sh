#!/usr/bin/env bash
# Builds for release, measures the time that Husk adds to the kernels, and prints it with the
# targets. Compare the medians; on a machine with other load compare the minimum ("least").
#   tests/bench/run.sh [--smoke]     --smoke: execute each measurement once, as a test
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p build

# Builds the targets of the benchmarks without the rest of the tests.
build() {  # FOLDER TYPE TARGET...
  local folder=$1 type=$2
  shift 2
  cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE="$type" >"$folder.configure.log" || { cat \
    "$folder.configure.log"; exit 1; }
  cmake --build "$folder" --target "$@" >"$folder.build.log" || { tail -40 "$folder.build.log"; \
    exit 1; }
}

build build/bench Release husk_overhead husk_linked_bench huskc
build/bench/bin/husk_overhead "$@"
echo
build/bench/bin/husk_linked_bench "$@"

echo
times=()
repeat=5
[[ ${1:-} == --smoke ]] && repeat=1
build/bench/bin/husk_overhead --write-model 10000 build/bench/model.hir
for ((i = 0; i < repeat; ++i)); do
  start=$(date +%s%N)
  build/bench/bin/huskc build/bench/model.hir --root build/bench/lib -o build/bench/model.husk \
    >/dev/null
  times+=($((($(date +%s%N) - start) / 1000000)))
done
mapfile -t times < <(printf '%s\n' "${times[@]}" | sort -n)
printf '%-74s %10d %10d %-6s %8d\n' "huskc, 10000 launches" "${times[repeat / 2]}" "${times[0]}" \
  ms 1000

build build/bench-small MinSizeRel husk husk_core_only
for library in husk_core_only husk; do
  strip -o build/bench-small/stripped.so build/bench-small/lib/lib$library.so
  limit=98304
  [[ $library == husk ]] && limit=180224
  printf '%-74s %10d %10s %-6s %8d\n' "lib$library, stripped" \
    "$(stat -c %s build/bench-small/stripped.so)" "" bytes $limit
done
