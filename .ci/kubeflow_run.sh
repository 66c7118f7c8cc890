#!/usr/bin/env bash
# kubeflow_run.sh PYTHON ROOT: compiles the taxi pipeline for Kubeflow, runs the package as Kubeflow would, and compares
# the pushed model's predictions with those of the same pipeline run by `lockstep run taxi`, whose root is ROOT; then runs
# the package again, which Kubeflow would take from its cache. PYTHON is an environment with Lockstep, of either line.
set -euo pipefail
python=$(realpath -s "$(command -v "${1:?name the Python of an environment with Lockstep}")")
local_root=$(realpath "${2:?name the root of a run of taxi}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TF_CPP_MIN_LOG_LEVEL=3

lockstep() { "$python" -c 'import sys; from lockstep.pipelines.cli import main; sys.exit(main())' "$@"; }
fail() { echo "kubeflow_run.sh: $1" >&2; exit 1; }

cd "$work"
data=$("$python" -c 'import pathlib, tfx; print(next(iter(tfx.__path__)))')/examples/chicago_taxi_pipeline/data/simple/data.csv
lockstep compile taxi -o taxi.yaml
lockstep emulate taxi.yaml --root emulated
pushed=$(find emulated/store/minio/mlpipeline/lockstep/taxi/pushed -mindepth 1 -maxdepth 1 -name '[0-9]*')
[ -n "$pushed" ] || fail "the emulated pipeline pushed nothing"
lockstep predict "$pushed" --data "$data" -o emulated.csv
lockstep predict "$local_root/pushed" --data "$data" -o local.csv
cmp emulated.csv local.csv || fail "the emulated pipeline's model predicts otherwise than the local run's"
echo "$(($(wc -l <local.csv) - 1)) predictions are equal"
lockstep emulate taxi.yaml --root emulated --kfp-version 2.14 | tee second.txt
[ "$(grep -c ' cached ' second.txt)" = 8 ] || fail "the second run took other steps from the cache than the eight"
