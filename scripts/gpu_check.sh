#!/usr/bin/env bash
# Does the GPU path work on this machine? About 15 minutes after set-up (limits: 24, on several GPUs 31): micro data and
# model, log-probabilities and gradients against the CPU's, projection, memory against its plan, tokens per second, and
# two steps of GRPO with credit and protected skills on the whole stack; adapters and all weights. One table at the end.
# Needs no network after set-up.
#   bash scripts/gpu_check.sh [FOLDER [options of benchmarks.gpu ...]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
grep -qs -- -gpu .venv/.stamp || bash scripts/setup.sh gpu
bash scripts/micro_start.sh
exec .venv/bin/python -m benchmarks.gpu "$@"
