#!/usr/bin/env bash
# Runs on the board: checks the files, runs the model, compares its result with PyTorch's, and
# measures it. All that it prints is also in report.txt.
#   ./board.sh [cuda|host]      the GPU (the default) or the CPU
# HUSK_EMULATE is put before each program of Husk, for a trial on another machine.
set -euo pipefail
cd "$(dirname "$0")"
device=${1:-cuda}
read -ra emulate <<<"${HUSK_EMULATE:-}"
libraries=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

husk() { LD_LIBRARY_PATH=$libraries "${emulate[@]}" "bin/$1" "${@:2}"; }

report() {
  echo "== board"
  date -u
  uname -srm
  tr -d '\0' 2>/dev/null </proc/device-tree/model && echo || echo "no device tree"
  cat /etc/nv_tegra_release 2>/dev/null || echo "no L4T"
  nvpmodel -q 2>/dev/null || echo "no nvpmodel"
  echo "== files"
  sha256sum --quiet -c SHA256SUMS || return
  echo "all as they were packed"
  echo "== result on $device"
  husk husk-run mlp.husk --device "$device" --inputs inputs.safetensors \
    --expected expected.safetensors --verify-content --stats || return
  echo "== time"
  husk husk-bench mlp.husk --device "$device" --shapes "0=4x32" \
    --duration-s "${HUSK_SECONDS:-2}" || return
  if [[ -e chat.husk ]]; then
    echo "== language model"
    husk husk-text bench chat.husk --device "$device" --prompt-tokens "${HUSK_TOKENS:-128}" \
      --new-tokens "${HUSK_TOKENS:-64}" || return
    husk husk-chat chat.husk --device "$device" --temperature 0 --max-new-tokens 32 \
      --prompt "What is the capital of France?" || return
  fi
  echo "board.sh: passed"
}

report 2>&1 | tee report.txt || { echo "board.sh: FAILED" | tee -a report.txt; exit 1; }
