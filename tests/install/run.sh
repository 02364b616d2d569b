#!/usr/bin/env bash
# Installs a build of Husk, moves the installation to a folder with an odd name, and builds and
# runs programs outside of the tree that use it: by find_package, by pkg-config, by the static
# libraries (from C and C++), and with Husk's sources as a subdirectory.
#   tests/install/run.sh BUILD     BUILD: a folder in which all of Husk is built, e.g. build/release
set -euo pipefail
tests=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$tests/../.." && pwd)
build=$(cd "$1" && pwd)
work=$build/install-test
prefix="$work/moved to/husk+odd"
rm -rf "$work"
mkdir -p "$work/moved to"
cd "$work"
unset LD_LIBRARY_PATH CMAKE_PREFIX_PATH PKG_CONFIG_PATH
version=$(sed -n 's/^project(husk VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")
expected="husk $version: 7 10 15 22"
cases=0

fail() {
  echo "tests/install: $1" >&2
  exit 1
}

# same NAME COMMAND...: the command prints what the program is expected to print.
same() {
  local name=$1 output
  shift
  output=$("$@") || fail "$name does not run"
  [[ $output == "$expected" ]] || fail "$name prints '$output', expected is '$expected'"
  echo "$name: $output"
  cases=$((cases + 1))
}

# project NAME PROGRAM...: configures a project of this folder with the `options` of CMake, and
# builds it and runs its programs, if there are any.
options=()
project() {
  local name=$1
  shift
  cmake -G Ninja -S "$tests/$name" -B "$name" -DCMAKE_PREFIX_PATH="$prefix" \
    -DHUSK_SOURCE="$source" "${options[@]}" >"$name.log" 2>&1 ||
    { cat "$name.log"; fail "$name: configure"; }
  (($#)) || return 0
  cmake --build "$name" -- -j2 >>"$name.log" 2>&1 || { tail -40 "$name.log"; fail "$name: build"; }
  for program; do same "$name/$program" "$name/$program" matmul.husk; done
}

echo "== components"
for component in runtime dev tools; do
  cmake --install "$build" --prefix "$work/$component" --component "$component" >>install.log
  (cd "$component" && find . ! -type d | sort | sed "s/^\./  $component:/")
done
[[ -z $(find runtime tools -name '*.h' -o -name '*.a' -o -name '*.so' -o -name '*.cmake') ]] ||
  fail "the components runtime and tools have files for developers"

echo "== installation"
cmake --install "$build" --prefix "$work/first" >>install.log
mv first "$prefix"
leaks=$(grep -rlIF -e "$source" -e "$work" "$prefix") &&
  fail "these installed files name folders of the build: $leaks"
lib=$(dirname "$(find "$prefix" -name 'libhusk.so')")

echo "== tools"
arch=$(uname -m)
sed "s/@ARCH@/${arch/x86_64/x86-64}/" "$tests/matmul.hir" >matmul.hir
"$prefix/bin/huskc" matmul.hir -o matmul.husk
"$prefix/bin/husk-dump" matmul.husk >dump.txt
"$prefix/bin/husk-run" matmul.husk --input=2x2xf32=iota --print=all >husk_run.txt
[[ $(grep -A1 '^2 3$' husk_run.txt | tail -1) == "6 11" ]] || fail "husk-run: $(cat husk_run.txt)"

echo "== CMake packages"
project find_package c_shared c_static cpp_shared cpp_static
project static_c c_static
needed=$(readelf -d static_c/c_static find_package/c_static | grep NEEDED)
[[ $needed != *libhusk* && $needed != *libstdc++* ]] || fail "static programs need: $needed"

echo "== a static program that contains its model"
sed "s/@ARCH@/${arch/x86_64/x86-64}/" "$tests/embedded.hir" >embedded.hir
"$prefix/bin/huskc" embedded.hir -o embedded.husk
cmake -G Ninja -S "$source/examples/embedded" -B embedded -DCMAKE_PREFIX_PATH="$prefix" \
  -DHUSKC="$prefix/bin/huskc" -DHUSK_MODEL="$work/embedded.husk" >embedded.log 2>&1 &&
  cmake --build embedded >>embedded.log 2>&1 || { cat embedded.log; fail "embedded: build"; }
embedded/husk_embedded >embedded.txt || fail "embedded does not run"
[[ $(cat embedded.txt) == " 3.4800 3.4800 "*"0 allocations in "* ]] ||
  fail "embedded: $(cat embedded.txt)"
[[ $(readelf -d embedded/husk_embedded) != *NEEDED* ]] || fail "embedded is not static"
cases=$((cases + 1))

echo "== an operator of the application on a GPU"
cmake -G Ninja -S "$source/examples/custom-op-cuda" -B custom_op -DCMAKE_PREFIX_PATH="$prefix" \
  >custom_op.log 2>&1 && cmake --build custom_op >>custom_op.log 2>&1 ||
  { cat custom_op.log; fail "custom_op: build"; }
[[ $(custom_op/husk_custom_op 2>&1) == usage:* ]] || fail "husk_custom_op prints no usage"
cases=$((cases + 1))

if [[ -e $lib/libhusk_signature.so ]]; then
  echo "== signatures"
  "$prefix/bin/husk-sign" keygen --secret release.key --public release.pub
  "$prefix/bin/husk-sign" sign matmul.husk --secret release.key
  cmake -G Ninja -S "$tests/signature" -B signature -DCMAKE_PREFIX_PATH="$prefix" \
    -DHUSK_SOURCE="$source" >signature.log 2>&1 && cmake --build signature >>signature.log 2>&1 ||
    { cat signature.log; fail "signature: build"; }
  for program in signed_shared signed_static; do
    [[ $("signature/$program" matmul.husk release.pub) == "matmul.husk is signed"* ]] ||
      fail "$program does not open a signed artifact"
    cases=$((cases + 1))
  done
  symbols=$(nm -D --defined-only "$lib/libhusk_signature.so" | grep -v ' husk_signature_' || true)
  [[ -z $symbols ]] || fail "libhusk_signature exports $symbols"
fi

echo "== pkg-config"
export PKG_CONFIG_PATH=$lib/pkgconfig
[[ $(pkg-config --modversion husk) == "$version" ]] || fail "husk.pc has another version"
project pkg_config c_shared
# The output of pkg-config quotes spaces for the shell.
eval "flags=($(pkg-config --cflags --libs husk))"
cc "$tests/matmul.c" "${flags[@]}" -o by_pkg_config
same by_pkg_config env LD_LIBRARY_PATH="$lib" ./by_pkg_config matmul.husk
eval "flags=($(pkg-config --cflags --libs --static husk))"
mkdir -p archives
cp "$lib"/*.a archives
cc "$tests/matmul.c" -Larchives "${flags[@]}" -o by_pkg_config_static
same by_pkg_config_static ./by_pkg_config_static matmul.husk
[[ $(readelf -d by_pkg_config_static) != *libhusk* ]] || fail "by_pkg_config_static needs libhusk"

echo "== without libdlpack-dev"
mkdir -p include
ln -s /usr/include/* include
rm -f include/dlpack
headers=(-nostdinc -isystem "$work/include" -isystem "$work/include/$(gcc -print-multiarch)"
  -isystem "$(gcc -print-file-name=include)")
gcc -std=c11 -Wall -Wextra -Werror "${headers[@]}" "$tests/matmul.c" "${flags[@]}" \
  -Larchives -o without_dlpack
same without_dlpack env LD_LIBRARY_PATH="$lib" ./without_dlpack matmul.husk

echo "== subdirectory"
project add_subdirectory   # the type of the build is not given, and Husk does not set it
# What compiles fast. The kernels of hosts have their own level in any build but Debug.
options=(-DCMAKE_BUILD_TYPE=Debug -DHUSK_TEST_GIVEN=CMAKE_BUILD_TYPE -DCMAKE_UNITY_BUILD=ON)
project add_subdirectory c_shared c_static
echo "tests/install: $cases programs passed"
