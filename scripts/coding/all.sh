#!/usr/bin/env bash
# The coding pipeline, phases 0 to 3 (WITHOUT_DPO=1: without phase 2), and one table over the phases.
#   [DATA=data/coding] [OUT=outputs/coding] [PLATFORM=...] [DRY_RUN=1] bash scripts/coding/all.sh MODEL
# A stage that was finished before is not run again.
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
OUT=${OUT:-outputs/coding}
phases=(0 1 2 3)
[ -z "${WITHOUT_DPO:-}" ] || phases=(0 1 3)
bash scripts/coding/phase0_baseline.sh "${1:?which model? a Hugging Face folder}"
bash scripts/coding/phase1_sft.sh
[ -n "${WITHOUT_DPO:-}" ] || bash scripts/coding/phase2_dpo.sh
bash scripts/coding/phase3_grpo.sh
folders=("${phases[@]/#/$OUT/phase}")
run "$PYTHON" -m recipe.choose "${folders[@]/%//dev}"
