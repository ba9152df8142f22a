#!/usr/bin/env bash
# How strong the baselines of the evidence of paper B that have a strength should be: runs with several, on a seed that
# the evidence does not use.
#   [SEED=100] [KEPT=docs/evidence/paper_b/strengths.jsonl.gz] bash scripts/evidence_b_strengths.sh [key=value ...]
# Can be stopped and started again: finished runs are not done again.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
micro_start
take_kept outputs/evidence_b_strengths
micro_study evidence_b_strengths

try() { # arm, key of its strength, values
    local words=(experiment=paper_b run.experiment=evidence_b_strengths data.seed="${SEED:-100}" arm="$1"
        "protocol.skill_sequence=[write,repair,trace,sql]")
    local name=$1
    [ -z "${2:-}" ] || { words+=("$2=$3") && name="$1_\${$2}"; }
    multirun "${words[@]}" "run.name=$name.forward.s\${data.seed}" "${@:4}"
}

try grpo "" "" "$@"
try kl actor_rollout_ref.actor.kl_loss_coef 0.1,0.5,2.0 "$@"
try ewc penalty.strength 1000.0,10000.0,100000.0 "$@"
try l2 penalty.strength 0.01,0.1,1.0 "$@"
keep_runs outputs/evidence_b_strengths
run "$PYTHON" -m recipe.report skills outputs/evidence_b_strengths
exit $failed
