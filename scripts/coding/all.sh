#!/usr/bin/env bash
# The coding pipeline, phases 0 to 4, and one table of their results. WITHOUT="2 4" skips phases 2 and 4.
#   [DATA=data/coding] [OUT=outputs/coding] [LENGTH=2048] [PLATFORM=...] [DRY_RUN=1] bash scripts/coding/all.sh MODEL
# MODEL: a Hugging Face folder or a hub name. A finished phase is not repeated. With the micro model: scripts/coding/micro.sh.
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
bash scripts/coding/phase0_baseline.sh "${1:?which model? a Hugging Face folder or a hub name (owner/model)}"
evaluations=("$OUT/phase0/dev") in_turns=()
for stage in phase1_sft phase2_dpo phase3_grpo phase4_repair; do
    phase=${stage%%_*}
    case " ${WITHOUT:-} " in *" ${phase#phase} "*) continue ;; esac
    bash scripts/coding/$stage.sh
    evaluations+=("$OUT/$phase/dev")
    [ $phase != phase4 ] || in_turns=(--beside "$OUT/phase4/before" "$OUT/phase4/repair")
done
run "$PYTHON" -m recipe.report choose "${evaluations[@]}" "${in_turns[@]}"
