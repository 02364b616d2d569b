#!/usr/bin/env bash
# Exports two small models and serves them by two replicas of Ray Serve on this machine: requests, a
# stream of tokens, a rolling update to another artifact, and a replica that is killed under load.
# Debian 12 or Ubuntu 24.04; everything it makes stays in build/.
#   examples/ray/run.sh
# Its last lines are:
#   update: ... answers, 0 sent again, 0 lost
#   killed: ... answers, ... sent again, 0 lost
set -euo pipefail
cd "$(dirname "$0")/../.."
.ci/setup.sh
.ci/setup.sh --no-python --ray
echo "== building Husk"
cmake --preset release -DHUSK_PYTHON=ON -DPython_EXECUTABLE="$PWD/build/venv/bin/python" \
  >build/release.configure.log || { cat build/release.configure.log; exit 1; }
cmake --build build/release --target husk_python huskc >build/ray.build.log ||
  { tail -n 40 build/ray.build.log; exit 1; }

echo "== exporting the models; the first one, beside PyTorch's result"
export PYTHONPATH=$PWD/compiler/torch HUSKC=$PWD/build/release/bin/huskc
rm -rf build/ray
mkdir -p build/ray
(cd build/ray && ../venv/bin/python ../../examples/hello/export_mlp.py)
build/venv/bin/python -m husk examples/models.py:generate -o build/ray/gpt.husk \
  >build/ray/export.log 2>&1 || { cat build/ray/export.log; exit 1; }
mv build/ray/mlp.husk build/ray/mlp-1.husk
cp build/ray/mlp-1.husk build/ray/mlp-2.husk   # the artifact of the next release

echo "== starting Ray"
build/venv-ray/bin/python examples/ray/serve.py build/ray "${HTTP_PORT:-8000}"
