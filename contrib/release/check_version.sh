#!/bin/sh
# Fails unless a tag, the package, the Helm chart and the changelog have the same version:
#   contrib/release/check_version.sh v1.2.3
set -eu

[ $# -eq 1 ] || { echo "usage: $0 TAG" >&2; exit 2; }
cd "$(dirname "$(realpath "$0")")/../.."

version=$(sed -nE 's/^__version__.* = "(.*)"$/\1/p' src/kalda/__init__.py)
[ "$1" = "v$version" ] || { echo "the tag is $1 and __version__ is $version" >&2; exit 1; }
for line in "version: $version" "appVersion: \"$version\""; do
    grep -qx "$line" contrib/helm/kalda/Chart.yaml || { echo "contrib/helm/kalda/Chart.yaml has no '$line'" >&2; exit 1; }
done
grep -qE "^## .*\b$(echo "$version" | sed 's/\./\\./g')\b" CHANGELOG.md || { echo "CHANGELOG.md has no section $version; run towncrier build" >&2; exit 1; }
