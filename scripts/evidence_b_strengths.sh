#!/usr/bin/env bash
# Choose the strengths of paper B's baselines that have one: runs with several values, on a seed that the evidence does
# not use.
#   [SEED=100] [KEPT=docs/evidence/paper_b/strengths.jsonl.gz] bash scripts/evidence_b_strengths.sh [key=value ...]
# Can be stopped and restarted: finished runs are not repeated.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
micro_start
take_kept outputs/evidence_b_strengths
micro_study evidence_b_strengths

try() { # arm, key of its strength, values
    local overrides=(experiment=paper_b run.experiment=evidence_b_strengths data.seed="${SEED:-100}" arm="$1"
        "protocol.skill_sequence=[write,repair,trace,sql]")
    local name=$1
    [ -z "${2:-}" ] || { overrides+=("$2=$3") && name="$1_\${$2}"; }
    multirun "${overrides[@]}" "run.name=$name.forward.s\${data.seed}" "${@:4}"
}

try grpo "" "" "$@"
try kl actor_rollout_ref.actor.kl_loss_coef 0.1,0.5,2.0 "$@"
try ewc penalty.strength 1000.0,10000.0,100000.0 "$@"
try l2 penalty.strength 0.01,0.1,1.0 "$@"
keep_runs outputs/evidence_b_strengths
run "$PYTHON" -m recipe.report skills outputs/evidence_b_strengths
exit $failed
