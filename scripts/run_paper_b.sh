#!/usr/bin/env bash
# Skill-safe updates, from seconds to days:
#   bash scripts/run_paper_b.sh toy                     numpy problems with known gradients, all methods
#   bash scripts/run_paper_b.sh micro [key=value ...]   micro suite on a CPU: the baseline matrix, and a sweep of epsilon
#   bash scripts/run_paper_b.sh real [key=value ...]    the same on GPUs; needs TRAIN, VAL (parquet) and SKILLS ([a,b,c])
# ARMS="grpo qp_solutions ..." picks files of configs/arm; EPSILONS="0.0 0.01 ..." values of the sweep (none: "");
# SEEDS="0 1". Both are Hydra multiruns. Can be stopped and started again: finished runs are not done again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python}
scale=${1:-}
[ $# -gt 0 ] && shift

case $scale in
    toy)
        bash scripts/setup.sh cpu
        exec $python -m recipe.toy projection "$@"
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
        sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
        exit 2
        ;;
esac

arms=${ARMS:-grpo kl entropy replay refresh ewc l2 sequential_margin qp_rollouts qp_solutions qp_both}
seeds=${SEEDS:-0} epsilons=${EPSILONS-0.0 0.01 0.03 0.1 0.3}
matrix=paper_b_$scale sweep=paper_b_${scale}_epsilon failed=0
$python -m recipe.train --multirun "${words[@]}" run.experiment="$matrix" data.seed="${seeds// /,}" \
    arm="${arms// /,}" 'run.name=${hydra:runtime.choices.arm}.s${data.seed}' "$@" || failed=$?
if [ -n "$epsilons" ]; then
    $python -m recipe.train --multirun "${words[@]}" run.experiment="$sweep" data.seed="${seeds// /,}" \
        arm=qp_solutions projection.epsilon="${epsilons// /,}" projection.epsilon_kind=cosine \
        'run.name=epsilon${projection.epsilon}.s${data.seed}' "$@" || failed=$?
fi
$python -m recipe.compare_skills "outputs/$matrix"
[ -z "$epsilons" ] || $python -m recipe.compare_skills "outputs/$sweep" --pareto
exit $failed
