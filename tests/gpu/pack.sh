#!/usr/bin/env bash
# Makes build/gpu with everything that tests/gpu/run.sh needs on a machine with a GPU: programs and
# the libraries that they link, artifacts exported for the GPU, inputs, and the results of eager
# PyTorch for them. This machine needs no GPU.
#   tests/gpu/pack.sh [BUILD]      BUILD: a configured build folder, build/dev by default
# HUSK_WHEEL_PYTHON names a Python 3.12 or newer that has pip; python3.12 by default.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build/dev}
python=${HUSK_PYTHON:-build/venv/bin/python}
programs=(husk-run husk-dump husk-bench huskc husk_gpu_asserts husk_gpu_bench husk_gpu_capture \
  husk_gpu_check husk_gpu_faults husk_gpu_generate husk_gpu_load husk_gpu_memory \
  husk_gpu_open husk_gpu_sessions husk_port_test husk_custom_op)
cmake --build "$build" --target husk husk_ops "${programs[@]/husk-dump/husk_dump}"
out=build/gpu
rm -rf "$out"
mkdir -p "$out/bin" "$out/lib" "$out/data"
for program in "${programs[@]}"; do
  strip -o "$out/bin/$program" "$build/bin/$program"
done
cp -a "$build"/lib/libhusk.so* "$build"/lib/libhusk_ops.so* "$out/lib/"
strip "$out"/lib/libhusk*.so.*.*
for library in mimalloc fmt gtest; do
  ldd "$out"/bin/* | awk -v name="lib$library.so" 'index($1, name) == 1 { print $3 }' | sort -u |
    while read -r file; do cp -L "$file" "$out/lib/"; done
done
cp -a "$build"/bin/port_kernels_* "$build/bin/port_nvtx.so" "$out/bin/"

export HUSKC=$PWD/$build/bin/huskc PYTHONPATH=$PWD/compiler/torch
"$python" tests/gpu/chain.py --out "$out/data"
for name in chain branches; do
  "$HUSKC" "$out/data/$name.hir" -o "$out/data/$name.husk"
done
for model in sum_of_two mlp branches gpt; do
  "$python" -m husk "examples/models.py:$model" -o "$out/data/model_$model.husk" --target \
    host:avx2 --target cuda:h200
done
"$python" -m husk examples/models.py:gpt -o "$out/data/gpt_fused.husk" --target cuda:h200:fused
"$python" -m husk examples/models.py:gpt -o "$out/data/gpt_trap.husk" --target cuda:h200 \
  --asserts=trap
"$python" tests/gpu/expected.py "$out/data"
"$python" tests/gpu/asserts.py "$out/data"
"$python" tests/gpu/binding.py pack "$out/data"
"$python" tests/gpu/kernels.py "$out/data"
mkdir "$out/attention"
"$python" tests/gpu/attention.py pack "$out/attention"
"$python" tests/gpu/libraries.py pack "$out/libraries"
"$python" tests/gpu/host_operators.py pack "$out/host_operators"
"$python" tests/gpu/capture.py pack "$out/data"
"$HUSKC" tests/custom_op/scale.hir -o "$out/data/custom_op.husk"
rm -f "$out"/data/*.hir
# The package for the Python of the machine with the GPU. It is built for the stable ABI, so that a
# Python 3.12 or newer makes it for all of them.
"${HUSK_WHEEL_PYTHON:-python3.12}" -m pip wheel -q --no-deps -w "$out/wheel" ./compiler/torch
du -sh "$out"
