#!/usr/bin/env bash
# Prints how many instructions a run costs the runtime. The program has 100 launches and two copies,
# on a port whose kernels do nothing; callgrind counts inside of husk_session_run.
#   tests/bench/instructions.sh BUILD [HUSKC]
# BUILD is a build folder with lib/libhusk.so, of this checkout or of another one. HUSKC is the
# compiler, by default BUILD/bin/huskc. To compare two builds, pass the same HUSKC for both.
set -euo pipefail
build=$(realpath "$1") here=$(realpath "$(dirname "$0")")
huskc=$(realpath "${2:-$build/bin/huskc}")
cache() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
source=$(cache CMAKE_HOME_DIRECTORY) runs=100 launches=100
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

arch=$(uname -m)
{
  cat <<HIR
hir 1
target cpu host "${arch/_/-}"
producer "instructions"
image kernels cpu elf "kernels.so"
kernel fused kernels "empty" (ptr, ptr, ptr, i32, i64)
function forward {
  input x tensor f32 [1..1024, 256]
  output y tensor f32 rank 2
  variant cpu {
    let s0 = size(x, 0)
    check_stride(x, 0, 256)
    check_stride(x, 1, 1)
    buffer x of input bytes mul(s0, 1024) align 16
    buffer y of output bytes mul(s0, 1024)
    buffer buf0 bytes mul(s0, 1024) align 64
    copy (write buf0, read x)
HIR
  for ((i = 1; i <= launches; ++i)); do
    n=$((64 * (1 + i % 16)))
    echo "    buffer buf$i bytes mul(s0, $((4 * n))) align 64"
    echo "    launch fused grid (cdiv(mul(s0, $n), 128), 1, 1)" \
      "(read buf$((i - 1)), read buf$((i > 3 ? i - 3 : 0)), write buf$i, mul(s0, $n), $i)"
  done
  echo "    copy (write y[0, 256], read buf$launches[0, 256])"
  echo "    return (tensor y f32 [s0, 256] [256, 1])"
  echo "  }"
  echo "}"
} >"$work/model.hir"
cc -shared -fPIC -O2 "$here/kernels.c" -o "$work/kernels.so"
"$huskc" "$work/model.hir" -o "$work/model.husk" >/dev/null
g++ -std=c++20 -O2 "$here/instructions.cpp" "$source/tests/bench/empty_port.cpp" -o "$work/run" \
  -I "$source/runtime/include" -I "$source/tests/bench" -I "$(cache HUSK_DLPACK_INCLUDE)" \
  -L "$build/lib" -Wl,-rpath,"$build/lib" -lhusk

for shapes in same changed; do
  valgrind --tool=callgrind --toggle-collect=husk_session_run \
    --callgrind-out-file="$work/out.$shapes" \
    "$work/run" "$work/model.husk" "$runs" "$shapes" 2>"$work/log" || { cat "$work/log"; exit 1; }
  counted=$(sed -n 's/.*Collected : //p' "$work/log")
  printf '%-8s shapes: %8d instructions a run\n' "$shapes" "$((counted / runs))"
done
