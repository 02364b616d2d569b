#!/usr/bin/env bash
# Installs what Husk is built and tested with, on Debian 12 or Ubuntu 24.04: packages of the distribution, and a Python
# environment in build/venv with the PyTorch that the exporter is tested with. Does nothing where both are there.
#   .ci/setup.sh [--no-python | --torch-2.15]     the latter: another environment, build/venv215, with the newest PyTorch
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ clang libclang-rt-dev cmake ninja-build flatbuffers-compiler libflatbuffers-dev libmimalloc-dev
  libcli11-dev libfmt-dev nlohmann-json3-dev libdlpack-dev libgtest-dev python3-dev python3-venv ca-certificates
  g++-aarch64-linux-gnu qemu-user)   # the aarch64 stage of tests/run.sh

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if ((${#missing[@]})); then
  echo "== packages: ${missing[*]}"
  root=()
  ((EUID == 0)) || root=(sudo)
  "${root[@]}" apt-get update -q
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}"
fi
[[ ${1:-} == --no-python ]] && exit 0

# environment FOLDER REQUIREMENTS
environment() {
  cmp -s "$2" "$1/.requirements" && return
  echo "== Python packages into $1 (PyTorch is about 2.5 GB to download)"
  mkdir -p build
  [[ -x $1/bin/pip ]] || "${HUSK_PYTHON:-/usr/bin/python3}" -m venv "$1"
  "$1"/bin/pip install --disable-pip-version-check --progress-bar "$([[ -t 1 ]] && echo on || echo off)" -q -r "$2"
  cp "$2" "$1/.requirements"
}
environment build/venv compiler/torch/requirements.txt
[[ ${1:-} != --torch-2.15 ]] || environment build/venv215 compiler/torch/requirements-2.15.txt
