#!/usr/bin/env bash
# The ablation of the study in its order, one run after the other: volume (binary, mixed), curriculum or mixed, reward, and
# curriculum or mixed again. Each step takes the setting with the highest mean accepted@1 over the levels' dev sets; of
# equals the first. What was finished before is used again.
#   [VOLUMES="45000 60000 90000"] bash scripts/npg_muse/train_ablation.sh MODEL      smoke: VOLUMES="750"
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
model=${1:?which model? a Hugging Face folder after supervised training}
read -ra volumes <<<"${VOLUMES:-45000 60000 90000}"
here=scripts/npg_muse

folder() { # strategy, reward, volume
    read_arguments "$model" "$2" "$3"
    echo "outputs/$EXPERIMENT/$1_$NAME/dev"
}

best() { # folders...: the number of the best one, from 0
    [ -z "${DRY_RUN:-}" ] || { echo 0; return; }
    local winner number=0
    winner=$("$PYTHON" -m recipe.choose "$@")
    while [ "$1" != "$winner" ]; do shift && number=$((number + 1)); done
    echo $number
}

say "step 1: data volume"
for volume in "${volumes[@]}"; do bash $here/mixed.sh "$model" binary "$volume"; done
folders=()
for volume in "${volumes[@]}"; do folders+=("$(folder mixed binary "$volume")"); done
volume=${volumes[$(best "${folders[@]}")]}

strategies=(mixed curriculum)
choose_strategy() { # reward: sets strategy
    bash $here/curriculum.sh "$model" "$1" "$volume"
    bash $here/mixed.sh "$model" "$1" "$volume"
    strategy=${strategies[$(best "$(folder mixed "$1" "$volume")" "$(folder curriculum "$1" "$volume")")]}
}
say "step 2: curriculum or mixed, volume $volume"
choose_strategy binary

say "step 3: reward, $strategy, volume $volume"
read -ra rewards <<<"$REWARDS"
folders=()
for reward in "${rewards[@]}"; do
    bash $here/"$strategy".sh "$model" "$reward" "$volume"
    folders+=("$(folder "$strategy" "$reward" "$volume")")
done
reward=${rewards[$(best "${folders[@]}")]}

say "step 4: curriculum or mixed with $reward"
choose_strategy "$reward"
say "chosen: $strategy $reward $volume; step 5: bash $here/train_all_series.sh $strategy $reward $volume MODEL ..."
