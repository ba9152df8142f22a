"""Which of verl's tests are run, and why those that touch what we override are not."""

RUN = (
    "tests/trainer/ppo/v1/test_replay_buffer_on_cpu.py",
    "tests/trainer/ppo/v1/test_trainer_base_on_cpu.py",
    "tests/trainer/ppo/v1/test_reissue_inflight_on_cpu.py",
    "tests/trainer/ppo/v1/test_separate_async_step_switch_on_cpu.py",
    "tests/trainer/ppo/v1/test_rollout_profiling_on_cpu.py",
    "tests/trainer/ppo/test_core_algos_on_cpu.py",
    "tests/trainer/ppo/test_rollout_corr.py",
    "tests/trainer/ppo/test_rollout_corr_integration.py",
    "tests/trainer/test_multi_trajectories_advantage_on_cpu.py",
    "tests/workers/rollout/test_llm_server_response_length_cap_on_cpu.py",
    "tests/workers/rollout/test_llm_server_routed_experts_on_cpu.py",
    "tests/workers/test_engine_forward_step_detach_on_cpu.py",
    "tests/workers/test_engine_return_model_output_on_cpu.py",
    "tests/workers/test_engine_workers_mini_batch_trace_on_cpu.py",
    "tests/workers/test_fsdp_gradient_accumulation_sync_on_cpu.py",
    "tests/checkpoint_engine/test_global_steps_on_cpu.py",
    "tests/checkpoint_engine/test_fsdp_lora_only_checkpoint_on_cpu.py",
    "tests/plugin/test_platform_abstraction.py",
    "tests/test_base_config_on_cpu.py",
    "tests/utils/test_config_on_cpu.py",
    "tests/workers/config/test_actor_config_on_cpu.py",
)
"""Files of a checkout. Some call nothing of ours: they show that verl's registries and defaults are as without us."""

_NO_CLASS = "calls a method that we override on an object of no class, without the attributes of ours"
_COPY = "tests a copy of verl's code"
TRAINER, ENGINE = "tests/trainer/ppo/v1", "tests/workers/test_engine"
NOT_RUN = {
    f"{TRAINER}/test_trainer_base_on_cpu.py::test_sync_failure_refill_overrides_dataloader_generation_batch_size": (
        "its data set is a list, without the rows that our schedule reads"
    ),
    f"{ENGINE}_return_model_output_on_cpu.py::test_fsdp_forward_backward_honors_return_model_output": _NO_CLASS,
    f"{ENGINE}_workers_mini_batch_trace_on_cpu.py::test_update_loop_names_each_mini_batch": _NO_CLASS,
    f"{TRAINER}/test_agent_loop_tq_on_cpu.py": "tests a function that our agent worker calls unchanged",
    f"{TRAINER}/test_compute_reward_colocate_on_cpu.py": _COPY,
    f"{TRAINER}/test_streaming_feed_on_cpu.py": _COPY,
    f"{ENGINE}_workers_lora_sync.py": _COPY,
    "tests/workers/rollout/test_vllm_weight_update_utils_on_cpu.py": "tests functions that our engine calls unchanged",
    "tests/experimental/agent_loop": "verl's worker without a transfer queue, from which ours does not inherit; GPUs",
    "tests/experimental/reward_loop": "reward models and rate limits, neither of which our manager has",
    "tests/checkpoint_engine/test_correctness_on_gpu.py": "needs GPUs",
    "tests/models/test_engine.py": "needs GPUs",
    "tests/special_distributed": "needs GPUs",
}
"""File, folder or test -> reason."""
