# shellcheck shell=bash
# Sourced by the launchers of studies: `study NAME ARGUMENT ...` is python -m recipe.study in this checkout. A study's
# options are environment variables, described in recipe/runtime/options.py; one of another study is refused. Of all:
#   PLATFORM   cpu (default), gpu_1x8 or gpu_ray
#   DRY_RUN    1: print the commands, run none
#   PYTHON     the interpreter (default .venv/bin/python, which is made where it is missing)
#   LENGTH     tokens of an answer, in training, validation, probe and every evaluation
#              (default: data.max_response_length of the study's file in configs/experiment)
#   TRAIN, EVALUATE, EXPORT, PROBE   more overrides of recipe.train, more options of the others, for every such command
# A model is a Hugging Face folder or a hub's name (owner/model). A folder of results keeps in its study.json what it is
# made with - weights, data, settings; a study that finds something else there is refused.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

study() {
    local python=${PYTHON:-.venv/bin/python} platform=gpu
    [ "${PLATFORM:-cpu}" != cpu ] || platform=cpu
    if [ -z "${PYTHON:-}" ] && [ ! -e .venv/.stamp ]; then
        if [ -n "${DRY_RUN:-}" ]; then
            echo "stopped: no .venv; first bash scripts/setup.sh $platform, or PYTHON=..." >&2
            exit 2
        fi
        bash scripts/setup.sh $platform >&2
    fi
    exec "$python" -m recipe.study "$@"
}
