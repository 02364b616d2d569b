#!/usr/bin/env bash
# Runs the tests and measurements that need a GPU, with the files that tests/gpu/pack.sh made;
# builds nothing. Prints a report.
#   tests/gpu/run.sh [DIR] [STAGE...]
# DIR is build/gpu by default; the stages are those of the list below. By name only:
#   sweep         attention with other tiles, for the choice of tiles
#   load-sweep    threads and buffers of an upload, for the choice of both
#   triton        the backend of Triton Inference Server, after
#                 build/venv-servers/bin/python tests/gpu/triton_server.py pack DIR/triton
#   operators     memcheck and racecheck of PyTorch's database of operators, exported before by
#                 python tests/torch/nets/export_operators.py --keep DIR/operators
set -uo pipefail
cd "$(dirname "$0")/../.."
dir=${1:-build/gpu}
shift || true
stages=("$@")
((${#stages[@]})) || stages=(target models attention branches chain gpt transformers libraries \
  host_steps host_operators capture hidden user_kernels aoti load sessions binding compile
  devices ranks faults memory first asserts kernels port sanitizer)
# Exports without a choice of tuning are not measured, since that takes minutes.
export HUSK_TUNE=${HUSK_TUNE:-heuristic} HUSKC=$PWD/$dir/bin/huskc
own_libraries=${LD_LIBRARY_PATH:-}
export LD_LIBRARY_PATH=$PWD/$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
bin=$dir/bin data=$dir/data failed=0 passed=0 late=0

# check NAME COMMAND...: runs the command, prints its last lines, counts the result.
check() {
  local name=$1 text status
  shift
  text=$("$@" 2>&1)
  status=$?
  if ((status == 0)); then
    passed=$((passed + 1))
    echo "ok      $name"
  elif ((status == 124)); then
    late=$((late + 1))
    echo "LATE    $name (stopped when its time was up: nothing was found until then)"
  else
    failed=$((failed + 1))
    echo "FAILED  $name (exit $status)"
  fi
  [[ ${show:-} || $status -ne 0 ]] && echo "$text" | tail -n "${lines:-12}" | sed 's/^/        /'
  # failures of GoogleTest
  ((status == 0)) || grep -E -A6 '(: Failure|FAILED)' <<<"$text" | head -n 30 | sed 's/^/        /'
  return 0
}

# model DEVICE MODE NAME N: one case against eager.
model() {
  local args=()
  mapfile -t args <"$data/$3.$4.args"
  check "${kind:+$kind }$3.$4 on $1, $2" "${tool[@]}" "$bin/husk-run" "$data/model_$3.husk" \
    --device="$1" --mode="$2" --inputs="$data/$3.$4.in.safetensors" \
    "${args[@]}" --expected="$data/$3.$4.out.safetensors" --rtol=2e-3 --atol=2e-3 --stats
}

models() {
  local file name number
  for file in "$data"/*.in.safetensors; do
    IFS=. read -r name number _ <<<"$(basename "$file")"
    [[ -e $data/model_$name.husk ]] || continue
    model cuda list "$name" "$number"
    model cuda auto "$name" "$number"
    [[ ${#tool[@]} -eq 0 ]] && model host auto "$name" "$number"
  done
}

# small TITLE NAME QUERIES KEYS: a program of attention on random inputs, for the sanitizer's tools;
# its results are not compared.
small() {
  local title=$1 name=$2 queries=$3 keys=$4 row
  row=${name#*_}x${name%_*}
  check "$title" "${tool[@]}" "$bin/husk-run" "$dir/attention/$name.husk" --device=cuda \
    --input="2x${queries}x4x$row=random" \
    --input="2x${keys}x2x$row=random" --input="2x${keys}x2x$row=random" \
    --input="2x1x${queries}x${keys}xbool=zeros" \
    --input="2x4x${queries}x${keys}x${name%_*}=random"
}

# handshake_aside COMMAND...: racecheck of kernels whose warps share the work. Warps that wait for
# their part of the work read it after a barrier of the whole block, in the first instructions of
# the kernel. If a kernel has a barrier in shared memory as well, racecheck reports this read as a
# race, even in a kernel that only arrives at such a barrier and waits. Any other report counts.
handshake_aside() {
  local text
  text=$("$@" 2>&1) && grep -q "RACECHECK SUMMARY" <<<"$text" || { echo "$text"; return 1; }
  ! grep "Race reported" <<<"$text" | grep -vE \
    'between Read access at [[:alnum:]_]+\+0x[1-3]?[0-9a-f]{2}( |$)'
}

# The time of the GPT in each mode, with products as templates and fused, and the time of eager
# PyTorch on this GPU.
gpt() {
  local file number mode shape
  python3 tests/gpu/eager.py
  for file in model_gpt gpt_fused; do
    for number in 1 2 3; do
      for mode in "list --edges=auto" "graph --edges=full" "graph --edges=auto"; do
        # shellcheck disable=SC2086
        shape=$("$bin/husk-run" "$data/$file.husk" --device=cuda --mode=$mode \
          --inputs="$data/gpt.$number.in.safetensors" \
          --expected="$data/gpt.$number.out.safetensors" --rtol=2e-3 --atol=2e-3 --repeat=500) || \
          return 1
        printf '%-10s %-14s %-20s %s\n' "$file" "$(grep -oE 'f32\[[0-9, ]+\]' <<<"$shape")" \
          "$mode" "$(grep -oE 'median [0-9.]+ us \([0-9.]+ us' <<<"$shape") host)"
      done
    done
  done
}

# The cost of the check for indices out of range, against traps and against no check.
assert_times() {
  local way function
  for function in embed sum_rows put; do
    for way in status trap off; do
      printf '%-10s %-8s %s\n' "$function" "$way" \
        "$("$bin/husk-run" "$data/asserts_$way.husk" --function="$function" --device=cuda \
        --mode=graph --input=50x16xf32=random --input=4096xi64=zeros --print=none --repeat=500 | \
        grep -oE 'median [0-9.]+ us')" || return 1
    done
  done
}

# The cost of the first run of a launch list, each in a process of its own: with kernels that trap,
# and with prefetched kernels.
first_runs() {
  local file flags way times
  for file in model_gpt gpt_trap; do
    for flags in "list" "list --prefetch" "graph"; do
      times=
      for _ in 1 2 3; do
        # shellcheck disable=SC2086
        way=$(timeout 60 "$bin/husk-run" "$data/$file.husk" --device=cuda --mode=$flags \
          --inputs="$data/gpt.1.in.safetensors" --repeat=20 \
          2>&1) || { echo "$way"; return 1; }
        times+="  $(grep -oE 'first [0-9.]+ us' <<<"$way"), later $(grep -oE 'median [0-9.]+' \
          <<<"$way" | cut -c8-)"
      done
      printf '%-10s %-16s %s\n' "$file" "$flags" "$times"
    done
  done
  for flags in "" --prefetch; do
    # shellcheck disable=SC2086
    printf 'opening and running once %-12s %s\n' "$flags" \
      "$( { time "$bin/husk-run" "$data/model_gpt.husk" --device=cuda --mode=list $flags \
      --inputs="$data/gpt.1.in.safetensors" --print=none >/dev/null; } 2>&1 | grep real)"
  done
}

# Triton kernels that a user wrote.
kernels() {
  local file name mode
  for file in "$data"/kernels_*.husk; do
    name=$(basename "$file" .husk)
    for mode in list graph; do
      check "$name, $mode" timeout 60 "${tool[@]}" "$bin/husk-run" "$file" --device=cuda \
        --mode=$mode --inputs="$data/$name.in.safetensors" \
        --expected="$data/$name.out.safetensors" --repeat=3
    done
  done
}

# Whole transformers, exported on this machine, which needs torch and transformers for it. The
# expected values are those of eager PyTorch on this GPU in half precision.
transformers() {
  local out=$dir/transformers names=(bert vit llama) file name number mode made=()
  export PYTHONPATH=$PWD/compiler/torch HUSKC=$PWD/$bin/huskc
  for name in "${names[@]}"; do
    [[ -e $out/$name.husk ]] && continue
    python3 tests/gpu/transformers_models.py export "$out" "$name" >"$dir/$name.log" 2>&1 &
    made+=($!)
  done
  ((${#made[@]})) && wait "${made[@]}"
  for name in "${names[@]}"; do
    show=1 lines=8 check "$name is exported" bash -c \
      "cat '$dir/$name.log'; test -e '$out/$name.husk'"
  done
  show=1 lines=20 check "eager" python3 tests/gpu/transformers_models.py expect "$out"
  for file in "$out"/{bert,vit}.*.in.safetensors; do
    IFS=. read -r name number _ <<<"$(basename "$file")"
    for mode in list auto; do
      show=1 lines=5 check "$name.$number, $mode" "$bin/husk-run" "$out/$name.husk" --device=cuda \
        --mode=$mode --inputs="$file" \
        --expected="$out/$name.$number.out.safetensors" --rtol=2e-2 --atol=2e-2 --repeat=100
    done
  done
  for mode in list auto; do
    show=1 lines=4 check "llama, $mode" "$bin/husk_gpu_generate" "$out/llama.husk" \
      "$out/llama.0.tokens" $mode
  done
}

# Libraries: every kind of product by cuBLASLt and of convolution by cuDNN, whole transformers in
# both forms, memcheck.
libraries() {
  local out=$dir/transformers names=(bert vit llama) file name number mode made=() cublas way \
    artifact text value
  export PYTHONPATH=$PWD/compiler/torch HUSKC=$PWD/$bin/huskc
  local -x HUSK_TUNE=heuristic   # both ways of a model are exported alike, and soon
  cublas=$(python3 tests/gpu/libraries.py find) || { failed=$((failed + 1)); echo \
    "FAILED  not all libraries were found"; return; }
  echo "        cuBLASLt: $(readlink -f "${cublas%%:*}"/libcublasLt.so.1? | head -1)"
  local -x LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$cublas
  mkdir -p "$out"
  for name in "${names[@]}"; do
    for way in "" --gemm=cublaslt; do
      artifact=$out/$name${way:+.cublaslt}.husk
      [[ -e $artifact ]] && continue
      # shellcheck disable=SC2086
      timeout 400 python3 tests/gpu/transformers_models.py export "$out" "$name" $way \
        >"$artifact.log" 2>&1 &
      made+=($!)
    done
  done
  show=1 lines=6 check "port: products of every dtype, shape and layout" timeout 200 \
    "$bin/husk_port_test" --gtest_brief=1 \
    --gtest_filter='CudaMatmul.*:CudaConvolution.*'
  show=1 lines=60 check "products and convolutions against eager" timeout 400 \
    python3 tests/gpu/libraries.py check "$dir/libraries" "$bin/husk-run"
  ((${#made[@]})) && wait "${made[@]}"
  for name in "${names[@]}"; do
    for way in "" .cublaslt; do
      show=1 lines=2 check "$name$way is there" bash -c \
        "cat '$out/$name$way.husk.log' 2>/dev/null; test -e '$out/$name$way.husk'"
    done
  done
  [[ -e $out/llama.0.tokens && -e $out/bert.0.out.safetensors && -e $out/vit.0.out.safetensors ]] ||
    show=1 lines=12 check "eager" timeout 300 python3 tests/gpu/transformers_models.py expect "$out"
  # One line for each case: medians in us of 100 runs, until the run was waited for and until the
  # call returned, and the largest difference from eager.
  for file in "$out"/{bert,vit}.*.in.safetensors; do
    IFS=. read -r name number _ <<<"$(basename "$file")"
    for way in "" .cublaslt; do
      for mode in list auto; do
        text=$(timeout 100 "$bin/husk-run" "$out/$name$way.husk" --device=cuda --mode=$mode \
          --inputs="$file" \
          --expected="$out/$name.$number.out.safetensors" --rtol=2e-2 --atol=2e-2 --repeat=100 2>&1)
        value=$?
        ((value == 0)) && passed=$((passed + 1)) || failed=$((failed + 1))
        printf '%-7s %-22s %-5s %-52s %s\n' "$( ((value == 0)) && echo ok || echo FAILED)" \
          "$name.$number${way}" $mode \
          "$(grep -oE 'first [0-9.]+ us, median [0-9.]+ us \([0-9.]+ us' <<<"$text")" \
          "$(grep -oE 'differs by [0-9.e+-]+' <<<"$text" | tr '\n' ' ')"
        ((value == 0)) || tail -4 <<<"$text" | sed 's/^/        /'
      done
    done
  done
  for way in "" .cublaslt; do
    for mode in list auto; do
      show=1 lines=3 check "llama$way, $mode" timeout 200 "$bin/husk_gpu_generate" \
        "$out/llama$way.husk" "$out/llama.0.tokens" $mode
    done
  done
  # Memory that the library keeps until it is closed is not a leak, so leaks are not reported.
  for name in matrices_f16 batches_f32; do
    lines=30 check "memcheck $name" timeout 300 python3 tests/gpu/libraries.py check \
      "$dir/libraries" \
      "${memcheck[*]} $bin/husk-run" "$name"
  done
}

# Steps on the host between kernels, written by hand.
host_steps() {
  local text
  "$HUSKC" tests/gpu/host_steps.hir -o "$dir/host_steps.husk" >/dev/null
  text=$("$bin/husk-run" "$dir/host_steps.husk" --device=cuda --input=4xf32=iota \
    --input=4xf32=iota --repeat=20 --print=all)
  check "operators on the host" test "$(grep -c '^0 1 3 6$' <<<"$text")" = 2
  show=1 lines=3 check "1,000,000 elements" "$bin/husk-run" "$dir/host_steps.husk" --device=cuda \
    --input=1000000xf32=iota --input=1000000xf32=iota --repeat=20 --stats
}

# Operators on the CPU between kernels: values, times, and the copies under memcheck.
host_operators() {
  local folder=$dir/host_operators script=tests/gpu/host_operators.py
  show=1 lines=40 check "host operators against eager" timeout 300 python3 "$script" check \
    "$folder" "$bin/husk-run"
  show=1 lines=10 check "host operators, times" timeout 200 python3 "$script" time "$folder" \
    "$bin/husk-run"
  lines=40 check "memcheck host operators" timeout 500 python3 "$script" check "$folder" \
    "${memcheck[*]} --leak-check full $bin/husk-run"
}

# Calls of libraries and of an op of the application in graphs, runs inside a capture, a graph for
# each segment. It exports BERT unless the stage `libraries` has.
capture() {
  local out=$dir/transformers shape cublas custom=("$bin/husk_custom_op" "$data/custom_op.husk"
    tests/gpu/scale.ptx)
  export PYTHONPATH=$PWD/compiler/torch HUSKC=$PWD/$bin/huskc
  local -x HUSK_TUNE=heuristic
  cublas=$(python3 tests/gpu/libraries.py find) || { failed=$((failed + 1)); echo \
    "FAILED  not all libraries were found"; return; }
  local -x LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$cublas
  mkdir -p "$out"
  [[ -e $out/bert.cublaslt.husk ]] || check "bert.cublaslt is exported" timeout 300 python3 \
    tests/gpu/transformers_models.py export "$out" bert --gemm=cublaslt
  # Lists, graphs and captures: times, and results bit for bit.
  for shape in 1x128 8x128; do
    show=1 lines=8 check "bert.cublaslt $shape" timeout 100 "$bin/husk_gpu_capture" \
      "$out/bert.cublaslt.husk" 200 $shape $shape
  done
  show=1 lines=8 check "linear_f32" timeout 60 "$bin/husk_gpu_capture" \
    "$dir/libraries/linear_f32.husk" 200 2x16x96
  show=1 lines=8 check "several segments" timeout 60 "$bin/husk_gpu_capture" \
    "$data/capture_segments.husk" 200 1000x64
  show=1 lines=8 check "several segments against eager" timeout 100 python3 tests/gpu/capture.py \
    check "$data" "$bin/husk-run"
  show=1 lines=5 check "an op of the application" bash -c \
    "'${custom[0]}' '${custom[1]}' ${custom[2]} | tee /dev/stderr | grep -q 'run as a graph'"
  show=1 lines=3 check "port: captures" "$bin/husk_port_test" --gtest_brief=1 \
    --gtest_filter='*Graph.*apture*'
  lines=30 check "memcheck bert.cublaslt" timeout 300 "${memcheck[@]}" "$bin/husk_gpu_capture" \
    "$out/bert.cublaslt.husk" 2 1x128 1x128
  lines=30 check "memcheck several segments" timeout 200 "${memcheck[@]}" "$bin/husk_gpu_capture" \
    "$data/capture_segments.husk" 5 1000x64
  lines=30 check "memcheck an op of the application" timeout 100 "${memcheck[@]}" "${custom[@]}"
}

# husk.load with tensors of PyTorch, by the wheel that tests/gpu/pack.sh made. The wheel lies in a
# folder of its own, and finds its library by its place.
binding() {
  local site=$PWD/$dir/site
  rm -rf "$site"
  check "the wheel is installed" python3 -m pip install -q --no-index --no-deps --target "$site" \
    "$dir"/wheel/*.whl
  show=1 lines=60 check "husk.load with tensors of PyTorch" env -u HUSKC PYTHONPATH="$site" \
    LD_LIBRARY_PATH="$own_libraries" timeout 300 python3 tests/gpu/binding.py check "$data"
  # PyTorch's own cache of memory would hide accesses behind an end.
  lines=30 check "memcheck husk.load" env -u HUSKC PYTHONPATH="$site" \
    LD_LIBRARY_PATH="$own_libraries" PYTORCH_NO_CUDA_MEMORY_CACHING=1 timeout 300 "${memcheck[@]}" \
    python3 tests/gpu/binding.py check --tool "$data"
}

# torch.compile(backend="husk") by the same wheel. Each part compiles in a process of its own. The
# checks of memory come last and alone, since they look at the memory of the whole GPU.
compile() {
  local site=$PWD/$dir/site part
  [[ -e $site ]] || check "the wheel is installed" python3 -m pip install -q --no-index --no-deps \
    --target "$site" "$dir"/wheel/*.whl
  jit() {
    env -u HUSKC PYTHONPATH="$site" LD_LIBRARY_PATH="$own_libraries" timeout "$1" python3 \
      "tests/gpu/$2.py" "${@:3}"
  }
  for part in 0 1 2 3; do
    { jit 200 compile --part $part/4 || echo failed; } >"$dir/compile.$part.log" 2>&1 &
  done
  wait
  for part in 0 1 2 3; do
    show=1 lines=80 check "torch.compile, part $part" bash -c \
      "cat '$dir/compile.$part.log'; [[ \$(tail -n 1 '$dir/compile.$part.log') != failed ]]"
  done
  show=1 lines=40 check "torch.compile, memory" jit 120 compile --part memory
  show=1 lines=60 check "torch.compile, times" jit 500 compile_bench
}

# The example of two ranks: exported for a GPU, and run by the wheel, each rank on a GPU of its own.
# Both programs print the same rows. Then its file with husk-run.
ranks() {
  local site=$PWD/$dir/site folder=$PWD/$dir/ranks
  [[ -e $site ]] || check "the wheel is installed" python3 -m pip install -q --no-index --no-deps \
    --target "$site" "$dir"/wheel/*.whl
  mkdir -p "$folder"
  example() {   # PROGRAM ARGUMENT: its rows are in PROGRAM.rows
    local text program=$PWD/examples/several-gpus/$1.py
    text=$(cd "$folder" && PYTHONPATH=$site LD_LIBRARY_PATH=$own_libraries timeout 200 python3 \
      "$program" "$2") && tr -d 'a-z([],)' <<<"$text" | tee "$folder/$1.rows"
  }
  equal() {
    paste "$folder"/{export_mlp,run_mlp}.rows | awk '
      { for (i = 1; i <= 10; ++i) if (($i - $(i + 10)) ^ 2 > 4e-6) exit 1; rows += NF == 20 }
      END { exit rows != 4 }'
  }
  show=1 check "an MLP for two ranks is exported" example export_mlp cuda:h200
  show=1 check "its rows on two GPUs" example run_mlp cuda
  check "they are those of the whole model" equal
  show=1 lines=6 check "husk-run with two ranks" "$bin/husk-run" "$folder/mlp.husk" --ranks 2 \
    --device=cuda --input=4x32xf32=random
}

# The backend of Triton Inference Server on this GPU: values, throughput, memcheck of the server.
triton() {
  local folder=$dir/triton script=tests/gpu/triton_server.py
  export PYTHONPATH=$PWD/compiler/torch
  [[ -e $folder/bert.husk ]] || check "models for the server" timeout 300 python3 $script export \
    "$folder"
  show=1 lines=30 check "Triton Inference Server" timeout 200 python3 $script run "$folder" "$bin" \
    --groups 2:0 2:1000:32
  show=1 lines=12 check "memcheck Triton Inference Server" timeout 300 python3 $script run \
    "$folder" "$bin" --tool "${memcheck[*]}"
}

# Models with Triton kernels of their own, exported on this machine by rules and by measuring, each
# compared with eager.
user_kernels() {
  local tune
  for tune in heuristic max; do
    timeout 280 python3 tests/gpu/user_kernels.py check "$dir/user_kernels.$tune" "$bin/husk-run" \
      --tune $tune >"$dir/user_kernels.$tune.log" 2>&1 &
  done
  wait
  for tune in heuristic max; do
    show=1 lines=24 check "kernels of the model's own, tune=$tune" bash -c \
      "cat '$dir/user_kernels.$tune.log'
        tail -n 1 '$dir/user_kernels.$tune.log' | grep -q 'equal eager'"
  done
}

# operator FILE COMMAND...: runs the artifact of an operator, and prints a line about it.
operator() {
  local file=$1 name text status
  name=$(basename "$file" .husk)
  shift
  if text=$(timeout 100 "$@" "$file" --device=cuda --mode=list --print=none \
    --inputs="${file%.husk}.in.safetensors" 2>&1); then
    echo "ok      $name"
  else
    status=$?
    echo "FAILED  $name (exit $status): $(tr '\n' ' ' <<<"$text" | cut -c1-1500)"
  fi
}

# operators KIND: all operators under a tool of compute-sanitizer, many at a time. Values are those
# of export_operators.py --run.
operators() {
  local log=$dir/operators.$1.log
  export -f operator
  find "$dir/operators" -name '*.husk' | sort | nice -n 5 xargs -P "$(nproc)" -I{} bash -c \
    'operator "$@"' operator {} compute-sanitizer --tool "$1" --report-api-errors no \
    --error-exitcode 9 --print-limit 3 "$bin/husk-run" >"$log"
  grep -v '^ok' "$log"
  echo "$(grep -c '^ok' "$log") of $(find "$dir/operators" -name '*.husk' | wc -l)"
  ! grep -q '^FAILED' "$log" && grep -q '^ok' "$log"
}

tool=()
memcheck=(compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9
  --print-limit 5)
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
for stage in "${stages[@]}"; do
  echo "== $stage"
  case $stage in
    target) show=1 lines=20 check "the target's description" python3 tests/gpu/target.py \
      compiler/torch/husk/cuda/targets/h200.json ;;
    models) models ;;
    attention)
      show=1 lines=120 check "attention against eager" python3 tests/gpu/attention.py check \
        "$dir/attention" "$bin/husk-run"
      show=1 lines=30 check "attention, times" timeout 300 python3 tests/gpu/attention.py time \
        "$dir/attention" "$bin/husk-run"
      ;;
    sweep)
      export PYTHONPATH=$PWD/compiler/torch HUSKC=$PWD/$bin/huskc
      show=1 lines=200 check "attention with other tiles" timeout 330 python3 \
        tests/gpu/attention.py sweep "$dir/attention" "$bin/husk-run" 240
      ;;
    branches) show=1 check "branches: graph against list, 1000 runs" "$bin/husk_gpu_check" \
      "$data/branches.husk" 1000 ;;
    chain) show=1 lines=60 check "chain of 100 kernels" "$bin/husk_gpu_bench" "$data" 300 ;;
    gpt) show=1 lines=30 check "GPT, eager and every mode" gpt ;;
    transformers) transformers ;;
    libraries) libraries ;;
    host_steps) host_steps ;;
    capture) capture ;;
    host_operators) host_operators ;;
    hidden) show=1 lines=90 check "exports with the GPU hidden and visible" timeout 280 python3 \
      tests/gpu/hidden.py "$dir/hidden" ;;
    user_kernels) user_kernels ;;
    triton) triton ;;
    aoti) show=1 lines=150 check "AOTInductor and Husk side by side" timeout 475 python3 \
      tests/gpu/aoti.py run "$dir/aoti" "$dir" --seconds 320 ;;
    binding) binding ;;
    compile) compile ;;
    load) show=1 lines=50 check "loading of weights" "$bin/husk_gpu_load" "$dir/weights.tmp" ;;
    load-sweep) show=1 lines=140 check "loading, its choices" timeout 300 "$bin/husk_gpu_load" \
      "$dir/weights.tmp" 5 sweep ;;
    memory)
      check "programs for it" "$bin/husk_gpu_memory" make "$bin/port_kernels_sm_90.cubin" \
        "$dir/memory.tmp"
      for name in six large; do
        show=1 check "memory and opening, $name" timeout 120 "$bin/husk_gpu_memory" measure \
          "$dir/memory.tmp/$name.husk" $([[ $name == six ]] && echo 50 || echo 5)
      done
      show=1 check "two programs share their weights" timeout 120 "$bin/husk_gpu_memory" share \
        "$dir/memory.tmp/large.husk"
      rm -rf "$dir/memory.tmp"
      ;;
    sessions) show=1 check "sessions on threads and streams" timeout 300 "$bin/husk_gpu_sessions" \
      "$data/branches.husk" 2000 ;;
    devices)
      if (($(nvidia-smi --list-gpus | wc -l) < 2)); then
        echo "skipped: one GPU; this needs two"
        continue
      fi
      show=1 check "two devices" timeout 300 "$bin/husk_gpu_sessions" "$data/branches.husk" 2000 \
        devices
      for mode in list auto; do
        model cuda:1 $mode mlp 1
        model cuda:1 $mode gpt 1
      done
      ;;
    ranks)
      if (($(nvidia-smi --list-gpus | wc -l) < 2)); then
        echo "skipped: one GPU; this needs two"
        continue
      fi
      ranks
      ;;
    faults) show=1 lines=60 check "faults" timeout 300 "$bin/husk_gpu_faults" \
      "$bin/port_kernels_sm_90.cubin" ;;
    asserts)
      show=1 lines=40 check "indices out of range" timeout 120 "$bin/husk_gpu_asserts" \
        "$data/asserts_status.husk"
      show=1 lines=10 check "indices out of range, times" assert_times
      lines=40 check "memcheck indices out of range" timeout 300 compute-sanitizer --tool memcheck \
        --report-api-errors no --error-exitcode 9 \
        --print-limit 5 "$bin/husk_gpu_asserts" "$data/asserts_status.husk"
      ;;
    operators)
      for kind in memcheck racecheck; do
        show=1 lines=200 check "$kind operators" operators $kind
      done
      ;;
    first) show=1 lines=20 check "first runs" first_runs ;;
    kernels)
      kernels
      tool=(compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 \
        --print-limit 5)
      kernels
      tool=()
      ;;
    port) show=1 lines=3 check "port conformance" "$bin/husk_port_test" --gtest_brief=1 ;;
    sanitizer)
      # Errors of driver calls are not reported: the port finds the number of a kernel's parameters
      # by asking for one parameter too many, and the driver's error is the answer.
      tool=(compute-sanitizer --tool memcheck --leak-check full --report-api-errors no \
        --error-exitcode 9 --print-limit 5)
      models
      for name in f16_80 f32_64 bf16_128; do
        small "memcheck attention $name" $name 137 75
      done
      small "memcheck attention f16_64, many tiles a block" f16_64 4300 75
      lines=40 check "memcheck attention decode" python3 tests/gpu/attention.py check \
        "$dir/attention" "${tool[*]} $bin/husk-run" decode_f16_128
      # The stage does not run tests that lose the device on purpose, nor those of cuBLASLt, of
      # which the stage `libraries` runs a part.
      check "memcheck port" "${tool[@]}" "$bin/husk_port_test" --gtest_brief=1 \
        --gtest_filter='-CudaDebug.*:CudaMatmul.*:CudaConvolution.*'
      check "memcheck branches" "${tool[@]}" "$bin/husk_gpu_check" "$data/branches.husk" 40
      for kind in racecheck initcheck synccheck; do
        tool=(timeout 100 compute-sanitizer --tool $kind --error-exitcode 9 --print-limit 5)
        check "$kind branches" "${tool[@]}" "$bin/husk_gpu_check" "$data/branches.husk" 20
      done
      # racecheck finds races within a block, in shared memory; a missing edge between kernels is
      # found by "branches" above. initcheck finds reads of memory that nobody wrote.
      # --track-unused-memory is off, since an arena is larger than one shape needs. Memory that an
      # earlier buffer of the arena wrote counts as written, so initcheck finds first uses only;
      # poison_memory of the session covers the others.
      for kind in racecheck initcheck; do
        tool=(timeout 60 compute-sanitizer --tool $kind --error-exitcode 9 --print-limit 5)
        for name in sum_of_two mlp branches gpt; do
          for mode in list auto; do
            model cuda $mode $name 1
          done
        done
        small "$kind attention f32_64" f32_64 5 35
        [[ $kind == initcheck ]] || tool=(handshake_aside timeout 60 compute-sanitizer --tool \
          racecheck --print-limit 100)
        for name in f16_64 f16_128; do
          small "$kind attention $name" $name 5 35
        done
        tool=(timeout 60 compute-sanitizer --tool $kind --error-exitcode 9 --print-limit 5)
        check "$kind port" "${tool[@]}" "$bin/husk_port_test" --gtest_brief=1 \
          --gtest_filter='CudaLaunch.*:CudaProgrammatic.*'
      done
      tool=() kind=
      ;;
    *) echo "no stage '$stage'"; exit 2 ;;
  esac
done
echo "$passed passed, $failed failed, $late stopped"
exit $((failed != 0))
