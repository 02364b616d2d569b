#!/usr/bin/env bash
# Tests how tests/run.sh runs its stages, with stages that do nothing.
set -euo pipefail
run=$(cd "$(dirname "$0")" && pwd)/run.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# Stages that fail in each of the ways in which a stage can fail.
cat >fakes.sh <<'END'
source "$1"
stage() {
  echo "$1" >>began
  case " $FAIL " in
    *" $1:runner "*) runner log false; runner log true ;;
    *" $1:command "*) false ;;
    *" $1:exit "*) exit 3 ;;
    *" $1:slow "*)
      echo "is slow"
      touch is_slow
      until grep -q "not done" output; do sleep 0.1; done
      ;;
    *" $1:orphan "*) runner log bash -c 'echo "has one"; sleep 30 & exit 0' ;;
    *" $1:hangs "*) runner log sleep 60; runner log echo "goes on" ;;
    *" $1:import "*) PYTHONPATH=. python3 -c 'import fakes' ;;
  esac
  echo "$1" >>ended
  result="4 passed"
}
# The time after which a run is late has come when the slow stage has begun, and that waits for it.
[[ " $FAIL " != *":slow "* ]] || late_after=late
sleep() {
  if [[ $1 == late ]]; then
    until [[ -e is_slow ]]; do command sleep 0.1; done
  else
    command sleep "$@"
  fi
}
[[ " $FAIL " != *":hangs "* ]] || stage_limit=1
[[ " $FAIL " != *" full "* ]] || free_space() { echo 499; }
main "${@:2}"
END

# check NAME STATUS FAIL STAGE...: runs stages, of which FAIL fail, and expects the exit status.
check() {
  local status=0
  rm -rf build began ended
  name=$1
  FAIL=$3 bash fakes.sh "$run" "${@:4}" >output 2>&1 || status=$?
  [[ $status == "$2" ]] || fail "the exit status is $status, not $2"
  [[ $(tail -n "$(wc -l <build/test-summary.txt)" output) == "$(cat build/test-summary.txt)" ]] ||
    fail "the output does not end with the summary"
}

fail() {
  cat output
  echo "tests/run_test.sh: $name: $1"
  exit 1
}

# line STAGE TEXT: the line of a stage in the summary begins with this text.
line() {
  grep -q "^$1: $2; [0-9]" build/test-summary.txt || fail "no '$1: $2' in the summary"
}

all="setup release environments style aarch64 tsan fuzz tidy install small docs languages servers
  binding chat python python-2.15"
began() {
  [[ $(sort began) == "$(printf '%s\n' $1 | sort)" ]] || fail "these stages began: $(xargs <began)"
}

check "all stages pass" 0 ""
began "$all"
for stage in $all; do line "$stage" "4 passed"; done

check "stages of each row fail" 1 \
  "style:runner release:command aarch64:exit fuzz:command tidy:exit binding:command python:runner"
began "$all"
for stage in style python; do line "$stage" "failed: 4 passed"; done
for stage in release aarch64 fuzz tidy binding; do line "$stage" failed; done
for stage in setup tsan install small docs languages servers chat python-2.15; do
  line "$stage" "4 passed"
done
! grep -qx fuzz ended || fail "a stage went on after a command that failed"

check "stages that are named" 1 "docs:exit" docs style
began "setup docs style"
line docs failed
line style "4 passed"

check "a stage is late" 0 "docs:slow"
sed -n '/^== not done after/,$p' output | grep -q "is slow" ||
  fail "nothing says what a late stage prints"

check "a stage hangs" 1 "docs:hangs"
began "$all"
line docs "failed: 4 passed"
grep -q "docs runs for 1 seconds" output || fail "nothing says that a stage was ended"
grep -q "goes on" output || fail "the stage does not go on"

check "the disk is full" 1 "full docs:command"
grep -q "^== 499 MiB of disk are free, and all stages need about" output || fail "no warning"
grep -qx "the disk is full: 499 MiB are free" build/test-summary.txt || fail "no cause"

begin=$SECONDS
check "a stage leaves a process behind" 0 "docs:orphan"
((SECONDS - begin < 20)) || fail "the run waited for a process that was left behind"
grep -q "has one" output || fail "the output of a program is missing"

check "setup fails" 1 "setup:command"
began setup
line setup failed

check "environments fail" 1 "environments:command"
began "setup release environments style"
line environments failed
line release "4 passed"
echo "number = 1" >fakes.py
PYTHONDONTWRITEBYTECODE=1 check "modules are compiled once" 0 "docs:import" docs
[[ $(find . -name 'fakes*.pyc') == ./build/pycache/* ]] || fail "no compiled module in build"
echo "tests/run_test.sh: passed"
