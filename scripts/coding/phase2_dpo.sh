#!/usr/bin/env bash
# Phase 2 (optional): preferences among verified samples of the same problem. Aim: fewer answers without reward.
#   [SAMPLES=8] [DPO="--lr 5e-6 ..."] bash scripts/coding/phase2_dpo.sh     after phase1_sft.sh and scripts/setup.sh dpo
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
need "$OUT/phase1/model" "bash scripts/coding/phase1_sft.sh"
claim "$OUT/phase2" --model "phase1=$OUT/phase1/model" --set "dpo=samples=${SAMPLES:-8} ${DPO:-}"
[ ! -e "$OUT/phase2/model" ] || { say "reusing $OUT/phase2/model from an earlier run"; exit; }
evaluate "$OUT/phase1/model" "$OUT/phase2/samples" --data "train=$DATA/train.parquet" --protocol eval@k \
    --samples "${SAMPLES:-8}"
# shellcheck disable=SC2086
run "$PYTHON" -m recipe.dpo --model "$OUT/phase1/model" --evaluations "$OUT/phase2/samples" --out "$OUT/phase2" \
    --platform "$serving" ${DPO:-}
evaluate "$OUT/phase2/model" "$OUT/phase2/dev" --data "dev=$DATA/dev.parquet"
run "$PYTHON" -m recipe.report compare "$OUT/phase1/dev" "$OUT/phase2/dev" --out "$OUT/phase2/report.json"
