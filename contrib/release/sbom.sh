#!/bin/sh
# Writes the bill of materials of a wheel, in CycloneDX's JSON: the package and the dependencies that are installed with it.
#   contrib/release/sbom.sh WHEEL OUTPUT_FILE
#
# The versions are those of requirements/run.txt, which the image and the Debian package have too. Needs the packages of
# contrib/release/requirements.txt for PYTHON (default: python3).
set -eu

[ $# -eq 2 ] || { echo "usage: $0 WHEEL OUTPUT_FILE" >&2; exit 2; }
python=${PYTHON:-python3}
source=$(dirname "$(realpath "$0")")/../..

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv --without-pip "$work/venv"
"$python" -m pip --python "$work/venv/bin/python" install --quiet --disable-pip-version-check --only-binary :all: \
    --requirement "$source/requirements/run.txt"
"$python" -m pip --python "$work/venv/bin/python" install --quiet --disable-pip-version-check --no-deps "$1"
# Without the time and a random number the same wheel has the same bill.
"$python" -m cyclonedx_py environment --spec-version 1.6 --output-reproducible --mc-type application \
    --pyproject "$source/pyproject.toml" --output-format JSON --output-file "$2" "$work/venv/bin/python"
# pyproject.toml leaves the version to the build.
"$python" - "$2" "$("$work/venv/bin/python" -c 'import kalda; print(kalda.__version__)')" <<'END'
import json, pathlib, sys

file, version = pathlib.Path(sys.argv[1]), sys.argv[2]
bill = json.loads(file.read_text())
bill["metadata"]["component"]["version"] = version
file.write_text(json.dumps(bill, indent=2, sort_keys=True) + "\n")
END
