#!/usr/bin/env bash
# Skill-safe updates, from seconds to days:
#   bash scripts/run_paper_b.sh toy                     numpy problems with known gradients, all methods
#   bash scripts/run_paper_b.sh micro [key=value ...]   micro suite on a CPU: the baseline matrix, and a sweep of epsilon
#   bash scripts/run_paper_b.sh real [key=value ...]    the same on GPUs; needs TRAIN, VAL (parquet) and SKILLS ([a,b,c])
# ARMS="grpo qp_solutions ..." picks arms of scripts/arms_b.sh; EPSILONS="0.0 0.01 ..." values of the sweep (none: "");
# SEEDS="0 1". Can be stopped and started again: finished runs are not done again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/arms_b.sh
scale=${1:-}
[ $# -gt 0 ] && shift

case $scale in
    toy)
        bash scripts/setup.sh cpu
        exec .venv/bin/python -m recipe.toy projection "$@"
        ;;
    micro)
        bash scripts/setup.sh cpu
        bash scripts/micro_start.sh
        words=(experiment=paper_b)
        ;;
    real)
        : "${TRAIN:?a parquet file of training rows}" "${VAL:?one of validation rows}" "${SKILLS:?their order, as [a,b,c]}"
        words=(experiment=paper_b_real data.train_files="$TRAIN" data.val_files="$VAL" skills.names="$SKILLS")
        ;;
    *)
        sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
        exit 2
        ;;
esac

matrix=outputs/paper_b_$scale sweep=outputs/paper_b_${scale}_epsilon
for seed in ${SEEDS:-0}; do
    for arm in ${ARMS:-grpo kl entropy replay refresh ewc l2 sequential_margin qp_rollouts qp_solutions qp_both}; do
        # shellcheck disable=SC2046
        run_once "$matrix" "$arm" "$arm.s$seed" "${words[@]}" $(staged_seed_words "$seed") "$@"
    done
    for epsilon in ${EPSILONS-0.0 0.01 0.03 0.1 0.3}; do
        # shellcheck disable=SC2046
        run_once "$sweep" qp_solutions "epsilon$epsilon.s$seed" "${words[@]}" $(staged_seed_words "$seed") \
            projection.epsilon="$epsilon" projection.epsilon_kind=cosine "$@"
    done
done
python=${PYTHON:-.venv/bin/python}
$python -m recipe.compare_skills "$matrix"
[ -z "${EPSILONS-x}" ] || $python -m recipe.compare_skills "$sweep" --pareto
