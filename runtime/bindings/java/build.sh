#!/usr/bin/env bash
# Builds the binding: husk.jar and libhusk_java.so.
#   runtime/bindings/java/build.sh OUT
# JAVA_HOME names a JDK, 17 or later; without it the one of `javac` is taken. PKG_CONFIG_PATH leads
# to husk.pc, and CXX names a compiler.
set -euo pipefail
if (($# != 1)); then
  sed -n '3p' "$0" >&2
  exit 2
fi
mkdir -p "$1"
out=$(realpath "$1")
cd "$(dirname "$0")"
home=${JAVA_HOME:-$(dirname "$(dirname "$(realpath "$(command -v javac)")")")}
if [[ ! -x $home/bin/javac || ! -e $home/include/jni.h ]]; then
  echo "no JDK at '$home': install Debian's openjdk-17-jdk-headless, or set JAVA_HOME" >&2
  exit 1
fi
rm -rf "$out/classes"
"$home/bin/javac" -encoding UTF-8 -Xlint:all -Werror --release 17 -d "$out/classes" src/husk/*.java
"$home/bin/jar" --create --file "$out/husk.jar" -C "$out/classes" .
read -ra flags <<<"$(pkg-config --cflags husk)"
read -ra libraries <<<"$(pkg-config --libs husk)"
"${CXX:-c++}" -std=c++17 -O2 -Wall -Wextra -Wshadow -fno-exceptions -fno-rtti -fPIC -shared \
  -fvisibility=hidden -isystem "$home/include" -isystem "$home/include/linux" "${flags[@]}" \
  src/husk_java.cpp "${libraries[@]}" -lhusk_ops -o "$out/libhusk_java.so"
