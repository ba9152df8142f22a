#!/usr/bin/env bash
# GRPO on levels 1 to 5 in order, in one run, and its Hugging Face folder outputs/npg_muse/curriculum_.../model. Every level
# has as many steps as its rows fill batches; the model is validated at the end of each level.
#   bash scripts/npg_muse/curriculum.sh MODEL REWARD VOLUME   smoke: VOLUME 750
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
read_arguments "$@"
make_data
batch=$(sed -n 's/.*data\.train_batch_size=\([0-9]*\).*/\1/p' <<<"${TRAIN:-}")
steps=$((VOLUME / 5 / ${batch:-128}))
[ "$steps" -ge 1 ] || { say "a level of $((VOLUME / 5)) rows does not fill a batch of ${batch:-128}"; exit 2; }
[ "$VOLUME" -gt 750 ] || steps=1
levels=$(printf ',level%s' "${LEVELS[@]}")
stages=$(printf ',[level%s]' "${LEVELS[@]}")
train "$MODEL" "curriculum_$NAME" protocol=curriculum "protocol.levels=[${stages#,}]" "protocol.stage_steps=$steps" \
    "trainer.test_freq=$steps" skills.by=function skills.function=rewards.skills:level_of "skills.names=[${levels#,}]"
in_task "outputs/$EXPERIMENT/curriculum_$NAME/model" "outputs/$EXPERIMENT/curriculum_$NAME/dev" dev
