#!/bin/sh
# Builds kalda_VERSION_ARCHITECTURE.deb from a wheel, for the Debian release on which it runs:
#   contrib/debian/build.sh WHEEL OUTPUT_DIRECTORY
#
# The package is a virtual environment in /opt/kalda with Kalda and the dependencies of requirements/run.txt. They are not
# Debian's packages: several have none, and Debian's versions of the others are older than Kalda needs. The
# interpreter is Debian's, because Debian fixes its vulnerabilities; compiled modules fit one minor version of it, so the
# package depends on exactly that one and is built once for each Debian release.
#
# Needs dpkg-deb, PYTHON (default /usr/bin/python3) with its venv module, and pip as PIP (default: PYTHON -m pip).
set -eu

[ $# -eq 2 ] || { echo "usage: $0 WHEEL OUTPUT_DIRECTORY" >&2; exit 2; }
wheel=$(realpath "$1")
output=$(realpath "$2")
here=$(dirname "$(realpath "$0")")
source=$(realpath "$here/../..")
python=$(realpath "${PYTHON:-/usr/bin/python3}")
pip=${PIP:-$python -m pip}

# Whatever the umask of the caller is, users must be able to read the package.
umask 022
# The same input gives the same package.
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git -C "$source" log -1 --format=%ct)}"
export PYTHONHASHSEED=0
export PYTHONDONTWRITEBYTECODE=1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root/DEBIAN" "$root/etc/kalda" "$root/opt" "$root/usr/bin" "$root/usr/lib/systemd/system" \
    "$root/usr/share/doc/kalda"

minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"$python" -m venv --without-pip "$root/opt/kalda"
# Only wheels: nothing is compiled here, and an sdist would run its own code.
$pip --python "$root/opt/kalda/bin/python" install --quiet --disable-pip-version-check --no-compile --only-binary :all: \
    --requirement "$source/requirements/run.txt"
$pip --python "$root/opt/kalda/bin/python" install --quiet --disable-pip-version-check --no-compile --no-deps "$wheel"
version=$("$root/opt/kalda/bin/python" -c 'from importlib.metadata import version; print(version("kalda"))')

# Links and scripts must name the paths of the installed package.
rm -rf "$root"/opt/kalda/bin/activate* "$root"/opt/kalda/bin/Activate* "$root/opt/kalda/include"
for file in "$root"/opt/kalda/bin/*; do
    [ -L "$file" ] || sed -i "1s|^#!.*|#!/opt/kalda/bin/python|" "$file"
done
ln -sfn "python$minor" "$root/opt/kalda/bin/python"
ln -sfn python "$root/opt/kalda/bin/python3"
ln -sfn "/usr/bin/python$minor" "$root/opt/kalda/bin/python$minor"
cat >"$root/opt/kalda/pyvenv.cfg" <<END
home = /usr/bin
include-system-site-packages = false
END
# direct_url.json names the build directory, and RECORD has hashes of files that named it. Without RECORD pip refuses to
# change what dpkg installed.
find "$root/opt/kalda/lib" '(' -name direct_url.json -o -path '*.dist-info/RECORD' ')' -delete
# The service may not write to /opt, so the package brings the bytecode.
"$python" -m compileall -q -j 1 --invalidation-mode unchecked-hash -s "$root" "$root/opt/kalda/lib"

ln -s /opt/kalda/bin/kalda "$root/usr/bin/kalda"
install -m 644 "$source/contrib/systemd/kalda.service" "$root/usr/lib/systemd/system/kalda.service"
install -m 644 "$here/server.properties" "$root/etc/kalda/server.properties"
install -m 644 "$source/LICENSE" "$root/usr/share/doc/kalda/copyright"
for script in postinst prerm postrm; do
    install -m 755 "$here/$script" "$root/DEBIAN/$script"
done
echo /etc/kalda/server.properties >"$root/DEBIAN/conffiles"

# PEP 440 sorts 1.0.dev1 and 1.0rc1 before 1.0; dpkg does so with a tilde.
debian_version=$(echo "$version" | sed -E 's/\.?(dev|a|b|rc)([0-9]+)/~\1\2/')
architecture=$(dpkg --print-architecture)
cat >"$root/DEBIAN/control" <<END
Package: kalda
Version: $debian_version
Architecture: $architecture
Maintainer: The Kalda developers
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f 1)
Depends: adduser, init-system-helpers (>= 1.54), libc6 (>= 2.28), libstdc++6, python$minor
Section: net
Priority: optional
Description: Streaming platform that speaks Apache Kafka's wire protocol
 Kalda is a broker for unmodified Kafka clients, with its own clients,
 coordination server and command-line tools. The service kalda runs a broker
 with its coordination server on the loopback interface until
 /etc/kalda/server.properties gives it another address.
END

# Modes are those of the files above; owners are root whoever builds.
file=$output/kalda_${debian_version}_$architecture.deb
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group --build "$root" "$file" >/dev/null
echo "$file"
