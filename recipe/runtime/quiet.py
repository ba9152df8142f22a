"""Silence log messages of the stack that are useless to a user, and let it load faster. Import it first."""

import logging
import os
import warnings

from workers.cpu.collection import collect_rarely

collect_rarely()

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("VERL_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")

# verl tries every known engine and warns about each that is not installed.
warnings.filterwarnings("ignore", message=r".* engine is not available")
warnings.filterwarnings("ignore", message=r"Disabled critic as algorithm.adv_estimator")
warnings.filterwarnings("ignore", message=r"'set_vital' is deprecated")

# The driver process needs no accelerator. A filter, because verl sets this logger's level on import.
logging.getLogger("verl.plugin.platform.platform_manager").addFilter(lambda record: record.levelno >= logging.ERROR)
logging.getLogger("transfer_queue").setLevel(logging.ERROR)
