#!/usr/bin/env bash
# debian13.sh FOLDER: makes a minimal Debian 13 in a folder, from the mirror that this machine's apt uses, with this
# machine's certificates. debian13.sh --image NAME: the same as a Docker image, for `make image BASE_IMAGE=NAME` where no
# registry of images can be reached. Needs root and debootstrap, which it installs where apt is there.
set -euo pipefail

fail() { echo "debian13.sh: $1" >&2; exit 1; }

make_folder() {
  local root=$1 log mirror
  log=$(mktemp)
  [ "$(id -u)" = 0 ] || fail "only root can make a Debian 13 folder"
  if ! command -v debootstrap >/dev/null; then
    { apt-get update && apt-get install -y debootstrap; } >"$log" 2>&1 || fail "no debootstrap: $(tail -n 1 "$log")"
  fi
  mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1 | tr -d ' ' || true)
  [ -n "$mirror" ] || fail "apt's sources name no Debian mirror"
  debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv,python3-dev,g++,make \
    trixie "$root" "$mirror" >"$log" 2>&1 || fail "debootstrap failed: $(tail -n 1 "$log")"
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  [ ! -f /etc/ssl/certs/ca-certificates.crt ] || cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  rm -rf "$root"/var/cache/apt/archives/*.deb "$log"
}

if [ "${1:-}" = --image ]; then
  [ -n "${2:-}" ] || fail "--image needs a name"
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  make_folder "$folder"
  bundle=/etc/ssl/certs/ca-certificates.crt
  tar -C "$folder" -c . | docker import --change "ENV SSL_CERT_FILE=$bundle PIP_CERT=$bundle" - "$2"
elif [ -n "${1:-}" ]; then
  make_folder "$1"
else
  fail "name a folder, or --image NAME"
fi
