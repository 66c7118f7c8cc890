#!/usr/bin/env bash
# Tests the dependency line that this machine's own set-up does not take: the fast tests, one end-to-end run, and one of a
# package for Kubeflow.
#
# Line B (Python 3.11 to 3.13, glibc 2.39 or newer) on an older machine: in a Debian 13 folder made by debootstrap, in a
# mount namespace of its own, removed at the end. Line A (Python 3.10) on a newer machine: with that interpreter.
# Where the other line cannot be had, this says so loudly and succeeds.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

not_tested() {
  printf '\n%s\n' '******************************************************************************'
  printf 'THE OTHER DEPENDENCY LINE WAS NOT TESTED: %s\n' "$1"
  printf '%s\n\n' '******************************************************************************'
  exit 0
}

checks='make test-fast && make demo && bash .ci/kubeflow_run.sh .venv/bin/python lockstep-runs/taxi'

copy_repository() {  # what is committed, as any other machine would see it
  mkdir -p "$1"
  git -C "$repository" archive HEAD | tar -x -C "$1"
}

test_line_a() {
  local python
  python=$(compgen -c python3.10 | sort -u | while read -r name; do command -v "$name"; done | head -n 1)
  for candidate in "$python" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.10.*/bin/python3.10; do
    if "$candidate" -c 'import sys, venv; assert sys.version_info[:2] == (3, 10)' >/dev/null 2>&1; then
      copy_repository "$work/lockstep"
      (cd "$work/lockstep" && PYTHON="$candidate" bash -c "$checks")
      return
    fi
  done
  not_tested "line A needs Python 3.10, and none runs here"
}

test_line_b() {
  local root=$work/trixie
  bash "$repository/.ci/debian13.sh" "$root" 2>"$work/debian13.log" ||
    not_tested "line B needs a Debian 13 folder here (glibc 2.39): $(tail -n 1 "$work/debian13.log")"
  copy_repository "$root/lockstep"

  # Settings of package clients come along, and the folders that they name.
  local variables=(HOME=/root LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin) binds=() name folder
  while IFS= read -r name; do variables+=("$name=${!name}"); done < <(
    compgen -e | grep -E '^(PIP_|UV_|SSL_CERT|REQUESTS_CA|CURL_CA|OPENBLAS_)|_proxy$|_PROXY$' || true)
  for folder in ${PIP_FIND_LINKS:-}; do [ ! -d "$folder" ] || binds+=("$folder"); done

  # shellcheck disable=SC2016 # the inner shell expands these
  unshare --mount --propagation private bash -euo pipefail -c '
    root=$1 checks=$2; shift 2
    mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"; mount --rbind /sys "$root/sys"
    while [ "$1" != -- ]; do mkdir -p "$root$1"; mount --bind "$1" "$root$1"; shift; done; shift
    exec chroot "$root" /usr/bin/env -i "$@" bash -c "cd /lockstep && $checks"
  ' enter "$root" "$checks" "${binds[@]}" -- "${variables[@]}"
}

[ -x "$repository/.venv/bin/python" ] || { echo "other_line.sh: no .venv here; run make setup first" >&2; exit 2; }
if "$repository/.venv/bin/python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 10))'; then
  test_line_b
else
  test_line_a
fi
