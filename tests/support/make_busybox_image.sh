#!/bin/bash
# tests/support/make_busybox_image.sh OUTDIR [--two-layers] [--gzip|--zstd] - writes OUTDIR/busybox, an OCI image layout
# (reference busybox:latest, user 1000:1000) made of Debian's busybox-static alone: /bin/sh, /bin/true, /bin/sleep, ... The same
# bytes each time. --two-layers adds a layer that replaces /etc/motd, removes /etc/gone and empties /opaque but for /opaque/new.
set -euo pipefail

[ $# -ge 1 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
out=$1/busybox
shift
two_layers=no compress=none
for option in "$@"; do
  case $option in
    --two-layers) two_layers=yes ;;
    --gzip | --zstd) compress=${option#--} ;;
    *) echo "unknown option $option" >&2; exit 2 ;;
  esac
done
busybox=$(command -v busybox) || { echo "no busybox: apt-get install busybox-static" >&2; exit 1; }
case $(uname -m) in
  x86_64) architecture=amd64 ;;
  aarch64) architecture=arm64 ;;
  *) architecture=$(uname -m) ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
blobs=$out/blobs/sha256
rm -rf "$out"
mkdir -p "$blobs"

hash_of() { sha256sum "$1" | cut -d ' ' -f 1; }

# store FILE: moves it among the blobs; sets digest (hex) and size.
store() {
  digest=$(hash_of "$1")
  size=$(stat -c %s "$1")
  mv "$1" "$blobs/$digest"
}

diff_ids='' layers=''
# add_layer DIRECTORY: its tree as the next layer; sandbox's directories belong to 1000:1000.
add_layer() {
  local plain=$work/layer.tar packed=$work/layer.packed media=application/vnd.oci.image.layer.v1.tar
  local flags=(--sort=name --numeric-owner --mtime=@1700000000 --format=posix
    --pax-option=delete=atime,delete=ctime,exthdr.name=%d/PaxHeaders/%f)
  (cd "$1" && find . -mindepth 1 \( -path ./workspace -o -path './home/sandbox' \) -prune -o -print | LC_ALL=C sort |
    tar --create --file "$plain" --no-recursion --owner=0 --group=0 "${flags[@]}" --files-from=-)
  if [ -d "$1/workspace" ]; then
    tar --append --file "$plain" --directory "$1" --owner=1000 --group=1000 "${flags[@]}" ./workspace ./home/sandbox
  fi
  diff_ids+="${diff_ids:+,}\"sha256:$(hash_of "$plain")\""
  case $compress in
    none) mv "$plain" "$packed" ;;
    gzip) gzip -n -6 <"$plain" >"$packed"; media+=+gzip ;;
    zstd) zstd -q -3 <"$plain" >"$packed"; media+=+zstd ;;
  esac
  store "$packed"
  layers+="${layers:+,}{\"mediaType\":\"$media\",\"digest\":\"sha256:$digest\",\"size\":$size}"
}

base=$work/base
mkdir -p "$base"/{bin,dev,etc,home/sandbox,lib,opaque,proc,root,run,sys,tmp,usr/bin,usr/sbin,sbin,var/tmp,workspace}
chmod 1777 "$base/tmp" "$base/var/tmp"
chmod 0700 "$base/root"
install -m 0755 "$busybox" "$base/bin/busybox"
# One process for all of them: four hundred of ln(1) take most of a minute in a guest.
"$busybox" --list | perl -e 'my $bin = shift; while (<STDIN>) { chomp; $_ eq "busybox" or symlink "busybox", "$bin/$_" or die "$_: $!" }' "$base/bin"
ln -s /bin/env "$base/usr/bin/env"
printf 'root:x:0:0:root:/root:/bin/sh\nsandbox:x:1000:1000::/home/sandbox:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' >"$base/etc/passwd"
printf 'root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n' >"$base/etc/group"
echo "base" >"$base/etc/motd"
echo "gone" >"$base/etc/gone"
echo "old" >"$base/opaque/old"
add_layer "$base"

if [ $two_layers = yes ]; then
  upper=$work/upper
  mkdir -p "$upper"/{etc,opaque}
  echo "upper" >"$upper/etc/motd"
  touch "$upper/etc/.wh.gone" "$upper/opaque/.wh..wh..opq"
  echo "new" >"$upper/opaque/new"
  add_layer "$upper"
fi

cat >"$work/config" <<JSON
{"created":"2023-11-14T22:13:20Z","architecture":"$architecture","os":"linux","config":{"User":"1000:1000","Env":["PATH=/usr/bin:/bin","LANG=C.UTF-8"],"Cmd":["sh"],"WorkingDir":"/workspace"},"rootfs":{"type":"layers","diff_ids":[$diff_ids]}}
JSON
store "$work/config"
config="{\"mediaType\":\"application/vnd.oci.image.config.v1+json\",\"digest\":\"sha256:$digest\",\"size\":$size}"
manifest_type=application/vnd.oci.image.manifest.v1+json
printf '{"schemaVersion":2,"mediaType":"%s","config":%s,"layers":[%s]}' "$manifest_type" "$config" "$layers" >"$work/manifest"
store "$work/manifest"
printf '{"schemaVersion":2,"manifests":[{"mediaType":"%s","digest":"sha256:%s","size":%s,"annotations":{"org.opencontainers.image.ref.name":"busybox:latest"}}]}\n' \
  "$manifest_type" "$digest" "$size" >"$out/index.json"
echo '{"imageLayoutVersion":"1.0.0"}' >"$out/oci-layout"
