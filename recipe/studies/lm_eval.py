"""Sets of other domains by lm-eval's command line, in a separate environment (`bash scripts/setup.sh lm_eval`)."""

import json
from pathlib import Path

import pandas

from recipe.studies.steps import MadeWith, Steps, say

COMMAND = ".venv-lm_eval/bin/lm_eval"
SETS = "aime24 aime25 hendrycks_math500 minerva_math gsm8k agieval_sat_math agieval_aqua_rat mmlu_stem"

# The comparison of lm-eval with recipe.evaluate.
AGREEMENT = "outputs/own"
AGREEMENT_TASK = f"""\
task: micro_trace
dataset_path: json
dataset_kwargs: {{data_files: {{test: {AGREEMENT}/trace.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: [], max_gen_toks: 32, do_sample: false}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""
MICRO_MODEL = "data/micro/model"
MICRO_VLLM = (
    "dtype=float32,enforce_eager=True,block_size=32,enable_chunked_prefill=False,max_model_len=512,"
    "max_num_batched_tokens=512"
)


def cross_domain(steps: Steps, model: str, out: str) -> None:
    """Each of SETS by one command; lm-eval downloads its data. Answers are as long as in the study's training."""
    steps = steps.with_length(steps.options.experiment or "npg_muse")
    given, model = steps.options, steps.local_model(model)
    steps.need(COMMAND, "bash scripts/setup.sh lm_eval")
    for name in (given.sets or SETS).split():
        folder = f"{out}/{name}"
        how = f"max_gen_toks={given.length} {given.vllm_args} {given.lm_eval}"
        steps.claim(MadeWith(folder, {"model": model}, settings={"lm_eval": how}))
        if any(Path(folder).glob("*/results_*.json")):
            say(f"{folder} of an earlier run is used")
            continue
        arguments = f"pretrained={model}" + (f",{given.vllm_args}" if given.vllm_args else "")
        steps.serve(
            COMMAND, "run", "--model", "vllm", "--model_args", arguments, "--batch_size", "auto", "--tasks", name,
            "--apply_chat_template", "--gen_kwargs", f"max_gen_toks={given.length}", "--log_samples",
            "--output_path", folder, *given.lm_eval.split(),
        )  # fmt: skip


def agreement(steps: Steps) -> None:
    """Do lm-eval and recipe.evaluate agree on the micro suite's 51 test problems of the skill trace?"""
    steps.run("mkdir", "-p", AGREEMENT)
    if not steps.dry:
        _write_task(Path(AGREEMENT))
    steps = steps.with_environment(VLLM_CPU_KVCACHE_SPACE="1", TORCH_COMPILE_DISABLE="1").changed(
        sets="micro_trace", lm_eval=f"--include_path {AGREEMENT}", length="32", vllm_args=MICRO_VLLM
    )
    cross_domain(steps, MICRO_MODEL, AGREEMENT)
    steps.serve(
        steps.python, "-m", "recipe.evaluate", "--model", MICRO_MODEL, "--platform", steps.serving,
        "--vllm=--max-model-len=512", "--max-tokens", "32", "--data", f"trace={AGREEMENT}/trace.parquet",
        "--out", f"{AGREEMENT}/ours",
    )  # fmt: skip


def _write_task(folder: Path) -> None:
    """The problems as lm-eval's task and as our rows."""
    rows = pandas.read_parquet("data/micro/test.parquet").query("skill == 'trace'")
    rows.to_parquet(folder / "trace.parquet")
    truths = [json.loads(row["ground_truth"])["expected"] for row in rows.reward_model]
    table = pandas.DataFrame(
        {
            "question": [row[0]["content"] for row in rows.prompt],
            "answer": [truth.strip("()").replace(" ", "") for truth in truths],
        }
    )
    table.to_json(folder / "trace.jsonl", orient="records", lines=True)
    (folder / "trace.yaml").write_text(AGREEMENT_TASK)
