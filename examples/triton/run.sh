#!/usr/bin/env bash
# Exports two small models, starts Triton Inference Server with them, sends requests, and stops the
# server. Debian 12 or Ubuntu 24.04; everything it makes stays in build/.
#   examples/triton/run.sh          # exports, serves, asks, stops
#   examples/triton/run.sh serve    # exports and serves, until it is interrupted
set -euo pipefail
cd "$(dirname "$0")/../.."
.ci/setup.sh --triton
echo "== building Husk and the backend"
cmake --preset release -DHUSK_TRITON=ON >build/release.configure.log ||
  { cat build/release.configure.log; exit 1; }
cmake --build build/release --target husk_triton huskc >build/triton.build.log ||
  { tail -n 40 build/triton.build.log; exit 1; }

echo "== exporting the models; the first one, beside PyTorch's result"
rm -rf build/triton
mkdir -p build/triton
cp -r examples/triton/repository build/triton/repository
(cd build/triton && PYTHONPATH=$OLDPWD/compiler/torch HUSKC=$OLDPWD/build/release/bin/huskc \
  "$OLDPWD/build/venv/bin/python" "$OLDPWD/examples/hello/export_mlp.py")
PYTHONPATH=$PWD/compiler/torch HUSKC=$PWD/build/release/bin/huskc build/venv/bin/python \
  -m husk examples/models.py:generate -o build/triton/gpt.husk >build/triton/export.log 2>&1 ||
  { cat build/triton/export.log; exit 1; }
for model in mlp mlp_batched gpt; do
  mkdir -p build/triton/repository/$model/1
  cp build/triton/${model%_batched}.husk build/triton/repository/$model/1/model.husk
done

python=build/venv-servers/bin/python
server=$(echo build/venv-servers/lib/python*/site-packages/pytriton/tritonserver/bin/tritonserver)
chmod +x "$server"
http=${HTTP_PORT:-8000} grpc=${GRPC_PORT:-8001} metrics=${METRICS_PORT:-8002}
command=("$server" --model-repository=build/triton/repository
  --backend-directory=build/release/lib/triton --http-address=127.0.0.1 --http-port="$http"
  --grpc-address=127.0.0.1 --grpc-port="$grpc" --metrics-port="$metrics")
echo "== starting the server"
[[ ${1:-} != serve ]] || exec "${command[@]}"
"${command[@]}" >build/triton/server.log 2>&1 &
trap 'kill $! 2>/dev/null; wait' EXIT
for ((tries = 0; tries < 6000; ++tries)); do
  ! (exec 3<>"/dev/tcp/127.0.0.1/$grpc") 2>/dev/null || break
  kill -0 $! 2>/dev/null || { cat build/triton/server.log; exit 1; }
  sleep 0.1
done
$python examples/triton/client.py "127.0.0.1:$http" "127.0.0.1:$grpc"
