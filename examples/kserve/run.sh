#!/usr/bin/env bash
# Exports two small models, starts MLServer with them, sends requests of the KServe v2 protocol, and
# stops the server. Debian 12 or Ubuntu 24.04; everything it makes stays in build/.
#   examples/kserve/run.sh          # exports, serves, asks, stops
#   examples/kserve/run.sh serve    # exports and serves, until it is interrupted
# It prints the answers for the MLP, which are those of PyTorch, and the tokens of the GPT:
#   mlp: input [4, 32] -> ...
#   gpt: 5 17 200 -> ...
set -euo pipefail
cd "$(dirname "$0")/../.."
.ci/setup.sh
.ci/setup.sh --no-python --mlserver
echo "== building Husk"
cmake --preset release -DHUSK_PYTHON=ON -DPython_EXECUTABLE="$PWD/build/venv/bin/python" \
  >build/release.configure.log || { cat build/release.configure.log; exit 1; }
cmake --build build/release --target husk_python huskc >build/kserve.build.log ||
  { tail -n 40 build/kserve.build.log; exit 1; }

echo "== exporting the models; the first one, beside PyTorch's result"
export PYTHONPATH=$PWD/compiler/torch HUSKC=$PWD/build/release/bin/huskc
rm -rf build/kserve
mkdir -p build/kserve
cp -r examples/kserve/repository build/kserve/repository
(cd build/kserve && ../venv/bin/python ../../examples/hello/export_mlp.py)
build/venv/bin/python -m husk examples/models.py:generate -o build/kserve/gpt.husk \
  >build/kserve/export.log 2>&1 || { cat build/kserve/export.log; exit 1; }
for model in mlp mlp_batched gpt; do
  cp build/kserve/${model%_batched}.husk build/kserve/repository/$model/model.husk
done

echo "== starting the server"
export MLSERVER_HTTP_PORT=${HTTP_PORT:-8080} MLSERVER_GRPC_PORT=${GRPC_PORT:-8081}
export MLSERVER_METRICS_PORT=${METRICS_PORT:-8082}
cd build/kserve/repository
command=(../../venv-mlserver/bin/mlserver start .)
[[ ${1:-} != serve ]] || exec "${command[@]}"
"${command[@]}" >../server.log 2>&1 &
trap 'kill $! 2>/dev/null; wait' EXIT
tries=0
for model in mlp mlp_batched gpt; do
  until grep -q "Loaded model '$model' successfully" ../server.log; do
    kill -0 $! 2>/dev/null && ((++tries <= 6000)) ||
      { cat ../server.log; echo "run.sh: '$model' is not loaded"; exit 1; }
    sleep 0.1
  done
done
cd ../../..
build/venv-mlserver/bin/python examples/kserve/client.py "127.0.0.1:$MLSERVER_HTTP_PORT"
