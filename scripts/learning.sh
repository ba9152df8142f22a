#!/usr/bin/env bash
# The table of docs/evidence/learning.md: the quickstart's training from one start with three seeds, 36 updates each.
#   [SEEDS="0 1 2"] [KEPT=FILE] bash scripts/learning.sh [key=value ...]
# 13 samples per prompt, 663 per skill: a standard error of at most 1.94 points.
# A finished seed is not repeated; a stopped one resumes from its last checkpoint. KEPT: as in scripts/evidence_a.sh.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study learning "$@"
