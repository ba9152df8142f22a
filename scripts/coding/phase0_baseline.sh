#!/usr/bin/env bash
# Phase 0 of the coding pipeline: the model as it is, evaluated on the dev set, and linked as OUT/phase0/model.
#   [DATA=data/coding] [OUT=outputs/coding] [PLATFORM=...] bash scripts/coding/phase0_baseline.sh MODEL
# DATA holds train.parquet and dev.parquet of data_prep.govern; what may be trained on is decided there.
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
DATA=${DATA:-data/coding} OUT=${OUT:-outputs/coding} EXPERIMENT=${EXPERIMENT:-code_grpo}
MODEL=${1:?which model? a Hugging Face folder}
need "$DATA/dev.parquet" "python -m data_prep.govern ... --out $DATA (docs/data.md)"
need "$MODEL" "name a Hugging Face folder"
say "data: $DATA ($([ -e "$DATA/manifest.jsonl" ] && sha256sum "$DATA/manifest.jsonl" || echo no manifest))"
if [ -e "$OUT/phase0/model" ] && [ "$(realpath "$OUT/phase0/model")" != "$(realpath "$MODEL")" ]; then
    say "stopped: $OUT began with another model ($(realpath "$OUT/phase0/model")); choose another OUT"
    exit 2
fi
run mkdir -p "$OUT/phase0"
run ln -sfn "$(realpath -m "$MODEL")" "$OUT/phase0/model"
evaluate "$OUT/phase0/model" "$OUT/phase0/dev" --data "dev=$DATA/dev.parquet"
