#!/usr/bin/env bash
# Makes the corpora of tests/fuzz/corpus again from what a long search has found.
#   tests/fuzz/corpus.sh BUILD FOLDER
# BUILD is a build with -DHUSK_FUZZERS=ON; FOLDER is that of long.sh. An archive keeps the fewest
# inputs of the search and of the old corpus that reach what the seeds do not reach.
set -euo pipefail
build=$(cd "$1" && pwd)
found=$(cd "$2" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in fuzz_load fuzz_run fuzz_text fuzz_ops; do
  mkdir -p "$work/$name/all" "$work/$name/seeds"
  case $name in
    fuzz_load | fuzz_run) cp "$build"/tests/fuzz/{seeds,op_seeds}/*.husk "$work/$name/seeds" ;;
    fuzz_text) cp "$here"/seeds/*.hir "$work/$name/seeds" ;;
  esac
  (cd "$work/$name/seeds" && find . -type f | sort >../before)
  # Merging adds to the first folder the inputs of the others that reach something new. How often an
  # edge is passed does not count for operators, since the archive would be several times as large.
  counters=1
  [[ $name != fuzz_ops ]] || counters=0
  "$build/bin/$name" -merge=1 -use_counters=$counters -rss_limit_mb=4096 \
    "$work/$name/seeds" "$found/$name/corpus" "$build/tests/fuzz/corpus/$name" \
    >"$work/$name/log" 2>&1
  (cd "$work/$name/seeds" && find . -type f | sort | comm -13 ../before -) |
    while read -r input; do mv "$work/$name/seeds/$input" "$work/$name/all"; done
  tar -C "$work/$name/all" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cJf \
    "$here/corpus/$name.tar.xz" .
  echo "$name: $(ls "$work/$name/all" | wc -l) inputs," \
    "$(stat -c %s "$here/corpus/$name.tar.xz") bytes"
done
