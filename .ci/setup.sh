#!/usr/bin/env bash
# Installs what Husk is built and tested with, on Debian 12 or Ubuntu 24.04: packages of the distribution, and a Python
# environment in build/venv with the PyTorch that the exporter is tested with. Does nothing where both are there.
#   .ci/setup.sh [--no-python]
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

requirements=compiler/torch/requirements.txt
if ! cmp -s "$requirements" build/venv/.requirements; then
  echo "== Python packages into build/venv (PyTorch is about 2.5 GB to download)"
  mkdir -p build
  [[ -x build/venv/bin/pip ]] || "${HUSK_PYTHON:-/usr/bin/python3}" -m venv build/venv
  build/venv/bin/pip install --disable-pip-version-check --progress-bar "$([[ -t 1 ]] && echo on || echo off)" \
    -q -r "$requirements"
  cp "$requirements" build/venv/.requirements
fi
