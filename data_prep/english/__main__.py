"""``python -m data_prep.english``."""

import sys

from data_prep.english.suite import main

sys.exit(main())
