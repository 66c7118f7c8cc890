#!/usr/bin/env bash
# A browser for the tests of the run report: Debian's Chromium, installed where root can; else those tests say that they
# did not run.
set -euo pipefail

for name in chromium chromium-browser google-chrome google-chrome-stable; do
  if command -v "$name" >/dev/null; then echo "there: $(command -v "$name")"; exit 0; fi
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "NO BROWSER: the run report will not be looked at; install chromium" >&2
  exit 0
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if { apt-get update && apt-get install -y --no-install-recommends chromium; } >"$log" 2>&1; then
  echo "installed: $(command -v chromium)"
else
  echo "NO BROWSER: the run report will not be looked at; apt-get: $(tail -n 1 "$log")" >&2
fi
