#!/usr/bin/env bash
# Sets up this machine and runs every test that needs no GPU. Debian 12 or Ubuntu 24.04.
#   tests/run.sh [STAGE...]
# tests/README.md says what each stage is, when to run it alone, and how long it takes. Stages that
# are named run one after the other. By default two rows of stages run at the same time, since few
# stages keep two cores busy all the time; first
#   release       g++, as it is installed; all tests of C and C++
# and
#   environments  the Python environments of all stages, which `release` does not need
#   style         formatting, ruff, line lengths, types of the exporter
# and then
#   aarch64       tests of code for one processor, cross-built for 64-bit Arm, run by qemu
#   tsan          clang; the tests with threads under ThreadSanitizer
#   fuzz          clang; all tests of C and C++ under ASan and UBSan, and the fuzzers
# and
#   tidy          clang-tidy on runtime and ports
#   install       outside projects that use an installation of the build of `release`
#   small         sizes of the libraries, and of static programs, on 64-bit Arm too
#   docs          pages, the reference of the interface, the commands of README and tutorial
#   languages     the bindings of other languages
#   servers       Husk in Triton Inference Server, MLServer and Ray Serve: real servers
#   chat          a published language model: its export, and its answers
#   binding       the runtime in Python, with torch 2.11
#   python        the exporter with torch 2.11, also with programs of `aarch64`
#   python-2.15   with torch 2.15: whole exports of each kind
# By name only:
#   aarch64-all       aarch64, and the tests of the CUDA port and of graphs
#   python-2.15-all   all tests of the exporter with torch 2.15
#   python-surface    which private names of PyTorch its newest version lacks, or the version in the
#                     environment HUSK_TORCH
#   python-free-threaded  the runtime in Python, with the free-threaded Python HUSK_FREE_THREADED
#   package           pip install of the package into an empty environment, and its use there
#   asan              g++; all tests of C and C++ under ASan and UBSan
#   mutation          removes each check of the runtime in turn: the tests must notice
# A stage that fails stops no other stage, but for `setup` and `environments`: all run, the summary
# says which failed, and the exit status is then 1. tests/run_test.sh tests that.
set -euo pipefail
# PyTorch's threads wait for one another without processor time. By default they spin, and take the
# cores of the tests that run beside them: a part of the tests of operators took six times as long.
export OMP_WAIT_POLICY=passive
# Each process of Python would compile the 2,000 modules that an export imports, which takes it 7 of
# 11 seconds: uv installs no compiled modules, and some images forbid Python to write them.
unset PYTHONDONTWRITEBYTECODE
summary=build/test-summary.txt
running=()

# The MiB that are free on the disk of the build folder, of which all stages need so many.
all_need=18000
free_space() {
  df -Pm . | awk 'END { print $4 }'
}

finish() {
  for row in "${running[@]}" ${watch:-}; do
    kill -- "-$row" 2>/dev/null || true
  done
  echo "== summary"
  for name in setup "${stages[@]}" ${first_rows[*]} ${rows[*]}; do
    cat "build/stages/$name.line" 2>/dev/null || true
  done | tee $summary
  (($(free_space) >= 500)) || echo "the disk is full: $(free_space) MiB are free" | tee -a $summary
}

# No test may hang a machine: one that takes 10 minutes is ended, and its process says where it was.
pytest=(-m pytest -q -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true)

# runner LOG COMMAND...: a program that runs tests, whose output goes to LOG, too. If it fails, the
# stage goes on to its other runners, and has failed. A process that it has left behind has the log
# open and nothing else, so that nobody waits for it.
failed=0
runner() {
  local program
  : >"$1"
  "${@:2}" >"$1" 2>&1 3>&- 4>&- &
  program=$!
  tail --pid=$program -n +1 -s 0.2 -f "$1" || true
  wait "$program" || failed=1
}

