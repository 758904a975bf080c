#!/bin/sh
# Fails unless an image runs as a user without rights and has at most 120 MB as a compressed download:
#   contrib/release/check_image.sh IMAGE
set -eu

[ $# -eq 1 ] || { echo "usage: $0 IMAGE" >&2; exit 2; }
limit=120000000

user=$(docker image inspect --format '{{.Config.User}}' "$1")
case "$user" in
"" | root | 0 | root:* | 0:*) echo "$1 runs as root" >&2; exit 1 ;;
esac
# docker save writes the layers uncompressed; registries keep them compressed with gzip.
size=$(docker save "$1" | gzip -6 | wc -c)
echo "$1: user $user, $size bytes compressed"
[ "$size" -le "$limit" ] || { echo "$1 has $size bytes; the limit is $limit" >&2; exit 1; }
docker run --rm --read-only "$1" --version | grep -F "(compiled)"
