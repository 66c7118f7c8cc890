#!/usr/bin/env bash
# Builds the wheel, installs it with the locked runtime packages alone, and runs the taxi example with two workers from a
# folder whose own packages are named as Lockstep's folders are. Needs `make setup` to work; leaves only dist/ behind.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

rm -rf "$repository/dist"
make -C "$repository" --no-print-directory wheel
"$repository/.venv/bin/python" "$repository/requirements/install.py" \
  --venv "$work/venv" --lock runtime --wheel "$repository"/dist/tfx_lockstep-*.whl

# Whoever imports these instead of Lockstep's own packages fails, and says so.
for package in components pipelines transforms; do
  mkdir -p "$work/project/$package"
  echo "raise ImportError('the user\'s own package $package was imported in place of Lockstep\'s')" \
    >"$work/project/$package/__init__.py"
done

cd "$work/project"
"$work/venv/bin/lockstep" run taxi --workers 2 --root "$work/runs"
model=$(find "$work/runs" -path '*push*' -name saved_model.pb | head -n 1)
[ -n "$model" ] || { echo "wheel_run.sh: the run ended well but no model was pushed under $work/runs" >&2; exit 1; }
imported_from=$("$work/venv/bin/python" -c 'import lockstep.pipelines; print(lockstep.pipelines.__file__)')
[[ "$imported_from" == "$work/venv/"* ]] || { echo "wheel_run.sh: Lockstep came from $imported_from" >&2; exit 1; }
echo "The wheel works in a user's project: $(basename "$repository"/dist/*.whl)"
