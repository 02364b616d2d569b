#!/usr/bin/env bash
# Runs on the board: talks with the language model of the archive.
#   ./chat.sh [cuda|host] [OPTION...]     the GPU (the default) or the CPU; options of husk-chat
# HUSK_EMULATE is put before the program, for a trial on another machine.
set -euo pipefail
cd "$(dirname "$0")"
device=cuda
[[ ${1:-} != cuda && ${1:-} != host ]] || { device=$1; shift; }
read -ra emulate <<<"${HUSK_EMULATE:-}"
LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "${emulate[@]}" bin/husk-chat \
  chat.husk --device "$device" "$@"
