#!/usr/bin/env bash
# Installs the tools that Husk is built and tested with, on Debian 12 or Ubuntu 24.04: packages of
# the distribution, and Python environments under build/. It prints first what it will install, and
# does nothing if all is there.
#   .ci/setup.sh [OPTION...]
#     --no-python    no Python environment, not even those of the options before it
#     --torch-2.15   also build/venv215, with the newest PyTorch that the exporter supports
#     --torch-newest also build/venv-newest, with the newest PyTorch of PyPI
#     --languages    also the compilers of tests/bindings/run.sh
#     --triton       also build/venv-servers, with Triton Inference Server, for tests/servers
#     --mlserver     also build/venv-mlserver, with MLServer, for tests/serve
#     --ray          also build/venv-ray, with Ray Serve, for tests/serve
#     --servers      all three
#     --chat         also build/venv-chat, with transformers and a small language model
#     --style        also build/venv-style, with the tools of tests/style.sh
# Without an option it makes build/venv, with the PyTorch that the exporter is tested with.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ clang lld llvm libclang-rt-dev cmake ninja-build flatbuffers-compiler
  libflatbuffers-dev libmimalloc-dev libsodium-dev libcli11-dev libfmt-dev nlohmann-json3-dev
  libdlpack-dev libpcre2-dev libutf8proc-dev libgtest-dev doxygen pkgconf python3-dev python3-venv
  ca-certificates
  g++-aarch64-linux-gnu qemu-user)   # the last two: the stage aarch64 of tests/run.sh
declare -A environments=([venv]=compiler/torch/requirements.txt)
for option; do
  case $option in
    --no-python) environments=() ;;
    --torch-2.15) environments[venv215]=compiler/torch/requirements-2.15.txt ;;
    --torch-newest) environments[venv-newest]=compiler/torch/requirements-newest.txt ;;
    --languages) packages+=(cargo rustc rustfmt golang-go openjdk-17-jdk-headless) ;;
    --triton | --servers) environments[venv-servers]=.ci/requirements-servers.txt ;;&
    --mlserver | --servers) environments[venv-mlserver]=.ci/requirements-mlserver.txt ;;&
    --ray | --servers) environments[venv-ray]=.ci/requirements-ray.txt ;;&
    --triton | --mlserver | --ray | --servers) ;;
    --chat) environments[venv-chat]=.ci/requirements-chat.txt ;;
    --style) environments[venv-style]=.ci/requirements-style.txt ;;
    *) echo ".ci/setup.sh: no option '$option'" >&2; exit 2 ;;
  esac
done

# requirements NAME: what an environment needs. A file NAME-alone.txt beside the file of its
# requirements has packages that are installed without what they need in turn.
requirements() {
  cat "${environments[$1]}" "${environments[$1]%.txt}-alone.txt" 2>/dev/null || true
}

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [[ $status == *"ok installed"* ]] || missing+=("$package")
done
for name in "${!environments[@]}"; do
  ! cmp -s <(requirements "$name") "build/$name/.requirements" || unset "environments[$name]"
done

root=()
((EUID == 0)) || root=(sudo)
((${#missing[@]} == 0)) || echo "== installs with ${root[*]:-} apt-get: ${missing[*]}"
for name in "${!environments[@]}"; do
  size=
  grep -q ^torch "${environments[$name]}" && size=" (PyTorch is a download of about 2.5 GB)"
  echo "== installs from PyPI into build/$name:" \
    "$(requirements "$name" | grep -v '^#' | tr '\n' ' ')$size"
done

if ((${#missing[@]})); then
  "${root[@]}" apt-get update -q
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends "${missing[@]}"
fi
progress=$([[ -t 1 ]] && echo on || echo off)
mkdir -p build

# install NAME: installs the requirements of an environment. uv needs 40 s for PyTorch where pip
# needs 160 s, and no time for what ensurepip takes 4 s to install in each environment. It links
# files from its cache, which has to be on the same file system. It gets pip's index, and trusts
# whom the system trusts. pip does the work if uv cannot be had or fails.
uv=build/uv/bin/uv
install() {
  local alone=${environments[$1]%.txt}-alone.txt
  install_all "$1" -r "${environments[$1]}"
  [[ ! -e $alone ]] || install_all "$1" --no-deps -r "$alone"
}
install_all() {
  local folder=build/$1 options=(-q "${@:2}") index
  if [[ -x $uv ]]; then
    index=${PIP_INDEX_URL:-$(build/uv/bin/pip config get global.index-url 2>/dev/null || true)}
    UV_CACHE_DIR=build/uv/cache UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1 UV_HTTP_TIMEOUT=60 \
      "$uv" pip install --python "$folder/bin/python" ${index:+--default-index "$index"} \
      pip "setuptools<81;python_version<'3.12'" "${options[@]}" && return
  fi
  [[ -x $folder/bin/pip ]] || "$folder/bin/python" -m ensurepip
  "$folder"/bin/python -m pip install --disable-pip-version-check --progress-bar "$progress" \
    "${options[@]}"
}

if ((${#environments[@]})) && [[ ! -x $uv ]]; then
  "${HUSK_PYTHON:-/usr/bin/python3}" -m venv build/uv
  build/uv/bin/pip install --disable-pip-version-check -q uv==0.13.9 ||
    echo "== uv is not there: pip installs"
fi
for name in "${!environments[@]}"; do
  folder=build/$name
  [[ -x $folder/bin/python ]] ||
    "${HUSK_PYTHON:-/usr/bin/python3}" -m venv --without-pip "$folder"
  install "$name"
  requirements "$name" >"$folder/.requirements"
done
