#!/bin/bash
# tests/uml/systemd_test.sh TREE - installs the build in TREE into a small Debian root, boots systemd on it in User Mode
# Linux, and checks the service: socket activation, readiness, and that `systemctl restart hutchd` loses no sandbox.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
checkout=$(cd "$here/../.." && pwd)
tree=$(realpath -e "$1")
cache=$checkout/.cache/systemd-root
inside=$checkout/tests/uml/systemd_inside.sh

# The packages our programs link to, found as a Debian package would find them.
runtime_packages() {
  local program
  for program in hutchd hutch hutch-oci hutch-init hutch-unpack; do
    [ -e "$tree/bin/$program" ] || continue
    ldd "$tree/bin/$program" 2>/dev/null | awk '$3 ~ /^\// { print $3 }'
  done | sort -u | while read -r library; do
    dpkg -S "$library" "$(realpath "$library")" 2>/dev/null | head -n 1 | cut -d: -f1
  done | sort -u
}

# Made once and kept by the list of its packages: some 20 seconds and 200 MB.
base_root() {
  local packages key list
  packages=$(runtime_packages | paste -sd,)
  key=$(echo "$packages" | sha256sum | cut -c1-16)
  if [ ! -d "$cache/$key" ]; then
    rm -rf --one-file-system "$cache"
    mkdir -p "$cache"
    # Mirror and suite are this machine's; lists of other vendors are of no use here.
    local lists=()
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/debian*; do
      [ ! -s "$list" ] || lists+=("$list")
    done
    mmdebstrap --quiet --variant=minbase --include="systemd,systemd-sysv,dbus,curl,jq,$packages" \
      --customize-hook='rm -rf "$1"/var/lib/apt/lists/*' "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$cache/$key.new" \
      "${lists[@]}" >&2
    mv "$cache/$key.new" "$cache/$key"
  fi
  echo "$cache/$key"
}

base=$(base_root)
work=$(mktemp -d "${TMPDIR:-/tmp}/hutch-systemd.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
cp -a --reflink=auto "$base/." "$work/root"
DESTDIR=$work/root cmake --install "$tree" --prefix /usr >"$work/install.log"
"$checkout/tests/support/make_busybox_image.sh" "$work/root/srv" >"$work/image.log"
install -D "$tree/tests/kernel_cgroups_test" "$work/root/usr/lib/hutch-tests/kernel_cgroups_test"
install -D /usr/bin/busybox "$work/root/srv/bundle/rootfs/bin/busybox"
systemd-sysusers --root="$work/root" hutch.conf
systemctl --root="$work/root" --quiet enable hutchd.socket

"$here/run-uml" --root "$work/root" --systemd --seconds "${HUTCH_UML_SECONDS:-300}" -- /bin/bash "$inside"
