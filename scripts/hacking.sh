#!/usr/bin/env bash
# Does GRPO learn to hack? A weak judge, which pays for the shown tests alone, against ours, in one picture.
#   [SEEDS="0 1 2"] [ARMS="grpo weak_judge"] [SOURCE_OPTIONS="--hack-share 0.05"] [KEPT=FILE] \
#   bash scripts/hacking.sh [key=value ...]
# The start has seen demonstrations of which 1% special-case the test in their prompt. SOURCE_OPTIONS: of
# data_prep.micro. A stopped study resumes. KEPT: as in scripts/evidence_a.sh.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study hacking "$@"