# preset NAME [CTEST OPTION...]: builds the `targets` of a preset with the `options` of CMake, and
# runs its tests. Warnings are errors.
targets=(all)
options=()
preset() {
  local log=build/$1
  echo "== $1: build"
  cmake --preset "$1" -DHUSK_TESTS=ON -DHUSK_TEST_PARTS=ON -DHUSK_UNITY_TESTS=ON \
    -DHUSK_UNITY_TOOLS=ON -DCMAKE_COMPILE_WARNING_AS_ERROR=ON "${options[@]}" \
    >"$log.configure.log" ||
    { cat "$log.configure.log"; exit 1; }
  cmake --build "build/$1" --target "${targets[@]}" -- -k 0 -j "$(nproc)" >"$log.build.log" ||
    { grep -E 'error|warning|FAILED' -A3 "$log.build.log" | head -n 60; exit 1; }
  echo "== $1: test"
  local before=$failed tests=(ctest --test-dir "build/$1" --output-on-failure --timeout 600)
  runner "$log.test.log" "${tests[@]}" "${@:2}"
  result=$(grep '% tests passed' "$log.test.log")
  # At its end a program stops all its threads to look for leaks, which fails once in a while on a
  # busy machine. It has then not looked, so it runs again.
  if ((failed > before)) &&
    grep -q 'LeakSanitizer has encountered a fatal error' "$log.test.log"; then
    failed=$before
    runner "$log.again.log" "${tests[@]}" --rerun-failed
    result+="; again: $(grep '% tests passed' "$log.again.log")"
  fi
}

# python ENVIRONMENT TEST...: the exporter's tests with the PyTorch of an environment.
python() {
  [[ -x build/release/bin/huskc ]] || preset release -j2
  [[ ! -x build/aarch64/bin/husk-run ]] ||
    export HUSK_RUN_AARCH64="qemu-aarch64 -L /usr/aarch64-linux-gnu $PWD/build/aarch64/bin/husk-run"
  local bin=$PWD/build/release/bin log=build/pytest-$1.log
  export HUSKC=$bin/huskc HUSK_RUN=$bin/husk-run
  export HUSK_EXAMPLE_C=$bin/husk_example_c HUSK_EXAMPLE_GENERATE=$bin/husk_example_generate
  export HUSK_HELLO=$bin/husk_hello HUSK_HELLO_CPP=$bin/husk_hello_cpp
  export HUSK_BENCH=$bin/husk-bench HUSK_FIRST_RESULT=$bin/husk_first_result
  echo "== python: torch $("build/$1/bin/python" -c 'import torch; print(torch.__version__)')"
  runner "$log" "build/$1/bin/python" "${pytest[@]}" "${@:2}" -n 2 --dist loadfile --durations=10
  result=$(tail -n 1 "$log")
}

# The sizes of programs for 64-bit Arm that are linked statically, with the huskc of this machine.
small_aarch64() {
  local log=build/small-aarch64
  cmake --preset small -B $log --toolchain .ci/aarch64/toolchain.cmake -DHUSK_TESTS=ON \
    -DHUSK_EXAMPLES=OFF -DHUSK_MIMALLOC=OFF -DHUSK_SIGNATURE=OFF -DHUSK_TEXT=OFF \
    "-DHUSK_HUSKC=$PWD/build/release/bin/huskc" >$log.configure.log ||
    { cat $log.configure.log; exit 1; }
  cmake --build $log --target husk_small_program husk_small_model >$log.build.log ||
    { tail -n 40 $log.build.log; exit 1; }
  runner $log.test.log ctest --test-dir $log -R size.small -V
  result+="; aarch64: $(grep '% tests passed' $log.test.log)"
}

# Builds the extension of the Python package with the libraries of `release`.
extension() {
  cmake --preset release -DHUSK_TESTS=ON -DHUSK_PYTHON=ON -DCMAKE_COMPILE_WARNING_AS_ERROR=ON \
    -DPython_EXECUTABLE="$PWD/build/venv/bin/python" >build/binding.configure.log ||
    { cat build/binding.configure.log; exit 1; }
  cmake --build build/release --target husk_python >build/binding.build.log ||
    { cat build/binding.build.log; exit 1; }
  # Python takes the newest build, which may be one with sanitizers, as another row makes it.
  export HUSK_TEXT_LIBRARY=$PWD/build/release/lib/libhusk_text.so
}

