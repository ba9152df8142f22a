"""Sets of other domains: mathematics by recipe.evaluate, each with its k, the others by lm-eval's command line.

lm-eval has a separate environment (`bash scripts/setup.sh lm_eval`). Its sets here are those that a model answers in
text, as a model that thinks must; likelihoods of options would measure it without its thinking.
"""

import json
from pathlib import Path

from recipe.evaluation.vllm_servers import cpu_environment, cpu_options
from recipe.runtime.options import LmEvalOptions
from recipe.studies.steps import MadeWith, Steps, say
from recipe.studies.tasks import SMOKE_MODEL

COMMAND = ".venv-lm_eval/bin/lm_eval"
SETS = "aime24 aime25 math500 minerva gaokao2023en asdiv gsm8k mmlu_stem_generative"
# Sets of data_prep.public.maths and the answers to each problem, whose pass@k is reported; 1: one greedy answer.
ANSWERS = {"aime24": 64, "aime25": 64, "math500": 8, "minerva": 8, "gaokao2023en": 8, "asdiv": 1}

# lm-eval's arguments of vLLM for THINKING.
THINKING = {"on": "enable_thinking=True,think_end_token=</think>", "off": "enable_thinking=False"}

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
MICRO_TOKENS = "512"  # of the micro model's context


def cross_domain(steps: Steps[LmEvalOptions], model: str, out: str) -> None:
    """Each of SETS by one command; the data are downloaded. Answers are as long as in the study's training."""
    experiment = steps.options.experiment or "npg_muse"
    steps = steps.with_length(experiment)
    given, model = steps.options, steps.local_model(model)
    names = (given.sets or SETS).split()
    for name in filter(ANSWERS.get, names):
        _mathematics(steps, experiment, name, model, f"{out}/{name}")
    others = [name for name in names if name not in ANSWERS]
    if others:
        steps.need(COMMAND, "bash scripts/setup.sh lm_eval")
    thinking = THINKING.get(given.thinking, "")
    for name in others:
        folder = f"{out}/{name}"
        vllm_args = ",".join(filter(None, (given.vllm_args, thinking)))
        how = f"max_gen_toks={given.length} {vllm_args} {given.lm_eval}"
        steps.claim(MadeWith(folder, {"model": model}, settings={"lm_eval": how}))
        if any(Path(folder).glob("*/results_*.json")):
            say(f"using {folder} of an earlier run")
            continue
        arguments = f"pretrained={model}" + (f",{vllm_args}" if vllm_args else "")
        steps.serve(
            COMMAND, "run", "--model", "vllm", "--model_args", arguments, "--batch_size", "auto", "--tasks", name,
            "--apply_chat_template", "--gen_kwargs", f"max_gen_toks={given.length}", "--log_samples",
            "--output_path", folder, *given.lm_eval.split(),
        )  # fmt: skip


def _mathematics(steps: Steps[LmEvalOptions], experiment: str, name: str, model: str, out: str) -> None:
    rows, count = f"data/maths/{name}", str(ANSWERS[name])
    steps.make_rows(rows, "public.maths", "--set", name, "--experiment", experiment)
    sampled = ("--sampling", "eval@k", "--samples", count, "--k", "1", count) if count != "1" else ()
    steps.evaluate(experiment, model, out, {name: f"{rows}/test.parquet"}, *sampled)


def agreement(steps: Steps[LmEvalOptions]) -> None:
    """Do lm-eval and recipe.evaluate agree on the micro suite's 51 test problems of the skill trace?"""
    steps.run("mkdir", "-p", AGREEMENT)
    if not steps.dry:
        _write_task(Path(AGREEMENT))
    engine = {
        "dtype": "float32", **cpu_options(), "max_model_len": MICRO_TOKENS, "max_num_batched_tokens": MICRO_TOKENS
    }  # fmt: skip
    steps = steps.with_environment(**cpu_environment()).changed(
        sets="micro_trace", lm_eval=f"--include_path {AGREEMENT}", length="32",
        vllm_args=",".join(f"{name}={value}" for name, value in engine.items()),
    )  # fmt: skip
    cross_domain(steps, SMOKE_MODEL, AGREEMENT)
    steps.serve(
        steps.python, "-m", "recipe.evaluate", "--model", SMOKE_MODEL, "--platform", steps.serving,
        f"--vllm=--max-model-len={MICRO_TOKENS}", "--max-tokens", "32", "--data", f"trace={AGREEMENT}/trace.parquet",
        "--out", f"{AGREEMENT}/ours",
    )  # fmt: skip


def _write_task(folder: Path) -> None:
    """The problems as lm-eval's task and as our rows."""
    import pandas  # half a second, which other studies need not wait

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
