#!/usr/bin/env bash
# Evaluate a model of the study on problems that no run trains on:
#   in_task        its six tasks        cross_task   graph tasks in polynomial time        cross_domain   cross_domain.sh
#   [WHAT="in_task cross_task cross_domain"] [PROBLEMS=600] bash scripts/npg_muse/evaluate.sh MODEL OUT
# MODEL: a Hugging Face folder or a hub name. Answers are as long as in training (LENGTH).
# PROBLEMS: size of each of the first two groups, spread over tasks and levels. To compare two models:
# recipe.report compare OUT_A/in_task OUT_B/in_task
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
[ $# -eq 2 ] || { say "expected two arguments: MODEL OUT"; exit 2; }
model=$(local_model "$1")
for group in ${WHAT:-in_task cross_task cross_domain}; do
    case $group in
        in_task) tasks=("${TASKS[@]}") ;;
        cross_task) tasks=(common_neighbours shortest_distance connected_components diameter) ;;
        cross_domain)
            bash scripts/npg_muse/cross_domain.sh "$model" "$2/cross_domain"
            continue
            ;;
        *) check group "$group" in_task cross_task cross_domain ;;
    esac
    # data_prep reserves a tenth of --limit for testing.
    make_rows "data/npg_muse/$group" graphs --experiment "$EXPERIMENT" --tasks "${tasks[@]}" --limit $((${PROBLEMS:-600} * 10))
    evaluate "$model" "$2/$group" --data "$group=data/npg_muse/$group/test.parquet"
done
