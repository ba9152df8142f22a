#!/usr/bin/env bash
# Test sets of other domains, by lm-eval's own command line in a separate environment (bash scripts/setup.sh lm_eval).
# lm-eval downloads its data. One command per set; a set with results is not evaluated again.
#   [SETS="gsm8k ..."] [LM_EVAL="--limit 100"] bash scripts/npg_muse/cross_domain.sh MODEL OUT
# MODEL: a Hugging Face folder or a hub name. LENGTH: tokens of an answer (default: the study's, overriding lm-eval's task).
# LM_EVAL: more options of `lm_eval run`; VLLM_ARGS: of its vLLM, such as "tensor_parallel_size=8,max_model_len=16384".
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
answers_of "${EXPERIMENT:-npg_muse}"
[ $# -eq 2 ] || { say "expected two arguments: MODEL OUT"; exit 2; }
model=$(local_model "$1")
need .venv-lm_eval/bin/lm_eval "bash scripts/setup.sh lm_eval"
for set in ${SETS:-aime24 aime25 hendrycks_math500 minerva_math gsm8k agieval_sat_math agieval_aqua_rat mmlu_stem}; do
    claim "$2/$set" --model "model=$model" --set "lm_eval=max_gen_toks=$LENGTH ${VLLM_ARGS:-} ${LM_EVAL:-}"
    if compgen -G "$2/$set/*/results_*.json" >/dev/null; then
        say "reusing $2/$set from an earlier run"
        continue
    fi
    # shellcheck disable=SC2086
    serve .venv-lm_eval/bin/lm_eval run --model vllm --model_args "pretrained=$model${VLLM_ARGS:+,$VLLM_ARGS}" --batch_size auto \
        --tasks "$set" --apply_chat_template --gen_kwargs "max_gen_toks=$LENGTH" --log_samples --output_path "$2/$set" ${LM_EVAL:-}
done
