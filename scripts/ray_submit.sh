#!/usr/bin/env bash
# Submit a command or a study of this project to a running Ray cluster, with this folder as its working directory.
#   bash scripts/ray_submit.sh [--dry-run] recipe.train experiment=NAME key=value ...
#   bash scripts/ray_submit.sh [--dry-run] scripts/countdown.sh MODEL   PLATFORM=gpu_ray, and the study's own variables
# DRY_RUN=1 is the same as --dry-run.
# RAY_API_SERVER_ADDRESS or RAY_ADDRESS: where the cluster's job server listens (default http://127.0.0.1:8265).
# SUBMIT_ENV: names of additional environment variables that the workers need, separated by blanks.
# A cluster with token authentication (Ray's default) needs RAY_AUTH_MODE=token here and where it was started.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$here"

dry_run=${DRY_RUN:+echo}
if [ "${1:-}" = --dry-run ]; then
    dry_run=echo
    shift
fi
if [ $# -eq 0 ]; then
    sed -n '2,8s/^# //p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
python=${PYTHON:-$here/.venv/bin/python}
[ -x "$python" ] ||
    { echo "no $python: run bash scripts/setup.sh, or name the nodes' interpreter: PYTHON=..." >&2; exit 2; }

command=("$python" -m "$@")
[[ $1 != *.sh ]] || command=(env -C "$here" bash "$@")
runtime_env=$("$python" -m recipe.runtime.environment "$1")
export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}
address=${RAY_API_SERVER_ADDRESS:-${RAY_ADDRESS:-http://127.0.0.1:8265}}
$dry_run "$(dirname "$python")/ray" job submit --address "$address" --working-dir . \
    --runtime-env-json "$runtime_env" -- "${command[@]}"
