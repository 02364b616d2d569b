#!/usr/bin/env bash
# Prints how many branches of the verifier a program has reached, and fails below a share of them.
#   coverage.sh PERCENT SOURCE... -- PROGRAM [ARGUMENT...]
# The program has those sources compiled by clang with -fprofile-instr-generate and
# -fcoverage-mapping. Needs llvm-profdata and llvm-cov of the same version.
set -euo pipefail
percent=$1
shift
sources=()
while [[ $1 != -- ]]; do
  sources+=("$1")
  shift
done
shift
profile=$(mktemp)
trap 'rm -f "$profile" "$profile.data"' EXIT
LLVM_PROFILE_FILE=$profile "$@"
llvm-profdata merge -sparse "$profile" -o "$profile.data"
llvm-cov export -summary-only -instr-profile "$profile.data" "$1" "${sources[@]}" |
  python3 -c '
import json, sys

files = json.load(sys.stdin)["data"][0]["files"]
count = covered = 0
for file in files:
    branches = file["summary"]["branches"]
    name = file["filename"].rsplit("/", 1)[-1]
    print(name + ":", branches["covered"], "of", branches["count"], "branches were taken")
    count += branches["count"]
    covered += branches["covered"]
share = 100 * covered / count
print(f"verifier: {share:.1f} % of {count} branches; {sys.argv[1]} % must be reached")
sys.exit(share < float(sys.argv[1]))' "$percent"
