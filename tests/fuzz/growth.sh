#!/usr/bin/env bash
# What the end of a long search has reached for the first time, in lines and branches of sources.
#   tests/fuzz/growth.sh PROGRAM MINUTES FOLDER [CORPUS...]
# libFuzzer counts an edge of a template once for every type, so its number grows long after each
# line of the sources was seen. This script counts a line or a side of a branch once. PROGRAM is a
# fuzzer of a build with clang, without -DHUSK_FUZZERS and sanitizers, and with
#   -DCMAKE_CXX_FLAGS="-fprofile-instr-generate -fcoverage-mapping"
# FOLDER is the corpus that the search has written, whose files' times say when they were found. The
# search must have kept its inputs (-reduce_inputs=0, as in long.sh), since libFuzzer otherwise
# replaces old ones by smaller ones. Each CORPUS is one that it started from. Prints what is reached
# in all, and each line and branch that only inputs of the last MINUTES before the newest input
# reach. Fails if there is one.
set -euo pipefail
if (($# < 3)); then
  sed -n '3p' "$0" >&2
  exit 2
fi
program=$1 minutes=$2 found=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/old" "$work/new"
newest=$(find "$found" -type f -printf '%T@\n' | sort -n | tail -n 1 | cut -d. -f1)
border=@$((${END:-$newest} - minutes * 60))
find "$found" -type f ! -newermt "$border" -print0 | xargs -0r ln -st "$work/old"
find "$found" -type f -newermt "$border" -print0 | xargs -0r ln -st "$work/new"
LLVM_PROFILE_FILE=$work/old.profile "$program" 0 "$work/old" "$@"
LLVM_PROFILE_FILE=$work/new.profile "$program" 0 "$work/new"
for age in old new; do
  llvm-profdata merge -sparse "$work/$age.profile" -o "$work/$age.data"
  llvm-cov export -skip-functions -instr-profile "$work/$age.data" "$program" >"$work/$age.json"
done
python3 - "$work/old.json" "$work/new.json" "$minutes" <<'END'
import json
import sys


def reached(path):
    result = set()
    for file in json.load(open(path))["data"][0]["files"]:
        if "/tests/" in file["filename"]:
            continue
        for line, column, count, counted, begins, *_ in file["segments"]:
            if counted and begins and count:
                result.add((file["filename"], line, column, "reached"))
        for line, column, _, _, taken, skipped, *_ in file["branches"]:
            if taken:
                result.add((file["filename"], line, column, "true"))
            if skipped:
                result.add((file["filename"], line, column, "false"))
    return result


old, new = (reached(path) for path in sys.argv[1:3])
late = sorted(new - old)
print(f"{len(old | new)} regions and sides of branches are reached, {len(late)} of them only by "
      f"inputs of the last {sys.argv[3]} minutes")
for name, line, column, what in late:
    print(f"  {name}:{line}:{column} {what}")
sys.exit(1 if late else 0)
END
