#!/usr/bin/env bash
# Sets up this machine, builds Husk, exports a small GPT and runs it without PyTorch, beside eager
# PyTorch.
# Debian 12 or Ubuntu 24.04; everything it makes stays in build/.
set -euo pipefail
cd "$(dirname "$0")/../.."
.ci/setup.sh
echo "== building Husk"
cmake --preset release >build/release.configure.log || { cat build/release.configure.log; exit 1; }
cmake --build --preset release |
  if [[ -t 1 ]]; then cat; else tail -n 1; fi
exec build/venv/bin/python examples/gpt/gpt.py --build build/release --out build/gpt "$@"
