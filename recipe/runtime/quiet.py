"""Keeps a console readable: silences messages of the stack that tell a user nothing. Import it first."""

import logging
import os
import warnings

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("VERL_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")

# verl tries every engine that it knows and warns of each that is not installed.
warnings.filterwarnings("ignore", message=r".* engine is not available")
warnings.filterwarnings("ignore", message=r"Disabled critic as algorithm.adv_estimator")
warnings.filterwarnings("ignore", message=r"'set_vital' is deprecated")

# A filter, since verl sets this logger's level when it is imported: the driver's own process needs no accelerator.
logging.getLogger("verl.plugin.platform.platform_manager").addFilter(lambda record: record.levelno >= logging.ERROR)
logging.getLogger("transfer_queue").setLevel(logging.ERROR)
