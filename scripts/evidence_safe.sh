#!/usr/bin/env bash
# Bounded forgetting: the runs of docs/evidence/skill_safe_plan.md and their table.
#   [SEEDS="40 41 ..."] [ORDERS="forward backward"] [ARMS="grpo closed_loop ..."] [VALUES="1 3"] [KEPT=FILE] \
#       [START=FOLDER] bash scripts/evidence_safe.sh tune|arms|estimates|memory|baselines|six [key=value ...]
# `tune` tries three strengths of each arm that has one on separate seeds, or VALUES of one arm; the best goes into its
# file of configs/arm, configs/penalty or the like before `arms`. `memory`: three arms with 8 memory prompts per skill.
# `baselines`: each skill alone and their models merged, all mixed, one after the other. `six`: six skills. Can be
# stopped and restarted. START: an earlier starting model. KEPT: as in scripts/evidence_a.sh.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study evidence_safe "$@"
