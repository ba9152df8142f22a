"""``python -m data_prep.graphs``."""

import sys

from data_prep.graphs.suite import main

sys.exit(main())
