#!/usr/bin/env bash
# Installs what kvcheck is built from, on Debian and Ubuntu. Does nothing when nothing is missing.
#   tools/install_packages.sh [--all]
# --all adds what tools/test.sh --all and golden/make/ need: clang 19 with its tools,
# HDF5's command-line tools, the browser in which HTML reports are looked at.
set -euo pipefail

packages=(
  g++ cmake ninja-build pkg-config python3 python3-venv python3-numpy python3-msgpack
  libeigen3-dev libboost-dev libhdf5-dev libfmt-dev libssl-dev libsqlite3-dev zlib1g-dev
  libhwy-dev libcli11-dev nlohmann-json3-dev libpugixml-dev libmsgpack-cxx-dev
  libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev
)
case "${1-}" in
  "") ;;
  --all)
    packages+=(clang-19 libclang-rt-19-dev clang-tidy-19 clang-format-19 hdf5-tools chromium)
    ;;
  *)
    sed -n '2,5s/^# //p' "$0" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_packages.sh: this system has no apt. Install the equivalents of:" >&2
  echo "  ${packages[*]}" >&2
  exit 2
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "install_packages.sh: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  # Asks for a password only where somebody can type one.
  if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=(sudo)
  else
    echo "install_packages.sh: needs root or sudo. Run as root:" >&2
    echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 2
  fi
fi
echo "install_packages.sh: installing ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -q -y --no-install-recommends "${missing[@]}"
