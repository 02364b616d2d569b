#!/usr/bin/env bash
# Builds the binding and the program, and runs the program with a model.
#   examples/java/run.sh FILE.husk [OUT]      OUT: the folder for what is built, default ./build
# HUSK_JAVA names the folder of the binding; PKG_CONFIG_PATH and LD_LIBRARY_PATH lead to an
# installed Husk.
set -euo pipefail
if (($# < 1)); then
  sed -n '3,5p' "$0" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
model=$(realpath "$1")
out=${2:-$here/build}
"${HUSK_JAVA:-$here/../../runtime/bindings/java}/build.sh" "$out"
home=${JAVA_HOME:-$(dirname "$(dirname "$(realpath "$(command -v javac)")")")}
"$home/bin/javac" -encoding UTF-8 -Xlint:all -Werror -cp "$out/husk.jar" -d "$out/example" \
  "$here/Main.java"
exec "$home/bin/java" "-Djava.library.path=$out" -cp "$out/husk.jar:$out/example" Main "$model"
