#!/usr/bin/env bash
# Phase 1: supervised training on the model's own accepted samples (rejection sampling). Aim: fewer programs that do not run.
#   [SAMPLES=8] [SFT="optim.lr=1e-5 ..."] bash scripts/coding/phase1_sft.sh     after phase0_baseline.sh
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
need "$OUT/phase0/model" "bash scripts/coding/phase0_baseline.sh MODEL"
claim "$OUT/phase1" --set "sft=${SFT_EXPERIMENT:-verified} samples=${SAMPLES:-8} ${SFT:-}"
[ ! -e "$OUT/phase1/model" ] || { say "reusing $OUT/phase1/model from an earlier run"; exit; }
evaluate "$OUT/phase0/model" "$OUT/phase1/samples" --data "train=$DATA/train.parquet" --protocol eval@k \
    --samples "${SAMPLES:-8}"
# shellcheck disable=SC2086
run "$PYTHON" -m recipe.sft "sft_experiment=${SFT_EXPERIMENT:-verified}" "sft_platform=$serving" "model.path=$OUT/phase0/model" \
    "verified.evaluations=[$OUT/phase1/samples]" "trainer.default_local_dir=$OUT/phase1/sft" ${SFT:-}
# shellcheck disable=SC2016
run bash -c 'cp -r "$(ls -d "$0"/sft/global_step_*/huggingface | sort -V | tail -n 1)" "$0/model"' "$OUT/phase1"
evaluate "$OUT/phase1/model" "$OUT/phase1/dev" --data "dev=$DATA/dev.parquet"
run "$PYTHON" -m recipe.report compare "$OUT/phase0/dev" "$OUT/phase1/dev" --out "$OUT/phase1/report.json"
