"""``python -m data_prep.pretrained``."""

import sys

from data_prep.pretrained.command import main

sys.exit(main())
