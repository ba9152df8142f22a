#!/usr/bin/env bash
# Phase 3: GRPO with verifiable rewards, from phase 2's model, or phase 1's if phase 2 was skipped.
#   [REWARD=dense|sparse] [EXPERIMENT=code_grpo] [TRAIN="credit=counterfactual projection=qp"] bash scripts/coding/phase3_grpo.sh
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
need "$OUT/phase1/model" "bash scripts/coding/phase1_sft.sh"
start=$OUT/phase1
[[ " ${WITHOUT:-} " == *" 2 "* ]] || [ ! -e "$OUT/phase2/model" ] || start=$OUT/phase2
case ${REWARD:-dense} in
    dense) partial=true ;;
    sparse) partial=false ;;
    *) stop "unknown REWARD '$REWARD'; valid ones: dense, sparse" ;;
esac
claim "$OUT/phase3" --model "begins=$start/model" --set "reward=${REWARD:-dense}"
name=$(basename "$OUT")_${REWARD:-dense}
grpo "$EXPERIMENT" "$start/model" "$name" "data.train_files=$DATA/train.parquet" "data.val_files=$DATA/dev.parquet" \
    "reward.custom_reward_function.reward_kwargs.partial_credit=$partial"
run mkdir -p "$OUT/phase3"
run ln -sfn "$(realpath -m "outputs/$EXPERIMENT/$name/model")" "$OUT/phase3/model"
evaluate "$OUT/phase3/model" "$OUT/phase3/dev" --data "dev=$DATA/dev.parquet"
run "$PYTHON" -m recipe.report compare "$start/dev" "$OUT/phase3/dev" --out "$OUT/phase3/report.json"
