#!/usr/bin/env bash
# Phase 0 of the coding pipeline: the unchanged model, evaluated on the dev set and linked as OUT/phase0/model.
#   [DATA=data/coding] [OUT=outputs/coding] [PLATFORM=...] bash scripts/coding/phase0_baseline.sh MODEL
# DATA holds train.parquet and dev.parquet of data_prep.govern, which decides what may be trained on.
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
need "$DATA/dev.parquet" "python -m data_prep.govern ... --out $DATA (docs/reference/data.md)"
model=$(local_model "${1:?which model? a Hugging Face folder or a hub name (owner/model)}")
say "data: $DATA ($([ -e "$DATA/manifest.jsonl" ] && sha256sum "$DATA/manifest.jsonl" || echo no manifest))"
run "$PYTHON" -m recipe.study "$OUT" --model "start=$model"
run mkdir -p "$OUT/phase0"
run ln -sfn "$(realpath -m "$model")" "$OUT/phase0/model"
evaluate "$OUT/phase0/model" "$OUT/phase0/dev" --data "dev=$DATA/dev.parquet"
