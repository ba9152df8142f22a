#!/usr/bin/env bash
# The claims of both papers on SmolLM2-135M: the runs of docs/evidence/pretrained_plan.md and their tables.
#   [SEEDS="30 31 ..."] [ARMS="grpo credit ..."] [ORDERS="forward backward"] [RATES="1e-4 3e-4 1e-3"] \
#       [VALUES="0.03"] [SAMPLES=6] [KEPT=FOLDER] \
#       bash scripts/evidence_pretrained.sh rates|sequence|tune|credit|safe|both [key=value ...]
# `rates` and `tune` (VALUES: of one arm) choose rate and strengths on separate seeds, where `sequence` says whether
# GRPO forgets at all; what wins goes into GRPO_RATE and TUNED_STRENGTHS of recipe/studies/pretrained_evidence.py before
# the other stages, which stop without it. As each of their runs ends, what it did to held-out text is measured
# (`report general`). SAMPLES: per prompt, of grpo_more_samples. Can be restarted.
# KEPT, a folder with a file of recipe.keep per stage, gets each run as it ends and continues a study elsewhere.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study evidence_pretrained "$@"
