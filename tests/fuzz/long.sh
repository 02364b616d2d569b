#!/usr/bin/env bash
# A long search of all four fuzzers at the same time.
#   tests/fuzz/long.sh BUILD SECONDS JOBS [FOLDER]
# BUILD is the folder of a build with -DHUSK_FUZZERS=ON, or a copy on another machine of its
# bin/fuzz_*, lib/test_kernels.so and tests/fuzz/{seeds,op_seeds,corpus}: the programs need only the
# C and C++ library. Each fuzzer runs in JOBS processes, which share a corpus; four numbers
# (LOAD,RUN,TEXT,OPS) give each fuzzer its own. FOLDER (default: BUILD/long) receives by fuzzer the
# corpus, the logs and the inputs that crash. Prints for each fuzzer the executions, the coverage,
# the new inputs of the last ten minutes (or of the last quarter, if the search is shorter than 40
# minutes) and the crashes. Fails if there is a crash, or a fuzzer that did not search.
set -euo pipefail
if (($# < 3)); then
  sed -n '2,3p' "$0" >&2
  exit 2
fi
build=$(cd "$1" && pwd)
seconds=$2
IFS=, read -ra counts <<<"$3"
((${#counts[@]} == 4)) || counts=("$3" "$3" "$3" "$3")
folder=${4:-$build/long}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
last=$((seconds < 2400 ? seconds / 4 : 600))
fuzzers=(fuzz_load fuzz_run fuzz_text fuzz_ops)

start() {   # FUZZER JOBS LENGTH [SEEDS...]
  local name=$1 jobs=$2 length=$3 log=$folder/$1
  shift 3
  mkdir -p "$log/corpus" "$log/crashes"
  rm -f "$log"/*.log
  for ((job = 0; job < jobs; ++job)); do
    # -reload reads the inputs that the other processes have found.
    "$build/bin/$name" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=30 -reload=1 \
      -reduce_inputs=0 -print_final_stats=1 -artifact_prefix="$log/crashes/" -max_len="$length" \
      "$log/corpus" "$build/tests/fuzz/corpus/$name" "$@" >"$log/$job.log" 2>&1 &
  done
}

[[ ! -d $build/lib ]] || export HUSK_FUZZ_ROOT=$build/lib   # test_kernels.so, for fuzz_text
start_time=$(date +%s)
seeds=("$build/tests/fuzz/seeds" "$build/tests/fuzz/op_seeds")
start fuzz_load "${counts[0]}" 65536 "${seeds[@]}"
start fuzz_run "${counts[1]}" 65536 "${seeds[@]}"
start fuzz_text "${counts[2]}" 16384 "$here/seeds"
start fuzz_ops "${counts[3]}" 1024
wait || true

status=0
recent=$((start_time + seconds - last))
for name in "${fuzzers[@]}"; do
  log=$folder/$name
  executions=$(awk '/stat::number_of_executed_units/ {n += $2} END {print n + 0}' "$log"/*.log)
  # "#123  NEW  cov: 4 ft: 5 ..."
  coverage=$(sed -n 's/.* cov: \([0-9]*\) ft: \([0-9]*\) .*/\1 edges, \2 features/p' "$log"/*.log |
    sort -n | tail -n 1)
  new=$(find "$log/corpus" -type f -newermt "@$recent" | wc -l)
  crashes=$(find "$log/crashes" -type f | wc -l)
  all=$(find "$log/corpus" -type f | wc -l)
  echo "$name: $executions executions, ${coverage:-no coverage}; $all new inputs, $new of them in" \
    "the last $last s; $crashes crashes"
  if ((crashes || !executions)); then
    status=1
    find "$log/crashes" -type f
    grep -hE -A12 'ERROR|SUMMARY|runtime error|refused with' "$log"/*.log | head -n 60 || true
    ((executions)) || tail -n 5 "$log"/*.log
  fi
done
exit $status