stage() {
  case $1 in
    setup | environments)
      local options=()
      local all=" ${stages[*]} ${first_rows[*]} ${rows[*]} "
      [[ $all != *" python-2.15"* ]] || options+=(--torch-2.15)
      if [[ $all == *" python-surface "* && ! ${HUSK_TORCH:-} ]]; then
        rm -rf build/venv-newest   # PyPI may have a newer one
        options+=(--torch-newest)
      fi
      [[ $all != *" languages "* ]] || options+=(--languages)
      [[ $all != *" servers "* ]] || options+=(--servers)
      [[ $all != *" chat "* ]] || options+=(--chat)
      [[ $all != *" style "* && $all != *" tidy "* ]] || options+=(--style)
      [[ $1 == environments || $all != *" environments "* ]] || options+=(--no-python)
      .ci/setup.sh "${options[@]}"
      result=done
      ;;
    style | tidy)
      local checks=()
      [[ $1 == style ]] || checks=(tidy)
      [[ $1 == tidy ]] || runner build/run-test.log tests/run_test.sh
      runner "build/$1.log" tests/style.sh "${checks[@]}"
      result=$(tail -n 1 "build/$1.log")
      ;;
    release) preset release -j2 ;;
    install)
      [[ -x build/release/bin/huskc ]] || preset release -j2
      runner build/install.log tests/install/run.sh build/release
      result=$(tail -n 1 build/install.log)
      ;;
    asan) preset asan -j2 ;;
    small)
      [[ -x build/release/bin/huskc ]] || preset release -j2
      options=("-DHUSK_HUSKC=$PWD/build/release/bin/huskc")
      targets=(husk husk_core_only husk_small_program husk_small_model)
      preset small -R size -V
      options=() targets=(all)
      small_aarch64
      ;;
    docs)
      runner build/docs.log tests/docs.sh
      result=$(tail -n 1 build/docs.log)
      ;;
    fuzz)   # sanitizers see nothing new in a long search for plans of memory
      GTEST_FILTER=-Families.AreTightInTheOrderOfALongSearch preset fuzz -j2
      ;;
    tsan)
      targets=(husk_host_threads_test husk_host_sessions_test husk_runtime_threads_test)
      preset tsan -R '^husk_(host_threads|host_sessions|runtime_threads)_test$'
      targets=(all)
      ;;
    aarch64 | aarch64-all)   # qemu is slow
      local tests='runtime\.|husk_host_test\.|husk_host_threads_test$|husk_linked_test$'
      targets=(husk_runtime_test husk_host_test husk_host_threads_test husk_linked_test)
      targets+=(husk-run husk-bench huskc husk_small)
      # These work for long to see what no processor changes: which memory a call with damaged
      # arguments harms, when a call that is cancelled ends, and how tight plans of memory are that
      # a long search finds. What random arguments harm is for sanitizers to see. Others are of
      # instructions that no Arm processor has.
      local filter='-Parts/ChangedMemoryPart.*:Parts/CancelPart.*:NoisyOps.*'
      filter+=':Families.AreTightInTheOrderOfALongSearch:Amx.*:Depths/AmxInts.*'
      if [[ $1 == aarch64-all ]]; then
        targets+=(husk_graph_test husk_port_test)
        tests+='|graph\.|port\.'
        filter='*'
      fi
      GTEST_FILTER=$filter preset aarch64 -j2 -R "^($tests)"
      targets=(all)
      ;;
    mutation)
      runner build/mutation.log python3 tests/mutation/mutate.py
      result=$(tail -n 1 build/mutation.log)
      ;;
    languages)
      [[ -x build/release/bin/huskc ]] || preset release -j2
      runner build/languages.log tests/bindings/run.sh build/release
      result=$(tail -n 1 build/languages.log)
      ;;
    servers)
      [[ -x build/release/bin/huskc ]] || preset release -j2
      cmake --preset release -DHUSK_TESTS=ON -DHUSK_TRITON=ON -DCMAKE_COMPILE_WARNING_AS_ERROR=ON \
        >build/servers.configure.log || { cat build/servers.configure.log; exit 1; }
      cmake --build build/release --target husk_triton huskc husk_example_generate \
        >build/servers.build.log ||
        { cat build/servers.build.log; exit 1; }
      HUSKC=$PWD/build/release/bin/huskc \
        HUSK_TRITON=$PWD/build/release/lib/triton/husk/libtriton_husk.so \
        runner build/pytest-servers.log \
        build/venv-servers/bin/python "${pytest[@]}" tests/servers --durations=5
      result="Triton: $(tail -n 1 build/pytest-servers.log)"
      extension
      HUSKC=$PWD/build/release/bin/huskc runner build/pytest-mlserver.log \
        build/venv-mlserver/bin/python "${pytest[@]}" --durations=5 \
        tests/serve/test_{model,mlserver}*.py
      result+="; MLServer: $(tail -n 1 build/pytest-mlserver.log)"
      HUSKC=$PWD/build/release/bin/huskc runner build/pytest-ray.log \
        build/venv-ray/bin/python "${pytest[@]}" --durations=5 tests/serve/test_ray*.py
      result+="; Ray: $(tail -n 1 build/pytest-ray.log)"
      ;;
    binding)
      [[ -x build/release/bin/huskc ]] || preset release -j2
      extension
      HUSKC=$PWD/build/release/bin/huskc runner build/pytest-binding.log \
        build/venv/bin/python "${pytest[@]}" tests/python -n 2 --dist loadfile --durations=5
      result=$(tail -n 1 build/pytest-binding.log)
      ;;
    chat)
      [[ -x build/release/bin/huskc ]] || preset release -j2
      extension
      HUSKC=$PWD/build/release/bin/huskc PYTHONPATH=$PWD/compiler/torch \
        runner build/pytest-chat.log \
        build/venv-chat/bin/python "${pytest[@]}" tests/chat --durations=5
      result=$(tail -n 1 build/pytest-chat.log)
      ;;
    package)
      rm -rf build/empty
      python3 -m venv build/empty
      build/empty/bin/pip install -q --disable-pip-version-check ./compiler/torch 2>&1 |
        tee build/package.log
      env -i build/empty/bin/python tests/python/installed.py 2>&1 | tee -a build/package.log
      result=$(tail -n 1 build/package.log)
      ;;
    python)
      [[ -x build/release/bin/huskc ]] || preset release -j2
      extension
      python venv tests/torch
      result+="; $(build/venv/bin/python tests/torch/exports/upstream.py | tail -n 1)"
      ;;
    python-2.15)   # without the tests of AVX-512, for which the exporter writes the same code
      python venv215 -k 'not avx512' \
        tests/torch/{exports/test_{,cuda_}export,inductor/test_surface}.py
      ;;
    python-2.15-all)   # without the tests of operators of the host, which torch only checks
      python venv215 tests/torch --ignore tests/torch/ops
      ;;
    python-surface)
      runner build/python-surface.log \
        "${HUSK_TORCH:-build/venv-newest}/bin/python" -W ignore tests/surface.py missing
      result=$(tail -n 1 build/python-surface.log)
      ;;
    python-free-threaded)
      [[ -x build/release/bin/huskc ]] || preset release -j2
      local venv=build/venv-free-threaded log=build/free-threaded
      "${HUSK_FREE_THREADED:?is the path of a free-threaded Python}" -m venv $venv
      # The last NumPy with wheels for Python 3.13 without a lock.
      build/uv/bin/uv pip install -q --only-binary :all: --python $venv/bin/python \
        'numpy<2.4' pytest $(grep -E '^(torch|nanobind)=' compiler/torch/requirements.txt)
      cmake --preset release -B $log -DHUSK_PYTHON=ON -DPython_EXECUTABLE=$PWD/$venv/bin/python \
        >$log.configure.log || { cat $log.configure.log; exit 1; }
      cmake --build $log --target husk_python >$log.build.log ||
        { tail -n 40 $log.build.log; exit 1; }
      HUSKC=$PWD/build/release/bin/huskc runner $log.log \
        $venv/bin/python -W ignore -m pytest tests/python -q
      result=$(tail -n 1 $log.log)
      ;;
    *) echo "tests/run.sh: no stage '$1'" >&2; exit 2 ;;
  esac
}

