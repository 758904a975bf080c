#!/bin/sh
# Builds the source archive and the wheel for platforms without one of their own, and checks their descriptions:
#   contrib/release/dist.sh OUTPUT_DIRECTORY
#
# Needs the packages of contrib/release/requirements.txt for PYTHON (default: python3).
set -eu

[ $# -eq 1 ] || { echo "usage: $0 OUTPUT_DIRECTORY" >&2; exit 2; }
python=${PYTHON:-python3}
source=$(dirname "$(realpath "$0")")/../..
mkdir -p "$1"

KALDA_PURE_PYTHON=1 "$python" -m build --outdir "$1" "$source"
"$python" -m twine check --strict "$1"/kalda-*.tar.gz "$1"/kalda-*-py3-none-any.whl
