#!/usr/bin/env bash
# Submit a command or a study of this project to a running Ray cluster, with this folder as its working directory.
#   bash scripts/ray_submit.sh [--dry-run] recipe.train experiment=NAME key=value ...
#   bash scripts/ray_submit.sh [--dry-run] scripts/countdown.sh MODEL      PLATFORM=gpu_ray, and the study's own variables
# DRY_RUN=1 is the same as --dry-run.
# RAY_API_SERVER_ADDRESS or RAY_ADDRESS: where the cluster's job server listens (default http://127.0.0.1:8265).
# SUBMIT_ENV: names of further environment variables that the workers need, separated by blanks.
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
[ -x "$python" ] || { echo "no $python: run bash scripts/setup.sh, or name the nodes' interpreter: PYTHON=..." >&2; exit 2; }

# Relative paths mean this folder, not the copy that Ray unpacks; data/, outputs/ and .venv/ (see .gitignore) stay here.
forwarded="HF_HOME HF_HUB_OFFLINE WANDB_MODE WANDB_ENTITY WANDB_BASE_URL ${SUBMIT_ENV:-}"
command=("$python" -m "$@")
if [[ $1 == *.sh ]]; then
    export PLATFORM=${PLATFORM:-gpu_ray}
    forwarded="$forwarded PLATFORM PYTHON DATA OUT EXPERIMENT LENGTH TRAIN EXPORT EVALUATE SAMPLES SFT SFT_EXPERIMENT DPO REWARD REPAIR AGENTS
        WITHOUT PRESET SOURCE SOURCE_OPTIONS FOLDER PROBE NAME TASKS VOLUMES SEQUENCE_PARALLEL OFFLOAD_REF JOBS RAY_API_SERVER_ADDRESS
        ARMS EPSILONS SEEDS SEED ORDERS SUITE REACH KEPT REFRESH_STEPS TRAIN_FILES VAL_FILES SKILLS"
    command=(env -C "$here" bash "$@")
fi
runtime_env=$(SUBMIT_ENV=$forwarded \
    "$python" - "$here" "$python" <<'PY'
import json, os, shlex, sys

names = os.environ["SUBMIT_ENV"].split()
variables = {name: os.environ[name] for name in names if name in os.environ}
# The run adds variables of its own to the job's environment.
variables |= {"SKILLCREDIT_HOME": sys.argv[1], "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1", "PYTHONUNBUFFERED": "1"}
environment = {"env_vars": variables, "excludes": [".git", ".venv", "data", "outputs"]}
# Ray hands the interpreter's path to a shell as it is.
if (quoted := shlex.quote(sys.argv[2])) != sys.argv[2]:
    environment["py_executable"] = quoted
print(json.dumps(environment))
PY
)
export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}
address=${RAY_API_SERVER_ADDRESS:-${RAY_ADDRESS:-http://127.0.0.1:8265}}
$dry_run "$(dirname "$python")/ray" job submit --address "$address" --working-dir . \
    --runtime-env-json "$runtime_env" -- "${command[@]}"