# Ends what a stage runs every `stage_limit` seconds, and `python` three times as late, so that the
# stages behind it still run. Stages that build much have no limit: each of their tests has one.
stage_limit=
has_limit() {
  case $1 in release | aarch64 | tsan | fuzz) return 1 ;; esac
  [[ $stage_limit ]]
}
end_late() {
  local child limit=$stage_limit
  [[ $1 != python ]] || limit=$((3 * stage_limit))
  while sleep "$limit"; do
    echo "tests/run.sh: $1 runs for $limit seconds; what it does is ended"
    for child in $(pgrep -P "$2"); do
      [[ $child == "$BASHPID" ]] || kill "$child" || true
    done
  done
}

# A stage in a shell of its own, which it ends if it fails. Its result is in a file then.
stage_alone() (
  result= own=$BASHPID ends=
  if has_limit "$1"; then
    set -m
    end_late "$1" "$own" 3>&- 4>&- &
    ends=$!
    disown
    set +m
  fi
  trap 'echo "$result" >"build/stages/$1.result"
    [[ ! $ends ]] || kill -- "-$ends" 2>/dev/null || true
    jobs -p | xargs -r kill 2>/dev/null || true' EXIT
  set -e
  stage "$1"
  exit "$failed"
)

# run_stage NAME: The line of the summary has the last line of each runner of the stage, and its
# wall and CPU time, which say whether it became slow or the machine was busy. No condition may call
# this function: `set -e` would have no effect in it.
TIMEFORMAT='%0lR (CPU %0lU + %0lS)'
run_stage() {
  local name=$1 line=build/stages/$1 status result
  echo "$name: failed, or did not end" >"$line.line"
  set +e
  { time stage_alone "$name" 2>&3; } 3>&2 2>"$line.time"
  status=$?
  set -e
  result=$(cat "$line.result")
  if ((status)); then
    echo "$name" >>build/stages/failed
    result="failed${result:+: $result}"
  fi
  echo "$name: $result; $(cat "$line.time")" | tee "$line.line"
}

