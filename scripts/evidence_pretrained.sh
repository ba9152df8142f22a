#!/usr/bin/env bash
# The claims of both papers on SmolLM2-135M: the runs of docs/evidence/pretrained_plan.md and their tables.
#   [SEEDS="30 31 ..."] [ARMS="grpo credit ..."] [ORDERS="forward backward"] [RATES="1e-4 3e-4 1e-3"] [KEPT=FILE] \
#       bash scripts/evidence_pretrained.sh rates|tune|credit|safe|both [key=value ...]
#   bash scripts/evidence_pretrained.sh general RUN_DIRECTORY ...
# `rates` and `tune` choose rate and strengths on separate seeds; what wins goes into configs/experiment and
# configs/arm before the other stages. Can be stopped and restarted. KEPT: as in scripts/evidence_a.sh.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study evidence_pretrained "$@"
