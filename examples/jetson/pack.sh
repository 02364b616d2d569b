#!/usr/bin/env bash
# Makes an archive for a Jetson: Husk's tools for 64-bit Arm, a model for the board's GPU and CPU,
# the result that PyTorch has computed, and board.sh. Debian 12 or Ubuntu 24.04.
#   examples/jetson/pack.sh [GPU] [OUT]     GPU: orin (the default) or thor; OUT: the archive, by
#                                           default build/jetson.tar.gz
# HUSK_BUILD names an existing build for 64-bit Arm; PYTHON a Python with Husk's exporter.
set -euo pipefail
gpu=${1:-orin}
cd "$(dirname "$0")/../.."
out=$(realpath -m "${2:-build/jetson.tar.gz}")
build=${HUSK_BUILD:-build/jetson-tools}
python=$(realpath -s "${PYTHON:-build/venv/bin/python}")
if [[ -z ${HUSK_BUILD:-} ]]; then
  .ci/setup.sh
  echo "== building Husk for 64-bit Arm"
  cmake -G Ninja -S . -B "$build" --toolchain "$PWD/.ci/aarch64/toolchain.cmake" \
    -DCMAKE_BUILD_TYPE=Release -DHUSK_TESTS=OFF -DHUSK_EXAMPLES=OFF -DHUSK_MIMALLOC=OFF \
    -DHUSK_SIGNATURE=OFF -DHUSK_TEXT=OFF >build/jetson.log
  cmake --build "$build" --target husk husk_ops husk-run husk-bench >>build/jetson.log ||
    { tail -n 40 build/jetson.log; exit 1; }
  cmake --preset release >>build/jetson.log
  cmake --build build/release --target huskc husk_dump >>build/jetson.log ||
    { tail -n 40 build/jetson.log; exit 1; }
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/husk/bin" "$work/husk/lib"
cp "$build"/bin/{husk-run,husk-bench} "$work/husk/bin"
cp "$build"/lib/{libhusk,libhusk_ops}.so.0 "$work/husk/lib"
cp examples/jetson/board.sh "$work/husk"
# Ubuntu 22.04, which JetPack 6 has, has glibc 2.35.
newest=$(aarch64-linux-gnu-objdump -T "$work"/husk/{bin,lib}/* | grep -o 'GLIBC_2\.[0-9]*' |
  sort -Vu | tail -n 1)
[[ $(printf '%s\n' "$newest" GLIBC_2.35 | sort -V | tail -n 1) == GLIBC_2.35 ]] ||
  { echo "the programs need $newest, the board has GLIBC_2.35" >&2; exit 1; }

echo "== exporting the model for $gpu"
export PYTHONPATH=$PWD/compiler/torch
(cd "$work/husk" && "$python" "$OLDPWD/examples/jetson/export_mlp.py" "$gpu")
"$python" -m husk check "$work/husk/mlp.husk" --target "$gpu" --target host:aarch64
(cd "$work/husk" && sha256sum bin/* lib/* *.husk *.safetensors board.sh >SHA256SUMS)
tar -C "$work" -czf "$out" husk
echo "$out: copy it to the board, unpack it, and run husk/board.sh"
