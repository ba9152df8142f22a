#!/usr/bin/env bash
# Compare lm-eval (cross_domain.sh) with recipe.evaluate: both run the same model greedily on the micro suite's 51 test
# problems of the skill trace. Needs the micro suite (scripts/quickstart.sh) and scripts/setup.sh lm_eval.
#   bash scripts/npg_muse/lm_eval_agreement.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
out=outputs/own

run mkdir -p $out
run "$PYTHON" - <<'END'
import json

import pandas

rows = pandas.read_parquet("data/micro/test.parquet").query("skill == 'trace'")
rows.to_parquet("outputs/own/trace.parquet")
truths = [json.loads(row["ground_truth"])["expected"] for row in rows.reward_model]
questions = [row[0]["content"] for row in rows.prompt]
answers = [truth.strip("()").replace(" ", "") for truth in truths]
table = pandas.DataFrame({"question": questions, "answer": answers})
table.to_json("outputs/own/trace.jsonl", orient="records", lines=True)
END

run tee $out/trace.yaml <<'END'
task: micro_trace
dataset_path: json
dataset_kwargs: {data_files: {test: outputs/own/trace.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: [], max_gen_toks: 32, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
END

export SETS=micro_trace LM_EVAL="--include_path $out" LENGTH=32 VLLM_CPU_KVCACHE_SPACE=1 TORCH_COMPILE_DISABLE=1
export VLLM_ARGS=dtype=float32,enforce_eager=True,block_size=32,enable_chunked_prefill=False,max_model_len=512
VLLM_ARGS+=,max_num_batched_tokens=512
run bash scripts/npg_muse/cross_domain.sh data/micro/model $out
serve "$PYTHON" -m recipe.evaluate --model data/micro/model --platform "$serving" --vllm=--max-model-len=512 \
    --max-tokens $LENGTH --data trace=$out/trace.parquet --out $out/ours
