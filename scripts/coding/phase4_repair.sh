#!/usr/bin/env bash
# Phase 4 (optional): repair in several turns. The agent writes a program, sees the first visible test that fails, and
# fixes it; GRPO over whole episodes from phase 3's model. In OUT/phase4: `before` and `repair` are multi-turn
# evaluations with recovery_rate, the share of first-turn failures that end accepted;
# `dev` is single-turn, as in all phases.
#   [AGENTS=a file of configs/agents] [EXPERIMENT=code_grpo] [REPAIR="actor_rollout_ref.actor.optim.lr=5e-7 ..."] \
#       bash scripts/coding/phase4_repair.sh     after phase3_grpo.sh
# A turn has LENGTH tokens. A training response holds the whole episode, so its limit is LENGTH times the number of
# turns; REPAIR="data.max_response_length=..." makes more room for the environment's answers between them.
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study coding.phase4_repair "$@"
