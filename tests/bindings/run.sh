#!/usr/bin/env bash
# The tests of the bindings of other languages and of their examples, with the libraries of a build.
# They run program.hir and written.hir. Fails if the description of the C interface is out of date,
# or if compare.py does not find what breaks programs in a later one.
#   tests/bindings/run.sh BUILD
#   tests/bindings/run.sh BUILD time FILE.husk   # a run of the file in each language ÷ one in C
set -euo pipefail
if (($# == 0)); then
  sed -n '5,6p' "$0" >&2
  exit 2
fi
build=$(realpath "$1")
cd "$(dirname "$0")/../.."
export LD_LIBRARY_PATH=$build/lib HUSK_LIB_DIR=$build/lib CARGO_TARGET_DIR=$build/rust
export HUSK_TEST_PROGRAM=$build/rust/program.husk HUSK_TEST_WRITTEN=$build/rust/written.husk
rust=runtime/bindings/rust
mkdir -p "$CARGO_TARGET_DIR" "$build/go"
# Go finds the headers of the source tree and the libraries of the build.
cat >"$build/go/husk.pc" <<END
Name: husk
Description: the libraries of a build
Version: 0
Cflags: -I$PWD/runtime/include -I$PWD/ports/host/include -I$PWD/ports/cuda/include
Libs: -L$build/lib -lhusk
END
export PKG_CONFIG_PATH=$build/go GOCACHE=$build/go/cache GOPATH=$build/go/path GOFLAGS=-mod=mod
export GOPROXY=off CARGO_HOME=$build/rust/home
# Debian's version is the oldest that is supported.
PATH=/usr/bin:$PATH
unset JAVA_HOME
java=(java "-Djava.library.path=$build/java" -cp "$build/java/husk.jar:$build/java/test")
build_java() {
  runtime/bindings/java/build.sh "$build/java"
  javac -encoding UTF-8 -Xlint:all -Werror -cp "$build/java/husk.jar" -d "$build/java/test" \
    runtime/bindings/java/test/husk/*.java
}

if [[ ${2:-} == time ]]; then
  cc -O2 -std=gnu11 -Iruntime/include -Iports/host/include tests/bindings/call.c \
    -L"$build/lib" -lhusk -lhusk_ops -o "$build/rust/call"
  (cd "$rust" && cargo build --offline -q --release --example call)
  (cd runtime/bindings/go && go test -c -o "$build/go/husk.test" .)
  build_java
  export HUSK_BENCH_FILE=$3
  for ((round = 0; round < 5; ++round)); do
    c=$("$build/rust/call" "$3" 10000) rs=$("$build/rust/release/examples/call" "$3" 10000)
    go=$("$build/go/husk.test" -test.run=none -test.bench=Run | awk '/ns\/op/ {print $3}')
    jvm=$("${java[@]}" husk.HuskTest time "$3" 10000)
    awk "BEGIN {printf \"C %d ns, Rust %d ns: %.2f, Go %d ns: %.2f, Java %d ns: %.2f\n\", $c, $rs,
      $rs / $c, $go, $go / $c, $jvm, $jvm / $c}"
  done
  exit
fi

python3 schema/dtypes.py --check
python3 schema/activations.py --check
python3 schema/adapters.py --check
python3 schema/cpus.py --check
python3 runtime/bindings/abi/describe.py --check
python3 tests/bindings/test_compare.py >"$build/rust/compare.log" 2>&1 ||
  { cat "$build/rust/compare.log"; exit 1; }
"$build/bin/huskc" tests/bindings/program.hir -o "$HUSK_TEST_PROGRAM" >/dev/null
"$build/bin/huskc" tests/bindings/written.hir -o "$HUSK_TEST_WRITTEN" >/dev/null
cd "$rust"
cargo fmt --check
export RUSTFLAGS=-Dwarnings
features=()   # libhusk_text is left out of a build without PCRE2 or utf8proc
if [[ -e $build/lib/libhusk_text.so ]]; then
  features=(--features text)
  export HUSK_TEST_MODELS=$build/rust/models
  mkdir -p "$HUSK_TEST_MODELS"
  "$build/bin/husk_text_models" "$HUSK_TEST_MODELS"
fi
cargo test --offline -q "${features[@]}" 2>&1 | tee "$build/rust/test.log"
cd "$OLDPWD/runtime/bindings/go"
unformatted=$(gofmt -l .)
[[ -z $unformatted ]] || { echo "gofmt would change: $unformatted"; exit 1; }
go vet ./...
go test -v ./... >"$build/go/test.log" || { cat "$build/go/test.log"; exit 1; }
cd ../../..
build_java
# -Xcheck:jni prints a warning where the binding does not keep to the rules of JNI.
"${java[@]}" -Xcheck:jni husk.HuskTest >"$build/java/test.log" 2>&1 &&
  ! grep -q WARNING "$build/java/test.log" || { cat "$build/java/test.log"; exit 1; }
# The examples run a small model with constants instead of mlp.husk.
arch=$(uname -m)
sed "s/@ARCH@/${arch/x86_64/x86-64}/" tests/install/embedded.hir >"$build/rust/mlp.hir"
"$build/bin/huskc" "$build/rust/mlp.hir" -o "$build/rust/mlp.husk" >/dev/null
expected=$(for row in 3.4800 8.6000 13.7200 18.8400; do printf ' %7s' $row{,,,,,,,,,}; echo; done)
example() {
  local name=$1 output
  shift
  output=$("$@" "$build/rust/mlp.husk") || { echo "examples/$name failed"; exit 1; }
  [[ $output == "$expected" ]] ||
    { printf 'examples/%s prints:\n%s\n' "$name" "$output"; exit 1; }
}
(cd examples/rust && cargo fmt --check && cargo build --offline -q)
example rust "$CARGO_TARGET_DIR/debug/husk_example"
[[ -z $(gofmt -l examples/go) ]] || { echo "gofmt would change examples/go"; exit 1; }
(cd examples/go && go vet . && go build -o "$build/go/example" .)
example go "$build/go/example"
run_java() { examples/java/run.sh "$1" "$build/java/example"; }
example java run_java
awk '/^Ran/ {printf "compare.py: %d passed; ", $2}' "$build/rust/compare.log"
awk '/^test result: ok/ {n += $4} END {printf "Rust: %d passed; ", n}' "$build/rust/test.log"
echo "Go: $(grep -c '^--- PASS' "$build/go/test.log") passed;" \
  "$(tail -n 1 "$build/java/test.log"); examples: 3 passed"
