"""What vLLM gets on a CPU outside of training is what configs/platform/cpu.yaml says."""

from recipe.evaluation.cpu_serving import cpu_environment, cpu_flags


def test_the_platforms_values_become_options_of_vllm_serve():
    assert cpu_flags() == ["--enforce-eager", "--block-size", "32", "--no-enable-chunked-prefill"]


def test_the_engine_gets_the_platforms_cache_and_compiles_nothing():
    assert cpu_environment() == {"VLLM_CPU_KVCACHE_SPACE": "1", "TORCH_COMPILE_DISABLE": "1"}
