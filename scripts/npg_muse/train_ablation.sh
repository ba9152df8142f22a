#!/usr/bin/env bash
# The study's five steps in order: volume, curriculum or mixed, reward, curriculum or mixed again, other models. Each step
# chooses the setting with the highest mean accepted@1 over the levels' dev sets, the first of equals; at the end one table
# of all runs. Finished runs are reused.
#   [VOLUMES="45000 60000 90000"] bash scripts/npg_muse/train_ablation.sh MODEL [OTHER MODEL ...]
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
model=${1:?which model? after supervised training: a folder, or a hub name}
here=scripts/npg_muse
say "step 1: data volume"
volume=$(bash $here/choose_data_volume.sh "$model")
say "step 2: curriculum or mixed, volume $volume"
first=$(bash $here/compare_curriculum.sh "$model" binary "$volume")
say "step 3: reward, $first, volume $volume"
reward=$(bash $here/ablate_rewards.sh "$model" "$first" "$volume")
say "step 4: curriculum or mixed with $reward, volume $volume"
strategy=$(bash $here/compare_curriculum.sh "$model" "$reward" "$volume")
say "step 5: $strategy $reward $volume on the other models"
[ $# -eq 1 ] || bash $here/train_all_series.sh "$strategy" "$reward" "$volume" "${@:2}"

declare -A seen=() # two steps may share a run
runs=()
add() { # mixed|curriculum MODEL REWARD VOLUME
    local evaluation
    evaluation=$(folder "$@")/dev
    [ -n "${seen[$evaluation]:-}" ] || runs+=("$evaluation")
    seen[$evaluation]=1
}
for other in ${VOLUMES:-45000 60000 90000}; do add mixed "$model" binary "$other"; done
add curriculum "$model" binary "$volume"
for other in $REWARDS; do add "$first" "$model" "$other" "$volume"; done
for other in mixed curriculum; do add $other "$model" "$reward" "$volume"; done
for other in "${@:2}"; do add "$strategy" "$other" "$reward" "$volume"; done
run "$PYTHON" -m recipe.report choose "${runs[@]}"
say "chosen: $strategy $reward $volume"