# run_row STAGE...: the stages one after the other, for a row that is not alone. What a stage prints
# appears when it ends. Stages of two rows use no build folder at the same time: `python` waits for
# `aarch64`, and the rest of the first row uses folders of its own.
run_row() {
  local name stage_limit=${stage_limit:-900}
  exec 4>&1   # what fails has its output elsewhere
  trap '[[ ! ${printed:-} ]] || cat "$printed.part" >&4' EXIT
  for name; do
    [[ $name != python ]] || until [[ -e build/stages/aarch64.text ]]; do sleep 0.2; done
    echo "== $name begins"
    printed=build/stages/$name
    run_stage "$name" >"$printed.part" 2>&1
    mv "$printed.part" "$printed.text"
    cat "$printed.text"
    printed=
  done
}

# run_rows ROW...: rows of stages at the same time.
run_rows() {
  local row
  for row; do
    # The first row has the time that the second one leaves, in which servers have to answer.
    # shellcheck disable=SC2086
    (set +m; ((${#running[@]})) || renice -n 19 "$BASHPID" >/dev/null; run_row $row) &
    running+=($!)
  done
  for row; do
    wait -n
  done
  running=()
}

# After 50 minutes: what the stages of rows have printed last, and which processes run, for whoever
# looks for the one that does not end.
late_after=3000
late() {
  sleep "$late_after"
  echo "== not done after $late_after seconds"
  tail -n 20 build/stages/*.part
  ps -eo pid,ppid,etimes,time,args --sort -time | cut -c 1-160 | head -n 40
}

main() {
  stages=("$@")
  first_rows=()
  rows=()
  if ((${#stages[@]} == 0)); then
    first_rows=("release" "environments style")
    rows=("aarch64 tsan fuzz"
      "tidy install small docs languages servers binding chat python python-2.15")
    (($(free_space) >= all_need)) ||
      echo "== $(free_space) MiB of disk are free, and all stages need about $all_need"
  fi
  mkdir -p build
  export PYTHONPYCACHEPREFIX=$PWD/build/pycache
  rm -rf build/stages
  mkdir build/stages   # what each stage prints, if rows run, and its line of the summary
  trap finish EXIT
  trap 'exit 130' INT
  local name
  for name in setup "${stages[@]}"; do
    run_stage "$name"
    [[ $name != setup || ! -e build/stages/failed ]] || exit 1
  done
  set -m   # each row is a process group, which `finish` ends
  late &
  watch=$!
  disown   # `run_rows` waits for its rows alone
  run_rows "${first_rows[@]}"
  ! grep -qsx environments build/stages/failed || exit 1
  run_rows "${rows[@]}"
  [[ ! -e build/stages/failed ]] || exit 1
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  cd "$(dirname "$0")/.."
  main "$@"
fi
