#!/usr/bin/env bash
# GRPO on level 1, then 2, to 5: a run a level, each from the model of the one before; the optimiser begins anew at each.
#   bash scripts/npg_muse/curriculum.sh MODEL REWARD VOLUME   smoke: VOLUME 750
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
read_arguments "$@"
make_data
from=$MODEL
for level in "${LEVELS[@]}"; do
    train "$from" "curriculum_${NAME}_level$level" "$level"
    from=outputs/$EXPERIMENT/curriculum_${NAME}_level$level/model
done
run mkdir -p "outputs/$EXPERIMENT/curriculum_$NAME"
run ln -sfn "$(realpath -m "$from")" "outputs/$EXPERIMENT/curriculum_$NAME/model"
in_task "$from" "outputs/$EXPERIMENT/curriculum_$NAME/dev" dev
