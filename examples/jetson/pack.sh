#!/usr/bin/env bash
# Makes an archive for a Jetson: Husk's tools for 64-bit Arm, a model for the board's GPU and CPU,
# the result that PyTorch has computed, and board.sh. Debian 12 or Ubuntu 24.04.
#   examples/jetson/pack.sh [GPU] [OUT] [--llm CHECKPOINT [OPTION...]]
# GPU: orin (the default) or thor. OUT: the archive, build/jetson.tar.gz by default. --llm adds a
# language model, husk-chat and husk-text; the options are those of python -m husk llm.
# HUSK_BUILD names an existing build for 64-bit Arm; PYTHON a Python with Husk's exporter.
set -euo pipefail
names=() llm=()
while (($#)); do
  if [[ $1 == --llm ]]; then
    (($# > 1)) || { echo "pack.sh: --llm needs a checkpoint" >&2; exit 2; }
    llm=("$(realpath "$2")" "${@:3}")
    break
  fi
  names+=("$1")
  shift
done
gpu=${names[0]:-orin}
cd "$(dirname "$0")/../.."
out=$(realpath -m "${names[1]:-build/jetson.tar.gz}")
build=${HUSK_BUILD:-build/jetson-tools}
python=$(realpath -s "${PYTHON:-build/venv/bin/python}")
if [[ -z ${HUSK_BUILD:-} ]]; then
  .ci/setup.sh
  text=(-DHUSK_TEXT=OFF)
  if ((${#llm[@]})); then
    echo "== fetching PCRE2 and utf8proc for 64-bit Arm"
    fetched=$PWD/$build-libraries
    mkdir -p "$fetched/lists/partial"
    apt=(-qq -oAPT::Architecture=arm64 -oAPT::Architectures=arm64 -oAPT::Sandbox::User=root
      "-oDir::State::Lists=$fetched/lists")
    apt-get "${apt[@]}" update
    (cd "$fetched" && apt-get "${apt[@]}" download libpcre2-8-0 libutf8proc2) ||
      { echo "the distribution's servers have no packages for arm64 (Ubuntu's have none: pack on" \
          "Debian 12), and husk-chat needs PCRE2 and utf8proc" >&2; exit 1; }
    for package in "$fetched"/*_arm64.deb; do dpkg -x "$package" "$fetched"; done
    libraries=$fetched/usr/lib/aarch64-linux-gnu
    text=(-DHUSK_TEXT=ON "-DHUSK_PCRE2_LIBRARY=$libraries/libpcre2-8.so.0"
      "-DHUSK_UTF8PROC_LIBRARY=$libraries/libutf8proc.so.2")
  fi
  echo "== building Husk for 64-bit Arm"
  cmake -G Ninja -S . -B "$build" --toolchain "$PWD/.ci/aarch64/toolchain.cmake" \
    -DCMAKE_BUILD_TYPE=Release -DHUSK_TESTS=OFF -DHUSK_EXAMPLES=OFF -DHUSK_MIMALLOC=OFF \
    -DHUSK_SIGNATURE=OFF "${text[@]}" >build/jetson.log
  cmake --build "$build" --target husk husk_ops husk-run husk-bench \
    $( ((!${#llm[@]})) || echo husk_text husk-chat husk-text) >>build/jetson.log ||
    { tail -n 40 build/jetson.log; exit 1; }
  cmake --preset release >>build/jetson.log
  cmake --build build/release --target huskc husk_dump >>build/jetson.log ||
    { tail -n 40 build/jetson.log; exit 1; }
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/husk/bin" "$work/husk/lib"
cp "$build"/bin/{husk-run,husk-bench} "$work/husk/bin"
cp "$build"/lib/{libhusk,libhusk_ops}.so.0 "$work/husk/lib"
cp examples/jetson/board.sh "$work/husk"
if ((${#llm[@]})); then
  cp "$build"/bin/{husk-chat,husk-text} "$work/husk/bin"
  cp "$build"/lib/libhusk_text.so.0 "$work/husk/lib"
  grep -E '^HUSK_(PCRE2|UTF8PROC)_LIBRARY' "$build/CMakeCache.txt" | cut -d= -f2 |
    xargs -I{} cp {} "$work/husk/lib"
  cp examples/jetson/chat.sh "$work/husk"
fi
# Ubuntu 22.04, which JetPack 6 has, has glibc 2.35.
newest=$(aarch64-linux-gnu-objdump -T "$work"/husk/{bin,lib}/* | grep -o 'GLIBC_2\.[0-9]*' |
  sort -Vu | tail -n 1)
[[ $(printf '%s\n' "$newest" GLIBC_2.35 | sort -V | tail -n 1) == GLIBC_2.35 ]] ||
  { echo "the programs need $newest, the board has GLIBC_2.35" >&2; exit 1; }

echo "== exporting the model for $gpu"
export PYTHONPATH=$PWD/compiler/torch${PYTHONPATH:+:$PYTHONPATH}
(cd "$work/husk" && "$python" "$OLDPWD/examples/jetson/export_mlp.py" "$gpu")
"$python" -m husk check "$work/husk/mlp.husk" --target "$gpu" --target host:aarch64
if ((${#llm[@]})); then
  echo "== exporting the language model for $gpu"
  "$python" -m husk llm "${llm[0]}" -o "$work/husk/chat.husk" --target "cuda:$gpu" \
    --target host:aarch64 "${llm[@]:1}"
  "$python" -m husk check "$work/husk/chat.husk" --target "$gpu" --target host:aarch64
fi
(cd "$work/husk" && sha256sum bin/* lib/* *.husk *.safetensors *.sh >SHA256SUMS)
tar -C "$work" -czf "$out" husk
echo "$out: copy it to the board, unpack it, and run husk/board.sh"
